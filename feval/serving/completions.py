"""Completions in OpenAI's shape, made of recorded CoTs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from threading import Lock
from typing import Any
from urllib.parse import quote

from feval.cards.billing import usd
from feval.errors import NotRecordedError
from feval.recording import Recording
from feval.recording.arrays import TokenLogprobs
from feval.recording.content import sent_calls
from feval.serving.cots import ServedCot
from feval.serving.matcher import Match
from feval.serving.runs import Handout, RunName
from feval.serving.settings import OFFERS, recorded
from feval.serving.wire.calls import MissError
from feval.serving.wire.openai import CompletionRequest, usage
from feval.values import Record

_CALLS = ("tool_calls", "function_call")
_SHOWN = 64
_MAX_NAMED = 32
_SAFE = "/:@!$&'()*;=~+ "  # not percent-encoded in a header
_READING = Lock()  # a Parquet file is read by one thread at a time

_Logprobs = tuple[dict[str, Any] | None, dict[str, Any]]
"""The log-probabilities of a CoT in OpenAI's shape, and what else was recorded of it."""


def completion_of(
    request: CompletionRequest,
    run: RunName,
    handouts: Sequence[Handout],
    headers: Mapping[str, str],
) -> tuple[Record, Mapping[str, str]]:
    """Return the completion that answers a request, with the headers of its reply: which CoTs
    the run gets for each conversation.
    """
    unknown: dict[str, None] = {}
    choices: list[Record] = []
    for handout in handouts:
        choices += _choices(request, handout, len(choices), unknown)
    llm, identity = handouts[0].request.llm, _identity(run, handouts)
    is_chat = request.kind == "chat"
    for number, choice in enumerate(choices if is_chat else ()):
        for place, called in enumerate(choice["message"].get("tool_calls") or ()):
            # as recorded: some agents write it into their prompts
            called["id"] = called["id"] or f"call_{identity}_{number}_{place}"
    completion = {
        "id": f"{'chatcmpl' if is_chat else 'cmpl'}-{identity}",
        "object": "chat.completion" if is_chat else "text_completion",
        "created": created(llm.recording),
        "model": llm.name,
        "system_fingerprint": f"fp_{llm.recording_hash[:12]}",
        "choices": choices,
        "usage": _usage(handouts, unknown),
    }
    headers = {**headers, **_draw_headers(run, handouts)}
    if unknown:
        headers["x-feval-unknown"] = ",".join(unknown)
    return completion, headers


def _choices(
    request: CompletionRequest, handout: Handout, first: int, unknown: dict[str, None]
) -> list[Record]:
    cots = handout.cots
    is_chat, fresh = request.kind == "chat", len(cots) - handout.recycled
    scores: list[_Logprobs] = [(None, {})] * len(cots)
    if request.logprobs:
        scores = _logprobs(request, handout, unknown)
    choices = []
    for number, (cot, (logprobs, extra)) in enumerate(zip(cots, scores, strict=True)):
        text, reason = cot.text, cot.finish_reason
        if text is None:
            unknown["content"] = None
        if reason == "unknown":
            unknown["finish_reason"] = None
            reason = "stop"  # as most CoTs end
        if reason == "refusal":
            reason = "stop" if is_chat else "content_filter"
        content = {"message": _message(cot)} if is_chat else {"text": text}
        choice = {"index": first + number, **content, "logprobs": logprobs, "finish_reason": reason}
        if number >= fresh:
            extra = extra | {"recycled": True}
        if cot.is_limited:
            extra = extra | {"limited": True}
        if extra:
            choice["feval"] = extra
        choices.append(choice)
    return choices


def _logprobs(
    request: CompletionRequest, handout: Handout, unknown: dict[str, None]
) -> list[_Logprobs]:
    pool, row = handout.request.llm.pool, handout.request.row
    try:
        with _READING:
            logprobs = pool.logprobs()
    except NotRecordedError:
        unknown["logprobs"] = None
        return [(None, {})] * len(handout.cots)
    unknown["logprobs.token"] = None
    if request.top_logprobs:
        unknown["logprobs.top_logprobs"] = None
    found: list[_Logprobs] = []
    for cot in handout.cots:
        place = row, cot.sample
        lengths = {each.of(*place).size for each in (logprobs.logprobs, logprobs.confidences)}
        if cot.is_cut and lengths - {0, int(pool.output_tokens[place])}:
            unknown["logprobs"] = None  # of other tokens than those that were counted
            found.append((None, {}))
        else:
            found.append(_logprobs_of(request.kind, logprobs, row, cot))
    return found


def _draw_headers(run: RunName, handouts: Sequence[Handout]) -> dict[str, str]:
    headers = {
        "x-feval-run": run.label,
        "x-feval-samples": ";".join([",".join(map(str, handout.samples)) for handout in handouts]),
        "x-feval-remaining": ",".join([str(handout.remaining) for handout in handouts]),
    }
    dollars = _dollars(handouts)
    if dollars is not None:
        headers["x-feval-cost-usd"] = repr(dollars)
    visits = [handout.visit for handout in handouts]
    if max(visits) > 1:
        headers["x-feval-pass"] = ",".join(map(str, visits))
    for name in ("recycled", "cut", "limited"):
        if count := sum([getattr(handout, name) for handout in handouts]):
            headers[f"x-feval-{name}"] = str(count)
    return headers


