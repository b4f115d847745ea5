"""Recorded questions to be looked at: numbers by brute force, and lines that are safe on a
terminal.
"""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from chromium import first_data
from command_line import feval, said, told
from places import read_data
from recorded_trees import write_trees
from recorded_turns import write_turns
from rich.console import Console
from small import import_rows, letters, pool, write_rows, write_toy

from feval import from_dataframe
from feval.cli.output import Output
from feval.recording import ProbeRows, open_recording
from feval.report.looking import answer_span, overview, question_pieces, recorded_questions
from feval.report.page.questions import view_page
from feval.report.tables.tables import plain_text

EVIL = "evil\x1b]0;owned\x07[red]\u202e"
POOLS = {
    "one": [
        ["1", "1", "2", None],
        ["2", "2", "2", "3"],
        ["5", "5", None, None],
        [EVIL, "1", "1", "1"],
    ],
    "two": letters("111", "99", "5", "-12"),
}
GOLDS = ["1", "3", None, EVIL]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return write_toy(tmp_path_factory.mktemp("looking") / "toy", POOLS, GOLDS)


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """One question with thoughts, probes, tabs and an answer that also stands elsewhere in the
    text.
    """
    out = tmp_path_factory.mktemp("looking") / "traced"
    rows = pool(0, ["12", None], reasoning=["I think\nso", None])
    texts = ["\t12 and 2 make 14;\r\nminus 2: 12.", f"no {EVIL}"]
    answers = ["7", "7", "12", "7"]
    probes = [ProbeRows("toy/0", [0, 0, 0, 1], [2, 4, 6, 3], answers, answers)]
    return write_rows(
        out, ["12"], ("traced", [replace(rows, texts=texts)]), probes={"traced": probes}
    )


@pytest.mark.parametrize("llms", [["one"], ["two", "one"]])
def test_accuracy_agreement_and_order_of_questions(toy, llms):
    seen = overview(open_recording(toy), "toy", llms)
    keys = []
    for row, gold in enumerate(GOLDS):
        pools = [POOLS[llm][row] for llm in llms]
        counts = Counter(answer for own in pools for answer in own)
        most = max(count for answer, count in counts.items() if answer is not None)
        assert seen.agreement[row] == most / counts.total()
        assert [*map(len, pools)] == seen.cots[:, row].tolist()
        shares = [0 if gold is None else own.count(gold) / len(own) for own in pools]
        if gold is not None:
            assert seen.accuracy[:, row].tolist() == shares
        keys.append((gold is None, sum(shares) / len(shares), seen.agreement[row], row))
    assert seen.order.tolist() == [row for *_, row in sorted(keys)]


def test_of_trees_only_the_ends_of_solutions_count(tmp_path):
    seen = overview(open_recording(write_trees(tmp_path / "trees")), "toy", ["tree"])
    assert seen.cots.tolist() == [[4, 1, 0]]  # ends of the three trees
    assert seen.accuracy[0, :2].tolist() == [2 / 4, 1.0]
    assert seen.accuracy[0, 2] != seen.accuracy[0, 2]
    assert seen.order.tolist() == [0, 1, 2]


def test_the_list_of_questions(toy):
    lines = said("show", toy).splitlines()
    assert lines[0] == "toy, 4 questions, the hardest first"
    assert [line.split()[0] for line in lines[2:6]] == ["toy/1", "toy/3", "toy/0", "toy/2"]
    assert lines[2].split()[1:5] == ["25.00", "0.00", "50.00", "6"]
    listed = told("show", toy, "--first", "1", "--llm", "two")
    own = {"accuracy": {"two": 0.0}, "agreement": 1 / 3, "cots": {"two": 3}, "disagree": 0}
    assert listed == {
        "questions": [{"dataset": "toy", "id": "toy/3"} | own], "recorded": {"toy": 4},
    }  # fmt: skip
    easier = "3 easier questions are not shown; --first 4 shows all"
    assert easier in said("show", toy, "--first", "1")
    unlabelled = told("show", toy)["questions"][-1]
    assert (unlabelled["id"], unlabelled["accuracy"]) == ("toy/2", {"one": None, "two": None})


