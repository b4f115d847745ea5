"""Thoughts that a model wrote inline: where they begin and end, and that nothing of the raw text is
lost.
"""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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

EVERY_FAMILY = [  # a text of each row of the table, its reply, its thoughts
    ("<think>\nTwo and two.\n</think>\n\nThe answer is 4.", "The answer is 4.", "Two and two."),
    ("<think>hm</think>\n<answer>4</answer>", "<answer>4</answer>", "hm"),
    ("<thought>hm</thought>4", "4", "hm"),
    ("[THINK]hm[/THINK]4", "4", "hm"),
    ("<seed:think>hm</seed:think>4", "4", "hm"),
    ("<mm:think>hm</mm:think>4", "4", "hm"),
    ("<longcat_think>\nhm\n</longcat_think>\n4", "4", "hm"),
    ("◁think▷hm◁/think▷4", "4", "hm"),
    ("<|channel>thought\nhm<channel|>4", "4", "hm"),
    ("<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>4<|END_RESPONSE|>", "4", "hm"),
    (
        (
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>Let"
            " me see.<|end|><|start|>assistant<|channel|>final<|message|>4<|return|>"
        ),
        "4",
        "hm",
    ),
    (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>4",
        "4",
        "hm",
    ),
    ("Here is my thought process: hm\nHere is my response: 4", "4", "hm"),
    ("Here's my thought process: hm\nHere's my response: 4", "4", "hm"),
    # gpt-oss without special tokens, and without the one that ends a message.
    ("analysisLet me see. So 5? No.assistantfinal**7**", "**7**", "Let me see. So 5? No."),
    (
        'analysisI call.assistantcommentary to=f json{"x": 5}assistantanalysisSo 6.assistantfinal7',
        "7",
        "I call.So 6.",
    ),
    ("analysisSo 5.assistantcommentaryI say 6.assistantfinal7", "7", "So 5."),
    ("So 5? No.assistantfinal7", "7", "So 5? No."),
    (
        "<|channel|>analysis<|message|>So 5.<|start|>assistant<|channel|>final<|message|>7",
        "7",
        "So 5.",
    ),
    ("<|channel|>analysis<|message|>So 5.<|channel|>final<|message|>7<|return|>", "7", "So 5."),
    # Prompted tags, in any case.
    *(
        (f"<{tag}>\nSo 5.\n</{tag}>\n7", "7", "So 5.")
        for tag in "reasoning Thought thought THINK Think thinking scratchpad reflection inner_monologue REASONING".split()  # noqa: E501, SIM905
    ),
    ("<|begin_of_thought|>\n\nSo 5.\n\n<|end_of_thought|>\n\n7", "7", "So 5."),
    (
        (
            "<|begin_of_thought|>So"
            " 5.<|end_of_thought|>\n\n<|begin_of_solution|>\n\n7\n\n<|end_of_solution|>"
        ),
        "7\n\n",
        "So 5.",
    ),
    # Behind a first word or line.
    ("Okay.\n\n<think>\nSo 5.\n</think>\n7", "Okay.\n\n7", "So 5."),
    ("I think first:\n<reasoning>\nSo 5.\n</reasoning>\n7", "I think first:\n7", "So 5."),
    # JSON texts of content blocks.
    (
        '[{"text": "So \\"5\\".\\n", "thought": true}, {"text": "It is "}, {"text": "\\u0037"}]',
        "It is 7",
        'So "5".\n',
    ),
    (
        (
            '[{"type": "thinking", "thinking": "So 5.", "signature": "x"}, {"type": "text", "text":'
            ' "7"}]\n'
        ),
        "7",
        "So 5.",
    ),
    ('[{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "7"}]', "7", None),
]


