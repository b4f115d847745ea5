"""From a stranger's file to a curve with two commands: the numbers are those the methods' own
authors get.
"""

import json

import pytest
from command_line import told
from places import read_json

COT = ("mot-cascade", "mot_cascade/GPT3_result/date_cot1_40.json.gz", "bigbench_date")
POT = ("mot-cascade", "mot_cascade/GPT3_result/date_pot1.json.gz", "bigbench_date")
LETTERS = ("esc", "esc/GPT3.5_result/last_letters/T0.7.jsonl.gz", "last_letters")
RECORDINGS = {"date_cot1_40": COT, "date_pot1": POT, "last_letters_gpt35": LETTERS}
MIXTRAL = [0.08, 0.24]


@pytest.fixture(scope="module")
def goldens(shared):
    """Reference values by id."""
    listed = read_json(shared / "golden" / "methods.json")["goldens"]
    return {golden["id"]: golden for golden in listed}


@pytest.fixture(scope="module")
def recordings(shared, tmp_path_factory):
    """The real files, imported as the README says."""
    folder = tmp_path_factory.mktemp("recordings")
    for name, (form, source, dataset) in RECORDINGS.items():
        options = ["--dataset", dataset, "--answer-kind verbatim --llm gpt-3.5-turbo"]
        told("import", form, shared / "real" / source, *options, "--out", folder / name)
    return {name: folder / name for name in RECORDINGS}


@pytest.fixture(scope="module")
def prices(tmp_path_factory):
    """A price list that gives gpt-3.5-turbo the price the reference values were computed at."""
    path = tmp_path_factory.mktemp("prices") / "mixtral.json"
    prices = {
        "id": "as-mixtral",
        "date": "2025-06-02",
        "source": "a test",
        "prices": {"gpt-3.5-turbo": MIXTRAL},
    }
    path.write_text(json.dumps(prices))
    return path


def points(recording, dataset, counts, *options):
    named = ["--recording", recording, "--dataset", dataset, "--llm gpt-3.5-turbo"]
    result = told("curve self-consistency", *named, "--n", ",".join(map(str, counts)), *options)
    return {point["n"]: point for point in result["points"]}


def of(goldens, prefix):
    """N -> what is expected, for the goldens whose id starts so."""
    found = {
        golden["params"]["N"]: golden["expected"]
        for name, golden in goldens.items()
        if name.startswith(prefix)
    }
    assert found, prefix
    return found


@pytest.mark.parametrize("name", ["date_cot1_40", "last_letters_gpt35"])
def test_exact_curve(name, recordings, goldens):
    expected = of(goldens, f"sc.exact.{name}.")
    found = points(recordings[name], RECORDINGS[name][2], sorted(expected))
    for count, golden in expected.items():
        assert found[count]["accuracy"] == pytest.approx(golden["accuracy"], abs=1e-9)
        assert found[count]["kind"] == "exact"


@pytest.mark.parametrize("name", ["date_cot1_40", "last_letters_gpt35"])
def test_recorded_order(name, recordings, goldens):
    expected = of(goldens, f"sc.prefix.{name}.")
    found = points(recordings[name], RECORDINGS[name][2], sorted(expected), "--order recorded")
    for count, golden in expected.items():
        assert found[count]["accuracy"] == golden["correct"] / golden["questions"]
        assert found[count]["kind"] == "recorded"


def test_no_answer_casts_no_vote(recordings, goldens):
    expected = of(goldens, "sc.none.date_pot1.")
    exact = points(recordings["date_pot1"], "bigbench_date", sorted(expected))
    recorded = points(
        recordings["date_pot1"], "bigbench_date", sorted(expected), "--order recorded"
    )
    for count, golden in expected.items():
        assert exact[count]["accuracy"] == pytest.approx(golden["drop"], abs=1e-9)
        assert recorded[count]["accuracy"] == golden["prefix_drop_correct"] / 369


def test_cost_of_the_first_n(recordings, goldens, prices):
    expected = of(goldens, "cost.first_n.date_cot1_40.")
    options = ["--order recorded --prices", prices, "--billing once"]
    found = points(recordings["date_cot1_40"], "bigbench_date", sorted(expected), *options)
    for count, golden in expected.items():
        assert found[count]["usd_per_question"] * 369 == pytest.approx(golden["usd"], abs=1e-9)
        assert found[count]["tokens_per_question"] * 369 == pytest.approx(
            golden["tokens"], abs=1e-6
        )
        assert found[count]["accuracy"] * 369 == pytest.approx(golden["correct"], abs=1e-9)


def test_the_curve_says_what_it_rests_on(recordings):
    recording = recordings["date_cot1_40"]
    result = told("curve self-consistency --recording", recording, "--n 1..40")
    about = told("info", recording)
    assert result["recording_hash"] == about["recording_hash"]
    assert (result["prices"], result["billing"], result["counter"], result["questions"]) == (
        "2025-06-02",
        "once",
        "words",
        369,
    )
    assert [point["n"] for point in result["points"]] == list(range(1, 41))
    for point in result["points"]:
        assert point["accuracy_low"] < point["accuracy"] < point["accuracy_high"]
        assert point["accuracy"] <= point["pass_at_n"] + 1e-12
    cost = [point["usd_per_question"] for point in result["points"]]
    assert cost == sorted(cost)
    assert about["pairs"][0]["cots"] == 369 * 40
    assert told("verify", recording)["ok"]


def test_select_then_curve_sees_the_first_samples_only(recordings, tmp_path):
    told("select", recordings["date_cot1_40"], "--samples 10 --out", tmp_path / "ten")
    whole = points(recordings["date_cot1_40"], "bigbench_date", [1, 10], "--order recorded")
    assert points(tmp_path / "ten", "bigbench_date", [1, 10], "--order recorded") == whole
