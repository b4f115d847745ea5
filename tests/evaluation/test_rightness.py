"""How right CoTs are by verdicts, in votes, choices and cascades: against enumeration of all
draws, and the published figures of tau-bench.
"""

import json
from collections import Counter
from itertools import combinations, permutations, product
from pathlib import Path
from random import Random

import numpy as np
import pytest
from command_line import feval, said, told
from small import import_rows

from feval import compare, evaluate, load, merge
from feval.errors import (
    FevalError,
    FevalWarning,
    MethodError,
    NotRecordedError,
    UnlabelledError,
    UsageError,
)
from feval.evaluation.curves import method_curve, self_consistency_curve
from feval.evaluation.fitting import training
from feval.importers import import_recording
from feval.methods import (
    AdaptiveConsistency,
    AutoMix,
    BestOfN,
    Cascade,
    EarlyStopping,
    MixtureOfThoughts,
    ModelSwitch,
    Oracle,
    SelfConsistency,
    SequentialRevision,
    SingleCall,
    WeightedBestOfN,
)

LLMS = ("small", "large")


def recording_of(folder, rows, kind="verbatim", **options):
    return import_rows(folder / "recording", rows, answer_kind=kind, **options)


def graded(values):
    random = Random(2)  # noqa: S311  a test
    return [
        {
            "id": f"q{q}",
            "question": f"t{q}",
            "llm": llm,
            "sample": s,
            "text": "x",
            "tokens": 1 + (3 * q + 5 * s + ord(llm[0])) % 7,
        }
        | {"answer": random.choice("aabc") if random.random() < 0.8 else None}
        | {"score": random.random(), "verdict": random.choice(values)}
        for q in range(5)
        for llm in LLMS
        for s in range(5)
    ]


@pytest.fixture(scope="module", params=[(0, 1, 0.5, None), (0, 1)], ids=["partial", "binary"])
def recorded(tmp_path_factory, request):
    rows = graded(request.param)
    dataset, llms = load("d", LLMS, recording_of(tmp_path_factory.mktemp("graded"), rows))
    assert dataset.rightness.is_mixed.all()
    return rows, dataset, llms


def expected(rows, answer, *draws):
    """The mean rightness of what `answer` chooses of all draws of so many CoTs of each LLM."""
    means = []
    for question in sorted({row["id"] for row in rows}):
        orders = [
            list(permutations([r for r in rows if (r["id"], r["llm"]) == (question, llm)], n))
            for llm, n in zip(LLMS, draws, strict=False)
        ]
        chosen = [answer(*each) for each in ([(o,) for o in orders[0]] if len(orders) == 1 else [
            (one, other) for one in orders[0] for other in orders[1]])]  # fmt: skip
        means.append(np.mean([0.0 if cot is None else cot["verdict"] or 0.0 for cot in chosen]))
    return np.mean(means)


def elected(draw):
    """The first drawn CoT of the party with most votes, of the one seen first where they tie."""
    answers = [cot["answer"] for cot in draw if cot["answer"] is not None]
    leader = max(dict.fromkeys(answers), key=answers.count, default=None)
    return next((cot for cot in draw if leader is not None and cot["answer"] == leader), None)


def best(draw):
    return max(draw, key=lambda cot: cot["score"])


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_votes_are_as_right_as_their_cot(recorded, n):
    rows, dataset, [small, _] = recorded
    voted = pytest.approx(expected(rows, elected, n), abs=1e-12)
    [point] = self_consistency_curve(dataset, small, [n]).points
    assert evaluate(SelfConsistency(n), dataset, small).accuracy == voted
    assert point.accuracy == voted


@pytest.mark.parametrize(
    "method",
    [EarlyStopping(window=2, budget=4), AdaptiveConsistency(budget=4)],
    ids=["early-stopping", "adaptive-consistency"],
)
def test_stops_are_exact_where_parties_are_mixed(recorded, method):
    _, dataset, [small, _] = recorded
    exact = evaluate(method, dataset, small)
    drawn = evaluate(method, dataset, small, order="seeded", replicates=20_000)
    assert exact.kind == "exact"
    assert exact.accuracy == pytest.approx(drawn.accuracy, abs=0.01)


