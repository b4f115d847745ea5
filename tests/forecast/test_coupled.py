"""Coupled LLMs compared: figures from the pools themselves, and what cannot be compared is
refused.
"""

import csv
import io
import json
import os
import re
import subprocess
import sys
from itertools import product

import numpy as np
import pytest
from command_line import feval, said, told
from places import ROOT, read_json
from scipy.special import stdtrit
from small import letters, pool, write_rows

from feval.errors import (
    ConflictError,
    NotRecordedError,
    OutOfRangeError,
    UnlabelledError,
    UsageError,
)
from feval.estimators.coupling import estimation_error
from feval.forecast.coupled import couple
from feval.importers import import_recording
from feval.recording import LLMInfo, open_recording
from feval.replay import load
from feval.report import pictures
from feval.report.tables.forecasts import coupling_csv, coupling_tables

SHARED = {"scheme": "gumbel-v1", "seed": 7}
QUESTIONS, CALLS = 40, 8


def answers(seed, skill):
    """Answers that depend on shared randomness: right where it is below skill, else wrong or
    none.
    """
    noise = np.random.default_rng(seed).random((QUESTIONS, CALLS))
    hard = np.random.default_rng(0).random((QUESTIONS, 1)) * 0.5
    levels = (noise + hard > skill).astype(int) + (noise + hard > skill + 0.3)
    return [[("1", "2", None)[level] for level in row] for row in levels]


def written(path, pools, golds=None):
    given = ["1"] * QUESTIONS if golds is None else list(golds)
    llms = (
        (
            LLMInfo(name, temperature=1.0, decoding={} if noise is None else {"noise": noise}),
            [pool(index, own) for index, own in enumerate(rows)],
        )
        for name, (rows, noise) in pools.items()
    )
    return write_rows(path, given, *llms, prices="none")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("coupled")
    skills = {"a/one": 0.5, "a/two": 0.6, "a/three": 0.8}
    written(
        folder / "coupled", {name: (answers(1, skill), SHARED) for name, skill in skills.items()}
    )
    apart = {
        f"{name}@apart": (answers(place + 2, skill), None)
        for place, (name, skill) in enumerate(skills.items())
    }
    written(folder / "apart", apart)
    return folder


def opened(recorded):
    recordings = [open_recording(recorded / name) for name in ("coupled", "apart")]
    dataset, llms = load("toy", None, recordings, prices="none")
    return dataset, llms[:3], llms[3:]


def right(llm, dataset):
    return (llm.pool.codes == dataset.gold[:, None]).astype(float)


def test_figures_are_those_of_the_pools(recorded):
    dataset, llms, apart = opened(recorded)
    result = couple(dataset, llms, apart, samples=50, resamples=200)
    assert result.noise == ("gumbel-v1", 7)
    pair = result.pairs[1]
    assert (pair.first, pair.second) == ("a/one", "a/three")
    x, y = right(llms[0], dataset), right(llms[2], dataset)
    u, v = right(apart[0], dataset), right(apart[2], dataset)
    expected = np.mean([np.cov(x[q], y[q])[0, 1] for q in range(QUESTIONS)])
    assert pair.covariance == pytest.approx(expected, abs=1e-15)
    assert pair.covariance_low < pair.covariance < pair.covariance_high
    assert pair.difference == pytest.approx((x - y).mean(), abs=1e-15)
    assert pair.error == pytest.approx(estimation_error(u - v, [50])[0], abs=1e-15)
    errors = estimation_error(x - y, range(1, QUESTIONS * CALLS + 1))
    assert pair.coupled_samples == 1 + int(np.argmax(errors <= pair.error))
    codes = [llm.pool.codes for llm in (llms[0], llms[2])]
    assert pair.agreement_coupled == pytest.approx(
        ((codes[0] == codes[1]) & (codes[0] >= 0)).mean()
    )
    # Of nearly one Bernoulli variable per question: the variance of each pair's difference, over
    # questions and noise.
    assert pair.variance_coupled == pytest.approx((x - y).var(), rel=0.02)
    assert pair.variance_independent == pytest.approx((u - v).var(), rel=0.02)
    assert pair.ratio < 1


