"""Split the thoughts that a model wrote inline off its reply: answers are read in the reply only.

Servers without a reasoning parser leave thoughts in the text, between marks that depend on the model family. `FAMILIES` is the
table of marks, `split` applies it, and `join` is the inverse: the raw text comes back byte for byte.

Where a mark counts:

- At the beginning of the text, ignoring white space. A mark inside code or quotation marks never counts.
- A closing mark alone: many chat templates open the thought in the prompt, so everything before the mark is thought.
- Later in the text: a tag at the beginning of a line or sentence that is closed, or a special token, also in mid-sentence.
  There may be more thoughts (interleaved thinking); the text between and after them is the reply.
- Marks do not nest: the first closing mark closes. A thought that is never closed extends to the end of the text.

Every scan is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

Thoughts = str | tuple[str, str]
"""How an LLM marks its thoughts: a key of `FAMILIES`, or an opening and a closing mark of its own."""


@dataclass(frozen=True, slots=True)
class Family:
    """The marks of one family of models, as regular expressions.

    Attributes:
        hint: part of every text that has one of the marks.
        opening: begins a thought.
        closing: ends it.
        place: where `opening` counts: "token" is a special token, "tag" is text that a reply may also quote, "start" counts only
            at the beginning of the text.
        lone_closing: whether a closing mark alone ends a thought that the chat template opened.
        frame: what is neither thought nor reply, such as the wrapper of a reply, at the beginning or behind another mark;
            empty for none.
        written: opening and closing mark as a model writes them before its reply; `None` where the expressions say it.
    """

    hint: str
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
    ("<|channel|>", "<|start|>", "<|constrain|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"),
)
"""The special tokens that marks are made of; the first of each group is unique to its family."""

_CHANNEL = r"(?:<\|start\|>assistant)?<\|channel\|>"

FAMILIES: Mapping[str, Family] = {
    "think": Family("think>", "<think>", "</think>", "tag"),
    "thought": Family("thought>", "<thought>", "</thought>", "tag"),
    "thinking": Family("thinking>", "<thinking>", "</thinking>", "start", lone_closing=False),
    "mistral": Family("THINK]", r"\[THINK\]", r"\[/THINK\]"),
    "seed": Family("seed:think>", "<seed:think>", "</seed:think>"),
    "minimax": Family("mm:think>", "<mm:think>", "</mm:think>"),
    "longcat": Family("longcat_think>", "<longcat_think>", "</longcat_think>"),
    "kimi": Family("think▷", "◁think▷", "◁/think▷"),
    "gemma": Family("channel", r"<\|channel>thought\n", r"<channel\|>", written=("<|channel>thought\n", "<channel|>")),
    "cohere": Family(
        "|>",
        r"<\|START_THINKING\|>",
        r"<\|END_THINKING\|>",
        frame=r"<\|START_RESPONSE\|>|<\|END_RESPONSE\|>",
        written=("<|START_THINKING|>", "<|END_THINKING|><|START_RESPONSE|>"),
    ),
    "harmony": Family(
        "|>",
        rf"{_CHANNEL}analysis<\|message\|>",
        r"<\|end\|>(?=\s*<\|(?:start|channel)\|>)",
        frame=rf"{_CHANNEL}final[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>"
        rf"|{_CHANNEL}commentary(?s:.)*?(?:<\|(?:end|return|call)\|>|\Z)"
        r"|<\|(?:end|return|call)\|>",
        written=("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
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

`think` is what most open models write (DeepSeek, Qwen, GLM, Kimi K2, MiniMax M2, Phi, Nemotron, OLMo, and Hunyuan, whose
`<answer>` tags belong to the reply); `thought` is EXAONE Deep and Gemini through its OpenAI-compatible door; `thinking` prompted
models and Granite 3.3; `mistral` Magistral and Ministral; `minimax` M3; `harmony` gpt-oss, whose commentary is neither thought
nor reply; `granite` Granite 3.2.
"""

_SIGNS = (">", "THINK]", "▷", "my thought process:")
"""One of these is in every text that is split."""

