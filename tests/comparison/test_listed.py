"""Comparisons in Python from a recording and a list of methods: the numbers of the comparison file
that says the same.
"""

import json
import os
import tomllib
from functools import partial
from pathlib import Path

import pytest
from command_line import failed, feval, said, told
from compared import GOLDS as LETTERS, LLMS, STRONG, WEAK
from recorded_trees import GOLDS, TREES, write_full_trees, write_trees
from recorded_turns import write_full_turns
from small import pool, write_rows, write_toy

from feval import (
    Cascade,
    EarlyStopping,
    MixtureOfThoughts,
    ModelSwitch,
    SelfConsistency,
    compare,
    evaluate,
    from_dataframe,
    load,
    open_recording,
    plurality,
)
from feval.comparison.listed import listed_plan
from feval.comparison.plan import Plan
from feval.errors import FevalError, FevalWarning, ShortPoolError, UnknownNameError, UsageError
from feval.receipts.verifying import verify_receipt
from feval.recording import ProbeRows
from feval.report.tables.comparisons import headline

FEW = {"resamples": 50, "replicates": 3, "seed": 2}
MINE = "def first_two(question, llm):\n    return llm.sample(2).answers[0]\n"


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    pools = {LLMS[0]: WEAK * 3, LLMS[1]: STRONG * 3}
    return write_toy(tmp_path_factory.mktemp("listed") / "rec", pools, LETTERS * 3)


def first_two(question, llm):
    return plurality(llm.sample(2).answers)


def planned(toy, *methods, **options):
    return Plan.from_dict(
        {"dataset": "toy", "recordings": [str(toy)], "method": list(methods), **FEW, **options}
    )


def test_a_list_gives_the_numbers_of_its_comparison_file(toy):
    counts = {"n": [1, 2, 3, 5]}
    votes = {"name": "self-consistency", "budgets": counts}
    early = {"name": "early-stopping", "fields": {"window": 2, "budget": 4}}
    label = "early-stopping(window=2, budget=4)"
    equivalent = planned(
        toy,
        *(votes | {"llms": [llm]} for llm in LLMS),
        *(early | {"label": f"{label} ({llm})", "llms": [llm]} for llm in LLMS),
        {"name": "model-switch", "llms": LLMS, "budgets": {"samples": [1, 2, 3, 5]}},
        votes | {"label": "ours", "llms": [LLMS[1]], "budgets": {"n": [2, 4]}},
        early
        | {"label": "windows", "llms": [LLMS[0]], "fields": {"budget": 6}}
        | {"budgets": {"window": [2, 3]}},
    )
    given = [
        "self-consistency",
        EarlyStopping(2, budget=4),
        "model-switch",
        ("ours", SelfConsistency, LLMS[1], [2, 4]),
        ("windows", EarlyStopping(5, budget=6), [LLMS[0]], {"window": [2, 3]}),
    ]
    assert compare(open_recording(toy), given, **FEW).to_dict() == compare(equivalent).to_dict()


def test_without_methods_it_is_what_init_suggests(toy, tmp_path):
    said("compare", tmp_path / "plan.toml", "--init", "--recording", toy)
    written, listed = Plan.read(tmp_path / "plan.toml"), listed_plan([open_recording(toy)], ()).plan
    assert listed.changed(recordings=written.recordings) == written


@pytest.mark.parametrize("budgets", [{"window": [2, 3]}, {"window": 2}])
def test_budgets_may_follow_a_method_without_llms(toy, budgets):
    recordings, method = [open_recording(toy)], EarlyStopping(5, budget=6)
    plans = [
        listed_plan(recordings, [("windows", method, *rest)]).plan
        for rest in ((budgets,), (None, budgets), (LLMS, budgets))
    ]
    assert plans[0] == plans[1] == plans[2]
    assert [entry.llms for entry in plans[0].entries] == [(llm,) for llm in LLMS]
    values = {"window": [2, 3] if budgets["window"] != 2 else [2]}
    assert [entry.to_dict()["budgets"] for entry in plans[0].entries] == [values] * 2


@pytest.mark.parametrize("llms", [{"n": [1]}, 3, [], [None]])
def test_llms_that_are_no_names_are_refused(toy, llms):
    with pytest.raises(
        UsageError, match=r"The LLMs of the method labelled 'ours' are names, \(label, method"
    ):
        listed_plan([open_recording(toy)], [("ours", "self-consistency", llms, [1, 2])])