def test_a_weighted_vote_is_drawn_where_parties_are_mixed(recorded):
    _, dataset, [small, _] = recorded
    assert evaluate(WeightedBestOfN(3, aggregate="score"), dataset, small).kind == "seeded"


def switched(draw):
    """ModelSwitch by two CoTs of each LLM: two different answers weigh 1/2 each."""
    votes, seen = Counter(), [cot for own in draw for cot in own]
    for own in draw:
        answers = [cot["answer"] for cot in own if cot["answer"]]
        if len(answers) == 2 and len({*answers}) == 1:
            return own[0]
        votes.update({answer: 1 / len(answers) for answer in answers})
    leader = max(votes, key=votes.get, default=None)
    return next((cot for cot in seen if leader and cot["answer"] == leader), None)


def thoughts(draw):
    """The MoT cascade by two CoTs of each of two weak variants, at 0.6 of their votes."""
    votes = [cot for own in draw[:2] for cot in own]
    leader = elected(votes)
    count = sum(leader is not None and cot["answer"] == leader["answer"] for cot in votes)
    return leader if count >= 3 else elected(draw[2])


def is_able(cot):
    """Where a verdict decides, a CoT without an answer can be chosen, too."""
    return "verdict" in cot or cot["answer"]


def highest(draw):
    return max(filter(is_able, draw[0]), key=lambda cot: cot["score"], default=None)


def backwards(draw):
    [[first], other] = draw[1], draw[0]
    return first if first["answer"] and first["score"] > 0.5 else elected(other)


def routed(draw):
    [one], [other] = draw
    return one if is_able(one) and one["score"] > 0.5 else other