_FENCE = "```"
_QUOTES = frozenset("\"'“”‘’«»")
_SENTENCE_ENDS = frozenset(".!?…。！？")
_AFTER_SENTENCE = "\"'*_)]”’"
_SPACE = re.compile(r"\s*")
_LOOK_BACK = 64  # characters before a mark that are looked at, so that no line is read for each mark in it


@dataclass(frozen=True, slots=True)
class Mark:
    """Where one thought was in the raw text, in Unicode code points.

    `reply_offset` is the length of the reply before it. The marks come with their white space; `opening` has no mark where the
    chat template opened the thought, `closing` is empty where it was never closed.
    """

    reply_offset: int
    opening: str
    length: int
    closing: str


@dataclass(frozen=True, slots=True)
class Split:
    """The parts of a raw text: the reply, all thoughts end to end (`None` where there is none), and where they were."""

    reply: str
    reasoning: str | None = None
    marks: tuple[Mark, ...] = ()

    @property
    def closed(self) -> bool:
        """Whether every thought was closed; behind an open one there is no answer."""
        return all(mark.closing for mark in self.marks)

    @property
    def answers(self) -> bool:
        """Whether an answer may be read in the reply: not where a thought was never closed, or nothing follows the thoughts."""
        return not self.marks or (self.closed and not self.reply.isspace() and bool(self.reply))


def split(text: str, thoughts: Thoughts | None = None) -> Split:
    """Return the reply, the thoughts, and the marks that `join` needs to restore the text.

    `thoughts` is how the model marks them (an unknown family is a `KeyError`); `None`: the family of the first mark in the text.
    """
    if thoughts is not None:
        patterns = _patterns(thoughts)
        return _split(text, patterns) if patterns.family.hint in text else Split(text)
    if not any(map(text.__contains__, _SIGNS)):
        return Split(text)
    splits = (_split(text, _patterns(name)) for name, family in FAMILIES.items() if family.hint in text)
    return min((parts for parts in splits if parts.marks), key=_first_mark, default=Split(text))


def reply_behind(cue: str | None, text: str) -> str | None:
    """Return what an answer is read in where an LLM wrote a text behind a cue; `None` where that ends inside a thought."""
    parts = split((cue or "") + text)
    return parts.reply if parts.closed else None


class Interruption(NamedTuple):
    """What makes a reply that is cut off go on as if it had come to its answer.

    Attributes:
        opening: the mark that the chat template wrote before the text, where it opened the thought; else empty.
        closing: the mark that ends the thought in which the text is cut; empty where it is cut outside of one.
    """

    opening: str
    closing: str


def interruption(text: str, length: int, thoughts: Thoughts | None = None) -> Interruption:
    """Return what surrounds the first `length` characters of a raw text where the reply is cut there."""
    parts = split(text, thoughts)
    if not parts.marks:
        return Interruption("", "")
    families = [thoughts] if thoughts is not None else [name for name in FAMILIES if split(text, name) == parts]
    opening, closing = written_marks(families[0])
    before = "" if parts.marks[0].opening.strip() else opening + "\n" * (not opening.endswith(("|>", "\n")))
    cut = split(before + text[:length], families[0])
    return Interruption(before, "" if cut.closed else closing)


def written_marks(thoughts: Thoughts) -> tuple[str, str]:
    """Return the opening and the closing mark as a model writes them."""
    if not isinstance(thoughts, str):
        return thoughts
    family = FAMILIES[thoughts]
    return family.written or (family.opening.replace("\\", ""), family.closing.replace("\\", ""))


def join(reply: str, reasoning: str | None, marks: Sequence[Mark]) -> str:
    """Return the raw text. Thoughts from a separate field precede the inline ones in `reasoning` and are left out."""
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
        length -= len(opening) + thought + len(closing)  # what is left of it as a length of the reply
    thoughts = _inline(reasoning, marks)[: sum(mark.length for mark in kept)]
    return Split(reply[:length], thoughts if kept else None, tuple(kept))


