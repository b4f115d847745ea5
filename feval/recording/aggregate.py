"""One number per CoT from the scores in a recording."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from feval.errors import NotRecordedError
from feval.recording.reader import Recording


def aggregate_scores(
    recording: Recording, dataset: str, llm: str, scorer: str, aggregate: str = "score"
) -> npt.NDArray[np.float64]:
    """Return one number per CoT of an LLM on a dataset, such as best-of-N ranks by.

    Returns:
        [Q, S] float64, questions and samples in recorded order, S the largest pool; NaN where a CoT has no such score.

    Raises:
        UnknownNameError: `aggregate` is not one of `AGGREGATES`.
        NotRecordedError: no such dataset, LLM or scorer; or the scorer gave only scores where step scores are asked for, or the
            other way round.
        DamagedRecordingError: as for `Recording.scores`.
    """
    scores = recording.scores(dataset, llm, scorer)
    values = scores.aggregated(aggregate)
    other = scores.step_values.size if aggregate == "score" else np.isfinite(scores.values).any()
    if other and np.isnan(values).all():
        given, advice = (
            ("step scores only", "min") if aggregate == "score" else ("one score per CoT and no step scores", "score")
        )
        raise NotRecordedError(
            f"{scorer!r} gave {given} for {llm} on {dataset}, so there is no aggregate {aggregate!r}. Use another one, such as "
            f"{advice!r}."
        )
    return values
