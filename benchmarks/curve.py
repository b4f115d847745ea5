"""The estimators alone: exact curves of weak and strong LLMs, of large pools and of a million questions; intervals; votes.

Codes are synthetic and seeded: 2 to 10 candidates per question, 3 % of the samples without an answer. "Baseline run" is one
run of self-consistency with n = 20 in the reference's manner, on the synthetic recording. BLAS runs on one thread (see
`benchmarks/__main__.py`): on a busy machine its threads cost more CPU time than they save.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks import reference
from benchmarks.measure import Goal, Workspace, cpu_ms, python

Codes = npt.NDArray[np.int8]

SAMPLES = 40
MILLION = 1_000_000
GATHER_RESAMPLES = 500  # of the gather loop; scaled up to 10,000
REPLICATES = 100

# Measured in a fresh process: from mapped codes and tokens to the mean accuracy, pass@k and tokens for n = 1..40.
MILLION_QUESTIONS = """
import json, sys, time
import numpy as np
import feval.estimators.counts, feval.estimators.cost, feval.estimators.votes.plurality
from benchmarks.curve import exact_curve
from benchmarks.open import resident_mb

codes, tokens = (np.load(path, mmap_mode="r") for path in sys.argv[1:3])
exact_curve(codes[:2000], tokens[:2000])
before, started = resident_mb("VmRSS"), time.process_time()
accuracy, ceiling, mean_tokens, distinct = exact_curve(codes, tokens)
print(json.dumps({
    "cpu_s": time.process_time() - started,
    "mb": resident_mb("VmHWM") - before,
    "distinct": distinct,
}))
assert 0.5 < accuracy[0] < accuracy[-1] < ceiling[-1] <= 1 and mean_tokens > 0
"""
INTERVALS = """
import json, sys
import numpy as np
from feval.estimators.inference.bootstrap import bootstrap_interval
from benchmarks.curve import synthetic_values
from benchmarks.open import resident_mb

