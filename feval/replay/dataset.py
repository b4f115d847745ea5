"""The questions of a dataset, with their golds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from feval import answers, replay
from feval.errors import NotRecordedError, UsageError
from feval.lazy import Plottable
from feval.recording.layout.flat import Floats, Rows, UInt64
from feval.values import Pairs, frozen

if TYPE_CHECKING:
    from feval.recording.view import DatasetView
    from feval.replay.llm import LLM
    from feval.replay.responses import CoT
    from feval.replay.rightness import Judges, Rightness


_NUMBER = re.compile(r"-?[0-9]+(?:[./][0-9]+)?")


@frozen
class DatasetEntry:
    """A question with its gold answer (FEval-TTC, Listing 2).

    Attributes:
        question: the text.
        answer: the gold as the dataset writes it, `None` where there is none.
        choices: (label, text) of each option.
        id: the question's id.
        features: what else is known of it, such as its subject, by name.
    """

    question: str
    answer: str | None
    choices: Pairs
    id: str
    features: Mapping[str, str]


class Dataset(Plottable):
    """The questions of a dataset. Iterating gives (question id, entry), as in Listing 1.

    Attributes:
        id: the dataset's id.
        llm_names: all LLMs that were loaded with it, in order.
        gold: [Q] code of the gold answer, -1 where there is none; with verdicts, of the party that
            is right, see `Rightness`. Only evaluation may look at it.
        right: what decides what is right: "gold", "verdict" or "verdict>=X"; `None`: the gold where
            there is one, else the verdict.
        graders: LLM -> who gave the verdicts that have a say.
        question_keys: [Q] the keys that draws are made from, equal wherever a question is recorded;
            see `feval.replay.draws`.
        recording_hashes: hash of every recording behind the questions and CoTs.
        recording_paths: folders of those.
    """

    def __init__(
        self, view: DatasetView, llm_names: Sequence[str], right: str | None = None
    ) -> None:
        self._view, self._views, self.llm_names = view, view.all_views(), tuple(llm_names)
        self.id = view.votes.dataset
        self.right, self.gold = replay.checked_rule(right), view.votes.gold
        self.graders = replay.graders_of(view, llm_names, self.right)
        if self.graders and self.rightness is not None:
            self.gold = self.rightness.gold
        self.question_keys = view.votes.question_keys
        self.recording_hashes = tuple(dict.fromkeys(s.recording.hash for s in self._views))
        self.recording_paths = tuple(dict.fromkeys(s.recording.path for s in self._views))

    def __repr__(self) -> str:
        return f"Dataset({self.id!r}, {len(self)} questions)"

    def __len__(self) -> int:
        return len(self.gold)

    def __iter__(self) -> Iterator[tuple[str, DatasetEntry]]:
        for row, name in enumerate(self.question_ids):
            yield name, self[row]

    def __getitem__(self, question: str | int) -> DatasetEntry:
        """Return the entry of a question, by id or row."""
        recorded = self._view.question(self._view.row(question))
        own = recorded.text, recorded.answer, recorded.choices, recorded.id
        return DatasetEntry(*own, dict(recorded.features))

    def require(self, llms: Sequence[LLM], *, steps: bool = False) -> None:
        """Check that the answer codes of some LLMs are numbered as the golds are; `steps`: they may
        be recorded as trees.

        Raises:
            UsageError: an LLM is from another `load`, whose codes mean other answers, or has steps
                where whole CoTs are needed.
        """
        for llm in llms:
            if not steps:
                llm.require_whole_cots()
            if not llm.numbered_as(self._view):
                raise UsageError(
                    f"{llm!r} and {self!r} come from different calls of `load`, which number"
                    " questions or answers differently; open them together: load(dataset, [LLM,"
                    " ...], [recording, ...])."
                )

    @property
    def text_keys(self) -> UInt64:
        """[Q] keys of the questions' texts, without their choices: equal texts have equal keys."""
        return self._view.votes.text_keys

    @property
    def question_ids(self) -> Sequence[str]:
        """Ids in recorded order."""
        return self._view.votes.question_ids

    @cached_property
    def rightness(self) -> Rightness | None:
        """How right each CoT is, where the gold does not say it all: `None` where it does."""
        near = answers.equivalence.tolerated(self._equality)
        by_form = near is not None and self.right in (None, "gold") and self.mixed_parties > 0
        if not self.graders and not by_form:
            return None
        golds = lru_cache(1)(self._golds)

        def is_gold(row: int, form: str) -> bool:
            return near is not None and any(near(each, form) for each in golds(row))

        return replay.rightness_of(
            self._view, self.llm_names, self.graders, self.right, is_gold if by_form else None
        )

    def judges(self, rows: Rows) -> Judges | None:
        """Return what says which CoTs of some questions are right; `None` for golds, where no other
        rule was asked for.
        """
        by_verdict = int(self.rightness.by_verdict[rows].sum()) if self.rightness else 0
        if self.right is None and not by_verdict:
            return None
        graders = tuple(dict.fromkeys(self.graders.values()))
        return replay.Judges(len(rows) - by_verdict, by_verdict, graders, self.right)

    @property
    def cautions(self) -> list[str]:
        """What its recordings say that every result must, see `Manifest.cautions`."""
        manifests = (view.recording.manifest for view in self._views)
        return list(dict.fromkeys(chain.from_iterable(each.cautions for each in manifests)))

    def right_shares(self) -> dict[str, Floats]:
        """Return LLM -> [Q] share of its CoTs that are right, of a tree of the ends of solutions,
        for all LLMs loaded with it; NaN without a gold or CoTs.
        """
        shares = {}
        for name in self.llm_names:
            pool, own = self._view.votes.llms[name], self._view.of(name)
            cots, steps = pool.sizes, own.recording.steps(self.id, name)
            if steps is not None:
                cots = steps.ends.sum(axis=1)[slice(None) if own.rows is None else own.rows]
            right = (pool.codes == self.gold[:, None]).sum(axis=1)
            if self.rightness is not None:
                right = self.rightness.of_llm[name].sum(axis=1)
            known = (self.gold >= 0) & (cots > 0)
            shares[name] = np.where(known, right / np.maximum(cots, 1), np.nan)
        return shares

    def is_right(self, question: str | int, answer: str | CoT | None) -> bool:
        """Return whether an answer votes with the gold, see `answer_key`; where its party holds
        answers that do not equal the gold, too, whether it equals the gold itself. By verdicts, it
        is as right as the CoTs that have it, and wrong where none has; a CoT has its own verdict.

        Args:
            question: id or row.
            answer: in any spelling, or as `sample` gives it; `None`, no answer, is never right. Or
                a CoT of this question, from an LLM of the same load.

        Raises:
            NotRecordedError: no such question, or one without a gold or verdict; or CoTs with the
                answer are not equally right, or have partial credit.
        """
        row = self._view.row(question)
        if self.gold[row] < 0:
            raise NotRecordedError(
                f"Question {self.question_ids[row]!r} of {self.id} has no gold answer, so nothing"
                " can be right or wrong; leave it out."
            )
        given = answer.answer if isinstance(answer, replay.CoT) else answer
        candidates, key = self._view.votes.candidates(row), self.answer_key(row, given)
        code, rightness = candidates.index(key) if key in candidates else -1, self.rightness
        if rightness is None or not rightness.is_mixed[row]:
            return bool(code == self.gold[row])
        found = set[float]()
        if isinstance(answer, replay.CoT):
            found.add(float(rightness.of_llm[answer.llm][row, answer.sample]))
        elif code < 0:
            return False
        elif not rightness.by_verdict[row]:
            near = answers.equivalence.tolerated(self._equality)
            form = self._normal_form(row, str(given))
            return bool(near and form and any(near(gold, form) for gold in self._golds(row)))
        else:
            for name, right in rightness.of_llm.items():
                found.update(right[row][self._view.votes.llms[name].codes[row] == code].tolist())
        if found in ({0.0}, {1.0}):
            return found == {1.0}
        raise NotRecordedError(
            f"The CoTs that answer {key!r:.40} to question {self.question_ids[row]!r} of {self.id}"
            f" have rightness from {min(found):g} to {max(found):g} by verdict, so the answer is"
            " neither right nor wrong. Take --right gold or a threshold, such as --right"
            " 'verdict>=0.5' (in Python: right='verdict>=0.5')."
        )

    def answer_key(self, question: str | int, answer: str | None) -> str | None:
        """Return the key that an answer votes with: its normal form, or that of the recorded
        answers it is equal to.

        Thoughts in it are not read, unless the kind is verbatim. The gold's own text has the gold's
        key. Of an answer that nobody recorded, a number is compared under the recording's
        tolerance, with the gold first; LaTeX is not (`is_uncompared`).

        Args:
            question: id or row.
            answer: in any spelling, or as `sample` gives it; `None` for no answer.

        Returns:
            The key, one of `candidates` where the answer is equal to one; `None` for no answer, for
            thoughts without a reply, and for an answer that the kind cannot read.

        Raises:
            NotRecordedError: no such question.
        """
        row = self._view.row(question)
        candidates = self._view.votes.candidates(row)
        if answer is None or answer in candidates:
            return answer

        form, golds = self._normal_form(row, answer), self._golds(row)
        if answer in golds.values() or form in golds:
            return candidates[int(self._view.votes.gold[row])]
        key = None if form is None else self._view.key(row, form)
        near = answers.equivalence.tolerated(self._equality)
        if key is None or key in candidates or near is None:
            return key
        if any(near(gold, key) for gold in golds):
            return candidates[int(self._view.votes.gold[row])]
        return next((each for each in sorted(candidates) if near(each, key)), key)

    def _normal_form(self, row: int, answer: str) -> str | None:
        kind, text = self._view.recording.dataset_info(self.id).answer_kind, answer
        if kind != "verbatim":
            parts = answers.thoughts.split(answer)
            if not parts.answers:
                return None  # thoughts without a reply
            text = parts.reply
        choices = self._view.question(row).choices if kind == "choice" else ()
        return answers.canonical(kind, text, choices)  # voting reads no answers: loaded on use

    def is_uncompared(self, question: str | int, key: str | None) -> bool:
        """Return whether an answer with this key could equal the gold, and nobody has asked: LaTeX
        that no CoT has.
        """
        row = self._view.row(question)
        is_latex = self._equality.startswith("math-verify")
        if key is None or not is_latex or key in self._view.votes.candidates(row):
            return False
        # two numbers differ for good
        return not all(map(_NUMBER.fullmatch, (key, *self._golds(row))))

    @cached_property
    def mixed_parties(self) -> int:
        """Number of questions where the answers of the gold's party are not those that equal the
        gold, within the tolerance.
        """
        near = answers.equivalence.tolerated(self._equality)
        if near is None:
            return 0
        return sum(self._is_mixed(row, near) for row in np.flatnonzero(self.gold >= 0).tolist())

    def _is_mixed(self, row: int, near: Callable[[str, str], bool]) -> bool:
        votes, golds = self._view.votes, self._golds(row)
        codes = {form: code for code, form in enumerate(votes.candidates(row))} | votes.aliases(row)
        return any(
            any(near(gold, form) for gold in golds) != (code == votes.gold[row])
            for form, code in codes.items()
        )

    @property
    def _equality(self) -> str:
        return self._view.recording.dataset_info(self.id).equality

    def _golds(self, row: int) -> dict[str, str | None]:
        """The normal form of a question's gold -> the gold as written; a form for each recording,
        empty without a gold.
        """
        questions = (view.question(row) for view in self._views)
        return {each.answer_key: each.answer for each in questions if each.answer_key is not None}

    def candidates(self, question: str | int) -> list[str]:
        """Return the distinct answers of a question by code, the gold among them if there is
        one.
        """
        return self._view.votes.candidates(self._view.row(question))
