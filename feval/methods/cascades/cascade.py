"""A cascade in the manner of FrugalGPT: ask the next LLM until a scorer trusts an answer (Chen et al., arXiv 2305.05176)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import permutations
from math import ceil, floor, isfinite
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from feval.errors import NotRecordedError, OutOfRangeError, UnknownNameError, UsageError
from feval.methods.cascades.cascade_search import Choice, Stage, bars, best_choice, written
from feval.methods.decisions import Decisions
from feval.methods.fields import exact_threshold, per_llm, require_cots, require_types, tuples_of_lists
from feval.methods.protocol import Orders, RecordedResponse, RecordedSampler, require_draws
from feval.methods.taken import Taken, Takings, blocks
from feval.methods.vote import plurality, plurality_codes
from feval.replay.channels import AGGREGATES

if TYPE_CHECKING:
    from feval.replay.pools import Pool

__all__ = ["CHAINS", "SCORES", "Cascade"]

SCORES = ("recorded", "vote-share")
CHAINS = ("given", "permutations", "any")

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Cascade:
    """Ask LLMs in order; the first answer whose score g passes its threshold is returned, the last LLM's in any case.

    Stage i answers with the plurality of its CoTs and is accepted iff 1 - g < delta_i; what was asked on the way is paid for.
    `fit` chooses the thresholds, and the order if it may, that answer most training questions rightly at a mean cost within the
    budget. A stage without an answer, or without a score of it, is not accepted.

    Chen, Zaharia, Zou, "FrugalGPT: How to Use Large Language Models While Reducing Cost and Improving Performance", section 3
    ("LLM cascade"); their repository stanford-futuredata/FrugalGPT. https://arxiv.org/abs/2305.05176

    Attributes:
        thresholds: delta of every stage but the last, compared exactly; `None` until `fit` has chosen them.
        samples: CoTs of each LLM, or one number per LLM, in the order in which LLMs are given; the paper takes one.
        score: "recorded" for a scorer's recorded score of the CoT that first gave the answer; "vote-share" for the share of the
            stage's CoTs that gave it, those without an answer included.
        scorer: whose recorded scores; `None` for the only scorer there is.
        aggregate: "score", or what becomes of the step scores: "last", "min", "prod" or "mean".
        strict: accept iff 1 - g < delta, else iff 1 - g <= delta.
        order: places of the LLMs asked, first to last; `None` for all as they are given.
        chains: which orders `fit` may choose from: the one that is "given", "permutations" of it, or "any" chain of some of the
            LLMs.
        budget: most mean cost per training question; `None` for no limit.
        prices: (input, output) USD per million tokens of each LLM, for a budget in USD; without, the budget is in tokens.
        non_decreasing: only thresholds that accept no smaller share of all answers at a later stage than at an earlier one.
        grid: how many quantiles of the training scores are tried as thresholds of a stage.
    """

    needs: ClassVar[str] = "Its scores say how far an answer can be trusted; score='vote-share' needs none."
    """What to record, for the sentence that says it is missing."""

    thresholds: tuple[str | float, ...] | None = None
    samples: int | tuple[int, ...] = 1
    score: str = "recorded"
    scorer: str | None = None
    aggregate: str = "score"
    # The authors' code accepts below the threshold; with `strict=False`, two LLMs and the vote share this is the MoT paper's
    # CoT-1D-Vote with tau = 1 - delta.
    strict: bool = True
    order: tuple[int, ...] | None = None
    # The authors' code searches the permutations of exactly as many LLMs as the cascade is deep. A shorter chain can be better
    # and is reached by "any".
    chains: str = "given"
    budget: float | None = None
    prices: tuple[tuple[float, float], ...] | None = None
    # As in the authors' search: quantile levels, not their values, since scores of different LLMs are on different scales. We try
    # all combinations on the grid; the authors polish the best one with a simplex search, which our exact grid leaves out.
    non_decreasing: bool = True
    grid: int = 40

    def __post_init__(self) -> None:
        require_types(self)
        tuples_of_lists(self, "thresholds", "samples", "order", "prices")
        if self.prices is not None:
            object.__setattr__(self, "prices", tuple(tuple(pair) for pair in self.prices))
        require_cots("samples", self.samples)
        for threshold in self.thresholds or ():
            exact_threshold("A threshold", threshold)
        for name, known in (("score", SCORES), ("chains", CHAINS), ("aggregate", AGGREGATES)):
            if getattr(self, name) not in known:
                raise UnknownNameError.of(name, getattr(self, name), known)
        self._check_search()

    def _check_search(self) -> None:
        if self.order is not None and (not self.order or len(set(self.order)) < len(self.order) or min(self.order) < 0):
            raise OutOfRangeError(f"order names each LLM by its place, from 0, once; {self.order} was given.")
        if type(self.grid) is not int or self.grid < 1:
            raise OutOfRangeError(f"A grid has 1 quantile or more; grid={self.grid!r} was given.")
        if self.budget is not None and not (isfinite(self.budget) and self.budget >= 0):
            raise OutOfRangeError(f"A budget is 0 or more per question; {self.budget} was given.")
        pairs: Sequence[Sequence[float]] = self.prices or ()
        if not all(len(pair) == 2 and all(isfinite(price) and price >= 0 for price in pair) for pair in pairs):
            raise OutOfRangeError(f"prices has an input and an output price for each LLM; {self.prices} was given.")

    def draws(self, llms: int) -> tuple[int, ...]:
        """CoTs asked of each LLM, if it is reached."""
        chain = self._chain(llms)
        if not chain or max(chain) >= llms:
            raise UsageError(
                f"The cascade asks LLM {max(chain, default=0)}, counted from 0; {llms} {'was' if llms == 1 else 'were'} given."
            )
        if self.thresholds is not None and len(self.thresholds) != len(chain) - 1:
            raise UsageError(
                "A cascade has a threshold for each LLM but the last; here that is "
                f"{len(chain) - 1}; {len(self.thresholds)} were given: {', '.join(map(str, self.thresholds))}."
            )
        if self.prices is not None and len(self.prices) != llms:
            raise UsageError(f"The cascade has prices of {len(self.prices)} LLMs; {llms} were given.")
        return per_llm("samples", self.samples, llms)

    def __call__(self, question: str, *llms: RecordedSampler) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; `None` if the last LLM has none."""
        samples, deltas = self.draws(len(llms)), self._deltas()
        *early, last = self._chain(len(llms))
        for llm, delta in zip(early, deltas, strict=True):
            response = llms[llm].sample(samples[llm])
            answer = plurality(response.answers)
            if answer is not None and self._trusts(response, answer, delta):
                return answer
        return plurality(llms[last].sample(samples[last]).answers)

    def _trusts(self, response: RecordedResponse, answer: str, delta: Fraction) -> bool:
        answers = list(response.answers)
        if self.score == "vote-share":
            return answers.count(answer) >= self._votes_needed(len(answers), delta)
        score = response.scores(self.scorer, self.aggregate)[answers.index(answer)]
        return score is not None and bool(self._passes(score, delta))

    def decide(self, pools: Sequence[Pool], orders: Sequence[Orders]) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        needed, deltas = require_draws(self, pools, orders), self._deltas()
        shape = orders[0].shape[:2]
        llms = [Takings(*drawn) for drawn in zip(pools, orders, needed, strict=True)]
        answer = np.empty(shape[0] * shape[1], np.result_type(*(pool.codes.dtype for pool in pools)))
        *early, last = self._chain(len(pools))
        for left in blocks(answer.size, max(needed)):
            for llm, delta in zip(early, deltas, strict=True):
                taken = llms[llm].take(left)
                leader = plurality_codes(taken.codes.T)
                trusted = (leader >= 0) & self._trusted(pools[llm], taken, leader, delta)
                answer[left[trusted]] = leader[trusted]
                left = left[~trusted]
            answer[left] = plurality_codes(llms[last].take(left).codes.T)
        return Decisions(answer.reshape(shape), tuple(llm.ledger() for llm in llms))

    def _trusted(self, pool: Pool, taken: Taken, leader: Integers, delta: Fraction) -> npt.NDArray[np.bool_]:
        """[N] whether the leaders' scores pass."""
        if self.score == "vote-share":
            enough: npt.NDArray[np.bool_] = (taken.codes == leader).sum(axis=0) >= self._votes_needed(
                len(taken.codes), delta
            )
            return enough
        passed: npt.NDArray[np.bool_] = self._passes(self._recorded(pool, taken, leader), delta)
        return passed

    def _recorded(self, pool: Pool, taken: Taken, leader: Integers) -> Floats:
        """[N] the recorded score of the CoT that first gave the leading answer; NaN where there is none."""
        cells = taken.cells[(taken.codes == leader).argmax(axis=0), np.arange(len(leader))]
        scores: Floats = pool.aggregated(self.scorer, self.aggregate).ravel()[cells]
        return scores

    def _passes(self, score: Any, delta: Fraction) -> Any:
        # A score is a float, so 1 - delta is taken to the nearest one: 0.9 does not exceed the bar of delta 0.1.
        bar = float(1 - delta)
        return score > bar if self.strict else score >= bar

    def _votes_needed(self, votes: int, delta: Fraction) -> int:
        """The fewest votes whose share passes, in exact arithmetic."""
        share = (1 - delta) * votes
        return floor(share) + 1 if self.strict else ceil(share)

    def _chain(self, llms: int) -> tuple[int, ...]:
        return tuple(range(llms)) if self.order is None else self.order

    def _deltas(self) -> list[Fraction]:
        if self.thresholds is None:
            raise UsageError(
                "The cascade has no thresholds yet. Let it learn them from questions that are then not evaluated "
                "(--train-fraction, or `method.fit(pools, gold)`), or give them: thresholds=0.2, one for each LLM but the last."
            )
        return [exact_threshold("A threshold", threshold) for threshold in self.thresholds]

    # -- choosing thresholds ----------------------------------------------------------------------------------------

    @property
    def fitted(self) -> bool:
        """Whether it has thresholds."""
        return self.thresholds is not None

    def fit(self, pools: Sequence[Pool], gold: Integers) -> Self:
        """The cascade with the thresholds, and the order, that are best on training questions.

        Each question is asked as often as its CoTs last, in recorded order: CoTs 0 to n - 1, n to 2n - 1, and so on. Of equally
        accurate choices the cheapest is taken.

        Args:
            pools: one per LLM, of the training questions.
            gold: [Q] code of each one's gold answer, -1 where there is none.

        Raises:
            OutOfRangeError: no choice stays within the budget, or the grid is too fine for so many LLMs.
            NotRecordedError: no scores, or no prompt tokens.
            UsageError: no training question.
        """
        unfitted = replace(self, thresholds=None)
        needed = unfitted.draws(len(pools))
        if not len(gold):
            raise UsageError(f"{unfitted} was to be fitted on no question; take a larger training split.")
        require_draws(unfitted, pools, [np.empty((0, len(gold), n), np.uint16) for n in needed])
        asked = min(pool.smallest // n for pool, n in zip(pools, needed, strict=True))
        given = self._chain(len(pools))
        stages = {llm: self._stage(pools[llm], llm, needed[llm], asked, gold, given) for llm in given}
        best: Choice | None = None
        for chain in self._candidates(given):
            found = best_choice([stages[llm] for llm in chain], budget=self.budget, non_decreasing=self.non_decreasing)
            if found is not None and (best is None or (found.right, -found.cost) > (best.right, -best.cost)):
                best, order = found, chain
        if best is None:
            least = min(float(stage.cost.mean()) for stage in stages.values())
            raise OutOfRangeError(
                f"No cascade stays within {self.budget} {'tokens' if self.prices is None else 'USD'} per question; the cheapest "
                f"LLM alone takes {least:.6g}."
            )
        early = zip(order, best.levels, strict=False)
        return replace(
            self, thresholds=tuple(written(1 - stages[llm].bars.values[level]) for llm, level in early), order=order
        )

    def _candidates(self, given: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if self.chains == "given":
            yield given
            return
        for length in [len(given)] if self.chains == "permutations" else range(1, len(given) + 1):
            yield from permutations(given, length)

    def _stage(self, pool: Pool, llm: int, samples: int, asked: int, gold: Integers, given: tuple[int, ...]) -> Stage:
        """What one LLM gives on the training questions, asked several times."""
        order = np.arange(asked * samples, dtype=np.uint16).reshape(asked, 1, samples)
        takings = Takings(pool, np.broadcast_to(order, (asked, len(gold), samples)), samples)
        taken = takings.take(np.arange(asked * len(gold)))
        leader = plurality_codes(taken.codes.T)
        by_votes = self.score == "vote-share"
        if self.chains == "given" and llm == given[-1]:
            score = np.full(len(leader), np.nan)  # the last LLM is not judged, and need not have been
        else:
            score = (taken.codes == leader).mean(axis=0) if by_votes else self._recorded(pool, taken, leader)
        score[leader < 0] = np.nan
        right = (leader >= 0) & (leader == np.tile(gold, asked))
        cost = self._cost(pool, llm, takings.ledger().output_tokens.ravel(), asked)
        return Stage(right, cost, bars(score, self.grid, strict=self.strict, samples=samples if by_votes else None))

    def _cost(self, pool: Pool, llm: int, output_tokens: Integers, asked: int) -> Floats:
        if int(pool.prompt_tokens.min()) < 0:
            raise NotRecordedError(
                f"The prompt tokens of {pool.llm} are not known on every question, so the cost of a cascade is not, either. "
                "Record the LLM with a token counter."
            )
        prompt, output = (1.0, 1.0) if self.prices is None else (1e-6 * price for price in self.prices[llm])
        cost: Floats = prompt * np.tile(pool.prompt_tokens, asked) + output * output_tokens
        return cost
