"""Methods that go from one LLM to the next, over many replicates, against loops in the manner of
the reference's examples.

The loops draw with the reference's `LLM.sample` (see `reference.py`) and decide question by
question, once. Ours include the draws, the votes, the weights and the ledgers of every replicate.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from math import log

from benchmarks import reference
from benchmarks.measure import Goal, Workspace, cpu_ms

REPLICATES = 1000
SAMPLES = 5


def model_switch_run(
    dataset: reference.Dataset, llms: list[reference.LLM], *, thrifty: bool = False
) -> tuple[float, float]:
    """One seeded run of ModelSwitch, all LLMs asked up front as the reference's example does:
    accuracy and USD.
    """
    correct, usd = 0, 0.0
    for question, entry in enumerate(dataset.data):
        responses = [llm.sample(question, SAMPLES, thrifty=thrifty) for llm in llms]
        scores: dict[str, float] = defaultdict(float)
        answer = None
        for response in responses:
            usd += response.dollar_cost
            votes = Counter(one for one in response.answers if one is not None)
            if len(votes) == 1 and None not in response.answers:
                answer = next(iter(votes))
                break
            weight = _weight(votes)
            for one, count in votes.items():
                scores[one] += weight * count
        else:
            answer = max(scores, key=scores.__getitem__) if scores else None
        correct += answer == entry.answer
    return correct / len(dataset.data), usd


def _weight(votes: Counter[str]) -> float:
    n = votes.total()
    if len(votes) < 2:
        return float(len(votes))
    entropy = -sum(count / n * log(count / n) for count in votes.values())
    return 1 / n + (1 - 1 / n) * (1 - entropy / log(len(votes)))


def goals(workspace: Workspace) -> list[Goal]:
    """ModelSwitch and the MoT cascade, 1,000 replicates of 1,319 questions."""
    from feval.evaluation.evaluation import evaluate
    from feval.methods import MixtureOfThoughts, ModelSwitch
    from feval.replay import load

    names = reference.LLM_NAMES[:3]
    theirs, llms = reference.load(workspace.archive(3), names)
    dataset, ours = load(reference.DATASET, names, workspace.recording(3), prices="none")

    def run(method: object, count: int) -> object:
        return evaluate(
            method, dataset, ours[:count], order="seeded", replicates=REPLICATES, confidence=None
        )  # type: ignore[arg-type]

    ms = cpu_ms(
        {
            "run": lambda: model_switch_run(theirs, llms),
            "thrifty": lambda: model_switch_run(theirs, llms, thrifty=True),
            "switch": lambda: run(ModelSwitch(SAMPLES), 3),
            "mixture": lambda: run(MixtureOfThoughts(), 2),
        }
    )
    switch = ms["switch"] / REPLICATES
    note = f"{switch:.2f} ms against {ms['run']:.0f} ms"
    return [
        Goal("ModelSwitch, 3 LLMs x 5, per run of 1,000", ms["run"] / switch, 100, "x", True, note),
        Goal("the same, over a thrifty baseline", ms["thrifty"] / switch, None, "x", True),
        Goal("MoT cascade (CoT-1D-Vote), 1,000 replicates", ms["mixture"] / 1e3, 5, "s"),
    ]
