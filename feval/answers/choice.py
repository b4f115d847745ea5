r"""Choices: "(B)", "B.", "b)", "B) the cat", "the cat" are one answer, the label B.

A label is read in brackets, behind "option", or bare where punctuation, the option's own text or
the end follows (the words "A" and "I" begin sentences). Labels may be words ("invalid" does not
hold "valid"), digits or small letters. Without labels a text is read as an option: the same text
(`feval.answers.text`), number or date as exactly one option, or naming exactly one and denying
none. "not A but B" is B; several labels in a row ("A, B, D") choose none.

Which of a CoT's labels is its answer (the first rule that finds one):

1. in the answer that the CoT sets apart: in a JSON object, or in the last `\boxed{...}`;
2. after the last phrase that names one: an answer phrase (`feval.answers.markers`; but "A:" is an
   option here), "the correct option is", "I choose"; or the last "(B) is correct";
3. the head of the reply ("B. Paris"), unless further lines begin with other labels: a list of
   options is no answer, nor is one that is cut off at its next label;
4. the end of its last line ("Therefore, B."), or the one option that line names.

An answer phrase that closes the CoT but names no option is kept as the raw answer, as is a box that
names none; nothing else is guessed.

The key is the label as the question writes it. An answer that names no option has the key of its
own text, whatever the gold is: without options "mango" and "apple" are two parties, "none of them"
is one. One that names several options ("B or C"), denies ("not B", "neither"), or is empty is no
answer. Without options, any single letter A to Z is a label. A gold answer is read as an answer is,
but one that names none of the options has no key. Where upstream split an option at its commas
(three BIG-Bench-Hard questions), "Monsters, Inc" is its own text, whether it is an answer or the
gold, and not the two options "Monsters" and "Inc".
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from os.path import commonprefix
from typing import NamedTuple

from feval.answers import date, markers, number, text as free_text
from feval.answers.markers import Match
from feval.values import Pairs

_LETTERS = tuple((letter, "") for letter in string.ascii_uppercase)
_LONGEST = 400
_ROUNDS = 4
_LONGEST_RUN = 4
_SHORTEST_NAME = 3
_MARKS = f")].!*\"'{string.whitespace}\x1c\x1d\x1e\x1f"
_LONGEST_LABEL = 200  # a longer one is only read where it is the whole answer
_DEEPEST = 40  # branches of labels within branches
_NOTHING = "(?!)"

_OPENING = r"[^\w\n(\[{\\]{0,8} (?: \\(?:text|mathrm|mathbf|textbf)\{ )?"
_NAMED = r"(?P<named> (?i:option|choice|letter|answer) \s{1,3} )?"
_ENDS = r"""(?= \s*$ | [ \t]*\n | \s*[,;:!?)\]}*_"`|/<] | \.(?![a-z0-9]) | '(?![a-z])
    | \s{1,3}[-–—=]\s | \s{1,3}(?:because|since|as|is|which)\s )"""
_INTRODUCTION = (
    "is|it's|be|option|choice|letter|answer|therefore|so|thus|hence|choose|pick|select|with|think"
)
_DENIED = r"(?! \s{1,3} (?:is|was) (?: n't | \s{1,3} (?:not|wrong|incorrect|false) ) \b )"
_NEGATION = re.compile(
    r"\b(?:not|neither|nor|cannot|never|wrong|incorrect|except)\b|n't\b", re.IGNORECASE
)
_DENIAL = re.compile(r"[^\w\n]{0,8}(?:not|neither|nor)\b", re.IGNORECASE)
_NEGATIONS = ("not", "nor", "neither", "never", "wrong", "except", "incorrect", "n't")
_REASON = re.compile(r" (?:because|since|as|not|rather|instead|and not) ")
_VERDICT = re.compile(
    r"is\s(?:therefore )?(?:the )?(?:most |best )?(?:correct|right|answer|best)(?![a-z])"
)
_ARTICLE = re.compile(r"^(?:the|an?) (?=.)")
_WORD = re.compile(r"[^\W_]+")
WHOLE = re.compile(r"(-?[0-9]+)(?:\.0+)?")
"""A whole number, also as pandas writes it where one of a column is missing: 1.0."""
_TO_WORDS = bytes(
    ord(one.lower()) if (one := chr(code)).isalnum() else 32 for code in range(128)
).ljust(256)


Choices = Sequence[tuple[str, str]]
"""Label and text of each option of a question."""


class _Reading(NamedTuple):
    label: str
    raw: str


def extract(text: str, choices: Choices = ()) -> str | None:
    """Return the option a CoT answers with, as it is written there. Without choices, A to Z are the
    labels.
    """
    options = _options(_frozen(choices))
    content = (markers.set_apart(text) or "").strip() or None
    if content and (reading := _read(content, options)):
        return reading.raw
    cot = markers.own_part(text)
    for segment in markers.segments(cot, markers.OPTION_PHRASE):
        if reading := _read(segment.text, options):
            return reading.raw
        if segment.final:
            return (
                content
                or markers.first_sentence(segment.text).strip()
                or segment.text.strip()
                or None
            )
    last = markers.last_line(cot)
    if _several(cot, last, options):
        return None
    reading = _verdict(cot, options) or _head_of_reply(cot, options) or _of_last_line(last, options)
    return reading.raw if reading else content


def canonical(raw: str, choices: Choices = ()) -> str | None:
    """Return the label of a raw answer, or the key of its own text where it names no option; `None`
    where it names several.

    A raw answer that is more than an answer is read as a text. One that denies or is empty has no
    key.
    """
    frozen = _frozen(choices)
    options = _options(frozen)
    for _ in range(_ROUNDS):  # the key of a text, folded, may name an option that the text did not
        key = _key(raw, frozen, options)
        if key is None or key == raw or options.labels.get(key) == key:
            return key
        raw = key
    return None


def _key(raw: str, frozen: Pairs, options: _Options) -> str | None:
    """One round of `canonical`."""
    bare = raw.strip()
    if raw in options.labels or bare in options.labels:
        return options.labels.get(raw) or options.labels[bare]
    if len(raw) == 3 and raw[0] + raw[2] == "()" and raw[1] in options.labels:
        return options.labels[raw[1]]  # how most are written, read without the patterns
    reading, answer = None, bare
    if (
        len(bare) <= _LONGEST
        and "\n" not in bare
        and not markers.segments(bare, markers.OPTION_PHRASE)
    ):
        reading = _read(bare, options)
    if reading is None:
        extracted = extract(bare, frozen)
        reading = _read(extracted, options) if extracted is not None else None
        answer = extracted or bare
    if reading is not None:
        return reading.label
    return (
        None
        if len(answer) > _LONGEST or "\n" in answer or _mentions(answer, options)
        else free_text.canonical(answer)
    )


def _mentions(text: str, options: _Options) -> bool:
    """Whether a text that is read as no option denies, or names several, or one that it denies."""
    if _DENIAL.match(text) or _head(text, options) or options.patterns.bracketed.search(text):
        return True
    left = f" {_squeezed(text)} "
    if left.strip() in options.runs:
        return False
    if any(reading in options.readings for reading in _readings(text, options.kinds)) or any(
        map(left.__contains__, options.names)
    ):
        return True
    labels = {
        match[1]
        for match in options.patterns.alone.finditer(text)
        if match[1] in options.labels.values()
    }
    return len(labels) > 1 or bool(labels and _denies(text))


def canonical_gold(gold: str, choices: Choices = ()) -> str | None:
    """Return the label of the option a gold answer is, or names; `None` where it names none of the
    options that there are.

    It is a label, else an option's own text, which may look like an answer ("Answer: B"), else a
    position from 0, which no answer is; anything else is read as an answer is.
    """
    options = _options(_frozen(choices))
    key = options.labels.get(gold.strip()) or options.readings.get(
        f"text {free_text.canonical(gold)}"
    )
    if not any(label.strip() for label, _ in choices):
        return key or canonical(gold, choices)
    whole = WHOLE.fullmatch(gold.strip())
    if whole and not key:
        place, labels = whole[1], [label for label, _ in choices]
        key = options.labels.get(place)
        # where labels are numbers, too, a number is no position
        is_place = len(place) < 9 and not all(map(str.isdecimal, labels))
        if not key and is_place and int(place) in range(len(labels)):
            key = labels[int(place)]
    key = key or canonical(gold, choices)
    return key if key in options.labels or (key and _squeezed(key) in options.runs) else None


def _read(text: str, options: _Options) -> _Reading | None:
    """The option a short text begins with or names."""
    text = text[:_LONGEST].strip()
    text = markers.affirmed(text)
    head = _head(text, options)
    whole = _worded(text, options) and options.readings.get(f"text {free_text.canonical(text)}")
    if whole and (head is None or any(map(str.isalnum, text[head.end("mark") :]))):
        # "D/(M-3)" may be an option's text and begin with another's label
        return _Reading(whole, text)
    if head is not None:
        return (
            None if _begins_row(head, options) else _Reading(_written(head, options), head["mark"])
        )
    for part in (text, markers.first_sentence(text).strip() or text):
        if label := _equal(part, options) or _named(part, options, options.names):
            return _Reading(label, part)
    return None


def _head(text: str, options: _Options) -> Match | None:
    """The label a text begins with."""
    match = options.patterns.head.match(text)
    if match is None or not _written(match, options):
        return None
    return match if not match["bare"] or match["named"] or _stands_alone(match, options) else None


def _written(match: Match, options: _Options) -> str:
    """The label as the question writes it; empty where a folded one could be two."""
    written: str = match["bracketed"] or match["ended"] or match["bare"]
    return options.labels.get(written) or options.labels.get(written.casefold(), "")


def _stands_alone(match: Match, options: _Options) -> bool:
    """Whether a label that a word follows is a label: its option follows, or it is no word of a
    sentence.
    """
    label = _written(match, options)
    if match["bare"] == label and (len(label) > 1 or (label.isalpha() and label not in "AaIi")):
        return True
    following = f" {_squeezed(match.string[match.end() :])} "
    return any(
        options.owners[name] == label for name in options.names if following.startswith(name)
    )


def _begins_row(head: Match, options: _Options) -> bool:
    following = options.patterns.row.match(head.string, head.end("mark"))
    return following is not None and options.labels[following[1]] != _written(head, options)


def _equal(text: str, options: _Options) -> str | None:
    """The one option that a text equals as a text, a number or a date."""
    kinds = options.kinds if _worded(text, options) else options.figures
    return (
        next(filter(None, map(options.readings.get, _readings(text, kinds))), None)
        if kinds
        else None
    )


def _worded(text: str, options: _Options) -> bool:
    """Whether a text could equal an option as a text: plain text with other words cannot."""
    return not text.isascii() or ("{" in text and "\\" in text) or _squeezed(text) in options.alike


@lru_cache(maxsize=8)  # the last line of a CoT is read again as its raw answer
def _named(text: str, options: _Options, names: tuple[str, ...]) -> str | None:
    """The one option that a sentence names, denying none; or the one it begins with, before reasons
    why no other.
    """
    left = f" {_squeezed(text)} "
    if left.startswith(options.names):
        begun = next(filter(left.startswith, options.names))
        if _REASON.match(left, len(begun) - 1):
            return options.owners[begun] or None
    named = set()
    for name in list(filter(left.__contains__, names)):
        if name in left:
            left = left.replace(name, " | ")
            named.add(options.owners[name])
    return named.pop() or None if len(named) == 1 and not _denies(text) else None


def _denies(text: str) -> bool:
    lower = text.lower()
    return (not text.isascii() or any(map(lower.__contains__, _NEGATIONS))) and _NEGATION.search(
        text
    ) is not None


def _verdict(text: str, options: _Options) -> _Reading | None:
    last = markers.last_match(options.patterns.verdict, text) if _VERDICT.search(text) else None
    return _Reading(options.labels[last[1]], last[1]) if last else None


def _head_of_reply(text: str, options: _Options) -> _Reading | None:
    text = text.strip()
    head = _head(text[:_LONGEST], options)
    if (
        head is None
        or _begins_row(head, options)
        or text[head.end("mark") : head.end("mark") + 1] == ":"
    ):
        return None
    label = _written(head, options)
    others = (options.labels[match[1]] for match in options.patterns.line.finditer(text))
    return _Reading(label, head["mark"]) if all(other == label for other in others) else None


def _several(text: str, last: str, options: _Options) -> bool:
    """Whether a reply is a row or a list of labels ("A, C and D") and so chooses none."""
    labels, patterns = options.labels, options.patterns
    if (
        patterns.line.match(f"{last}\n")
        and len({labels[match[1]] for match in patterns.line.finditer(text)}) > 1
    ):
        return True
    item = patterns.item.fullmatch(last)
    if item and _cut_off(text, options.labels[item[1]], options):
        return True
    bare = text.strip()
    if len(bare) > _LONGEST or patterns.line.match(bare):
        return False
    other_words = set(_WORD.findall(patterns.alone.sub(" ", bare))) - {"and", "or"}
    return not other_words and len({label.casefold() for label in patterns.alone.findall(bare)}) > 1


def _cut_off(text: str, last: str, options: _Options) -> bool:
    """Whether a reply lists the options from the first on and ends at the label of the next ("A.
    x", "B. y", "C").
    """
    if text.rstrip().rpartition("\n")[0].rstrip(" \t").endswith("\n"):
        return False  # a paragraph of its own concludes
    labels = [*(options.labels[match[1]] for match in options.patterns.line.finditer(text)), last]
    all_labels = list(dict.fromkeys(options.labels.values()))
    return len(labels) >= min(3, len(all_labels)) and labels == all_labels[: len(labels)]


def _of_last_line(line: str, options: _Options) -> _Reading | None:
    patterns = options.patterns
    if not line.isascii() or line.rstrip(_MARKS).endswith(patterns.ends):
        tail = patterns.tail.search(line, max(0, len(line) - patterns.reach))
        if tail:
            return _Reading(options.labels[tail[1]], tail[1])
    brackets = patterns.bracketed.finditer(line) if ")" in line or "]" in line else ()
    bracketed = {options.labels[match[1]] for match in brackets}
    if bracketed:
        only = bracketed.pop()
        return _Reading(only, f"({only})") if not bracketed and not _denies(line) else None
    label = _equal(line, options) or _named(line, options, options.long_names)
    return _Reading(label, line) if label else None


def _frozen(choices: Iterable[Sequence[str]]) -> Pairs:
    return tuple(map(tuple, choices))  # type: ignore[arg-type]  # pairs; a comprehension is slower


class _Options:
    """The options of one question, ready to be recognised; where options share a reading or words,
    their label is empty.

    Attributes:
        labels: label, and label folded where that is unambiguous -> label.
        readings: what a text can be equal to an option in ("text the cat", "number 5", "date
            05/01/2021") -> its label.
        kinds: those of the readings: a text is read as a date only where an option is one.
        figures: those of them that a text has whatever its words are.
        owners: the words of each option's text, a blank around them -> its label.
        names: those words, the longest first.
        long_names: those of at least three characters, which a last line may name.
        alike: the words of every text that has such a reading as a text.
        runs: the words of several neighbouring options, end to end: one option that upstream split
            at commas.
    """

    def __init__(self, choices: Pairs) -> None:
        pairs = [(label, text) for label, text in choices if label.strip()] or _LETTERS
        self.labels = labels = {label: label for label, _ in pairs}
        folded = Counter(label.casefold() for label in labels)
        for label in list(labels):
            if folded[label.casefold()] == 1:
                labels.setdefault(label.casefold(), label)
                labels.setdefault(label.upper(), label)
        self.readings = _owners(
            (reading, label) for label, text in pairs for reading in _readings(text)
        )
        self.owners = _owners(
            (f" {squeezed} ", label) for label, text in pairs if (squeezed := _squeezed(text))
        )
        self.names = tuple(sorted(self.owners, key=lambda name: (-len(name), name)))
        self.long_names = tuple(name for name in self.names if len(name.strip()) >= _SHORTEST_NAME)
        texts = [_squeezed(text) for _, text in pairs]
        spans = (
            texts[start : start + size]
            for size in range(2, _LONGEST_RUN + 1)
            for start in range(len(texts) - size + 1)
        )
        self.runs = frozenset(" ".join(span) for span in spans if all(span))
        self.kinds = tuple(
            kind for kind in _KEYS if any(each.startswith(f"{kind} ") for each in self.readings)
        )
        self.figures = tuple(kind for kind in self.kinds if kind not in ("text", "words"))
        self.alike = frozenset(
            _squeezed(key) for _, text in pairs for key in (text, free_text.canonical(text) or "")
        )
        self.patterns = _label_patterns(tuple(labels.items()))


_options = lru_cache(maxsize=512)(_Options)


def _owners(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Map each key to the one label that has it; to the empty string where several have."""
    owners: dict[str, str] = {}
    for key, label in pairs:
        owners[key] = label if owners.get(key, label) == label else ""
    return owners


@lru_cache(maxsize=8)  # the words of one line are compared several times
def _squeezed(text: str) -> str:
    text = text[:_LONGEST]
    if text.isascii():  # between most words is one blank already: few pieces
        parts = text.encode().translate(_TO_WORDS).decode().strip().split("  ")
        words = " ".join([part.strip() for part in parts if part])
    else:
        words = " ".join(_WORD.findall(free_text.fold(text)))
    return _ARTICLE.sub("", words, count=1)


def _date(text: str) -> str | None:
    return date.canonical(text) if len(text) <= _LONGEST else None


_KEYS: dict[str, Callable[[str], str | None]] = {
    "text": free_text.canonical, "words": _squeezed, "number": number.whole, "date": _date,
}  # fmt: skip


def _readings(text: str, kinds: Iterable[str] = tuple(_KEYS)) -> list[str]:
    """What a text is equal to another in."""
    return [f"{kind} {key}" for kind in kinds if (key := _KEYS[kind](text))]


def any_of(words: Iterable[str], depth: int = _DEEPEST) -> str:
    """Return a regular expression that matches the longest of some words, as a tree: more words
    take no more time.
    """
    distinct = sorted(set(words), key=lambda word: (-len(word), word))
    if depth == 0:
        return "|".join(map(re.escape, distinct)) or _NOTHING
    by_initial: dict[str, list[str]] = {}
    for word in distinct:
        by_initial.setdefault(word[:1], []).append(word)
    branches = []
    for alike in by_initial.values():  # the empty word comes last
        stem = commonprefix(alike)  # noqa: RUF071  of words, not of paths
        ends = (
            f"(?:{any_of((word[len(stem) :] for word in alike), depth - 1)})"
            if len(alike) > 1
            else ""
        )
        branches.append(re.escape(stem) + ends)
    return "|".join(branches) or _NOTHING


def caseless(text: str) -> str:
    """Return a text in the one spelling of all that regular expressions find equal to it when they
    ignore case.
    """
    lower = [character.lower()[0] for character in text]  # "İ" has two, and is found equal to "i"
    return "".join(upper.lower() if len(upper := one.upper()) == 1 else one for one in lower)


class _LabelPatterns:
    """How labels are written: as the question does, or in another case, which single letters are
    only where clear.

    Attributes:
        ends: of every plain line that `tail` finds a label in, but for marks.
        reach: characters of the longest match of `tail`.
    """

    def __init__(self, labels: Pairs) -> None:
        short = [pair for pair in labels if len(pair[0]) <= _LONGEST_LABEL]
        exact = any_of(written for written, _ in short)
        proper = any_of(written for written, label in short if len(written) > 1 or written == label)
        any_case = f"(?i:{any_of(caseless(written) for written, _ in short)})"
        compiled = partial(re.compile, flags=re.VERBOSE)
        self.head = compiled(
            rf"""{_OPENING} (?P<mark> {_NAMED} (?:
            [(\[{{] \s? (?P<bracketed> {any_case} ) \s? [)\]}}] {_DENIED}
          | (?P<ended> {any_case} ) {_ENDS} {_DENIED}
          | (?P<bare> {any_case} ) (?= \s ) {_DENIED} ))"""
        )
        separator = r"(?>(?: [ \t] | [,|/&] | \b(?:and|or)\b ){1,6})"
        self.row = compiled(
            rf"[)\]]? {separator} [(\[]? ({exact}) (?= [)\]]? \s* (?: [,|/&.] | and\b | or\b | $ |"
            r" \n ))"
        )
        self.line = compiled(rf"(?m:^) [ \t*]{{0,8}} [(\[]? ({exact}) [)\].:] (?=\s)")
        self.verdict = re.compile(rf"(?<![\w'])({proper})[)\].*\"']{{0,4}}\s{_VERDICT.pattern}")
        self.bracketed = compiled(rf"[(\[] ({exact}) [)\]]")
        self.tail = compiled(
            rf"""(?: ^ | \b(?i:{_INTRODUCTION})[,:]?\s )
            [(\[*"']{{0,3}} ({proper}) [)\].!*"'\s]{{0,6}} $"""
        )
        self.alone = compiled(rf"(?<![\w']) ({any_case}) (?![\w'])")
        self.item = compiled(rf"[*]{{0,2}} [(\[]? ({exact}) [)\].:*]{{0,3}}")
        self.ends = tuple({written.rstrip(_MARKS) for written, _ in short})
        self.reach = max((len(written) for written, _ in short), default=0) + 24


_label_patterns = lru_cache(maxsize=64)(_LabelPatterns)
