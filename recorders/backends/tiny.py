"""The models that come with feval, as a backend: real samples with nothing but NumPy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError, SourceError, UnknownNameError
from recorders import tiny
from recorders.errors import Fatal, Refused
from recorders.request import Completion, Request, ignore_note, lengths_within
from recorders.shared_noise import TokenNoise, question_noise, token_texts
from recorders.tiny.tokenizer import END, SPECIAL

_OWN_WAY = (
    "The tiny models understand the question alone: in a later turn they keep the first half of the"
    " sentences of their last reply and write the rest anew, whatever was said."
)
_ALONE = (
    "The tiny models read only the last user message: the other messages of the prompt were"
    " recorded, but have no effect."
)


class Tiny:
    """A backend that samples from the model that a request names, such as "feval/tiny-42k".

    Sample i is the model's sample number `seed + i` (without a seed, number i): a pure function of
    model, question, decoding and that number. In a later turn of a conversation it keeps the first
    half of the sentences of its last reply, which it writes again, and goes on from there. `note`
    is called once with each thing that has no effect.
    """

    name = "tiny"
    takes_seed = True
    shares_noise = True

    def __init__(self, *, note: Callable[[str], None] = ignore_note) -> None:
        self._note = note
        self._noted: set[str] = set()
        # One thread: the models are small, and most of the time Python's lock is held.
        self._thread = ThreadPoolExecutor(1, "tiny")

    async def complete(self, request: Request, samples: Sequence[int]) -> list[Completion]:
        """Draw one completion per sample; the question is the request's last user message."""
        for part, sentence in ((request.messages[1:], _ALONE), (request.conversation, _OWN_WAY)):
            if part and sentence not in self._noted:
                self._noted.add(sentence)
                self._note(sentence)
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, _draw, request, samples
        )

    def token_lengths(self, model: str, text: str) -> tuple[int, ...]:  # noqa: ARG002  they share one tokenizer
        """Return the characters of each token of a reply's text."""
        return tiny.tokenizer().lengths(text)

    async def aclose(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _draw(request: Request, samples: Sequence[int]) -> list[Completion]:
    questions = [message.content for message in request.messages if message.role == "user"]
    if not questions:
        raise Refused("the prompt has no user message, which is what a tiny model reads")
    try:
        model = tiny.load_model(request.model)
        decoding = _decoding(request, model)
    except (UnknownNameError, SourceError, OutOfRangeError) as error:
        raise Fatal(str(error)) from error
    first = request.decoding.seed or 0
    try:
        indices, begun = (
            [first + sample for sample in samples],
            (request.prefill.text if request.prefill else None),
        )
        if kept := _kept(request, decoding.max_tokens):
            begun, decoding = kept, replace(decoding, max_tokens=decoding.max_tokens - _size(kept))
        answers = tiny.sample(model, questions[-1], indices, decoding, _shared(request), begun)
    except OutOfRangeError as error:
        raise Refused(str(error)) from error
    completions = [_completion(answer, request) for answer in answers]
    return (
        [_as_turn(completion, request, kept) for completion in completions]
        if request.conversation
        else completions
    )


def _size(text: str) -> int:
    """Return how many tokens a model writes for a text, `<end>` left out."""
    return len(tiny.tokenizer().encode(f" {text}"))


def _kept(request: Request, most: int) -> str:
    """Return the first half of the sentences of the last reply, with which a turn begins; nothing
    where they leave no room.
    """
    replies = [message.content for message in request.conversation if message.role == "assistant"]
    sentences = replies[-1].split(". ") if replies else []
    kept = "".join(f"{sentence}. " for sentence in sentences[: len(sentences) // 2]).rstrip(" ")
    return kept if _size(kept) < most else ""


def _as_turn(completion: Completion, request: Request, kept: str) -> Completion:
    """Return a turn as the model wrote it: what it kept and what it drew, after a prompt that is
    the whole conversation.
    """
    tokenizer = tiny.tokenizer()
    sizes = [
        len(
            tokenizer.completion(turn.content)
            if turn.role == "assistant"
            else tokenizer.prompt(turn.content)
        )
        for turn in (
            *[turn for turn in request.messages if turn.role == "user"][-1:],
            *request.conversation,
        )
    ]
    return replace(
        completion,
        text=kept + completion.text,
        output_tokens=(completion.output_tokens or 0) + (_size(kept) if kept else 0),
        prompt_tokens=sum(sizes),
        token_logprobs=None,
        token_confidences=None,
        token_lengths=None,
    )


def _shared(
    request: Request,
) -> Callable[[npt.NDArray[np.int64], int], npt.NDArray[np.float64]] | None:
    """Return the noise that other LLMs share, if the request asks for it."""
    if request.decoding.noise_seed is None:
        return None
    return partial(
        _noise().exponentials,
        question_noise(request.decoding.noise_seed, request.dataset, request.question_id),
    )


@cache
def _noise() -> TokenNoise:
    """Return the noise of their vocabulary: ASCII, spelled as it reads; the last special token ends
    an answer.
    """
    vocabulary = tiny.tokenizer().vocabulary
    special = tuple(range(len(SPECIAL)))
    return TokenNoise(token_texts(vocabulary, special, [END]))


def _decoding(request: Request, model: tiny.TinyModel) -> tiny.Decoding:
    decoding = request.decoding
    if unknown := sorted(decoding.extra_body.keys() - {"stream"}):
        raise Fatal(
            f"The tiny models know no extra setting {unknown[0]!r}, only 'stream'; leave it out."
        )
    if decoding.seed is not None and decoding.seed < 0:
        raise Fatal(f"The seed is {decoding.seed}; the tiny models take 0 or more.")
    stream = decoding.extra_body.get("stream")
    return tiny.Decoding(
        temperature=1.0 if decoding.temperature is None else decoding.temperature,
        top_p=1.0 if decoding.top_p is None else decoding.top_p,
        max_tokens=model.shape.context if decoding.max_tokens is None else decoding.max_tokens,
        stream=None if stream is None else str(stream),
        top_logprobs=decoding.logprobs or 0,
    )


def _completion(answer: tiny.Completion, request: Request) -> Completion:
    decoding = request.decoding
    count, text = tiny.stopped(answer, decoding.stop)
    ended_at = (stop for stop in decoding.stop if answer.text.startswith(stop, len(text)))
    completion = Completion(
        text=text,
        finish_reason=(
            answer.finish_reason if count == len(answer.tokens) and text == answer.text else "stop"
        ),
        output_tokens=count,
        prompt_tokens=answer.prompt_tokens,
        served_model=request.model,
        stop_text=next(ended_at, "") if decoding.stop else None,
    )
    if decoding.logprobs is None:
        return completion
    confidences = (
        tuple((-answer.top_logprobs[:count].mean(axis=1)).tolist()) if decoding.logprobs else None
    )
    lengths = [len(tiny.tokenizer().piece(token)) for token in answer.tokens[:count].tolist()]
    lengths[0] -= len(tiny.tokenizer().decode(answer.tokens.tolist())) - len(answer.text)
    return replace(
        completion,
        token_logprobs=tuple(answer.logprobs[:count].tolist()),
        token_confidences=confidences,
        token_lengths=lengths_within(lengths, len(text)),
    )
