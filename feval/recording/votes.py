"""The votes files: everything that voting needs from one dataset, as arrays that are mapped, not
parsed.

A file is `FEVALVT1`, a little-endian uint64 with the length of the header, the header (JSON, padded
with blanks), then the arrays, each at a multiple of 64 bytes, little-endian, in the order of the
header. The header holds `dataset`, `llms` (names, in order; not in the details) and `arrays`: name
-> `[dtype, shape, offset]`. Offsets are uint32, or uint64 from 4 GiB on. For Q questions, and S the
largest pool of the LLM i, `<dataset>.votes` holds

- `question_keys`, uint64 [Q]: what draws are made from
- `candidate_starts`, offsets [Q + 1]: one answer for each party of a question, shared by its LLMs,
  numbered by first appearance, those of CoTs before those of probes; the gold last if no LLM gave
  it
- `gold`, int8, int16 or int32 [Q]: code of the gold, -1 for none
- `codes.i`, as `gold`, [Q, S]: code of each CoT's answer, -1 no answer, -2 no such CoT
- `output_tokens.i`, uint16 or uint32 [Q, S]
- `prompt_tokens.i`, int32 [Q]: -1 unknown
- `sizes.i`, uint32 [Q]: recorded CoTs

and `<dataset>.details`, which is read on first use,

- `question_ids`, `question_id_offsets`, uint8 and offsets [Q + 1]: ids, UTF-8, end to end
- `text_keys`, uint64 [Q]: first eight bytes of the SHA-256 of the question's text
- `candidates`, `candidate_offsets`: the answers as text, likewise
- `aliases`, `alias_offsets`, `alias_starts`, `alias_codes`: the other normal forms of each party,
  with its code, only where different normal forms vote together
- `finish.i`, uint8 [Q, S], or [1, 1] where all are equal: index of the finish reason
- `parents.i`, int16 or int32 [Q, S], only of trees: place of the step before, -1 none, -2 no such
  step
- `ends.i`, uint8 [Q, S], only of trees: 1 where a step ends a solution
- `turns.i`, as `parents.i`, only of trees with turns: which messages the turn replies to, numbered
  within the question by first appearance, -1 no turn, -2 no such step
- `turn_prompts.i`, int32 [Q, S], only of trees with turns: prompt tokens of the turn, -1 unknown

The file of an LLM's probes has the same form; its header holds `dataset` and `llm`. N probes lie
end to end by question, CoT and offset:

- `starts`, int64 [Q S + 1]: where the probes of CoT s of question q begin, at q S + s; the last is
  N
- `offsets`, uint32 [N]: output tokens of the CoT before the probe
- `codes`, as `gold` [N]: code of the answer among the question's candidates, -1 no answer
- `output_tokens`, int16 or int32 [N], only where some are known: of the probe's text, -1 unknown
- `confidences`, float32 [N], only where some were recorded: NaN for none

The SHA-256 of the votes is checked on every opening, those of the details and of probes on first
use; so is that a file holds these arrays and no others, and that every code, gold, size and finish
reason is one of those that its question has. No result depends on the numbering of candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from feval.cards import FINISH_REASONS
from feval.recording.arrays import Probes, Steps
from feval.recording.layout.flat import (
    Int32,
    Integers,
    Kind,
    Numbers,
    Rows,
    Strings,
    UInt8,
    UInt32,
    UInt64,
    mapped,
    unpack,
    well_formed,
)
from feval.recording.layout.format import Record

NO_ANSWER = -1
"""Code of a CoT without an answer."""
ABSENT = -2
"""Code of a place in the table where no CoT was recorded (pools may be ragged)."""

ALIASES = ("aliases", "alias_offsets", "alias_starts", "alias_codes")
_OFFSETS, _CODES = ("uint32", "uint64"), ("int8", "int16", "int32")
_SHARED: Mapping[str, Kind] = {
    "question_keys": (("uint64",), 1),
    "candidate_starts": (_OFFSETS, 1),
    "gold": (_CODES, 1),
}
_OF_LLM: Mapping[str, Kind] = {
    "codes": (_CODES, 2),
    "output_tokens": (("uint16", "uint32"), 2),
    "prompt_tokens": (("int32",), 1),
    "sizes": (("uint32",), 1),
}
_STRINGS: tuple[Kind, Kind] = ((("uint8",), 1), (_OFFSETS, 1))
DETAILS: Mapping[str, Kind] = {
    **dict(zip(("question_ids", "question_id_offsets"), _STRINGS, strict=True)),
    "text_keys": (("uint64",), 1),
    **dict(zip(("candidates", "candidate_offsets"), _STRINGS, strict=True)),
    "finish": (("uint8",), 2),
    "parents": (("int16", "int32"), 2),
    "ends": (("uint8",), 2),
    "turns": (("int16", "int32"), 2),
    "turn_prompts": (("int32",), 2),
    **dict(zip(ALIASES, (*_STRINGS, (_OFFSETS, 1), (("int32",), 1)), strict=True)),
}
"""Arrays of the file of details; of "finish" there is one for each LLM, of "parents" and "ends" for
each with trees of steps, of "turns" and "turn_prompts" for each of these with turns.
"""
_TREES, _TURNS = ("parents", "ends"), ("turns", "turn_prompts")

PROBE_ARRAYS: Mapping[str, Kind] = {
    "starts": (("int64",), 1),
    "offsets": (("uint32",), 1),
    "codes": (_CODES, 1),
    "output_tokens": (("int16", "int32"), 1),
    "confidences": (("float32",), 1),
}
"""Arrays of the flat file of an LLM's probes; the last two are there where something is known."""


