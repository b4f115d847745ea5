"""Evaluation: any callable, kinds, costs, splits, how errors came about, workers, and what goes
wrong in users' methods.
"""

import itertools
import math
from collections import Counter
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from recorded_pools import Recorded
from small import SCORER, letters, scored_pool, write_rows, write_scored_toy, write_toy

from feval import SelfConsistency, compare, evaluate, load, method_curve, self_consistency_curve
from feval.errors import (
    FevalWarning,
    MethodError,
    NotRecordedError,
    OutOfRangeError,
    ShortPoolError,
    UnknownNameError,
    UsageError,
)
from feval.estimators.stopping_orders import require_few_partitions
from feval.evaluation.cautions import billed_once
from feval.evaluation.questions import train_test_rows
from feval.methods import (
    AdaptiveConsistency,
    AutoMix,
    BestOfN,
    Cascade,
    ConfidenceWeighted,
    DeepConfidence,
    DifficultyAdaptive,
    EarlyStopping,
    WeightedBestOfN,
)
from feval.methods.confidence_weighted import TEMPERATURES
from feval.methods.oracle import Oracle
from feval.methods.protocol import Decisions, InTurn, Ledger, drawn
from feval.recording import LLMInfo, add_scores

STRONG = letters("aaba", "xy-y", "bbbb", "----")
WEAK = letters("babb", "yxxx", "abaa", "q-qp")
GOLDS = ["a", "y", "b", "z"]


@pytest.fixture(scope="module")
def replay(tmp_path_factory):
    pools = {"gpt-3.5-turbo": STRONG, "gpt-4o-mini": WEAK}
    out = write_toy(tmp_path_factory.mktemp("evaluation") / "toy", pools, GOLDS)
    return load("toy", recording=out, seed=3)


def toy(folder, pools, golds, **options):
    """A recording of one LLM, loaded."""
    recording = write_toy(folder / "toy", {"gpt-4o-mini": pools}, golds)
    dataset, [llm] = load("toy", recording=recording, **options)
    return dataset, llm


def vote_of_three(question, llm):
    votes = Counter(answer for answer in llm.sample(3).answers if answer is not None)
    return max(votes, key=votes.__getitem__) if votes else None


def two_rounds(question, first, second):
    a, b = first.sample(2).answers
    return a if a == b else second.sample().answers[0]


@dataclass(frozen=True)
class TwoRounds:
    """`two_rounds` over arrays."""

    def draws(self, llms):
        return 2, 1

    def decide(self, pools, orders):
        turn = InTurn(self, pools, orders)
        places = np.arange(turn.answer.size)
        turn.answer[:], other = turn.llms[0].sample(places).codes
        differ = places[turn.answer != other]
        [turn.answer[differ]] = turn.llms[1].sample(differ).codes
        return turn.decisions()


@pytest.mark.parametrize("order", ["seeded", "recorded"])
def test_a_callable_and_its_batch_form_give_the_same_numbers(order, replay):
    called, batch = (
        evaluate(method, *replay, order=order, replicates=9) for method in (two_rounds, TwoRounds())
    )
    for name in ("right", "no_answer", "calls", "samples", "tokens", "usd"):
        assert getattr(called, name).tolist() == getattr(batch, name).tolist(), name
    own = {"method": "", "errors": 0}
    assert called.to_dict() | own == batch.to_dict() | own
    assert (called.method, batch.method) == ("two_rounds", "tworounds")


def test_recorded_order_by_hand(replay):
    dataset, [strong, _] = replay
    result = evaluate(vote_of_three, dataset, strong, order="recorded")
    # a, then x and y tie and x is seen first, b, and no answer
    assert result.right.tolist() == [1, 0, 1, 0]
    assert result.no_answer.tolist() == [0, 0, 0, 1]
    assert result.usd.tolist() == pytest.approx([1e-6 * (7 * 0.5 + 33 * 1.5)] * 4)
    summary = result.to_dict()
    assert (summary["correct"], summary["samples"], summary["calls_per_question"]) == (2, 12, 1.0)
    assert summary["tokens_per_question"] == 7 + 33
    assert (summary["kind"], summary["replicates"]) == ("recorded", 1)


