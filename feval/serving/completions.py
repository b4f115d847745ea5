"""Completions in OpenAI's shape, made of recorded CoTs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from threading import Lock
from typing import Any
from urllib.parse import quote

import numpy.typing as npt

from feval.cards.billing import Price
from feval.errors import NotRecordedError
from feval.recording.arrays import TokenLogprobs
from feval.recording.reader import Recording
from feval.replay import LLM
from feval.serving.cots import CotTexts
from feval.serving.matcher import Match
from feval.serving.runs import Handout, RunName
from feval.serving.wire import CompletionRequest, MissError, Reply, completion_reply, usage

_SHOWN = 64
_MAX_NAMED = 32
_SAFE = "/:@!$&'()*;=~+ "  # not percent-encoded in a header


@dataclass(frozen=True, slots=True)
class _Part:
    """What answers one conversation of a request."""

    match: Match
    handout: Handout


class CompletionBuilder:
    """Makes completions of the CoTs of some LLMs. Safe to use from many threads."""

    def __init__(self, llms: Iterable[LLM]) -> None:
        self._prices = {llm: llm.price for llm in llms}
        self._reading = Lock()

    def reply(
        self,
        request: CompletionRequest,
        run: RunName,
        matches: Sequence[Match],
        handouts: Sequence[Handout],
        headers: Mapping[str, str],
    ) -> Reply:
        """Return the reply to a request: per conversation its match, and which CoTs the run
        gets.
        """
        parts = [_Part(*each) for each in zip(matches, handouts, strict=True)]
        unknown: dict[str, None] = {}
        choices: list[dict[str, Any]] = []
        for part in parts:
            choices += self._choices(request, part, len(choices), unknown)
        llm = matches[0].llm
        is_chat = request.kind == "chat"
        completion = {
            "id": f"{'chatcmpl' if is_chat else 'cmpl'}-{_identity(run, parts)}",
            "object": "chat.completion" if is_chat else "text_completion",
            "created": created(llm.recording),
            "model": llm.name,
            "system_fingerprint": f"fp_{llm.recording_hash[:12]}",
            "choices": choices,
            "usage": _usage(parts, unknown),
        }
        headers = {**headers, **self._draw_headers(run, parts)}
        if unknown:
            headers["x-feval-unknown"] = ",".join(unknown)
        return completion_reply(
            completion, stream=request.stream, with_usage=request.include_usage, headers=headers
        )

    def _choices(
        self, request: CompletionRequest, part: _Part, first: int, unknown: dict[str, None]
    ) -> list[dict[str, Any]]:
        cots = part.handout.cots
        is_chat, fresh = request.kind == "chat", len(cots) - part.handout.recycled
        scores = (
            self._logprobs(request, part, unknown) if request.logprobs else [(None, {})] * len(cots)
        )
        choices = []
        for number, (cot, (logprobs, extra)) in enumerate(zip(cots, scores, strict=True)):
            text, reason = cot.text, cot.finish_reason
            if text is None:
                unknown["content"] = None
            if reason == "unknown":
                unknown["finish_reason"] = None
                reason = "stop"  # as most CoTs end
            content = {"message": _message(text, cot.reasoning)} if is_chat else {"text": text}
            choice = {
                "index": first + number,
                **content,
                "logprobs": logprobs,
                "finish_reason": reason,
            }
            if number >= fresh:
                extra = extra | {"recycled": True}
            if cot.is_limited:
                extra = extra | {"limited": True}
            if extra:
                choice["feval"] = extra
            choices.append(choice)
        return choices

    def _logprobs(
        self, request: CompletionRequest, part: _Part, unknown: dict[str, None]
    ) -> list[tuple[dict[str, Any] | None, dict[str, Any]]]:
        """The log-probabilities of each CoT in OpenAI's shape, and what else was recorded of
        them.
        """
        samples = part.handout.samples
        try:
            with self._reading:
                recorded = part.match.llm.pool.logprobs()
        except NotRecordedError:
            unknown["logprobs"] = None
            return [(None, {})] * len(samples)
        unknown["logprobs.token"] = None
        if request.top_logprobs:
            unknown["logprobs.top_logprobs"] = None
        row = part.match.row
        found: list[tuple[dict[str, Any] | None, dict[str, Any]]] = []
        for sample, cot in zip(samples, part.handout.cots, strict=True):
            lengths = {
                each.of(row, sample).size for each in (recorded.logprobs, recorded.confidences)
            }
            if cot.is_cut and lengths - {0, int(part.match.llm.pool.output_tokens[row, sample])}:
                unknown["logprobs"] = None  # of other tokens than those that were counted
                found.append((None, {}))
            else:
                tokens = cot.tokens if cot.is_cut else None
                found.append(_logprobs_of(request.kind, recorded, row, sample, tokens))
        return found

    def _draw_headers(self, run: RunName, parts: Sequence[_Part]) -> dict[str, str]:
        handouts = [part.handout for part in parts]
        headers = {
            "x-feval-run": run.label,
            "x-feval-samples": ";".join(
                [",".join(map(str, handout.samples)) for handout in handouts]
            ),
            "x-feval-remaining": ",".join([str(handout.remaining) for handout in handouts]),
        }
        dollars = self._dollars(parts)
        if dollars is not None:
            headers["x-feval-cost-usd"] = repr(dollars)
        visits = [handout.visit for handout in handouts]
        if max(visits) > 1:
            headers["x-feval-pass"] = ",".join(map(str, visits))
        if any(handout.recycled or handout.cut or handout.limited for handout in handouts):
            for name in ("recycled", "cut", "limited"):
                if count := sum([getattr(handout, name) for handout in handouts]):
                    headers[f"x-feval-{name}"] = str(count)
        return headers

    def _dollars(self, parts: Sequence[_Part]) -> float | None:
        """What the request adds to the ledger; `None` where something has no price or the prompt
        was not counted.
        """
        dollars = 0.0
        for part in parts:
            price: Price | None = self._prices[part.match.llm]
            prompts, prompt_tokens = part.handout.prompts, part.match.prompt_tokens
            if price is None or (prompts and prompt_tokens < 0):
                return None
            billed = price.input_usd_per_mtok * prompts * prompt_tokens
            dollars += 1e-6 * (billed + price.output_usd_per_mtok * part.handout.output_tokens)
        return dollars


def require_texts(match: Match, cots: CotTexts) -> None:
    """Raise `MissError` if the recording has no texts of a question to reply with, only answers, or
    calls of tools.
    """
    if cots.texts and all(text is None for text in cots.texts):
        raise MissError(
            f"The recording holds no texts of {match.llm.name} on {match.question!r} of"
            f" {match.llm.dataset}, only answers, so there is nothing to reply with. Evaluate it"
            " with feval.load, or serve a recording with texts.",
            code="text_not_recorded",
        )
    if cots.tool_calls:
        raise MissError(
            f"{cots.tool_calls:,} of the {len(cots.texts):,} CoTs of {match.llm.name} on"
            f" {match.question!r} of {match.llm.dataset} called tools. A recording holds texts and"
            " no calls, so a reply would be empty. Ask a live LLM, or a question that was answered"
            " in words."
        )


def created(recording: Recording) -> int:
    """Return when a recording was made, in Unix seconds; 0 if it does not say."""
    try:
        return int(datetime.fromisoformat(str(recording.manifest.raw["created"])).timestamp())
    except ValueError:
        return 0


def _message(text: str | None, reasoning: str | None) -> dict[str, Any]:
    if not reasoning:
        return {"role": "assistant", "content": text, "refusal": None}
    # Some clients read one name of the reasoning, some the other.
    thoughts = {"reasoning": reasoning, "reasoning_content": reasoning}
    return {"role": "assistant", "content": text, **thoughts, "refusal": None}


def _identity(run: RunName, parts: Sequence[_Part]) -> str:
    """A reproducible id: a hash of the run, its questions and the number of this request for the
    first of them.
    """
    names = [
        f"{part.match.llm.name}\n{part.match.llm.dataset}\n{part.match.question}" for part in parts
    ]
    text = "\n".join([run.label, *names, str(parts[0].handout.round)])
    return blake2b(text.encode(), digest_size=12).hexdigest()


def _usage(parts: Sequence[_Part], unknown: dict[str, None]) -> dict[str, Any]:
    prompt = sum([max(part.match.prompt_tokens, 0) for part in parts])
    output = sum([part.handout.output_tokens for part in parts])
    if any(part.match.prompt_tokens < 0 for part in parts):
        unknown["prompt_tokens"] = None
    reasoning = [cot.reasoning_tokens for part in parts for cot in part.handout.cots]
    return usage(prompt, output, reasoning=reasoning)


def match_headers(matches: Sequence[Match]) -> dict[str, str]:
    """Return the headers that say what a request was matched with."""
    headers = {
        "x-feval-dataset": _id_list(match.llm.dataset for match in matches),
        "x-feval-question": _id_list(match.question for match in matches),
        "x-feval-llm": _id_list(match.llm.name for match in matches),
        "x-feval-match": ",".join([match.how for match in matches]),
    }
    if ignored := list(dict.fromkeys(name for match in matches for name in match.ignored)):
        shown = _id_list(name[:_SHOWN] for name in ignored[:_MAX_NAMED])
        headers["x-feval-ignored"] = shown + ",..." * (len(ignored) > _MAX_NAMED)
    return headers


def _id_list(ids: Iterable[str]) -> str:
    """Ids as a header's value: everything but plain ASCII, and every comma, is percent-encoded."""
    return ",".join(quote(name, safe=_SAFE) for name in ids)


