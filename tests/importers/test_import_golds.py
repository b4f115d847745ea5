"""Golds that are positions among the options, at every door that questions come through."""

import pytest
from foreign_sources import harness_line, lines, mot_entry
from importing import check, notes

from feval.errors import SourceError
from feval.hub.datasets import questions
from feval.importers.questions import positions_as_labels
from feval.importers.source import SourceQuestion

LETTERS = "ABCDEFGHIJ"


def question(
    gold,
    *texts,
    id="q",  # noqa: A002
    labels=LETTERS,
):
    return SourceQuestion(id, "?", gold, tuple(zip(labels, texts, strict=False)))


def golds(*questions):
    return [q.gold for q in positions_as_labels(questions, "choice", "x.jsonl")[0]]


def test_positions_count_from_0():
    texts = ("cat", "dog", "cow", "hen")
    assert golds(*(question(str(place), *texts, id=f"q{place}") for place in range(4))) == [
        "A",
        "B",
        "C",
        "D",
    ]
    changed, (note,) = positions_as_labels([question("1", *texts)], "choice", "x.jsonl")
    assert changed[0].gold == "B"
    assert note.endswith("written as labels: 1 (such as 1 of 'q', which is 'B').")


@pytest.mark.parametrize(
    "kept",
    [
        question("2", "cat", "dog", "cow", labels=["1", "2", "3"]),  # a label
        question("2", "1", "2", "3"),  # a text: option B, and the option at position 2 is C
        question("7", "5", "6", "7"),  # a text that is no position
        question("Monsters, Inc", "Monsters", "Inc"),  # text that names no option keeps its text
        question("B", "cat", "dog"),
        question("cat", "cat", "dog"),
        question(None, "cat", "dog"),
    ],
)
def test_labels_and_texts_are_no_positions(kept):
    assert positions_as_labels([kept], "choice", "x.jsonl") == ([kept], [])


def test_where_all_golds_are_positions_one_that_is_another_options_text_is_a_position():
    # MMLU: the second gold is 24, at position 2; by its text it would be option B.
    labelled, (note,) = positions_as_labels(
        [
            question("0", "cat", "dog", "cow", "hen", id="q0"),
            question("2", "8", "2", "24", "120", id="q1"),
        ],
        "choice",
        "x.jsonl",
    )
    assert [q.gold for q in labelled] == ["A", "C"]
    assert "Positions that are also the text of another option: 1 (such as 2 of 'q1')" in note


def test_a_gold_that_is_a_label_and_a_text_is_what_other_golds_are_and_is_counted():
    vitamins = question("A", "D", "C", "B", "A", id="q1")
    kept, (note,) = positions_as_labels(
        [question("C", "cat", "dog", "cow", id="q0"), vitamins], "choice", "x.jsonl"
    )
    assert [q.gold for q in kept] == ["C", "A"]
    assert "another's label: 1 (such as A of 'q1'). They were read as labels" in note
    assert golds(question("cow", "cat", "dog", "cow", id="q0"), vitamins) == ["cow", "D"]
    assert golds(vitamins) == ["D"]  # an option's own text comes first


def test_where_golds_are_texts_a_number_that_is_a_text_stays_a_text():
    texts = ("8", "2", "24", "120")
    assert golds(question("24", *texts, id="q0"), question("2", *texts, id="q1")) == ["24", "2"]
    assert golds(question("five", "five", "six", id="q0"), question("2", *texts, id="q1")) == [
        "five",
        "2",
    ]


@pytest.mark.parametrize("gold", ["4", "10", "4.0", "9" * 4000])
def test_a_position_out_of_range_is_refused(gold):
    with pytest.raises(
        SourceError,
        match=(
            r"question 'q' in x\.jsonl is '[-0-9.]+.* no label or text of its 4 options \(A: 'cat',"
            r" B: 'dog'"
        ),
    ):
        golds(question(gold, "cat", "dog", "cow", "hen"))


def test_a_position_needs_options():
    with pytest.raises(
        SourceError,
        match=(
            r"question 'q' in x\.jsonl is '1', and the question has no options .* \('choices', in"
            r" the source"
        ),
    ):
        golds(question("1"))


def test_where_labels_are_numbers_a_number_that_is_none_of_them_is_refused():
    # 0 among the labels 1 to 4 may be a position or a slip; then 1 could be a position as well.
    with pytest.raises(
        SourceError, match=r"is '0', which is no label or text of its 4 options \(1: 'cat'"
    ):
        golds(question("0", "cat", "dog", "cow", "hen", labels=["1", "2", "3", "4"]))


MMLU = {"id": "q", "question": "Which barks?", "choices": ["cat", "dog", "cow", "hen"]}


