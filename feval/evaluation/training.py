"""Training questions: which they are, and fitting a method on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from feval.arguments import checked
from feval.errors import OutOfRangeError
from feval.evaluation.user_methods import TIME_LIMIT, MethodFile
from feval.methods.protocol import Rows
from feval.replay.draws import ABSENT_SAMPLE, uniforms

if TYPE_CHECKING:
    from feval.replay import LLM, Dataset


@checked
def train_test_rows(
    dataset: Dataset, train_fraction: float, split_seed: int = 0, rows: Rows | None = None
) -> tuple[Rows, Rows]:
    """Split questions at random into training and test questions, each in recorded order.

    Questions are sorted by a hash of their key and the seed, and the first are for training, so
    that the order in which they were recorded makes no difference.

    Args:
        dataset: whose questions.
        train_fraction: between 0 and 1; at least one question is on each side.
        split_seed: other seeds give other splits.
        rows: which questions are split; `None` for all.

    Returns:
        Rows of training and of test questions.

    Raises:
        OutOfRangeError: a fraction that is not between 0 and 1, or fewer than two questions.
    """
    rows = np.arange(len(dataset)) if rows is None else rows
    if not 0 < train_fraction < 1 or len(rows) < 2:
        raise OutOfRangeError(
            f"A split takes a share between 0 and 1 of two questions or more; {train_fraction} of"
            f" {len(rows)} was asked for."
        )
    # A sample that no draw has, so that the coins of methods are not those that chose the test
    # questions.
    absent = np.full((1, len(rows), 1), ABSENT_SAMPLE, np.uint16)
    coins = uniforms(dataset.question_keys[rows], absent, split_seed)[0, :, 0]
    order = np.argsort(coins, kind="stable")
    count = min(max(round(train_fraction * len(rows)), 1), len(rows) - 1)
    return np.sort(rows[order[:count]]), np.sort(rows[order[count:]])


def fit(
    method: Any,
    dataset: Dataset,
    llms: Sequence[LLM],
    rows: Rows,
    time_limit: float | None = TIME_LIMIT,
) -> Any:
    """The method fitted on some questions, on which it must not be evaluated; see
    `feval.methods.protocol.Learner`.
    """
    dataset.require(llms)
    if isinstance(method, MethodFile):
        return method.fitted(dataset, llms, rows, time_limit)
    return method.fit([llm.pool.rows(rows) for llm in llms], dataset.gold[rows])
