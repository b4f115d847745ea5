import re
import subprocess
import sys
from datetime import date

import pytest
from hypothesis import given, settings, strategies as st
from places import ROOT, read_data

from feval.answers import KINDS, canonical, canonical_gold, equality, extract, keys
from feval.errors import AnswerError, UnknownNameError

CASES = read_data("answers.json")

OPTIONS = [("A", "Paris"), ("B", "the cat"), ("C", "4,000"), ("D", "05/01/2021")]
EXTRACTING = sorted(set(KINDS) - {"verbatim"})

PIECES = [
    *"0123456789abAB ,.-/+=^_{}()[]$%&*'\"\n½²−°πẞﬀ\u0345\u212a\u202e",
    "yes",
    *CASES["hostile"],
]
TEXTS = st.one_of(st.text(max_size=40), st.lists(st.sampled_from(PIECES), max_size=14).map("".join))


def test_the_kinds_are_those_that_the_page_on_answers_lists():
    table = (ROOT / "docs/answers.md").read_text("utf-8").split("\n## ")[0]
    assert list(KINDS) == re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)
    assert all(kind.name == name and kind.about for name, kind in KINDS.items())


@pytest.mark.parametrize(
    ("kind", "text", "raw"),
    [
        (kind, *row)
        for what, kind in (
            ("numbers in CoTs", "number"),
            ("numbers in lists", "number"),
            ("dates in CoTs", "date"),
            ("latex in CoTs", "latex"),
        )
        for row in CASES[what]
    ],
)
def test_the_answer_of_a_cot_is_found_by_the_rules_of_its_kind_in_their_order(kind, text, raw):
    assert extract(kind, text) == raw


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)  # the machine may be busy; tests of hostile text count CPU time
@given(text=TEXTS)
def test_a_key_is_its_own_key(kind, text):
    key = canonical(kind, text, OPTIONS)
    assert canonical(kind, key, OPTIONS) == key


@pytest.mark.parametrize("kind", EXTRACTING)
@settings(deadline=None)  # the machine may be busy; tests of hostile text count CPU time
@given(text=TEXTS)
def test_any_text_has_an_answer_or_none_and_extraction_finds_the_same_again(kind, text):
    raw = extract(kind, text, OPTIONS)
    assert raw is None or raw.strip()
    key = canonical(kind, raw, OPTIONS)
    assert key is None or key


@pytest.mark.parametrize("kind", KINDS)
def test_no_answer_stays_no_answer(kind):
    assert canonical(kind, None) is None
    assert canonical_gold(kind, None) is None
    assert keys(kind, [None, None], None) == ([None, None], None)
    assert keys(kind, [], None) == ([], None)


@pytest.mark.parametrize(
    ("kind", "close", "key"),
    [("number", "1,000", "1000"), ("text", "Two Cats.", "two cats"), ("choice", "the cat", "B")],
)
def test_the_gold_of_a_worked_solution_follows_its_marks(kind, close, key):
    assert canonical_gold(kind, f"48/2 = <<48/2=24>>24 clips in May.\n#### {close}", OPTIONS) == key


def test_a_heading_within_a_gold_closes_nothing():
    key = canonical_gold("text", "An essay\n#### On cats\nThey purr.")
    assert key == "an essay #### on cats they purr"