def test_a_question_with_its_cots(toy):
    lines = said("show", toy, "toy/0", "--llm", "one").splitlines()
    assert lines[:4] == ["toy  toy/0", "", "What is question 0?", "gold  1"]
    counts = [" ".join(line.split()) for line in lines[5:9]]
    assert counts == ["answer one", "✓ 1 2", "✗ 2 1", "– no answer 1"]
    heads = [line for line in lines if line.startswith("one, sample")]
    assert heads[0] == "one, sample 0  ✓ 1  10 tokens, stop"
    assert heads[3] == "one, sample 3  – no answer  13 tokens, length"
    assert lines[-1] == "Thinking about 0, sample 3. The answer is None."
    chosen = said("show", toy, "toy/0", "--sample", "3", "--sample", "0")
    heads = [line[:13] for line in chosen.splitlines() if ", sample" in line[:13]]
    assert heads == ["one, sample 0", "one, sample 3", "two, sample 0"]


def test_a_finish_reason_that_nobody_recorded_is_not_shown(capsys):
    row = {"id": "a", "question": "?", "answer": "1", "model": "m", "text": "So 1.", "tokens": 5}
    from_dataframe([row], dataset="toy", answer_kind="number").show("a")
    assert "m, sample 0  ✓ 1  5 tokens\n" in capsys.readouterr().out


def test_a_question_as_json(toy):
    asked = told("show", toy, "toy/3", "--sample", "0")
    assert (asked["id"], asked["answer"]) == ("toy/3", EVIL)
    one, _ = asked["llms"]
    counts = [(each["answer"], each["count"], each["right"]) for each in one["counts"]]
    assert counts == [("1", 3, False), (EVIL, 1, True)]
    (sample,) = one["samples"]
    known = {"sample": 0, "answer": EVIL, "right": True, "output_tokens": 10}
    assert sample | known == sample
    assert EVIL in sample["text"]


@pytest.mark.parametrize("arguments", [(), ("toy/3",)])
def test_texts_of_strangers_cannot_steer_the_terminal(toy, arguments):
    shown = said("show", toy, *arguments)
    assert not set(shown) & {"\x1b", "\x07", "\u202e", "\r"}
    assert ("\\x1b]0;owned\\x07[red]\\u202e" in shown) == bool(arguments)


def test_reasoning_is_folded_and_probes_are_told_where_they_change(traced):
    folded = said("show", traced, "toy/0", "--sample", "0")
    assert "[reasoning of 10 characters; `reasoning` shows it]" in folded
    assert "probed after tokens: from 2: 7, from 6: 12\n" in folded
    assert folded.endswith("    12 and 2 make 14;\nminus 2: 12.\n")
    assert "I think\nso\n    12 and" in said(
        "show", traced, "toy/0", "--sample", "0", "--reasoning"
    )
    sample = told("show", traced, "toy/0")["llms"][0]["samples"][1]
    assert sample["probes"] == [{"tokens": 3, "answer": "7"}]


def test_a_tree_is_indented_behind_its_steps(tmp_path):
    folder = write_trees(tmp_path / "trees")
    lines = said("show", folder, "toy/0").splitlines()
    steps = [line.partition("  1")[0] for line in lines if line.lstrip().startswith("step ")]
    assert steps[:4] == ["step 0", "  step 2  ✓ 4", "  step 3", "    step 5  ✓ 4"]
    assert "prm 0.75" in "".join(lines)
    chosen = said("show", folder, "toy/0", "--sample", "5")
    assert re.findall(r"step (\d)", chosen) == ["0", "3", "5"]
    assert "tree: nothing was recorded" in said("show", folder, "toy/2")


@pytest.mark.parametrize(
    ("arguments", "pieces"),
    [
        (("toy/9",), ("There is no question of toy", "'toy/9'", "Did you mean")),
        (
            ("TOY/", "--llm", "one"),
            ("4 questions have 'TOY/'", "give one by its id", "toy/0 (What is question 0?); toy/1"),
        ),
        (
            (Path("is question"),),
            ("4 questions have 'is question'", "toy/3 (What is question 3?)."),
        ),
        (("toy/0", "--sample", "4"), ("--sample 4", "indices 0 to 3")),
        (("toy/0", "--llm", "three"), ("'three'", "one", "two")),
        (("--llm", "one", "--llm", "three"), ("'three'", "one", "two")),
        (("toy/0", "--dataset", "other"), ("'other'", "toy")),
        (("--reasoning",), ("--reasoning", "question")),
    ],
)
def test_what_cannot_be_shown_is_a_sentence(toy, arguments, pieces):
    result = feval("show", toy, *arguments)
    assert (result.exit_code > 0, result.stdout, result.stderr.count("\n")) == (True, "", 1)
    assert all(piece in result.stderr for piece in pieces), result.stderr


