"""Plans and comparisons: TOML, methods that fail, and numbers against the evaluations they are made
from.
"""

import csv
import io
import json
import math
import shutil
import sys
import types
from dataclasses import replace
from datetime import date

import numpy as np
import pyarrow.parquet as pq
import pytest
from command_line import feval, said, told
from compared import GOLDS, STRONG, WEAK
from hypothesis import given, strategies as st
from places import forge, read_data, read_json
from scipy.stats import skew
from small import write_toy

from feval import ModelSwitch, compare, evaluate, load, merge, method_curve, self_consistency_curve
from feval.cli.output import print_table
from feval.comparison.plan import ComparedMethod, Plan
from feval.comparison.statistics import BestPoint
from feval.errors import NotRecordedError, UnknownNameError, UsageError
from feval.estimators.comparisons import accuracy_at, holm
from feval.estimators.intervals import difference_test
from feval.methods import SelfConsistency
from feval.publish.release import result_block
from feval.receipts.document import comparison_receipt
from feval.receipts.verifying import verify_receipt
from feval.recording import DatasetInfo, LLMInfo, PoolRows, Question, RecordingWriter
from feval.report import pictures
from feval.report.page.document import table_data
from feval.report.tables import questions_parquet
from feval.report.tables.comparisons import comparison_tables, named_point, results_csv
from feval.report.tables.tables import curves_table, evaluation_tables

pytestmark = pytest.mark.usefixtures("blank_pictures")

SC = {"name": "self-consistency", "llms": ["gpt-3.5-turbo"], "budgets": {"n": [1, 3, 5]}}
OTHER = SC | {"llms": ["gpt-4o-mini"], "label": "strong"}
STOPPING = SC | {"name": "adaptive-consistency", "budgets": {"budget": [1, 5]}}
USERS = (
    "def first(question, llm):\n    return llm.sample(1).answers[0]\n\ndef broken(question, llm):\n"
    "    return 1 / 0\n"
)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """What `toy` is a copy of."""
    folder = tmp_path_factory.mktemp("toy")
    write_toy(folder / "rec", {"gpt-3.5-turbo": WEAK * 5, "gpt-4o-mini": STRONG * 5}, GOLDS * 5)
    (folder / "mine.py").write_text(USERS)
    return folder


@pytest.fixture
def toy(original, tmp_path):
    """A folder with a recording `rec` and a user's file `mine.py`."""
    return shutil.copytree(original, tmp_path / "toy")


def plan(*methods, **settings):
    content = {
        "dataset": "toy",
        "recordings": ["rec"],
        "resamples": 500,
        "method": list(methods) or [SC],
    }
    return Plan.from_dict(content | settings)


def compare_in(folder, *methods, **settings):
    """The comparison of a plan whose recording is in a folder."""
    return compare(plan(*methods, **settings), base=folder)


@pytest.fixture(scope="module")
def comparison(original):
    return compare_in(original, SC, OTHER, replicates=5, seed=3)


FULL = """
dataset = "toy"
recordings = ["rec"]
order = "seeded"
train_fraction = 0.25
costs = [0.001, 2]

[[method]]
name = "self-consistency"
label = "a \\"quoted\\" label \\u007f ü"
llms = ["one", "two@t=0.8"]
budgets = { n = [1, 2] }

[[method]]
name = "my/file.py:method"
llms = "one"
fields = { shares = ["0.5", "0.9"], strict = true, "odd key" = { inner = 1.5 } }
"""


def test_a_plan_survives_its_file(tmp_path):
    (tmp_path / "plan.toml").write_text(FULL)
    read = Plan.read(tmp_path / "plan.toml")
    assert read.entries[0] == ComparedMethod(
        label='a "quoted" label \x7f ü',
        method="self-consistency",
        llms=("one", "two@t=0.8"),
        sweep=("n", (1, 2)),
    )
    assert read.entries[1].label == "my/file.py:method"
    assert read.entries[1].fields["shares"] == ("0.5", "0.9")
    assert (read.order, read.train_fraction, read.costs) == ("seeded", 0.25, (0.001, 2))
    (tmp_path / "again.toml").write_text(read.to_toml())
    assert Plan.read(tmp_path / "again.toml") == read
    assert Plan.from_dict(json.loads(json.dumps(read.to_dict()))) == read


VALUES = st.one_of(
    st.booleans(), st.integers(-(2**40), 2**40), st.floats(allow_nan=False), st.text(max_size=8)
)


@given(
    label=st.text(min_size=1, max_size=20).filter(str.strip),
    settings=st.dictionaries(
        st.text(max_size=6), st.one_of(VALUES, st.lists(VALUES, max_size=3)), max_size=3
    ),
    values=st.lists(st.integers(1, 99), min_size=1, max_size=5, unique=True),
)
def test_any_plan_survives_toml(label, settings, values):
    import tomllib

    method = {"name": "m", "label": label, "llms": ["x"], "fields": settings}
    result = plan(method | {"budgets": {"no field": values}})
    assert Plan.from_dict(tomllib.loads(result.to_toml())) == result


