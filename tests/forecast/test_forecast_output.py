"""What forecasts and plans print, draw and write."""

import csv
import io
import json
import os
import subprocess
import sys

import pytest
from command_line import failed, feval, succeeded, told
from forecasts import GOLDS, NAME, POOLS, accuracies
from places import ROOT, read_data, read_json
from settings_files import settings_file
from small import write_toy

from feval.forecast import METHODS, estimate, plan
from feval.replay import load
from feval.report import pictures
from feval.report.tables.forecasts import (
    FORECAST_COLUMNS,
    forecast_records,
    forecast_tables,
    plan_tables,
)
from feval.report.tables.tables import plain, records_csv


def test_tables_csv_and_picture_show_every_estimator(loaded):
    result = estimate(*loaded, g=3, m=[1, 3, 9], methods=METHODS, resamples=200)
    output = "".join(map(plain, forecast_tables(result)))
    assert all(method in output for method in METHODS)
    assert "*: recommended" in output
    tables = [line for line in output.splitlines() if line.split()[0] in ("M", "1", "3", "9")]
    assert max(map(len, tables)) <= 100
    rows = list(csv.reader(io.StringIO(records_csv(forecast_records(result)))))
    assert tuple(rows[0]) == FORECAST_COLUMNS
    assert len(rows) == 1 + len(METHODS) * 3
    assert float(rows[1][3]) == accuracies(result, "plug-in")[0]
    picture = pictures.forecast(result).png(60)
    assert picture.startswith(b"\x89PNG")
    assert picture == pictures.forecast(result).png(60)


def test_the_bounds_of_one_number_of_votes_have_a_bar_and_two_marks(loaded):
    result = estimate(*loaded, g=2, m=[5], methods=["two-call"], resamples=200)
    [axes] = pictures.forecast(result).figure().axes
    [bar] = axes.collections
    low, high = (float(y) for _, y in bar.get_segments()[0])
    [point] = result.estimates[0].points
    assert (low, high) == pytest.approx((100 * point.low, 100 * point.high))
    assert sum(line.get_marker() == "_" for line in axes.lines) == 2


def test_a_picture_says_what_is_extrapolated_and_lists_only_what_is_drawn(loaded):
    for votes, words in (
        ([1, 3], ""),
        ([2, 5], "right of the dotted line"),
        ([5, 6], "all M are above G = 3"),
    ):
        drawn = estimate(*loaded, g=3, m=votes, methods=["plug-in"], resamples=200)
        [axes] = pictures.forecast(drawn).figure().axes
        [text] = [text.get_text() for text in axes.texts if text.get_text().startswith("from ")]
        assert words in text
        assert ("extrapolated" in text) is bool(words)
    nothing = estimate(*loaded, g=3, m=[9], methods=["unbiased"], resamples=200)
    assert pictures.forecast(nothing).figure().legends == []
    assert "No estimator asked for is recommended" in plain(forecast_tables(nothing)[0])


def test_the_plan_is_shown_with_its_cost(loaded):
    result = plan(*loaded, budget_usd=1.0, most_votes=9)
    output = "".join(map(plain, plan_tables(result)))
    assert "certified to help" in output
    assert "plurality %" in output
    assert "majority, surely %" in output
    nine = next(line for line in output.splitlines() if line.strip().startswith("9 "))
    assert f"{100 * result.options[-1].plurality:.2f} *" in nine
    assert "*: beyond M = 6, at the pilot's shares" in output
    few = "".join(map(plain, plan_tables(plan(*loaded, budget_usd=1.0, most_votes=5))))
    assert "*" not in few
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["budget"] == {
        "amount": 1.0,
        "unit": "usd",
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_toy(
        tmp_path_factory.mktemp("command") / "toy",
        {NAME: POOLS, "unsold": POOLS, "unsold-2": POOLS},
        GOLDS,
    )


def test_estimate_prints_tables_and_warnings_and_writes_files(folder, tmp_path):
    asked = "estimate", "--recording", folder, "--llm", NAME, "--g", "3", "--m", "1..9"
    requested = *asked, "--out", tmp_path / "out"
    done = succeeded(*requested, "--method", "plug-in,two-call")
    assert "mean |error|" in done.stdout
    assert "Beyond M = 3 it levels off at the accuracy of a 3-call vote" in done.stderr
    assert "note: two-call: a cell of the pair table (4 questions) is" in done.stderr
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["estimate.csv", "estimate.json", "estimate.png", "receipt.json"]
    result = estimate(*_open(folder), g=3, m=range(1, 10), methods=["plug-in", "two-call"])
    assert read_json(tmp_path / "out" / "estimate.json") == json.loads(json.dumps(result.to_dict()))
    assert feval(*requested, "--method", "plug-in,two-call", "--quiet").output == ""
    again = feval(*requested, "--method", "plug-in")
    assert (again.exit_code, "--force" in again.stderr) == (1, True)


def test_estimate_answers_first_and_prices_its_votes(folder):
    asked = "estimate", "--recording", folder, "--llm", NAME, "--g", "3", "--m", "1..9"
    shown = feval(*asked).output
    answer = shown.index("by unbiased, the recommended estimator")
    assert shown.index("unbiased % *") < answer < shown.index("note: ")
    assert "USD per 1,000 questions" in shown
    once, apart, free = (
        told(*asked, *more) for more in ((), ("--billing", "per_sample"), ("--prices", "none"))
    )
    bought = plan(*_open(folder), budget_usd=1.0).options[1]
    assert once["usd_per_question"][2] == bought.usd_per_question
    assert once["tokens_per_question"][2] < apart["tokens_per_question"][2]
    assert (set(free["usd_per_question"]), free["prices"]) == ({None}, None)


def test_every_llm_without_a_price_is_named(folder):
    unsold = "--llm", "unsold", "--llm", "unsold-2", "--set", "samples=2"
    said = feval("run", "model-switch", "--recording", folder, *unsold).stderr
    assert "has no price for 'unsold', 'unsold-2'" in said


def _open(folder):
    dataset, [llm] = load("toy", [NAME], folder)
    return dataset, llm


def test_plan_says_what_to_buy(folder, tmp_path):
    settings = settings_file(tmp_path, "questions = 50")
    done = succeeded("plan", "--budget", "1usd", "--recording", folder, "--llm", NAME, *settings)
    assert "1 USD for 50 questions" in done.stdout
    assert "note: The intervals are for the pilot's 4 questions;" in done.stderr


@pytest.mark.parametrize(("arguments", "code", "piece"), read_data("forecasts.json")["wrong usage"])
def test_wrong_usage_is_one_sentence(folder, arguments, code, piece):
    failed(feval(arguments, "--recording", folder), code, piece)


@pytest.mark.slow
def test_the_calibration_study_runs_on_the_bundled_recording():
    program = "-W error examples/calibration_study.py recorders/tiny/recording --replicates 1"
    options = "--draws 4 --calls 2,3 --methods plug-in,ldgp,unbiased"
    done = subprocess.run(
        [sys.executable, *program.split(), *options.split()],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("200 questions, pools of 40") == 3
    assert done.stdout.count("Two-call intervals") == 3