def raw_place(place: int, marks: Sequence[Mark]) -> int:
    """Return where a character of the reply is in the raw text."""
    before = (mark for mark in marks if mark.reply_offset <= place)
    return place + sum(len(mark.opening) + mark.length + len(mark.closing) for mark in before)


def _inline(reasoning: str | None, marks: Sequence[Mark]) -> str:
    """The thoughts that were in the raw text."""
    return (reasoning or "")[len(reasoning or "") - sum(mark.length for mark in marks) :]


def fit(reply: str | None, reasoning: str | None, marks: Sequence[Mark]) -> bool:
    """Return whether marks are consistent with a reply and its reasoning: in order, and within their lengths."""
    offsets = [0, *(mark.reply_offset for mark in marks), len(reply or "")]
    lengths = [mark.length for mark in marks]
    return offsets == sorted(offsets) and min(lengths, default=0) >= 0 and sum(lengths) <= len(reasoning or "")


def apart(reasoning: str, marks: Sequence[Mark]) -> str | None:
    """Return the part of a recorded reasoning that came in a separate field, before the inline thoughts."""
    return reasoning[: len(reasoning) - sum(mark.length for mark in marks)] or None


class SplitColumns(NamedTuple):
    """CoTs after splitting, as columns of equal length; whole columns are `None` where no CoT has a value.

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
) -> SplitColumns:
    """Split the thoughts off some texts; `reasoning` has those from a separate field, which precede them."""
    if thoughts is None and reasoning is None and not _hinted("\n".join(filter(None, texts))):  # as most texts are
        return SplitColumns(list(texts), None, None, list(finish_reasons), [True] * len(texts))
    parts = [None if text is None else split(text, thoughts) for text in texts]
    apart = reasoning or [None] * len(parts)
    joined = [
        thought if part is None or part.reasoning is None else (thought or "") + part.reasoning
        for part, thought in zip(parts, apart, strict=True)
    ]
    marks = [part.marks or None if part is not None else None for part in parts]
    return SplitColumns(
        [None if part is None else part.reply for part in parts],
        joined if any(thought is not None for thought in joined) else None,
        marks if any(marks) else None,
        [
            "length" if reason == "unknown" and part is not None and not part.closed else reason
            for part, reason in zip(parts, finish_reasons, strict=True)
        ],
        [
            part is None or (part.answers and (thought is None or bool(part.reply.strip())))
            for part, thought in zip(parts, joined, strict=True)
        ],
    )


def _hinted(text: str) -> bool:
    """Return whether a text may have a mark of some family."""
    return any(map(text.__contains__, _SIGNS)) and any(family.hint in text for family in FAMILIES.values())


def mark_tokens(vocabulary: Iterable[str]) -> frozenset[str]:
    """Return those of a tokenizer's special tokens that marks are made of; without them, text cannot be split."""
    known = frozenset(vocabulary)
    return frozenset(token for group in _TOKENS if group[0] in known for token in group if token in known)


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
    outside = f"(?P<opening>{family.opening})|(?P<closing>{family.closing})" + (
        f"|{family.frame}" if family.frame else ""
    )
    frame = re.compile(family.frame) if family.frame else None
    return _Patterns(family, re.compile(family.closing), re.compile(outside), frame)


def _first_mark(parts: Split) -> int:
    """Return where the first mark is in the raw text; a lone closing mark is behind its thought."""
    first = parts.marks[0]
    return first.reply_offset + (0 if first.opening.strip() else len(first.opening) + first.length)


class _Block(NamedTuple):
    """A thought from `opened` to `closed`, with its marks from `start` to `end`; or a mark that is neither thought nor reply."""

    start: int
    opened: int
    closed: int
    end: int
    is_thought: bool = True


