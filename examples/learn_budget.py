"""A policy that learns by playing: python examples/learn_budget.py RECORDING [DATASET].

Tabular Q-learning on `BudgetEnvironment` as Gymnasium has it (pip install gymnasium), judged on
other questions.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from feval import (
    BudgetEnvironment,
    SingleCall,
    as_method,
    evaluate,
    load,
    open_recording,
    train_test_rows,
)
from feval.errors import FevalError
from feval.evaluation.environment import STOP, Observation

MOST = 4  # CoTs of a question


def state(llm: int, parties: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The LLM that was asked last, how many CoTs there are, and the two largest votes."""
    votes = Counter(party for _, party in parties if party >= 0)
    most = [n for _, n in votes.most_common(2)]
    return int(llm), len(parties), *[*most, 0, 0][:2]


def best(values: Any, here: tuple[int, ...], possible: Any) -> int:
    """The possible action of the highest value; after MOST CoTs, to stop."""
    if here[1] >= MOST:
        return STOP
    return int(np.where(possible, values[here], -np.inf).argmax())


def learn(game: Any, price: float, episodes: int) -> Any:
    """State -> values of the three actions, where USD 1 costs `price` right answers."""
    values, tries = (defaultdict[tuple[int, ...], Any](lambda: np.zeros(3)) for _ in range(2))
    random = np.random.default_rng(0)
    for episode in range(episodes):
        seen, info = game.reset(seed=episode)
        over, spent = False, 0.0
        here, possible = state(seen["llm"], []), info["action_mask"]
        while not over:
            action = best(values, here, possible)
            if here[1] < MOST and random.random() < 0.2:
                action = int(random.choice(np.flatnonzero(possible)))
            seen, worth, over, _, info = game.step(action)
            worth -= price * (info["spent"] - spent)
            there = state(
                seen["llm"], [own for own in seen["parties"][:MOST].tolist() if own[0] >= 0]
            )
            if action != STOP:  # a stop ends the question, and what comes is the next one
                worth += values[there][best(values, there, info["action_mask"])]
            tries[here][action] += 1
            values[here][action] += (worth - values[here][action]) / tries[here][action] ** 0.8
            here, possible, spent = there, info["action_mask"], info["spent"]
    return values


def compare(recording: str, dataset_id: str | None, price: float, episodes: int) -> None:
    """Print what a learnt policy is worth on other questions, beside single calls."""
    opened = open_recording(recording)
    dataset, llms = load(dataset_id or opened.dataset_ids()[0], recording=opened)
    train, test = train_test_rows(dataset, 0.5)
    game = BudgetEnvironment(dataset, llms, rows=train).as_gymnasium()
    values = learn(game, price, episodes)

    def learnt(seen: Observation, possible: Sequence[bool]) -> int:
        return best(values, state(seen.llm, seen.parties), possible)

    methods: list[tuple[str, Any, Any]] = [("learnt", as_method(learnt), llms)]
    methods += [(llm.name, SingleCall(), llm) for llm in llms]
    print(f"{len(values)} states, {len(test)} other questions; USD 1 costs {price:g} right answers")
    for name, method, asked in methods:
        told = evaluate(method, dataset, asked, rows=test, order="seeded", replicates=10)
        usd = told.usd_per_question or 0.0
        print(
            f"{name:24} {told.accuracy:6.1%} right at {1000 * usd:.3g} USD per 1,000 questions:"
            f" worth {told.accuracy - price * usd:.3f}"
        )


def main() -> None:
    """Read the arguments and print."""
    parser = argparse.ArgumentParser(description="Learn by playing when to ask again.")
    parser.add_argument("recording", metavar="RECORDING", help="a folder, or an address on the Hub")
    parser.add_argument(
        "dataset", metavar="DATASET", nargs="?", help="id; the recording's first if left out"
    )
    parser.add_argument("--price", type=float, default=300.0, help="of USD 1, in right answers")
    parser.add_argument("--episodes", type=int, default=100, help="each of all training questions")
    given = parser.parse_args()
    try:
        compare(given.recording, given.dataset, given.price, given.episodes)
    except FevalError as error:
        parser.exit(error.exit_code, f"error: {error}\n")


if __name__ == "__main__":
    main()