def test_a_plan_starts_from_the_folder_of_its_file(toy, tmp_path, monkeypatch):
    plan = listed_plan([open_recording(toy)], [SelfConsistency(2)], **FEW).plan
    (tmp_path / "plans").mkdir()
    path = tmp_path / "plans" / "plan.toml"
    path.write_text(plan.changed(recordings=(os.path.relpath(toy, path.parent),)).to_toml())
    monkeypatch.chdir(tmp_path)
    read = Plan.read("plans/plan.toml")
    comparison = compare(read.changed(seed=2))
    assert comparison.base == Path("plans")
    assert comparison.to_dict()["curves"] == compare(read, base=path.parent).to_dict()["curves"]
    with pytest.raises(FevalError, match="No recording at"):
        compare(read, base="")


def test_what_is_listed_may_be_a_table_or_one_name(toy):
    table = {"name": "self-consistency", "label": "sc", "llms": [LLMS[0]], "budgets": {"n": [1, 5]}}
    [entry] = listed_plan([open_recording(toy)], [table]).plan.entries
    assert entry == planned(toy, table).entries[0]
    [entry] = listed_plan([open_recording(toy)], "model-switch", budgets=[2]).plan.entries
    assert (entry.llms, entry.sweep) == (tuple(LLMS), ("samples", (2,)))


def test_budgets_hold_for_all_that_count_cots(toy):
    given = ["self-consistency", "single-call", ModelSwitch(samples=4)]
    plan = listed_plan([open_recording(toy)], given, llms=LLMS[:1], budgets=range(1, 4)).plan
    assert [entry.sweep for entry in plan.entries] == [
        ("n", (1, 2, 3)),
        None,
        ("samples", (1, 2, 3)),
    ]


def test_a_function_is_compared(toy):
    other = {"recording": toy, "llms": LLMS[:1], **FEW}
    result = compare(methods=[first_two, lambda _, llm: llm.sample(1).answers[0]], **other)
    assert [curve.label for curve in result.curves] == ["first_two", "<lambda>"]
    dataset, llms = load("toy", LLMS[:1], toy, seed=2)
    expected = evaluate(first_two, dataset, llms, replicates=3, order="seeded")
    assert result.curves[0].points[0].accuracy == expected.accuracy


def test_a_function_without_a_file_has_no_receipt(toy, tmp_path):
    result = compare(toy, [lambda _, llm: llm.sample(1).answers[0]], llms=LLMS[:1], **FEW)
    with pytest.warns(FevalWarning, match="No receipt was written: <lambda> stands in no file"):
        written = result.save(tmp_path / "out")
    assert "receipt.json" not in {path.name for path in written}
    assert "feval verify" not in (tmp_path / "out" / "report.html").read_text()


def test_save_writes_what_the_command_writes(toy, tmp_path):
    plan = planned(toy, {"name": "self-consistency", "llms": [LLMS[0]], "budgets": {"n": [1, 3]}})
    (tmp_path / "plan.toml").write_text(plan.to_toml())
    said("compare", tmp_path / "plan.toml", "--out", tmp_path / "a")
    compare(plan).save(tmp_path / "b")
    files = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()}
    assert len(files) == 9


