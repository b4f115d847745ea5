"""Compare the numbers that feval prints with the frozen ones in `tests/data/numbers.json.gz`.

What is compared is a measure of a method at a budget, not the layout of the JSON that it stands in.
Real numbers may differ by 1e-12 of their size. `python .ci/compare_numbers.py --write` freezes
anew, after numbers were changed on purpose.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import math
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FROZEN = ROOT / "tests" / "data" / "numbers.json.gz"
sys.path.insert(0, str(ROOT / "tests" / "support"))

TINY, DEPTH = (str(ROOT / "recorders" / "tiny" / folder) for folder in ("recording", "depth"))
LLMS = [f"feval/tiny-{size}" for size in ("30k", "42k", "160k")]
ORDERS = ("exact", "recorded", "seeded")
COSTS = ("usd", "tokens", "output-tokens", "sequential-tokens", "calls", "samples")
TOLERANCE = 1e-12

NAMES = (
    "label",
    "a",
    "b",
    "llm",
    "method",
    "estimator",
    "name",
    "n",
    "tokens",
    "votes",
    "m",
    "value",
    "accuracy",
    "cost",
)
"""Keys that say what a record of a list is about, where its values are strings or settings."""
SKIPPED = {
    "fields",
    "seed",
    "baselines",
    "ceilings",
    "receipt",
    "plan",
    "warnings",
    "notes",
    "recording_hash",
    "recording_hashes",
    "version",
    "seconds",
}

SCORES = "def length(question, text, answer): return 1 / (1 + len(text) % 7)\n"


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every number of a JSON value, and every hash and kind, with the names that lead to
    it.
    """
    if isinstance(value, dict):
        for name, part in value.items():
            if name not in SKIPPED:
                yield from leaves(part, f"{path}/{name}" if path else name)
    elif isinstance(value, list):
        seen: dict[str, int] = {}
        for part in value:
            label = ",".join(_label(part))
            seen[label] = seen.get(label, -1) + 1
            yield from leaves(
                part, f"{path}[{label}{'#' + str(seen[label]) if seen[label] else ''}]"
            )
    elif isinstance(value, int | float) or path.rpartition("/")[2] in ("hash", "kind", "error"):
        yield path, value


def _label(record: Any) -> Iterator[str]:
    if not isinstance(record, dict):
        return
    for name in NAMES:
        known = record.get(name)
        if isinstance(known, str) or (name in NAMES[7:-2] and isinstance(known, int)):
            yield f"{name}={known}"


def feval(*arguments: str) -> Any:
    """Return what a command prints as JSON."""
    from feval.cli import main

    printed = io.StringIO()
    sys.argv = ["feval", *arguments, "--json"]
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            main()
        except SystemExit as ended:
            if ended.code:
                return {"error": said.getvalue().strip().splitlines()[-1:]}
    return json.loads(printed.getvalue())


