"""Make the votes files of a dataset from its pools; writing and verifying use the same code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.answers.parties import Parties
from feval.cards.finish_reasons import FINISH_REASONS
from feval.errors import DamagedRecordingError
from feval.recording.content import PoolRows, Question
from feval.recording.layout.flat import offsets_of, pack, pack_strings
from feval.recording.votes import ABSENT, ALIASES, DETAILS, NO_ANSWER, Votes, name_key

FINISH_CODES: dict[str, int] = {reason: code for code, reason in enumerate(FINISH_REASONS)}

_Pool = tuple[
    npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], int
]  # codes, output tokens, finish reasons, prompt tokens


class VotesBuilder:
    """Collects the pools of a dataset and makes its votes.

    Codes number a question's distinct answers in order of first appearance (LLMs as added, CoTs as recorded); the gold comes last
    if nobody gave it. No result depends on this numbering. Where different normal forms are equal, a code stands for their party.
    """

    def __init__(self, dataset: str, questions: Sequence[Question]) -> None:
        self._dataset = dataset
        self._questions = questions
        self._index = {question.id: row for row, question in enumerate(questions)}
        self._codes: list[dict[str, int]] = [{} for _ in questions]
        self._llms: dict[str, dict[int, _Pool]] = {}
        self._gold = [question.answer_key for question in questions]
        self._aliases: list[dict[str, int]] = [{} for _ in questions]

    def forms(self) -> Iterator[tuple[str, list[str], str | None]]:
        """Yield each question's id, the distinct normal forms of all LLMs, and the normal form of its gold."""
        for question, codes in zip(self._questions, self._codes, strict=True):
            yield question.id, list(codes), question.answer_key

    def join(self, question: str, parties: Parties) -> None:
        """Let different normal forms of a question vote together; call it once, after all CoTs were added."""
        row = self._index[question]
        self._gold[row] = parties.gold
        if not parties.joined:
            return
        keys: dict[str, int] = {}
        table = [keys.setdefault(parties.key(form), len(keys)) for form in self._codes[row]]
        if parties.gold is not None:
            keys.setdefault(parties.gold, len(keys))
        self._codes[row] = keys
        self._aliases[row] = {form: keys[key] for form, key in sorted(parties.joined.items()) if key in keys}
        renumbered = np.array([*table, NO_ANSWER], np.int32)  # NO_ANSWER is -1, the last one
        for pools in self._llms.values():
            if row in pools:
                pools[row] = (renumbered[pools[row][0]], *pools[row][1:])

    def add(self, llm: str, pool: PoolRows) -> None:
        """Add one LLM's CoTs on one question; a finish reason that is none of `FINISH_CODES` is a `KeyError`."""
        row = self._index.get(pool.question_id, -1)
        if row < 0:
            raise DamagedRecordingError(
                f"{llm} was asked {pool.question_id!r:.80}, which is no question of {self._dataset}."
            )
        codes = self._codes[row]
        coded = [NO_ANSWER if a is None else codes.setdefault(a, len(codes)) for a in pool.answers]
        prompt_tokens = -1 if pool.prompt_tokens is None else pool.prompt_tokens
        self._llms.setdefault(llm, {})[row] = (
            np.array(coded, np.int32),
            np.array(pool.output_tokens, np.uint32),
            np.array([FINISH_CODES[reason] for reason in pool.finish_reasons], np.uint8),
            prompt_tokens,
        )

    def llm_names(self) -> list[str]:
        """The LLMs in the order they were added."""
        return list(self._llms)

    def correct(self, llm: str) -> list[bool | None]:
        """Whether each CoT of an LLM is correct, in recorded order; `None` where the question has no gold. Call `join` first."""
        flat: list[bool | None] = []
        for row, (codes, *_) in sorted(self._llms[llm].items()):
            gold = self._gold[row]
            code = None if gold is None else self._codes[row].get(gold, ABSENT)
            flat += [None] * len(codes) if code is None else (codes == code).tolist()
        return flat

    def add_llm(self, llm: str) -> None:
        """Add an LLM, which may have no CoT."""
        self._llms.setdefault(llm, {})

    def to_bytes(self) -> dict[str, bytes]:
        """The whole files, by part."""
        votes, details = self._arrays()
        header = {"dataset": self._dataset}
        return {"votes": pack(header | {"llms": list(self._llms)}, votes), "details": pack(header, details)}

    def votes(self) -> Votes:
        """The votes as the files would hold them."""
        arrays, details = self._arrays()
        return Votes({"dataset": self._dataset, "llms": list(self._llms)}, arrays, lambda: details)

    def _arrays(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, npt.NDArray[Any]]]:
        """The arrays of the votes and those of the details."""
        arrays = self._shared_arrays()
        for i, pools in enumerate(self._llms.values()):
            arrays |= {f"{name}.{i}": array for name, array in self._llm_arrays(pools).items()}
        details = {name: arrays.pop(name) for name in list(arrays) if name.split(".")[0] in DETAILS}
        return arrays, details

    def _shared_arrays(self) -> dict[str, npt.NDArray[Any]]:
        gold = [
            NO_ANSWER if key is None else codes.setdefault(key, len(codes))
            for key, codes in zip(self._gold, self._codes, strict=True)
        ]
        ids, id_offsets = pack_strings([q.id for q in self._questions])
        candidates, offsets = pack_strings([answer for codes in self._codes for answer in codes])
        keys = [name_key("feval/question", self._dataset, q.id) for q in self._questions]
        return {
            "question_ids": ids,
            "question_id_offsets": id_offsets,
            "question_keys": np.array(keys, np.uint64),
            "text_keys": np.array([name_key(q.text) for q in self._questions], np.uint64),
            "candidates": candidates,
            "candidate_offsets": offsets,
            "candidate_starts": offsets_of([len(codes) for codes in self._codes]),
            "gold": np.array(gold, self._code_type()),
            **self._alias_arrays(),
        }

    def _alias_arrays(self) -> dict[str, npt.NDArray[Any]]:
        if not any(self._aliases):
            return {}
        forms, offsets = pack_strings([form for aliases in self._aliases for form in aliases])
        codes = [code for aliases in self._aliases for code in aliases.values()]
        starts = offsets_of([len(aliases) for aliases in self._aliases])
        arrays = (forms, offsets, starts, np.array(codes, np.int32))
        return dict(zip(ALIASES, arrays, strict=True))

    def _code_type(self) -> type[np.signedinteger[Any]]:
        most = max((len(codes) for codes in self._codes), default=0)
        return np.int8 if most < 127 else np.int16 if most < 32767 else np.int32

    def _llm_arrays(self, pools: Mapping[int, _Pool]) -> dict[str, npt.NDArray[Any]]:
        count = len(self._questions)
        sizes = np.zeros(count, np.uint32)
        prompt_tokens = np.full(count, -1, np.int32)
        width = max((len(codes) for codes, _, _, _ in pools.values()), default=0)
        most = max((int(tokens.max(initial=0)) for _, tokens, _, _ in pools.values()), default=0)
        table = np.full((count, width), ABSENT, self._code_type())
        output_tokens = np.zeros((count, width), np.uint16 if most < 2**16 else np.uint32)
        finish = np.zeros((count, width), np.uint8)
        for row, (codes, tokens, reasons, prompt) in pools.items():
            size = len(codes)
            sizes[row], prompt_tokens[row] = size, prompt
            table[row, :size], output_tokens[row, :size], finish[row, :size] = codes, tokens, reasons
        return {
            "codes": table,
            "output_tokens": output_tokens,
            "finish": finish if (finish != finish[:1, :1]).any() else finish[:1, :1],
            "prompt_tokens": prompt_tokens,
            "sizes": sizes,
        }
