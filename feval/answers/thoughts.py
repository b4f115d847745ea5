"""Split the thoughts that a model wrote inline off its reply: answers are read in the reply only.

Servers without a reasoning parser leave thoughts in the text, between marks that depend on the
model family. `FAMILIES` is the table of marks, `split` applies it, and `join` is the inverse: the
raw text comes back byte for byte.

Where a mark counts:

- At the beginning of the text, ignoring white space, or behind its first word or line ("Okay."),
  which is no reply where nothing follows the thought. A mark inside code or quotation marks never
  counts. Tags are read in any case.
- A closing mark alone: many chat templates open the thought in the prompt, so everything before the
  mark is thought. A text of such an LLM that was cut off before its closing mark is thought
  altogether (`opens` of `split_columns`).
- Later in the text: a tag at the beginning of a line or sentence that is closed, or a special
  token, also in mid-sentence. There may be more thoughts (interleaved thinking); the text between
  and after them is the reply.
- Marks do not nest: the first closing mark closes. A thought that is never closed extends to the
  end of the text.
- A text that is a JSON array of content blocks is read as the blocks: one mark holds the whole
  array.

Every scan is linear in the length of the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

from feval.values import RecordLike, frozen

Thoughts = str | tuple[str, str]
"""How an LLM marks its thoughts: a key of `FAMILIES`, or an opening and a closing mark of its
own.
"""


@frozen
class Family:
    """The marks of one family of models, as regular expressions.

    Attributes:
        hint: in lower case; every text that has one of the marks, behind a line end, holds it, or
            one of several.
        opening: begins a thought.
        closing: ends it.
        place: where `opening` counts: "token" is a special token, "tag" is text that a reply may
            also quote, in any case, and "start" such text that counts only at the beginning.
        lone_closing: whether a closing mark alone ends a thought that the chat template opened.
        frame: what is neither thought nor reply, such as the wrapper of a reply, at the beginning
            or behind another mark; empty for none.
        written: opening and closing mark as a model writes them before its reply; `None` where the
            expressions say it.
    """

    hint: str | tuple[str, ...]
    opening: str
    closing: str
    place: Literal["token", "tag", "start"] = "token"
    lone_closing: bool = True
    frame: str = ""
    written: tuple[str, str] | None = None


_TOKENS = (
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<longcat_think>", "</longcat_think>"),
    ("◁think▷", "◁/think▷"),
    ("<|channel>", "<channel|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>", "<|begin_of_solution|>", "<|end_of_solution|>"),
    (
        "<|channel|>",
        "<|start|>",
        "<|constrain|>",
        "<|message|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
    ),
)
"""The special tokens that marks are made of; the first of each group is unique to its family."""

_CHANNEL = r"(?:<\|start\|>assistant)?<\|channel\|>"
_FINAL = rf"{_CHANNEL}final[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>"
_COMMENTARY = rf"{_CHANNEL}commentary(?s:.)*?(?:<\|(?:end|return|call)\|>|(?={_CHANNEL})|\Z)"
# What is left of the channels where special tokens were skipped while decoding. A text may begin
# with "analysis" as a word.
_BARE_ANALYSIS = r"\A\s*analysis(?:(?=[^\W_])|(?=(?s:.)*?assistantfinal))|assistantanalysis"
_BARE_REPLY = (
    r"assistantfinal|assistantcommentary(?s:.)*?(?:assistantfinal|(?=assistantanalysis)|\Z)"
)

FAMILIES: Mapping[str, Family] = {
    "think": Family("think>", "<think>", "</think>", "tag"),
    "thought": Family("thought>", "<thought>", "</thought>", "tag"),
    **{
        name: Family(f"{name}>", f"<{name}>", f"</{name}>", "start", lone_closing=False)
        for name in ("thinking", "reasoning", "scratchpad", "reflection", "inner_monologue")
    },
    "mistral": Family("think]", r"\[THINK\]", r"\[/THINK\]"),
    "seed": Family("seed:think>", "<seed:think>", "</seed:think>"),
    "minimax": Family("mm:think>", "<mm:think>", "</mm:think>"),
    "longcat": Family("longcat_think>", "<longcat_think>", "</longcat_think>"),
    "kimi": Family("think▷", "◁think▷", "◁/think▷"),
    "gemma": Family(
        "channel",
        r"<\|channel>thought\n",
        r"<channel\|>",
        written=("<|channel>thought\n", "<channel|>"),
    ),
    "cohere": Family(
        "|>",
        r"<\|START_THINKING\|>",
        r"<\|END_THINKING\|>",
        frame=r"<\|START_RESPONSE\|>|<\|END_RESPONSE\|>",
        written=("<|START_THINKING|>", "<|END_THINKING|><|START_RESPONSE|>"),
    ),
    "open-thoughts": Family(
        "_of_thought|>",
        r"<\|begin_of_thought\|>",
        r"<\|end_of_thought\|>",
        frame=r"<\|begin_of_solution\|>|<\|end_of_solution\|>",
    ),
    "harmony": Family(
        ("|>", "\nanalysis", "assistantfinal"),
        rf"{_CHANNEL}analysis<\|message\|>|{_BARE_ANALYSIS}",
        rf"<\|end\|>(?=\s*<\|(?:start|channel)\|>)|{_FINAL}|{_COMMENTARY}|{_BARE_REPLY}",
        frame=rf"{_FINAL}|{_COMMENTARY}|<\|(?:end|return|call)\|>",
        written=(
            "<|channel|>analysis<|message|>",
            "<|end|><|start|>assistant<|channel|>final<|message|>",
        ),
    ),
    "granite": Family(
        "my thought process:",
        "Here(?: is|'s) my thought process:",
        "Here(?: is|'s) my response:",
        "start",
        lone_closing=False,
        written=("Here is my thought process:", "Here is my response:"),
    ),
}
"""Family -> its marks.