def commands(work: Path) -> Iterator[tuple[str, Any]]:
    """Yield the name of each command with what it prints."""
    work.joinpath("frozen_scorer.py").write_text(SCORES)
    sys.path.insert(0, str(work))
    scored = str(work / "scored")
    feval(
        "score",
        TINY,
        "--scorer",
        "python:frozen_scorer:length",
        "--set",
        "name=length",
        "--out",
        scored,
    )
    one = ("--recording", scored, "--llm", LLMS[1])
    every = ("--recording", scored, *(part for name in LLMS for part in ("--llm", name)))

    single = {
        "single-call": (), "self-consistency": ("n=7",), "early-stopping": ("window=4",),
        "adaptive-consistency": ("budget=20", "threshold=0.9"), "best-of-n": ("n=9",
        "aggregate=score"),
        "weighted-best-of-n": ("n=9", "aggregate=score"),
        "difficulty-adaptive": ("ranking=prompt-length",),
        "oracle": ("n=5",),
    }  # fmt: skip
    several = {
        "model-switch": ("samples=5",), "mixture-of-thoughts": ("threshold=0.6", "samples=5"),
        "cascade": ("thresholds=0.5,0.6", "samples=5", "score=vote-share"),
    }  # fmt: skip
    for methods, llms in ((single, one), (several, every)):
        for name, settings in methods.items():
            given = [part for setting in settings for part in ("--set", setting)]
            for order in ORDERS:
                for billing in ("once", "per_round", "per_sample"):
                    draws = ("--replicates", "10", "--seed", "3") if order == "seeded" else ()
                    options = ("--order", order, "--billing", billing, *draws)
                    yield (
                        f"run {name} {order} {billing}",
                        feval("run", name, *llms, *given, *options),
                    )

    for order in ORDERS:
        draws = ("--order", order, *(("--replicates", "10") if order == "seeded" else ()))
        for cost in COSTS:
            plain = ("curve", "self-consistency", *one, "--n", "1,2,5,11,40", "--cost", cost)
            yield f"curve self-consistency {order} {cost}", feval(*plain, *draws)
        stopped = ("curve", "early-stopping", *one, "--sweep", "window=2,3,5,8")
        yield f"curve early-stopping {order}", feval(*stopped, *draws)
        switched = ("curve", "model-switch", *every, "--sweep", "samples=1,3,9")
        yield f"curve model-switch {order}", feval(*switched, *draws)

    plan = str(work / "plan.toml")
    feval("compare", plan, "--init", "--recording", scored)
    for cost in ("usd", "sequential-tokens", "calls"):
        yield f"compare {cost}", feval("compare", plan, "--replicates", "5", "--cost", cost)
    depths = str(work / "depths.toml")
    feval("compare", depths, "--init", "--recording", DEPTH)
    yield "compare depth", feval("compare", depths, "--replicates", "5")

    yield (
        "surface",
        feval("surface", "--recording", DEPTH, "--n", "1,2,3,10", "--tokens", "16,32,48,none"),
    )
    methods = "unbiased,plug-in,monte-carlo,gaussian,two-call,max-entropy,ldgp"
    forecast = ("estimate", "--recording", TINY, "--llm", LLMS[1])
    yield "estimate", feval(*forecast, "--g", "5", "--m", "1,2,3,8,20", "--method", methods)
    for budget in ("2usd", "50000tokens"):
        yield (
            f"plan {budget}",
            feval("plan", "--budget", budget, "--recording", TINY, "--llm", LLMS[1]),
        )

    record = ("record", "--dataset", "tiny_sums", "--first", "30", "--samples", "6")
    work.joinpath("noise.toml").write_text("noise_seed = 7\n")
    shared, own = [], []
    for size in ("42k", "90k"):
        shared += ["--recording", str(work / f"{size}-shared")]
        own += ["--independent", str(work / f"{size}-own")]
        noise = ("--set", "coupled=true", "--settings", str(work / "noise.toml"))
        feval(*record, "--llm", f"feval/tiny-{size}", *noise, "--out", shared[-1])
        feval(*record, "--llm", f"feval/tiny-{size}@independent", "--out", own[-1])
    yield "couple", feval("couple", *shared, *own)


def toys(work: Path) -> Iterator[tuple[str, Any]]:
    """Yield the evaluation of every case of the contract tests, in every order that the method
    has.
    """
    from method_cases import all_cases
    from probed import with_probes
    from recorded_trees import write_full_trees
    from recorded_turns import write_full_turns
    from small import write_scored_toy

    from feval import evaluate, load
    from feval.errors import FevalError
    from feval.methods import METHODS
    from feval.methods.protocol import capabilities

    pools = [
        list("abaa-bca"),
        list("aaaabbbb"),
        list("abcdefgh"),
        list("zzzzzzzzyy"),
        list("--b-a---"),
        list("-" * 8),
    ]
    answers = [[None if each == "-" else each for each in pool] for pool in pools]
    mixed = [answers[2], *answers[:2], *answers[3:5], answers[0]]
    golds = ["a", "b", "c", "z", "a", "nobody"]
    whole = write_scored_toy(
        work / "whole", {"strong": answers, "weak": answers[::-1], "other": mixed}, golds
    )
    dataset, llms = load("toy", recording=whole, seed=7)
    llms = [with_probes(llm) for llm in llms]
    trees = load("toy", recording=write_full_trees(work / "trees", golds), seed=7)
    turns = load("toy", recording=write_full_turns(work / "turns", golds), seed=7)
    for name, case in all_cases():
        given = (
            turns
            if name == "sequential-revision"
            else trees
            if capabilities(METHODS[name]).searches
            else (dataset, llms)
        )
        for order in ORDERS:
            try:
                result = evaluate(
                    METHODS[name](**case.settings),
                    given[0],
                    given[1][: case.llms],
                    order=order,
                    replicates=12,
                )
            except FevalError as error:
                yield f"toy {name} {case} {order}", {"error": type(error).__name__}
            else:
                yield f"toy {name} {case} {order}", result.to_dict()


