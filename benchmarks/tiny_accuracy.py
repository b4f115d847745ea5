"""The table of `docs/tiny-models.md`: how often the tiny models are right, alone and by vote. About
three minutes.

    python -m benchmarks.tiny_accuracy
    python -m benchmarks.tiny_accuracy --temperature 0.6 feval/tiny-42k
    python -m benchmarks.tiny_accuracy --checkpoint checkpoints/tiny-42k/08000.npz feval/tiny-42k

Forty samples (seed 0) of each of the 200 test questions; the accuracy of n votes is the exact
expectation over all subsets of n.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from feval import answers
from feval.estimators.plurality import pass_at_k, subset_plurality_accuracy, vote_counts
from recorders.tiny import (
    FAMILY,
    TinyCompletion,
    TinyDecoding,
    TinyModel,
    load_model,
    problems,
    sample,
)
from recorders.tiny.model import read_model

SAMPLES = 40
VOTES = (1, 5, 15, 40)


def main() -> None:
    """Print one row per model."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tiny_accuracy")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"some of {', '.join(FAMILY)}; all if left out"
    )
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument(
        "--questions", type=int, default=problems.TEST_QUESTIONS, help="the first so many"
    )
    parser.add_argument("--checkpoint", type=Path, help="other weights of the one model named")
    chosen = parser.parse_args()
    for name in chosen.names or FAMILY:
        path = chosen.checkpoint
        model = read_model(path, name, FAMILY[name]) if path else load_model(name)
        print(
            row(model, TinyDecoding(temperature=chosen.temperature), chosen.questions), flush=True
        )


def row(model: TinyModel, decoding: TinyDecoding, questions: int) -> str:
    """One model's line."""
    test_problems = problems.test_questions()[:questions]
    samples = [
        sample(model, problem.question, range(SAMPLES), decoding) for problem in test_problems
    ]
    codes, gold = (
        np.empty((len(test_problems), SAMPLES), np.int16),
        np.zeros(len(test_problems), np.int16),
    )
    for place, (problem, completions) in enumerate(zip(test_problems, samples, strict=True)):
        codes[place] = coded(completions, str(problem.answer))
    counts = vote_counts(codes, gold)
    votes = subset_plurality_accuracy(counts.gold, counts.rivals, counts.no_answer, VOTES).mean()
    once = pass_at_k(counts.gold, counts.size, [SAMPLES]).mean()[0]
    wrong = int((counts.rivals.max(axis=1) >= SAMPLES / 2).sum())
    steps = np.array([len(problem.steps) for problem in test_problems])
    by_steps = [(codes[steps == count] == 0).mean() for count in sorted(set(steps.tolist()))]
    tokens = np.mean(
        [completion.output_tokens for completions in samples for completion in completions]
    )
    return (
        f"{model.name:<16} {' / '.join(f'{share:.3f}' for share in votes)}  at least once"
        f" {once:.3f}  majority wrong {wrong}  no answer {(codes < 0).mean():.4f}  tokens"
        f" {tokens:.1f}  by steps {' '.join(f'{share:.2f}' for share in by_steps)}"
    )


def coded(completions: list[TinyCompletion], gold: str) -> list[int]:
    """Codes of the answers: 0 is the gold one, -1 none."""
    keys = answers.keys(
        "number", [answers.extract("number", completion.text) for completion in completions], gold
    )
    codes = {keys.gold: 0}
    return [-1 if key is None else codes.setdefault(key, len(codes)) for key in keys.answers]


if __name__ == "__main__":
    main()
