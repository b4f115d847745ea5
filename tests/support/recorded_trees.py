"""A small recording of trees of steps, written out."""

from dataclasses import replace
from random import Random

from small import TOY, pool, write_rows

from feval.recording import LLMInfo, ScorerInfo, ScoreRows

GOLDS = ["4", "5", None]
DECODING = {"steps": {"stop": "\n\n", "policy": "all children"}}
PRM = ScorerInfo("prm", "python", {"version": 1})

Step = tuple[int | None, str | None, bool]
"""Parent, answer, whether it ends a solution."""

# Of the first question: 0 and 1 are first steps, 0 has the children 2 and 3, 1 has 4; 3 was not
# gone on from.
TREES = [
    [
        (None, None, False),
        (None, None, False),
        (0, "4", True),
        (0, None, False),
        (1, "5", True),
        (2 + 1, "4", True),
        (3, None, True),
    ],
    [(None, "5", True)],
    [],
]
SCORES = [[0.5, 0.25, 0.75, 0.5, 1.0, 0.5, None], [0.25], []]


def tree(index, steps, **fields):
    """A tree; its steps have 10, 11, 12, ... tokens."""
    steps_of = (
        {"parents": [each[0] for each in steps], "ends": [each[2] for each in steps]}
        if steps
        else {}
    )
    return pool(index, [each[1] for each in steps], **steps_of | fields)


def write_trees(out, trees=TREES, golds=GOLDS, *, scores=SCORES, whole=None, tokens=None, **info):
    """The toy recording with trees of the LLM "tree", scored by "prm", and whole CoTs of others."""
    rows = (
        tree(i, each, tokens=None if tokens is None else tokens[i]) for i, each in enumerate(trees)
    )
    others = (
        (LLMInfo(llm, temperature=0.7), [pool(i, each) for i, each in enumerate(answers)])
        for llm, answers in (whole or {}).items()
    )
    own = (ScoreRows(f"toy/{i}", range(len(each)), each) for i, each in enumerate(scores))
    trees_of = (LLMInfo("tree", temperature=0.7, decoding=DECODING), rows)
    return write_rows(
        out,
        golds,
        trees_of,
        *others,
        info=replace(TOY, **info),
        scores={"tree": own} if scores else {},
        scorer=PRM,
    )


def write_full_trees(out, golds, *, first=8, branch=4):
    """Trees of depth 3 of which every step that ends nothing has the same number of children; one
    question has no answer.
    """
    draw = Random(3)  # noqa: S311  it makes up a tree
    trees = []
    for question_ in range(len(golds)):
        steps = []
        layer = [None] * first
        for depth in (1, 2, 3):
            following = []
            for parent in layer:
                ends = depth == 3 or draw.random() < 0.25
                answer = (
                    draw.choice(["a", "a", "b", "c", None]) if ends and question_ != 5 else None
                )
                steps.append((parent, answer, ends))
                following += [] if ends else [len(steps) - 1] * branch
            layer = following
        trees.append(steps)
    scores = [[draw.choice([None, 0.0, 0.2, 0.4, 0.4, 0.9, 1.0]) for _ in tree] for tree in trees]
    tokens = [[draw.randrange(1, 40) for _ in tree] for tree in trees]
    return write_trees(out, trees, golds, scores=scores, tokens=tokens)