@pytest.mark.parametrize(
    ("settings", "method", "words"),
    [
        *read_data("comparisons.json")["what a plan refuses"],
        ({"costs": [math.inf]}, {}, "'costs.0'.*finite"),
        ({}, {"fields": {"k": math.nan}}, "Method 1 .*'fields' .nan is not text, a number"),
        (
            {},
            {"budgets": {"n": [1, date(1979, 5, 27)]}},
            "Method 1 .*'budgets.*1979, 5, 27. is not text",
        ),
        ({"method": [SC, SC]}, {}, "labelled 'self-consistency .gpt-3.5-turbo.'; give each"),
    ],
)
def test_what_a_plan_refuses(settings, method, words):
    with pytest.raises(UsageError, match=words):
        plan(SC | method, **settings)


def test_infinite_fields_survive_every_file(toy):
    mot = {
        "name": "mixture-of-thoughts",
        "llms": ["gpt-3.5-turbo", "gpt-4o-mini"],
        "fields": {"samples": 3},
    }
    made = plan(mot | {"budgets": {"threshold": [0.5, math.inf]}}, replicates=2)
    assert Plan.from_dict(json.loads(json.dumps(made.to_dict(), allow_nan=False))) == made
    said("compare", written(toy, made), "--out", toy / "out")
    said("verify", toy / "out" / "receipt.json")
    said("compare", toy / "out" / "comparison.toml", "--json")


def test_a_plan_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        Plan.read(tmp_path / "nowhere.toml")
    for content in (b"dataset = ", b"\xff\xfe", b"a = " + b"[" * 5000):
        (tmp_path / "bad.toml").write_bytes(content)
        with pytest.raises(UsageError, match=r"bad\.toml is not valid TOML"):
            Plan.read(tmp_path / "bad.toml")
    (tmp_path / "bad.toml").write_text("seed = 1")
    with pytest.raises(UsageError, match="lacks the field 'dataset'"):
        Plan.read(tmp_path / "bad.toml")


def test_points_are_what_evaluate_says(comparison, toy):
    dataset, [weak] = load("toy", ["gpt-3.5-turbo"], toy / "rec", seed=3)
    alone = evaluate(SelfConsistency(3), dataset, weak)
    point = comparison.curves[0].points[1]
    assert point.to_dict() == alone.to_dict()
    np.testing.assert_array_equal(point.right, alone.right)
    single = evaluate(SelfConsistency(1), dataset, weak)
    np.testing.assert_array_equal(comparison.baselines[0].right, single.right)
    assert [len(curve.points) for curve in comparison.ceilings] == [5, 5]
    assert comparison.ceilings[0].points[-1].accuracy >= comparison.curves[0].points[-1].accuracy


def test_differences_are_those_of_the_questions(comparison):
    weak, strong = comparison.curves
    order = np.argsort(weak.points[0].question_keys)

    def at(points, cost):
        costs = np.array([point.usd.mean() for point in points])
        return accuracy_at(cost, costs, np.stack([point.right for point in points], axis=1))[order]

    assert len(comparison.differences) == comparison.tests == 3
    for row in comparison.differences:
        assert row.cost_a == row.cost_b
        per_question = at(weak.points, row.cost_a) - at(strong.points, row.cost_b)
        alone = difference_test(per_question[:, None])
        assert row.difference == pytest.approx(per_question.mean())
        assert (row.low, row.high) == pytest.approx((alone.low[0], alone.high[0]), abs=1e-9)
        assert row.p_value == alone.p_value[0]
        assert row.skewness == pytest.approx(skew(per_question) / np.sqrt(20))
        assert row.p_holm >= row.p_value
    questions = comparison.curves[0].points[0].questions
    assert comparison.least_p(3) == 3 * difference_test(np.ones((questions, 1))).p_value[0]


def test_significant_differences_that_few_questions_decide_are_warned_of(comparison):
    first, *others = comparison.differences
    decided = replace(first, p_holm=0.01, skewness=-0.3)
    clear = [replace(row, p_holm=0.01, skewness=0.1) for row in others]
    warnings = replace(comparison, differences=(decided, *clear)).warnings
    assert any(
        text.startswith("Few questions with large differences on one side decide 1 of the 3")
        for text in warnings
    )
    doubtful = replace(comparison, differences=(replace(decided, p_holm=0.2), *clear))
    assert not any("on one side" in text for text in doubtful.warnings)


def test_numbers_per_question_are_written_in_row_groups(comparison, toy, monkeypatch):
    split = comparison.plan.changed(train_fraction=0.25)
    assert compare(split, base=toy).curves[0].points[0].right.shape == (15,)
    columns = {name: list(column) for name, column in comparison.per_question().items()}
    for rows, groups in ((50, 3), (8, 18)):  # two points in a row group, or a point in three
        monkeypatch.setattr("feval.report.tables.parquet._ROW_GROUP", rows)
        file = io.BytesIO()
        questions_parquet(comparison, file)
        assert pq.read_table(file).to_pydict() == columns
        written = pq.ParquetFile(file)
        assert written.num_row_groups == groups
        ids = [written.read_row_group(group).column("question").chunk(0) for group in range(groups)]
        # those of its rows, not of all questions
        assert max(len(column.dictionary) for column in ids) <= min(rows, 20)


