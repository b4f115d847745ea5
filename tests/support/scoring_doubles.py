"""Doubles for scoring: replies of servers, functions that score, and short ways to run a scorer."""

import math
from importlib.util import find_spec

import pytest
from command_line import feval
from small import letters

from recorders.asking.pace import Limits
from recorders.scoring.scorers import make_scorer
from recorders.scoring.scoring import CoTScoring, run_scoring

POOLS = {"alpha": letters("44-", "7"), "org/beta": [["4"], ["9", "5"]]}
GOLDS = ["SECRETGOLD", "5"]
KEY = "sk-marked-0123456789abcdef"
needs_client = pytest.mark.skipif(
    find_spec("openai") is None, reason="the official client (extra `record`) is not installed"
)
FAST = Limits(concurrency=4, retries=3, backoff_s=0.001, longest_backoff_s=0.002, timeout_s=20)


def chat(text, *, logprobs=None):
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
        "logprobs": None if logprobs is None else {"content": logprobs},
    }
    usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
    return {
        "id": "x",
        "object": "chat.completion",
        "model": "m",
        "created": 1,
        "choices": [choice],
        "usage": usage,
    }


def token(text, **alternatives):
    top = [{"token": word, "logprob": math.log(p)} for word, p in alternatives.items()]
    return {"token": text, "logprob": -0.5, "top_logprobs": top}


def rewards(_, body):
    return 200, {"scores": [len(item["text"]) for item in body]}


FUNCTIONS = """
import os
calls = []

def length(question, text, answer):
    calls.append((question, text, answer))
    return len(text)

def steps(question, text, answer):
    return None if answer is None else [0.5, 0.25, float("nan") if answer == "7" else 1]

def fails(question, text, answer):
    raise ValueError("no good")

def wrong(question, text, answer):
    return "high"

def leaves(question, text, answer):
    raise SystemExit(3)

def stumbles(question, text, answer):
    yield 1.0
    yield 1 / 0

def one_argument(question):
    return 1

def mixed(question, text, answer):
    return [0.5, None]

def named(question, text, answer):
    return {"score": 1}

async def later(question, text, answer):
    return 1.0

def stuck(question, text, answer):
    import signal, time
    open(os.environ["COUNTS"], "a").close()
    while signal.getsignal(signal.SIGINT)._again is None:
        time.sleep(0.01)
    with open(os.environ["COUNTS"], "a") as file:
        file.write("interrupted once")
    time.sleep(50)

def counted(question, text, answer):
    with open(os.environ["COUNTS"], "a") as file:
        file.write(text.replace("\\n", " ") + "\\n")
        file.flush()
    if os.environ.get("SLOW"):
        import time
        time.sleep(0.01)
    return len(text)
"""

PRICES = {
    "id": "test-1",
    "date": "2026-01-01",
    "source": "a test",
    "prices": {"some/model": [1.0, 2.0]},
}


def score(recording, out, scorer, *, limits=None, **which):
    return run_scoring(CoTScoring.from_recording(recording, scorer, **which), out, limits=limits)


def run(recording, out, spec, **options):
    return score(recording, out, make_scorer(spec, **options), limits=FAST)


def command(*arguments):
    return feval("score", *arguments)


def judged(server, more):
    return f"--scorer judge:some/model --base-url {server.url}/v1 {more}"
