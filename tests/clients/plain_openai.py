"""Self-consistency on the date questions as anybody would write it: this file was never told about
feval.

    python plain_openai.py QUESTIONS.json N        OPENAI_BASE_URL and OPENAI_API_KEY say where

Prints one JSON object: how many votes of N replies are right; with 40 replies also how many of 20
drawn by `random.sample`.
"""

import json
import random
import sys
from collections import Counter
from pathlib import Path

from openai import OpenAI


def answer(text):
    """What follows the last "A:"."""
    return text.split("A:")[-1].strip()


def vote(answers):
    """The most frequent one, the first seen on a tie."""
    return Counter(answers).most_common(1)[0][0]


def main():
    questions = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    count = int(sys.argv[2])
    client = OpenAI()
    random.seed(0)
    right = drawn = 0
    for entry in questions:
        reply = client.chat.completions.create(
            model="mistralai/Mixtral-8x7B-Instruct-v0.1",
            messages=[{"role": "user", "content": entry["question"]}],
            n=count,
            temperature=0.7,
        )
        texts = [choice.message.content for choice in reply.choices]
        right += vote(map(answer, texts)) == entry["answer"]
        if count == 40:
            drawn += vote(map(answer, random.sample(texts, 20))) == entry["answer"]
    sys.stdout.write(json.dumps({"right": right, "drawn": drawn, "questions": len(questions)}))


main()