def test_independent_variances_are_those_of_the_independent_recordings(tmp_path):
    """Two questions of four calls, worked out by hand: the picture's points and the table's totals
    are of the same calls.
    """
    both = (letters("1122", "1121"), letters("1122", "1221"))
    apart = (letters("1122", "1111"), letters("2211", "1212"))
    golds = ["1", "1"]
    written(tmp_path / "both", {"a/x": (both[0], SHARED), "a/y": (both[1], SHARED)}, golds)
    written(
        tmp_path / "apart", {"a/x@apart": (apart[0], None), "a/y@apart": (apart[1], None)}, golds
    )
    recordings = [open_recording(tmp_path / name) for name in ("both", "apart")]
    dataset, llms = load("toy", None, recordings, prices="none")
    # Coupled differences are (0, 0, 0, 0) and (0, 1, 0, 0); independent ones (1, 1, -1, -1) and (0,
    # 1, 0, 1).
    result = couple(dataset, llms[:2], llms[2:], resamples=10)
    assert result.variances["a/x", "a/y"] == pytest.approx(np.array([[0, 1 / 4], [4 / 3, 1 / 3]]))
    # nothing between: 1/8 < 5/6/4
    assert result.pairs[0].variance_independent == pytest.approx(5 / 6)
    # Without them: the sums of the variances of being right, 1/3 + 1/3 and 1/4 + 1/3.
    alone = couple(dataset, llms[:2], resamples=10)
    assert alone.variances["a/x", "a/y"] == pytest.approx(np.array([[0, 1 / 4], [2 / 3, 7 / 12]]))


def test_winrates_count_every_comparison_once(recorded):
    dataset, llms, apart = opened(recorded)
    result = couple(dataset, llms, apart, resamples=100)
    x, y, z = (right(llm, dataset) for llm in llms)
    won = ((x > y).mean() + (x > z).mean()) / 2
    assert result.ranking[0].winrate == pytest.approx(won)
    u, v, w = (right(llm, dataset) for llm in apart)
    pairs = [(s, t) for s, t in product(range(CALLS), repeat=2)]
    apart_won = np.mean(
        [((u[:, s] > v[:, t]).mean() + (u[:, s] > w[:, t]).mean()) / 2 for s, t in pairs]
    )
    assert result.ranking[3].winrate == pytest.approx(apart_won)
    # Who never wins: zeros and an imaginary 1, whose mean and standard error are both 1 / (Q + 2).
    assert (result.ranking[0].winrate, result.ranking[0].low) == (0.0, 0.0)
    assert result.ranking[0].high == pytest.approx(
        (1 + stdtrit(QUESTIONS + 1, 0.975)) / (QUESTIONS + 2), rel=1e-6
    )
    assert [entry.rank for entry in result.ranking[:3]] == [2, 2, 1]
    alone = couple(dataset, llms, resamples=100)
    others = [(s, t) for s, t in pairs if s != t]
    own = np.mean(
        [((x[:, s] > y[:, t]).mean() + (x[:, s] > z[:, t]).mean()) / 2 for s, t in others]
    )
    assert alone.ranking[3].winrate == pytest.approx(own)
    assert alone.independent_from == "other calls"
    # Both variances of the same calls: they differ by twice the covariance, whatever the variance
    # between questions.
    for pair in alone.pairs:
        assert pair.variance_independent - pair.variance_coupled == pytest.approx(
            2 * pair.covariance, abs=1e-14
        )
    assert alone.warnings == ()


