"""Small valid sources of every format, for the tests of the importers."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable
from typing import Any


def mot_entry(**changes: Any) -> dict[str, Any]:
    return {
        "question": "What is 1 + 1?",
        "answer": "2",
        "generated": ["One and one.\nA: 2", "A: 3", "nothing"],
        "results": ["2", "3", None],
        "result_counter": {"2": 1, "3": 1},
        "prediction": "2",
        **changes,
    }


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def lines(*values: Any) -> bytes:
    return b"\n".join(map(dumped, values)) + b"\n"


def cot(text: str = "so 2", answer: str | None = "2", tokens: float = 4.0, reason: str = "stop") -> dict[str, Any]:
    return {
        "raw_text": text,
        "answer": answer,
        "metadata": {"dollar_cost": 1e-6, "token_cost": tokens, "finish_reason": reason},
    }


def response(*cots: dict[str, Any]) -> dict[str, Any]:
    return {"cots": list(cots), "request": {"raw_text": "Q: 1 + 1?", "dollar_cost": 1e-6, "token_cost": 5.0}}


ARCHIVE_LLM = "meta-llama/Llama-3.2-1B-Instruct"


def archive_members(**changes: Any) -> dict[str, Any]:
    """Members of a reference archive with two questions and two LLMs, as JSON values or bytes."""
    members: dict[str, Any] = {
        "dataset_GSM8K.txt": {
            "data": [{"answer": "2", "question": "1 + 1?"}, {"answer": "4", "question": "2 + 2?"}],
            "datatype": "GSM8K",
            "system_prompt": "Be brief.",
        },
        "dataset_GSM8K_models.txt": {"llms": [ARCHIVE_LLM, "o3-mini"]},
        f"LLM_{ARCHIVE_LLM}_dataset_GSM8K.txt": {
            "config": {"name": ARCHIVE_LLM, "temperature": 0.7, "max_tokens": 2048},
            "responses": [
                response(cot(), cot("cut", None, 2048.0, "max_tokens"), cot("no", "3", 1, "content_filter")),
                response(cot(reason="run_cancelled"), cot(reason="run_expired"), cot("", None, 0, "run_failed")),
            ],
        },
        "LLM_o3-mini_dataset_GSM8K.txt": {
            "config": {"name": "o3-mini"},
            "responses": [response(cot("2", "2", 1)), response(cot("4", "4", 1))],
        },
    }
    return {**members, **changes}


def archive(members: dict[str, Any] | Iterable[tuple[str, Any]], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, value in members.items() if isinstance(members, dict) else members:
            file.writestr(name, value if isinstance(value, bytes) else dumped(value))
    return buffer.getvalue()


MMLU_KEY = b"subject,index,answer\nalgebra,0,A\nalgebra,1,B\n"
MMLU_REPLIES = b"0\n" + b"".join(b'"A.\nBecause, yes"\n' for _ in range(10)) + b"B\n" * 9 + b'""\n'


def switch_entry(**changes: Any) -> dict[str, Any]:
    return {
        "question": "1 + 1?",
        "no": 0,
        "category": "Math",
        "solution": "2",
        "step_sampling": ["It is \\boxed{2}."],
        "intermediate_results": ["2"],
        "ans_list": ["2"],
        "final_answer": "2",
        "Correctness": True,
        **changes,
    }


COT = {"id": "a", "question": "A?", "gold": "1", "text": "t", "answer": "1"}
QUESTION = {"id": "a", "question": "A?", "answer": "1", "samples": [{"text": "t", "answer": "1"}]}