def test_swapping_two_methods_swaps_every_sign(comparison, toy):
    first = SC | {"label": "self-consistency (gpt-3.5-turbo)"}
    swapped = compare_in(toy, OTHER, first, replicates=5, seed=3)
    for row, back in zip(comparison.differences, swapped.differences, strict=True):
        assert (back.difference, back.low, back.high) == pytest.approx(
            (-row.difference, -row.high, -row.low), abs=1e-12
        )
        assert (back.p_value, back.flips) == pytest.approx((row.p_value, row.flips))
    for saving, back in zip(comparison.savings, swapped.savings, strict=True):
        assert (back.cost_a, back.cost_b, back.never_a) == pytest.approx(
            (saving.cost_b, saving.cost_a, saving.never_b)
        )
    assert [rank.strength for rank in comparison.ranking] == pytest.approx(
        [rank.strength for rank in swapped.ranking]
    )


def test_a_method_compared_with_itself_differs_by_nothing(toy):
    result = compare_in(toy, SC | {"label": "one"}, SC | {"label": "two"})
    for row in result.differences:
        assert (row.difference, row.low, row.flips) == (0, -row.high, 0.5)
        # equal answers to so many questions leave room for a difference on others
        assert 0 < row.high < 1
    assert [row.p_value for row in result.differences] == [None, 1, 1]  # the first is no test
    assert {saving.ratio for saving in result.savings} == {1.0}
    assert [(rank.rank, rank.strength, rank.first) for rank in result.ranking] == [(1, 0, 0.5)] * 2
    assert len(result.frontier) % 2 == 0  # equal points are on it together


def test_curves_that_begin_alike_are_not_tested_there(toy):
    result = compare_in(toy, SC, STOPPING, OTHER)
    pair = {"self-consistency (gpt-3.5-turbo)", "adaptive-consistency"}
    alike = [row for row in result.differences if {row.a, row.b} == pair]
    assert [row.p_value is None for row in alike] == [True] + [False] * (len(alike) - 1)
    assert alike[0].p_holm is None
    assert "same answers at the same cost" in str(alike[0].untested)
    assert result.tests == len(result.differences) - 1
    tested = [row for row in result.differences if row.p_value is not None]
    assert [row.p_holm for row in tested] == holm([row.p_value for row in tested]).tolist()
    shown = run(written(toy, result.plan), "--all").stdout
    assert "no p value: Both curves begin with the same answers" in shown
    assert f"{result.tests} comparisons; p (Holm)" in shown


@pytest.mark.parametrize("given", [{"dataset": "sums"}, {"llms": ["m"]}, {"budgets": [1]}])
def test_what_a_plan_states_is_not_given_beside_it(toy, given):
    with pytest.raises(UsageError, match="A plan states the dataset, LLMs and budgets"):
        compare(plan(SC), base=toy, **given)


def test_a_receipt_is_verified_by_the_price_list_that_its_plan_names(toy, tmp_path):
    own = toy / "own.json"
    each = {"gpt-3.5-turbo": [0.5, 1.5], "gpt-4o-mini": [0.5, 1.5]}
    content = {"id": "own", "date": "2026-01-31", "source": "x", "prices": each}
    own.write_text(json.dumps(content))
    priced = written(toy, plan(SC).changed(prices="own.json"))
    said("compare", priced, "--out", tmp_path / "made")
    receipt = tmp_path / "made" / "receipt.json"
    assert verify_receipt(receipt).equal
    own.unlink()
    assert verify_receipt(receipt).equal  # it holds the numbers of the list


def test_three_questions_are_never_significant(tmp_path):
    pools = {"gpt-3.5-turbo": [["b"] * 5] * 3, "gpt-4o-mini": [["a"] * 5] * 3}
    write_toy(tmp_path / "rec", pools, ["a"] * 3)
    result = compare_in(tmp_path, SC, OTHER)
    for row in result.differences:
        assert row.p_value > 0.2
        assert (row.difference, row.low, row.high > 0) == (-1, -1, True)
    assert result.warnings[0].startswith("Only 3 questions: below 10, intervals")
    assert result.to_dict()["warnings"] == list(result.warnings)
    assert "Only 3 questions" in run(written(tmp_path, result.plan)).stdout


SWITCH = {
    "name": "model-switch",
    "llms": ["gpt-3.5-turbo", "gpt-4o-mini"],
    "budgets": {"samples": [1, 2]},
}


def test_all_methods_are_exact_if_every_one_can_be(toy):
    result = compare_in(
        toy, SC, {"name": "adaptive-consistency", "llms": ["gpt-4o-mini"], "fields": {"budget": 5}}
    )
    assert result.kinds == ("exact",)
    assert [point.kind for point in result.baselines] == ["exact", "exact"]
    dataset, [weak] = load("toy", ["gpt-3.5-turbo"], toy / "rec")
    curve = self_consistency_curve(dataset, weak, [1, 3, 5])
    assert [point.accuracy for point in result.curves[0].points] == [
        point.accuracy for point in curve.points
    ]