def hashes(work: Path, real: Path) -> Iterator[tuple[str, Any]]:
    """Yield the hash of the recording that is made of each real file."""
    from feval.importers import import_recording
    from feval.importers.layouts import layout_of
    from feval.recording import open_recording

    sources: list[tuple[str, str, str, dict[str, Any]]] = []
    for path in sorted(real.glob("mot_cascade/*/*.json.gz")):
        dataset = "gsm8k" if path.name.startswith("gsm") else "bigbench_date"
        kinds = "verbatim", "number" if dataset == "gsm8k" else "date"
        sources += [(str(path), "mot-cascade", dataset, {"answer_kind": kind}) for kind in kinds]
    sources += [
        (str(path), "esc", "last_letters", {"answer_kind": "verbatim"})
        for path in real.glob("esc/*/*/*.gz")
    ]
    key = {"questions": real / "coupled_mmlu/mmlu_test_answer_key.csv", "answer_kind": "verbatim"}
    sources += [
        (str(path), "coupled-mmlu", "mmlu", key)
        for path in sorted(real.glob("coupled_mmlu/outputs/*/*1B*/*.gz"))
    ]
    for path in sorted(real.glob("linc/outputs/*_prc.json")):
        sources.append((str(path), "linc", "folio", {"answer_kind": "verbatim", "llm": None}))
    for path in sorted(real.glob("probed/*.json.gz")):
        sources.append((str(path), "probed-traces", "aime24", {"answer_kind": "verbatim"}))
    for path in sorted(real.glob("qwen_rm/*.gz")):
        sources.append(
            (
                str(path),
                "table",
                "math",
                {"answer_kind": "latex", "layout": layout_of("qwen2.5-math")},
            )
        )
    for number, (source, format_name, dataset, options) in enumerate(sources):
        out = work / f"imported-{number}"
        import_recording(format_name, source, out, dataset=dataset, **({"llm": "an-llm"} | options))
        name = f"{Path(source).relative_to(real)} {options['answer_kind']}"
        yield f"import {name}", {"hash": open_recording(out).hash}


def same(frozen: Any, now: Any) -> bool:
    """Whether two values are equal, real numbers but for rounding."""
    if isinstance(frozen, float) and isinstance(now, int | float) and not isinstance(now, bool):
        return math.isclose(frozen, now, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(frozen == now)


def main() -> None:
    """Freeze the numbers, or compare them and end with 1 where one differs."""
    write = "--write" in sys.argv
    real = ROOT.parent / "shared" / "real"
    with tempfile.TemporaryDirectory() as folder:
        jobs = [*commands(Path(folder)), *toys(Path(folder))]
        if real.is_dir():
            jobs += hashes(Path(folder), real)
    numbers = {name: dict(leaves(value)) for name, value in jobs}
    if write:
        FROZEN.write_bytes(gzip.compress(json.dumps(numbers, sort_keys=True).encode(), mtime=0))
        print(
            f"{sum(map(len, numbers.values()))} values of {len(numbers)} commands are frozen in"
            f" {FROZEN.name}."
        )
        return
    frozen = json.loads(gzip.decompress(FROZEN.read_bytes()))
    wrong = []
    for name, expected in frozen.items():
        if name.startswith("import ") and not real.is_dir():
            continue
        now = numbers.get(name, {})
        wrong += [
            f"{name}: {path} was {value!r}, is {now.get(path, 'missing')!r}"
            for path, value in expected.items()
            if path not in now or not same(value, now[path])
        ]
    print("\n".join(wrong[:40]))
    print(f"{sum(map(len, frozen.values()))} frozen values compared: {len(wrong)} differ")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
