"""Self-consistency in inspect-ai: every question asked in 20 epochs, and the answer that most
epochs give is judged.

    FEVAL_BASE_URL=http://127.0.0.1:8000/run/inspect/v1 FEVAL_API_KEY=none \
        inspect eval examples/inspect_task.py --model openai-api/feval/feval/tiny-42k

The first "feval" names the two variables, the rest is the model's name. inspect-ai lives in a
virtual environment of its own, with the `openai` package beside it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from inspect_ai import Epochs, Task, task
from inspect_ai.dataset import FieldSpec, json_dataset
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import Score, ScoreReducer, pattern, score_reducer
from inspect_ai.solver import generate

QUESTIONS = Path(__file__).with_name("questions.jsonl")


@score_reducer
def plurality() -> ScoreReducer:
    """The score of the most frequent answer; inspect's own "mode" is that of the most frequent
    verdict.
    """

    def reduce(scores: list[Score]) -> Score:
        answers = Counter(score.answer for score in scores if score.answer is not None)
        best = answers.most_common(1)[0][0] if answers else None
        return next(score for score in scores if score.answer == best)

    return reduce


@task
def tiny_sums(votes: int = 20) -> Task:
    """Small word problems, voted on."""
    return Task(
        dataset=json_dataset(str(QUESTIONS), FieldSpec(input="question", target="answer", id="id")),
        solver=generate(cache=False),
        scorer=pattern(r"answer is\s+(-?\d+)"),
        epochs=Epochs(votes, plurality()),
        config=GenerateConfig(temperature=1.0),
    )