@pytest.mark.parametrize(
    ("method", "answer", "draws"),
    [
        (SingleCall(), lambda draw: draw[0][0], (1,)),
        (SelfConsistency(3), lambda draw: elected(draw[0]), (3,)),
        (BestOfN(3, aggregate="score"), highest, (3,)),
        (Cascade(thresholds=("0.5",), samples=1), routed, (1, 1)),
        (Cascade(thresholds=("0.5",), samples=(2, 1), order=(1, 0)), backwards, (2, 1)),
        (AutoMix(0.5, verification="free"), routed, (1, 1)),
        (ModelSwitch(2), switched, (2, 2)),
        (ModelSwitch(2), switched, (2, 2, 2)),
        (MixtureOfThoughts(0.6, samples=2, strong_samples=1), thoughts, (2, 2, 1)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_cot_that_counts_is_that_of_each_draw(tmp_path, monkeypatch, method, answer, draws):
    """By golds, mixed and unmixed verdicts, in blocks of two questions, and alone."""
    monkeypatch.setattr("feval.evaluation.replicates._QUESTIONS", 2)
    random, rows = Random(4), []  # noqa: S311  a test
    for q, llm, sample in product(range(9), "abc", range(4)):
        said = random.choice(("a", "a", "b", None, None))
        verdict = int(said == "a") if q % 3 == 2 else random.choice((0, 0.3, 1))
        rows.append({"id": f"q{q}", "question": f"t{q}", "llm": llm, "sample": sample, "tokens": 1}
                    | {"answer": said, "score": random.random()}
                    | ({"verdict": verdict} if q % 3 else {"gold": "a"}))  # fmt: skip
    dataset, llms = load("d", [*"abc"[: len(draws)]], recording_of(tmp_path, rows))

    def mean(drawn):
        chosen = [answer(draw) or {"verdict": 0} for draw in drawn]
        return np.mean([cot.get("verdict", cot.get("answer") == "a") for cot in chosen])

    orders = {"recorded": [], "seeded": [], "exact": []}
    for row in range(9):
        own = [([r for r in rows if (r["id"], r["llm"]) == (f"q{row}", llm.name)], n, llm)
               for llm, n in zip(llms, draws, strict=True)]  # fmt: skip
        orders["recorded"].append(mean([[pool[:n] for pool, n, _ in own]]))
        drawn = [[[pool[i] for i in llm.order(row, k)[:n]] for pool, n, llm in own]
                 for k in range(6)]  # fmt: skip
        orders["seeded"].append(mean(drawn))
        orders["exact"].append(mean(product(*(permutations(pool, n) for pool, n, _ in own))))
    for order in ("recorded", "seeded", *["exact"] * (len(draws) == 1)):
        result = evaluate(method, dataset, llms, order=order, replicates=6)
        assert result.right.tolist() == pytest.approx(orders[order], abs=1e-12)
        alone = [evaluate(method, dataset, llms, rows=[row], order=order, replicates=6).right[0]
                 for row in range(3)]  # fmt: skip
        assert alone == result.right[:3].tolist()


def test_errors_are_split_only_where_all_questions_can_be(tmp_path, monkeypatch):
    monkeypatch.setattr("feval.evaluation.replicates._QUESTIONS", 1)
    rows = [row | {"verdict": int(row["answer"] == "a")} for row in graded((0, 1))]
    rows[0]["verdict"] = 1 - rows[0]["verdict"]  # the first question is mixed
    dataset, [small] = load("d", ["small"], recording_of(tmp_path, rows))
    split = [evaluate(EarlyStopping(window=1, budget=3), dataset, small, rows=own, order="seeded")
             .errors()["stopped_early"] for own in ([0], [1], [0, 1])]  # fmt: skip
    assert [split[0], split[2]] == [None, None]
    assert split[1] is not None


@pytest.mark.parametrize(
    "answers", [("9.2", "10.9 11.5"), ("9.2", "10.9"), ("11 9.1", "12"), ("10.9 11.5", "10")]
)
def test_under_a_tolerance_a_cot_is_right_by_its_own_answer(tmp_path, answers):
    """Within a tenth of 10, whatever is in its party: 9.2 is not with 10.9, 11.5 and 12 are."""
    right = {"9.2": 1, "10.9": 1, "11.5": 0, "11": 1, "9.1": 1, "12": 0, "10": 1}
    rows = [
        {"id": "q", "question": "q", "gold": "10", "llm": llm, "sample": sample, "tokens": 1}
        | {"answer": answer, "verdict": right[answer]}
        for llm, each in zip(LLMS, answers, strict=True)
        for sample, answer in enumerate(each.split())
    ]
    place = recording_of(tmp_path, rows, "number", equality="tolerance-0.1")
    for names, rule in product(([0], [1], [0, 1]), (None, "gold")):
        dataset, llms = load("d", [LLMS[own] for own in names], place, right=rule)
        found = [evaluate(SingleCall(), dataset, llm).accuracy for llm in llms]
        assert found == [np.mean([right[each] for each in answers[own].split()])
                         for own in names]  # fmt: skip
    verdicts = told("info", place)["verdicts"]
    assert [each["disagreements"] for each in verdicts] == [0, 0]  # with the gold


def test_partial_credit_is_summed_exactly_and_counts_no_right_answers(tmp_path):
    rows = [row | {"verdict": 0.9} for row in graded((0, 1))]
    dataset, [small] = load("d", ["small"], recording_of(tmp_path, rows))
    recorded = evaluate(SingleCall(), dataset, small, order="recorded")
    assert recorded.right.tolist() == [0.9] * 5
    assert recorded.to_dict()["correct"] is None
    seeded = evaluate(SingleCall(), dataset, small, order="seeded", replicates=1_000)
    assert seeded.right.tolist() == pytest.approx([0.9] * 5, rel=1e-15)


def test_a_threshold_makes_partial_credit_binary(tmp_path):
    rows = graded((0, 0.3, 0.5, 1))
    place = recording_of(tmp_path, rows)
    dataset, [small, _] = load("d", LLMS, place, right="verdict>=0.5")
    share = np.mean([row["verdict"] >= 0.5 for row in rows if row["llm"] == "small"])
    assert evaluate(SingleCall(), dataset, small).accuracy == pytest.approx(share, abs=1e-12)
    with pytest.raises(UsageError, match=r"verdict>=0.5.*'verdict>2' was given"):
        load("d", LLMS, place, right="verdict>2")


def test_the_gold_decides_where_there_is_one(tmp_path):
    rows = [{"gold": "a"} | row for row in graded((0, 1))]
    place = recording_of(tmp_path, rows)
    by_gold = load("d", "small", place, right="gold")
    by_default = load("d", "small", place)
    accuracies = [evaluate(SelfConsistency(3), *each).accuracy for each in (by_gold, by_default)]
    assert accuracies[0] == accuracies[1]
    by_verdict = evaluate(SelfConsistency(3), "d", "small", recording=place, right="verdict")
    assert accuracies[0] != by_verdict.accuracy
    with pytest.raises(UsageError, match="an argument of `load`, too"):
        evaluate(SelfConsistency(3), *by_gold, right="verdict")


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Two questions with golds, and three without."""
    rows = [row | {"gold": "a" if row["id"] < "q2" else None} for row in graded((0, 0.5, 1))]
    return recording_of(
        tmp_path_factory.mktemp("both"), [row | {"grader": "pytest"} for row in rows]
    )


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("", "2 judged by gold, 3 by the verdicts of pytest"),
        ("--right verdict", "5 questions, judged by the verdicts of pytest\n"),
        ("--right verdict>=0.5", "the verdicts of pytest (right from 0.5 on)"),
        (
            "--right gold --drop unlabelled",
            "2 questions (left out: 3 with no readable gold), judged by",
        ),
    ],
)
def test_results_say_who_judges_and_are_computed_again(both, tmp_path, rule, words):
    out = tmp_path / "out"
    table = said("run single-call --llm small", rule, "--recording", both, "--out", out)
    assert words in table
    assert "all equal" in said("verify", out, "--recording", both)
    plan = tmp_path / "plan.toml"
    said("compare", plan, "--init --recording", both)
    for command in (["compare", plan], ["curve best-of-n --n 1 --llm small --recording", both]):
        assert words.strip() in said(*command, rule, "--out", tmp_path / command[0][:5])
    assert words.strip() in (tmp_path / "compa/report.html").read_text().replace("&gt;", ">")
    assert "all equal" in said("verify", tmp_path / "compa")


def test_json_counts_the_questions_judged_either_way(both):
    result = told("run single-call --llm small --recording", both)
    judges = {"gold": 2, "verdict": 3, "graders": ["pytest"], "right": None}
    assert result["judges"] == judges
    with pytest.raises(
        UnlabelledError, match=r"3 of 5 .* no gold .* without right='gold', verdicts"
    ):
        evaluate(SingleCall(), "d", "small", recording=both, right="gold")


@pytest.mark.parametrize("answer", ["last", "best", "all"])
@pytest.mark.parametrize("chains", [1, 3])
def test_revisions_are_as_right_as_the_turn_that_answers(tmp_path, answer, chains):
    random = Random(5)  # noqa: S311  a test

    def turn():
        cot = {"text": "x", "tokens": 3, "answer": random.choice("ab"), "score": random.random()}
        return cot | {"verdict": random.choice((0, 1))}

    rows = [
        {"id": f"q{q}", "question": f"t{q}", "llm": "small", "sample": s, **turn()}
        | {"turns": [{"messages": [{"role": "user", "content": "Revise."}], **turn()}]}
        for q in range(3)
        for s in range(4)
    ]
    dataset, [llm] = load("d", None, recording_of(tmp_path, rows))

    def chosen(*draw):
        turns = [turn for cot in draw for turn in (cot, *cot["turns"])]
        choose = best if answer == "best" else elected
        return choose(turns[1::2] if answer == "last" else turns)

    def of_chains(draw):
        return chosen(*draw)

    method = SequentialRevision(n=2 * chains, turns=2, answer=answer)
    drawn = evaluate(method, dataset, llm, order="seeded", replicates=20_000)
    assert drawn.accuracy == pytest.approx(expected(rows, of_chains, chains), abs=0.01)


def test_a_callable_may_ask_for_as_many_as_there_are(tmp_path):
    rows = [row for row in graded((0, 1)) if row["llm"] == "small" or row["sample"] < 2]
    rows = [row | ({"answer": None} if row["id"] == "q0" else {}) for row in rows]
    dataset, llms = load("d", LLMS, recording_of(tmp_path, rows))

    def all_of_both(_, small, large):
        answers = small.sample(5).answers + large.sample(2).answers
        return max(filter(None, answers), key=answers.count, default=None)

    truth = expected(rows, lambda one, other: elected(one + other), 5, 2)
    drawn = evaluate(all_of_both, dataset, llms, replicates=2_000)
    assert drawn.accuracy == pytest.approx(truth, abs=0.02)
    # questions that are evaluated apart: nobody answers the first
    assert evaluate(SelfConsistency(2), dataset, llms[0], rows=[0]).accuracy == 0


def test_no_method_sees_the_grader(recorded):
    _, dataset, [small, _] = recorded
    assert small.pool.channels.scorers() == ["score"]
    for ask in (
        lambda: small("q0", n=1).scores("verdict"),
        lambda: small.pool.scores("verdict"),
        lambda: evaluate(BestOfN(2, scorer="verdict"), dataset, small),
        lambda: evaluate(lambda _, llm: llm.sample(1).scores("verdict"), dataset, small),
    ):
        with pytest.raises((NotRecordedError, MethodError), match=r"no scores by 'verdict'"):
            ask()


def test_a_gold_that_no_cot_gave_is_still_one(tmp_path):
    place = recording_of(tmp_path, [{"gold": "5"} | row for row in graded((0, 1))], "number")
    dataset, [small] = load("d", ["small"], place, right="gold")
    assert evaluate(lambda _, llm: (llm.sample(1), "5")[1], dataset, small).accuracy == 1
    assert load("d", LLMS, place, right="verdict")[0].answer_key("q0", "5.0") == "5"


def test_tau_bench_is_right_by_its_rewards(shared, tmp_path):
    golden = json.loads((shared / "golden/verdicts.json").read_text())
    source, out = shared / "real/tau_bench", tmp_path / "out"
    import_recording("table", source, out, layout="tau-bench", answer_kind="verbatim")
    dataset, [llm] = load("airline", ["gpt-4o"], out)
    names = ("pass@k", "pass^k")
    curve = method_curve(dataset, [llm], "single-call", "n", [4, 1, 3, 2], measures=names)
    for name in names:
        theirs = golden["tau_bench"]["gpt-4o-airline"][name]
        ours = {str(point.n): point[name] for point in curve.points}
        assert ours == pytest.approx(theirs, abs=1e-12)
    with pytest.raises(NotRecordedError, match=r"self-consistency needs answers.*single-call"):
        evaluate(SelfConsistency(4), dataset, llm)


def test_pass_at_n_needs_cots_that_are_right_or_wrong(both, tmp_path):
    dataset, [small, _] = load("d", LLMS, both, right="verdict")
    points = [self_consistency_curve(dataset, small, [2], order=order).points[0]
              for order in ("exact", "seeded")]  # fmt: skip
    points += method_curve(dataset, [small], "best-of-n", "n", [2]).points
    assert [point.pass_at_n for point in points] == [None] * 3
    # partial credit of another LLM is none
    rows = [row | {"verdict": 0.5 if row["llm"] == "large" else int(row["sample"] == 0)}
            for row in graded((0, 1))]  # fmt: skip
    dataset, [small, _] = load("d", LLMS, recording_of(tmp_path, rows))
    [point] = method_curve(dataset, [small], "best-of-n", "n", [2]).points
    assert point.pass_at_n == pytest.approx(2 / 5)
    dataset, [small, _] = load("d", LLMS, both, right="verdict")
    with pytest.raises(UsageError, match=r"partial credit.*right='verdict>=0.5'"):
        evaluate(Oracle(2), dataset, small)


@pytest.mark.parametrize("n", [1, 2])
def test_the_oracle_of_several_llms_asks_the_cheapest_of_the_best(recorded, n):
    rows, dataset, llms = recorded
    result = evaluate(Oracle(n), dataset, llms)
    for place, question in enumerate(dataset.question_ids):
        pools = [[r for r in rows if (r["id"], r["llm"]) == (question, llm)] for llm in LLMS]
        outcomes = []
        for draws in product(*(combinations(pool, n) for pool in pools)):
            ranks = [
                (-max(cot["verdict"] or 0 for cot in draw), sum(cot["tokens"] for cot in pool), llm)
                for llm, (draw, pool) in enumerate(zip(draws, pools, strict=True))
            ]
            worst, _, asked = min(ranks)
            outcomes.append((-worst, sum(cot["tokens"] for cot in draws[asked])))
        found = result.right[place], result.output_tokens[place]
        assert found == pytest.approx(np.mean(outcomes, axis=0), abs=1e-12)
    assert (result.kind, result.calls_per_question) == ("exact", pytest.approx(1, abs=1e-12))


def test_measures_of_calls_are_of_verdicts(both):
    measures = ["accuracy", "pass@k", "pass^k", "g-pass@k:2/3", "mg-pass@k"]
    dataset, [small, large] = load("d", LLMS, both, right="verdict>=0.5")
    curve = method_curve(dataset, [small], "single-call", "k", range(1, 5), measures=measures)
    right = (small.pool.codes > -9) & (dataset.rightness.of_llm["small"] > 0)
    for point in curve.points:
        draws = np.array([[row[list(drawn)].sum() for drawn in combinations(range(5), point.n)]
                          for row in right])  # fmt: skip
        expected = {"accuracy": draws / point.n, "pass@k": draws >= 1, "pass^k": draws == point.n,
                    "g-pass@k:2/3": 3 * draws >= 2 * point.n}  # fmt: skip
        if point.n % 2 == 0:
            expected["mg-pass@k"] = np.maximum(2 * draws / point.n - 1, 0)
        for name, values in expected.items():
            assert point[name] == pytest.approx(values.mean(), abs=1e-12)
            assert point[f"{name}_low"] < point[name] < point[f"{name}_high"]
        assert point["pass@k"] == point.pass_at_n
        assert ("mg-pass@k" in point) == (point.n % 2 == 0)
    assert "even k" in curve.cautions[-1]
    assert curve.to_dict()["measures"] == measures
    assert [own.method for own in curve.by_measure()] == measures

    def asked(*measures, llms=(small,), k=(2,), method="single-call", field="k", **options):
        return method_curve(dataset, llms, method, field, k, measures=measures, **options)

    for words, ask in {
        "best-of-n, n, exact was asked": lambda: asked("pass^k", method="best-of-n", field="n"),
        "single-call, k, seeded was asked": lambda: asked("pass^k", order="seeded"),
        "even k": lambda: asked("mg-pass@k", k=(1, 3)),
        "calls of one LLM": lambda: asked("pass^k", llms=(small, large)),
        "Did you mean 'pass.k'.*g-pass@k:0.5": lambda: asked("pass^q"),
        "measure 'pass@k:0.5'": lambda: asked("pass@k:0.5"),
        "share of k samples.*'x'": lambda: asked("g-pass@k:x"),
        "5 recorded CoTs": lambda: asked("pass^k", k=(6,)),
    }.items():
        with pytest.raises(FevalError, match=words):
            ask()


def test_partial_credit_has_a_mean_and_no_other_measure(both):
    dataset, [small, _] = load("d", LLMS, both, right="verdict")
    partial = partial_curve(dataset, small, "accuracy")
    assert partial.points[0].accuracy == evaluate(SingleCall(), dataset, small).accuracy
    with pytest.raises(UsageError, match=r"pass\^k counts CoTs.*partial credit.*verdict>=0.5"):
        partial_curve(dataset, small, "pass^k")


def partial_curve(dataset, llm, measure):
    return method_curve(dataset, [llm], "single-call", "k", [3], measures=[measure])


@pytest.mark.parametrize("answered", [True, False])
def test_a_cascade_learns_from_verdicts(tmp_path, answered):
    # the score of the small LLM tells whether it is right, and the large one is always right
    rows = [
        row
        | ({} if answered else {"answer": None})
        | {"verdict": int(row["llm"] == "large" or row["score"] > 0.6), "prompt_tokens": 1}
        | {"tokens": 3 if row["llm"] == "small" else 30}
        for row in graded((0, 1))
    ]
    place = recording_of(tmp_path, rows)
    cascade = Cascade(samples=1, score="recorded")
    dataset, llms = load("d", LLMS, place)
    learnt = cascade.fit(training(dataset, llms, np.arange(5), cascade))
    [most] = map(float, learnt.thresholds)  # of 1 - score
    wrong = max(row["score"] for row in rows if not row["verdict"])
    assert most == pytest.approx(1 - wrong)  # a score above that accepts
    result = evaluate(cascade, dataset, llms, train_fraction=0.6)
    assert (result.accuracy, result.questions) == (1.0, 2)


def test_a_cascade_learns_where_no_answer_is_wrong(tmp_path):
    """By a verdict a CoT without an answer would be accepted."""
    rows = [
        {"id": "q", "question": "q", "llm": llm, "sample": 0, "tokens": 1, "prompt_tokens": 1}
        | {"score": 0.9, "answer": answer, "verdict": int(answer is not None)}
        for llm, answer in zip(LLMS, (None, "a"), strict=True)
    ]
    dataset, llms = load("d", LLMS, recording_of(tmp_path, rows))
    cascade = Cascade(samples=1, score="recorded")
    learnt = cascade.fit(training(dataset, llms, np.arange(1), cascade))
    assert 1 - float(learnt.thresholds[0]) >= 0.9


def test_what_cannot_learn_from_verdicts_says_so(both):
    for rule, method, words in (
        ("verdict", Cascade(samples=1, score="recorded"), "partial credit.*verdict>=0.5"),
        ("verdict>=0.5", Cascade(samples=3), "cascade learns from one right answer"),
    ):
        dataset, llms = load("d", LLMS, both, right=rule)
        with pytest.raises(UsageError, match=words):
            evaluate(method, dataset, llms, train_fraction=0.5)


def test_an_answer_is_as_right_as_its_cots(tmp_path):
    verdicts = {"a": (1, 1), "b": (0, 1), "c": (0, 0), None: (1, 1)}
    rows = [
        {"id": "q", "question": "q", "llm": "small", "sample": len(verdicts) * n + place}
        | {"answer": answer, "text": "x", "tokens": 3, "verdict": each[n], "gold": "c"}
        for place, (answer, each) in enumerate(verdicts.items())
        for n in (0, 1)
    ]
    dataset, [small] = load("d", None, recording_of(tmp_path, rows), right="verdict")
    own = {row["sample"]: row["verdict"] for row in rows}
    assert {cot.sample: dataset.is_right("q", cot) for cot in small("q").cots} == own
    said = [dataset.is_right("q", answer) for answer in ("a", "c", "z", None)]
    assert said == [True, False, False, False]
    with pytest.raises(NotRecordedError, match=r"'b' to question 'q'.*from 0 to 1 by verdict"):
        dataset.is_right("q", "b")


def test_a_missing_verdict_is_wrong_and_by_default_a_question_without_any_is_unlabelled(tmp_path):
    verdicts = {"q0": (1, None), "q1": (None, None), "q2": (None, None)}
    rows = [
        {"id": q, "question": q, "sample": s, "llm": "m", "text": "x", "tokens": 1, "answer": "a"}
        | {"verdict": verdict, "gold": "a" if q == "q2" else None}
        for q, each in verdicts.items()
        for s, verdict in enumerate(each)
    ]
    place = recording_of(tmp_path, rows)
    result = evaluate(SingleCall(), "d", "m", recording=place, right="verdict")
    assert (result.right.tolist(), result.judges.verdict) == ([0.5, 0, 0], 3)
    with pytest.raises(UnlabelledError, match=r"1 of 3 .* no verdict of verdict \(missing: q1\)"):
        evaluate(SingleCall(), "d", "m", recording=place)
    dropped = evaluate(SingleCall(), "d", "m", recording=place, unlabelled="drop")
    assert (dropped.right.tolist(), dropped.left_out.unlabelled) == ([0.5, 1], ("q1",))


def test_one_of_two_graders_is_named(tmp_path):
    rows = [{"gold": "a"} | row for row in graded((0, 1)) if row["llm"] == "small"]
    other = [row | {"verdict": 1 - row["verdict"], "grader": "the judge"} for row in rows]
    places = []
    for name, own in (("one", rows), ("other", other)):
        (tmp_path / name).mkdir()
        places.append(recording_of(tmp_path / name, own))
    both = merge(places, tmp_path / "both")
    for rule, each in (("verdict:verdict", rows), ("verdict:the judge >= 0.5", other)):
        result = evaluate(SingleCall(), "d", "small", recording=both, right=rule)
        assert result.accuracy == pytest.approx(np.mean([row["verdict"] for row in each]))
    for rule in ("verdict", "verdict:nobody"):
        with pytest.raises(
            UsageError, match=r"verdicts of verdict and the judge.*'verdict:verdict'"
        ):
            evaluate(SingleCall(), "d", "small", recording=both, right=rule)
    assert evaluate(SingleCall(), "d", "small", recording=both, right="gold").judges.graders == ()
    with pytest.warns(FevalWarning, match=r"right='verdict:verdict'\. Golds decide"):
        assert evaluate(SingleCall(), "d", "small", recording=both).judges is None
    differ = [sum((r["answer"] == "a") != r["verdict"] for r in rows if r["id"] == f"q{q}")
              for q in range(5)]  # fmt: skip
    shown = feval("show", both, "--json")
    assert "note: small on d has verdicts of verdict and the judge" in shown.stderr
    # what one says, the other denies
    listed = json.loads(shown.stdout)["questions"]
    assert {each["disagree"] for each in listed} == {5}
    listed = told("show", places[0], "--disagree")["questions"]
    assert {each["id"]: each["disagree"] for each in listed} == {
        f"q{q}": count for q, count in enumerate(differ) if count
    }
    assert "✓ a" in said("show", both, "q0")
    own = told("show", both, "q0 --right", Path("verdict:the judge"))["llms"][0]
    wrong = [cot["verdict"] == 0 for cot in rows if cot["id"] == "q0"]
    assert [cot["right"] for cot in own["samples"]] == wrong
    said("show", both, "--right verdict:verdict --html", tmp_path / "page.html")
    assert feval("show", both, "--html", tmp_path / "2.html").stderr.count("Golds decide") == 1


def test_verdicts_alone_are_compared(tmp_path):
    rows = [row | {"answer": None} for row in graded((0, 1))]
    place = recording_of(tmp_path, rows)
    methods = ["single-call", "best-of-n", "self-consistency"]
    options = {"cost": "samples", "llms": ["small"], "resamples": 100, "order": "exact"}
    with pytest.warns(FevalWarning, match="self-consistency"):
        compared = compare(place, methods, **options)
    [baseline] = compared.baselines
    mean = np.mean([row["verdict"] for row in rows if row["llm"] == "small"])
    assert baseline.accuracy == pytest.approx(mean, abs=1e-12)
    assert [curve.entry.method for curve in compared.curves] == ["single-call", "best-of-n"]
    assert "needs answers, and only verdicts were recorded" in compared.missing[0].reason


@pytest.mark.parametrize("values", [(0, 1), (0, 0.5, 1)], ids=["binary", "partial"])
def test_a_plan_from_verdicts_alone_has_methods_that_work(tmp_path, values):
    random = Random(4)  # noqa: S311  a test
    rows = [
        {"id": f"q{q}", "question": f"t{q}", "llm": llm, "sample": s, "text": "x", "tokens": tokens}
        | {"prompt_tokens": 2, "verdict": random.choice(values), "score": random.random()}
        for q in range(80)
        for llm, tokens in zip(LLMS, (3, 30), strict=True)
        for s in range(2)
    ]
    place, prices = recording_of(tmp_path, rows), tmp_path / "mine.json"
    card = {"id": "mine", "date": "2026-01-01", "source": "a test"}
    prices.write_text(json.dumps(card | {"prices": dict.fromkeys(LLMS, (1, 1))}))
    options = "--prices", prices
    made = feval("compare", tmp_path / "plan.toml", "--init --recording", place, *options)
    result = told("compare", tmp_path / "plan.toml", *options)
    own = [f"{name} ({llm})" for llm in LLMS for name in ("single-call", "best-of-n")]
    swept = ["cascade"] if values == (0, 1) else []
    assert [each["label"] for each in result["plan"]["method"]] == own + swept
    ceilings = [] if swept else [f"pass@n of {llm}" for llm in LLMS]
    assert [each["label"] for each in result["missing"]] == ceilings
    assert ("scored CoTs that are right or wrong" in made.stderr) == (not swept)
    places = {"prices": str(prices), "resamples": 10}
    if swept:
        assert compare(place, **places).plan.entries[-1].method == "cascade"