@pytest.mark.parametrize("gold", [1, "1", 1.0, "1.0"])
def test_generic_rows(imported, gold):
    cots = [
        MMLU | {"gold": gold, "text": text} for text in ("The answer is (B).", "The answer is (A).")
    ]
    recording = imported("jsonl", cots, answer_kind="choice")
    (recorded,) = recording.questions("toy")
    assert (recorded.answer, recorded.answer_key, recorded.choices[1]) == ("B", "B", ("B", "dog"))
    check(recording, "positions, counted from 0", answer=["B", "A"])


@pytest.mark.parametrize(
    ("kind", "read", "unread"),
    [
        ("choice", "**B**", "Berlin"),
        ("choice", "**B**", "-1"),
        ("number", "10 eggs", "3:1"),
        ("number", "#### 5", "(2, 3)"),
    ],
)
def test_golds_that_name_no_option_or_two_numbers_are_unlabelled_and_counted(
    imported, kind, read, unread
):
    cots = [
        MMLU | {"id": name, "gold": gold, "text": "The answer is B."}
        for name, gold in (("q", read), ("r", unread))
    ]
    recording = imported("jsonl", cots, answer_kind=kind)
    assert [q.answer_key is None for q in recording.questions("toy")] == [False, True]
    check(
        recording,
        f"Gold answers that cannot be read as {kind} (accuracies need one or verdicts, or --drop"
        " unlabelled): 1.",
        golds=[read, unread],
    )


def test_stored_answers_that_look_like_positions_are_named(imported):
    cots = [MMLU | {"gold": 1, "text": "B", "answer": answer} for answer in (1, "B", "dog", None)]
    recording = imported("jsonl", cots, answer_kind="choice")
    check(
        recording,
        "Stored whole numbers that name no option and are never right (golds are positions",
        correct=[False, True, True, False],
    )


@pytest.mark.parametrize(
    ("kind", "gold", "noted"), [("verbatim", 12, 2), ("verbatim", "12.0", 1), ("number", 12, 0)]
)
def test_whole_numbers_that_a_table_wrote_as_floats_are_named(imported, kind, gold, noted):
    cots = [{"id": "q", "question": "Q", "gold": gold, "llm": "m", "text": "-"} for _ in range(4)]
    cots = [
        cot | {"answer": answer}
        for cot, answer in zip(cots, ("12.0", "12.0", "12", None), strict=True)
    ]
    said = notes(imported("jsonl", cots, answer_kind=kind))
    assert ("in '.0' alone and are never right (pandas writes" in said) == bool(noted)
    assert not noted or f"kind `number`): {noted}" in said


@pytest.mark.parametrize(
    "choices", [MMLU["choices"], {"label": list("ABCD"), "text": MMLU["choices"]}]
)
def test_the_questions_file(save, imported, choices):
    source = {"id": "q", "text": "The answer is (B)."}
    file = save("q.jsonl", lines(MMLU | {"answer": 1, "choices": choices}))
    recording = imported("jsonl", source, questions=file, answer_kind="choice")
    check(recording, golds=["B"], gold_keys=["B"])


@pytest.mark.parametrize(
    ("in_source", "in_file"), [("1", "B"), ("B", "1"), ("dog", "1"), ("1", "1")]
)
def test_source_and_questions_file_may_write_one_gold_in_two_ways(
    save, imported, in_source, in_file
):
    entry = mot_entry(question="Which barks?", answer=in_source, results=["B", "A", None])
    file = save("q.jsonl", lines(MMLU | {"id": "toy/0", "answer": in_file}))
    recording = imported("mot-cascade", [entry], questions=file, answer_kind="choice")
    check(recording, gold_keys=["B"])
    for gold, other in ((in_source, 3), ("a bear", "a wolf")):  # the last two name no option
        entry = mot_entry(question="Which barks?", answer=gold, results=["B", "A", None])
        file = save("q.jsonl", lines(MMLU | {"id": "toy/0", "answer": other}))
        imported.refuses(
            "two gold answers", "mot-cascade", [entry], questions=file, answer_kind="choice"
        )


def test_lm_eval(save, imported):
    doc = {"question": "Which barks?", "choices": MMLU["choices"], "answer": 1}
    line = harness_line(doc=doc, target=1, filtered_resps=[["B", "A", "[invalid]"]])
    recording = imported("lm-eval", save("samples.jsonl", lines(line)), answer_kind="choice")
    check(recording, golds=["B"], gold_keys=["B"])


def test_questions_of_a_dataset(save):
    file = save("q.jsonl", lines(MMLU | {"answer": 1}, MMLU | {"id": "r", "answer": 3}))
    loaded = questions("toy", source=file, answer_kind="choice")
    assert [(q.answer, q.answer_key) for q in loaded] == [("B", "B"), ("D", "D")]
    file = save("q.jsonl", lines(MMLU | {"answer": 1}, MMLU | {"id": "r", "answer": 4}))
    with pytest.raises(
        SourceError,
        match=(
            r"question 'r' in q\.jsonl is '4', which is no label or text of its 4 options \(A:"
            r" 'cat'"
        ),
    ):
        questions("toy", source=file, answer_kind="choice")