def test_llms_whose_noise_does_nothing_are_told(recorded, tmp_path):
    recording = written(
        tmp_path / "r", {"a/one": (answers(1, 0.5), SHARED), "a/two": (answers(2, 0.6), SHARED)}
    )
    dataset, llms = load("toy", None, recording, prices="none")
    [sentence] = couple(dataset, llms, resamples=100).warnings
    assert "a/one and a/two are not measurably more often right together" in sentence
    assert "share the texts of tokens" in sentence


def test_one_question_has_no_intervals_and_no_ranks(recorded):
    dataset, llms, apart = opened(recorded)
    areas = {f"toy/{index}": "one" if index == 3 else "others" for index in range(QUESTIONS)}
    result = couple(dataset, llms, apart, areas=areas, samples=4, resamples=50)
    [sentence] = result.warnings
    assert "fewer than 10 questions" in sentence
    assert "one (1)" in sentence
    for pair in result.pairs:
        assert (pair.ratio_low is None) == (pair.ratio is None or pair.area == "one")
        if pair.ratio_low is not None:
            assert pair.ratio_low <= pair.ratio <= pair.ratio_high


def test_areas_are_questions_of_their_own(recorded):
    dataset, llms, apart = opened(recorded)
    areas = {f"toy/{index}": "even" if index % 2 == 0 else "odd" for index in range(QUESTIONS)}
    result = couple(dataset, llms, apart, areas=areas, samples=30, resamples=50)
    assert [pair.area for pair in result.pairs[:3]] == [None, "even", "odd"]
    x, y = right(llms[0], dataset)[::2], right(llms[1], dataset)[::2]
    assert result.pairs[1].covariance == pytest.approx(
        np.mean([np.cov(a, b)[0, 1] for a, b in zip(x, y, strict=True)])
    )
    chosen = couple(dataset, llms, areas=areas, shown_areas=["odd"], resamples=50)
    assert [pair.area for pair in chosen.pairs[:2]] == [None, "odd"]
    with pytest.raises(NotRecordedError, match="area 'prime'"):
        couple(dataset, llms, areas=areas, shown_areas=["prime"])


@pytest.mark.slow
def test_it_is_a_function_of_its_arguments(recorded):
    dataset, llms, apart = opened(recorded)
    one, other = (couple(dataset, llms, apart, resamples=100, seed=3) for _ in range(2))
    assert one.to_dict() == other.to_dict()
    assert pictures.coupling(one).png() == pictures.coupling(other).png()
    json.dumps(one.to_dict(), allow_nan=False)
    rows = list(csv.DictReader(io.StringIO(coupling_csv(one))))
    assert [float(row["covariance"]) for row in rows] == [pair.covariance for pair in one.pairs]
    assert len(coupling_tables(one)) == 3


def test_llms_that_always_agree_have_nothing_to_save(tmp_path):
    same = [["1"] * CALLS] * QUESTIONS
    dataset, llms = two(tmp_path, (same, SHARED), (same, SHARED))
    result = couple(dataset, llms, resamples=50)
    [pair] = result.pairs
    assert (pair.covariance, pair.variance_coupled, pair.ratio, pair.error) == (0, 0, None, None)
    assert [(entry.rank, entry.ties) for entry in result.ranking] == [(1, 1.0)] * 4
    assert pictures.coupling(result).png()[:4] == b"\x89PNG"


def two(tmp_path, first, second, **options):
    recording = written(tmp_path / "r", {"a/x": first, "a/y": second}, **options)
    return load("toy", None, recording, prices="none")


