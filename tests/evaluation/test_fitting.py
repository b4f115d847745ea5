"""What learns sees training questions alone, and is judged on others: splits, folds, groups, costs,
and what a receipt holds of it.
"""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from command_line import said
from places import read_data
from small import import_rows

from feval import (
    BudgetPolicy,
    Cascade,
    Router,
    SelfConsistency,
    compare,
    errors,
    evaluate,
    load,
    verify_receipt,
)
from feval.cards.billing import Price
from feval.cards.prices import PriceList
from feval.comparison.comparison import load_compared, traces
from feval.errors import UsageError
from feval.evaluation.fitting import questions_of, ready, training
from feval.evaluation.questions import splits, train_test_rows
from feval.methods.protocol import Predicting, Predictions, Question

LLMS = ["small", "large"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """24 questions, the first six in pairs of equal texts, by five authors; large is dearer."""
    folder = tmp_path_factory.mktemp("fitting")
    rows = [
        {"id": f"q{q}", "question": f"What is {max(q, 6) if q > 5 else q // 2}?", "gold": "1"}
        | {"features": {"author": f"a{q % 5}"} | ({"level": "1"} if q else {})}
        | {"llm": llm, "text": f"so {answer}", "answer": answer, "tokens": 10 + q + s}
        | {"prompt_tokens": 5 + q}
        for q in range(24)
        for llm in LLMS
        for s, answer in enumerate("101"[q % 2 :] + "1" if llm == "small" else "1101")
    ]
    return priced(folder, rows, {"small": (1, 1), "large": (10, 10)})


def priced(folder, rows, usd):
    """A recording of rows, at USD per million input and output tokens of each LLM."""
    prices = PriceList("p", "2026-01-01", "by hand", {llm: Price(*own) for llm, own in usd.items()})
    (folder / "prices.json").write_text(json.dumps(prices.to_json()))
    listed = str(folder / "prices.json")
    return import_rows(folder / "made", rows, answer_kind="text", prices=listed)


@pytest.fixture(scope="module")
def replay(place):
    return load("d", LLMS, place)


@dataclass(frozen=True)
class Noting:
    """Answers with an LLM that it chose by what it was shown."""

    taught: tuple[Any, ...] | None = None

    @property
    def fitted(self):
        return self.taught is not None

    def fit(self, train):
        return Noting((tuple(train.keys.tolist()), len(train.gold)))

    def __call__(self, question, *llms):
        assert question.key not in self.taught[0]
        return llms[len(question.features) % 2].sample(1).answers[0]


def test_training_has_what_is_known_of_its_questions_alone(replay):
    dataset, llms = replay
    rows = np.array([3, 9])
    train = training(dataset, llms, rows)
    assert [*train.texts] == ["What is 1?", "What is 9?"]
    assert [*train.features][1] == {"author": "a4", "level": "1"}
    assert train.replies(1)[0] == ["so 1", "so 1", "so 0", "so 1"]
    assert train.unit == "USD"
    # USD of one request: prompt 5 + q, reply 10 + q + s, at 1 and 10 USD per million
    assert train.costs[1][0].tolist() == pytest.approx([1e-5 * (21 + s) for s in range(4)])
    assert train.costs[0][1, :3].tolist() == pytest.approx([1e-6 * (33 + s) for s in range(3)])
    assert np.isnan(train.costs[0][1, 3:]).all()
    assert train.gold.tolist() == dataset.gold[rows].tolist()
    assert not hasattr(questions_of(dataset, llms, rows), "gold")


def folds_of(dataset, folds, seed):
    """[Q] the fold in which each question is judged."""
    number = np.empty(len(dataset), int)
    for fold, split in enumerate(
        splits(dataset, np.arange(len(dataset)), None, folds, seed, None, None)
    ):
        number[split.test] = fold
    return number


def test_equal_texts_stay_on_one_side(replay):
    dataset, _ = replay
    texts = [entry.question for _, entry in dataset]
    for seed in range(30):
        train, test = train_test_rows(dataset, 0.4, seed)
        assert sorted([*train, *test]) == [*range(24)]
        assert {texts[row] for row in train}.isdisjoint({texts[row] for row in test})
        assert abs(len(train) - 10) <= 1
        folds = folds_of(dataset, 5, seed)
        assert all(len({folds[row] for row in rows}) == 1 for rows in ((0, 1), (2, 3), (4, 5)))
        assert max(Counter(folds.tolist()).values()) - min(Counter(folds.tolist()).values()) <= 2
    authors = np.array([entry.features["author"] for _, entry in dataset])
    # authors share texts: a0 and a1, a2 and a3, a4 and a0
    train, test = train_test_rows(dataset, 0.5, group="author")
    assert {frozenset(authors[train]), frozenset(authors[test])} == {
        frozenset({"a0", "a1", "a4"}), frozenset({"a2", "a3"})
    }  # fmt: skip


def test_folds_judge_each_question_once_by_the_fit_without_it(replay):
    dataset, llms = replay
    split = {"folds": 4, "split_seed": 3, "replicates": 5}
    result = evaluate(Noting(), dataset, llms, **split)
    assert [*result.question_ids] == [*dataset.question_ids]
    number = folds_of(dataset, 4, 3)
    learnt = {key for fit in result.learnt for key in fit.method.taught[0]}
    assert learnt == {*dataset.question_keys.tolist()}
    cascade = Cascade(score="vote-share", samples=2)
    folds = evaluate(cascade, dataset, llms, **split)
    assert folds.fields["thresholds"] is None
    for fold in range(4):
        fitted = cascade.fit(training(dataset, llms, np.flatnonzero(number != fold)))
        rows = np.flatnonzero(number == fold)
        alone = evaluate(fitted, dataset, llms, rows=rows, replicates=5)
        for name in ("right", "usd", "output_tokens", "no_answer", "stopped_early"):
            assert getattr(folds, name)[rows].tolist() == getattr(alone, name).tolist()
        assert folds.learnt[fold].to_dict()["fields"]["thresholds"] == list(fitted.thresholds)
    plain = evaluate(SelfConsistency(2), dataset, llms[0], **split)
    assert plain.right.tolist() == evaluate(SelfConsistency(2), dataset, llms[0]).right.tolist()


def test_what_the_calls_of_training_questions_cost_is_said(replay):
    dataset, llms = replay
    cascade = Cascade(score="vote-share", samples=2)
    result = evaluate(cascade, dataset, llms, train_fraction=0.5)
    [fit] = result.learnt
    rows = [row for row in range(24) if row not in fit.rows]
    expected = sum(
        price * (llm.pool.prompt_tokens[row] + llm.pool.output_tokens[row].sum())
        for llm, price in zip(llms, (1e-6, 1e-5), strict=True)
        for row in rows
    )
    assert fit.cost == pytest.approx(expected)
    assert result.to_dict()["learnt"][0]["questions"] == len(rows) == result.train_questions
    assert f"{len(rows)} questions, whose CoTs cost {fit.cost:.4g} USD" in result.learnt_text
    with pytest.raises(UsageError, match="learnt from 1 of the 3 questions"):
        evaluate(fit.method, dataset, llms, rows=[rows[0], *fit.rows[:2]])


def test_what_spends_more_than_the_budget_it_was_fitted_to_says_so(replay):
    dataset, llms = replay
    over = []
    for budget in (3.8e-5, 5e-5, 1e-4, 3e-4, 1):
        cascade = Cascade(score="vote-share", budget=budget)
        result = evaluate(cascade, dataset, llms, train_fraction=0.5)
        spent = result.usd_per_question
        over.append(spent > budget)
        said = f"{1000 * budget:.6g} USD per 1,000 questions, and takes {1000 * spent:.4g} "
        assert any(said in each for each in result.cautions) is over[-1]
    assert {*over} == {True, False}


def test_a_report_follows_what_was_learnt_in_folds(place, replay):
    fields = {"samples": 2, "score": "vote-share"}
    result = compare(
        place, [{"name": "cascade", "label": "c", "llms": LLMS, "fields": fields}],
        folds=3, order="recorded", dataset="d",
    )  # fmt: skip
    found = traces(result, *load_compared(result))
    [[trace]] = found.curves
    [point] = result.curves[0].points
    assert found.rows.tolist() == [*range(24)]
    assert ((trace.answer == replay[0].gold) == (point.right == 1)).all()
    assert trace.cots.sum(axis=0).tolist() == point.samples.tolist()


@pytest.mark.parametrize(
    ("options", "error", "words"), read_data("evaluations.json")["splits that cannot be had"]
)
def test_splits_that_cannot_be_had(replay, options, error, words):
    with pytest.raises(getattr(errors, error), match=words):
        evaluate(Noting(), *replay, **options)


class Said(Predicting):
    """Fitted to nothing; it says the number of letters of each question."""

    fitted = True

    def predicted(self, questions):
        lengths = np.array([*map(len, questions.texts)], float)
        return self.having(predictions=Predictions(questions.keys, {"length": lengths}))

    def __call__(self, question, llm):
        [length] = self.predicts(np.array([question.key], np.uint64))["length"]
        assert length == len(question)
        return llm.sample(1).answers[0]


def test_what_was_fitted_elsewhere_is_judged_on_other_questions(replay, place):
    dataset, llms = replay
    method = Said().having(model=1, learnt_from=training(dataset, llms[:1], np.arange(6)))
    result = evaluate(method, dataset, llms[0], rows=range(8, 20), replicates=2)
    assert result.questions == 12
    for other, rows, words in (
        (llms[0], range(5, 9), "learnt from 1 of the 4 questions"),
        (llms[1], range(8, 9), "learnt from small, and is to be judged with large"),
        (load("d", LLMS, place, prices="none")[1][0], range(8, 9), "at other prices"),
    ):
        used = load("d", LLMS, place, prices="none")[0] if "prices" in words else dataset
        with pytest.raises(UsageError, match=words):
            evaluate(method, used, other, rows=rows, replicates=2)
    judged = ready(method, dataset, llms[:1], np.arange(8, 12))
    with pytest.raises(UsageError, match="says nothing of 1 of 2 questions"):
        judged.predicts(dataset.question_keys[11:13])


def test_predictions_come_back_from_json():
    values = {"share": np.array([[0.1, np.nan], [1, 0]])}
    said = Predictions(np.array([2**64 - 1, 3], np.uint64), values)
    back = Predictions.from_dict(json.loads(json.dumps(said.to_dict())))
    assert back.keys.tolist() == said.keys.tolist()
    np.testing.assert_array_equal(back.values["share"], values["share"])
    for damaged in read_data("evaluations.json")["damaged predictions"]:
        with pytest.raises(UsageError, match="no predictions"):
            Predictions.from_dict(damaged)


def test_a_question_is_text_with_features():
    plain, question = Question("a"), Question("a", {"b": "c"}, 3)
    assert plain == question == "a"
    assert (plain.features, question.features, question.key) == ({}, {"b": "c"}, 3)


@pytest.fixture(scope="module")
def receipts(place, tmp_path_factory):
    """Receipts of a router in folds: of a run, a curve and a comparison."""
    folder, lines = tmp_path_factory.mktemp("receipts"), [f'recordings = ["{place}"]']
    lines += ['dataset = "d"', "folds = 3", "[[method]]", 'name = "router"', f"llms = {LLMS}"]
    lines += ['fields = { learner = "mean", feature = "author" }', "budgets = { price = [0, 9] }"]
    (folder / "plan.toml").write_text("\n".join(lines))
    given = "--recording", place, "--folds 3 --set learner=mean --set feature=author --out"
    llms = [f"--llm {llm}" for llm in LLMS]
    said("run router", *llms, *given, folder / "run")
    said("curve router --sweep price=0,9", *llms, *given, folder / "curve")
    said("compare", folder / "plan.toml", "--out", folder / "compare")
    return {name: folder / name / "receipt.json" for name in ("run", "curve", "compare")}


@pytest.mark.parametrize("kind", ["run", "curve", "compare"])
def test_a_receipt_holds_what_was_learnt_and_needs_no_learner(kind, receipts, monkeypatch):
    receipt = receipts[kind]
    assert len(json.loads(receipt.read_text())["learnt"]) in (3, 6)
    assert verify_receipt(receipt, refit=True).equal
    refused = pytest.raises(RuntimeError, match="nobody learns")
    monkeypatch.setattr("feval.methods.router.Router.fit", failing("nobody learns"))
    assert verify_receipt(receipt).equal
    with refused:
        verify_receipt(receipt, refit=True)


def run_content(receipts):
    """The receipt of the run, to be changed and to lie elsewhere."""
    content = json.loads(receipts["run"].read_text())
    [recording] = content["recordings"]
    recording["path"] = str((receipts["run"].parent / recording["path"]).resolve())
    return content


def failing(words):
    """A function that fails."""

    def fail(*arguments):
        raise RuntimeError(words)

    return fail


@pytest.mark.parametrize("damage", read_data("evaluations.json")["damaged fits"])
def test_a_receipt_whose_fits_are_damaged_says_so(damage, receipts, tmp_path):
    content = run_content(receipts)
    for each in content["learnt"].values():
        if damage.get("said") == "short":
            keys = each["said"]["keys"]
            each["said"]["values"] = {"quality": [[0.5]] * len(keys)}
        else:
            each |= damage
    (tmp_path / "receipt.json").write_text(json.dumps(content))
    with pytest.raises(UsageError):
        verify_receipt(tmp_path / "receipt.json")


def test_what_a_receipt_says_decides(receipts, tmp_path):
    content = run_content(receipts)
    for each in content["learnt"].values():
        values = each["said"]["values"]
        for name in values:
            values[name] = [own[::-1] for own in values[name]]
    (tmp_path / "receipt.json").write_text(json.dumps(content))
    changed = verify_receipt(tmp_path / "receipt.json")
    assert any(each.where == "usd_per_question" for each in changed.differences)


@dataclass(frozen=True)
class Grouped:
    """Keeps what stays together in training."""

    taught: Any = None
    fitted = False

    def fit(self, train):
        return Grouped([*train.apart])

    def __call__(self, question, *llms):
        return None


def test_groups_stay_together_within_training(replay):
    dataset, llms = replay
    result = evaluate(Grouped(), dataset, llms, train_fraction=0.6, group="author", replicates=1)
    [fit] = result.learnt
    rows = [row for row in range(24) if row not in fit.rows]
    authors = [dataset[row].features["author"] for row in rows]
    assert len(set(fit.method.taught)) < len({*authors})  # authors of one text are together, too
    assert all(
        fit.method.taught[authors.index(author)] == group
        for author, group in zip(authors, fit.method.taught, strict=True)
    )


class Forgetful:
    def fit(self, train):
        return None

    def __call__(self, question, *llms):
        return None


def test_a_fit_that_returns_nothing_is_named(replay):
    with pytest.raises(UsageError, match="`fit` of forgetful returned None; it returns the fitted"):
        evaluate(Forgetful(), *replay, folds=2)


def test_a_budget_of_a_whole_run_takes_no_folds(replay):
    policy = BudgetPolicy(total_budget=0.01, samples=1, least_questions=1)
    with pytest.raises(UsageError, match="folds are judged apart from each other"):
        evaluate(policy, *replay, folds=2)
    assert evaluate(policy, *replay, train_fraction=0.5, replicates=2).questions == 12


def test_the_dearer_llm_of_a_score_is_that_of_training(tmp_path):
    """On long questions large is dearer, on short ones small."""
    rows = [
        {"id": f"q{q}", "question": f"Q {q}", "gold": "1", "features": {"level": str(q)}}
        | {
            "llm": llm,
            "text": "1",
            "answer": "1",
            "tokens": 10,
            "prompt_tokens": 1000 if q > 9 else 1,
        }
        for q in range(20)
        for llm in LLMS
    ]
    place = priced(tmp_path, rows, {"small": (1, 50), "large": (10, 1)})
    dataset, llms = load("d", LLMS, place)
    router = Router(learner="score", feature="level", price=-1.0)
    fitted = router.fit(training(dataset, llms, np.arange(8, 20)))
    for judged in (np.arange(8), np.arange(4)):
        asked = evaluate(fitted, dataset, llms, rows=judged).usd * 1e6
        assert asked.tolist() == pytest.approx([20.0] * len(judged))  # those of large
