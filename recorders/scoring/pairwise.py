"""Pairwise verdicts: a judge is shown CoTs of two LLMs on one question and says which one it
prefers.

    recording ─▶ comparisons ─▶ requests not yet in the journal ─▶ judge ─▶ journal
    ─▶ derived recording with verdicts

CoT s of the first LLM is compared with CoT s of the second. Where both were recorded with the same
noise, these share it, and CoT s is also compared with CoT s + 1, which shares none. Judges favour a
position (Zheng et al. 2023, "Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena", section 3.4,
https://arxiv.org/abs/2306.05685), so both orders are asked, and two verdicts that differ are a tie;
or only one order, chosen by a keyed hash.

The verdicts are scores of the first LLM's CoTs: 1 preferred, 0 not, 0.5 a tie, none if the judge
gave none. Their scorer is named by `feval.recording.arrays.verdicts_name`.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, groupby, permutations, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from feval.errors import ConflictError, StorageError, UsageError, require_known
from feval.recording import PoolRows, Recording, ScorerInfo, ScoreRows, open_recording
from feval.recording.arrays import verdicts_name
from feval.recording.reader import pairs_of
from feval.report.text import counted
from recorders.scoring.scores import CoTKey, Item, Replies, Score, Scorer
from recorders.scoring.scoring import NewScores, ScoringTask, score_rows, total

CALLS: Mapping[str, tuple[int, ...]] = {"same": (0,), "next": (1,), "both": (0, 1)}
"""Which calls of LLMs that share noise are compared: the offsets of the second LLM's call from the
first one's.
"""

ORDERS: Mapping[str, str] = {
    "both": "each comparison is asked in both orders",
    "random": "in one, chosen by a keyed hash",
}
"""In which order the two CoTs are shown."""

_AS_GIVEN, _SWAPPED = "", ":swapped"
_SAME_TEXT = "Not asked: both texts are the same."


class _Match(NamedTuple):
    """Two LLMs on a dataset; CoT s of the first is compared with CoT s + shift of the second."""

    dataset: str
    first: str
    second: str
    shift: int

    def key(self, question_id: str, sample: int, order: str) -> CoTKey:
        return CoTKey(
            self.dataset,
            self.first,
            question_id,
            sample,
            verdicts_name("", self.second, self.shift) + order,
        )


_Texts = tuple[str, str] | None
"""Of two CoTs that are compared; `None` where one of them is not kept."""


@dataclass(frozen=True)
class PairwiseComparison(ScoringTask):
    """CoTs of two LLMs are shown to a judge; made by `PairwiseComparison.from_recording`.

    LLMs that share noise are compared with each other, and so are those that share none. Two CoTs
    with the same text are a tie without being asked about. Pairs that already have verdicts are
    left alone.
    """

    unit: ClassVar[str] = "requests"
    nouns: ClassVar[tuple[str, str]] = "comparison", "verdict"
    source: Recording
    scorer: Scorer
    matches: Sequence[_Match]
    orders: str
    retry_refused: bool
    remark: str

    @classmethod
    def from_recording(
        cls,
        recording: str | Path,
        judge: Scorer,
        *,
        datasets: Sequence[str] | None = None,
        llms: Sequence[str] | None = None,
        calls: str = "both",
        orders: str = "both",
        retry_refused: bool = False,
    ) -> PairwiseComparison:
        """Return what is to be compared in a recording with all the LLMs (`feval merge`), on some
        datasets or all.

        `calls` is for LLMs that share noise; of others, call s is compared with call s.
        `retry_refused` asks again for what was refused, in the journal. LLMs with other questions
        or pools of different sizes are a `ConflictError`, before anything is paid for.
        """
        for what, name, known in (
            ("choice of calls", calls, CALLS),
            ("choice of orders", orders, ORDERS),
        ):
            require_known(what, name, known)
        source = open_recording(recording)
        candidates = _matches(source, datasets, llms, CALLS[calls])
        name = judge.info.name
        matches = [
            match
            for match in candidates
            if not any(  # in either direction
                verdicts_name(name, second, match.shift) in source.scorers(match.dataset, first)
                for first, second in permutations((match.first, match.second))
            )
        ]
        if not matches:
            raise StorageError(
                f"{source.path} holds the verdicts of {name!r} on all these LLMs already; give the"
                " judge another --name."
            )
        before = counted(len(candidates) - len(matches), "comparison")
        remark = f"{before} of LLMs had verdicts already and stay as they are."
        if len(candidates) == len(matches):
            remark = ""
        task = cls(source, judge, matches, orders, retry_refused, remark)
        for info in {info.name: info for info in map(task.info, matches)}.values():
            exists = any(info.name in source.scorers(*pair) for pair in source.manifest.pairs)
            if exists and source.scorer_info(info.name) != info:
                raise StorageError(
                    f"{source.path} holds verdicts by {info.name!r} that were asked for in another"
                    " way; give this judge another --name."
                )
        furthest = {(match.dataset, match.first, match.second): match for match in matches}
        for match in furthest.values():
            for _ in task.comparisons(match):  # before anything is paid for
                pass
        return task

    def info(self, match: _Match) -> ScorerInfo:
        """Return the scorer under which the verdicts are stored."""
        judge = self.scorer.info
        comparison = {"against": match.second, "shift": match.shift, "orders": self.orders}
        return ScorerInfo(
            verdicts_name(judge.name, match.second, match.shift),
            judge.kind,
            {**judge.parameters, **comparison},
        )

    def asked(self) -> dict[str, Any]:
        """Return the LLMs that are compared, and the orders in which CoTs are shown."""
        pairs = [[match.dataset, match.first, match.second, match.shift] for match in self.matches]
        return {"orders": self.orders, "pairs": pairs}

    @property
    def total(self) -> int:
        """Number of requests, including those that need not be made."""
        pairs = self.source.manifest.pairs
        cots = sum(pairs[match.dataset, match.first]["cots"] for match in self.matches)
        return int(cots) * (2 if self.orders == "both" else 1)

    @property
    def may_seal_unasked(self) -> bool:
        """Whether some comparison is a tie that nobody is asked about."""
        comparisons = chain.from_iterable(map(self.comparisons, self.matches))
        texts = chain.from_iterable(question for _, question in comparisons)
        return any(each is not None and each[0] == each[1] for each in texts)

    def comparisons(self, match: _Match) -> Iterator[tuple[str, list[_Texts]]]:
        """Yield question id and the texts of its comparisons, in recorded order."""
        first, second = (
            self.source.pools(match.dataset, llm) for llm in (match.first, match.second)
        )
        for one, two in zip_longest(first, second):
            _check_pools(match, one, two)
            size = len(one.texts)
            others = (two.texts[(sample + match.shift) % size] for sample in range(size))
            yield (
                one.question_id,
                [
                    None if text is None or other is None else (text, other)
                    for text, other in zip(one.texts, others, strict=True)
                ],
            )

    def orders_of(self, match: _Match, question_id: str, sample: int) -> list[str]:
        """Return the orders in which a comparison is asked."""
        if self.orders == "both":
            return [_AS_GIVEN, _SWAPPED]
        which = match.dataset, match.first, match.second, match.shift, question_id, sample
        name = json.dumps([self.scorer.info.name, *which])
        return [_SWAPPED if hashlib.sha256(name.encode()).digest()[0] & 1 else _AS_GIVEN]

    def items(self) -> Iterator[list[tuple[CoTKey, Item | None]]]:
        """Yield all requests, question by question; `None` where a text is missing or both are the
        same.
        """
        for match in self.matches:
            questions = {question.id: question for question in self.source.questions(match.dataset)}
            for question_id, comparisons in self.comparisons(match):
                items: list[tuple[CoTKey, Item | None]] = []
                for sample, texts in enumerate(comparisons):
                    for order in self.orders_of(match, question_id, sample):
                        item = None
                        if texts is not None and texts[0] != texts[1]:
                            text, other = texts[::-1] if order == _SWAPPED else texts
                            item = Item(questions[question_id], text, None, other=other)
                        items.append((match.key(question_id, sample, order), item))
                yield items

    def scores(self, replies: Replies, states: Counter[str]) -> NewScores:
        """Return the verdicts of each two LLMs, under the first one."""
        return [
            (self.info(match), {(match.dataset, match.first): _rows(self, match, replies, states)})
            for match in self.matches
        ]

    def counts(self, states: Mapping[str, int]) -> dict[str, int]:
        """Return the numbers of comparisons of two CoTs: all over all LLMs and calls, and those
        that have a verdict, a tie or not; are ties; are ties because the judge preferred the same
        position in both orders, or because both texts are the same, which is not asked; that the
        judge said it cannot judge; whose reply holds no verdict; that it refused; with a missing
        text.
        """
        decided = states["scored"] + states["contradicted"] + states["same_text"]
        numbers = {"comparisons": total(states), "verdicts": decided}
        names = "ties", "contradicted", "same_text", "abstained", "unreadable", "refused"
        numbers |= {name: states[name] for name in names}
        return numbers | {"without_text": states["missing"]}

    def notes(self, states: Mapping[str, int]) -> Iterator[str]:
        """Yield what is unusual about the verdicts, in sentences."""
        yield from super().notes(states)
        if count := states["contradicted"]:
            yield (
                f"In {count:,} of {counted(total(states), 'comparison')} {self.scorer.info.name}"
                " preferred the same place in both orders; they are ties."
            )


def _matches(
    source: Recording,
    datasets: Sequence[str] | None,
    llms: Sequence[str] | None,
    shifts: Sequence[int],
) -> list[_Match]:
    matches = []
    for dataset, pairs in groupby(pairs_of(source, datasets, llms), itemgetter(0)):
        names = [llm for _, llm in pairs]
        noise = _noise_groups(source, names)
        for first, second in combinations(names, 2):
            if noise[first] == noise[second]:
                matches += [
                    _Match(dataset, first, second, shift)
                    for shift in (shifts if noise[first] else (0,))
                ]
    if not matches:
        raise UsageError(
            f"{source.path} holds no two LLMs to compare among those named: two with the same"
            " noise, or both with noise of their own. Put recordings together with `feval merge`."
        )
    return matches


def _noise_groups(source: Recording, llms: Sequence[str]) -> dict[str, str | None]:
    """Return LLM -> the noise that it shares with another; `None` if it shares none."""
    settings = {llm: source.llm_info(llm).decoding.get("noise") for llm in llms}
    noise = {llm: each and json.dumps(each, sort_keys=True) for llm, each in settings.items()}
    count = Counter(noise.values())
    return {llm: name if count[name] > 1 else None for llm, name in noise.items()}


def _check_pools(match: _Match, one: PoolRows | None, two: PoolRows | None) -> None:
    if one is None or two is None or one.question_id != two.question_id:
        raise ConflictError(
            f"{match.first} and {match.second} were recorded on different questions of"
            f" {match.dataset}, so their CoTs cannot be compared; record what is missing, or select"
            " questions."
        )
    sizes = len(one.texts), len(two.texts)
    if sizes[0] != sizes[1]:
        raise ConflictError(
            f"CoTs are compared call by call; on {one.question_id!r} {match.first} has {sizes[0]}"
            f" and {match.second} {sizes[1]}. Record what is missing."
        )
    if match.shift and sizes[0] == 1:
        raise ConflictError(
            f"{match.first} and {match.second} have 1 CoT on {one.question_id!r}, so there is no"
            ' other call to compare with; take calls = "same" (in a file for --settings).'
        )


def _combined(replies: Mapping[str, Score]) -> tuple[Score, str]:
    """Return the verdict of a comparison from its replies by order (each rates what was shown
    first), and how it came about.
    """
    verdict = "\n---\n".join(reply.verdict or "" for reply in replies.values())
    prompt, output = (
        None if None in counts else sum(counts)
        for counts in (
            [getattr(reply, name) for reply in replies.values()]
            for name in ("prompt_tokens", "output_tokens")
        )
    )
    scores = [
        None if reply.score is None else 1.0 - reply.score if order == _SWAPPED else reply.score
        for order, reply in replies.items()
    ]
    if None in scores:
        problems = {reply.problem for reply in replies.values() if reply.score is None}
        problem = next(
            (name for name in ("refused", "unreadable") if name in problems), "abstained"
        )
        return Score(None, None, verdict, prompt, output), problem
    score = scores[0] if len(set(scores)) == 1 else 0.5
    return Score(score, None, verdict, prompt, output), (
        "contradicted" if {0.0, 1.0} <= set(scores) else "scored"
    )


def _rows(
    task: PairwiseComparison, match: _Match, replies: Replies, states: Counter[str]
) -> Iterator[ScoreRows]:
    for question_id, comparisons in task.comparisons(match):
        scores = {}
        by_order = {
            order: replies(match.key(question_id, 0, order)) for order in (_AS_GIVEN, _SWAPPED)
        }
        for sample, texts in enumerate(comparisons):
            if texts is None:
                states["missing"] += 1
                continue
            if texts[0] == texts[1]:
                score, state = Score(0.5, None, _SAME_TEXT), "same_text"
            else:
                orders = task.orders_of(match, question_id, sample)
                score, state = _combined({order: by_order[order][sample] for order in orders})
            states[state] += 1
            states["ties"] += score.score == 0.5
            scores[sample] = score
        if scores:
            yield score_rows(question_id, scores, steps=False)