def test_progress_counts_the_cots_of_every_draw(toy):
    steps = []
    compare(plan(SC, SWITCH, replicates=4), base=toy, progress=lambda *step: steps.append(step))
    assert {total for _, total in steps} == {4 * (1 + 3 + 5) + 4 * (2 * 1 + 2 * 2)}
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert steps[-1][0] == steps[-1][1]


def test_all_methods_share_their_draws_if_one_cannot_be_exact(toy):
    result = compare_in(toy, SC, SWITCH, replicates=4)
    assert result.kinds == ("seeded",)
    assert {point.kind for point in result.baselines} == {"seeded"}
    [sentence] = [sentence for sentence in result.warnings if "seeded" in sentence]
    assert "model-switch has no exact expectation" in sentence
    assert "`feval curve` (self-consistency) differ from these" in sentence


def test_kinds_are_mixed_only_where_asked_for_and_every_label_says_so(toy):
    result = compare_in(toy, SC, SWITCH, replicates=4, order="mixed")
    assert result.kinds == ("exact", "seeded")
    labels = ["self-consistency [exact]", "model-switch [seeded]"]
    assert [curve.label for curve in result.curves] == labels
    assert {name for row in result.differences for name in (row.a, row.b)} == set(labels)
    assert {row.label for row in result.ranking} == set(labels)
    drawn = pictures.comparison(result).figure()
    named = [*drawn.axes[0].texts, *drawn.legends[0].get_texts()]
    assert set(labels) <= {text.get_text() for text in named}
    assert any(
        sentence.startswith("Exact and seeded methods are mixed") for sentence in result.warnings
    )
    assert all(row[0] in labels for row in comparison_tables(result)[0].rows[:5])
    file = written(toy, plan(SC, SWITCH, replicates=4))
    mixed = told("compare", file, "--order", "mixed")
    assert (mixed["kinds"], mixed["plan"]["order"]) == (["exact", "seeded"], "mixed")


def test_prompts_paid_once_are_said_where_calls_are_many(toy):
    result = compare_in(toy, SC, STOPPING)
    dearest = compare_in(toy, SC, STOPPING, billing="per_round").curves[1].points[1]
    shown = result.curves[1].points[1]
    assert shown.usd_per_question_per_round == pytest.approx(dearest.usd_per_question)
    [sentence] = [sentence for sentence in result.warnings if "per_round" in sentence]
    assert sentence.startswith(
        f"adaptive-consistency makes {shown.calls_per_question:.2f} calls per question"
    )
    printed = feval("compare", written(toy, result.plan), "--all", terminal_width=400).stdout
    assert "USD per 1,000 questions, per_round" in printed
    assert sentence in printed.replace("\n", " ")
    assert "per_round" not in str(compare_in(toy, SC).warnings)


def test_methods_without_a_common_cost_are_compared_at_their_dearest_points(toy):
    cheap, dear = ({"label": f"{n}", "budgets": {"n": n}} for n in ([1, 2], [5]))
    result = compare_in(toy, SC | cheap, SC | dear)
    assert (result.differences, result.tests) == ((), 0)
    [row] = result.unequal_costs
    a, b = result.curves[0].points[1], result.curves[1].points[0]
    assert (row.cost_a, row.cost_b) == pytest.approx((a.usd_per_question, b.usd_per_question))
    assert (row.accuracy_a, row.accuracy_b) == pytest.approx((a.accuracy, b.accuracy))
    assert row.p_holm == row.p_value  # a family of its own
    shown = run(written(toy, result.plan), "--all").stdout
    assert "1 pair of methods shares no cost" in shown
    assert "Difference in accuracy, not at equal cost" in shown
    assert "equal cost, in percentage points\n" not in shown.replace("not at equal cost, in", "")
    assert "each at its most expensive point, not at equal cost" in shown  # the ranking


def test_given_costs_and_accuracies_are_those_looked_at(toy):
    asked = {"cost": "samples", "costs": [2, 4, 9], "accuracies": [0.5, 1.0]}
    result = compare_in(toy, SC, OTHER, **asked)
    assert [row.cost_a for row in result.differences] == [2, 4]  # nobody has 9 CoTs
    assert [reach.accuracy for reach in result.reaches] == [0.5, 1.0] * 2
    assert result.reaches[1].cost is None
    assert result.reaches[1].never > 0
    assert result.savings[1].ratio is None


