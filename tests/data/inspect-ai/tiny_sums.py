import json
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import pattern
from inspect_ai.solver import generate


@task
def tiny_sums(max_tokens: int = 48, limit: int = 3) -> Task:
    lines = [json.loads(line) for line in Path("tiny_sums.jsonl").read_text().splitlines()][:limit]
    return Task(
        dataset=MemoryDataset(
            [Sample(input=q["question"], target=q["answer"]) for q in lines], name="tiny_sums"
        ),
        solver=generate(),
        scorer=pattern(r"The answer is (-?[0-9]+)"),
        config=GenerateConfig(temperature=1.0, max_tokens=max_tokens),
    )