@pytest.mark.parametrize(("text", "reply", "thoughts"), EVERY_FAMILY)
def test_every_family_is_split(text, reply, thoughts):
    parts = split(text)
    assert (parts.reply, parts.reasoning) == (reply, thoughts)
    assert parts.closed
    assert parts.answers
    assert join(parts.reply, parts.reasoning, parts.marks) == text


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
    [
        # Interleaved: what stands between and after thoughts is the reply, and its parts do not run
        # into each other.
        ("<think>a</think>\nIt is 4.\n\n<think>b</think>\n\n2 cats.", "It is 4.\n\n2 cats.", "ab"),
        ("<think>a</think>x<think>b</think>y", "xy", "ab"),
        # A special token may follow a sentence of reply.
        ("Let me see. [THINK]a[/THINK] 4", "Let me see. 4", "a"),
        ("Let me see\n[THINK]a[/THINK]\n4", "Let me see\n4", "a"),
        # Marks do not nest: the first closing mark closes.
        ("<think>a <think> b</think> 4 </think>", "4 </think>", "a <think> b"),
        # What a reply quotes after its thoughts stays in it.
        (
            "<think>a</think>The tag <think> opens a thought.",
            "The tag <think> opens a thought.",
            "a",
        ),
        # A thought of a template that quotes the opening mark.
        ("What does <think> mean?\n</think>\nIt opens.", "It opens.", "What does <think> mean?"),
        # White space before the mark, and thoughts that were switched off.
        ("\n <think>\n\n</think>\n\n4", "4", ""),
    ],
)
def test_replies_and_thoughts_are_told_apart(text, reply, thoughts):
    parts = split(text)
    assert (parts.reply, parts.reasoning) == (reply, thoughts)
    assert join(parts.reply, parts.reasoning, parts.marks) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "The answer is 4.", "Write `<think>` first, then `</think>`. The answer is 4.",
        "The tags <think> and </think> mark thoughts. The answer is 4.",
        'It prints "</think>" and stops. The answer is 4.',
        "```\n<think>\nhm\n</think>\n```\nThe answer is 4.",
        "Press `[THINK]` to go on. The answer is 4.", "The answer is 4.<|end|>",
        "The tokens <|END_RESPONSE|> and <|return|> end a reply. It is 4.",
        "I use <thinking>words</thinking> here.",
        "So: Here is my thought process: hm. Here is my response: 4",
        "Write `x = <think> + </think>` there. It is 4.", "So:\n```\n</think>\n```\nIt is 4.",
        "analysis of it gives 4.",
        "Use <think> and </think> around it. It is 4.", "analysis",
        '[{"type": "text", "text": "7"}]', "[1, 2]",
        '[{"thought": true}, 5]', '[{"thought": true, "text": "5"}',
        '[{"type": "thinking"}, {"answer": 4}]',
    ],
)  # fmt: skip
def test_marks_that_a_reply_quotes_are_part_of_it(text):
    assert split(text) == Split(text)


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("<think>\nThe answer is 7. No,", ""),
        ("<think>", ""),
        ("<|channel|>analysis<|message|>It is 7", ""),
        ("It may be 7.\n[THINK]No,", "It may be 7.\n"),
        ("<think>a</think>7 or so.\n<think>No,", "7 or so.\n"),
        ("analysisSo 5", ""),
        ("analysisso 5", ""),
        ("Okay.\n\n<think>\nSo 5", "Okay.\n\n"),
        ("Okay, <THINK>So 5", "Okay, "),
        ("<|begin_of_thought|>So 5", ""),
        ("<inner_monologue>So 5", ""),
    ],
)
def test_a_thought_that_is_never_closed_leaves_no_answer(text, reply):
    parts = split(text)
    assert (parts.reply, parts.closed, parts.answers) == (reply, False, False)
    assert parts.marks[-1].closing == ""
    assert join(parts.reply, parts.reasoning, parts.marks) == text


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("<think>The answer is 7.</think>\n\n", ""),
        ("Okay 5.\n\n<think>It is 7.</think>\n\n", "Okay 5.\n\n"),
        ('[{"type": "thinking", "thinking": "So 5."}]', ""),
    ],
)
def test_a_closed_thought_with_nothing_behind_it_leaves_no_answer(text, reply):
    parts = split(text)
    assert (parts.reply.rstrip(), parts.closed, parts.answers) == (reply.rstrip(), True, False)
    assert join(parts.reply, parts.reasoning, parts.marks) == text


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


PIECES = [
    *(
        "<think>", "</think>", "<thought>", "</thought>", "<thinking>", "</thinking>", "[THINK]",
        "[/THINK]",
        "<seed:think>",
    ),
    *(
        "</seed:think>", "◁think▷", "◁/think▷", "<|channel>thought\n", "<channel|>",
        "<|START_THINKING|>",
        "<|END_THINKING|>",
    ),
    *(
        "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|channel|>", "analysis", "commentary", "final",
        "<|message|>",
        "<|end|>",
    ),
    *(
        "<|start|>assistant", "<|return|>", "Here is my thought process:", "Here's my response:",
        "`", "```", '"', "\n",
        " ",
    ),
    *(".", "word", "\x85", "\u2003", "<r>", "</r>", "assistantfinal", "assistantcommentary",
    "<REASONING>", "</Reasoning>"),
    *('[{"thought": true, "text": "a"}', ', {"text": "b"}', "]", "<|begin_of_thought|>",
    "<|end_of_thought|>"),
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=16).map("".join),
    st.sampled_from([None, *FAMILIES, ("<r>", "</r>")]),
    st.integers(0, 80),
)
def test_any_raw_text_comes_back_byte_for_byte(text, thoughts, length):
    parts = split(text, thoughts)
    assert join(parts.reply, parts.reasoning, parts.marks) == text
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
