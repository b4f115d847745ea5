"""Expected tokens of a draw."""

from __future__ import annotations

import numpy as np

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Floats, Integers


def mean_output_tokens(output_tokens: Integers, size: Integers) -> Floats:
    """Mean output tokens of a question's recorded samples.

    Every sample is equally likely to stand at every place of a random draw without replacement, so
    n draws cost n times this in expectation, exactly (eq. (1) of FEval-TTC, arXiv 2511.01203, is
    linear in the tokens). Assumes only that every order of a question's samples is equally likely.

    Args:
        output_tokens: [Q, S] tokens of each sample, 0 where no sample was recorded.
        size: [Q] recorded samples, 1 or more.

    Returns:
        [Q] tokens per sample.

    Raises:
        OutOfRangeError: shapes that do not match, or a question without samples.
    """
    if output_tokens.ndim != 2 or size.shape != output_tokens.shape[:1]:
        raise OutOfRangeError(
            "Tokens are averaged from output_tokens [questions, samples] and size [questions]; the"
            f" shapes are {output_tokens.shape} and {size.shape}."
        )
    if size.size and int(size.min()) < 1:
        raise OutOfRangeError(
            f"Question {int(size.argmin())} has no samples, so no mean tokens; leave it out."
        )
    mean: Floats = output_tokens.sum(axis=1, dtype=np.int64) / size
    return mean
