"""Learners: how likely an answer is right, from texts and features, learnt on training questions.

A learner is anything with `fit` and `predict_proba` as `TextLearner` has them: `logistic`, `knn`,
`mean`, or a class of the user's, `FILE.py:NAME`, which runs in this process.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from feval.errors import FevalError, MethodError, UnknownNameError, UsageError, require_known
from feval.estimators.arrays import Floats, Integers

Features = Sequence[Mapping[str, str]]
"""The recorded features of each text, by name."""


class TextLearner(Protocol):
    """What a router or a cascade learns with."""

    def fit(self, texts: Sequence[str], features: Features, right: Floats) -> Self:
        """The learner fitted on N training texts.

        Args:
            texts: [N], such as those of questions; "" where there is none.
            features: [N].
            right: [N] from 0 to 1 how right the answers are: the share of a question's CoTs that
                are right.
        """

    def predict_proba(self, texts: Sequence[str], features: Features) -> Floats:
        """[N] probabilities of being right; of other texts, too."""


class Logistic:
    """Logistic regression on TF-IDF: scikit-learn's TfidfVectorizer(sublinear_tf=True, min_df=2)
    and LogisticRegression(C=1).

    A text whose answers are right with a share of w between 0 and 1 is two rows, right with weight
    w and wrong with weight 1 - w. So a question weighs as much as any other, however many CoTs it
    has, and those with one CoT are plain 0/1 rows. Where no word is in two texts, `min_df` is 1.
    """

    def fit(self, texts: Sequence[str], features: Features, right: Floats) -> Self:  # noqa: ARG002  it reads the texts
        """See `TextLearner.fit`."""
        self._vectorizer, matrix = _tfidf(texts)
        rows = np.concatenate([np.flatnonzero(right > 0), np.flatnonzero(right < 1)])
        is_right = np.arange(len(rows)) < (right > 0).sum()
        weights = np.where(is_right, right[rows], 1 - right[rows])
        self._model = _sklearn("linear_model").LogisticRegression(C=1.0, max_iter=1000)
        self._model.fit(matrix[rows], is_right, weights)
        return self

    def predict_proba(self, texts: Sequence[str], features: Features) -> Floats:  # noqa: ARG002  likewise
        """See `TextLearner.predict_proba`."""
        probabilities: Floats = self._model.predict_proba(self._vectorizer.transform(texts))
        return probabilities[:, 1]


class Neighbours:
    """The mean of the 40 training texts (all, where there are fewer) that are nearest by the cosine
    of TF-IDF, which is `Logistic`'s.
    """

    def fit(self, texts: Sequence[str], features: Features, right: Floats) -> Self:  # noqa: ARG002  likewise
        """See `TextLearner.fit`."""
        self._vectorizer, matrix = _tfidf(texts)
        neighbours = _sklearn("neighbors").KNeighborsRegressor(
            min(_NEIGHBOURS, len(texts)), metric="cosine"
        )
        self._model = neighbours.fit(matrix, right)
        return self

    def predict_proba(self, texts: Sequence[str], features: Features) -> Floats:  # noqa: ARG002  likewise
        """See `TextLearner.predict_proba`."""
        means: Floats = self._model.predict(self._vectorizer.transform(texts))
        return means


class GroupMean:
    """The mean of the training questions with the same value of a feature; of all where the value
    is new.

    Args:
        feature: its name.
    """

    def __init__(self, feature: str) -> None:
        self._feature = feature

    def fit(self, texts: Sequence[str], features: Features, right: Floats) -> Self:
        """See `TextLearner.fit`."""
        groups, places = np.unique(
            feature_column(texts, features, self._feature), return_inverse=True
        )
        means = np.bincount(places, right) / np.bincount(places)
        self._means = dict(zip(groups.tolist(), means.tolist(), strict=True))
        self._mean = float(right.mean())
        return self

    def predict_proba(self, texts: Sequence[str], features: Features) -> Floats:
        """See `TextLearner.predict_proba`."""
        groups = feature_column(texts, features, self._feature)
        return np.array([self._means.get(group, self._mean) for group in groups], np.float64)


_NEIGHBOURS = 40
_LEARNERS: Mapping[str, Callable[[], TextLearner]] = {"logistic": Logistic, "knn": Neighbours}


_NAMED: ContextVar[Sequence[str] | None] = ContextVar("named_learners", default=None)


@contextmanager
def only_named(learners: Sequence[str]) -> Iterator[None]:
    """Run no FILE.py:NAME but these: a receipt or a comparison file runs no code by itself."""
    token = _NAMED.set(learners)
    try:
        yield
    finally:
        _NAMED.reset(token)


def make_learner(name: str, feature: str | None = None) -> TextLearner:
    """A new learner.

    Args:
        name: "logistic", "knn", "mean" or FILE.py:NAME, a class, or another callable without
            arguments, that gives an object with `fit` and `predict_proba`. The file runs in this
            process.
        feature: whose groups "mean" takes.

    Raises:
        UnknownNameError: no such learner, or none of that name in the file.
        UsageError: "mean" without a feature, a file that cannot be read, or an object that lacks a
            method.
        MethodError: the user's code failed.
    """
    if name == "mean":
        if feature is None:
            raise UsageError(
                "The learner 'mean' takes means over groups of a feature, and none is named; set"
                " it, such as feature='subject' (--set feature=subject)."
            )
        return GroupMean(feature)
    file, colon, kind = name.rpartition(":")
    # paths as `MethodFile` writes them
    if colon and (named := _NAMED.get()) is not None and f"{Path(file)}:{kind}" not in named:
        raise UsageError(
            f"The learner {name} is Python code in a file, which runs only where you name it: read"
            f" it, and pass --method {name} (in Python: methods=[{name!r}])."
        )
    if colon:
        return _UsersLearner(name, _of_file(Path(file), kind))
    require_known("learner", name, [*_LEARNERS, "mean"], "One of yours is FILE.py:NAME.")
    return _LEARNERS[name]()


def fit_learner(
    learner: TextLearner, texts: Sequence[str], features: Features, right: Floats, what: str
) -> TextLearner:
    """The learner fitted on training texts, checked; see `TextLearner.fit`.

    Args:
        learner: from `make_learner`.
        texts: [N].
        features: [N].
        right: [N].
        what: whose answers they are, for messages: "of gpt-4".

    Raises:
        UsageError: no text, all answers right or all wrong, a feature that some lack, or
            scikit-learn is not installed.
    """
    if not len(right):
        raise UsageError(
            f"There is no training question with an answer {what} to learn from; use a larger"
            " training split."
        )
    if (right == 1).all() or (right == 0).all():
        raise UsageError(
            f"All answers {what} to the {len(right):,} training question{'s' * (len(right) != 1)}"
            f" are {'right' if right[0] else 'wrong'}, so that there is nothing to tell apart. Use"
            " another or a larger training split, or leave the LLM out."
        )
    return learner.fit(texts, features, right)


def out_of_fold(
    make: Callable[[], TextLearner],
    texts: Sequence[str],
    features: Features,
    right: Floats,
    folds: Integers,
    what: str,
) -> Floats:
    """[N] what is predicted of each text by a learner that was fitted on the other folds.

    Args:
        make: gives a new learner.
        texts: [N].
        features: [N].
        right: [N], see `TextLearner.fit`.
        folds: [N] fold of each, from `deal_folds`.
        what: as for `fit_learner`, which raises the same errors.
    """
    scores = np.empty(len(right))
    for fold in np.unique(folds):
        rest, held = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        known, asked = (
            ([texts[row] for row in rows.tolist()], [features[row] for row in rows.tolist()])
            for rows in (rest, held)
        )
        scores[held] = fit_learner(make(), *known, right[rest], what).predict_proba(*asked)
    return scores


def deal_folds(groups: Sequence[Hashable], folds: int) -> Integers:
    """[N] the fold of each, from 0, so that those of a group stay together: groups are dealt, in
    the order in which they first come, to the fold that has the fewest so far.

    Raises:
        UsageError: fewer groups than folds.
    """
    sizes, held, dealt = Counter(groups), [0] * folds, dict[Hashable, int]()
    if len(sizes) < folds:
        raise UsageError(
            f"{folds} folds need as many training questions, or groups of them that stay together;"
            f" there {'is' if len(sizes) == 1 else 'are'} {len(sizes)}. Use a larger training"
            " split."
        )
    for group, size in sizes.items():
        dealt[group] = held.index(min(held))
        held[dealt[group]] += size
    return np.array([dealt[group] for group in groups], np.int64)


def feature_column(texts: Sequence[str], features: Features, name: str) -> list[str]:
    """[N] the values of a feature.

    Raises:
        UsageError: some questions lack it.
    """
    lacking = [place for place, own in enumerate(features) if name not in own]
    if lacking:
        known = sorted({feature for own in features for feature in own})
        shown = ", ".join(repr(texts[place][:60] or f"row {place}") for place in lacking[:3])
        raise UsageError(
            f"{len(lacking):,} of {len(features):,} questions have no feature {name!r}: {shown}"
            f"{', ...' * (len(lacking) > 3)}. Recorded features are: {', '.join(known) or 'none'}."
        )
    return [own[name] for own in features]


def feature_numbers(texts: Sequence[str], features: Features, name: str) -> Floats:
    """[N] the values of a feature as numbers.

    Raises:
        UsageError: some questions lack it, or one is no finite number.
    """
    column = feature_column(texts, features, name)
    for text, value in zip(texts, column, strict=True):
        with suppress(ValueError):
            if np.isfinite(float(value)):
                continue
        raise UsageError(
            f"A score is a number, and the feature {name!r} of the question {text[:60]!r} is"
            f" {value[:40]!r}. Take another feature, or the learner 'mean', which takes groups."
        )
    return np.array(column, np.float64)


def _tfidf(texts: Sequence[str]) -> tuple[Any, Any]:
    """A fitted vectorizer, and the matrix of the texts."""
    if not any(map(str.strip, texts)):
        raise UsageError(
            "The recording has no question texts to learn from. Record or import them, or learn"
            " from a feature: learner='mean' or 'score' (--set learner=mean --set feature=NAME)."
        )
    vectorizer = _sklearn("feature_extraction.text").TfidfVectorizer
    for least in (2, 1):
        model = vectorizer(sublinear_tf=True, min_df=least)
        with suppress(ValueError):  # no word is in so many texts
            return model, model.fit_transform(texts)
    raise UsageError(
        f"The {len(texts):,} training texts have no word of two letters or more, such as"
        f" {next(filter(str.strip, texts))[:60]!r}; learn from a feature (learner='mean')."
    )


def _sklearn(name: str) -> Any:
    """A module of scikit-learn, which takes a second to import."""
    try:
        return import_module(f"sklearn.{name}")
    except ImportError as error:
        raise UsageError(
            "The learners 'logistic' and 'knn' need scikit-learn, which is not installed: pip"
            " install 'feval[learn]'."
        ) from error


class _UsersLearner:
    """A user's learner, whose returns are checked."""

    def __init__(self, name: str, make: Any) -> None:
        self._name = f"The learner {name}"
        with _contained(self._name):
            self._own = make()
            known = hasattr(self._own, "fit") and hasattr(self._own, "predict_proba")
        if not known:
            raise UsageError(
                f"{self._name} has no fit or no predict_proba. A learner has fit(texts, features,"
                " right), which returns it, and predict_proba(texts, features)."
            )

    def fit(self, texts: Sequence[str], features: Features, right: Floats) -> Self:
        with _contained(self._name):
            # its own copies
            fitted = self._own.fit([*texts], [dict(own) for own in features], right.copy())
        self._own = self._own if fitted is None else fitted
        return self

    def predict_proba(self, texts: Sequence[str], features: Features) -> Floats:
        with _contained(self._name):
            found: Floats = np.asarray(self._own.predict_proba(texts, features), np.float64)
        if found.shape != (len(texts),) or not ((found >= 0) & (found <= 1)).all():
            raise MethodError(
                f"{self._name} returned {found!r:.80}, of shape {found.shape}, for {len(texts)}"
                " texts; predict_proba returns one probability of being right for each."
            )
        return found


def _of_file(path: Path, name: str) -> Any:
    """The callable of a user's file, which runs in this process."""
    spec = spec_from_file_location("feval_users_learner", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError(
            f"The learner {path}:{name} names no Python file that can be read; write FILE.py:NAME."
        )
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    with _contained(f"The file {path}"):
        spec.loader.exec_module(module)
    made = getattr(module, name, None)
    if not callable(made):
        raise UnknownNameError.among(
            "learner", name, [*vars(module)], f"It should be defined in {path}."
        )
    return made


@contextmanager
def _contained(what: str) -> Iterator[None]:
    """Make a sentence of what a user's code raises."""
    try:
        yield
    except FevalError:
        raise
    except (Exception, SystemExit) as error:
        raise MethodError(f"{what} raised {type(error).__name__}: {error}") from error