MARKED = (
    "{}", "{}.", "**{}**", "The answer is {}", "So 3 + 4 = 7, and the answer is {}.", "#### {}",
    "Two of 3.\n#### {}",
    "Answer: {}", r"\boxed{{{}}}", r"$\boxed{{{}}}$", '{{"answer": "{}"}}', "<answer>{}</answer>",
    "Not 5.\n**Answer:** {}\n",
)  # fmt: skip
SPELLINGS = {
    "number": st.one_of(
        st.integers(-(10**9), 10**9).map("{:,}".format),
        st.decimals(-1000, 1000, places=3).map(str),
        st.fractions(0, 50, max_denominator=20).map(str),
        st.builds("{} {}/{}".format, st.integers(1, 9), st.integers(1, 3), st.integers(4, 9)),
        st.builds(r"\frac{{{}}}{{{}}}".format, st.integers(0, 99), st.integers(1, 99)),
        st.builds("{}{} {}".format, st.sampled_from(["", "$", "-"]), st.integers(0, 99),
        st.sampled_from(["km", "%", "m^2", ""])),
        st.sampled_from(["5e3", "3 x 10^5", "10k", "29,00 €", "2 million", "seven", "x = 5",
        "2 + 3 = 5", "2:00"]),
        st.sampled_from(["10^{6}", "10^6", "2^{31}", "2^{10} = 1024", "n+1 = 8",
        r"0.\overline{3}"]),
    ),
    "choice": st.sampled_from(["A", "(b)", "C.", "C) 4,000", "b: the cat", "option D", "Paris",
    "the cat", "4000"]),
    "yes-no": st.sampled_from(["yes", "No", "Not plausible", "TRUE"]),
    "valid-invalid": st.sampled_from(["valid", "Invalid", "deductively invalid"]),
    "date": st.dates(date(1900, 1, 1)).map("{:%m/%d/%Y}".format) | st.sampled_from(["May 1, 2021",
    "2021-05-01"]),
    "letters": st.from_regex("[a-z]{2,6}", fullmatch=True) | st.sampled_from(["y-A-j-o",
    "'y', 'a', 'j', 'o'"]),
    "text": st.sampled_from(["the cat", "The  Cat", "'two cats'", "naïve"]),
    "latex": st.sampled_from([r"$\frac12$", "$x+1$", r"$(3,\infty)$", "$x = 5$", r"\(2^{10}\)",
    "$1{,}000$"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", EXTRACTING)
@settings(deadline=None)
@given(data=st.data())
def test_what_a_cot_may_answer_reads_the_same_as_a_gold(kind, data):
    text = data.draw(st.sampled_from(MARKED)).format(data.draw(SPELLINGS[kind]))
    key = canonical(kind, extract(kind, text, OPTIONS), OPTIONS)
    assert key is not None
    assert canonical_gold(kind, text, OPTIONS) == key
    assert canonical_gold(kind, key, OPTIONS) == key


@pytest.mark.parametrize(("key", "golds"), CASES["golds"])
def test_a_number_gold_is_what_it_marks_or_its_only_number(key, golds):
    assert [canonical_gold("number", gold) for gold in golds] == [key] * len(golds)


def test_a_gold_that_cannot_be_read_has_no_key():
    assert keys("date", ["5/1/2021"], "yesterday") == (["05/01/2021"], None)


@pytest.mark.parametrize(
    "function",
    [
        lambda kind: extract(kind, ""),
        lambda kind: canonical(kind, None),
        lambda kind: keys(kind, [], None),
    ],
)
def test_an_unknown_kind_is_named_with_the_known_ones(function):
    assert callable(function)
    with pytest.raises(UnknownNameError, match=r"no answer kind 'numbr'.*'number'.*valid-invalid"):
        function("numbr")


def test_without_math_verify_latex_answers_are_compared_by_normal_form_only_if_asked_to(
    monkeypatch,
):
    monkeypatch.setattr(equality, "version", lambda: None)
    monkeypatch.setattr(equality, "equal", lambda *_: pytest.fail("asked"))
    with pytest.raises(
        AnswerError, match=r"math-verify, which is not installed.*equality='normal-form'"
    ):
        keys("latex", ["2(k+1)"], "2k+2")
    assert keys("latex", ["\\frac12", "2(k+1)"], "2k+2", equality="normal-form") == (
        ["0.5", "2(k+1)"],
        "2k+2",
    )


def test_math_verify_is_asked_about_pairs_of_answers_in_sorted_order_and_about_the_gold_last(
    monkeypatch,
):
    asked = []

    def equal(left, right):
        asked.append((left, right))
        return {left, right} <= {"2(k+1)", "2k+2", "k+k+2"}

    monkeypatch.setattr(equality, "version", lambda: "0.9.0")
    monkeypatch.setattr(equality, "equal", equal)
    raws = ["2(k+1)", "2k + 2", "2(k + 1)", "7", None, "8", "2k"]
    assert keys("latex", raws, "k+k+2") == (
        ["2(k+1)", "2(k+1)", "2(k+1)", "7", None, "8", "2k"],
        "2(k+1)",
    )
    pairs = [
        ("2(k+1)", "2k"),
        ("2(k+1)", "2k+2"),
        ("2(k+1)", "7"),
        ("2k", "7"),
        ("2(k+1)", "8"),
        ("2k", "8"),
    ]
    assert asked == [*pairs, ("k+k+2", "2(k+1)")]  # two numbers are not asked about: 7 is not 8


def test_importing_the_answers_imports_nothing_heavy():
    heavy = (
        "sympy",
        "math_verify",
        "numpy",
        "pydantic",
        "pyarrow",
        "yaml",
        "subprocess",
        "importlib.metadata",
    )
    program = (
        f"import sys, feval.answers; print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