def _dollars(handouts: Sequence[Handout]) -> float | None:
    """What the request adds to the ledger; `None` where something has no price or the prompt
    was not counted.
    """
    dollars = 0.0
    for handout in handouts:
        price = handout.request.llm.price
        prompt_tokens = handout.request.prompt_tokens
        if price is None or (handout.prompts and prompt_tokens < 0):
            return None
        prompts = handout.prompts * prompt_tokens
        dollars += float(usd(price, prompts, handout.output_tokens, context=prompt_tokens))
    return dollars


def require_texts(match: Match, cots: Sequence[ServedCot]) -> None:
    """Raise `MissError` if the recording has no texts of a question to reply with, only answers, or
    calls of tools, which recordings do not hold.
    """
    if cots and all(cot.text is None for cot in cots):
        raise MissError(
            f"The recording holds no texts of {match.llm.name} on {match.question!r} of"
            f" {match.llm.dataset}, only answers, so there is nothing to reply with. Evaluate it"
            " with feval.load, or serve a recording with texts.",
            code="text_not_recorded",
        )
    # a call that was forced ends with "stop", and says nothing
    has_tools = any(recorded(match.llm.info, name) for name in OFFERS)
    calls = sum(
        cot.tool_calls is None
        and (
            cot.finish_reason in _CALLS
            or (has_tools and cot.text == "" and cot.finish_reason == "stop")
        )
        for cot in cots
    )
    if calls:
        raise MissError(
            f"{calls:,} of the {len(cots):,} CoTs of {match.llm.name} on"
            f" {match.question!r} of {match.llm.dataset} called tools, and the recording does not"
            " hold the calls, so that a reply would be empty. Record them again, or ask a live LLM."
        )


def created(recording: Recording) -> int:
    """Return when a recording was made, in Unix seconds; 0 if it does not say."""
    try:
        return int(datetime.fromisoformat(str(recording.manifest.raw["created"])).timestamp())
    except ValueError:
        return 0


def _message(cot: ServedCot) -> Record:
    message: Record = {"role": "assistant", "content": cot.text}
    if cot.reasoning:
        # Some clients read one name of the reasoning, some the other.
        message |= dict.fromkeys(("reasoning", "reasoning_content"), cot.reasoning)
    message["refusal"] = None
    if cot.finish_reason == "refusal":
        message |= {"content": None, "refusal": cot.text}
    if cot.tool_calls:
        message["content"] = cot.text or None
        message["tool_calls"] = sent_calls(cot.tool_calls)
    return message


def _identity(run: RunName, handouts: Sequence[Handout]) -> str:
    """A reproducible id: a hash of the run, its questions and the number of this request for the
    first of them.
    """
    asked = [handout.request for handout in handouts]
    names = [f"{each.llm.name}\n{each.llm.dataset}\n{each.question}" for each in asked]
    text = "\n".join([run.label, *names, str(handouts[0].round)])
    return blake2b(text.encode(), digest_size=12).hexdigest()


def _usage(handouts: Sequence[Handout], unknown: dict[str, None]) -> Record:
    prompts = [handout.request.prompt_tokens for handout in handouts]
    if min(prompts) < 0:
        unknown["prompt_tokens"] = None
    prompt = sum([max(tokens, 0) for tokens in prompts])
    output = sum([handout.output_tokens for handout in handouts])
    reasoning = [cot.reasoning_tokens for handout in handouts for cot in handout.cots]
    return usage(prompt, output, reasoning=reasoning)


def match_headers(matches: Sequence[Match]) -> dict[str, str]:
    """Return the headers that say what a request was matched with."""
    headers = {
        "x-feval-dataset": _id_list(match.llm.dataset for match in matches),
        "x-feval-question": _id_list(match.question for match in matches),
        "x-feval-llm": _id_list(match.llm.name for match in matches),
        "x-feval-match": ",".join([match.use.match for match in matches]),
    }
    if ignored := list(dict.fromkeys(name for match in matches for name in match.ignored)):
        shown = _id_list(name[:_SHOWN] for name in ignored[:_MAX_NAMED])
        headers["x-feval-ignored"] = shown + ",..." * (len(ignored) > _MAX_NAMED)
    return headers


def _id_list(ids: Iterable[str]) -> str:
    """Ids as a header's value: everything but plain ASCII, and every comma, is percent-encoded."""
    return ",".join(quote(name, safe=_SAFE) for name in ids)


def _logprobs_of(kind: str, recorded: TokenLogprobs, row: int, cot: ServedCot) -> _Logprobs:
    """The log-probabilities of one CoT, or of its first tokens. The texts of tokens are not
    recorded, so they are empty.
    """
    logprobs, confidences = (
        # 32-bit floats as the shortest decimals that read back equal
        [float(text) for text in each.of(row, cot.sample)[: cot.tokens_if_cut].astype(str).tolist()]
        for each in (recorded.logprobs, recorded.confidences)
    )
    sequence = float(recorded.sequence[row, cot.sample])
    if cot.is_cut:
        sequence = math.fsum(logprobs) if logprobs else math.nan
    extra: Record = {"token_confidences": confidences} if confidences else {}
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
    content: list[Record] = [
        {"token": "", "logprob": value, "bytes": None, "top_logprobs": []} for value in logprobs
    ]
    return {"content": content, "refusal": None}, extra
