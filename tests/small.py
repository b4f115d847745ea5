"""Small recordings for tests: written out, so that expected values can be read off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from feval.recording import DatasetInfo, LLMInfo, PoolRows, Question, RecordingWriter

Answers = Sequence[str | None]


def question(index: int, gold: str | None, text: str | None = None) -> Question:
    return Question(f"toy/{index}", text or f"What is question {index}?", gold, gold)


def pool(index: int, answers: Answers, *, tokens: Sequence[int] | None = None, **fields: Any) -> PoolRows:
    size = len(answers)
    return PoolRows(
        f"toy/{index}",
        [f"Thinking about {index}, sample {i}. The answer is {a}." for i, a in enumerate(answers)],
        [None if a is None else f"{a}." for a in answers],
        list(answers),
        list(tokens) if tokens is not None else [10 + i for i in range(size)],
        ["stop" if a is not None else "length" for a in answers],
        **({"prompt": f'[{{"role":"user","content":"What is question {index}?"}}]', "prompt_tokens": 7} | fields),
    )


def write_toy(
    out: Path,
    pools: Mapping[str, Sequence[Answers]],
    golds: Sequence[str | None],
    *,
    counter: str = "words",
    prices: str = "2025-06-02",
) -> Path:
    """A recording of dataset "toy": per LLM one list of answers per question."""
    questions = [question(i, gold) for i, gold in enumerate(golds)]
    with RecordingWriter(out, operation={"name": "test"}, prices=prices) as writer:
        writer.add_dataset(DatasetInfo("toy", "Toy questions", "verbatim", "test-1"), questions)
        for llm, answers in pools.items():
            rows = (pool(i, own) for i, own in enumerate(answers))
            writer.add_pools("toy", LLMInfo(llm, temperature=0.7, max_tokens=64), counter, rows)
    return out
