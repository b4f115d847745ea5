"""Learners: against scikit-learn and by hand, folds that keep groups together, and sentences for
what cannot be learnt.
"""

import sys

import numpy as np
import pytest
from places import read_data
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from feval.errors import MethodError, UnknownNameError, UsageError
from feval.methods.learners import (
    deal_folds,
    feature_numbers,
    fit_learner,
    make_learner,
    out_of_fold,
)

WORDS = ["add two numbers", "add three numbers", "prove a theorem", "prove a lemma", "add lemmas"]
RIGHT = np.array([1.0, 1.0, 0.0, 0.0, 1.0])
NOTHING = [{}] * 5


def predicted(name, right=RIGHT, texts=WORDS, asked=WORDS, feature=None, features=NOTHING):
    learner = fit_learner(make_learner(name, feature), texts, features, np.array(right), "of small")
    return learner.predict_proba(asked, features[: len(asked)])


def test_logistic_is_scikit_learns_on_tfidf():
    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2)
    model = LogisticRegression(C=1.0).fit(vectorizer.fit_transform(WORDS), RIGHT)
    expected = model.predict_proba(vectorizer.transform(WORDS))[:, 1]
    np.testing.assert_allclose(predicted("logistic"), expected, atol=1e-5)


def test_a_share_of_right_answers_is_worth_a_row_per_cot_at_equal_weight():
    shares = np.array([1.0, 0.75, 0.25, 0.0, 0.5])
    matrix = TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform(WORDS)
    rows = np.repeat(np.arange(5), 4)
    is_right = np.concatenate([np.arange(4) < 4 * share for share in shares])
    model = LogisticRegression(C=1.0).fit(matrix[rows], is_right, np.full(20, 0.25))
    expected = model.predict_proba(matrix)[:, 1]
    np.testing.assert_allclose(predicted("logistic", shares), expected, atol=1e-4)


def test_words_that_no_two_texts_share_count_where_there_are_no_others():
    right = np.array([1.0, 0.0])
    found = predicted("logistic", right, ["apples", "pears"], ["apples", "pears", "plums"])
    assert found[0] > found[2] > found[1]


def test_neighbours_are_the_nearest_by_cosine():
    texts = ["one two"] * 40 + ["three four"] * 40
    right = np.repeat([1.0, 0.0], 40)
    right[40] = 1
    features = [{}] * 80
    found = predicted("knn", right, texts, ["two one one", "four three"], features=features)
    np.testing.assert_allclose(found, [1.0, 1 / 40])
    assert predicted("knn", RIGHT)[0] == pytest.approx(0.6)  # all five


def test_means_over_groups_and_over_all_where_a_group_is_new():
    features = [{"subject": subject} for subject in "aabbb"]
    right = np.array([1.0, 0.5, 0.0, 0.0, 0.3])
    assert predicted("mean", right, feature="subject", features=features)[[0, 2]].tolist() == (
        pytest.approx([0.75, 0.1])
    )
    learner = make_learner("mean", "subject").fit(WORDS, features, right)
    assert learner.predict_proba([""], [{"subject": "c"}]) == pytest.approx([0.36])


def test_out_of_fold_scores_come_from_the_other_folds_and_groups_stay_together():
    folds = deal_folds(["a", "b", "a", "c", "d", "b"], 2)
    assert folds.tolist() == [0, 1, 0, 0, 1, 1]
    features = [{"g": "x"}] * 6
    right = np.array([1.0, 0, 1, 0, 1, 1])
    scores = out_of_fold(
        lambda: make_learner("mean", "g"), [""] * 6, features, right, folds, "of small"
    )
    np.testing.assert_allclose(scores, [2 / 3] * 6)
    right[1] = 1
    with pytest.raises(UsageError, match="All answers of small to the 3 training questions are"):
        out_of_fold(lambda: make_learner("mean", "g"), [""] * 6, features, right, folds, "of small")
    with pytest.raises(
        UsageError, match=r"3 folds need as many training questions, .* there are 2"
    ):
        deal_folds(["a", "b", "a"], 3)


@pytest.mark.parametrize(
    ("name", "changed", "message"), read_data("methods.json")["what cannot be learnt"]
)
def test_what_cannot_be_learnt_is_a_sentence(name, changed, message):
    with pytest.raises(UsageError, match=message):
        predicted(name, **changed)


def test_features_are_read_as_numbers():
    features = [{"length": "3"}, {"length": "4.5e1"}]
    assert feature_numbers(["", ""], features, "length").tolist() == [3, 45]
    for value in ("long", "nan", ""):
        with pytest.raises(UsageError, match="the feature 'length' of the question 'b' is"):
            feature_numbers(["a", "b"], [features[0], {"length": value}], "length")


def test_scikit_learn_is_asked_for_by_name_where_it_is_absent(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.feature_extraction.text", None)
    with pytest.raises(UsageError, match=r"need scikit-learn.*pip install 'feval\[learn\]'"):
        predicted("logistic")


USERS = """
import numpy as np

class Constant:
    def fit(self, texts, features, right):
        self.mean = right.mean()
        return self
    def predict_proba(self, texts, features):
        return np.full(len(texts), self.mean)

class NoPredictions:
    def fit(self, texts, features, right):
        return self

class Pairs(Constant):
    def predict_proba(self, texts, features):
        return np.zeros((len(texts), 2))

class Unsure(Constant):
    def predict_proba(self, texts, features):
        return [0.5] * (len(texts) - 1) + [float("nan")]

class Odds(Constant):
    def predict_proba(self, texts, features):
        return np.full(len(texts), 2)

class Failing(Constant):
    def fit(self, texts, features, right):
        raise ZeroDivisionError("by hand")

def factory():
    return Constant()

number = 3
"""


def test_a_users_learner_is_a_class_or_a_factory_in_a_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(USERS)
    for name in ("Constant", "factory"):
        assert predicted(f"{path}:{name}").tolist() == pytest.approx([0.6] * 5)
    for name, error, message in [
        ("NoPredictions", UsageError, "has no fit or no predict_proba. A learner has fit"),
        ("Pairs", MethodError, r"of shape \(5, 2\), for 5 texts; predict_proba returns one"),
        ("Unsure", MethodError, r"returned array\(\[0.5, .*nan\]\), of shape \(5,\), for 5"),
        ("Odds", MethodError, r"returned array\(\[2., 2.*for 5"),
        ("Failing", MethodError, "raised ZeroDivisionError: by hand"),
        ("number", UnknownNameError, "no learner 'number'"),
        ("Konstant", UnknownNameError, "no learner 'Konstant'.*Did you mean"),
    ]:
        with pytest.raises(error, match=message):
            predicted(f"{path}:{name}")
    path.write_text("1 / 0")
    with pytest.raises(MethodError, match=r"mine\.py raised ZeroDivisionError"):
        predicted(f"{path}:Constant")
    with pytest.raises(UsageError, match="names no Python file that can be read"):
        predicted(f"{tmp_path / 'none.py'}:Constant")
