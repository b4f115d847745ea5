"""Self-consistency through LiteLLM, against `feval serve`.

    python examples/self_consistency_litellm.py http://127.0.0.1:8000/v1

LiteLLM lives in a virtual environment of its own; feval need not be installed there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections import Counter
from pathlib import Path

QUESTIONS = Path(__file__).with_name("questions.jsonl")


def self_consistency(base_url: str, model: str, question: str, votes: int) -> str | None:
    """Ask once for several chains of thought and take the answer that most of them give."""
    # it would fetch a price list when it is imported
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    reply = litellm.completion(
        # "openai/" says how to speak; what follows is the name that is asked for
        model=f"openai/{model}",
        messages=[{"role": "user", "content": question}],
        n=votes,
        temperature=1.0,
        api_base=base_url,
        api_key="litellm",  # the run: its own draws, cursor and ledger
    )
    texts = [choice.message.content or "" for choice in reply.choices]
    answers = Counter(
        found[-1] for text in texts if (found := re.findall(r"answer is\s+(-?\d+)", text))
    )
    return answers.most_common(1)[0][0] if answers else None


def main() -> None:
    """Vote on every question, and say how often the vote is right."""
    parser = argparse.ArgumentParser(
        description="Self-consistency through LiteLLM, against `feval serve`."
    )
    parser.add_argument("base_url", metavar="BASE_URL", help="such as http://127.0.0.1:8000/v1")
    parser.add_argument("model", metavar="MODEL", nargs="?", default="feval/tiny-42k")
    parser.add_argument("votes", metavar="VOTES", nargs="?", type=int, default=20)
    given = parser.parse_args()

    asked = [json.loads(line) for line in QUESTIONS.read_text("utf-8").splitlines()]
    voted = [
        self_consistency(given.base_url, given.model, row["question"], given.votes) for row in asked
    ]
    right = sum(answer == row["answer"] for answer, row in zip(voted, asked, strict=True))
    print(f"{right} of {len(asked)} right with {given.votes} votes of {given.model}")


if __name__ == "__main__":
    main()