@pytest.mark.slow  # the method runs in a process
def test_a_function_in_a_file_is_verified(toy, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    mine, out = f"{tmp_path}/mine.py:first_two", tmp_path / "out"
    compare(toy, ["self-consistency", mine], llms=LLMS[:1], **FEW).save(out)
    found = verify_receipt(out / "receipt.json", methods=[mine])
    assert (found.equal, found.numbers > 100) == (True, True)


@pytest.mark.parametrize(
    ("methods", "sentence"),
    [
        ([("self-consistency",)], r"A method with a label is \(label, method, LLMs, budgets\)"),
        ([3], "A method is a name of `feval ls methods`"),
        (["self-consistancy"], "Did you mean 'self-consistency'"),
        ([SelfConsistency(2), SelfConsistency(2)], "Two methods of the comparison are labelled"),
        ([lambda _, llm: llm, lambda _, llm: None], "Two functions are called python:<lambda>"),
    ],
)
def test_what_is_no_method_is_refused(toy, methods, sentence):
    with pytest.raises((UsageError, UnknownNameError), match=sentence):
        compare(toy, methods, llms=LLMS[:1], **FEW)


def curve(toy, *arguments):
    return feval("curve", *arguments, "--recording", toy, "--json")


def test_the_curves_of_several_methods_are_a_comparison(toy):
    asked = "self-consistency adaptive-consistency --n 3,5 --set threshold=0.9"
    numbers = json.loads(curve(toy, asked, f"--llm {LLMS[0]} --llm {LLMS[1]}").stdout)
    votes = {"name": "self-consistency", "budgets": {"n": [3, 5]}}
    stopping = {"name": "adaptive-consistency", "fields": {"threshold": "0.9"}}
    stopping |= {"budgets": {"budget": [3, 5]}}
    equivalent = planned(
        toy, *(table | {"llms": [llm]} for table in (votes, stopping) for llm in LLMS)
    )
    expected = compare(equivalent.changed(resamples=10_000, seed=0, replicates=None)).to_dict()
    for part in ("curves", "differences"):
        assert numbers[part] == json.loads(json.dumps(expected[part]))


def test_curves_of_several_methods_print_every_table_on_request(toy):
    asked = "curve self-consistency single-call --n 3 --llm", LLMS[0], "--recording", toy
    first, everything = (said(*asked, option) for option in ("", "--all"))
    assert ("--all" in first, "Ranking" in first) == (True, False)
    assert ("--all" in everything, "Ranking" in everything) == (False, True)


def test_a_field_that_no_method_has_is_refused(toy):
    failed(
        curve(toy, "self-consistency single-call --set windoww=3 --llm", LLMS[0]),
        2,
        "no field 'windoww'",
    )


def test_cots_with_scores_are_compared_by_them_too():
    row = {"question": "What is 1 * 1?", "answer": "1", "model": "m", "tokens": 5}
    rows = [
        row | {"text": f"The answer is {place + 1}.", "reward": -place, "judge": place}
        for place in range(3)
    ]
    made = {"dataset": "toy", "answer_kind": "number"}
    by_two = ["best-of-n by reward", "best-of-n by judge"]
    for scores, labels in (
        ("reward", ["best-of-n"]),
        (["reward", "judge"], by_two),
        ({"reward": "reward", "judge:vs=other": "judge"}, by_two[:1]),
    ):
        recording = from_dataframe(rows, scores=scores, **made)
        # as `--init` writes it
        plan = Plan.from_dict(tomllib.loads(listed_plan([recording], ()).plan.to_toml()))
        assert [(entry.label, entry.sweep) for entry in plan.entries] == [
            (label, ("n", (1, 2, 3))) for label in ["self-consistency", *labels]
        ]
        comparison = compare(plan.changed(recordings=(str(recording.path),), resamples=100))
        assert not comparison.missing
        chosen = {
            curve.label: [point.accuracy for point in curve.points] for curve in comparison.curves
        }
        # The reward puts the right one of three first, so it is chosen whenever it is drawn; the
        # judge puts it last.
        assert [chosen[label] for label in labels] == [
            pytest.approx([1 / 3, 0, 0] if "judge" in label else [1 / 3, 2 / 3, 1])
            for label in labels
        ]


@pytest.mark.parametrize(
    ("write", "names"),
    [
        (write_full_trees, ["beam-search", "dvts", "particle-filtering"]),
        (partial(write_trees, trees=TREES[:2], scores=[]), ["path-consistency"]),
    ],
)
def test_trees_are_compared_by_what_they_can_serve(write, names, tmp_path):
    recording = open_recording(write(tmp_path / "r", golds=GOLDS[:2]))
    comparison = compare(recording, **FEW)
    assert ([curve.entry.method for curve in comparison.curves], comparison.missing) == (names, ())


def test_trees_are_suggested_by_the_questions_that_have_some(tmp_path):
    plan = listed_plan([open_recording(write_trees(tmp_path / "r"))], (), short_pools="drop").plan
    assert [(entry.method, entry.sweep) for entry in plan.entries] == [
        (name, ("n", (1,))) for name in ("beam-search", "dvts", "particle-filtering")
    ]


@pytest.mark.parametrize(
    ("offsets", "tokens"),
    [
        ([[5, 10, 15, 20], [5, 10, 15], [5]], [5, 10, 20]),
        # at any offsets: 24 tokens are 4 probes
        ([[4, 12, 18, 24], [5, 10, 15], [7]], [6, 12, 24]),
    ],
)
def test_probed_traces_are_compared_on_the_scale_of_their_probes(offsets, tokens, tmp_path):
    samples, places = zip(
        *((sample, at) for sample, each in enumerate(offsets) for at in each), strict=True
    )
    answers = ["4" for _ in places]
    probes = [ProbeRows(f"toy/{row}", samples, places, answers, answers) for row in range(2)]
    cots = [pool(row, ["4", "5", "4"], tokens=[26, 17, 8]) for row in range(2)]
    llms, probed = (("traced", cots), ("whole", cots)), {"traced": probes}
    recording = open_recording(
        write_rows(tmp_path / "r", GOLDS[:2], *llms, probes=probed, cue="So:")
    )
    comparison = compare(recording, **FEW)
    assert not comparison.missing
    assert compare(recording, llms=["traced"], **FEW).kinds == ("exact",)
    curves = [curve for curve in comparison.curves if curve.entry.llms == ("traced",)]
    expected = {
        "self-consistency": [{"n": n, "no_answer": "drop"} for n in (1, 2, 3)],
        "token-budget": [{"n": 3, "tokens": most} for most in tokens],
        "answer-convergence": [{"width": 3, "streak": streak} for streak in (2, 3)],
    }
    assert {
        curve.entry.method: [point.fields for point in curve.points] for curve in curves
    } == expected


@pytest.mark.parametrize(("branch", "answer", "kind"), [(1, "last", "exact"), (2, "all", "seeded")])
def test_several_replies_to_a_cot_are_revised_as_seeded_draws(branch, answer, kind, tmp_path):
    recording = write_full_turns(tmp_path / "r", GOLDS[:2], branch=branch)
    [curve] = compare(open_recording(recording), **FEW).curves
    assert curve.entry.fields == {"turns": 2} | ({"answer": "all"} if branch > 1 else {})
    point = curve.points[0]
    # of several replies to a CoT no exact form is known
    assert (curve.entry.method, point.fields["answer"], point.kind) == (
        "sequential-revision",
        answer,
        kind,
    )


def test_an_llm_that_lacks_most_questions_is_compared_on_the_others(tmp_path):
    pools = {LLMS[0]: WEAK, LLMS[1]: [STRONG[0], [], [], []]}
    recording = open_recording(write_toy(tmp_path / "rec", pools, LETTERS))
    with pytest.raises(
        ShortPoolError, match=r"has no recorded CoT on some question .* with short_pools='drop'"
    ):
        compare(recording, **FEW)
    comparison = compare(recording, short_pools="drop", **FEW)
    left_out = "toy/1", "toy/2", "toy/3"
    assert (comparison.left_out.short_pools, comparison.missing) == (left_out, ())


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    pools = {LLMS[0]: WEAK * 12, LLMS[1]: STRONG * 12}
    return write_toy(tmp_path_factory.mktemp("many") / "rec", pools, LETTERS * 12)


def test_a_cascade_learns_by_itself_and_is_compared_on_the_same_questions(many):
    recording = open_recording(many)
    plan = listed_plan([recording], (), **FEW).plan
    *others, cascade = plan.entries
    assert (cascade.method, cascade.train_fraction, len(cascade.sweep[1])) == ("cascade", 0.5, 6)
    assert Plan.from_dict(tomllib.loads(plan.to_toml())) == plan
    mixed = compare(recording, **FEW)
    assert not mixed.missing
    assert not mixed.absent
    alone, halved = (
        compare(plan.changed(**changed))
        for changed in ({"entries": tuple(others)}, {"train_fraction": 0.5})
    )
    assert [curve.points[0].questions for curve in mixed.curves] == [48] * len(others) + [24]
    for ours, theirs in zip(mixed.curves, (*alone.curves, halved.curves[-1]), strict=True):
        assert [one.to_dict() for one in ours.points] == [one.to_dict() for one in theirs.points]

    def pairs(comparison, name, *, of_cascade):
        rows = [vars(row) | {"p_holm": None} for row in getattr(comparison, name)]
        return [row for row in rows if ("cascade" in (row["a"], row["b"])) is of_cascade]

    for name in ("differences", "unequal_costs", "savings"):
        for own, of_cascade in ((alone, False), (halved, True)):
            expected = pairs(own, name, of_cascade=of_cascade)
            assert pairs(mixed, name, of_cascade=of_cascade) == expected
    for name in ("best", "frontier", "ranking"):  # what chooses among all
        assert getattr(mixed, name) == getattr(halved, name)
    assert any(row.label == "cascade" for row in mixed.reaches)
    assert "differences from cascade, rest on the 24 questions" in " ".join(mixed.warnings)
    first, *_ = headline(mixed)
    assert "48 questions (cascade is judged on 24, after learning from 24), 9 methods" in first
    best = mixed.best[-1]
    row = headline(mixed)[headline(mixed).index("") + 1].rows[-1]
    assert row[3] == f"{100 * best.accuracy:.2f}"


def test_people_read_a_budget_in_usd_of_1000_questions(many):
    comparison = compare(open_recording(many), ["cascade"], **FEW)
    [curve] = comparison.curves
    usd = curve.points[0].fields["budget"]
    assert curve.budget_text(0) == f"budget={1000 * usd:.3g} USD per 1,000"
    assert comparison.records()[0]["budget"] == f"budget={usd}"
    said_of_curve = said("curve", "cascade", "--recording", many)
    assert "budget, USD per 1,000" in said_of_curve


def test_why_all_are_seeded_is_said_of_a_method_that_is_missing(many):
    cascade = Cascade(score="vote-share", budget=1e-9)
    listed = ["self-consistency", ("cascade", cascade, LLMS)]
    with pytest.warns(FevalWarning, match=r"Left out: cascade\."):
        comparison = compare(open_recording(many), listed, train_fraction=0.5, **FEW)
    assert [one.label for one in comparison.missing] == ["cascade"]
    assert "All methods are seeded, since cascade has no exact" in " ".join(comparison.warnings)
    assert "stays within 1e-09 USD per question" in comparison.missing[0].reason


def test_several_weak_llms_of_a_mixture_of_thoughts_are_said(many):
    dataset, [weak, strong] = load("toy", LLMS, many)
    method = MixtureOfThoughts(samples=2, strong_samples=1)
    for llms, are_said in (([weak, strong], False), ([weak, strong, strong], True)):
        warnings = " ".join(evaluate(method, dataset, llms, replicates=2).warnings)
        assert (f"{LLMS[0]} and {LLMS[1]} vote together" in warnings) is are_said


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"prices": "none"}, "there is no price of gpt-3.5-turbo, gpt-4o-mini; give a price list"),
        ({"llms": LLMS[:1]}, "it asks several LLMs, and gpt-3.5-turbo is alone"),
    ],
)
def test_why_there_is_no_cascade_is_said(many, options, reason):
    comparison = compare(open_recording(many), **FEW, **options)
    [absent] = comparison.absent
    assert absent.label == "cascade"
    assert reason in absent.reason
    assert reason in "\n".join(map(str, headline(comparison)))