def test_exact_is_the_default_where_there_is_such_a_form(replay):
    dataset, [strong, _] = replay
    exact, seeded = (
        evaluate(method, dataset, strong) for method in (SelfConsistency(3), vote_of_three)
    )
    assert (exact.kind, seeded.kind) == ("exact", "seeded")
    orders = itertools.permutations(STRONG[0], 3)
    draws = [vote_of_three("", Recorded(list(order))) for order in orders]
    assert exact.right[0] == pytest.approx(draws.count("a") / len(draws), abs=1e-14)
    assert sum(exact.errors().values()) == pytest.approx(1 - exact.accuracy, abs=1e-14)
    assert exact.no_answer.tolist() == [0, 0, 0, 1]
    with pytest.raises(UsageError, match=r"No exact expectation .* is known for vote_of_three"):
        evaluate(vote_of_three, dataset, strong, order="exact")
    with pytest.raises(UnknownNameError, match="recorded"):
        evaluate(vote_of_three, dataset, strong, order="recordd")


def test_the_oracle_is_pass_at_n(replay):
    dataset, [strong, _] = replay
    result = evaluate(Oracle(2), dataset, strong)
    assert result.right.tolist() == pytest.approx([1, 1 - math.comb(2, 2) / math.comb(4, 2), 1, 0])
    with pytest.raises(UsageError, match="order='exact'"):
        evaluate(Oracle(2), dataset, strong, order="seeded")
    with pytest.raises(OutOfRangeError, match="n=0"):
        Oracle(0)


def test_prompts_are_billed_by_the_rule(tmp_path):
    out = write_toy(tmp_path / "toy", {"gpt-3.5-turbo": STRONG, "gpt-4o-mini": WEAK}, GOLDS)
    for billing, prompts in (("once", [1, 1]), ("per_round", [3, 1]), ("per_sample", [4, 2])):
        dataset, llms = load("toy", recording=out, billing=billing)
        result = evaluate(_rounds, dataset, llms, order="recorded")
        tokens = 100 + (10 + 11 + 12 + 5 + 3) + (10 + 11)
        assert result.tokens.tolist() == [7 * sum(prompts) + tokens] * 4, billing
        assert result.calls.tolist() == [3 + 2 + 1] * 4
        assert result.tokens_per_round.tolist() == [7 * 4 + tokens] * 4, billing


def test_two_calls_of_two_llms_are_paid_alike_by_the_round(replay):
    cascade = evaluate(two_rounds, *replay, order="recorded")
    assert cascade.calls_per_question > 1
    assert "per_round" not in " ".join(cascade.warnings)


@pytest.mark.parametrize("questions", [1, 9, 10, 29, 30])
def test_fewer_than_thirty_questions_carry_a_warning(questions, tmp_path):
    dataset, llm = toy(tmp_path, [["a", "b"]] * questions, ["a"] * questions)
    results = (
        evaluate(SelfConsistency(1), dataset, llm),
        self_consistency_curve(dataset, llm, [1, 2]),
        method_curve(dataset, [llm], "self-consistency", "n", [1, 2]),
    )
    plural, limit = "s" * (questions > 1), 10 if questions < 10 else 30
    for result in results:
        assert list(result.warnings) == result.to_dict()["warnings"]
        assert len(result.warnings) == (questions < 30)
        for sentence in result.warnings:
            assert sentence.startswith(f"Only {questions} question{plural}: below {limit}")


def test_curves_and_evaluations_have_the_same_interval(replay):
    dataset, [strong, _] = replay
    for order in ("exact", "recorded", "seeded"):
        [point] = self_consistency_curve(dataset, strong, [3], order=order, replicates=5).points
        result = evaluate(SelfConsistency(3), dataset, strong, order=order, replicates=5)
        ends = point.accuracy_low, point.accuracy_high
        assert (result.accuracy_low, result.accuracy_high) == pytest.approx(ends)
        assert point.usd_per_question_per_round == result.usd_per_question_per_round
        assert point.calls_per_question == 1


def _rounds(question, first, second):
    for k in (1, 2, 1):
        first.sample(k)
    first.truncate(3, 5)
    first.charge(calls=2, prompt_tokens=100, output_tokens=3)
    return str(second.sample(2).answers[0])