Arrays = Mapping[str, Numbers]


class LLMVotes(NamedTuple):
    """One LLM on all questions of a dataset (Q questions, S the largest pool).

    Attributes:
        codes: [Q, S] index into the question's candidates, `NO_ANSWER` or `ABSENT`.
        output_tokens: [Q, S] tokens of each CoT, 0 where absent.
        prompt_tokens: [Q] tokens of the request, -1 where not known.
        sizes: [Q] recorded CoTs of each question.
    """

    codes: Integers
    output_tokens: Integers
    prompt_tokens: Int32
    sizes: UInt32
    read_finish: Callable[[], UInt8]

    @property
    def finish(self) -> UInt8:
        """[Q, S] position in `feval.cards.names.FINISH_REASONS`, 0 where absent."""
        return self.read_finish()

    def rows(self, rows: Rows, codes: Integers) -> LLMVotes:
        """The arrays of some questions, in the order given, with other codes."""
        own = (self.output_tokens[rows], self.prompt_tokens[rows], self.sizes[rows])
        return LLMVotes(codes, *own, lambda: self.finish[rows])


class Votes:
    """The votes of a dataset; `details` gives the arrays of the file of details.

    Attributes:
        dataset: id of the dataset.
        question_keys: [Q] uint64, `name_key("feval/question", dataset, id)`: what draws are made
            from.
        gold: [Q] code of the gold answer among the question's candidates, -1 where there is none.
        llms: LLM name -> its arrays.
    """

    def __init__(self, header: Record, arrays: Arrays, details: Callable[[], Arrays]) -> None:
        self.dataset: str = header["dataset"]
        self.question_keys: UInt64 = arrays["question_keys"]
        self.gold: Integers = arrays["gold"]
        self._starts: Integers = arrays["candidate_starts"]
        self._arrays, self._details = arrays, details
        self.llms = {
            name: LLMVotes(
                arrays[f"codes.{i}"],
                arrays[f"output_tokens.{i}"],
                arrays[f"prompt_tokens.{i}"],
                arrays[f"sizes.{i}"],
                # not of `self`: no cycle keeps files mapped
                partial(_finish, details, i, arrays[f"codes.{i}"].shape),
            )
            for i, name in enumerate(header["llms"])
        }
        self._check()

    def arrays(self) -> dict[str, Numbers]:
        """All arrays of both files; those of LLM i have ".i" behind their names."""
        return {**self._arrays, **self._details()}

    @cached_property
    def question_ids(self) -> Sequence[str]:
        """Q ids, in recorded order."""
        return Strings(self._details()["question_ids"], self._details()["question_id_offsets"])

    @property
    def text_keys(self) -> UInt64:
        """[Q] `name_key(text)`: tells two questions of one id apart."""
        return self._details()["text_keys"]

    @cached_property
    def _candidates(self) -> Strings:
        return Strings(self._details()["candidates"], self._details()["candidate_offsets"])

    def __len__(self) -> int:
        """Number of questions."""
        return len(self.gold)

    def rows_in_order(self) -> Callable[[str], int]:
        """A function from the id of a question to its row, for ids that come in recorded order;
        others are a `ValueError`.
        """
        places = enumerate(self.question_ids)
        row, name = -1, ""

        def row_of(question: str) -> int:
            nonlocal row, name
            while name != question:
                row, name = next(places, (-1, question))
            if row < 0:
                raise ValueError(
                    f"{question!r:.80} is no question of {self.dataset}, or out of order"
                )
            return row

        return row_of

    def candidates(self, question: int) -> list[str]:
        """The distinct answers of a question (and its gold), by code."""
        candidates: list[str] = self._candidates[
            int(self._starts[question]) : int(self._starts[question + 1])
        ]
        return candidates

    def aliases(self, question: int) -> dict[str, int]:
        """Normal forms of a question that vote under the key of another form -> code of that
        key.
        """
        if not self.has_aliases:
            return {}
        forms, offsets, starts, codes = (self._details()[name] for name in ALIASES)
        rows = slice(int(starts[question]), int(starts[question + 1]))
        return dict(zip(Strings(forms, offsets)[rows], codes[rows].tolist(), strict=True))

    @property
    def has_aliases(self) -> bool:
        """Whether normal forms that differ vote together on any question."""
        return "aliases" in self._details()

    def steps(self, llm: str) -> Steps | None:
        """The steps that an LLM's pools consist of; `None` where they consist of whole CoTs."""
        details, number = self._details(), [*self.llms].index(llm)
        return _steps(details, number) if f"parents.{number}" in details else None

    def right(self, llm: str) -> int:
        """Number of an LLM's CoTs that vote with the gold."""
        return int(((self.llms[llm].codes == self.gold[:, None]) & (self.gold >= 0)[:, None]).sum())

    def candidate_counts(self) -> Int32:
        """[Q] number of distinct answers of each question, its gold included."""
        return (self._starts[1:] - self._starts[:-1]).astype(np.int32)

    def _check(self) -> None:
        """Check what the arrays say of each other: whatever is used as an index must be one. Wrong
        ones are a `ValueError`.
        """
        questions = len(self.gold)
        _check_offsets("candidate_starts", self._starts, questions, int(self._starts[-1]))
        counts = self._starts[1:].astype(np.int64) - self._starts[:-1].astype(np.int64)
        if (
            len(self.question_keys) != questions
            or ((self.gold < NO_ANSWER) | (self.gold >= counts)).any()
        ):
            raise ValueError(f"its keys or golds are not of its {questions} questions")

        @cache
        def highest(dtype: np.dtype[Any], width: int) -> Numbers:
            # as a whole table it is compared four times as fast
            most = np.minimum(counts - 1, np.iinfo(dtype).max).astype(dtype)
            return np.repeat(most, width).reshape(questions, width)

        for name, llm in self.llms.items():
            shape = questions, width = llm.codes.shape
            if shape != llm.output_tokens.shape or {questions} != {
                *map(len, (self.gold, llm.prompt_tokens, llm.sizes))
            }:
                raise ValueError(f"the arrays of {name!r:.80} have different shapes")
            lowest = NO_ANSWER
            if (llm.sizes != width).any():
                lowest = ABSENT
                absent = np.arange(width) >= llm.sizes[:, None]
                if llm.sizes.max() > width or (absent != (llm.codes == ABSENT)).any():
                    raise ValueError(
                        f"the sizes of the pools of {name!r:.80} are not those of its codes"
                    )
            if (
                llm.codes.min(initial=0) < lowest
                or (llm.codes > highest(llm.codes.dtype, width)).any()
            ):
                raise ValueError(
                    f"the codes of {name!r:.80} are not those of the questions' answers"
                )


