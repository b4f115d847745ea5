"""A router that learns from texts, with its whole line and the intervals of all its measures."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.measure import Goal, Workspace

QUESTIONS = 7021  # in each half of MMLU
_WORDS, _VOCABULARY = 75.0, 30_000  # of a question of MMLU with its choices, and of them all


def goals(workspace: Workspace) -> list[Goal]:  # noqa: ARG001  it makes its own questions
    """CPU seconds of fitting logistic regressions, predicting, and measuring the line."""
    import sklearn.linear_model  # noqa: F401  what its import takes is the machine's

    from feval.cards.billing import Price
    from feval.estimators.routing import line_measures
    from feval.methods import Router
    from feval.methods.protocol import Pool, Training

    rng = np.random.default_rng(0)
    words = np.array([f"w{number:x}" for number in range(_VOCABULARY)])
    frequent = 1 / np.arange(1, _VOCABULARY + 1)

    def half(start: int) -> tuple[Training, np.ndarray]:
        lengths = np.maximum(rng.lognormal(np.log(_WORDS) - 0.3, 0.78, QUESTIONS).astype(int), 5)
        drawn = rng.choice(words, lengths.sum(), p=frequent / frequent.sum())
        texts = [" ".join(own) for own in np.split(drawn, lengths.cumsum()[:-1])]
        right = rng.random((2, QUESTIONS)) < np.array([[0.6], [0.8]])
        keys = np.arange(start, start + QUESTIONS, dtype=np.uint64)
        one, nothing = np.ones(QUESTIONS, np.int64), np.zeros((QUESTIONS, 1), np.uint8)
        pools = [
            Pool(name, own[:, None].astype(np.int16), 200 * one[:, None], lengths, one, nothing,
                 2 * one, keys)
            for name, own in zip(("small", "large"), right, strict=True)
        ]  # fmt: skip
        prices, features = (Price(0.5, 1.5), Price(10, 30)), [{}] * QUESTIONS
        return Training(pools, gold=one, texts=texts, features=features, prices=prices), right

    (train, _), (test, right) = half(0), half(QUESTIONS)
    began = time.process_time()
    fitted = Router().fit(train)
    learnt = time.process_time()
    routes = fitted.predicted(test).routes(test.keys)
    measures = line_measures(routes, right / 1.0, np.stack(test.costs)[:, :, 0])
    ended = time.process_time()
    assert 0.45 < measures["apgr"][0] < 0.55  # nothing can be learnt from words at random
    note = f"{learnt - began:.2f} s of it are fitting"
    return [Goal("logistic router, line and measures", ended - began, 10, "s", note=note)]
