"""Traces and trees in the page of a comparison: what it holds, worked out by hand in recorded
order, and how it is shown.
"""

from dataclasses import replace

import pytest
from chromium import first_data
from recorded_trees import DECODING, PRM, SCORES, TREES, tree
from small import pool, write_rows

from feval.comparison.comparison import compare, load_compared, traces
from feval.comparison.plan import ComparedMethod, Plan
from feval.recording import LLMInfo, ProbeRows, ScoreRows
from feval.report.page.page import comparison_page
from feval.report.page.questions import Caps
from feval.report.text import visible

EVIL = "</script><img src=x onerror=\"document.title='owned'\">\u202e"
FINALS, TOKENS = ["1", None, "1"], [10, 6, 3]
PROBES = [
    (0, 2, "9"),
    (0, 4, "1"),
    (0, 6, "1"),
    (0, 8, "1"),
    (1, 2, EVIL),
    (1, 4, EVIL),
    (2, 2, None),
]
# Tokens of the three traces.
STOPPED = {"whole": None, "converged": [6, 4, 3], "cut": [4, 4, 3]}
TAKEN = [0, 1, 2, 3, 5, 6]  # of the first tree of `recorded_trees`


def _entries():
    for label, method, llm, fields in (
        ("whole", "self-consistency", "traced", {"n": 3}),
        ("converged", "answer-convergence", "traced", {"streak": 2, "width": 3}),
        ("cut", "token-budget", "traced", {"n": 3, "tokens": 4}),
        ("beam", "beam-search", "tree", {"n": 2, "width": 2}),
    ):  # fmt: skip
        yield ComparedMethod(label=label, method=method, fields=fields, llms=(llm,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    base = tmp_path_factory.mktemp("depth")
    samples, offsets, answers = map(list, zip(*PROBES, strict=True))
    texts = [EVIL, *(f"Step {i} " + "x" * 300 for i in range(1, 7))]
    ids = [f"toy/{i}" for i in range(2)]
    probes = [ProbeRows(each, samples, offsets, answers, answers) for each in ids]
    write_rows(
        base / "recording",
        ["1", "4"],
        ("traced", [pool(i, FINALS, tokens=TOKENS) for i in range(2)]),
        (
            LLMInfo("tree", decoding=DECODING),
            [replace(tree(i, TREES[0]), texts=texts) for i in range(2)],
        ),
        probes={"traced": probes},
        scores={"tree": [ScoreRows(each, range(7), SCORES[0]) for each in ids]},
        scorer=PRM,
    )
    return base


@pytest.fixture(scope="module")
def comparison(folder):
    plan = Plan(
        dataset="toy",
        recordings=("recording",),
        entries=tuple(_entries()),
        order="recorded",
        resamples=50,
        cost="calls",
    )
    return compare(plan, base=folder)


def _page(comparison, folder, **caps):
    limits, compared = Caps(**caps), load_compared(comparison, folder)
    followed = traces(comparison, *compared, closely=limits.deep)
    return comparison_page(comparison, *compared, traces=followed, caps=limits)


def _book(comparison, folder, **caps):
    return first_data(_page(comparison, folder, **caps))["explorer"]


@pytest.fixture(scope="module")
def book(comparison, folder):
    return _book(comparison, folder)


def test_traces_have_their_answers_and_where_every_method_stopped_them(comparison, book):
    assert comparison.missing == ()
    assert [one.llms for one in comparison.baselines] == [("traced",)]  # steps are no single calls
    assert (book["llms"], book["trees"]) == (["traced", "tree"], [None, ["prm"]])
    for asked in book["questions"]:
        words = [
            [(offset, None if c < 0 else asked["a"][c]) for offset, c in trace]
            for trace in asked["t"][0]
        ]
        assert words == [[(2, "9"), (4, "1")], [(2, EVIL)], [(2, None)]]
        assert dict(zip(STOPPED, [points[0][0] for points in asked["r"]], strict=False)) == STOPPED


def test_trees_have_their_steps_and_what_a_search_took(book):
    asked = book["questions"][0]
    steps = asked["t"][1]
    assert [parent for parent, *_ in steps] == [-1, -1, 0, 0, 1, 3, 3]
    assert [tokens for _, tokens, *_ in steps] == list(range(10, 17))
    answers = [None if code < 0 else asked["a"][code] for _, _, code, *_ in steps]
    assert answers == [answer for _, answer, _ in TREES[0]]
    assert [code for _, _, code, *_ in steps].count(-2) == 3  # which end nothing
    assert [scores for *_, scores, _ in steps] == [[score] for score in SCORES[0]]
    assert steps[0][4] == EVIL
    assert {len(text) for *_, text in steps[1:]} == {240}
    assert asked["r"][-1] == [[None, TAKEN]]
    assert asked["d"][1] == []  # no strip of CoTs


def test_what_the_page_leaves_out_it_says(comparison, folder):
    book = _book(comparison, folder, deep=1, traces=2, steps=6)
    first, second = book["questions"]
    assert "t" not in second
    assert len(first["t"][0]) == 2
    assert first["r"][1] == [[[6, 4], None]]
    # the one that was not taken is left out
    assert [step[1] for step in first["t"][1]] == [10, 11, 12, 13, 15, 16]
    assert first["r"][-1] == [[None, [0, 1, 2, 3, 4, 5]]]
    notes = " ".join(book["notes"])
    assert "The first 1 questions show the first 2 traces" in notes
    assert "The first 1 questions show 6 steps of a tree" in notes


def test_traces_and_trees_are_shown_and_strangers_texts_stay_text(browser, comparison, folder):
    (folder / "report.html").write_text(_page(comparison, folder), "utf-8")
    with browser.visit(folder / "report.html", 400) as opened:
        opened.click("document.querySelector('.questions > li > button')")
        opened.click("document.querySelectorAll('.chip')[1]")
        assert opened.texts(".told") == ["✓ 1 6 of 10", f"✗ {visible(EVIL)} 4 of 6", "✓ 1 3"]
        assert opened.value("document.querySelectorAll('.traces line').length") == 2
        assert any(badge.startswith("not asked by") for badge in opened.texts(".badge"))
        # and what comes after is not unfolded
        assert all(text[0] == "·" for text in opened.texts(".tree li"))
        assert len(opened.texts(".tree li")) < 7
        opened.click("[...document.querySelectorAll('.chip')].at(-1)")
        assert all("not drawn" in text for text in opened.texts(".told"))
        assert "".join(text[0] for text in opened.texts(".tree li")) == "●●●●○○·"
        assert opened.texts(".tree li")[0] == f"● {visible(EVIL)} prm 0.5, 10 tokens"
        title = "Methods compared on toy"
        assert opened.value("[document.images.length, document.title]") == [0, title]
        assert opened.value("document.documentElement.scrollWidth") == 400