def test_the_seed_of_an_evaluation_overrides_that_of_the_load(replay):
    dataset, [strong, _] = replay
    three, four, own = (
        evaluate(vote_of_three, dataset, strong, replicates=29, seed=seed).right.tolist()
        for seed in (3, 4, None)
    )
    assert three == own != four


def test_an_answer_that_nobody_gave_is_wrong(replay):
    dataset, [strong, _] = replay
    result = evaluate(lambda question, llm: "made up", dataset, strong, order="recorded")
    for name in ("right", "no_answer", "samples", "usd"):
        assert getattr(result, name).tolist() == [0] * 4


def test_errors_are_told_apart(replay):
    dataset, llms = replay

    @dataclass(frozen=True)
    class Fixed:
        """Takes the first CoT of the second LLM, though it might take four of each."""

        def draws(self, llms):
            return (4,) * llms

        def decide(self, pools, orders):
            code = drawn(pools[1].codes, orders[1])[..., 0].astype(int)
            one, none = np.ones(code.shape, int), np.zeros(code.shape, int)
            return Decisions(code, (Ledger(none, none, none), Ledger(one, one, one)))

    result = evaluate(Fixed(), dataset, llms, order="recorded")
    assert result.right.tolist() == [0, 1, 0, 0]
    assert result.stopped_early.tolist() == [0, 0, 0, 0]  # all four of the weak LLM vote wrong, too
    assert result.routed_wrong.tolist() == [1, 0, 1, 0]  # those of the strong one would be right
    assert list(result.errors().values()) == [
        0,
        0.25,
        0,
        0.5,
    ]  # no answer, wrong vote, early, routed
    early = evaluate(Fixed(), dataset, llms[::-1], order="recorded")
    assert early.right.tolist() == [1, 0, 1, 0]
    assert early.stopped_early.tolist() == [0, 1, 0, 0]  # x, y, no answer, y: y
    assert sum(early.errors().values()) == pytest.approx(1 - early.accuracy)


def test_a_split_is_a_function_of_keys_and_seed(tmp_path):
    dataset, _ = toy(tmp_path, [["a", "b"]] * 40, ["a"] * 40)
    train, test = train_test_rows(dataset, 0.25, 1)
    assert sorted([*train, *test]) == list(range(40))
    assert len(train) == 10
    assert [train_test_rows(dataset, 0.25, 1)[0].tolist()] == [train.tolist()]
    assert train_test_rows(dataset, 0.25, 2)[0].tolist() != train.tolist()
    assert set(train) < set(train_test_rows(dataset, 0.5, 1)[0])
    assert len(train_test_rows(dataset, 0.001)[0]) == 1
    for fraction in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(OutOfRangeError, match="between 0 and 1"):
            train_test_rows(dataset, fraction)


@dataclass(frozen=True)
class Learner(TwoRounds):
    """Remembers what it was taught."""

    taught: tuple[int, ...] | None = None

    def fit(self, train):
        assert {*map(len, (pool.sizes for pool in train.pools))} == {len(train.gold)}
        return Learner(tuple(train.gold.tolist()))


def test_what_learns_is_judged_on_other_questions(replay):
    split = {"train_fraction": 0.5, "split_seed": 5}
    result = evaluate(Learner(), *replay, **split)
    train, test = train_test_rows(replay[0], 0.5, 5)
    assert result.fields == {"taught": tuple(replay[0].gold[train].tolist())}
    assert result.question_ids == [replay[0].question_ids[row] for row in test]
    assert (result.train_questions, result.questions) == (2, 2)
    passage = {replay[0].question_ids[row]: "one" for row in (train[0], test[1])}
    judged = {*evaluate(Learner(), *replay, **split, clusters=passage).question_ids}
    assert len(judged & passage.keys()) in (0, len(passage))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("self-consistency", "is not a method"),
        (SelfConsistency, r"such as SelfConsistency\(\)"),
        (3, "3 is no"),
    ],
)
def test_what_is_no_method_is_refused_before_anything_runs(value, words, replay):
    with pytest.raises(UsageError, match=words):
        evaluate(value, *replay)


