"""Pools and LLMs made from answer codes written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from feval.replay.pools import Pool


def pool_of(rows: Any) -> Pool:
    codes = np.array(rows, np.int16)
    sizes, nothing = (codes != -2).sum(axis=1), np.zeros(len(codes), np.int64)
    tokens = np.where(codes == -2, 0, np.arange(codes.size).reshape(codes.shape) * 7 % 11 + 3)
    keys = np.arange(len(codes), dtype=np.uint64) + np.uint64(99)
    return Pool("gpt", codes, tokens, nothing, sizes, np.zeros(codes.shape, np.uint8), nothing + 10, keys)


class Recorded:
    """An LLM in front of one question, in recorded order."""

    def __init__(self, answers: list[str | None], coins: npt.NDArray[np.float64] | None = None) -> None:
        self.left, self.coins, self.rounds, self.cots = list(answers), coins, 0, 0
        self.answers: list[str | None] = []

    def sample(self, k: int = 1) -> Recorded:
        self.rounds, self.cots = self.rounds + 1, self.cots + k
        self.answers, self.left = self.left[:k], self.left[k:]
        return self

    def uniform(self, seed: int = 0) -> float:
        assert self.coins is not None, seed
        return float(self.coins[self.cots - 1])
