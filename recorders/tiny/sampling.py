"""Drawing chains of thought from a tiny model: temperature, top-p, log-probabilities, and
randomness by name.

**Every random number is a pure function** of (stream, seed, question, sample index, position,
token): SHA-256 of the JSON list [scheme, stream, seed, question] gives 64 bits, and a counter mixer
(SplitMix64's finalizer) does the rest; no generator is advanced. So sample 17 of a question is the
same whether it is drawn alone or with others.

**A token is drawn by an exponential race**: token v arrives at time E_v / p_v, where E_v is
exponential with mean 1, and the first one wins; it does so with probability p_v exactly. (With
Gumbel noise G = -ln E this is the arg max of ln p + G: Maddison, Tarlow and Minka 2014, "A*
Sampling", section 2, arXiv:1411.0030.) Models that share a stream share the E, and their draws are
coupled; by default a stream is a model's name, and they are independent. `recorders.shared_noise`
identifies tokens by text instead of number, for LLMs of any vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError
from recorders.request import require_sampling
from recorders.shared_noise import mixed
from recorders.tiny.model import Floats, Ints, END, Prompt, TinyModel, tokenizer

_Race = Callable[[Ints, int], Floats]

_SCHEME = "feval-tiny-noise-1"
_ROWS = 128  # drawn together; more would only need more memory
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Decoding:
    """How tokens are drawn.

    Attributes:
        temperature: divides the logits; 0 always takes the likeliest token.
        top_p: only the likeliest tokens that together reach this probability can be drawn.
        max_tokens: most tokens of an answer, `<end>` included.
        seed: of the random numbers.
        stream: part of the random numbers' name; `None` for the model's name.
        top_logprobs: how many of the likeliest tokens to report at each position.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 128
    seed: int = 0
    stream: str | None = None
    top_logprobs: int = 0

    def __post_init__(self) -> None:
        """Refuse meaningless values."""
        require_sampling(self.temperature, self.top_p)
        if self.max_tokens < 1:
            raise OutOfRangeError(
                f"At most {self.max_tokens} tokens were allowed; allow at least 1."
            )
        if not 0 <= self.top_logprobs <= len(tokenizer()):
            raise OutOfRangeError(
                f"{self.top_logprobs} likeliest tokens were asked for; 0 to {len(tokenizer())} are"
                " possible."
            )


@dataclass(frozen=True, eq=False)
class Completion:
    """One answer.

    Attributes:
        text: without special tokens.
        tokens: int64 [T], as drawn, `<end>` included where it was reached.
        logprobs: [T] natural logarithm of each token's probability under the model itself
            (temperature 1, no top-p).
        top_tokens: int64 [T, k] the likeliest tokens at each position, likeliest first.
        top_logprobs: [T, k] their log-probabilities.
        finish_reason: "stop" if `<end>` was drawn, "length" if no room was left.
        prompt_tokens: of the prompt, special ones included.
    """

    text: str
    tokens: Ints
    logprobs: Floats
    top_tokens: Ints
    top_logprobs: Floats
    finish_reason: Literal["stop", "length"]
    prompt_tokens: int

    @property
    def output_tokens(self) -> int:
        """How many tokens were drawn, `<end>` included: what is billed."""
        return len(self.tokens)


def sample(
    model: TinyModel,
    question: str,
    indices: Sequence[int],
    decoding: Decoding | None = None,
    shared: Callable[[Ints, int], Floats] | None = None,
    beginning: str | None = None,
) -> list[Completion]:
    """Draw answers to a question.

    Args:
        model: of `load_model`.
        question: plain text.
        indices: sample indices, 0 or more; the same index is the same sample.
        decoding: `None` for temperature 1 without top-p.
        shared: returns the exponential random numbers [samples, vocabulary] of samples and a
            position, instead of the model's own with the decoding's seed and stream.
        beginning: of every answer; what follows it is drawn, with the random numbers of the places
            behind it.

    Returns:
        The answers, in the order of the indices, without the beginning.

    Raises:
        OutOfRangeError: the question is too long for the model's context, or an index is negative.
    """
    decoding = decoding or Decoding()
    most = model.shape.context * tokenizer().longest
    # which would take long to split into tokens
    if (size := len(question) + len(beginning or "")) > most:
        raise OutOfRangeError(
            f"{model.name} was asked to read {size:,} characters; its context of"
            f" {model.shape.context} tokens holds at most {most:,}. Ask a shorter question."
        )
    begun = tokenizer().encode(f" {beginning}") if beginning else []
    prompt = model.read([*tokenizer().prompt(question), *begun])
    if any(index < 0 for index in indices):
        raise OutOfRangeError(f"Samples are numbered from 0; number {min(indices)} was asked for.")
    samples = np.asarray(indices, np.int64)
    race = shared or _race(model, question, decoding)
    parts = (samples[start : start + _ROWS] for start in range(0, len(samples), _ROWS))
    return [
        completion
        for part in parts
        for completion in _draw(model, prompt, part, decoding, race, len(begun))
    ]


def most_likely(log_probabilities: Floats, count: int) -> Ints:
    """Return the numbers of the likeliest tokens at each position, likeliest first, the lower
    number first among equals.
    """
    return np.argsort(-log_probabilities, axis=-1, kind="stable")[..., :count]


def exponentials(keys: npt.NDArray[np.uint64], position: int, tokens: int) -> Floats:
    """Return the random numbers [rows, tokens] of one position, for keys [rows] of samples; never 0
    nor infinite.

    Of the 64 bits, the upper 52 and a half make a number inside (0, 1). There are at most 65,536
    tokens.
    """
    counters = (np.arange(1, tokens + 1, dtype=np.uint64) + np.uint64(position << 16)) * _GOLDEN
    bits = mixed(keys[:, None] + counters)
    uniform = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return -np.log(uniform)