def test_a_method_that_cannot_travel_needs_one_worker(replay):
    with pytest.raises(UsageError, match="cannot be sent to another process"):
        evaluate(lambda question, a, b: None, *replay, workers=2)


def test_an_error_in_a_worker_is_the_error(replay):
    with pytest.raises(
        MethodError, match="The method raises on question 'toy/0' raised ZeroDivisionError"
    ):
        evaluate(raises, *replay, workers=2)


def raises(question, *llms):
    return str(1 / 0)


def greedy(question, *llms):
    while True:
        llms[0].sample()


def tampers(question, *llms):
    llms[0].cots = -1


def tampers_with_a_cot(question, *llms):
    llms[0].sample().cots[0].answer = "a"


def half(question, *llms):
    llms[0].sample(0.5)


def number(question, *llms):
    return 42


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (raises, "raises on question 'toy/0' raised ZeroDivisionError: .*test_evaluation.py, line"),
        (greedy, "greedy on question 'toy/0' failed: .* has 4 recorded CoTs .*; 5 were asked for"),
        (tampers, "tampers on question 'toy/0' raised AttributeError"),
        (tampers_with_a_cot, r"raised FrozenInstanceError: .*'answer' \(test_evaluation.py, line"),
        (half, "half on question 'toy/0' failed: .* 1 CoT or more at a time; 0.5 were asked for"),
        (number, "'toy/0' returned 42, of type int. A method returns its answer as text, or None"),
    ],
)
def test_a_method_that_fails_is_named_with_its_question(method, words, replay):
    with pytest.raises(MethodError, match=words):
        evaluate(method, *replay)


@pytest.mark.parametrize(
    ("method", "llms", "words"),
    [
        (SelfConsistency(5), 1, "self-consistency .* 4 recorded CoTs .*'toy/0' of toy; 5 were"),
        (BestOfN(4), 1, "best-of-n .* has no scores.*feval score .* reward model"),
        (WeightedBestOfN(4), 1, "weighted-best-of-n .* has no scores.*feval score .* reward model"),
        (Cascade(("0.5",)), 2, "cascade .* has no scores.*score='vote-share' needs none"),
        (AutoMix(), 2, "automix .* has no scores.*feval score .* verifications"),
        (DifficultyAdaptive(budget=4), 1, "difficulty-adaptive .* ranking='prompt-length' needs"),
        (ConfidenceWeighted(4, temperature=1.0), 1, "confidence-weighted .*record --logprobs"),
        (DeepConfidence(4), 1, "deep-confidence .* no log-probabilities .*record --logprobs"),
    ],
)
@pytest.mark.parametrize("order", ["seeded", "recorded"])
def test_what_a_recording_lacks_is_said_and_what_to_do(order, method, llms, words, replay):
    with pytest.raises((ShortPoolError, NotRecordedError), match=f"The method {words}"):
        evaluate(method, replay[0], replay[1][:llms], order=order)