def _check_offsets(name: str, offsets: Numbers, count: int, end: int) -> None:
    """Check that some pieces follow each other from 0 to an end."""
    if (
        len(offsets) != count + 1
        or offsets[0] != 0
        or offsets[-1] != end
        or (offsets[1:] < offsets[:-1]).any()
    ):
        raise ValueError(f"{name} should rise from 0 to {end} in {count} steps")


def _finish(details: Callable[[], Arrays], llm: int, shape: tuple[int, ...]) -> UInt8:
    return np.broadcast_to(details()[f"finish.{llm}"], shape)


def _steps(details: Arrays, llm: int) -> Steps:
    return Steps(*(details.get(f"{name}.{llm}") for name in (*_TREES, *_TURNS)))  # type: ignore[arg-type]  # all of _TREES are there


def _read_details(path: Path, record: Record, header: Record, votes: Arrays) -> Arrays:
    data = mapped(path, record)
    with well_formed(path):
        own_header, details = unpack(data, DETAILS)
        if own_header["dataset"] != header["dataset"]:
            raise ValueError(f"it is of {own_header['dataset']!r:.80}, not of {header['dataset']}")
        without = () if "aliases" in details else ALIASES
        expected = DETAILS.keys() - {"finish", *_TREES, *_TURNS, *without}
        for llm in range(len(header["llms"])):
            is_tree, has_turns = (f"{name}.{llm}" in details for name in ("parents", "turns"))
            names = ("finish", *_TREES * is_tree, *_TURNS * (is_tree and has_turns))
            expected |= {f"{name}.{llm}" for name in names}
        _check_names(details, expected)
        starts = votes["candidate_starts"]
        expected_sizes = len(starts) - 1, len(starts) - 1, int(starts[-1])
        ids, answers = details["question_id_offsets"], details["candidate_offsets"]
        sizes = len(ids) - 1, len(details["text_keys"]), len(answers) - 1
        if sizes != expected_sizes:
            raise ValueError(f"ids, texts and answers should be {expected_sizes}, found {sizes}")
        _check_offsets("question_id_offsets", ids, sizes[0], len(details["question_ids"]))
        _check_offsets("candidate_offsets", answers, sizes[2], len(details["candidates"]))
        if "aliases" in details:
            forms, offsets, alias_starts, codes = (details[name] for name in ALIASES)
            _check_offsets("alias_starts", alias_starts, sizes[0], len(codes))
            _check_offsets("alias_offsets", offsets, len(codes), len(forms))
            highest = np.repeat(np.diff(starts), np.diff(alias_starts))
            if (codes < 0).any() or (codes >= highest).any():
                raise ValueError("its aliases are not of these questions")
        for llm in range(len(header["llms"])):
            codes, finish = votes[f"codes.{llm}"], details[f"finish.{llm}"]
            if f"parents.{llm}" in details:
                _steps(details, llm).check(codes, votes[f"sizes.{llm}"])
            np.broadcast_to(finish, codes.shape)
            if finish.max(initial=0) >= len(FINISH_REASONS):
                raise ValueError(f"finish reasons should be 0 to {len(FINISH_REASONS) - 1}")
        return details