def test_what_fails_is_kept_with_its_reason_while_the_others_go_on(toy):
    result = compare(
        plan(
            SC | {"budgets": {"n": [1, 3, 7]}},
            SC | {"label": "zero", "budgets": {"n": [0]}},
            SC | {"label": "unheard of", "name": "self-consistancy"},
            SC | {"label": "field", "budgets": {"k": [1, 2]}},
            SC | {"label": "llm", "llms": ["gpt-4o"]},
            SC | {"label": "two llms", "llms": ["gpt-4o-mini", "gpt-3.5-turbo"]},
            {"label": "mine", "name": "mine.py:first", "llms": ["gpt-4o-mini"]},
            {"label": "broken", "name": "mine.py:broken", "llms": ["gpt-4o-mini"]},
            {"label": "absent", "name": "nowhere.py:first", "llms": ["gpt-4o-mini"]},
            {"label": "ceiling", "name": "oracle", "llms": ["gpt-4o-mini"]},
            replicates=2,
        ),
        base=toy,
        methods=[f"{toy}/mine.py:{name}" for name in ("first", "broken")],
    )
    assert [curve.label for curve in result.curves] == ["self-consistency (gpt-3.5-turbo)", "mine"]
    reasons = {one.label: one.reason for one in result.missing}
    first = result.curves[0]
    assert len(first.points) == 2
    assert reasons[f"{first.label}, n=7"].startswith(
        "The method self-consistency cannot be evaluated: gpt-3.5-turbo has 6 recorded CoTs on"
        " question 'toy/"
    )
    expected = {
        "zero": "1 or more; n=0 was given",
        "unheard of": "Did you mean 'self-consistency'",
        "field": "There is no field 'k'",
        "llm": "no recorded LLM 'gpt-4o'. Did you mean 'gpt-4o-mini'",
        "broken": "toy/",
        "absent": "no file",
        "ceiling": "cannot be compared with methods",
    }
    for label, words in expected.items():
        assert words in reasons[label]
    assert result.to_dict()["missing"][0].keys() == {"label", "reason"}


def test_a_comparison_of_nothing_is_refused(toy):
    with pytest.raises(
        UsageError, match=r"No method of the comparison could be evaluated.*7 were asked for"
    ):
        compare_in(toy, SC | {"budgets": {"n": [7]}})
    with pytest.raises(UsageError, match="No LLM of the comparison is recorded"):
        compare_in(toy, SC | {"llms": ["gpt-4o"]})
    with pytest.raises(NotRecordedError):
        compare_in(toy, SC, dataset="gsm8k")


def test_without_dollars_another_axis_is_named(toy):
    known = "output-tokens, sequential-tokens, calls, samples"
    with pytest.raises(UsageError, match=f"another cost: cost='tokens', or one of {known}"):
        compare_in(toy, SC, prices="none")
    result = compare_in(toy, SC, prices="none", cost="tokens")
    assert result.curves[0].points[0].usd is None
    assert np.isnan(result.per_question()["usd"]).all()


def test_a_split_is_the_same_for_all(toy):
    result = compare(
        plan(
            SC, {"name": "mine.py:first", "llms": ["gpt-4o-mini"]}, train_fraction=0.5, replicates=2
        ),
        base=toy,
        methods=[f"{toy}/mine.py:first"],
    )
    curves = (*result.curves, *result.ceilings)
    everything = [*(point for curve in curves for point in curve.points), *result.baselines]
    assert len({tuple(point.question_ids) for point in everything}) == 1
    assert {point.train_questions for point in everything} == {10}


def test_a_frame_needs_a_library(comparison, monkeypatch):
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match="A DataFrame needs pandas or polars"):
        comparison.to_frame()
    with pytest.raises(UnknownNameError, match=r"'pandsa'.*'pandas'"):
        comparison.to_frame("pandsa")
    monkeypatch.setitem(sys.modules, "polars", types.SimpleNamespace(DataFrame=dict))
    frame = comparison.to_frame(rows="questions")
    assert {len(column) for column in frame.values()} == {6 * 20}
    with pytest.raises(UsageError, match="needs pandas"):
        comparison.to_frame("pandas")


def written(folder, content):
    (folder / "plan.toml").write_text(content.to_toml())
    return folder / "plan.toml"


def run(*arguments):
    return feval("compare", *arguments)


def refused(code, words, *arguments):
    """Run a command that ends with this code, and says these words."""
    done = feval(*arguments)
    assert (done.exit_code, words in done.output) == (code, True), done.output


