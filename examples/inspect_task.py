"""Self-consistency in inspect-ai: every question asked in 20 epochs, the most frequent answer judged.

    FEVAL_BASE_URL=http://127.0.0.1:8000/run/inspect/v1 FEVAL_API_KEY=none \
        inspect eval examples/inspect_task.py --model openai-api/feval/feval/tiny-42k

The first "feval" names the two variables, the rest is the model's name. inspect-ai lives in a virtual environment of its own, with
the `openai` package beside it.
"""

from __future__ import annotations

from pathlib import Path

from inspect_ai import Epochs, Task, task
from inspect_ai.dataset import FieldSpec, json_dataset
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import match
from inspect_ai.solver import generate

QUESTIONS = Path(__file__).with_name("questions.jsonl")


@task
def tiny_sums(votes: int = 20) -> Task:
    """Small word problems; "mode" keeps the score that most epochs give."""
    return Task(
        dataset=json_dataset(str(QUESTIONS), FieldSpec(input="question", target="answer", id="id")),
        solver=generate(cache=False),
        scorer=match(numeric=True),
        epochs=Epochs(votes, "mode"),
        config=GenerateConfig(temperature=1.0),
    )
