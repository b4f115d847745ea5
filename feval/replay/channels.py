"""Channels: what some methods need of a pool besides answers: scores of the CoTs, log-probabilities
of their tokens, probes.

They are read on first use and kept as long as the pool.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from feval.errors import ConflictError, NotRecordedError, UnknownNameError, UsageError
from feval.recording.logprobs import Ragged, TokenLogprobs
from feval.recording.probes import Probes
from feval.recording.scores import Scores, direction_question, stated_direction
from feval.recording.steps import Steps

if TYPE_CHECKING:
    from feval.recording.reader import Recording

AGGREGATES = ("score", "last", "min", "prod", "mean")
"""The number a CoT is judged by: its one score, or an aggregate of its step scores."""

_T = TypeVar("_T")
Rows = npt.NDArray[np.intp]


class Channels(ABC):
    """Source of a pool's optional channels, for the LLM `owner`. Question `row` of the arrays is
    question `row` of the pool.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._cache: dict[Hashable, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what can be read or computed again: another process is not sent arrays."""
        return self.__dict__ | {"_cache": {}}

    @abstractmethod
    def scorers(self) -> Sequence[str]:
        """Return the names of the scorers."""

    @abstractmethod
    def _read_scores(self, scorer: str) -> Scores: ...

    @abstractmethod
    def _read_logprobs(self) -> TokenLogprobs: ...

    @abstractmethod
    def _read_probes(self) -> Probes | None: ...

    def _read_steps(self) -> Steps | None:
        return None

    def _read_seconds(self, column: str) -> npt.NDArray[np.float64] | None:  # noqa: ARG002  others have some
        return None

    def question(self, row: int) -> str:
        """What messages call a question."""
        return f"the question in row {row}"

    @property
    def has_steps(self) -> bool:
        """Whether the pool consists of steps of trees, and not of whole CoTs."""
        return self.derived("steps", self._read_steps) is not None

    @property
    def has_turns(self) -> bool:
        """Whether some of the steps reply to whole CoTs."""
        return self.has_steps and self.steps().turns is not None

    def require_turns(self) -> None:
        """Raise a `NotRecordedError` if no step replies to a whole CoT."""
        if not self.has_turns:
            raise NotRecordedError(
                f"A method replies to a CoT of {self.owner}, and no turns were recorded. Record"
                " some (`feval record --protocol`), or import them (`feval import jsonl`,"
                " `turns`)."
            )

    def require_trees(self) -> None:
        """Raise a `NotRecordedError` if steps reply to whole CoTs, and so go on from none."""
        if self.has_turns:
            raise NotRecordedError(
                f"{self.owner} was recorded as conversations of several turns, which cannot be"
                " expanded step by step. Reply to them (`llm.reply`, sequential-revision), or"
                " record trees of steps (`feval record --tree`)."
            )

    def steps(self) -> Steps:
        """Return the steps that the pool consists of.

        Raises:
            NotRecordedError: it consists of whole CoTs.
        """
        steps = self.derived("steps", self._read_steps)
        if steps is None:
            raise NotRecordedError(
                f"{self.owner} was recorded as whole CoTs, which cannot be expanded step by step or"
                " replied to. Record steps (`feval record --tree`) or turns (`--protocol`), or"
                " import them (`feval import jsonl`, `steps` or `turns`)."
            )
        return steps

    def scores(self, scorer: str | None) -> Scores:
        """Return the scores of one scorer, of the only one for `None`.

        Raises:
            NotRecordedError: the pool has no such scores; the message says how to get them.
        """
        name = self._named(scorer)
        return self.derived(("scores", name), lambda: self._read_scores(name))

    def _named(self, scorer: str | None) -> str:
        """Return the recorded name of a scorer, of the only one for `None`; see `scores`."""
        names = list(self.scorers())
        if scorer is None and len(names) > 1:
            raise NotRecordedError(
                f"{self.owner} has scores by several scorers: {', '.join(names)}. Name one of them:"
                f" --set scorer={names[0]}, or scorer={names[0]!r} in Python."
            )
        if scorer is not None and scorer not in names:
            scorer = stated_direction(scorer)[0]
        if not names or (scorer is not None and scorer not in names):
            by = "" if scorer is None else f" by {scorer!r}"
            raise NotRecordedError(
                f"{self.owner} has no"
                f" scores{by}{'; it has scores by ' * bool(names)}{', '.join(names)}. Add some with"
                " `feval score RECORDING --scorer SCORER --out DIR`."
            )
        return names[0] if scorer is None else scorer

    def aggregated(self, scorer: str | None, aggregate: str) -> npt.NDArray[np.float64]:
        """Return [Q, S] one number per CoT, by one of `AGGREGATES`, the higher the better; NaN
        where it has none.

        Scores of a scorer that is named, here or in the recording, with ":lower" behind its name
        are negated.

        Raises:
            UsageError: the scorer is named as if lower were better, and nothing says which is; or a
                product of negated scores.
            UnknownNameError: no such aggregate.
            NotRecordedError: no such scores, or the scorer only gave the other kind.
        """
        if aggregate not in AGGREGATES:
            raise UnknownNameError.of("aggregate", aggregate, AGGREGATES)
        scores, name = self.scores(scorer), self._named(scorer)
        direction = stated_direction(scorer or name)[1] or stated_direction(name)[1]
        if not direction and (question := direction_question(name)) is not None:
            raise UsageError(question)
        if direction == "lower":
            if aggregate in ("prod", "product"):
                raise UsageError(
                    f"Step scores by {name!r} are negated, and a product of them has no order; take"
                    " 'min' or 'mean'."
                )
            scores = replace(scores, values=-scores.values, step_values=-scores.step_values)
        return self.derived(
            ("aggregated", name, aggregate, direction), lambda: self._aggregate(scores, aggregate)
        )

    def _aggregate(self, scores: Scores, aggregate: str) -> npt.NDArray[np.float64]:
        if aggregate == "last" and not scores.step_values.size:
            return scores.values  # of a whole CoT, which is its last step
        if aggregate != "score":
            if not scores.step_values.size:
                raise NotRecordedError(
                    f"The scorer {scores.scorer.name!r} gave {self.owner} no step scores to take"
                    f" {aggregate!r} of; take aggregate='score', or score again with a scorer of"
                    " steps."
                )
            return scores.aggregated({"prod": "product"}.get(aggregate, aggregate))
        if scores.step_values.size and np.isnan(scores.values).all():
            raise NotRecordedError(
                f"The scorer {scores.scorer.name!r} gave {self.owner} step scores and no score of"
                f" whole CoTs; take an aggregate of them: {', '.join(AGGREGATES[1:])}."
            )
        return scores.values

    def logprobs(self) -> TokenLogprobs:
        """Return the log-probabilities of the tokens.

        Raises:
            NotRecordedError: none were recorded; the message says how to record them.
        """
        return self.derived("logprobs", self._read_logprobs)

    def durations(self) -> npt.NDArray[np.float64] | None:
        """Return [Q, S] the seconds that each reply took, NaN where not known; `None` where none is
        known.
        """
        return self.derived("durations", lambda: self._read_seconds("duration_s"))

    def first_tokens(self) -> npt.NDArray[np.float64] | None:
        """Return [Q, S] the seconds to the first token of each reply, as `durations` does."""
        return self.derived("first tokens", lambda: self._read_seconds("first_token_s"))

    @property
    def has_probes(self) -> bool:
        """Whether CoTs were probed."""
        return self.derived("probes", self._read_probes) is not None

    def probes(self) -> Probes:
        """Return the probes of the CoTs, whose codes are those of the pool.

        Raises:
            NotRecordedError: none were recorded; the message says where they come from.
        """
        probes = self.derived("probes", self._read_probes)
        if probes is None:
            raise NotRecordedError(
                f"{self.owner} has no probes: its CoTs can be drawn whole, but not followed token"
                " by token. Import traces that were probed (`feval import probed-traces`), or add"
                " probes with `RecordingWriter.add_probes`."
            )
        return probes

    def rows(self, rows: Rows, tables: Sequence[npt.NDArray[np.int32]] | None = None) -> Channels:
        """Return the channels of some questions, in the order given, with other answer codes if
        `tables` has some.
        """
        return _ChannelRows(self, rows, tables)

    def derived(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return a value computed from the channels and cached with them; it depends on nothing but
        the channels and its key.
        """
        if key not in self._cache:
            self._cache[key] = make()
        return cast("_T", self._cache[key])


class ArrayChannels(Channels):
    """Channels held in memory, for pools that come from no recording; `llm` is named in
    messages.
    """

    def __init__(
        self,
        scores: Mapping[str, Scores] | None = None,
        logprobs: TokenLogprobs | None = None,
        *,
        probes: Probes | None = None,
        steps: Steps | None = None,
        durations: npt.NDArray[np.float64] | None = None,
        llm: str = "The pool",
    ) -> None:
        super().__init__(llm)
        self._scores, self._logprobs, self._probes, self._steps = (
            dict(scores or {}),
            logprobs,
            probes,
            steps,
        )
        self._durations = durations

    def scorers(self) -> Sequence[str]:
        """See `Channels.scorers`."""
        return list(self._scores)

    def _read_scores(self, scorer: str) -> Scores:
        return self._scores[scorer]

    def _read_logprobs(self) -> TokenLogprobs:
        if self._logprobs is None:
            raise NotRecordedError(
                f"{self.owner} has no log-probabilities of tokens. Only `feval record --logprobs K`"
                " keeps them; record the LLM again with it."
            )
        return self._logprobs

    def _read_probes(self) -> Probes | None:
        return self._probes

    def _read_steps(self) -> Steps | None:
        return self._steps

    def _read_seconds(self, column: str) -> npt.NDArray[np.float64] | None:
        return self._durations if column == "duration_s" else None


class RecordedChannels(Channels):
    """Channels of one LLM of a recording, in recorded order."""

    def __init__(self, recording: Recording, dataset: str, llm: str) -> None:
        super().__init__(f"{llm} on {dataset}")
        self._recording: Recording = recording
        self._dataset, self._llm = dataset, llm

    def __getstate__(self) -> dict[str, Any]:
        """Send the recording's path and hash; the other process opens it anew."""
        state = super().__getstate__()
        return state | {"_recording": (str(self._recording.path), self._recording.hash)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        from feval.hub import open_place  # the process of a user's method opens nothing
        from feval.recording.layout.origin import cached_from

        path, expected = state["_recording"]
        recording = open_place(cached_from(Path(path)) or path)
        if recording.hash != expected:
            raise ConflictError(
                f"{path} has changed: its hash was {expected[:12]} and is now"
                f" {recording.hash[:12]}."
            )
        self.__dict__.update(state | {"_recording": recording})

    def question(self, row: int) -> str:
        """See `Channels.question`."""
        return f"question {self._recording.votes(self._dataset).question_ids[row]!r}"

    def scorers(self) -> Sequence[str]:
        """See `Channels.scorers`."""
        return self._recording.scorers(self._dataset, self._llm)

    def _read_scores(self, scorer: str) -> Scores:
        return self._recording.scores(self._dataset, self._llm, scorer)

    def _read_logprobs(self) -> TokenLogprobs:
        return self._recording.logprobs(self._dataset, self._llm)

    def _read_probes(self) -> Probes | None:
        if not self._recording.has_probes(self._dataset, self._llm):
            return None
        return self._recording.probes(self._dataset, self._llm)

    def _read_steps(self) -> Steps | None:
        return self._recording.steps(self._dataset, self._llm)

    def _read_seconds(self, column: str) -> npt.NDArray[np.float64] | None:
        pair, part = (self._dataset, self._llm), "samples" if column == "duration_s" else "timings"
        if part == "timings" and part not in self._recording.channels(*pair):
            return None
        votes, of_question = self._recording.votes(self._dataset), dict[str, list[float | None]]()
        for question, values in self._recording.scan(part, *pair, ["question_id", column]):
            of_question[question] = values.get(column, [])
        seconds = np.full(votes.llms[self._llm].codes.shape, np.nan)
        for row, question in enumerate(votes.question_ids):
            own = of_question.get(question, [])
            seconds[row, : len(own)] = np.array(own, np.float64)  # NaN for a null
        return None if np.isnan(seconds).all() else seconds


class _ChannelRows(Channels):
    """Channels of some questions of other channels."""

    def __init__(
        self, whole: Channels, rows: Rows, tables: Sequence[npt.NDArray[np.int32]] | None
    ) -> None:
        super().__init__(whole.owner)
        self._whole, self._rows, self._tables = whole, rows, tables

    def question(self, row: int) -> str:
        return self._whole.question(int(self._rows[row]))

    def scorers(self) -> Sequence[str]:
        return self._whole.scorers()

    def _read_scores(self, scorer: str) -> Scores:
        return _rows_of_scores(self._whole.scores(scorer), self._rows)

    def _read_logprobs(self) -> TokenLogprobs:
        whole = self._whole.logprobs()
        return TokenLogprobs(
            whole.sequence[self._rows],
            _rows_of_ragged(whole.confidences, self._rows),
            _rows_of_ragged(whole.logprobs, self._rows),
        )

    def _read_probes(self) -> Probes | None:
        if not self._whole.has_probes:
            return None
        probes = self._whole.probes().rows(self._rows)
        return probes if self._tables is None else probes.recoded(self._tables)

    def _read_steps(self) -> Steps | None:
        return self._whole.steps().rows(self._rows) if self._whole.has_steps else None

    def _read_seconds(self, column: str) -> npt.NDArray[np.float64] | None:
        whole = self._whole.durations() if column == "duration_s" else self._whole.first_tokens()
        return None if whole is None else whole[self._rows]


def _rows_of_scores(scores: Scores, rows: Rows) -> Scores:
    questions, width = scores.values.shape
    steps = _rows_of_ragged(
        Ragged(scores.step_values, scores.step_offsets, (questions, width)), rows
    )
    return replace(
        scores,
        values=scores.values[rows],
        scored=scores.scored[rows],
        step_values=steps.values,
        step_offsets=steps.offsets,
        prompt_tokens=scores.prompt_tokens[rows],
        output_tokens=scores.output_tokens[rows],
    )


def _rows_of_ragged(ragged: Ragged, rows: Rows) -> Ragged:
    pieces = [ragged.of_question(row) for row in rows.tolist()]
    values = np.concatenate(pieces) if pieces else ragged.values[:0]
    lengths = ragged.lengths()[rows].ravel()
    return Ragged(
        values,
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        (len(rows), ragged.shape[1]),
    )
