"""Two LLMs to compare: their answers on four questions."""

LLMS = ["gpt-3.5-turbo", "gpt-4o-mini"]
WEAK = [
    ["a", "b", "a", "c", "b", "a"],
    ["x", "y", None, "y", "y", "x"],
    ["b", "c", "b", "a", "c", "c"],
    ["d"] * 6,
]
STRONG = [
    ["a"] * 5 + ["b"],
    ["y", "x", "y", "y", None, "y"],
    ["b", "b", "a", "b", "c", "b"],
    ["e", "d", "e", "e", "d", "d"],
]
GOLDS = ["a", "y", "b", "d"]
