"""Draws that are kept in a file are those that are made."""

from pathlib import Path

import numpy as np
import pytest

from feval.replay import draws as drawing
from feval.replay.draws import SharedDraws, orders

KEYS = np.arange(9, dtype=np.uint64) * np.uint64(1_000_003)


@pytest.fixture
def made(monkeypatch):
    """The replicates of all orders that were made."""
    replicates = []

    def noted(*given):
        replicates.append(given[3])
        return orders(*given)

    monkeypatch.setattr(drawing, "orders", noted)
    return replicates


@pytest.mark.parametrize(
    "sizes", [np.full(9, 5), np.array([5, 3, 5, 0, 5, 1, 5, 5, 5]), np.full(9, 300)]
)
def test_kept_draws_are_those_that_are_made(sizes, made):
    shared = SharedDraws()

    def same(rows, replicates, draws):
        given = 7, KEYS[rows], sizes[rows], replicates, draws
        return bool((shared.orders(*given) == orders(*given)).all())

    first, second = slice(0, 4), slice(4, 9)
    for block in (first, second):  # the first method, in two turns
        assert same(block, range(4), 5)
        assert same(block, range(4, 6), 5)
    assert len(made) == 4
    for block in (first, second):  # others, of fewer draws and in other turns
        assert same(block, range(6), 2)
        assert same(block, range(3, 5), 1)
    assert len(made) == 4
    assert same(first, range(6, 8), 5)  # more replicates than were kept
    assert same(first, [1, 0], 5)
    assert same(slice(2, 6), range(2), 5)  # other questions
    assert len(made) == 7


def test_a_short_draw_of_large_pools_makes_few_whole_orders_at_once(made, monkeypatch):
    monkeypatch.setattr(drawing, "_CODES_AT_ONCE", 2 * 9 * 100, raising=False)
    sizes, shared = np.full(9, 100), SharedDraws()
    for draws in (1, 100, 7):
        given = 7, KEYS, sizes, range(5), draws
        assert (shared.orders(*given) == orders(*given)).all()
    assert made == [range(2), range(2, 4), range(4, 5)]


def _full(**_):
    return Path("/dev/full").open("r+b", buffering=0)


def test_without_room_draws_are_made_anew(monkeypatch):
    sizes = np.full(9, 5)
    shared = SharedDraws()
    monkeypatch.setattr("tempfile.TemporaryFile", _full)
    for _ in range(2):
        assert (
            shared.orders(7, KEYS, sizes, range(3), 4) == orders(7, KEYS, sizes, range(3), 4)
        ).all()
    assert not shared._blocks


@pytest.mark.parametrize(
    ("sizes", "replicates"), [(np.zeros(9, int), range(2)), (np.full(9, 5), range(0))]
)
def test_draws_of_nothing_are_not_kept(sizes, replicates):
    assert SharedDraws().orders(7, KEYS, sizes, replicates, 0).shape == (len(replicates), 9, 0)