def stopped(completion: Completion, stops: Sequence[str]) -> tuple[int, str, str, str | None]:
    """Return how many tokens it takes to reach the first stop text, the text before it, the finish
    reason, and that stop text; all of the completion and `None` if none is reached.
    """
    if not any(stop in completion.text for stop in stops):
        return len(completion.tokens), completion.text, completion.finish_reason, None
    decode, tokens = tokenizer().decode, completion.tokens.tolist()
    skipped = len(decode(tokens)) - len(completion.text)
    texts = (decode(tokens[:count])[skipped:] for count in range(1, len(tokens) + 1))
    count, text = next(
        (count, text) for count, text in enumerate(texts, 1) if any(stop in text for stop in stops)
    )
    kept = text[: min(text.index(stop) for stop in stops if stop in text)]
    ended_at = (stop for stop in stops if completion.text.startswith(stop, len(kept)))
    return count, kept, "stop", next(ended_at, None)


class _Draft:
    """What has been drawn so far, one row per answer."""

    def __init__(self, rows: int, room: int, top: int) -> None:
        self.lengths = np.zeros(rows, np.int64)
        self.tokens = np.zeros((rows, room), np.int64)
        self.logprobs = np.zeros((rows, room))
        self.top_tokens = np.zeros((rows, room, top), np.int64)
        self.top_logprobs = np.zeros((rows, room, top))

    def write(self, rows: Ints, tokens: Ints, log_probabilities: Floats) -> None:
        """Append one token to some rows, all of the same length."""
        position = self.lengths[rows[0]]
        self.tokens[rows, position] = tokens
        self.logprobs[rows, position] = np.take_along_axis(log_probabilities, tokens[:, None], -1)[
            :, 0
        ]
        if top := self.top_tokens.shape[2]:
            best = most_likely(log_probabilities, top)
            self.top_tokens[rows, position] = best
            self.top_logprobs[rows, position] = np.take_along_axis(log_probabilities, best, -1)
        self.lengths[rows] = position + 1

    def completion(self, row: int, prompt_tokens: int, *, begun: bool) -> Completion:
        length = self.lengths[row]
        tokens = self.tokens[row, :length].copy()
        text = tokenizer().decode(tokens.tolist())
        return Completion(
            text=text if begun else text.removeprefix(" "),
            tokens=tokens,
            logprobs=self.logprobs[row, :length].copy(),
            top_tokens=self.top_tokens[row, :length].copy(),
            top_logprobs=self.top_logprobs[row, :length].copy(),
            finish_reason="stop" if tokens[-1] == END else "length",
            prompt_tokens=prompt_tokens,
        )


def _draw(
    model: TinyModel, prompt: Prompt, samples: Ints, decoding: Decoding, race: _Race, begun: int
) -> list[Completion]:
    """Draw one answer per sample, all together, behind the tokens of its beginning."""
    room = min(decoding.max_tokens, model.shape.context - prompt.length)
    draft = _Draft(len(samples), room, decoding.top_logprobs)
    cache = model.begin(prompt, len(samples), room)
    rows, logits = np.arange(len(samples)), np.tile(prompt.logits, (len(samples), 1))
    for position in range(room):
        log_probabilities = logits - _log_sum_exp(logits)
        tokens = _chosen(log_probabilities, samples[rows], begun + position, decoding, race)
        draft.write(rows, tokens, log_probabilities)
        going_on = tokens != END
        if position + 1 == room or not going_on.any():
            break
        remaining = cache.keep(going_on)
        rows, tokens = rows[remaining], tokens[remaining]
        logits = model.step(cache, tokens)
    return [draft.completion(row, prompt.length, begun=begun > 0) for row in range(len(samples))]


def _chosen(
    log_probabilities: Floats, samples: Ints, position: int, decoding: Decoding, race: _Race
) -> Ints:
    if decoding.temperature == 0:
        likeliest: Ints = np.argmax(log_probabilities, axis=-1)
        return likeliest
    highest = log_probabilities.max(axis=-1, keepdims=True)
    # Close to temperature 0 all but the likeliest are infinitely far away, as they should be.
    with np.errstate(over="ignore"):
        rates = np.exp((log_probabilities - highest) / decoding.temperature)
    if decoding.top_p < 1:
        rates[_outside(rates, decoding.top_p)] = 0
    first: Ints = np.argmax(rates / race(samples, position), axis=-1)
    return first


def _outside(rates: Floats, top_p: float) -> npt.NDArray[np.bool_]:
    """Return which tokens are outside the smallest set of likeliest ones that reaches `top_p`."""
    order = most_likely(rates, rates.shape[-1])
    descending = np.take_along_axis(rates, order, -1)
    before = np.cumsum(descending, axis=-1) - descending
    outside = np.empty(rates.shape, np.bool_)
    np.put_along_axis(outside, order, before >= top_p * rates.sum(axis=-1, keepdims=True), -1)
    return outside


def _log_sum_exp(logits: Floats) -> Floats:
    highest = logits.max(axis=-1, keepdims=True)
    total: Floats = highest + np.log(np.exp(logits - highest).sum(axis=-1, keepdims=True))
    return total


def _race(model: TinyModel, question: str, decoding: Decoding) -> _Race:
    """Return the random numbers of one model on one question, by token number."""
    stream = model.name if decoding.stream is None else decoding.stream
    name = json.dumps([_SCHEME, stream, decoding.seed, question])
    start = int.from_bytes(sha256(name.encode()).digest()[:8], "little")

    def race(samples: Ints, position: int) -> Floats:
        keys = mixed(np.uint64(start) + (samples.astype(np.uint64) + np.uint64(1)) * _GOLDEN)
        return exponentials(keys, position, len(tokenizer()))

    return race