def test_compare_writes_what_it_shows(toy):
    methods = (
        SC,
        {"name": "mine.py:first", "llms": ["gpt-4o-mini"]},
        SC | {"label": "too many", "budgets": {"n": [7]}},
    )
    file, mine = written(toy, plan(*methods, replicates=2)), f"--method={toy}/mine.py:first"
    out = toy / "out" / "here"
    shown = said("compare", file, mine, "--out", out)
    everything = said("compare", file, mine, "--all")
    few = ("Best at three budgets", "shares no cost", "--all", "  too many: ")
    every = ("Difference in accuracy", "Cost at equal accuracy", "Ranking", "p (Holm)")
    for words in ("Pareto frontier", "Missing"):
        assert words in shown
        assert words in everything
    assert all(words in shown for words in few)
    assert all(words in everything for words in every)
    assert len(shown.splitlines()) <= 40
    result = read_json(out / "comparison.json")
    printed = told("compare", file, mine)
    assert verify_receipt(out / "receipt.json", methods=[f"{toy / 'mine.py'}:first"]).equal
    assert result | {"receipt": None} == printed
    rows = list(csv.DictReader(io.StringIO((out / "results.csv").read_text())))
    assert [row["role"] for row in rows].count("method") == 4
    accuracy = result["curves"][0]["points"][1]["accuracy"]
    assert float(rows[1]["accuracy"]) == accuracy
    typed = pq.read_table(out / "results.parquet").to_pylist()
    texts = [{name: str(value) for name, value in row.items()} for row in typed]
    for row, text in zip(typed, texts, strict=True):
        text["frontier"] = "yes" if row["frontier"] else "no"
    assert texts == rows
    assert typed[1]["accuracy"] == accuracy
    table = pq.read_table(out / "questions.parquet").to_pydict()
    own = [right for right, point in zip(table["right"], table["point"], strict=True) if point == 1]
    assert np.mean(own) == pytest.approx(accuracy)
    moved = told("compare", out / "comparison.toml", mine)
    assert moved["differences"] == result["differences"]
    said("compare", file, mine, "--out", out)
    written(toy, plan(SC))
    refused(1, "--force", "compare", file, mine, "--out", out)
    said("compare", file, mine, "--out", out, "--force")


def test_files_and_receipt_take_what_was_loaded_for_the_numbers(comparison, original, monkeypatch):
    again = replace(comparison, loaded=None)
    receipts = [comparison_receipt(one, original, original) for one in (comparison, again)]
    assert receipts[0] == receipts[1]
    monkeypatch.setattr(
        "feval.comparison.comparison.load", lambda *_, **__: pytest.fail("loaded again")
    )
    assert comparison_receipt(comparison, original, original) == receipts[0]


def test_a_first_plan_can_be_run(toy):
    file = toy / "first.toml"
    init = "--init", "--recording", toy / "rec"
    assert "feval compare" in said("compare", file, *init, "--dataset", "toy")
    result = told("compare", file)
    assert result["missing"] == []
    assert {point["llms"][0] for point in result["baselines"]} == {"gpt-3.5-turbo", "gpt-4o-mini"}
    for more, cost in (([], "usd"), (["--prices", "none"], "tokens")):  # as its prices do
        made = said("compare", toy / f"{cost}.toml", *init, "--llm", "gpt-4o-mini", "--json", *more)
        first = json.loads(made)["plan"]
        assert (first["cost"], first["method"][0]["llms"]) == (cost, ["gpt-4o-mini"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.toml"], "cannot be read"),
        (["nowhere.toml", "--recording", "x"], "change it there"),
        (["nowhere.toml", "--init", "--out", "x"], "computes nothing"),
    ],
)
def test_what_compare_refuses(arguments, words):
    refused(2, words, "compare", *arguments)


def test_every_point_counts_for_the_frontier_also_where_two_cost_the_same(toy):
    (toy / "recorded.py").write_text(
        "def none(question, llm):\n    llm.sample(1)\n    return None\n\n"
        "def first(question, llm):\n    return llm.sample(1).answers[0]\n"
    )
    users = [{"name": f"recorded.py:{name}", "llms": ["gpt-4o-mini"]} for name in ("none", "first")]
    given = [f"{toy}/recorded.py:{name}" for name in ("none", "first")]
    result = compare(plan(*users, cost="samples", order="recorded"), base=toy, methods=given)
    assert [point.label for point in result.frontier] == ["recorded.py:first"]
    assert result.areas == ()
    [row] = result.differences
    assert (row.cost_a, row.accuracy_a) == (1.0, 0.0)


