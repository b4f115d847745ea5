"""What results on the questions of one dataset share: what their numbers rest on, and intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any

from feval.estimators.arrays import Floats, Integers
from feval.estimators.intervals import accuracy_interval
from feval.evaluation.cautions import billed_once, few_questions
from feval.evaluation.questions import NONE_LEFT_OUT, ClusterSizes, LeftOut
from feval.methods.protocol import capabilities
from feval.values import Record

if TYPE_CHECKING:
    from feval.estimators.per_question import PerQuestion
    from feval.evaluation.fitting import Fit
    from feval.methods.protocol import Rows
    from feval.replay import LLM, Dataset, Judges, Timing


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class DatasetResult:
    """Base of results on the questions of one dataset: what their numbers rest on.

    Attributes:
        dataset: id.
        llms: names, in the order given to the method.
        counters: who counted the tokens of each LLM.
        recording_hashes: of every recording behind the questions and CoTs.
        prices: id of the price list, `None` where dollars were switched off.
        billing: how prompts were charged.
        seed: of the draws.
        questions: number of questions.
        confidence: of the intervals; `None` where none was asked for.
        judges: what says which CoTs are right; `None` for golds.
        left_out: questions that were left out because they have no gold or too few CoTs.
        clusters: what clusters the questions are, where some belong together; `None` where none do.
        cautions: sentences about the recording, and the answers, without which the numbers could
            mislead.
        cost: the cost that was asked for, one of `feval.evaluation.measures.COSTS`; `None` for
            none.
        timing: where seconds come from; `None` where nobody asked for them.
        learnt: what the method has learnt, from one split or for each fold; of each point.
    """

    dataset: str
    llms: tuple[str, ...]
    counters: tuple[str, ...]
    recording_hashes: tuple[str, ...]
    prices: str | None
    billing: str
    seed: int
    questions: int
    confidence: float | None = None
    judges: Judges | None = None
    left_out: LeftOut = NONE_LEFT_OUT
    clusters: ClusterSizes | None = None
    cautions: tuple[str, ...] = ()
    cost: str | None = None
    timing: Timing | None = None
    learnt: tuple[Fit, ...] = field(default=(), repr=False)

    @property
    def llm(self) -> str:
        """The names of the LLMs, in one line."""
        return " > ".join(self.llms)

    @property
    def counter(self) -> str:
        """The token counters, each once, between semicolons."""
        return "; ".join(dict.fromkeys(self.counters))

    def _paid(self) -> Sequence[tuple[str, Any]]:
        """What costs are charged for, by name."""
        return ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences without which the numbers could mislead."""
        return (
            *few_questions(self.questions, self.clusters),
            *billed_once(self.billing, self._paid()),
            *self.cautions,
        )

    @property
    def learnt_text(self) -> str:
        """From how many questions was learnt, and what their CoTs cost; empty where nothing was."""
        if not self.learnt:
            return ""
        most = max(self.learnt, key=lambda fit: (fit.questions, fit.cost or 0))
        paid = "" if most.cost is None else f", whose CoTs cost {most.cost:.4g} {most.unit}"
        if paid and capabilities(most.method).bills_scores:
            paid += " without their verifications"
        several = "s" * (most.questions != 1)
        return f"what was learnt is from {most.questions:,} question{several}{paid}"

    def _shared_dict(self) -> Record:
        """JSON values that every result has, or has where there is something to say."""
        values: Record = {
            "dataset": self.dataset,
            "questions": self.questions,
            "billing": self.billing,
            "prices": self.prices,
            "warnings": list(self.warnings),
        }
        if self.judges is not None:
            values["judges"] = asdict(self.judges)
        if self.clusters is not None:
            values["clusters"] = asdict(self.clusters)
        if self.timing is not None:
            values["seconds"] = str(self.timing)
        if self.learnt:
            values["learnt"] = [fit.to_dict() for fit in self.learnt]
        if self.left_out:
            values["left_out"] = self.left_out.to_dict()
        return values

    def _points_dict(self, *names: str) -> Record:
        """JSON values of a result with points, and of attributes of its own."""
        shared = ("llm", "counter", "confidence")
        return self._shared_dict() | {
            **{name: getattr(self, name) for name in (*shared, *names)},
            "recording_hashes": list(self.recording_hashes),
            "points": [dict(point) for point in getattr(self, "points", ())],
        }


def rests_on(dataset: Dataset, llms: Sequence[LLM], rows: Rows) -> Record:
    """The fields of a `DatasetResult` that its dataset, LLMs and questions decide."""
    return {
        "dataset": dataset.id,
        "llms": tuple(llm.name for llm in llms),
        "counters": tuple(llm.counter for llm in llms),
        "recording_hashes": dataset.recording_hashes,
        "prices": llms[0].prices.id if llms[0].prices is not None else None,
        "billing": llms[0].billing,
        "seed": llms[0].seed,
        "questions": len(rows),
        "judges": dataset.judges(rows),
    }


def interval_ends(
    right: Floats | PerQuestion, confidence: float | None, clusters: Integers | None = None
) -> Iterator[tuple[float | None, float | None]]:
    """The ends of the confidence intervals of accuracies, from [Q, N] probabilities of being right;
    without a level, pairs of `None` for ever.
    """
    if confidence is None:
        return repeat((None, None))
    interval = accuracy_interval(right, confidence, clusters)
    return zip(interval.low.tolist(), interval.high.tolist(), strict=True)