def _split(text: str, patterns: _Patterns) -> Split:
    blocks = list(_blocks(text, patterns))
    if not blocks:
        return Split(text)
    replies: list[str] = []
    thoughts: list[str] = []
    spans: list[tuple[int, _Block]] = []  # length of the reply before a block, and the block with its white space
    place = size = 0
    last = ""
    for block in blocks:
        extended = _with_space(text, block, place, last)
        if extended.start > place:
            last = text[extended.start - 1]
            size += extended.start - place
            replies.append(text[place : extended.start])
        if not extended.is_thought and extended.start == place and spans:  # one mark behind the other
            spans[-1] = (size, spans[-1][1]._replace(end=extended.end))
        else:
            spans.append((size, extended))
        thoughts += [text[extended.opened : extended.closed]] * extended.is_thought
        place = extended.end
    marks = [
        Mark(offset, text[span.start : span.opened], span.closed - span.opened, text[span.closed : span.end])
        for offset, span in spans
    ]
    return Split("".join([*replies, text[place:]]), "".join(thoughts) if thoughts else None, tuple(marks))


def _with_space(text: str, block: _Block, place: int, last: str) -> _Block:
    """Extend a block's marks by the white space around and inside them, except what separates two parts of the reply.

    The reply before the block begins at `place`; `last` is the last character of the reply so far.
    """
    start = place if not text[place : block.start].strip() and (not last or last.isspace()) else block.start
    before = text[start - 1] if start > place else last
    end = block.end if before and not before.isspace() else block.end + _leading_space(text, block.end)
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


def _blocks(text: str, patterns: _Patterns) -> Iterator[_Block]:
    """Yield the blocks of one family, in order."""
    checker = _MarkChecker(text, patterns)
    place = 0
    while (match := patterns.outside.search(text, place)) is not None:
        place = match.end()
        if match["opening"] is not None and checker.opens(match):
            closing = patterns.closing.search(text, place)
            closed, place = (len(text), len(text)) if closing is None else closing.span()
            yield _Block(match.start(), match.end(), closed, place)
        elif match["closing"] is not None and checker.closes_alone(match):
            yield _Block(0, 0, match.start(), place)
        elif checker.is_frame(match):
            yield _Block(match.start(), match.start(), match.start(), place, is_thought=False)
        else:
            continue
        checker.take(place)


class _MarkChecker:
    """Tells the marks of real thoughts from marks that a reply quotes."""

    def __init__(self, text: str, patterns: _Patterns) -> None:
        self._text, self._patterns = text, patterns
        self._beginning = _leading_space(text)
        self._last_closing = max((match.start() for match in patterns.closing.finditer(text)), default=-1)
        self._after_block = self._has_quoted_opening = False
        self._counted, self._fences = 0, 0

    def opens(self, match: re.Match[str]) -> bool:
        """Whether an opening mark opens a thought."""
        counts = match.start() <= self._beginning or self._opens_later(match.start(), match.end())
        self._has_quoted_opening |= not counts
        return counts

    def _opens_later(self, start: int, end: int) -> bool:
        place = self._patterns.family.place
        if self._is_quoted(start, end) or self._in_code(start) or (place == "start" and not self._after_block):
            return False
        if place == "token":
            return True
        glued = self._after_block and not self._text[start - 1].isspace()
        is_closed = self._last_closing >= end
        return (is_closed or self._after_block) and (glued or self._begins_sentence(start))

    def closes_alone(self, match: re.Match[str]) -> bool:
        """Whether a closing mark without an opening one closes a thought that the chat template opened."""
        start, end = match.span()
        if self._after_block or not self._patterns.family.lone_closing or self._is_quoted(start, end):
            return False
        return not self._has_quoted_opening or (self._begins_line(start) and not self._in_code(start))

    def is_frame(self, match: re.Match[str]) -> bool:
        """Whether a mark belongs to the wrapper that the model wrote around its reply."""
        frame, is_possible = self._patterns.frame, self._after_block or match.start() <= self._beginning
        return is_possible and frame is not None and frame.fullmatch(match[0]) is not None

    def take(self, end: int) -> None:
        """Continue behind a thought: code fences inside it do not count for later marks."""
        self._after_block = True
        self._counted, self._fences = end, 0

    def _is_quoted(self, start: int, end: int) -> bool:
        before, after = self._text[max(start - 1, 0) : start], self._text[end : end + len(_FENCE)]
        return before == "`" or (after[:1] == "`" and after != _FENCE) or (before in _QUOTES and after[:1] in _QUOTES)

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
