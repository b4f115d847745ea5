"""The estimators alone: exact curves of weak and strong LLMs, of large pools and of a million
questions; intervals; votes.

Codes are synthetic and seeded: 2 to 10 candidates per question, 3 % of the samples without an
answer. "Baseline run" is one run of self-consistency with n = 20 in the reference's manner, on the
synthetic recording. BLAS runs on one thread (see `benchmarks/__main__.py`): on a busy machine its
threads cost more CPU time than they save.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from benchmarks import reference
from benchmarks.measure import Goal, Workspace, cpu_ms, python

if TYPE_CHECKING:
    from feval.replay import LLM, Dataset

Codes = npt.NDArray[np.int8]

SAMPLES = 40
MILLION = 1_000_000
GATHER_RESAMPLES = 500  # of the gather loop; scaled up to 10,000
REPLICATES = 100

# Measured in a fresh process: from mapped codes and tokens to the mean accuracy, pass@k and tokens
# for n = 1..40.
MILLION_QUESTIONS = """
import json, sys, time
import numpy as np
import feval.estimators.per_question, feval.estimators.per_question, feval.estimators.plurality
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
# Measured in a fresh process, with the peak of all of it: the curve as `feval curve` computes it,
# with intervals of its accuracies, costs and area; then one exact method as `feval run` evaluates
# it, with its errors.
MILLION_CURVE = """
import json, sys, time
import numpy as np
from benchmarks.curve import votes_only
from benchmarks.open import resident_mb
from feval.estimators.intervals import bootstrap_interval, bootstrap_means
from feval.estimators.comparisons import hull_area
from feval.evaluation.curves import exact_values, self_consistency_curve

dataset, llm = votes_only(*sys.argv[1:3])
started = time.process_time()
curve = self_consistency_curve(dataset, llm, range(1, 41))
right, *_ = exact_values(dataset.gold, llm.pool, range(1, 41))
accuracies = bootstrap_means(right)
cost = np.array([point.tokens_per_question for point in curve.points])
areas = hull_area(cost, accuracies, float(cost[0]), float(cost[-1]))
tokens = bootstrap_interval((llm.pool.output_tokens.sum(axis=1) / llm.pool.sizes)[:, None])
print(json.dumps([time.process_time() - started, resident_mb("VmHWM") * 1e6 / 2**20]))
low, high = np.quantile(areas, [0.025, 0.975])
assert curve.points[0].accuracy_low < curve.points[0].accuracy < curve.points[-1].accuracy_high
assert low < high and (tokens.low < tokens.high).all()
"""
MILLION_EVALUATION = """
import json, sys, time
from benchmarks.curve import votes_only
from benchmarks.open import resident_mb
from feval import evaluate, methods

dataset, llm = votes_only(*sys.argv[1:3])
method = methods.METHODS[sys.argv[3]]()
started = time.process_time()
numbers = evaluate(method, dataset, llm).to_dict()
print(json.dumps([time.process_time() - started, resident_mb("VmHWM") * 1e6 / 2**20]))
assert 0 < numbers["accuracy"] < 1 and abs(sum(numbers["errors"].values()) - 1 + numbers["accuracy"]) < 1e-9
"""  # noqa: E501
INTERVALS = """
import json, sys
import numpy as np
from feval.estimators.intervals import bootstrap_interval
from benchmarks.curve import synthetic_values
from benchmarks.open import resident_mb

values = synthetic_values()
bootstrap_interval(values, resamples=10)
before = resident_mb("VmRSS")
bootstrap_interval(values)
print(json.dumps(resident_mb("VmHWM") - before))
"""


def synthetic_codes(
    questions: int, samples: int = SAMPLES, strength: float = 2.2, seed: int = 0
) -> Codes:
    """Answer codes [questions, samples], the gold answer's code 0.

    Args:
        questions: how many.
        samples: per question.
        strength: a question's probability of the gold answer is Beta(strength, 1): 2.2 for a mean
            of 0.69.
        seed: of everything.
    """
    rng = np.random.default_rng(seed)
    codes = np.empty((questions, samples), np.int8)
    for start in range(0, questions, 1 << 15):
        block = codes[start : start + (1 << 15)]
        right = rng.beta(strength, 1.0, (len(block), 1))
        rivals = rng.integers(1, 10, (len(block), 1))
        # the first rivals are more frequent
        block[:] = 1 + (rng.random(block.shape) ** 2 * rivals).astype(np.int8)
        block[rng.random(block.shape) < right] = 0
        block[rng.random(block.shape) < reference.NO_ANSWER_SHARE] = -1
    return codes


def synthetic_values(questions: int = 1319, columns: int = 80) -> npt.NDArray[np.float64]:
    """Values per question as two exact curves have them."""
    return np.random.default_rng(0).random((questions, columns))