def test_what_cannot_be_compared_is_refused(tmp_path, recorded):
    full = answers(1, 0.6)
    single = [row[:1] for row in full], SHARED
    cases = [
        ((full, SHARED), (full, SHARED | {"seed": 8}), "recorded with the same noise"),
        ((full, SHARED), (full, SHARED | {"scheme": "other"}), "recorded with the same noise"),
        ((full, SHARED), (full, None), "noise of its own"),
        ((full, SHARED), ([row[:5] for row in full], SHARED), r"a/x: 8, a/y: 5"),
        ((full, SHARED), ([full[0][:5], *full[1:]], SHARED), "'toy/0'"),
        (single, single, "two CoTs or more"),
    ]
    for number, (first, second, message) in enumerate(cases):
        dataset, llms = two(tmp_path / str(number), first, second)
        with pytest.raises(ConflictError, match=message):
            couple(dataset, llms)
    dataset, llms, apart = opened(recorded)
    for error, message, given, options in (
        (UsageError, "two LLMs or more", [llms[:1]], {}),
        (UsageError, "same order", [llms, apart[::-1]], {}),
        (ConflictError, "share noise", [llms, llms], {}),
        (OutOfRangeError, "independent pair", [llms], {"samples": 0}),
        (NotRecordedError, "no scores", [llms], {"scorer": "nobody"}),
    ):
        with pytest.raises(error, match=message):
            couple(dataset, *given, **options)


def test_questions_without_a_gold_are_refused_or_left_out_and_said(tmp_path):
    pools = (answers(1, 0.5), SHARED), (answers(1, 0.7), SHARED)
    golds = [None, *["1"] * (QUESTIONS - 1)]
    some = two(tmp_path / "some", *pools, golds=golds)
    none = two(tmp_path / "none", *pools, golds=[None] * QUESTIONS)
    with pytest.raises(
        UnlabelledError, match=r"1 of \d+ questions of toy has no gold .*missing: toy/0"
    ):
        couple(*some)
    result = couple(*some, unlabelled="drop", resamples=50)
    assert result.pairs[0].questions == QUESTIONS - 1
    assert result.warnings == ("1 question was left out without a gold answer that can be read.",)
    with pytest.raises(UnlabelledError, match="None of the"):
        couple(*none, unlabelled="drop")


def failed(*arguments):
    done = feval(*arguments, terminal_width=400)
    assert done.exit_code in {1, 2}, done.output
    return " ".join(done.stderr.split())


def test_the_command_prints_tables_and_writes_files(recorded, tmp_path):
    both = ["--recording", recorded / "coupled", "--independent", recorded / "apart"]
    output = said("couple", *both, "--out", tmp_path / "out")
    assert "one - three" in output
    assert "independent pairs: recordings with noise of their own" in output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "couple.csv",
        "couple.json",
        "couple.png",
    ]
    result = told("couple", *both)
    assert result["noise"] == {"scheme": "gumbel-v1", "seed": 7}
    areas = tmp_path / "areas.csv"
    areas.write_text(
        "id,area\n" + "".join(f"toy/{i},{'x' if i < 9 else 'y'}\n" for i in range(QUESTIONS))
    )
    assert " x " in said("couple", *both, "--areas", areas)
    assert "nope" in failed("couple", *both, "--dataset", "nope")
    areas.write_text("question\n1\n")
    assert "no column area or subject" in failed("couple", *both, "--areas", areas)
    areas.write_text("area\n1\n")
    assert "1 rows and no column id" in failed("couple", *both, "--areas", areas)
    twice = [*both[:2], "--independent", recorded / "coupled"]
    assert "same name in both recordings" in failed("couple", *twice)


LLAMAS = {"8B": ("3.1-8B", 83475617), "3B": ("3.2-3B", 29387482), "1B": ("3.2-1B", 18987374)}
SEED = 72645763