def test_where_an_expectation_is_out_of_reach_draws_take_its_place_and_say_so(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(require_few_partitions, "__defaults__", (1000,))
    counts = (20, 15, 12, 10, 8, 7, 6, 5, 5, 4, 4, 3, 3, *[2] * 6, *[1] * 10)
    diverse = [str(answer) for answer, times in enumerate(counts) for _ in range(times)]
    dataset, llm = toy(tmp_path, [diverse], ["0"])
    method, why = AdaptiveConsistency(budget=64), "would visit more than"
    result, drawn = (
        evaluate(method, dataset, llm, replicates=9, order=order) for order in (None, "seeded")
    )
    assert (result.kind, result.accuracy) == ("seeded", drawn.accuracy)
    assert result.samples_per_question == drawn.samples_per_question
    assert [why in sentence for sentence in (*result.warnings, *drawn.warnings)].count(True) == 1
    swept = dataset, [llm], "adaptive-consistency", "budget"
    curve = method_curve(*swept, [2, 64], replicates=9)
    assert [point.kind for point in curve.points] == ["seeded", "seeded"]  # a curve is of one kind
    both = tmp_path / "toy", [SelfConsistency(3), method]
    compared = compare(*both, replicates=9)
    assert (compared.kinds, compared.missing) == (("seeded",), ())
    for each in (curve, compared):
        assert why in " ".join(each.warnings)
    with pytest.warns(FevalWarning, match="Left out: adaptive-consistency"):
        [missing] = compare(*both, replicates=9, order="exact").missing
    assert missing.reason.startswith("The exact")
    with pytest.raises(UsageError, match=rf"{why}.*order='seeded'"):
        evaluate(method, dataset, llm, order="exact")
    with pytest.raises(UsageError, match=rf"{why}.*order='seeded'"):
        method_curve(*swept, [64], order="exact")


def test_an_llm_that_was_kept_hands_out_nothing_that_no_ledger_counts(replay):
    kept = []

    def hoarder(question, *llms):
        answer = (kept or llms)[0].sample().answers[0]
        kept[:] = llms
        return answer

    with pytest.raises(
        MethodError,
        match=r"hoarder on question 'toy/1' failed: This .* was kept from another question",
    ):
        evaluate(hoarder, *replay)


class EqualsAll(str):
    """Text that says it equals anything."""

    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


def test_an_answer_counts_as_the_text_it_is(replay):
    for text, right in (("zzz", [0] * 4), ("a", [1, 0, 0, 0])):
        result = evaluate(lambda *_, text=text: EqualsAll(text), *replay, replicates=1)
        assert result.right.tolist() == right


def test_names_are_loaded_from_a_recording(tmp_path):
    dataset, llm = toy(tmp_path, STRONG, GOLDS)
    asked = evaluate(SelfConsistency(2), "toy", llm.name, recording=tmp_path / "toy")
    assert asked.to_dict() == evaluate(SelfConsistency(2), dataset, llm).to_dict()
    for mixed in ((dataset, llm.name), ("toy", llm), ("toy", [llm.name, llm])):
        with pytest.raises(UsageError, match=r"the names of both; .* was given"):
            evaluate(SelfConsistency(2), *mixed, recording=tmp_path / "toy")


def test_nonsense_is_refused(replay):
    dataset, llms = replay
    for wrong, words in (
        ({"replicates": 0}, "needs an LLM, a replicate and a worker"),
        ({"workers": 0}, "needs an LLM, a replicate and a worker"),
        ({"llms": []}, "needs an LLM"),
        ({"rows": []}, "evaluated on none"),
    ):
        with pytest.raises(UsageError, match=words):
            evaluate(two_rounds, **{"dataset": dataset, "llms": llms} | wrong)


def test_what_was_given_is_not_learnt_again(tmp_path):
    rows = letters("abaa-bca") * 6
    pools = {"m": rows, "n": rows[::-1]}
    out = write_scored_toy(tmp_path / "toy", pools, [*"abcbaa"])
    dataset, llms = load("toy", recording=out)

    def fitted(method, llms):
        return evaluate(method, dataset, llms, train_fraction=0.5)

    given = ConfidenceWeighted(8, temperature=0.37)
    _, test = train_test_rows(dataset, 0.5)
    result = fitted(given, llms[0])
    assert result.fields["temperature"] == 0.37
    assert result.right.tolist() == evaluate(given, dataset, llms[0], rows=test).right.tolist()
    assert fitted(ConfidenceWeighted(8), llms[0]).fields["temperature"] in TEMPERATURES
    cascade = Cascade(thresholds=("0.7",), score="vote-share", samples=4)
    assert fitted(cascade, llms).fields["thresholds"] == ("0.7",)
    assert fitted(replace(cascade, thresholds=None), llms).fields["thresholds"]


def test_cots_without_a_score_are_counted_beside_the_result(tmp_path):
    rows = letters("abaa-bca") * 12
    recording = write_scored_toy(tmp_path / "toy", {"m": rows}, ["a"] * 12)
    dataset, [llm] = load("toy", recording=recording)
    lacking = np.isnan(llm.pool.aggregated(None, "score")) & (llm.pool.codes >= 0)
    assert 0 < lacking.sum() < 84
    sentence = f"{lacking.sum()} of 84 CoTs of m have no score or confidence"
    curve = method_curve(dataset, [llm], "best-of-n", "n", [2, 3], settings={"aggregate": "score"})
    comparison = compare(tmp_path / "toy", [WeightedBestOfN(3, aggregate="score")])
    best = BestOfN(3, aggregate="score")
    for result in (evaluate(best, dataset, llm), curve, comparison):
        assert [warning.startswith(sentence) for warning in result.warnings].count(True) == 1
        assert list(result.warnings) == result.to_dict()["warnings"]
    row = int((~lacking.any(axis=1)).argmax())
    for method, rows in ((SelfConsistency(3), None), (best, [row])):
        assert "no score" not in " ".join(evaluate(method, dataset, llm, rows=rows).warnings)


def test_weights_below_zero_stop_an_evaluation_before_any_draw(tmp_path):
    def negative(scores):
        return replace(
            scores, scores=[None if s is None else s - 1 for s in scores.scores], step_scores=None
        )

    made = [scored_pool("m", i, ["a", "a", "a", "b"]) for i in range(3)]
    plain = write_rows(tmp_path / "plain", ["a"] * 3, (LLMInfo("m"), [rich for rich, _ in made]))
    out = add_scores(
        plain, tmp_path / "scored", SCORER, {("toy", "m"): [negative(scores) for _, scores in made]}
    )
    dataset, [llm] = load("toy", recording=out)
    undrawn = llm.drawing(lambda *_: pytest.fail("it drew"))
    with pytest.raises(
        UsageError, match=rf"the least by {SCORER.name} is -1\. .* transform=exp, sigmoid or rank"
    ):
        evaluate(WeightedBestOfN(3, aggregate="score"), dataset, undrawn)
    assert (
        evaluate(WeightedBestOfN(3, aggregate="score", transform="rank"), dataset, llm).accuracy
        > 0.5
    )


def test_coins_do_not_know_the_split(tmp_path):
    """Test questions are chosen by numbers of their own: a coin that is first tossed after draw 0
    is as fair there.
    """
    dataset, llm = toy(tmp_path, [["a", "b"]] * 1000, ["a"] * 1000)
    method = AdaptiveConsistency("random", threshold=0.5, budget=2)
    result = evaluate(method, dataset, llm, order="recorded", train_fraction=0.5)
    assert result.samples.mean() == pytest.approx(1.5, abs=0.09)  # four standard errors


@pytest.mark.parametrize(
    ("method", "field"), [(SelfConsistency(40), "n"), (EarlyStopping(2, 40), "budget")]
)
def test_a_budget_above_the_pool_names_its_field(method, field, replay):
    dataset, [llm, *_] = replay
    smallest = llm.pool.smallest
    with pytest.raises(
        ShortPoolError, match=rf"Its budget is the field {field}: {field}={smallest}"
    ):
        evaluate(method, dataset, llm)


@pytest.mark.parametrize(("per_round", "said"), [(0.01004, False), (0.0106, True)])
def test_billing_per_round_is_named_where_it_changes_the_second_digit(per_round, said):
    costs = SimpleNamespace(
        usd_per_question=0.01, usd_per_question_per_round=per_round, calls_per_question=2.0
    )
    assert bool(list(billed_once("once", [("mine", costs)]))) is said


def second(question, llm):
    return llm.sample(2).answers[1]


@pytest.mark.parametrize("method", [SelfConsistency(3), vote_of_three, second])
@pytest.mark.parametrize("order", ["seeded", "recorded"])
def test_draws_show_each_answer_and_how_right_it_is(replay, method, order):
    dataset, [strong, _] = replay
    result = evaluate(method, dataset, strong, order=order, replicates=6)
    draws = result.draws
    assert draws.answer.shape == draws.right.shape == (1 if order == "recorded" else 6, 4)
    assert draws.right.mean(axis=0).tolist() == pytest.approx(result.right.tolist())
    assert (draws.answer == np.array(GOLDS, object)).tolist() == draws.right.tolist()
    with pytest.raises(UsageError, match="expectation over all draws, of which it made none"):
        evaluate(SelfConsistency(2), dataset, strong).draws  # noqa: B018  it is computed