@pytest.mark.parametrize("width", [80, 120, 200])
def test_nothing_of_a_comparison_is_cut_on_a_terminal(width, comparison, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for name, value in (("COLUMNS", str(width)), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)
    for table in comparison_tables(comparison):
        monkeypatch.setattr("sys.stdout", out := Terminal())
        print_table(table, apart=False)
        drawn = out.getvalue()
        assert "…" not in drawn
        assert max(map(len, drawn.splitlines())) <= width
        numbers = [
            i for i, column in enumerate(table.columns) if column.number and not column.spare
        ]
        for row in table.rows:
            assert any(all(row[i] in line for i in numbers) for line in drawn.splitlines()), row


def test_many_pairs_are_shown_for_the_strongest_method_alone(comparison):
    one = comparison.differences[0]
    others = [replace(one, a=f"method {i}", b=f"method {i + 1}") for i in range(40)]
    many = replace(comparison, differences=(*comparison.differences, *others))
    table = next(table for table in comparison_tables(many) if table.title.startswith("Difference"))
    assert len(table.rows) == len(comparison.differences)
    assert f"all {len(many.differences)} lines" in table.notes[0]


MINE = {"label": "mine", "name": "mine.py:first", "llms": ["gpt-4o-mini"]}


@pytest.fixture(scope="module")
def compared(original, tmp_path_factory):
    """The files of a comparison with a method of the user's, one that raises and one that is not
    there.
    """
    folder = shutil.copytree(original, tmp_path_factory.mktemp("compared") / "toy")
    broken = MINE | {"label": "broken", "name": "mine.py:broken"}
    absent = MINE | {"label": "absent", "name": "nowhere.py:first"}
    fielded = MINE | {"label": "fielded", "fields": {"k": 3}}
    file = written(folder, plan(SC, MINE, broken, absent, fielded, replicates=2, order="seeded"))
    given = [f"--method={folder}/mine.py:{name}" for name in ("first", "broken")]
    assert run(file, *given, "--out", folder / "out").exit_code == 0
    return folder / "out"


@pytest.fixture
def receipt(toy, compared):
    return shutil.copytree(compared, toy / "out") / "receipt.json"


def test_a_comparison_is_computed_again_from_its_receipt(receipt, toy, compared):
    (toy / "elsewhere").mkdir()
    copy = (toy / "mine.py").rename(toy / "elsewhere" / "same.py")
    command = "verify", receipt, "--method", f"{copy}:first", "--method", f"{copy}:broken"
    assert "all equal" in said(*command)
    assert str(compared.parent) not in receipt.read_text()  # nothing of this machine
    forge(receipt, "numbers.unequal_costs.0.p_holm", 0.25)
    refused(1, "unequal_costs[0].p_holm: the receipt says 0.25", *command)


def test_a_comparison_receipt_runs_no_method_that_is_not_given_again(receipt, toy):
    refused(1, "--method FILE.py:first", "verify", receipt)
    (toy / "mine.py").write_text(USERS + "# changed\n")
    refused(1, "", "verify", receipt, "--method", f"{toy / 'mine.py'}:first")
    (toy / "mine.py").write_text(f"open({str(toy / 'ran')!r}, 'w')\n" + USERS)
    forge(receipt, "request.sources", {})
    refused(2, "without the hash of its source", "verify", receipt)
    assert not (toy / "ran").exists()


def test_a_comparison_receipt_opens_no_price_list_of_its_choice(toy):
    file = written(toy, plan(SC, cost="tokens", prices="none"))
    said("compare", file, "--out", toy / "out")
    forge(toy / "out" / "receipt.json", "request.plan.prices", str(toy / "mine.py"))
    said("verify", toy / "out" / "receipt.json")


@pytest.mark.parametrize(
    ("part", "value"), [("plan", []), ("sources", None), ("sources", {"mine.py:first": 1})]
)
def test_a_damaged_comparison_receipt_is_told_part_by_part(part, value, receipt):
    forge(receipt, f"request.{part}", value)
    refused(2, f"in the field '{part}", "verify", receipt)


def test_a_receipt_without_recordings_is_damaged_and_a_list_of_another_length_is_told(receipt, toy):
    given = [f"--method={toy / 'mine.py'}:{name}" for name in ("first", "broken")]
    whole = read_json(receipt)
    forge(receipt, "numbers.curves", whole["numbers"]["curves"][:1])
    told = "number of curves: the receipt says 1, now 2, +1"
    refused(1, told, "verify", receipt.parent, *given)  # the folder does as well
    receipt.write_text(json.dumps(whole | {"recordings": []}))
    refused(2, "'recordings'", "verify", receipt, *given)
    receipt.write_text(json.dumps(whole))
    (toy / "rec").rename(toy / "moved")
    refused(1, "no longer there. Give it with --recording", "verify", receipt, *given)
    said("verify", receipt, *given, "--recording", toy / "moved")


def test_many_differences_are_not_all_printed(toy):
    given = ("--method", f"{toy / 'mine.py'}:first")
    file = written(toy, plan(SC, MINE, replicates=2))
    said("compare", file, *given, "--out", toy / "out")
    forge(toy / "out" / "receipt.json", "request.plan.seed", 7)
    listed = json.loads(feval("verify", toy / "out", *given, "--json").stdout)["differences"]
    lines = feval("verify", toy / "out", *given).stderr.splitlines()
    assert len(listed) > len(lines) == 21
    assert f"{len(listed) - 20} more of " in lines[-1]


def test_costs_that_nobody_shares_are_told(toy):
    file = written(toy, plan(SC, SC | {"label": "two"}, costs=[1e9]))
    refused(0, "No two methods share any of the given costs", "compare", file)


def test_a_first_plan_never_replaces_another(toy):
    file = written(toy, plan(SC))
    init = "--init", "--recording", toy / "rec"
    refused(1, "pass --force", "compare", file, *init)
    refused(2, "", "compare", toy, *init)
    said("compare", file, *init, "--force")


def test_methods_that_share_one_cost_are_compared_once(toy):
    # The middle of a range without length must not come out beside its ends.
    one = SC | {"llms": ["gpt-4o-mini"]}
    for n in (1, 2, 3, 4, 5):
        result = compare_in(toy, one, one | {"label": "two", "budgets": {"n": [n]}})
        cost = result.curves[1].points[0].usd_per_question
        assert [row.cost_a for row in result.differences] == [cost]


def test_costs_by_different_token_counters_are_marked_wherever_they_stand(tmp_path):
    for counter, llm in (("words", "gpt-4o-mini"), ("usage", "gpt-3.5-turbo")):
        write_toy(tmp_path / counter, {llm: [["a", "b", "a"]] * 4}, ["a"] * 4, counter=counter)
    merge([tmp_path / "words", tmp_path / "usage"], tmp_path / "rec")
    note = (
        "* The tokens of these LLMs are counted by different counters (words; usage): such costs do"
        " not compare."
    )
    both = [
        SC | {"label": llm, "llms": [llm], "budgets": {"n": [1, 3]}}
        for llm in ("gpt-4o-mini", "gpt-3.5-turbo")
    ]
    result = compare_in(tmp_path, *both)
    assert note in result.to_dict()["warnings"]
    tables = [
        *(([one.name for one in each.columns], each.notes) for each in comparison_tables(result)),
        *(
            ([head["name"] for head in each["columns"]], each["notes"])
            for each in map(table_data, comparison_tables(result, page=True))
        ),
    ]
    for names, notes in tables:
        costs = [name for name in names if "USD" in name or "tokens" in name]
        assert all(name.endswith(" *") for name in costs), costs
        assert (note in notes) or not costs
    rows = list(csv.DictReader(io.StringIO(results_csv(result))))
    assert {row["token_counter"] for row in rows} == {"words", "usage"}
    receipt = json.dumps(comparison_receipt(result, result.base, tmp_path)).encode()
    block = result_block("x", {"results/x/receipt.json": receipt}, "me/toy", None)
    assert r"\* The tokens of these LLMs" in block
    alone = comparison_tables(compare_in(tmp_path, both[0]))
    assert not any(" *" in column.name for table in alone for column in table.columns)
    dataset, llms = load("toy", None, tmp_path / "rec")
    switched = evaluate(ModelSwitch(samples=2), dataset, llms, replicates=2)
    assert note in switched.to_dict()["warnings"]
    columns = evaluation_tables([switched])[0].columns
    assert "USD per 1,000 questions *" in [column.name for column in columns]
    curve = method_curve(dataset, llms, "model-switch", "samples", [1, 2], replicates=2)
    assert "tokens/question *" in [column.name for column in curves_table([curve]).columns]
    calls = compare_in(tmp_path, *both, cost="calls")
    assert "calls/question" in [column.name for column in comparison_tables(calls)[1].columns]


def test_the_best_is_said_with_those_that_may_be_as_good(tmp_path):
    # Right on all 20 questions against right on none, and one that is wrong on a single question.
    right, wrong = ["a"] * 3, ["b"] * 3
    pools = {"good": [right] * 20, "bad": [wrong] * 20, "near": [right] * 19 + [wrong]}
    write_toy(tmp_path / "rec", pools, ["a"] * 20)
    methods = [SC | {"label": llm, "llms": [llm], "budgets": {"n": [1, 3]}} for llm in pools]
    result = compare_in(tmp_path, *methods, cost="samples")
    best = result.best[-1]
    assert (best.chosen, best.settings) == (("good", 0), 6)
    assert set(best.close) == {("good", 1), ("near", 0), ("near", 1)}
    shown = run(written(tmp_path, result.plan)).stdout
    assert "of 6 settings; within noise of it: good (n=3); near (n=1, n=3)" in shown
    assert "flatters its accuracy" in shown


def test_a_first_plan_without_token_counts_of_requests_can_be_compared(tmp_path):
    # nothing is known of the request
    pool = PoolRows("q", ["a"] * 4, ["7"] * 4, ["7"] * 4, [5] * 4, ["stop"] * 4)
    with RecordingWriter(tmp_path / "rec", operation={"name": "test"}, prices="none") as writer:
        writer.add_dataset(
            DatasetInfo("d", "D", "number", "feval-answers-2"), [Question("q", "?", "7", "7")]
        )
        writer.add_pools("d", LLMInfo("m"), "usage", [pool])
    plan = tmp_path / "plan.toml"
    said("compare", plan, "--init", "--recording", tmp_path / "rec")
    assert Plan.read(plan).cost == "output-tokens"
    assert told("compare", plan)["missing"] == []


def test_a_headline_fits_one_screen_and_names_the_best_that_each_budget_pays(comparison, toy):
    points = [point for curve in comparison.curves for point in curve.points]
    for best in comparison.best:
        most = best.budget * (1 + 1e-9)
        within = [point.accuracy for point in points if point.usd_per_question <= most]
        chosen = named_point(comparison, best.chosen)[0]
        assert (chosen.accuracy, best.settings) == (pytest.approx(max(within)), len(within))
    assert compare(comparison.plan.changed(costs=[1e-9]), base=toy).best == (
        BestPoint(1e-9, None, 0),
    )
    many = [SC | {"label": f"votes {i}", "budgets": {"n": [1, 2, 3, 4, 5, 6]}} for i in range(8)]
    failing = [SC | {"label": f"failing {i}", "budgets": {"n": [99]}} for i in range(8)]
    shown = run(written(toy, plan(*many, *failing))).stdout
    assert len(shown.splitlines()) <= 40
    assert "and 5 more: --all" in shown