@pytest.mark.slow
def test_the_papers_own_outputs_on_mmlu(shared, tmp_path):
    """Scores are positively correlated under coupling for every pair and most subjects, and the
    variance falls.
    """
    folder = shared / "real" / "coupled_mmlu"
    key = folder / "mmlu_test_answer_key.csv"
    paths = []
    for name, (size, own) in LLAMAS.items():
        for kind, seed in (("coupled", SEED), ("apart", own)):
            outputs = folder / f"outputs/mmlu/Llama-{size}-Instruct"
            source = outputs / f"responses_0_14042_seed{seed}.csv.gz"
            out = tmp_path / f"{name}-{kind}"
            asked = {"dataset": "mmlu", "questions": key, "answer_kind": "verbatim"}
            import_recording("coupled-mmlu", source, out, llm=f"llama/{name}@{kind}", **asked)
            paths.append(out)
    recordings = [open_recording(path) for path in paths]
    names = [f"llama/{name}@{kind}" for kind in ("coupled", "apart") for name in LLAMAS]
    dataset, llms = load("mmlu", names, recordings, prices="none")
    with key.open(encoding="utf-8", newline="") as file:
        areas = {
            f"mmlu/{row}": record["subject"] for row, record in enumerate(csv.DictReader(file))
        }
    result = couple(dataset, llms[:3], llms[3:], areas=areas, resamples=300)
    of_area = {(pair.first, pair.second, pair.area): pair for pair in result.pairs}
    for first, second in result.curves:
        overall = of_area[first, second, None]
        assert overall.covariance_low > 0
        assert overall.variance_coupled < overall.variance_independent
        assert overall.ratio_high < 0.9
        subjects = [
            pair
            for pair in result.pairs
            if (pair.first, pair.second) == (first, second) and pair.area
        ]
        assert len(subjects) == 57
        assert sum(pair.covariance > 0 for pair in subjects) >= 55
    page = (ROOT / "docs" / "coupling.md").read_text("utf-8")
    rows = re.findall(r"^\| (\dB) - (\dB) \| ([a-z ]+) \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) == 3
    for one, two, area, cells in rows:
        name = None if area == "all" else area.replace(" ", "_")
        pair = of_area[f"llama/{one}@coupled", f"llama/{two}@coupled", name]
        ratio = pair.variance_coupled / pair.variance_independent
        figures = (
            f"{pair.covariance:.4f} | {pair.variance_coupled:.4f} | {pair.variance_independent:.4f}"
            f" | {ratio:.3f}"
        )
        assert cells.startswith(f"{figures} | {pair.coupled_samples} | {pair.ratio:.3f} (")
        low, high = (float(end) for end in cells.partition("(")[2].rstrip(")").split(" to "))
        assert (pair.ratio_low, pair.ratio_high) == pytest.approx((low, high), abs=0.02)
    # Agreement of the same record, as the description of the data states it (letter E included
    # there).
    for one, two, coupled, apart in (("8B", "3B", 0.676, 0.587), ("3B", "1B", 0.543, 0.366)):
        pair = of_area[f"llama/{one}@coupled", f"llama/{two}@coupled", None]
        agreement = pair.agreement_coupled, pair.agreement_independent
        assert agreement == pytest.approx((coupled, apart), abs=6e-4)
    # The paper's Figure 2c reads 120 coupled samples beside 200 independent ones, at steps of 20,
    # by drawing.
    science = of_area["llama/3B@coupled", "llama/1B@coupled", "college_computer_science"]
    assert science.error == pytest.approx(0.0341, abs=0.0012)
    assert abs(science.coupled_samples - 120) <= 20


@pytest.mark.slow
def test_the_example_on_the_built_in_models_runs(tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "feval").write_text(f'#!/bin/sh\nexec "{sys.executable}" -W error -m feval "$@"\n')
    (programs / "feval").chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    command = ["sh", str(ROOT / "examples" / "coupled.sh"), str(tmp_path / "out"), "12", "4"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    result = read_json(tmp_path / "out" / "couple" / "couple.json")
    assert result["llms"] == ["feval/tiny-42k", "feval/tiny-90k"]
    [pair] = result["pairs"]
    assert (pair["questions"], pair["calls"]) == (12, 4)
    assert result["noise"] == {"scheme": "gumbel-v1", "seed": 7}
    assert result["independent_from"] == "recordings"
    assert "tiny-42k - tiny-90k" in done.stdout
