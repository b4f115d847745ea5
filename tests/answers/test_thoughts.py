"""Thoughts that a model wrote inline: where they begin and end, and that nothing of the raw text is
lost.
"""

import time

import pytest
from hypothesis import given, settings, strategies as st
from places import read_data

from feval.answers import thoughts
from feval.answers.thoughts import (
    FAMILIES,
    Interruption,
    Mark,
    Split,
    apart,
    beginning,
    fit,
    interruption,
    join,
    opened_by_template,
    raw_place,
    split,
    split_columns,
    written_marks,
)

CASES = read_data("answers.json")

# by group: texts with their reply and thoughts
EVERY_FAMILY = [case for cases in CASES["thoughts of families"].values() for case in cases]


def restored(text, *thoughts):
    """The parts of a text, from which it comes back."""
    parts = split(text, *thoughts)
    assert join(parts.reply, parts.reasoning, parts.marks) == text
    return parts


@pytest.mark.parametrize(("text", "reply", "thoughts"), EVERY_FAMILY)
def test_every_family_is_split(text, reply, thoughts):
    parts = restored(text)
    assert (parts.reply, parts.reasoning) == (reply, thoughts)
    assert parts.closed
    assert parts.answers


@pytest.mark.parametrize(
    "closing",
    [
        "</think>",
        "</thought>",
        "[/THINK]",
        "</seed:think>",
        "</mm:think>",
        "◁/think▷",
        "<channel|>",
    ],
)
def test_a_closing_mark_alone_ends_a_thought_that_the_template_opened(closing):
    parts = split(f"First I add.\nThen 7.\n{closing}\n\nThe answer is 4.")
    assert (parts.reply, parts.reasoning) == ("The answer is 4.", "First I add.\nThen 7.")
    assert parts.marks == (Mark(0, "", 20, f"\n{closing}\n\n"),)


@pytest.mark.parametrize(
    ("text", "reply", "thoughts"),
    [case for cases in CASES["thoughts apart"].values() for case in cases],
)
def test_replies_and_thoughts_are_told_apart(text, reply, thoughts):
    parts = restored(text)
    assert (parts.reply, parts.reasoning) == (reply, thoughts)


@pytest.mark.parametrize("text", CASES["quoted"])
def test_marks_that_a_reply_quotes_are_part_of_it(text):
    assert split(text) == Split(text)


@pytest.mark.parametrize(("text", "reply"), CASES["open thoughts"])
def test_a_thought_that_is_never_closed_leaves_no_answer(text, reply):
    parts = restored(text)
    assert (parts.reply, parts.closed, parts.answers) == (reply, False, False)
    assert parts.marks[-1].closing == ""


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("<think>The answer is 7.</think>\n\n", ""),
        ("Okay 5.\n\n<think>It is 7.</think>\n\n", "Okay 5.\n\n"),
        ('[{"type": "thinking", "thinking": "So 5."}]', ""),
    ],
)
def test_a_closed_thought_with_nothing_behind_it_leaves_no_answer(text, reply):
    parts = restored(text)
    assert (parts.reply.rstrip(), parts.closed, parts.answers) == (reply.rstrip(), True, False)


def test_a_text_without_a_mark_that_was_cut_off_is_a_thought_where_the_template_opens_it():
    texts = ["So 5, no,", "So 5.", "The answer is 5.", "<think>So 5", "So 5\n</think>\n7"]
    reasons = ["length", "stop", "unknown", "length", "length"]
    assert [opened_by_template(text, None) for text in texts] == [False] * 4 + [True]
    columns = split_columns(texts, None, reasons, None, opens=True)
    assert columns.texts == ["", "So 5.", "The answer is 5.", "", "7"]
    assert columns.readable == [False, True, True, False, True]
    assert columns.reasoning is not None
    assert columns.marks is not None
    raw = map(join, columns.texts, columns.reasoning, [marks or () for marks in columns.marks])
    assert list(raw) == texts
    assert split_columns(["So 5"], ["apart"], ["length"], None, opens=True).texts == ["So 5"]


