"""What feval hands to the worker process of a user's method: texts of questions, pools with their
draws, and channels on request.

The recordings, the ids and the golds stay in this process, and so do the keys of questions, which
are made from ids. Damage to a recording ends the run here: it is nothing that a method could put
right, or may pass over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from feval.errors import DamagedRecordingError, FevalError, HubError, NotFetchedError

if TYPE_CHECKING:
    from feval.methods.protocol import Rows
    from feval.replay.dataset import Dataset
    from feval.replay.llm import LLM
    from feval.replay.pools import Channels, Pool

ID = "<question>"
"""Stands for a question's id in the worker's messages."""


class Desk:
    """Makes the messages that hand something to a worker process, and answers its calls about what
    they left out.
    """

    def __init__(self) -> None:
        self._llms: Sequence[LLM] = ()
        self._rows: list[int] = []
        self._hidden: dict[str, str] = {}
        self._channels: list[Channels] = []
        self._numbers: dict[int, tuple[LLM, list[dict[int, int]]]] = {}

    def questions(self, dataset: Dataset, llms: Sequence[LLM], rows: Rows) -> dict[str, Any]:
        """Return some questions and the pools of some LLMs on them."""
        self._llms, self._rows = llms, rows.tolist()
        self._hide(dataset, rows)
        prices = llms[0].prices
        return {
            "dataset": dataset.id,
            "questions": [dataset[row].question for row in self._rows],
            "llms": [self._with_answers(llm, rows) for llm in llms],
            "billing": llms[0].billing,
            "prices": None if prices is None else asdict(prices),
        }

    def training(self, dataset: Dataset, llms: Sequence[LLM], rows: Rows) -> dict[str, Any]:
        """Return pools and golds of training questions."""
        self._hide(dataset, rows)
        return {
            "pools": [self._pool(llm.pool.rows(rows)) for llm in llms],
            "gold": dataset.gold[rows],
        }

    def _hide(self, dataset: Dataset, rows: Rows) -> None:
        """Say what no message may name: ids, and places of recordings."""
        self._hidden = {repr(dataset.question_ids[row]): repr(ID) for row in rows.tolist()}
        self._hidden |= {str(path): "The recording" for path in dataset.recording_paths}

    def _pool(self, pool: Pool) -> dict[str, Any]:
        """Return the arrays of a pool."""
        self._channels.append(pool.channels)
        arrays = ("llm", "codes", "output_tokens", "prompt_tokens", "sizes", "finish", "candidates")
        channels = {"owner": pool.channels.owner, "channels": len(self._channels) - 1}
        channels["has_steps"] = pool.channels.has_steps
        clock = pool.clock and {
            name: getattr(pool.clock, name) for name in ("microseconds", "first", "at_once")
        }
        return {name: getattr(pool, name) for name in arrays} | channels | {"clock": clock}

    def _with_answers(self, llm: LLM, rows: Rows) -> dict[str, Any]:
        """Return a pool with its answers, numbered as they were recorded: among all codes of a
        question is the gold's.
        """
        pool = self._pool(llm.pool.rows(rows))
        codes = np.array(pool["codes"], np.int32)
        answers: list[list[str | None]] = []
        own: list[dict[int, int]] = []
        self._numbers[pool["channels"]] = llm, own
        for row, recorded in zip(self._rows, codes, strict=True):
            samples = range(int(llm.pool.sizes[row]))
            numbers = {
                code: n
                for n, code in enumerate(
                    dict.fromkeys(code for code in recorded.tolist() if code >= 0)
                )
            }
            own.append(numbers)
            first = dict(
                zip(
                    reversed(recorded[: len(samples)].tolist()),
                    reversed(llm.answers(row, samples)),
                    strict=True,
                )
            )
            recorded[:] = [numbers.get(code, code) for code in recorded.tolist()]
            answers.append([first[code] for code in numbers])
        return pool | {
            "codes": codes,
            "candidates": np.array([*map(len, answers)]),
            "answers": answers,
        }

    def reply(self, call: Any) -> dict[str, Any]:
        """Return the reply to a call, which may be anything that JSON can say; damage to a
        recording is an error here.
        """
        try:
            name, *arguments = call
            return {"value": getattr(self, f"_call_{name}")(*arguments)}
        except (DamagedRecordingError, NotFetchedError, HubError):
            raise
        except FevalError as error:
            message = str(error)
            for hidden, shown in self._hidden.items():
                message = message.replace(hidden, shown)
            return {"error": type(error).__name__, "message": message}
        except Exception as error:  # noqa: BLE001  the call comes from a stranger's code
            return {
                "error": "UsageError",
                "message": f"feval does not take the call {call!r:.80} ({error!s:.80}).",
            }

    def _call_texts(self, llm: int, place: int) -> list[str | None]:
        return self._llms[llm].texts(self._rows[place])

    def _call_reasoning(self, llm: int, place: int) -> list[str | None] | None:
        return self._llms[llm].reasoning(self._rows[place])

    def _call_messages(self, llm: int, place: int) -> list[str | None] | None:
        return self._llms[llm].messages(self._rows[place])

    def _call_prompt(self, llm: int, place: int) -> str | None:
        return self._llms[llm].request(self._rows[place]).raw_text

    def _call_uniform(self, place: int, samples: list[int], seed: int) -> float:
        return self._llms[0].uniform(self._rows[place], samples, seed)

    def _call_scorers(self, channels: int) -> list[str]:
        return [*self._channels[channels].scorers()]

    def _call_scores(self, channels: int, scorer: str) -> dict[str, Any]:
        scores = self._channels[channels].scores(scorer)
        return {name: getattr(scores, name) for name in scores.__slots__} | {
            "scorer": asdict(scores.scorer)
        }

    def _call_logprobs(self, channels: int) -> dict[str, Any]:
        logprobs = self._channels[channels].logprobs()
        parts = {"confidences": asdict(logprobs.confidences), "logprobs": asdict(logprobs.logprobs)}
        return {"sequence": logprobs.sequence} | parts

    def _call_steps(self, channels: int) -> dict[str, Any]:
        steps = self._channels[channels].steps()
        return dict(zip(steps.__slots__, steps.arrays(), strict=True))

    def _call_probes(self, channels: int) -> dict[str, Any]:
        probes = self._channels[channels].probes()
        values = {name: getattr(probes, name) for name in probes.__slots__}
        if channels not in self._numbers:  # of training questions
            return values | {"answers": []}
        llm, numbers = self._numbers[channels]
        tables, answers = [], []
        bounds = probes.starts[:: max(probes.shape[1], 1)].tolist()
        for row, known, start, stop in zip(
            self._rows, numbers, bounds[:-1], bounds[1:], strict=True
        ):
            shown = dict.fromkeys(code for code in probes.codes[start:stop].tolist() if code >= 0)
            more = [code for code in shown if code not in known]
            known.update(zip(more, range(len(known), len(known) + len(more)), strict=True))
            answers.append(llm.answer_texts(row, more))
            tables.append(
                np.array(
                    [*(known.get(code, -1) for code in range(max(known, default=-1) + 1)), -1],
                    np.int32,
                )
            )
        return values | {"codes": probes.recoded(tables).codes, "answers": answers}
