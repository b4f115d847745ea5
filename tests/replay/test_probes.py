"""Probes as arrays, and as a channel of pools."""

from dataclasses import replace

import numpy as np
import pytest
from recorded_pools import pool_of

from feval.errors import NotRecordedError
from feval.recording.arrays import Probes
from feval.replay.pools import ArrayChannels

# Two questions of two CoTs: three, none, one and two probes.
PROBES = Probes(
    None,
    np.array([0, 3, 3, 4, 6]),
    np.array([10, 20, 35, 5, 7, 8], np.uint32),
    np.array([0, 0, 1, 2, -1, 2], np.int8),
    np.array([3, 3, 4, 1, 1, 2], np.int16),
    None,
    (2, 2),
)


def test_each_cot_has_its_own_probes():
    assert PROBES.counts().tolist() == [[3, 0], [1, 2]]
    assert PROBES.codes[PROBES.of(1, 1)].tolist() == [-1, 2]
    assert PROBES.before(8).tolist() == [[0, 0], [1, 2]]
    assert PROBES.before(20).tolist() == [[2, 0], [1, 2]]


def test_the_probes_of_some_questions_in_another_order():
    turned = PROBES.rows(np.array([1, 0, 1]))
    assert turned.shape == (3, 2)
    assert turned.counts().tolist() == [[1, 2], [3, 0], [1, 2]]
    assert turned.offsets.tolist() == [5, 7, 8, 10, 20, 35, 5, 7, 8]
    assert turned.output_tokens is not None
    assert turned.output_tokens[turned.of(1, 0)].tolist() == [3, 3, 4]
    assert PROBES.rows(np.zeros(0, np.intp)).starts.tolist() == [0]


def test_a_pool_has_the_probes_of_its_questions_or_says_that_there_are_none():
    pool = pool_of([[0, 1], [2, 2]])
    with pytest.raises(
        NotRecordedError, match=r"The pool has no probes.*feval import probed-traces"
    ):
        pool.probes()
    probed = replace(pool, channels=ArrayChannels(probes=PROBES))
    assert probed.rows(np.array([1])).probes().offsets.tolist() == [5, 7, 8]