`think` is what most open models write (DeepSeek, Qwen, GLM, Kimi K2, MiniMax M2, Phi, Nemotron,
OLMo, and Hunyuan, whose `<answer>` tags belong to the reply); `thought` is EXAONE Deep and Gemini
through its OpenAI-compatible door; `thinking` prompted models and Granite 3.3, and the tags behind
it prompted models; `mistral` Magistral and Ministral; `minimax` M3; `open-thoughts` OpenThinker and
Sky-T1; `harmony` gpt-oss, whose commentary is neither thought nor reply; `granite` Granite 3.2.
"""

_WORDS = ("my thought process:", "\nanalysis", "assistantfinal")
_MARK = re.compile(
    r"[<\[◁]/?(?:\||channel\||[a-z_:]*think|[a-z_:]*thought|reasoning|scratchpad|reflection|inner_monologue)",
    re.IGNORECASE,
)
"""These words or the beginning of a mark are in every text that is split, but for arrays of content
blocks.
"""

_FENCE = "```"
_QUOTES = frozenset("\"'“”‘’«»")
_SENTENCE_ENDS = frozenset(".!?…。！？")
_AFTER_SENTENCE = "\"'*_)]”’"
_SPACE = re.compile(r"\s*")
_TAGS = frozenset(name for name, family in FAMILIES.items() if family.opening == f"<{name}>")
_FIRST_TAG = re.compile(r"\s*<([A-Za-z_]{1,20})>")
# characters before a mark that are looked at, so that no line is read for each mark in it
_LOOK_BACK = 64
_FIRST_LINE = 200  # characters of a first line in front of a thought
_SPOKEN = frozenset(".,:;!?…。，：！？")
_THOUGHT_BLOCKS = ("thinking", "reasoning", "redacted_thinking")


@frozen
class Mark:
    """Where one thought was in the raw text, in Unicode code points.

    `reply_offset` is the length of the reply before it. The marks come with their white space;
    `opening` has no mark where the chat template opened the thought, `closing` is empty where it
    was never closed.
    """

    reply_offset: int
    opening: str
    length: int
    closing: str


@frozen
class Split:
    """The parts of a raw text: the reply, all thoughts end to end (`None` where there is none), and
    where they were.
    """

    reply: str
    reasoning: str | None = None
    marks: tuple[Mark, ...] = ()

    @property
    def closed(self) -> bool:
        """Whether every thought was closed; behind an open one there is no answer."""
        return all(mark.closing for mark in self.marks)

    @property
    def answers(self) -> bool:
        """Whether an answer may be read in the reply: not where a thought was never closed, or
        nothing follows the first.
        """
        return not self.marks or (
            self.closed and bool(self.reply[self.marks[0].reply_offset :].strip())
        )


def split(text: str, thoughts: Thoughts | None = None) -> Split:
    """Return the reply, the thoughts, and the marks that `join` needs to restore the text.

    `thoughts` is how the model marks them (an unknown family is a `KeyError`); `None`: the family
    of the first mark in the text.
    """
    if blocks := _content_blocks(text):
        reply, reasoning = blocks
        return Split(reply, reasoning, (Mark(0, text, len(reasoning or ""), _BLOCKS_END),))
    if thoughts is None and not _has_sign(text):
        return Split(text)
    if thoughts is None and (first := _FIRST_TAG.match(text)) and first[1].lower() in _TAGS:
        return _split(text, _patterns(first[1].lower()))  # no other family's mark can come before
    lower = f"\n{text.lower()}"
    if thoughts is not None:
        patterns = _patterns(thoughts)
        return _split(text, patterns) if _hints_at(patterns.family, lower) else Split(text)

    def first_mark(parts: Split) -> int:
        """Where the first mark is in the text; a lone closing mark is behind its thought."""
        first = parts.marks[0]
        alone = 0 if first.opening.strip() else len(first.opening) + first.length
        return first.reply_offset + alone

    splits = (
        _split(text, _patterns(name))
        for name, family in FAMILIES.items()
        if _hints_at(family, lower)
    )
    return min((parts for parts in splits if parts.marks), key=first_mark, default=Split(text))


def _has_sign(text: str) -> bool:
    if text.startswith("analysis") or any(map(text.__contains__, _WORDS)):
        return True
    return any(map(text.__contains__, (">", "]", "▷"))) and _MARK.search(text) is not None


def _hints_at(family: Family, lower: str) -> bool:
    return (
        family.hint in lower
        if isinstance(family.hint, str)
        else any(map(lower.__contains__, family.hint))
    )


def opened_by_template(text: str | None, thoughts: Thoughts | None) -> bool:
    """Return whether a text closes a thought that it does not open: the chat template of its LLM
    does.
    """
    if text is None or (thoughts is None and not _has_sign(text)):
        return False
    if _MARK.match(text, _leading_space(text)):  # it begins with a mark
        return False
    parts = split(text, thoughts)
    return (
        bool(parts.marks)
        and not parts.marks[0].opening.strip()
        and parts.marks[0].length > 0
        and parts.closed
    )


# closes the mark of a text of content blocks; the mark's opening is the whole text
_BLOCKS_END = "]"


def _content_blocks(text: str) -> tuple[str, str | None] | None:
    """Return the reply and the thoughts of a JSON array of content blocks; `None` where a text is
    none, or has no thought.
    """
    if text[:_LOOK_BACK].lstrip()[:1] != "[" or text[-_LOOK_BACK:].rstrip()[-1:] != "]":
        return None
    try:
        blocks = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not (
        blocks and isinstance(blocks, list) and all(isinstance(block, dict) for block in blocks)
    ):
        return None
    thinks = [
        block.get("thought") is True or block.get("type") in _THOUGHT_BLOCKS for block in blocks
    ]
    says = [
        block.get("type", "text") == "text" and isinstance(block.get("text"), str)
        for block in blocks
    ]
    if not any(thinks) or not all(map(any, zip(thinks, says, strict=True))):
        return None
    return read_blocks(blocks)


def read_blocks(blocks: Sequence[RecordLike]) -> tuple[str, str | None]:
    """Return the reply and the thoughts of a message's content blocks.

    Thoughts are blocks of type `thinking` (Mistral, Anthropic) or `reasoning`, and those marked
    `thought` (Gemini).
    """
    replies, thoughts = "", ""
    for block in blocks:
        kind = block.get("type", "text")
        if block.get("thought") is True:
            thoughts += block_text(block, "text")
        elif kind in ("thinking", "reasoning"):
            thoughts += block_text(block, kind) or block_text(block, "text")
        elif kind == "text":
            replies += block_text(block, "text")
    return replies, thoughts or None


def block_text(block: RecordLike, name: str) -> str:
    """Return the text of a content block, which some servers nest one level deeper."""
    value = block.get(name)
    if isinstance(value, list):
        value = "".join(str(inner.get("text") or "") for inner in value if isinstance(inner, dict))
    return value if isinstance(value, str) else ""


def reply_behind(cue: str | None, text: str) -> str | None:
    """Return what an answer is read in where an LLM wrote a text behind a cue; `None` where that
    ends inside a thought.
    """
    parts = split((cue or "") + text)
    return parts.reply if parts.closed else None


class Interruption(NamedTuple):
    """What makes a reply that is cut off go on as if it had come to its answer.

    Attributes:
        opening: the mark that the chat template wrote before the text, where it opened the thought;
            else empty.
        closing: the mark that ends the thought in which the text is cut; empty where it is cut
            outside of one.
    """

    opening: str
    closing: str


def interruption(text: str, length: int, thoughts: Thoughts | None = None) -> Interruption:
    """Return what surrounds the first `length` characters of a raw text where the reply is cut
    there.
    """
    parts = split(text, thoughts)
    if not parts.marks:
        return Interruption("", "")
    family = thoughts or next(name for name in FAMILIES if split(text, name) == parts)
    opening, closing = written_marks(family)
    before = ""
    if not parts.marks[0].opening.strip():
        before = opening + "\n" * (not opening.endswith(("|>", "\n")))
    cut = split(before + text[:length], family)
    return Interruption(before, "" if cut.closed else closing)


def written_marks(thoughts: Thoughts) -> tuple[str, str]:
    """Return the opening and the closing mark as a model writes them."""
    if not isinstance(thoughts, str):
        return thoughts
    family = FAMILIES[thoughts]
    return family.written or (family.opening.replace("\\", ""), family.closing.replace("\\", ""))


def join(reply: str, reasoning: str | None, marks: Sequence[Mark]) -> str:
    """Return the raw text. Thoughts from a separate field precede the inline ones in `reasoning`
    and are left out.
    """
    if of_content_blocks(marks):
        return marks[0].opening
    inline = _inline(reasoning, marks)
    pieces, place, used = [], 0, 0
    for mark in marks:
        thought = inline[used : used + mark.length]
        pieces += [reply[place : mark.reply_offset], mark.opening, thought, mark.closing]
        place, used = mark.reply_offset, used + mark.length
    return "".join([*pieces, reply[place:]])


def beginning(reply: str, reasoning: str | None, marks: Sequence[Mark], length: int) -> Split:
    """Return the parts of the first `length` characters of the raw text, which `join` restores."""
    kept: list[Mark] = []
    for mark in marks:
        left = length - mark.reply_offset
        if left <= 0:
            break
        opening = mark.opening[:left]
        thought = min(mark.length, left - len(opening))
        closing = mark.closing[: left - len(opening) - thought]
        kept.append(Mark(mark.reply_offset, opening, thought, closing))
        # what is left of it as a length of the reply
        length -= len(opening) + thought + len(closing)
    thoughts = _inline(reasoning, marks)[: sum(mark.length for mark in kept)]
    return Split(reply[:length], thoughts if kept else None, tuple(kept))


def of_content_blocks(marks: Sequence[Mark]) -> bool:
    """Return whether the raw text was a JSON array of content blocks, which holds reply and
    thoughts in another spelling.
    """
    return (
        len(marks) == 1
        and marks[0].closing == _BLOCKS_END
        and _content_blocks(marks[0].opening) is not None
    )


def raw_place(place: int, marks: Sequence[Mark]) -> int:
    """Return where a character of the reply is in the raw text."""
    before = (mark for mark in marks if mark.reply_offset <= place)
    return place + sum(len(mark.opening) + mark.length + len(mark.closing) for mark in before)


def _inline(reasoning: str | None, marks: Sequence[Mark]) -> str:
    """The thoughts that were in the raw text."""
    return (reasoning or "")[len(reasoning or "") - sum(mark.length for mark in marks) :]


def fit(reply: str | None, reasoning: str | None, marks: Sequence[Mark]) -> bool:
    """Return whether marks are consistent with a reply and its reasoning: in order, and within
    their lengths.
    """
    offsets = [0, *(mark.reply_offset for mark in marks), len(reply or "")]
    lengths = [mark.length for mark in marks]
    return (
        offsets == sorted(offsets)
        and min(lengths, default=0) >= 0
        and sum(lengths) <= len(reasoning or "")
    )


def apart(reasoning: str, marks: Sequence[Mark]) -> str | None:
    """Return the part of a recorded reasoning that came in a separate field, before the inline
    thoughts.
    """
    return reasoning[: len(reasoning) - sum(mark.length for mark in marks)] or None


class SplitColumns(NamedTuple):
    """CoTs after splitting, as columns of equal length; whole columns are `None` where no CoT has a
    value.

    Attributes:
        texts: the replies; `None` where there is no text.
        reasoning: the thoughts.
        marks: where they were in the text.
        finish_reasons: as given; "length" for an unclosed thought if the source gives none.
        readable: whether an answer may be read in the reply: not where there are only thoughts.
    """

    texts: list[str | None]
    reasoning: list[str | None] | None
    marks: list[tuple[Mark, ...] | None] | None
    finish_reasons: list[str]
    readable: list[bool]


def split_columns(
    texts: Sequence[str | None],
    reasoning: Sequence[str | None] | None,
    finish_reasons: Sequence[str],
    thoughts: Thoughts | None,
    *,
    opens: bool = False,
) -> SplitColumns:
    """Split the thoughts off some texts; `reasoning` has those from a separate field, which precede
    them.

    `opens`: other texts of the LLM show that its chat template opens the thought
    (`opened_by_template`). One that was cut off by the limit and has no mark is then a thought
    without a reply.
    """
    if (
        thoughts is None
        and reasoning is None
        and not opens
        and not _any_thought(list(filter(None, texts)))
    ):  # as most texts are
        return SplitColumns(list(texts), None, None, list(finish_reasons), [True] * len(texts))
    apart = reasoning or [None] * len(texts)
    columns: Any = SplitColumns([], [], [], [], [])
    for text, thought, reason in zip(texts, apart, finish_reasons, strict=True):
        row: Any = text, thought, None, reason, True
        if text is not None:
            part = split(text, thoughts)
            reply = part.reply
            if opens and reply and not part.marks and reason == "length" and thought is None:
                part, reply = Split("", reply, (Mark(0, "", len(reply), ""),)), ""
            joined = thought if part.reasoning is None else (thought or "") + part.reasoning
            readable = part.answers and (joined is None or bool(reply.strip()))
            known = "length" if reason == "unknown" and not part.closed else reason
            row = reply, joined, part.marks or None, known, readable
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    is_split = any(thought is not None for thought in columns.reasoning)
    return SplitColumns(
        columns.texts,
        columns.reasoning if is_split else None,
        columns.marks if any(columns.marks) else None,
        *columns[3:],
    )


def _any_thought(texts: Sequence[str]) -> bool:
    """Return whether some text may hold thoughts."""
    if any(_content_blocks(text) is not None for text in texts):
        return True
    text = "\n".join(texts)
    if not _has_sign(text):
        return False
    lower = f"\n{text.lower()}"
    return any(_hints_at(family, lower) for family in FAMILIES.values())


def mark_tokens(vocabulary: Iterable[str]) -> frozenset[str]:
    """Return those of a tokenizer's special tokens that marks are made of; without them, text
    cannot be split.
    """
    known = frozenset(vocabulary)
    return frozenset(
        token for group in _TOKENS if group[0] in known for token in group if token in known
    )


class _Patterns(NamedTuple):
    family: Family
    closing: re.Pattern[str]
    outside: re.Pattern[str]
    frame: re.Pattern[str] | None


@cache
def _patterns(thoughts: Thoughts) -> _Patterns:
    if isinstance(thoughts, str):
        family = FAMILIES[thoughts]
    else:
        family = Family("", re.escape(thoughts[0]), re.escape(thoughts[1]), "tag")
    # The character that both marks begin with stands in front, where the search is a hundred times
    # as fast.
    start = family.opening[: 2 if family.opening.startswith("\\") else 1]
    start = "" if family.frame or not family.closing.startswith(start) else start
    opening, closing = family.opening[len(start) :], family.closing[len(start) :]
    framed = family.frame and f"|{family.frame}"
    outside = f"{start}(?:(?P<opening>{opening})|(?P<closing>{closing}){framed})"
    frame = re.compile(family.frame) if family.frame else None
    flags = re.NOFLAG if family.place == "token" else re.IGNORECASE
    return _Patterns(family, re.compile(family.closing, flags), re.compile(outside, flags), frame)


class _Block(NamedTuple):
    """A thought from `opened` to `closed`, with its marks from `start` to `end`; or a mark that is
    neither thought nor reply.
    """

    start: int
    opened: int
    closed: int
    end: int
    is_thought: bool = True


def _split(text: str, patterns: _Patterns) -> Split:
    blocks = list(_Marks(text, patterns).blocks())
    if not blocks:
        return Split(text)
    replies: list[str] = []
    thoughts: list[str] = []
    # length of the reply before a block, and the block with its white space
    spans: list[tuple[int, _Block]] = []
    place = size = 0
    last = ""
    for block in blocks:
        extended = _with_space(text, block, place, last)
        if extended.start > place:
            last = text[extended.start - 1]
            size += extended.start - place
            replies.append(text[place : extended.start])
        # one mark behind the other
        if not extended.is_thought and extended.start == place and spans:
            spans[-1] = (size, spans[-1][1]._replace(end=extended.end))
        else:
            spans.append((size, extended))
        thoughts += [text[extended.opened : extended.closed]] * extended.is_thought
        place = extended.end
    marks = tuple(
        Mark(size, text[start:opened], closed - opened, text[closed:end])
        for size, (start, opened, closed, end, _) in spans
    )
    return Split("".join([*replies, text[place:]]), "".join(thoughts) if thoughts else None, marks)


def _with_space(text: str, block: _Block, place: int, last: str) -> _Block:
    """Extend a block's marks by the white space around and inside them, except what separates two
    parts of the reply.

    The reply before the block begins at `place`; `last` is the last character of the reply so far.
    """
    start, end = block.start, block.end
    if not text[place:start].strip() and (not last or last.isspace()):
        start = place
    before = text[start - 1] if start > place else last
    if not before or before.isspace():
        end += _leading_space(text, end)
    if not block.is_thought:
        return _Block(start, start, start, end, is_thought=False)
    thought = text[block.opened : block.closed]
    opened = block.opened + _leading_space(thought)
    is_closed = block.end > block.closed
    return _Block(start, opened, opened + len(thought.strip()) if is_closed else block.closed, end)


def _leading_space(text: str, start: int = 0) -> int:
    """Return how many characters of white space follow a place."""
    match = _SPACE.match(text, start)
    return 0 if match is None else match.end() - start


class _Marks:
    """Tells the marks of real thoughts from marks that a reply quotes."""

    def __init__(self, text: str, patterns: _Patterns) -> None:
        self._text, self._patterns = text, patterns
        self._beginning = _leading_space(text)
        self._last_closing = max(
            (match.start() for match in patterns.closing.finditer(text)), default=-1
        )
        self._after_block = self._has_quoted_opening = False
        self._counted, self._fences = 0, 0

    def blocks(self) -> Iterator[_Block]:
        """Yield the blocks of one family, in order."""
        place = 0
        while (match := self._patterns.outside.search(self._text, place)) is not None:
            start, place = match.span()
            # a mark of the wrapper around a reply may close a thought elsewhere
            is_frame = self._is_frame(match)
            if match["opening"] is not None and self._opens(start, place):
                closing = self._patterns.closing.search(self._text, place)
                closed, end = (len(self._text),) * 2 if closing is None else closing.span()
                yield _Block(start, place, closed, end)
                place = end
            elif (
                match["closing"] is not None
                and not (is_frame and start <= self._beginning)
                and self._closes_alone(start, place)
            ):
                yield _Block(0, 0, start, place)
            elif is_frame:
                yield _Block(start, start, start, place, is_thought=False)
            else:
                continue
            self._after_block = True
            # code fences inside a thought do not count for later marks
            self._counted, self._fences = place, 0

    def _opens(self, start: int, end: int) -> bool:
        """Whether an opening mark opens a thought."""
        counts = start <= self._beginning or self._opens_later(start, end)
        self._has_quoted_opening |= not counts
        return counts

    def _opens_later(self, start: int, end: int) -> bool:
        place = self._patterns.family.place
        if self._is_quoted(start, end) or self._in_code(start):
            return False
        if place == "token" or (not self._after_block and self._follows_first_words(start, end)):
            return True
        if place == "start" and not self._after_block:
            return False
        glued = self._after_block and not self._text[start - 1].isspace()
        is_closed = self._last_closing >= end
        return (is_closed or self._after_block) and (glued or self._begins_sentence(start))

    def _follows_first_words(self, start: int, end: int) -> bool:
        """Whether nothing but a first line is in front of a tag on the next one, or a first word
        such as "Okay," on its own.
        """
        if start - self._beginning > _FIRST_LINE or self._text[end - 1] != ">":
            return False
        before = self._text[self._beginning : start].rstrip()
        if "\n" in before or not before:
            return False
        is_spoken = before[-1] in _SPOKEN or self._text[end : end + 1] == "\n"
        return self._begins_line(start) or (is_spoken and not any(map(str.isspace, before)))

    def _closes_alone(self, start: int, end: int) -> bool:
        """Whether a closing mark without an opening one closes a thought that the chat template
        opened.
        """
        if (
            self._after_block
            or not self._patterns.family.lone_closing
            or self._is_quoted(start, end)
        ):
            return False
        if self._in_code(start) and self._text.find(_FENCE, end) >= 0:
            return False
        return not self._has_quoted_opening or (
            self._begins_line(start) and not self._in_code(start)
        )

    def _is_frame(self, match: re.Match[str]) -> bool:
        """Whether a mark belongs to the wrapper that the model wrote around its reply."""
        frame = self._patterns.frame
        is_possible = self._after_block or match.start() <= self._beginning
        return is_possible and frame is not None and frame.fullmatch(match[0]) is not None

    def _is_quoted(self, start: int, end: int) -> bool:
        before, after = self._text[max(start - 1, 0) : start], self._text[end : end + len(_FENCE)]
        return (
            before == "`"
            or (after[:1] == "`" and after != _FENCE)
            or (before in _QUOTES and after[:1] in _QUOTES)
            or self._is_inline_code(start, end)
        )

    def _is_inline_code(self, start: int, end: int) -> bool:
        """Whether backticks on the same line enclose a mark."""
        before = self._text[max(start - _LOOK_BACK, 0) : start].rpartition("\n")[2]
        after = self._text[end : end + _LOOK_BACK].partition("\n")[0]
        return before.replace(_FENCE, "").count("`") % 2 == 1 and "`" in after

    def _in_code(self, start: int) -> bool:
        self._fences += self._text.count(_FENCE, self._counted, start)
        self._counted = start
        return self._fences % 2 == 1

    def _begins_line(self, start: int) -> bool:
        before = self._text[max(start - _LOOK_BACK, 0) : start].rstrip(" \t")
        return not before or before.endswith("\n")

    def _begins_sentence(self, start: int) -> bool:
        before = self._text[max(start - _LOOK_BACK, 0) : start].rstrip().rstrip(_AFTER_SENTENCE)
        return self._begins_line(start) or before[-1:] in _SENTENCE_ENDS
