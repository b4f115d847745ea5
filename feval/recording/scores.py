"""The scores of CoTs as arrays.

A CoT that the scorer never got and one that it could not score both have no score; `Scores.scored`
tells them apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from feval.errors import NotRecordedError, UnknownNameError
from feval.recording.content import ScorerInfo

AGGREGATES = ("score", "min", "product", "last", "mean", "sum")
"""The number that a CoT is ranked by: its one score, or a summary of its step scores;
process-reward papers use each of these.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """One scorer's scores of one LLM on all questions of a dataset (Q questions, S the largest
    pool).

    Attributes:
        scorer: who gave them.
        values: [Q, S] float64; NaN where there is no score.
        scored: [Q, S] whether the CoT was given to the scorer.
        step_values: [N] float64, the step scores of all CoTs end to end, question by question.
        step_offsets: [Q * S + 1] int64; those of CoT s of question q begin at `step_offsets[q * S +
            s]`.
        prompt_tokens: [Q, S] int32, of the scorer's request; -1 where not known.
        output_tokens: [Q, S] int32, of the scorer's reply; -1 where not known.
    """

    scorer: ScorerInfo
    values: npt.NDArray[np.float64]
    scored: npt.NDArray[np.bool_]
    step_values: npt.NDArray[np.float64]
    step_offsets: npt.NDArray[np.int64]
    prompt_tokens: npt.NDArray[np.int32]
    output_tokens: npt.NDArray[np.int32]

    def steps(self, question: int, sample: int) -> npt.NDArray[np.float64]:
        """The step scores of one CoT (by the question's row and the sample index), in order; empty
        where there are none.
        """
        place = question * self.values.shape[1] + sample
        return self.step_values[self.step_offsets[place] : self.step_offsets[place + 1]]

    def aggregated(self, how: str) -> npt.NDArray[np.float64]:
        """Return one number per CoT, [Q, S], NaN where it has none: its score ("score"), or a
        summary of its step scores.

        Raises:
            UnknownNameError: `how` is not one of `AGGREGATES`.
        """
        if how not in AGGREGATES:
            raise UnknownNameError.of("way of aggregating step scores", how, AGGREGATES)
        if how == "score":
            return self.values.copy()
        starts, counts = self.step_offsets[:-1], np.diff(self.step_offsets)
        with_steps = counts > 0
        values = np.full(self.values.size, np.nan)
        # empty ones between them take no room, so each runs to the next
        starts = starts[with_steps]
        if how == "last":
            values[with_steps] = self.step_values[self.step_offsets[1:][with_steps] - 1]
        elif starts.size:
            reduce = {"min": np.minimum, "product": np.multiply}.get(how, np.add)
            values[with_steps] = reduce.reduceat(self.step_values, starts)
            if how == "mean":
                values[with_steps] /= counts[with_steps]
        return values.reshape(self.values.shape)

    def of_cots(self, aggregate: str, whose: str) -> npt.NDArray[np.float64]:
        """Return what `aggregated` does; where the scorer gave only the other kind of scores, a
        `NotRecordedError`.
        """
        values = self.aggregated(aggregate)
        other = self.step_values.size if aggregate == "score" else np.isfinite(self.values).any()
        if other and np.isnan(values).all():
            available, advice = (
                ("step scores only", "min")
                if aggregate == "score"
                else ("one score per CoT and no step scores", "score")
            )
            raise NotRecordedError(
                f"{self.scorer.name!r} gave {available} for {whose}, so there is no aggregate"
                f" {aggregate!r}. Use another one, such as {advice!r}."
            )
        return values


_STATED = re.compile(r"(.+):(lower|higher)", re.DOTALL)
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_LOWER_IS_BETTER = frozenset((
    "bpb", "cer", "crossentropy", "distance", "divergence", "energy", "entropy", "err", "error",
    "errors", "logloss", "loss",
    "losses", "mae", "mse", "nll", "penalty", "perplexities", "perplexity", "ppl", "rmse",
    "surprisal", "wer",
))  # fmt: skip
_MINUS = frozenset(("inv", "inverse", "minus", "neg", "negative"))


def stated_direction(scorer: str) -> tuple[str, str]:
    """Return the name of a scorer without ":lower" or ":higher" behind it, and which of the two is
    better; "" if unsaid.
    """
    found = _STATED.fullmatch(scorer)
    return (found[1], found[2]) if found else (scorer, "")


def direction_question(scorer: str) -> str | None:
    """Return what to ask about scores that are named as if lower were better, such as a loss;
    `None` where nothing is unclear.
    """
    words = {word.lower() for word in _WORDS.findall(scorer)}
    negated = not words.isdisjoint(_MINUS)
    minus_log = negated and any(word.startswith("log") for word in words)
    if stated_direction(scorer)[1] or not (
        minus_log or (not negated and not words.isdisjoint(_LOWER_IS_BETTER))
    ):
        return None
    return (
        f"The scores by {scorer!r} are named as if lower were better, and methods take the highest."
        f" Say which is better: scorer={f'{scorer}:lower'!r}, which takes them negated, or"
        f" scorer={f'{scorer}:higher'!r}."
    )


_AGAINST = ":vs="


def verdicts_name(judge: str, against: str, shift: int = 0) -> str:
    """Return the name of the scorer under which a judge's verdicts on the CoTs of two LLMs are
    stored with the first LLM.

    A verdict is a score: 1 where the CoT was preferred, 0 where that of `against` was, 0.5 for a
    tie, missing where there is none. CoT s was compared with CoT s + `shift` of the other LLM (the
    first ones follow on the last).
    """
    return f"{judge}{_AGAINST}{against}" + (f":shift={shift}" if shift else "")


def are_verdicts(scorer: str) -> bool:
    """Return whether scores are a judge's verdicts on the CoTs of two LLMs, by the name of the
    scorer.
    """
    return _AGAINST in scorer
