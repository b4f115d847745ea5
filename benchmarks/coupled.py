"""Coupled generation: the noise of a step over a large vocabulary, and the analysis of 842,520
answers.

Baselines: NumPy's own exponential random numbers for as many tokens, which no other LLM could
share; and drawing the estimation error as the paper's authors do, 1,000 times for each of 20 sizes,
over the exact errors of the same sizes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.measure import Goal, Workspace, cpu_ms
from feval.estimators.coupling import estimation_error
from feval.forecast.coupled import couple
from feval.recording import DatasetInfo, LLMInfo, PoolRows, Question, RecordingWriter
from feval.replay import load
from recorders.shared_noise import TokenNoise, question_noise

VOCABULARY = 128_000
QUESTIONS, CALLS = 14_042, 10
LLMS = {"bench/large": 0.65, "bench/middle": 0.55, "bench/small": 0.35}
DRAWS, SIZES = 1_000, range(20, 420, 20)


def goals(_: Workspace) -> list[Goal]:
    """Measure noise and analysis."""
    return [*_noise(), *_analysis()]


def _noise() -> list[Goal]:
    noise = TokenNoise([f"token {number}" for number in range(VOCABULARY)])
    start = question_noise(0, "bench", "bench/0")
    generator = np.random.default_rng(0)
    law = generator.dirichlet(np.ones(VOCABULARY))
    spent = cpu_ms(
        {
            "shared": lambda: (law / noise.exponentials(start, [0], 7)[0]).argmax(),
            "unshared": lambda: (law / generator.exponential(size=VOCABULARY)).argmax(),
        }
    )
    return [
        Goal(
            f"coupled: a step over {VOCABULARY:,} tokens",
            spent["shared"],
            5,
            "ms",
            note=f"unshared {spent['unshared']:.2f} ms",
        )
    ]


def _analysis() -> list[Goal]:
    with tempfile.TemporaryDirectory() as folder:
        recording = _recorded(Path(folder) / "coupled", shared=True)
        apart = _recorded(Path(folder) / "apart", shared=False)
        names = [*LLMS, *(f"{name}@apart" for name in LLMS)]
        dataset, llms = load("bench", names, [recording, apart], prices="none")
        differences = (llms[0].pool.codes == 0).astype(int) - (llms[1].pool.codes == 0).astype(int)
        spent = cpu_ms(
            {
                "whole": lambda: couple(dataset, llms[:3], llms[3:]),
                "exact": lambda: estimation_error(differences, SIZES),
                "drawn": lambda: _drawn(differences.ravel()),
            }
        )
    return [
        Goal("coupled: 842,520 answers of 3 LLMs, all figures", spent["whole"] / 1000, 10, "s"),
        Goal(
            "coupled: errors, drawn over exact",
            spent["drawn"] / spent["exact"],
            None,
            "x",
            at_least=True,
        ),
    ]


def _drawn(differences: np.ndarray) -> list[float]:
    generator, truth = np.random.default_rng(0), differences.mean()
    return [
        float(
            np.mean(
                [
                    abs(
                        generator.choice(differences, size, replace=False, shuffle=False).mean()
                        - truth
                    )
                    for _ in range(DRAWS)
                ]
            )
        )
        for size in SIZES
    ]


def _recorded(path: Path, *, shared: bool) -> Path:
    decoding = {"noise": {"scheme": "gumbel-v1", "seed": 0}} if shared else {}
    hard = np.random.default_rng(0).random((QUESTIONS, 1)) - 0.5
    with RecordingWriter(path, operation={"name": "benchmark"}, prices="none") as writer:
        info = DatasetInfo("bench", "Made up", "verbatim", "none")
        writer.add_dataset(
            info, [Question(f"bench/{q}", f"Question {q}?", "A", "A") for q in range(QUESTIONS)]
        )
        for place, (name, skill) in enumerate(LLMS.items()):
            luck = np.random.default_rng(1 if shared else 2 + place).random((QUESTIONS, CALLS))
            letters = np.where(luck + hard < skill, "A", np.where(luck < 0.5, "B", "C"))
            rows = (
                PoolRows(f"bench/{q}", [None] * CALLS, codes, codes, [1] * CALLS, ["stop"] * CALLS)
                for q, codes in enumerate(letters.tolist())
            )
            llm = LLMInfo(
                name if shared else f"{name}@apart",
                temperature=1.0,
                max_tokens=None,
                decoding=decoding,
            )
            writer.add_pools("bench", llm, "words", rows)
    return path
