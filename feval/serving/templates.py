"""Prompt templates: the words that a request puts around the recorded question it asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

from feval.serving.requests import Conversation
from feval.serving.search import normal, occurrences

_PLACEHOLDER = "<question>"
_WIDEST_HEADING = 40  # characters between a question and its first option
_WIDEST_LABEL = 16  # between one option and the next
_SHOWN = 60
_NAMED = 5
_MAX_USES = 100
_OTHERS = "others"


@dataclass(frozen=True, slots=True)
class Template:
    """The words around a question: all messages with a placeholder for it and its options, and the
    digest of that text.
    """

    text: str
    digest: str


def template_of(
    conversation: Conversation, question: str, choices: Sequence[str] = (), *, first: int = 0
) -> Template | None:
    """Return the words around a question; `None` if no message has its text.

    `first` is where the question begins in the last user message, after exemplars, which belong to
    the template.
    """
    pieces = []
    has_question = False
    last = conversation.last_user_place
    for place, (role, text) in enumerate(conversation.messages):
        text = normal(text)
        searched = place == last if first else True
        spans = (
            [span for span in question_spans(text, question, choices) if span[0] >= first]
            if searched
            else []
        )
        has_question = has_question or bool(spans)
        pieces.append(f"{role}: {_PLACEHOLDER.join(outside(text, spans))}")
    if not has_question:
        return None
    whole = "\n".join(pieces)
    return Template(
        whole, blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    )


def question_spans(text: str, question: str, choices: Sequence[str] = ()) -> list[tuple[int, int]]:
    """Return (start, stop) of every occurrence of a question in a normal text, with the options if
    all of them follow it.
    """
    options = [option for choice in choices if (option := normal(choice).strip())]
    return [
        (start, _end(text, stop, options))
        for start, stop in occurrences(text, normal(question).strip())
    ]


def outside(text: str, spans: Iterable[tuple[int, int]]) -> list[str]:
    """Return the pieces of a text before, between and after some spans, which are sorted and may
    overlap.
    """
    pieces, end = [], 0
    for start, stop in spans:
        if start >= end:
            pieces.append(text[end:start])
        end = max(end, stop)
    return [*pieces, text[end:]]


def _end(text: str, stop: int, options: Sequence[str]) -> int:
    """Return where the list of options after a question ends; `stop` unless all of them follow."""
    left, end, gap = list(options), stop, _WIDEST_HEADING
    while left:
        reach = [
            (place, option)
            for option in left
            if (place := text.find(option, end, end + gap + len(option))) >= 0
        ]
        if not reach:
            return stop
        place, option = min(reach, key=lambda one: (one[0], -len(one[1])))
        left.remove(option)
        end, gap = place + len(option), _WIDEST_LABEL
    return end


class PromptUse(NamedTuple):
    """How a request put a question: the template's digest if known, how it matched, and the field
    that mismatched, if any.
    """

    dataset: str
    digest: str | None
    match: str
    mismatch: str | None = None


class PromptCounts:
    """The prompt templates of one run, with how often it used each."""

    def __init__(self) -> None:
        self._counts: dict[PromptUse, int] = {}
        self._examples: dict[tuple[str, str], list[str]] = {}

    def count(self, use: PromptUse) -> bool:
        """Count a request; return whether its kind is new to the run. Beyond 100 kinds, new ones
        are counted together.
        """
        count = self._counts.get(use)
        if count is not None:
            self._counts[use] = count + 1
            return False
        has_room = len(self._counts) < _MAX_USES
        key = use if has_room else use._replace(digest=_OTHERS)
        self._counts[key] = self._counts.get(key, 0) + 1
        return has_room

    def first(self, dataset: str) -> str | None:
        """Return the digest of the first template that the run used on a dataset; `None` if it used
        none.
        """
        return next(
            (
                use.digest
                for use in self._counts
                if use.dataset == dataset and use.digest is not None
            ),
            None,
        )

    def add_example(self, dataset: str, digest: str, example: Sequence[str]) -> None:
        """Store how the first template of the run and another one read where they begin to
        differ.
        """
        self._examples[dataset, digest] = list(example)

    def to_list(self) -> list[dict[str, Any]]:
        """Return an object per template: dataset, template (digest or null), requests, matches,
        mismatches and example.
        """
        joined: dict[tuple[str, str | None], dict[str, Any]] = {}
        for use, count in self._counts.items():
            row = joined.setdefault(
                (use.dataset, use.digest), {"requests": 0, "matches": {}, "mismatches": {}}
            )
            row["requests"] += count
            row["matches"][use.match] = row["matches"].get(use.match, 0) + count
            if use.mismatch is not None:
                row["mismatches"][use.mismatch] = row["mismatches"].get(use.mismatch, 0) + count
        return [
            {
                "dataset": dataset,
                "template": digest,
                **row,
                "example": self._examples.get((dataset, digest or "")),
            }
            for (dataset, digest), row in joined.items()
        ]


def prompt_remarks(prompts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what a reader of a run's results should know about its prompts (of one dataset), as
    sentences.
    """
    remarks = []
    known = sorted(
        (use for use in prompts if use["template"] is not None), key=lambda use: -use["requests"]
    )
    if len(known) > 1:
        counts = ", ".join(f"{use['requests']:,}" for use in known[:_NAMED]) + ", ..." * (
            len(known) > _NAMED
        )
        example = next((use["example"] for use in known if use["example"]), None)
        shown = (
            f" For example, {example[0]!r} in one reads {example[1]!r} in another."
            if example
            else ""
        )
        more = " or more" if any(use["template"] == _OTHERS for use in known) else ""
        remarks.append(
            f"The run put {len(known)}{more} different prompts around the questions ({counts}"
            f" requests), which recorded CoTs do not reflect.{shown}"
        )
    mismatches = Counter[str]()
    for use in prompts:
        mismatches.update(use["mismatches"])
    if mismatches:
        fields = ", ".join(f"{field}: {count:,}" for field, count in mismatches.items())
        remarks.append(
            "Requests that no recorded CoT can answer were answered because of --allow-mismatch: "
            f"{mismatches.total():,} ({fields})."
        )
    return remarks


def difference(one: str, other: str) -> tuple[str, str]:
    """Return an excerpt of each of two texts, from a little before the first character in which
    they differ.
    """
    place = next(
        (n for n, (mine, theirs) in enumerate(zip(one, other, strict=False)) if mine != theirs),
        None,
    )
    start = max((min(len(one), len(other)) if place is None else place) - _SHOWN // 3, 0)
    return _excerpt(one, start), _excerpt(other, start)


def _excerpt(text: str, start: int) -> str:
    stop = start + _SHOWN
    return f"{'...' * (start > 0)}{text[start:stop]}{'...' * (stop < len(text))}"
