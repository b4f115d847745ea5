"""Self-consistency with the `openai` client, live or replayed; the line that makes the client is
all that differs.

    python examples/self_consistency_openai.py    live: OPENAI_BASE_URL and OPENAI_API_KEY say where
    python examples/self_consistency_openai.py --recording RECORDING    replayed in this process

Nothing below the client knows about feval: the vote and the marking are this script's own.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from openai import OpenAI

QUESTIONS = Path(__file__).with_name("questions.jsonl")


def read_answer(text: str | None) -> str | None:
    """Return what a chain of thought says at its end."""
    found = re.findall(r"answer is\s+(-?[\d.,]*\d)", text or "")
    return found[-1].replace(",", "") if found else None


def self_consistency(client: OpenAI, model: str, question: str, votes: int) -> str | None:
    """Ask once for several chains of thought and take the answer that most of them give, the first
    seen on a tie.
    """
    messages: list[Any] = [{"role": "user", "content": question}]
    reply = client.chat.completions.create(
        model=model, messages=messages, n=votes, temperature=1.0, seed=0
    )
    answers = Counter(read_answer(choice.message.content) for choice in reply.choices)
    answers.pop(None, None)
    return answers.most_common(1)[0][0] if answers else None


def main() -> None:
    """Vote on every question, and say how often the vote is right."""
    parser = argparse.ArgumentParser(
        description="Self-consistency with the openai client, live or replayed."
    )
    parser.add_argument("--recording", help="replay this recording instead of asking a live LLM")
    parser.add_argument(
        "--run",
        default="self-consistency",
        help="whose draws: NAME, NAME@REPLICATE or NAME@recorded",
    )
    parser.add_argument("--model", default="feval/tiny-42k")
    parser.add_argument("--votes", type=int, default=20)
    parser.add_argument(
        "--questions", type=Path, default=QUESTIONS, help="JSON Lines with question and answer"
    )
    parser.add_argument("--answers", type=Path, help="write the answers there, for `feval grade`")
    given = parser.parse_args()

    if given.recording is None:
        client = OpenAI()
    else:
        from feval.serving import replay_http_client

        client = OpenAI(
            api_key="none", http_client=replay_http_client(given.recording, run=given.run)
        )

    asked = [json.loads(line) for line in given.questions.read_text("utf-8").splitlines()]
    voted = {
        row["question"]: self_consistency(client, given.model, row["question"], given.votes)
        for row in asked
    }
    right = sum(voted[row["question"]] == row["answer"] for row in asked)
    print(f"{right} of {len(asked)} right with {given.votes} votes of {given.model}")
    if given.answers is not None:
        given.answers.write_text(json.dumps(voted, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
