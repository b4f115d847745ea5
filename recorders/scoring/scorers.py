"""Scorers by the way a user names them (docs/scoring.md). A scorer sees the question, the CoT and
its answer, never the gold.

Scorers ask once and retry nothing: they raise the errors of backends (`recorders.errors`), and the
engine repeats.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path

from feval.errors import UnknownNameError, UsageError
from recorders.backends.endpoint import DEFAULT_BASE_URL, Endpoint
from recorders.scoring.function import FunctionScorer
from recorders.scoring.judge import CHECKS, PAIRWISE, ChatScorer
from recorders.scoring.local import LocalRewardModel
from recorders.scoring.rewards import RewardScorer, VLLMScorer
from recorders.scoring.scorer import Scorer

KINDS: Mapping[str, str] = {
    "python": "python:MODULE:FUNCTION, a function of yours",
    "judge": "judge:MODEL, a grade from 0 to 10 by an OpenAI-compatible endpoint",
    "verbal": "verbal:MODEL, confidence stated after the CoT",
    "p-true": "p-true:MODEL, probability of Yes to whether the answer is correct",
    "http": "http:URL, a reward model behind HTTP",
    "vllm-score": "vllm-score:MODEL, a cross-encoder behind vLLM's /score",
    "transformers": "transformers:FOLDER, a reward model on this machine",
}
"""Kinds of scorers: how each is written, and what it is."""

LOCAL = ("python", "transformers")
"""The kinds that run on this machine and send nothing."""


def make_scorer(
    spec: str,
    *,
    name: str | None = None,
    base_url: str | None = None,
    key_variable: str | None = None,
    timeout_s: float = 600.0,
    asks: bool = True,
    pairwise: bool = False,
    executor: Executor | None = None,
) -> Scorer:
    """Return the scorer that a user names: a kind of `KINDS`, a colon, and what it needs.

    Its name in the recording is the spec without credentials, unless another is given. Endpoints
    that speak OpenAI's protocol take URL and key from the environment as the official client does;
    `http:` has a key only if `key_variable` names one. For an estimate it is made with `asks=False`
    and needs no key. A function is called by an `executor` (`feval.executors`) where one is given.
    """
    kind, colon, rest = spec.partition(":")
    if kind in {"http", "https"} and rest.startswith("//"):  # the URL itself
        kind, rest = "http", spec
    if kind not in KINDS:
        raise UnknownNameError.of(
            "kind of scorer", kind, KINDS, "Write KIND:WHAT, such as judge:gpt-4o-mini."
        )
    if not colon or not rest.strip():
        raise UsageError(f"The scorer {spec[:80]!r} is incomplete; write {KINDS[kind]}.")
    if pairwise and kind != "judge":
        raise UsageError(
            f"CoTs are compared in pairs by a judge, and {spec[:80]!r} is none; write judge:MODEL."
        )
    if kind == "python":
        return FunctionScorer(rest, name, executor)
    if executor is not None:
        raise UsageError(
            f"Workers call functions, python:MODULE:FUNCTION; {spec[:80]!r} is asked from one"
            " process. Leave --workers and --scheduler out."
        )
    if kind == "transformers":
        return LocalRewardModel(Path(rest), name)
    if kind == "http":
        values = (
            Endpoint.from_environment(rest, key_variable)
            if key_variable and asks
            else Endpoint(rest)
        )
        return RewardScorer(values, name, timeout_s)
    if asks:
        endpoint = Endpoint.from_environment(base_url, key_variable)
    else:
        endpoint = Endpoint(
            base_url or os.environ.get("OPENAI_BASE_URL", "").strip() or DEFAULT_BASE_URL
        )
    if kind == "vllm-score":
        return VLLMScorer(endpoint, rest, name, timeout_s)
    return ChatScorer(
        endpoint, PAIRWISE if pairwise else CHECKS[kind], rest, name, timeout_s, asks=asks
    )