def _check_names(arrays: Arrays, expected: set[str]) -> None:
    if odd := arrays.keys() ^ expected:
        raise ValueError(
            f"it should have {len(expected)} arrays, found {len(arrays)}; {min(odd)!r:.40} is odd"
        )


def open_votes(path: Path, record: Record, details: tuple[Path, Record]) -> Votes:
    """Map a votes file after checking it against its record in the manifest; `details` is that file
    with its record.
    """
    data = mapped(path, record)
    with well_formed(path):
        header, arrays = unpack(data, {**_SHARED, **_OF_LLM})
        of_llms = {f"{name}.{llm}" for name in _OF_LLM for llm in range(len(header["llms"]))}
        _check_names(arrays, _SHARED.keys() | of_llms)
        return Votes(header, arrays, cache(partial(_read_details, *details, header, arrays)))


def open_probes(path: Path, record: Record, interval: int | None, votes: Votes, llm: str) -> Probes:
    """Map the flat file of an LLM's probes after checking it against its record, and its arrays
    against the votes.
    """
    data = mapped(path, record)
    with well_formed(path):
        header, arrays = unpack(data, PROBE_ARRAYS)
        if (header["dataset"], header["llm"]) != (votes.dataset, llm):
            raise ValueError(
                f"it is of {header['llm']!r:.80} on {header['dataset']!r:.80}, not of {llm} on"
                f" {votes.dataset}"
            )
        optional = {"output_tokens", "confidences"} - arrays.keys()
        _check_names(arrays, PROBE_ARRAYS.keys() - optional)
        probes = Probes(
            interval,
            arrays["starts"],
            arrays["offsets"],
            arrays["codes"],
            arrays.get("output_tokens"),
            arrays.get("confidences"),
            votes.llms[llm].codes.shape,
        )
        sizes = votes.llms[llm].sizes
        starts, offsets, (questions, width) = probes.starts, probes.offsets, probes.shape
        _check_offsets("starts", starts, questions * width, len(offsets))
        columns = (probes.codes, probes.output_tokens, probes.confidences)
        if {len(offsets)} != {len(column) for column in columns if column is not None}:
            raise ValueError("its arrays have different lengths")
        counts = np.diff(starts)
        if (sizes != width).any() and counts.reshape(probes.shape)[
            np.arange(width) >= sizes[:, None]
        ].any():
            raise ValueError("it has probes of CoTs that were not recorded")
        rises = offsets[1:] > offsets[:-1]
        ends = starts[1:-1]
        rises[ends[(ends > 0) & (ends < len(offsets))] - 1] = True
        if not rises.all() or not offsets.all():
            raise ValueError("its offsets should rise from 1 within each CoT")
        if probes.interval is not None:
            places = np.arange(1, len(offsets) + 1) - np.repeat(starts[:-1], counts)
            if (offsets != places * probes.interval).any():
                raise ValueError(
                    f"its offsets are not every {probes.interval} tokens, as the manifest says"
                )
        highest = np.repeat(votes.candidate_counts() - 1, np.diff(starts[::width]) if width else 0)
        if len(offsets) and (probes.codes.min() < NO_ANSWER or (probes.codes > highest).any()):
            raise ValueError("its codes are not those of the questions' answers")
        if probes.output_tokens is not None and probes.output_tokens.min(initial=0) < -1:
            raise ValueError("tokens of probes should be 0 or more, or -1 where they are not known")
        if probes.confidences is not None and np.isinf(probes.confidences).any():
            raise ValueError("the confidences of probes should be finite")
        return probes