def _logprobs_of(
    kind: str, recorded: TokenLogprobs, row: int, sample: int, tokens: int | None
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The log-probabilities of one CoT, or of its first tokens. The texts of tokens are not
    recorded, so they are empty.
    """
    logprobs, confidences = (
        _decimals(each.of(row, sample)[:tokens])
        for each in (recorded.logprobs, recorded.confidences)
    )
    whole = float(recorded.sequence[row, sample])
    sequence = whole if tokens is None else math.fsum(logprobs) if logprobs else math.nan
    extra: dict[str, Any] = {"token_confidences": confidences} if confidences else {}
    if not math.isnan(sequence):
        extra["sequence_logprob"] = sequence
    if not logprobs:
        return None, extra
    if kind == "completion":
        texts = [""] * len(logprobs)
        return {
            "tokens": texts,
            "token_logprobs": logprobs,
            "top_logprobs": None,
            "text_offset": None,
        }, extra
    content: list[dict[str, Any]] = [
        {"token": "", "logprob": value, "bytes": None, "top_logprobs": []} for value in logprobs
    ]
    return {"content": content, "refusal": None}, extra


def _decimals(values: npt.NDArray[Any]) -> list[float]:
    """32-bit floats as the shortest decimals that read back equal."""
    return [float(text) for text in values.astype(str).tolist()]