values = synthetic_values()
bootstrap_interval(values, resamples=10)
before = resident_mb("VmRSS")
bootstrap_interval(values)
print(json.dumps(resident_mb("VmHWM") - before))
"""


def synthetic_codes(questions: int, samples: int = SAMPLES, strength: float = 2.2, seed: int = 0) -> Codes:
    """Answer codes [questions, samples], the gold answer's code 0.

    Args:
        questions: how many.
        samples: per question.
        strength: a question's probability of the gold answer is Beta(strength, 1): 2.2 for a mean of 0.69.
        seed: of everything.
    """
    rng = np.random.default_rng(seed)
    codes = np.empty((questions, samples), np.int8)
    for start in range(0, questions, 1 << 15):
        block = codes[start : start + (1 << 15)]
        right = rng.beta(strength, 1.0, (len(block), 1))
        rivals = rng.integers(1, 10, (len(block), 1))
        block[:] = 1 + (rng.random(block.shape) ** 2 * rivals).astype(np.int8)  # the first rivals are more frequent
        block[rng.random(block.shape) < right] = 0
        block[rng.random(block.shape) < reference.NO_ANSWER_SHARE] = -1
    return codes


def synthetic_values(questions: int = 1319, columns: int = 80) -> npt.NDArray[np.float64]:
    """Values per question as two exact curves have them."""
    return np.random.default_rng(0).random((questions, columns))


def exact_curve(
    codes: Codes, tokens: npt.NDArray[np.uint16]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], float, int]:
    """Codes and tokens to mean accuracy, pass@k and tokens per sample, every n; and the number of distinct questions."""
    from feval.estimators.cost import mean_output_tokens
    from feval.estimators.counts import vote_counts
    from feval.estimators.votes.plurality import pass_at_k, subset_plurality_accuracy

    draws = range(1, codes.shape[1] + 1)
    counts = vote_counts(codes, np.zeros(len(codes), np.int8))
    right = subset_plurality_accuracy(counts.gold, counts.rivals, counts.no_answer, draws)
    ceiling = pass_at_k(counts.gold, counts.size, draws)
    mean_tokens = float(mean_output_tokens(tokens, counts.size).mean())
    return right.mean(), ceiling.mean(), mean_tokens, len(right.values)


def exact(workspace: Workspace) -> list[Goal]:
    """Curves from codes, n = 1..S, against one baseline run of n = 20."""
    dataset, (llm,) = reference.load(workspace.archive(1), reference.LLM_NAMES[:1])
    sizes = {
        "strong LLM, 1319 x 40": synthetic_codes(1319, strength=4.0),
        "weak LLM, 1319 x 40": synthetic_codes(1319, strength=1.2),
        "5000 x 40": synthetic_codes(5000),
        "1319 x 64": synthetic_codes(1319, 64),
        "1319 x 100": synthetic_codes(1319, 100),
        "1319 x 200": synthetic_codes(1319, 200),
    }
    actions = {name: lambda codes=codes: exact_curve(codes, _tokens(codes)) for name, codes in sizes.items()}
    ms = cpu_ms({"run": lambda: reference.self_consistency_run(dataset, llm), **actions})
    return [
        Goal(
            f"exact curve, {name}", ms["run"] / ms[name], 10 if "LLM" in name else None, "x", True, f"{ms[name]:.1f} ms"
        )
        for name in sizes
    ]


def million(workspace: Workspace) -> list[Goal]:
    """A million questions from mapped files, in a fresh process."""
    files = [workspace.folder / f"million-{what}.npy" for what in ("codes", "tokens")]
    if not all(file.exists() for file in files):
        codes = synthetic_codes(MILLION)
        for file, array in zip(files, (codes, _tokens(codes)), strict=True):
            _save(file, array)
    measured = json.loads(python(["-c", MILLION_QUESTIONS, *map(str, files)]))
    note = f"{measured['distinct']:,} distinct questions"
    return [
        Goal("exact curve, 1,000,000 x 40", measured["cpu_s"], 2, "s", note=note),
        Goal("its memory over the imports, 120 MB of mapped files included", measured["mb"], 300, "MB"),
    ]


def intervals() -> list[Goal]:
    """Bootstrap of two curves of 40 points against a loop that gathers each resample; the score intervals that curves have."""
    from feval.estimators.inference.bootstrap import bootstrap_interval
    from feval.estimators.inference.intervals import accuracy_interval

    values = synthetic_values()
    rng = np.random.default_rng(0)

    def gather() -> None:
        means = [values[rng.integers(0, len(values), len(values))].mean(axis=0) for _ in range(GATHER_RESAMPLES)]
        np.quantile(means, [0.025, 0.975], axis=0)

    ms = cpu_ms(
        {"gather": gather, "bootstrap": lambda: bootstrap_interval(values), "score": lambda: accuracy_interval(values)}
    )
    loop = ms["gather"] * 10_000 / GATHER_RESAMPLES
    note = f"{ms['bootstrap']:.0f} ms against {loop:.0f} ms"
    return [
        Goal("bootstrap, 10,000 resamples x 80 columns, over a loop", loop / ms["bootstrap"], 5, "x", True, note),
        Goal("its memory over the imports", json.loads(python(["-c", INTERVALS])), 20, "MB"),
        Goal("score intervals, 80 columns", ms["score"], 5, "ms"),
    ]


def votes() -> list[Goal]:
    """Seeded votes of n = 20 over given draws: gather, vote, tokens; draws excluded."""
    from feval.methods import SelfConsistency
    from feval.replay.draws import orders
    from feval.replay.pools import Pool

    codes = synthetic_codes(1319)
    none = np.zeros(len(codes), np.int64)
    sizes = np.full(len(codes), SAMPLES)
    pool = Pool("synthetic", codes, _tokens(codes), none, sizes, np.zeros_like(codes), sizes)
    keys = np.arange(len(codes), dtype=np.uint64)
    draws = orders(0, keys, sizes, range(REPLICATES), 20)
    method = SelfConsistency(20)
    ms = cpu_ms(
        {
            "draws": lambda: orders(0, keys, sizes, range(REPLICATES), 20),
            "decide": lambda: method.decide([pool], [draws]),
        }
    )
    return [
        Goal("vote and tokens of one replicate, 1319 x 20 of 40", ms["decide"] / REPLICATES, None, "ms"),
        Goal("its draws", ms["draws"] / REPLICATES, None, "ms"),
    ]


def _tokens(codes: Codes) -> npt.NDArray[np.uint16]:
    """Seeded output tokens of samples, a few hundred each."""
    spread = np.arange(codes.size, dtype=np.uint32).reshape(codes.shape) * np.uint32(2_654_435_761)
    return (100 + (spread >> 23)).astype(np.uint16)


def _save(path: Path, array: npt.NDArray[np.generic]) -> None:
    partial = path.with_suffix(".partial.npy")
    np.save(partial, array, allow_pickle=False)
    partial.rename(path)


def goals(workspace: Workspace) -> list[Goal]:
    """Measure the estimators."""
    return [*exact(workspace), *million(workspace), *intervals(), *votes()]