def test_a_cascade_needs_40_questions_and_init_says_so(toy, tmp_path):
    result = feval("compare", tmp_path / "plan.toml", "--init", "--recording", toy)
    assert "it learns from some questions and needs 40; there are 12" in result.stderr


def test_a_curve_of_a_method_on_several_llms_asks_all_that_are_recorded(many):
    curve = told("curve", "cascade", "--recording", many)
    assert (curve["questions"], len(curve["points"])) == (24, 6)
    assert any(
        each.startswith("What was learnt is from 24 questions") for each in curve["warnings"]
    )
    own = ("cascade", "cascade", LLMS)
    [mixed] = list(compare(open_recording(many), [own], llms=LLMS[:1]).curves)
    assert [point["accuracy"] for point in curve["points"]] == [
        point.accuracy for point in mixed.points
    ]
    assert told("run", "model-switch", "--recording", many)["llms"] == LLMS


def test_a_cascade_takes_the_scores_that_all_its_llms_have():
    rows = [
        {"id": str(n), "question": f"Question {n}", "gold": "1", "llm": llm, "answer": str(k)}
        | {"text": "T", "tokens": 5, "prompt_tokens": 9, "reward": 1.0 - k}
        for n in range(40)
        for llm in LLMS
        for k in range(3)
    ]
    recording = from_dataframe(rows, scores="reward", dataset="toy", answer_kind="number")
    cascade = listed_plan([recording], (), price_list="2025-06-02").plan.entries[-1]
    assert (cascade.method, cascade.fields["score"]) == ("cascade", "recorded")
    assert cascade.fields["samples"] == 1


def test_pools_of_one_cot_get_no_thresholds_and_one_reason(tmp_path):
    pools = {llm: [own[:1] for own in rows] for llm, rows in zip(LLMS, (WEAK, STRONG), strict=True)}
    recording, plan = write_toy(tmp_path / "toy", pools, LETTERS), tmp_path / "plan.toml"
    first = feval("compare", plan, "--init --recording", recording)
    assert "mixture-of-thoughts" not in plan.read_text()
    why = f"it votes on 5 CoTs, and there are fewer of {', '.join(LLMS)}."
    assert first.stderr == f"note: No cascade was swept over budgets: {why}\n"
    shown = feval("compare", plan, "--quiet --json")
    assert json.loads(shown.stdout)["plan"]["method"][-1]["name"] == "model-switch"