def exact_curve(
    codes: Codes, tokens: npt.NDArray[np.uint16]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], float, int]:
    """Codes and tokens to mean accuracy, pass@k and tokens per sample, every n; and the number of
    distinct questions.
    """
    from feval.estimators.plurality import (
        mean_output_tokens,
        pass_at_k,
        subset_plurality_accuracy,
        vote_counts,
    )

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
    actions = {
        name: lambda codes=codes: exact_curve(codes, _tokens(codes))
        for name, codes in sizes.items()
    }
    ms = cpu_ms({"run": lambda: reference.self_consistency_run(dataset, llm), **actions})
    return [
        Goal(
            f"exact curve, {name}",
            ms["run"] / ms[name],
            10 if "LLM" in name else None,
            "x",
            True,
            f"{ms[name]:.1f} ms",
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
        Goal(
            "its memory over the imports, 120 MB of mapped files included",
            measured["mb"],
            300,
            "MB",
        ),
    ]


def votes_only(codes_file: str, tokens_file: str) -> tuple[Dataset, LLM]:
    """A dataset and an LLM of a recording that has votes and nothing else, from mapped files."""
    from feval.answers import NORMAL_FORM
    from feval.cards.prices import price_list
    from feval.recording.view import DatasetView
    from feval.recording.votes import Votes
    from feval.replay.dataset import Dataset
    from feval.replay.llm import LLM
    from feval.replay.pools import ArrayChannels, Pool

    codes, tokens = (np.load(path, mmap_mode="r") for path in (codes_file, tokens_file))
    questions, name = len(codes), "gpt-3.5-turbo"
    arrays = {
        "question_keys": np.arange(questions, dtype=np.uint64),
        "candidate_starts": np.arange(questions + 1, dtype=np.uint32) * np.uint32(10),
        "gold": np.zeros(questions, np.int8),
        "codes.0": codes,
        "output_tokens.0": tokens,
        "prompt_tokens.0": np.full(questions, 80, np.int32),
        "sizes.0": np.full(questions, codes.shape[1], np.uint32),
    }
    texts = {
        "text_keys": np.random.default_rng(0).integers(1 << 63, size=questions).astype(np.uint64)
    }
    votes = Votes({"dataset": "synthetic", "llms": [name]}, arrays, lambda: texts)
    manifest = SimpleNamespace(
        pairs={("synthetic", name): {"counter": "words"}},
        llms={name: {"decoding": {}}},
        served_models=list,
        cautions=(),
    )
    info = SimpleNamespace(equality=NORMAL_FORM)
    unread: Any = dict.fromkeys(("texts", "reasoning", "marks", "messages"))
    recording: Any = SimpleNamespace(
        manifest=manifest,
        hash="0" * 64,
        path=Path(codes_file),
        dataset_info=lambda _: info,
        graders=lambda *_: [],
        **unread,
    )
    view, own = DatasetView(recording, votes), votes.llms[name]
    pool = Pool(
        name, own.codes, own.output_tokens, own.prompt_tokens, own.sizes, own.read_finish,
        votes.candidate_counts(),
        votes.question_keys, ArrayChannels(),
    )  # fmt: skip
    prices = price_list("2025-06-02")
    return Dataset(view, [name]), LLM(view, pool, seed=0, prices=lambda: prices, billing="once")


def million_evaluations(workspace: Workspace) -> list[Goal]:
    """A curve with intervals and exact methods on a million questions, each in a fresh process."""
    # `million` makes them
    files = [str(workspace.folder / f"million-{what}.npy") for what in ("codes", "tokens")]
    seconds, peak = json.loads(python(["-c", MILLION_CURVE, *files]))
    rows = [
        Goal(
            "curve with intervals of accuracies, costs and area, 1,000,000 x 40", seconds, 10, "s"
        ),
        Goal("its peak memory, the whole process", peak, 300, "MiB"),
    ]
    goals = {
        "self-consistency": (None, None),
        "early-stopping": (None, None),
        "adaptive-consistency": (60, 600),
    }
    for method, (most_seconds, most_mb) in goals.items():
        seconds, peak = json.loads(python(["-c", MILLION_EVALUATION, *files, method]))
        rows += [
            Goal(f"{method}, exact, 1,000,000 x 40", seconds, most_seconds, "s"),
            Goal("its peak memory", peak, most_mb, "MiB"),
        ]
    return rows


def intervals() -> list[Goal]:
    """Bootstrap of two curves of 40 points against a loop that gathers each resample; the intervals
    that curves have.
    """
    from feval.estimators.intervals import accuracy_interval, bootstrap_interval

    values = synthetic_values()
    rng = np.random.default_rng(0)

    def gather() -> None:
        means = [
            values[rng.integers(0, len(values), len(values))].mean(axis=0)
            for _ in range(GATHER_RESAMPLES)
        ]
        np.quantile(means, [0.025, 0.975], axis=0)

    ms = cpu_ms(
        {
            "gather": gather,
            "bootstrap": lambda: bootstrap_interval(values),
            "interval": lambda: accuracy_interval(values),
        }
    )
    loop = ms["gather"] * 10_000 / GATHER_RESAMPLES
    note = f"{ms['bootstrap']:.0f} ms against {loop:.0f} ms"
    return [
        Goal(
            "bootstrap, 10,000 resamples x 80 columns, over a loop",
            loop / ms["bootstrap"],
            5,
            "x",
            True,
            note,
        ),
        Goal("its memory over the imports", json.loads(python(["-c", INTERVALS])), 20, "MB"),
        Goal("intervals of accuracies, 80 columns", ms["interval"], 5, "ms"),
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
        Goal(
            "vote and tokens of one replicate, 1319 x 20 of 40",
            ms["decide"] / REPLICATES,
            None,
            "ms",
        ),
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
    return [
        *exact(workspace),
        *million(workspace),
        *million_evaluations(workspace),
        *intervals(),
        *votes(),
    ]
