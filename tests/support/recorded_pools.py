"""Pools and LLMs made from answer codes written out."""

from itertools import permutations

import numpy as np

from feval.methods.vote import split_errors
from feval.replay.pools import Pool

ORDERS = np.array(list(permutations(range(6))), np.uint16)


def pool_of(rows):
    codes = np.array(rows, np.int16)
    sizes, nothing = (codes != -2).sum(axis=1), np.zeros(len(codes), np.int64)
    tokens = np.where(codes == -2, 0, np.arange(codes.size).reshape(codes.shape) * 7 % 11 + 3)
    keys = np.arange(len(codes), dtype=np.uint64) + np.uint64(99)
    candidates = codes.max(axis=1, initial=-1) + 1
    return Pool("gpt", codes, tokens, nothing, sizes, codes.astype(np.uint8) * 0, candidates, keys)


class Recorded:
    """An LLM in front of one question, in recorded order."""

    def __init__(self, answers, coins=None):
        self.left, self.coins, self.rounds, self.cots = list(answers), coins, 0, 0
        self.answers = []

    def sample(self, k=1):
        self.rounds, self.cots = self.rounds + 1, self.cots + k
        self.answers, self.left = self.left[:k], self.left[k:]
        return self

    def uniform(self, seed=0):
        assert self.coins is not None, seed
        return float(self.coins[self.cots - 1])


def over_all_orders(method, pool, gold):
    """[6, Q] right, requests, CoTs, tokens, no answer and stopped early: means over all orders of
    the six CoTs.
    """
    [draws] = method.draws(1)
    orders = np.broadcast_to(ORDERS[:, None, :draws], (len(ORDERS), len(gold), draws))
    decisions = method.decide([pool], [orders])
    right = (decisions.answer == gold) & (gold >= 0)
    early, routed = split_errors(decisions, right, gold, [pool], [orders])
    assert not routed.any()
    [ledger] = decisions.ledgers
    parts = (right, ledger.rounds, ledger.cots, ledger.output_tokens, decisions.answer < 0, early)
    return np.array([part.mean(axis=0) for part in parts])


def not_asked(rows, replicates):
    raise AssertionError("replicates were asked for")