def test_a_card_names_the_family_or_brings_its_own_marks():
    text = "[THINK]a[/THINK]<think>b</think><r>c</r>4"
    assert split(text, "mistral").reply == "<think>b</think><r>c</r>4"
    assert split("<r>c</r>4", ("<r>", "</r>")).reasoning == "c"
    assert split("c </r> 4", ("<r>", "</r>")) == Split("4", "c", (Mark(0, "", 1, " </r> "),))
    assert split("<r>c</r>4") == Split("<r>c</r>4")


def test_thoughts_of_a_field_of_their_own_stand_before_the_inline_ones():
    parts = split("<think>b</think>4")
    assert join(parts.reply, "a" + (parts.reasoning or ""), parts.marks) == "<think>b</think>4"
    assert apart("ab", parts.marks) == "a"
    assert apart("b", parts.marks) is None


@pytest.mark.parametrize("text", ["4", "", "a > b", None, *(text for text, *_ in EVERY_FAMILY)])
def test_a_column_without_marks_is_read_as_one_with_marks(text):
    alone, both = (
        split_columns(texts, None, ["unknown"] * len(texts), None)
        for texts in ([text], [text, "<think>hm"])
    )
    assert [alone.texts, alone.finish_reasons, alone.readable] == [
        column[:1] for column in (both.texts, both.finish_reasons, both.readable)
    ]
    assert (alone.marks or [None]) == (both.marks or [])[:1]
    assert (alone.reasoning or [None]) == (both.reasoning or [])[:1]


def test_marks_that_are_not_of_a_text_are_noticed():
    assert fit("4", "hm", split("<think>hm</think>4").marks)
    assert not fit("4", "h", split("<think>hm</think>4").marks)
    assert not fit("4", "hm", [Mark(2, "<think>", 2, "</think>")])
    assert not fit("42", "hm", [Mark(1, "", 1, "x"), Mark(0, "", 1, "x")])


PIECES = CASES["pieces of thoughts"]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=16).map("".join),
    st.sampled_from([None, *FAMILIES, ("<r>", "</r>")]),
    st.integers(0, 80),
)
def test_any_raw_text_comes_back_byte_for_byte(text, thoughts, length):
    parts = restored(text, thoughts)
    first = beginning(parts.reply, parts.reasoning, parts.marks, length)
    assert join(first.reply, first.reasoning, first.marks) == text[:length]
    assert parts.reply.startswith(first.reply)
    assert (parts.reasoning or "").startswith(first.reasoning or "")
    for place, character in enumerate(parts.reply):
        assert text[raw_place(place, parts.marks)] == character
    assert fit(parts.reply, parts.reasoning, parts.marks)
    assert sum(mark.length for mark in parts.marks) == len(parts.reasoning or "")


@pytest.mark.parametrize(
    "piece",
    [
        "a <think> ", "<think>", "<|channel|>final", "<|channel|>commentary", " \n", "``` [THINK]",
        "<|return|>",
        "<|end|> ",
    ],
)  # fmt: skip
def test_hostile_texts_are_split_in_linear_time(piece):
    text = "<|channel|>final<|message|>" + piece * 20_000
    started = time.process_time()
    split(text)
    assert time.process_time() - started < 5  # about 0.05 s; what is quadratic takes far longer


def test_every_mark_that_splits_a_text_has_a_sign():
    for name, family in FAMILIES.items():
        for mark in (family.opening, family.closing) if family.lone_closing else (family.opening,):
            assert thoughts._has_sign(mark.replace("\\", "")), name


@pytest.mark.parametrize("family", FAMILIES)
def test_a_thought_that_is_cut_can_be_ended(family):
    opening, closing = written_marks(family)
    text = f"{opening}first second third{closing}The answer is 4."
    cut = len(opening) + 8
    assert interruption(text, cut, family) == Interruption("", closing)
    ended = split(f"{text[:cut]}{closing}Answer: 5", family)
    assert (ended.reply, ended.closed) == ("Answer: 5", True)
    assert interruption(text, len(text) - 3, family).closing == ""
    assert interruption("The answer is 4.", 5, family) == Interruption("", "")
