"""Which questions numbers are over: without a gold or with too few CoTs they are refused, or left
out once for everything.
"""

import json
from pathlib import Path

import pytest
from command_line import feval, said, told
from small import import_rows, letters, write_toy

from feval import (
    BudgetEnvironment,
    Cascade,
    ModelSwitch,
    SelfConsistency,
    compare,
    evaluate,
    load,
    method_curve,
    open_recording,
    select,
    self_consistency_curve,
    verify_receipt,
)
from feval.comparison.comparison import load_compared, traces
from feval.comparison.plan import Plan
from feval.errors import (
    OutOfRangeError,
    ShortPoolError,
    UnknownNameError,
    UnlabelledError,
    UsageError,
)
from feval.evaluation.environment import NEXT_LLM, STOP
from feval.evaluation.fitting import fits
from feval.evaluation.questions import question_set

FULL = letters("aaba", "xy-y", "bbbb", "cdc-", "efee")
SHORT = letters("aaba", "", "bb", "cdc-", "feef")
GOLDS = ["a", "y", "b", "d", "e"]
SOME = ["a", None, "b", "d", None]


def failure(*arguments):
    """What a command that fails prints to standard error."""
    result = feval(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    return str(result.stderr)


def numbers(*arguments):
    """What a command prints as JSON, but for the recording's hashes."""
    result = told(*arguments)
    return {name: value for name, value in result.items() if not name.startswith("recording_hash")}


def last(question, *llms):
    return llms[-1].sample(3).answers[-1]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """Toys: all golds and pools; two golds missing; short pools; both; and those without any
    gold.
    """
    folder = tmp_path_factory.mktemp("recordings")
    llms = {"gpt-3.5-turbo": FULL, "gpt-4o-mini": FULL}
    write_toy(folder / "full", llms, GOLDS)
    write_toy(folder / "some", llms, SOME)
    write_toy(folder / "none", llms, [None] * 5)
    write_toy(folder / "short", llms | {"gpt-3.5-turbo": SHORT}, GOLDS)
    write_toy(folder / "both", llms | {"gpt-3.5-turbo": SHORT}, SOME)
    select(folder / "full", folder / "labelled", questions=["toy/0", "toy/2", "toy/3"])
    return folder


@pytest.fixture(scope="module")
def unreadable(tmp_path_factory):
    """An import of three numbers: one gold is missing, one is no number."""
    folder = tmp_path_factory.mktemp("unreadable")
    golds = [{"answer": "10"}, {"answer": "ten or so"}, {}]
    rows = [
        {"id": f"q{i}", "question": f"What is {i}?", "samples": [{"text": "The answer is 10."}] * 2}
        | gold
        for i, gold in enumerate(golds)
    ]
    options = {"dataset": "sums", "answer_kind": "number", "llm": "gpt-4o-mini"}
    return import_rows(folder / "sums", rows, **options)


COMMANDS = {
    "run": "run self-consistency --set n=2",
    "oracle": "run oracle --set n=2",
    "curve": "curve self-consistency --n 1,2",
    "sweep": "curve early-stopping --n 2 --set window=2",
    "estimate": "estimate --g 2 --m 1..3",
}
LLM = "--llm gpt-3.5-turbo"
BOTH = "--drop unlabelled --drop short-pools"


@pytest.mark.parametrize("command", COMMANDS)
def test_questions_without_a_gold_are_refused(command, recordings):
    message = failure(COMMANDS[command], "--recording", recordings / "some", LLM)
    assert "2 of 5 questions of toy have no gold answer that can be read" in message
    assert "(missing: toy/1, toy/4)" in message
    assert "--drop unlabelled" in message


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("choice", ["", "--drop unlabelled"])
def test_a_recording_without_golds_is_always_an_error(command, choice, recordings):
    message = failure(COMMANDS[command], "--recording", recordings / "none", LLM, choice)
    assert "None of the 5 questions of toy has a gold answer that can be read" in message
    assert "--drop" not in message  # it would not help


@pytest.mark.parametrize("command", COMMANDS)
def test_numbers_without_those_questions_are_those_of_a_recording_without_them(command, recordings):
    options = COMMANDS[command], LLM, "--recording"
    result = numbers(*options, recordings / "some", "--drop unlabelled")
    assert result.pop("left_out") == {"unlabelled": ["toy/1", "toy/4"], "short_pools": []}
    assert result == numbers(*options, recordings / "labelled")


def test_golds_that_cannot_be_read_are_told_from_those_that_are_missing(unreadable):
    message = failure(COMMANDS["curve"], "--recording", unreadable)
    assert (
        "2 of 3 questions of sums have no gold answer that can be read (missing: q2;"
        " unreadable: q1)" in message
    )
    table = said("run single-call --drop unlabelled --recording", unreadable)
    assert "sums, 1 question (left out: 2 with no readable gold)" in table
    assert "100.00" in table


def test_any_method_is_refused_in_python(recordings):
    dataset, [cheap, strong] = load("toy", recording=recordings / "some")
    for method, llms in ((SelfConsistency(2), cheap), (last, [cheap, strong])):
        with pytest.raises(UnlabelledError, match="missing: toy/1, toy/4"):
            evaluate(method, dataset, llms, replicates=2)
    result = evaluate(last, dataset, [cheap, strong], replicates=2, unlabelled="drop", workers=2)
    assert list(result.question_ids) == ["toy/0", "toy/2", "toy/3"]
    assert result.left_out.unlabelled == ("toy/1", "toy/4")
    some = evaluate(last, dataset, strong, replicates=2, rows=[3, 0])
    assert some.question_ids == ["toy/3", "toy/0"]
    with pytest.raises(UnknownNameError, match="choice for unlabelled 'ignore'"):
        evaluate(last, dataset, strong, unlabelled="ignore")


def test_a_learner_is_fitted_and_judged_on_labelled_questions_only(recordings):
    dataset, [cheap, strong] = load("toy", recording=recordings / "some")
    result = evaluate(
        Cascade(samples=1, score="vote-share"),
        dataset,
        [cheap, strong],
        train_fraction=0.34,
        unlabelled="drop",
    )
    assert (result.train_questions, result.questions) == (1, 2)
    assert set(result.question_ids) < {"toy/0", "toy/2", "toy/3"}


def test_an_environment_rewards_nothing_without_a_gold(recordings):
    dataset, llms = load("toy", recording=recordings / "some")
    with pytest.raises(UnlabelledError, match="2 of 5"):
        BudgetEnvironment(dataset, llms)
    BudgetEnvironment(dataset, llms, rows=[0, 3])
    game = BudgetEnvironment(dataset, llms, unlabelled="drop")
    observation, _ = game.reset()
    assert observation.questions_left == 3
    over = False
    while not over:
        game.step(NEXT_LLM)
        _, _, over, _, _ = game.step(STOP)


@pytest.mark.parametrize("command", ["run", "oracle", "curve", "estimate"])
def test_short_pools_are_refused_and_the_option_is_named(command, recordings):
    message = failure(COMMANDS[command], "--recording", recordings / "short", LLM)
    assert (
        "gpt-3.5-turbo has 0 recorded CoTs on question 'toy/1' of toy; 2 were asked for" in message
    )
    assert "--drop short-pools" in message
    assert "leaves out the 1 of 5 questions with fewer" in message


def test_short_pools_are_left_out_once_for_all_points(recordings):
    short = "--drop short-pools --recording"
    options = "curve self-consistency", LLM, short, recordings / "short", "--n"
    result = numbers(*options, "1..3")
    assert result["left_out"] == {"unlabelled": [], "short_pools": ["toy/1", "toy/2"]}
    assert result["questions"] == 3
    # n = 1 is over the same three questions: 3/4, 1/4 and 2/4 of their CoTs are right.
    assert result["points"][0]["accuracy"] == pytest.approx((3 / 4 + 1 / 4 + 2 / 4) / 3)
    assert numbers(*options, "1..2")["questions"] == 4


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("order", ["exact", "seeded", "recorded"])
def test_every_kind_agrees_with_a_recording_of_enough_cots(command, order, recordings, tmp_path):
    order = "exact" if command == "oracle" else order
    enough = tmp_path / "enough"
    said("select", recordings / "both", LLM, "--min-cots 2 --out", enough)
    kind = "" if command == "estimate" else f"--order {order} --replicates 3"
    options = COMMANDS[command], LLM, kind, "--drop unlabelled --recording"
    result = numbers(*options, recordings / "both", "--drop short-pools")
    alone = numbers(*options, enough)
    assert result.pop("left_out") == {"unlabelled": ["toy/1", "toy/4"], "short_pools": []}
    assert alone.pop("left_out") == {"unlabelled": ["toy/4"], "short_pools": []}
    assert result == alone


def test_any_llm_that_is_asked_makes_a_pool_short(recordings):
    dataset, [cheap, strong] = load("toy", recording=recordings / "short")
    asked = {"replicates": 2, "short_pools": "drop"}
    both = evaluate(ModelSwitch(samples=3), dataset, [cheap, strong], **asked)
    assert both.left_out.short_pools == ("toy/1", "toy/2")
    assert not evaluate(SelfConsistency(3), dataset, strong, short_pools="drop").left_out
    curve = method_curve(dataset, [cheap, strong], "model-switch", "samples", [1, 4], **asked)
    assert (curve.questions, curve.left_out) == (3, both.left_out)


def test_nothing_left_is_an_error(recordings):
    dataset, [cheap, strong] = load("toy", recording=recordings / "short")
    with pytest.raises(ShortPoolError, match=r"5 were asked for\. .*record it\.$"):
        self_consistency_curve(dataset, cheap, [5], short_pools="drop")
    with pytest.raises(UsageError, match="a function does not say how many CoTs"):
        evaluate(last, dataset, strong, short_pools="drop")
    short = "--drop short-pools --recording", recordings / "short"
    done = feval("curve self-consistency", LLM, *short)
    assert (done.exit_code, "say which with --n" in done.stderr) == (2, True)


def test_pools_of_several_llms_may_leave_nothing_together(tmp_path):
    out = write_toy(tmp_path / "toy", {"one": [["a"], []], "two": [[], ["b"]]}, ["a", "b"])
    dataset, llms = load("toy", recording=out, prices="none")
    with pytest.raises(ShortPoolError, match="0 recorded CoTs"):
        question_set(dataset, [(llm, 1) for llm in llms], short_pools="drop")


PLAN = """
dataset = "toy"
recordings = ["both"]
order = "mixed"
unlabelled = "drop"
short_pools = "drop"
replicates = 3

[[method]]
name = "self-consistency"
llms = ["gpt-4o-mini"]
budgets = { n = [1, 2] }

[[method]]
name = "model-switch"
llms = ["gpt-3.5-turbo", "gpt-4o-mini"]
budgets = { samples = [1, 3] }
"""


def test_all_methods_of_a_comparison_are_over_the_same_questions(recordings, tmp_path):
    (file := recordings / "plan.toml").write_text(PLAN)
    result = compare(Plan.read(file), base=recordings)
    assert result.missing == ()
    assert result.left_out.to_dict() == {"unlabelled": ["toy/1", "toy/4"], "short_pools": ["toy/2"]}
    points = [
        *(point for curve in (*result.curves, *result.ceilings) for point in curve.points),
        *result.baselines,
    ]
    assert {tuple(point.question_ids) for point in points} == {("toy/0", "toy/3")}
    # the pools that are left
    assert [curve.points[-1].fields["n"] for curve in result.ceilings] == [4, 4]
    # toy/0 and toy/3 have 3 and 1 right of 4, by hand.
    single = next(point for point in result.baselines if point.llms == ("gpt-4o-mini",))
    assert single.right.tolist() == pytest.approx([3 / 4, 1 / 4])
    printed = said("compare", file, "--out", tmp_path / "out")
    assert "toy, 2 questions (left out: 2 with no readable gold, 1 with too few CoTs)" in printed
    page = (tmp_path / "out" / "report.html").read_text()
    assert "(left out: 2 with no readable gold, 1 with too few CoTs)" in page
    assert verify_receipt(tmp_path / "out" / "receipt.json").equal


def test_a_report_follows_what_was_learnt_on_the_same_questions(recordings, monkeypatch):
    fields = {"samples": 1, "score": "vote-share"}
    entry = {"name": "cascade", "llms": ["gpt-3.5-turbo", "gpt-4o-mini"], "fields": fields}
    settings = {"dataset": "toy", "recordings": ["some"], "unlabelled": "drop"}
    settings |= {"train_fraction": 0.5, "replicates": 2}
    fitted = []

    def noted(method, dataset, llms, splits, *limit):
        fitted.extend(rows.tolist() for rows, *_ in splits)
        return fits(method, dataset, llms, splits, *limit)

    for user in ("evaluation.evaluation", "comparison.comparison"):
        monkeypatch.setattr(f"feval.{user}.fits", noted)
    result = compare(Plan.from_dict(settings | {"method": [entry]}), base=recordings)
    dataset, llms = load_compared(result, recordings)
    assert traces(result, dataset, llms).missing == ()
    first, second = fitted
    assert first == second
    assert set(first) < {0, 2, 3}


def test_the_command_line_chooses_in_place_of_the_plan(recordings):
    (file := recordings / "refusing.toml").write_text(PLAN.replace('"drop"', '"refuse"'))
    refused = feval("compare", file)
    assert (refused.exit_code, "2 of 5 questions" in refused.stderr) == (1, True)
    out = "--out", recordings / "out", "--json"
    result = json.loads(feval("compare", file, "--drop unlabelled", *out).stdout)
    # toy/2 has 2 CoTs of one LLM
    assert [one["label"] for one in result["missing"]] == ["model-switch, samples=3"]
    assert result["left_out"] == {"unlabelled": ["toy/1", "toy/4"], "short_pools": []}
    receipt = json.loads(Path(result["receipt"]).read_text())
    assert receipt["request"]["plan"]["short_pools"] == "refuse"
    with pytest.raises(UnknownNameError, match="choice for unlabelled 'skip'"):
        Plan.from_dict({**Plan.read(file).to_dict(), "unlabelled": "skip"})


def test_a_first_plan_of_a_recording_with_an_empty_pool(recordings):
    options = "compare", recordings / "first.toml", "--init --recording", recordings / "short"
    done = feval(*options)
    assert (done.exit_code, "--drop short-pools" in done.stderr) == (1, True)
    said(*options, "--drop short-pools")
    result = told("compare", recordings / "first.toml")
    assert (result["missing"], result["left_out"]["short_pools"]) == ([], ["toy/1", "toy/2"])


@pytest.mark.parametrize("command", COMMANDS)
def test_the_receipt_lists_what_was_left_out_and_verifies(command, recordings, tmp_path):
    options = LLM, BOTH, "--recording", recordings / "both", "--out", tmp_path
    printed = said(COMMANDS[command], *options)
    assert "(left out: 2 with no readable gold)" in printed
    read = json.loads((tmp_path / "receipt.json").read_text())
    assert read["numbers"]["left_out"] == {"unlabelled": ["toy/1", "toy/4"], "short_pools": []}
    assert (read["request"]["unlabelled"], read["request"]["short_pools"]) == ("drop", "drop")
    assert verify_receipt(tmp_path / "receipt.json").equal


def test_a_selection_of_questions_with_enough_cots(recordings, tmp_path):
    three = tmp_path / "three"
    note = feval("select", recordings / "short", "--min-cots 3 --samples 3 --out", three).stderr
    assert "2 questions of toy with fewer than 3 CoTs of some LLM left out" in note
    opened = open_recording(three)
    assert [question.id for question in opened.questions("toy")] == ["toy/0", "toy/3", "toy/4"]
    assert opened.votes("toy").llms["gpt-3.5-turbo"].sizes.tolist() == [3, 3, 3]
    assert opened.manifest.raw["operation"] == {"name": "select", "samples": 3, "min_cots": 3}
    said("verify", three)
    select(recordings / "short", tmp_path / "mini", llms=["gpt-4o-mini"], min_cots=4)
    # pools of an LLM that goes do not count
    assert len(open_recording(tmp_path / "mini").questions("toy")) == 5
    with pytest.raises(ShortPoolError, match="No question of toy has 5 CoTs"):
        select(recordings / "short", tmp_path / "none", min_cots=5)
    with pytest.raises(OutOfRangeError, match="not 0"):
        select(recordings / "short", tmp_path / "none", min_cots=0)
    assert not (tmp_path / "none").exists()