@pytest.mark.parametrize(
    "name", ["toy/2", 2, "TOY/2", "What is question 2?", "what is\n QUESTION 2", "question 2"]
)
def test_a_question_is_found_by_its_id_or_its_text(toy, name, capsys):
    open_recording(toy).show(name)
    shown = capsys.readouterr().out
    assert "toy/2" in shown
    if isinstance(name, str):
        assert said("show", toy, Path(name)) == shown  # one word


@pytest.mark.parametrize(
    ("text", "answers", "said"), read_data("reports.json")["where texts say their answers"]
)
def test_where_a_text_says_its_answer(text, answers, said):
    assert answer_span(text, *answers) == (said and tuple(said))


def test_a_terminal_has_colours_and_a_pager(traced, monkeypatch, terminal):
    (asked,) = recorded_questions(open_recording(traced), "toy", ["traced"], range(1))
    pieces = question_pieces(asked)
    assert (("minus 2: ", ""), ("12", "black on yellow"), (".", "")) in pieces
    assert "\x1b" not in plain_text(pieces)
    paged = []
    monkeypatch.setattr("pydoc.pager", paged.append)
    monkeypatch.setenv("LESS", "")
    monkeypatch.setattr("rich.console.Console.__init__", _colourful(Console.__init__))
    terminal()
    Output(as_json=False, quiet=False).pages({}, *pieces)
    (text,) = paged
    assert "\x1b[30;43m12\x1b[0m" in text
    assert "\\x1b]0;owned" in text


def _colourful(make):
    def made(self, **settings):
        make(self, **settings, force_terminal=True, color_system="standard", width=100)

    return made


def test_turns_are_shown_with_what_was_sent(tmp_path):
    folder = write_turns(tmp_path / "turns")
    shown = said("show", folder, "toy/0")
    assert "m@revise, 2 CoTs and 3 turns" in shown
    steps = [
        line.partition("  1")[0]
        for line in shown.splitlines()
        if line.lstrip().startswith(("CoT ", "turn ", "> "))
    ]
    sent = "    > ── user ──", "    > Revise."
    assert steps[:5] == ["CoT 0  ✓ 4", "  turn 2  ✓ 4", *sent, "    turn 4  ✗ 6"]
    samples = told("show", folder, "toy/0")["llms"][0]["samples"]
    assert samples[3]["messages"] == [{"role": "user", "content": "Why?"}]
    assert "messages" not in samples[0]


def test_names_of_llms_cannot_steer_the_terminal(tmp_path):
    evil = "m\u202e\u200b"  # control characters are no part of a name; these are
    out = write_toy(tmp_path / "toy", {evil: [["a", "b"]]}, ["a"])
    for arguments in (("show", out), ("show", out, "toy/0"), ("info", out)):
        shown = said(*arguments)
        assert not set(shown) & {"\u202e", "\u200b"}


def test_cots_are_marked_by_their_verdicts(tmp_path):
    verdicts = [("a", 1), ("a", 0), ("b", 0.5), (None, 1), ("c", None)]
    rows = [
        {"id": "q", "question": "why?", "llm": "m", "sample": place, "answer": answer, "gold": gold}
        | {"verdict": verdict, "grader": "pytest", "text": "x", "tokens": 1, "id": name}
        for name, gold in (("q", None), ("labelled", "a"))
        for place, (answer, verdict) in enumerate(verdicts)
    ]
    import_rows(tmp_path / "rec", rows, answer_kind="verbatim")
    shown = said("show", tmp_path / "rec", "q")
    marks = ("◐ a, 0.5 right", "◐ b, 0.5 right", "✓ no answer", "✗ c")
    assert all(mark in shown for mark in (*marks, "sample 0  ✓ a", "sample 1  ✗ a"))
    listed = told("show", tmp_path / "rec")["questions"]
    assert [each["accuracy"]["m"] for each in listed] == [0.4, 0.5]
    held = told("info", tmp_path / "rec")
    assert held["verdicts"] == [
        {"dataset": "d", "llm": "m", "grader": "pytest", "verdicts": 8, "none": 2}
        | {"questions": 2, "without_gold": 1, "mixed_parties": 4, "with_gold": 4}
        | {"disagreements": 3, "agreement": 0.25}
    ]
    assert "agree with gold %" in said("info", tmp_path / "rec")
    page = view_page(open_recording(tmp_path / "rec"), {"d": ["m"]})
    question, labelled = first_data(page.html)["questions"]
    assert question["d"][0][3] == [1, 0, 0.5, 1, 0]
    assert (question["p"]["0"], labelled["d"][0][3]) == (0.5, [1, 1, 0, 0, 0])
