"""A cascade in the manner of FrugalGPT: ask the next LLM until a scorer trusts an answer (Chen et
al., arXiv 2305.05176).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import permutations
from math import ceil, floor
from typing import Annotated, Any, Literal, Self

import numpy as np

from feval import replay
from feval.errors import NotRecordedError, OutOfRangeError, UsageError
from feval.estimators.arrays import Numbers, Result
from feval.methods.fields import (
    Aggregate,
    Cost,
    CountPerLLM,
    ExactNumber,
    GridSize,
    ListOf,
    Whole,
    as_fraction,
    frozen_method,
    per_llm,
)
from feval.methods.learners import Logistic, deal_folds, fit_learner, out_of_fold
from feval.methods.protocol import (
    BatchSampler,
    Bools,
    Capabilities,
    Decisions,
    Floats,
    Integers,
    InTurn,
    PoolOrders,
    Pools,
    Predicting,
    Predictions,
    Questions,
    Rows,
    Samples,
    Training,
    require_draws,
)
from feval.methods.vote import plurality, plurality_codes, reaches, votes_needed


@frozen_method
class Cascade(Predicting):
    """Ask LLMs in order; the first answer whose score g passes its threshold is returned, the last
    LLM's in any case.

    Stage i answers with the plurality of its CoTs and is accepted iff 1 - g < delta_i; every stage
    that was asked costs. `fit` chooses the thresholds, and the order if allowed, that answer most
    training questions correctly at a mean cost within the budget. A stage without an answer, or
    without a score of it, is not accepted.

    Chen, Zaharia, Zou, "FrugalGPT: How to Use Large Language Models While Reducing Cost and
    Improving Performance", section 3 ("LLM cascade"); their repository
    stanford-futuredata/FrugalGPT. https://arxiv.org/abs/2305.05176

    Attributes:
        thresholds: delta of every stage but the last, compared exactly; `None` until `fit` has
            chosen them.
        samples: CoTs of each LLM, or one number per LLM, in the order in which LLMs are given; the
            paper takes one.
        score: "recorded" for a scorer's recorded score of the CoT that first gave the answer;
            "vote-share" for the share of the stage's CoTs that gave it, those without an answer
            included; "learnt" for a probability of being right that `fit` learns, of each LLM, from
            the texts of question and CoT.
        scorer: whose recorded scores; `None` for the only scorer there is.
        aggregate: "score", or how step scores become one number: "last", "min", "prod" or "mean".
        strict: accept iff 1 - g < delta, else iff 1 - g <= delta.
        order: places of the LLMs to ask, first to last; `None` for all as they are given.
        chains: which orders `fit` may choose from: the one that is "given", "permutations" of it,
            or "any" chain of some of the LLMs.
        budget: largest mean cost per training question, in USD where every LLM has a price, else in
            tokens; `None` for no limit.
        price: lambda, of a unit of that cost in right answers: `fit` then takes the largest share
            of right answers less price times mean cost, as `router` does.
        non_decreasing: only thresholds that accept no smaller share of all answers at a later stage
            than at an earlier one.
        grid: how many quantiles of the training scores are tried as thresholds of a stage.
    """

    capabilities = Capabilities(
        needs="Its scores say how far an answer can be trusted; score='vote-share' needs none.",
        learns=("thresholds", "order"),
    )

    thresholds: ListOf[Annotated[str | float, ExactNumber()]] | None = None
    samples: CountPerLLM = 1
    # The authors choose thresholds by scores of the questions that the scorer was trained on, where
    # it is far too sure; ours are out of fold, and the scorer is then trained on all.
    score: Literal["recorded", "vote-share", "learnt"] = "recorded"
    scorer: str | None = None
    aggregate: Aggregate = "score"
    # The authors' code accepts below the threshold; with `strict=False`, two LLMs and the vote
    # share this is the MoT paper's CoT-1D-Vote with tau = 1 - delta.
    strict: bool = True
    order: ListOf[Whole] | None = None
    # The authors' code searches the permutations of exactly as many LLMs as the cascade is deep. A
    # shorter chain can be better and is among "any".
    chains: Literal["given", "permutations", "any"] = "given"
    budget: Cost | None = None
    price: Cost = 0.0
    # As in the authors' search: quantile levels, not their values, since scores of different LLMs
    # are on different scales. We try all combinations on the grid; the authors polish the best one
    # with a simplex search, which our exact grid leaves out.
    non_decreasing: bool = True
    grid: GridSize = 40

    def __post_init__(self) -> None:
        if self.order is not None and (
            not self.order or len(set(self.order)) < len(self.order) or min(self.order) < 0
        ):
            raise OutOfRangeError(
                f"order names each LLM by its place, from 0, once; {self.order} was given."
            )

    def draws(self, llms: int) -> tuple[int, ...]:
        """CoTs drawn from each LLM, if it is asked."""
        chain = self._chain(llms)
        if not chain or max(chain) >= llms:
            raise UsageError(
                f"The cascade asks LLM {max(chain, default=0)}, counted from 0; {llms}"
                f" {'was' if llms == 1 else 'were'} given."
            )
        if self.thresholds is not None and len(self.thresholds) != len(chain) - 1:
            raise UsageError(
                "A cascade has a threshold for each LLM but the last; here that is"
                f" {len(chain) - 1}; {len(self.thresholds)} were given:"
                f" {', '.join(map(str, self.thresholds))}."
            )
        return per_llm("samples", self.samples, llms)

    def __call__(self, question: str, *llms: replay.MeteredLLM) -> str | None:
        """The answer to one question; `None` if the last LLM has none."""
        samples, deltas = self.draws(len(llms)), self._deltas()
        *early, last = self._chain(len(llms))
        said = self.predicts_of(question) if early and self.score == "learnt" else {}
        for llm, delta in zip(early, deltas, strict=True):
            response = llms[llm].sample(samples[llm])
            answers = response.answers
            answer = plurality(answers)
            if answer is None:
                continue
            if self.score == "vote-share":
                needed = votes_needed(1 - delta, len(answers), strict=self.strict)
                trusted = answers.count(answer) >= needed
            else:
                place = answers.index(answer)
                score: float | None
                if self.score == "learnt":
                    score = float(said[str(llm)][response.samples[place]])
                else:
                    score = response.scores(self.scorer, self.aggregate)[place]
                trusted = score is not None and reaches(score, 1 - delta, strict=self.strict)
            if trusted:
                return answer
        return plurality(llms[last].sample(samples[last]).answers)

    def ratings(self, pools: Pools) -> list[Floats | None]:
        """The scores of every LLM but the last; see `feval.methods.protocol`."""
        scored = self._chain(len(pools))[:-1] if self.score == "recorded" else ()
        return [
            p.aggregated(self.scorer, self.aggregate) if at in scored else None
            for at, p in enumerate(pools)
        ]

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        turn, deltas = InTurn(self, pools, orders), self._deltas()
        *early, last = self._chain(len(pools))
        scores = {}
        if self.score == "recorded":
            scores = {llm: pools[llm].aggregated(self.scorer, self.aggregate) for llm in early}
        elif self.score == "learnt" and early:
            said = self.predicts(pools[0].question_keys)
            scores = {llm: said[str(llm)] for llm in early}
        for left in turn.blocks():
            for llm, delta in zip(early, deltas, strict=True):
                turn.answered_by[left] = llm
                samples = turn.llms[llm].sample(left)
                leader = plurality_codes(samples.codes.T)
                if self.score == "vote-share":
                    needed = votes_needed(1 - delta, len(samples.codes), strict=self.strict)
                    passed = (samples.codes == leader).sum(axis=0) >= needed
                else:
                    passed = reaches(
                        _of_leader(scores[llm], samples, leader), 1 - delta, strict=self.strict
                    )
                trusted = (leader >= 0) & passed
                turn.answer[left[trusted]] = leader[trusted]
                left = left[~trusted]
            turn.answered_by[left] = last
            turn.answer[left] = plurality_codes(turn.llms[last].sample(left).codes.T)
        return turn.decisions()

    @property
    def chooses(self) -> bool:
        """Whether each stage answers with its one CoT, and the score of that decides."""
        each = self.samples if isinstance(self.samples, tuple) else (self.samples,)
        return self.score != "vote-share" and max(each) == 1

    def _chain(self, llms: int) -> tuple[int, ...]:
        return tuple(range(llms)) if self.order is None else self.order

    def _deltas(self) -> list[Fraction]:
        if self.thresholds is None:
            raise UsageError(
                "The cascade has no thresholds yet. Let it learn them from questions that are then"
                " not evaluated (--train-fraction, --folds, or `method.fit(train)`), or give them:"
                " thresholds=0.2, one for each LLM but the last."
            )
        return [as_fraction(threshold) for threshold in self.thresholds]

    @property
    def fitted(self) -> bool:
        """Whether it has thresholds, and what they are compared with."""
        knows = self.score != "learnt" or self.model is not None or self.predictions is not None
        return knows and self.thresholds is not None

    def fit(self, train: Training) -> Self:
        """The cascade with the thresholds, and the order, that are best on training questions; see
        `Learner.fit`.

        Each question is asked as often as its recorded CoTs allow: CoTs 0 to n - 1, then n to 2n -
        1, and so on. Of equally accurate choices the cheapest wins.

        Raises:
            OutOfRangeError: no choice stays within the budget, or the grid is too fine for so many
                LLMs.
            NotRecordedError: no scores, no texts, or no prompt tokens.
            UsageError: no training question; to learn scores, CoTs of an LLM that are all right or
                all wrong, or too few questions.
        """
        pools, gold, unfitted = train.pools, train.gold, replace(self, thresholds=None)
        needed = unfitted.draws(len(pools))
        if not len(gold):
            raise UsageError(
                f"{unfitted} cannot be fitted on no question; use a larger training split."
            )
        require_draws(unfitted, pools, [np.empty((0, len(gold), n), np.uint16) for n in needed])
        known_costs(train)
        times = min(pool.smallest // n for pool, n in zip(pools, needed, strict=True))
        llms = self._chain(len(pools))
        stages = {llm: self._stage(train, llm, needed[llm], times, llms) for llm in llms}
        lengths = range(1, len(llms) + 1) if self.chains == "any" else [len(llms)]
        orders = (chain for length in lengths for chain in permutations(llms, length))
        choices = [
            choice
            for chain in ([llms] if self.chains == "given" else orders)
            if (choice := self._best_choice(chain, [stages[llm] for llm in chain])) is not None
        ]
        if not choices:
            least = min(float(stage.cost.mean()) for stage in stages.values())
            raise OutOfRangeError(
                f"No cascade stays within {self.budget} {train.unit} per question; the cheapest LLM"
                f" alone takes {least:.6g}."
            )
        best = max(choices, key=lambda choice: (choice.worth, -choice.cost))
        early = zip(best.order, best.levels, strict=False)
        fitted = replace(
            self,
            thresholds=tuple(written(1 - stages[llm].bars[level]) for llm, level in early),
            order=best.order,
        )
        model = None
        if self.score == "learnt":
            model = {}
            for llm in best.order[:-1]:
                texts, _, right, whose = lesson(train, llm)
                model[llm] = fit_learner(Logistic(), texts, [{}] * len(texts), right, whose)
        return fitted.having(model=model, learnt_from=train)

    def predicted(self, questions: Questions) -> Self:
        """The cascade with g of each CoT [Q, S] of the LLMs that are judged, by their places; see
        `Predicting`.
        """
        said = {}
        for llm, learner in self.model.items():
            texts, cells = _cots(questions, llm)
            said[str(llm)] = _spread(questions, llm, cells, learner.predict_proba(texts, []))
        return self.having(predictions=Predictions(questions.keys, said))

    def _stage(
        self, train: Training, llm: int, samples: int, times: int, llms: tuple[int, ...]
    ) -> Stage:
        """The answers, costs and scores of one LLM, asked several times on the training
        questions.
        """
        pool, gold = train.pools[llm], train.gold
        order = np.arange(times * samples, dtype=np.uint16).reshape(times, 1, samples)
        sampler = BatchSampler(pool, np.broadcast_to(order, (times, len(gold), samples)), samples)
        cots = sampler.sample(np.arange(times * len(gold)))
        leader = plurality_codes(cots.codes.T)
        by_votes = self.score == "vote-share"
        if self.chains == "given" and llm == llms[-1]:
            score = np.full(len(leader), np.nan)  # the last LLM needs no scores
        elif by_votes:
            score = (cots.codes == leader).mean(axis=0)
        elif self.score == "recorded":
            score = _of_leader(pool.aggregated(self.scorer, self.aggregate), cots, leader)
        else:
            score = _of_leader(scores_out_of_fold(train, llm), cots, leader)
        score[leader < 0] = np.nan
        tokens = sampler.ledger().output_tokens.ravel()
        return Stage(
            (leader >= 0) & (leader == np.tile(gold, times)),
            train.price(llm, np.tile(pool.prompt_tokens, times), tokens),
            *bars(score, self.grid, strict=self.strict, samples=samples if by_votes else None),
        )

    def _best_choice(self, order: tuple[int, ...], stages: Sequence[Stage]) -> BarChoice | None:
        """The bars worth most within the budget, of the stages of a chain with as many bars each;
        of several the cheapest, and of those the first in the grid.

        Raises:
            OutOfRangeError: too many combinations.
        """
        levels, choices = len(stages[0].bars), len(stages) - 1
        if levels**choices > _MOST_CELLS:
            raise OutOfRangeError(
                f"A cascade of {len(stages)} LLMs with {levels - 2} quantiles each has too many"
                " combinations of thresholds; set grid to"
                f" {int(_MOST_CELLS ** (1 / choices)) - 2} or less."
            )
        right, cost = np.zeros((2, *(levels,) * choices))
        firsts = [stage.first for stage in stages]
        for place, stage in enumerate(stages):
            rejecting, accepting = firsts[:place], firsts[place : place + (place < choices)]
            cost += _sums(rejecting, [], stage.cost, levels, choices)
            right += _sums(rejecting, accepting, stage.right, levels, choices)
        allowed = np.ones(right.shape, np.bool_)
        if self.non_decreasing:
            level = np.indices(right.shape)
            allowed &= (level[:-1] <= level[1:]).all(axis=0)
        if self.budget is not None:
            allowed &= cost <= self.budget * len(stages[0].right) * (1 + 1e-12)  # rounding
        if not allowed.any():
            return None
        worth = right - self.price * cost
        most = worth[allowed].max()
        cheapest = np.where(allowed & (worth == most), cost, np.inf)
        best = np.unravel_index(int(cheapest.argmin()), cheapest.shape)
        return BarChoice(float(most), float(cheapest[best]), order, tuple(map(int, best)))


_FOLDS = 5
_MOST_CELLS = 1 << 22  # of the table of all combinations


class Stage(Result):
    """One LLM, asked N times on training questions.

    Attributes:
        right: [N] whether its answer is the gold.
        cost: [N] of asking it.
        bars: L bars, from one that accepts nothing down to one that accepts every score.
        first: [N] the first bar that accepts each answer; L where none does.
    """

    right: Bools
    cost: Floats
    bars: list[Fraction]
    first: Rows


class BarChoice(Result):
    """Bars for a chain of stages.

    Attributes:
        worth: right answers out of N, less price times cost.
        cost: of all N.
        order: the LLMs of the chain.
        levels: which bar, for every stage but the last.
    """

    worth: float
    cost: float
    order: tuple[int, ...]
    levels: tuple[int, ...]


def bars(
    scores: Floats, grid: int, *, strict: bool, samples: int | None = None
) -> tuple[list[Fraction], Rows]:
    """`grid` quantiles of [N] scores (NaN where there is none) as bars, and one bar beyond either
    end; and the first of them that accepts each score, see `Stage`.

    A strict bar must be exceeded, not only reached. `samples` is the number of votes where scores
    are shares of votes; bars are then exactly such shares.
    """
    known = np.sort(scores[~np.isnan(scores)])[::-1]
    if not known.size:
        return [Fraction(0)] * (grid + 2), np.full(len(scores), grid + 2)
    picks = known[np.rint(np.linspace(0, len(known) - 1, grid)).astype(np.intp)].tolist()
    if samples is None:
        # Beyond either end by more than rounding, so that scores not seen in training are all
        # accepted, or all rejected.
        values = [
            Fraction(ceil(known[0]) + 1),
            *(Fraction(repr(bar)) for bar in picks),
            Fraction(floor(known[-1]) - 1),
        ]
    else:
        shares = [Fraction(pick).limit_denominator(samples) for pick in picks]
        values = [Fraction(1) if strict else Fraction(samples + 1, samples), *shares, Fraction(0)]
    accepting = np.searchsorted(
        [float(bar) for bar in values[::-1]], scores, side="left" if strict else "right"
    )
    return values, np.where(np.isnan(scores), len(values), len(values) - accepting)


def _sums(
    rejecting: Sequence[Rows], accepting: Sequence[Rows], values: Any, levels: int, choices: int
) -> Floats:
    """Sums of [N] values over the answers that all earlier stages reject and this one accepts, for
    every choice of bars.

    `rejecting` has `first` of each earlier stage, `accepting` that of this one, or nothing where it
    does not matter whether it accepts. The result has one axis per choice, of length `levels` for
    those that matter, else 1.
    """
    axes = [*rejecting, *accepting]
    shape = (levels + 1,) * len(axes)
    cells = np.ravel_multi_index(tuple(axes), shape) if axes else np.zeros(len(values), np.intp)
    counted = np.bincount(
        cells, np.asarray(values, np.float64), minlength=(levels + 1) ** len(axes)
    )
    table: Numbers = counted.reshape(shape)
    for axis in range(len(axes)):
        up_to = table.cumsum(axis=axis)
        accepted = up_to.take(range(levels), axis=axis)
        table = up_to.take([levels], axis=axis) - accepted if axis < len(rejecting) else accepted
    return table.reshape(table.shape + (1,) * (choices - table.ndim))


def written(number: Fraction) -> str:
    """A fraction as text: a decimal where it has one, such as "0.35", else "1/3"."""
    decimal = str(Decimal(number.numerator) / number.denominator)
    return decimal if Fraction(decimal) == number else str(number)


def _of_leader(scores: Floats, samples: Samples, leader: Integers) -> Floats:
    """[N] the score [Q, S] of the CoT that first gave the leading answer; NaN where it has none."""
    first = (samples.codes == leader).argmax(axis=0)
    own: Floats = scores.ravel()[samples.cells[first, np.arange(len(leader))]]
    return own


def _cots(questions: Questions, llm: int) -> tuple[list[str], Rows]:
    """Question and reply of each CoT of an LLM as one text, and its place in a flattened [Q, S]."""
    pool, replies, texts, read = questions.pools[llm], questions.replies(llm), [], False
    for row in range(len(pool.sizes)):
        own = replies[row] if row < len(replies) else ()
        read |= any(own)
        texts += [f"{questions.texts[row]}\n{reply or ''}" for reply in own]
    if not read:
        raise NotRecordedError(
            f"A cascade with score='learnt' learns from the texts of {pool.llm}, and none were"
            " recorded. Import them, or use score='recorded' or 'vote-share'."
        )
    return texts, np.flatnonzero(pool.codes > -2)


def lesson(train: Training, llm: int) -> tuple[list[str], Rows, Floats, str]:
    """The same, with what is learnt: whether each is right, and whose they are."""
    pool, (texts, cells) = train.pools[llm], _cots(train, llm)
    right = train.right[llm].ravel()[cells].astype(np.float64)
    return texts, cells, right, f"of {pool.llm}"


def scores_out_of_fold(train: Training, llm: int) -> Floats:
    """[Q, S] what is predicted of an LLM's CoTs by learners that saw neither the question nor one
    with its text.
    """
    texts, cells, right, whose = lesson(train, llm)
    folds = deal_folds(train.apart, _FOLDS)
    of_cots = folds[cells // train.pools[llm].codes.shape[1]]
    g = out_of_fold(Logistic, texts, [{}] * len(texts), right, of_cots, whose)
    return _spread(train, llm, cells, g)


def _spread(questions: Questions, llm: int, cells: Rows, values: Floats) -> Floats:
    """[Q, S] values of an LLM's CoTs; NaN where there is none."""
    table = np.full(questions.pools[llm].codes.shape, np.nan)
    table.ravel()[cells] = values
    return table


def known_costs(train: Training) -> list[Floats]:
    """`Questions.costs` of training questions; `NotRecordedError` where some are not known."""
    costs = train.costs
    for pool, cost in zip(train.pools, costs, strict=True):
        if np.isnan(cost[pool.codes > -2]).any():
            raise NotRecordedError(
                f"The prompt tokens of {pool.llm} are not known on every question, so neither is"
                " what it costs to ask it. Record the LLM with a token counter."
            )
    return costs
