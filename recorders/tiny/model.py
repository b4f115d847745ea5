"""The tiny models' forward pass in NumPy: RMSNorm, rotary positions, attention with a key-value
cache, SwiGLU.

Computed in float64 from the float16 weights. The last bits of a matrix product depend on the
machine and on how many rows are computed together, and occasionally decide which token is drawn. In
float64 they are half a billion times smaller than in float32: in practice, a sample depends only on
its prompt and its random numbers (`docs/tiny-models.md`).

Their vocabulary is a plain list of strings (`vocabulary.json`): words of the problems, single
digits, and every printable ASCII character. Text is split greedily, the longest token first. A
word's token begins with the space before it; digits are single tokens, so that sums can be done
digit by digit. Printable ASCII and line feeds round-trip; any other character becomes `<unknown>`.
Special tokens are never read from text: "<end>" in a text is five characters.

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
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError, require_known
from feval.values import frozen
from recorders.request import require_sampling
from recorders.shared_noise import GOLDEN, exponentials, mixed

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@frozen
class TinyPrompt:
    """A prompt that is read once, for any number of answers, with the logits [vocabulary] of an
    answer's first token.
    """

    keys: Floats
    values: Floats
    logits: Floats

    @property
    def length(self) -> int:
        """Tokens of the prompt."""
        return int(self.keys.shape[2])


@dataclass
class Cache:
    """Keys and values of unfinished answers to one prompt, one answer per row, all of the same
    length so far.

    Keys and values are [layers, heads, rows, room, head width], the prompt's [layers, heads, prompt
    tokens, head width].
    """

    prompt: TinyPrompt
    keys: Floats
    values: Floats
    length: int = 0

    def keep(self, rows: npt.NDArray[np.bool_]) -> Ints:
        """Keep only some rows; rows from the end move into the gaps. Return the former number of
        each row.
        """
        count = int(rows.sum())
        order = np.arange(count)
        gaps, movers = np.flatnonzero(~rows[:count]), np.flatnonzero(rows[count:]) + count
        order[gaps] = movers
        for array in (self.keys, self.values):
            array[:, :, gaps, : self.length] = array[:, :, movers, : self.length]
        self.keys, self.values = self.keys[:, :, :count], self.values[:, :, :count]
        return order


@frozen
class _Layer:
    queries_keys_values: Floats  # [width, 3 * width]
    attention_out: Floats  # [width, width]
    gate_up: Floats  # [width, 2 * hidden]
    down: Floats  # [hidden, width]


class TinyModel:
    """A decoder-only transformer; its weights, of any float type, have the names Hugging Face's
    Llama gives them.
    """

    def __init__(
        self, name: str, shape: Shape, weights: dict[str, npt.NDArray[np.floating]]
    ) -> None:
        self.name = name
        self.shape = shape
        wide = {key: value.astype(np.float64) for key, value in weights.items()}
        self._embedding = wide["model.embed_tokens.weight"]
        self._unembedding = np.ascontiguousarray(
            wide["model.norm.weight"][:, None] * self._embedding.T
        )
        self._layers = [
            _layer(wide, f"model.layers.{number}.", shape) for number in range(shape.layers)
        ]
        self._frequencies = shape.rotary_base ** -(
            np.arange(0, shape.head_width, 2) / shape.head_width
        )

    def __repr__(self) -> str:
        return f"TinyModel({self.name!r})"

    def read(self, tokens: Sequence[int]) -> TinyPrompt:
        """Read a prompt of at least one token; an `OutOfRangeError` if it leaves no room for an
        answer.
        """
        self._check_length(len(tokens) + 1)
        shape = (self.shape.layers, self.shape.heads, len(tokens), self.shape.head_width)
        all_keys, all_values = np.empty(shape), np.empty(shape)

        def attend(number: int, queries: Floats, keys: Floats, values: Floats) -> Floats:
            all_keys[number], all_values[number] = keys[:, 0], values[:, 0]
            return _causal(queries, keys, values)

        logits = self._run(np.asarray([tokens], np.int64), 0, attend)
        return TinyPrompt(all_keys, all_values, logits[0, -1])

    def begin(self, prompt: TinyPrompt, rows: int, room: int) -> Cache:
        """Return an empty cache for so many answers to a prompt, with room for so many tokens in
        each.
        """
        self._check_length(prompt.length + room)
        shape = (self.shape.layers, self.shape.heads, rows, room, self.shape.head_width)
        return Cache(prompt, np.empty(shape), np.empty(shape))

    def step(self, cache: Cache, tokens: Ints) -> Floats:
        """Append one token to every answer in the cache, and return the logits [rows, vocabulary]
        of the next.
        """
        prompt, before, after = cache.prompt, cache.length, cache.length + 1

        def attend(number: int, queries: Floats, keys: Floats, values: Floats) -> Floats:
            cache.keys[number, :, :, before] = keys[:, :, 0]
            cache.values[number, :, :, before] = values[:, :, 0]
            own_keys = cache.keys[number, :, :, :after]
            own_values = cache.values[number, :, :, :after]
            # [heads, rows, prompt tokens]
            shared = queries[:, :, 0] @ prompt.keys[number].swapaxes(1, 2)
            own = np.einsum("hrd,hrcd->hrc", queries[:, :, 0], own_keys)
            shares = _softmax(np.concatenate([shared, own], axis=-1))
            mixed: Floats = shares[..., : prompt.length] @ prompt.values[number]
            mixed += np.einsum("hrc,hrcd->hrd", shares[..., prompt.length :], own_values)
            return mixed[:, :, None]

        logits = self._run(tokens[:, None], prompt.length + before, attend)
        cache.length = after
        return logits[:, 0]

    def _check_length(self, length: int) -> None:
        if length > self.shape.context:
            raise OutOfRangeError(
                f"{self.name} was asked to handle {length} tokens, prompt and answer together; its"
                f" context holds {self.shape.context}. Ask a shorter question or allow fewer"
                " tokens."
            )

    def _run(
        self, tokens: Ints, start: int, attend: Callable[[int, Floats, Floats, Floats], Floats]
    ) -> Floats:
        """Return the logits [rows, count, vocabulary] after tokens [rows, count] that begin at
        position `start`.

        `attend` takes a layer's number, its queries (scaled), keys and values, each [heads, rows,
        count, head width], and returns the same shape.
        """
        rows, count = tokens.shape
        angles = np.arange(start, start + count)[:, None, None] * self._frequencies
        rotation = (np.cos(angles), np.sin(angles))  # [count, 1, head width / 2]
        x = self._embedding[tokens]
        for number, layer in enumerate(self._layers):
            projected = self._normed(x) @ layer.queries_keys_values
            projected = projected.reshape(rows, count, 3 * self.shape.heads, self.shape.head_width)
            queries, keys, values = np.split(projected, 3, axis=2)
            mixed = attend(
                number,
                *(
                    y.transpose(2, 0, 1, 3)
                    for y in (_rotated(queries, rotation), _rotated(keys, rotation), values)
                ),
            )
            x = x + mixed.transpose(1, 2, 0, 3).reshape(x.shape) @ layer.attention_out
            gate, up = np.split(self._normed(x) @ layer.gate_up, 2, axis=-1)
            x = x + (gate / (1 + np.exp(-gate)) * up) @ layer.down
        logits: Floats = self._normed(x) @ self._unembedding
        return logits

    def _normed(self, x: Floats) -> Floats:
        """RMSNorm without its scale, which is part of the matrix that follows."""
        normed: Floats = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.shape.epsilon)
        return normed


def _causal(queries: Floats, keys: Floats, values: Floats) -> Floats:
    """Attend to a token and those before it."""
    scores = queries @ keys.swapaxes(2, 3)
    count = scores.shape[-1]
    scores[..., ~np.tri(count, dtype=np.bool_)] = -np.inf
    mixed: Floats = _softmax(scores) @ values
    return mixed


def _softmax(scores: Floats) -> Floats:
    shares: Floats = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    return shares


def _rotated(x: Floats, rotation: tuple[Floats, Floats]) -> Floats:
    """Turn the two halves of every head against each other, as Llama does."""
    cosines, sines = rotation
    low, high = np.split(x, 2, axis=-1)
    return np.concatenate([low * cosines - high * sines, high * cosines + low * sines], axis=-1)


def _layer(weights: dict[str, Floats], prefix: str, shape: Shape) -> _Layer:
    """Join what is applied to the same input, turned so that states multiply from the left.

    RMSNorm's scale goes into the matrix after it; attention's division by the root of the head
    width, into the queries' matrix.
    """

    def turned(*names: str) -> Floats:
        return np.ascontiguousarray(
            np.concatenate([weights[f"{prefix}{name}.weight"] for name in names]).T
        )

    queries_keys_values = turned("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    queries_keys_values *= weights[prefix + "input_layernorm.weight"][:, None]
    queries_keys_values[:, : shape.width] *= shape.head_width**-0.5
    gate_up = turned("mlp.gate_proj", "mlp.up_proj")
    gate_up *= weights[prefix + "post_attention_layernorm.weight"][:, None]
    return _Layer(queries_keys_values, turned("self_attn.o_proj"), gate_up, turned("mlp.down_proj"))


@cache
def load_model(name: str) -> TinyModel:
    """Return a model of the family, such as "feval/tiny-42k"; it is read once per process."""
    require_known("tiny model", name, FAMILY)
    with weights_file(name) as path:
        return read_model(path, name, FAMILY[name])


def read_model(path: Path, name: str, shape: Shape) -> TinyModel:
    """Return a model from a weights file that `examples/tiny_models/tiny_training.py` wrote."""
    with np.load(path, allow_pickle=False) as file:
        return TinyModel(name, shape, dict(file))


def weights_file(name: str) -> AbstractContextManager[Path]:
    """Return the path of the weights of a model of the family, valid inside a `with` block."""
    return resources.as_file(
        resources.files("recorders.tiny").joinpath("weights", f"{name.rpartition('/')[2]}.npz")
    )


@frozen
class Shape:
    """A Llama-style decoder: RMSNorm, rotary positions, SwiGLU, no biases, one matrix for reading
    and writing tokens.
    """

    width: int
    layers: int
    heads: int
    hidden: int
    tokens: int = 143
    context: int = 256
    rotary_base: float = 10_000.0
    epsilon: float = 1e-5

    @property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads


FAMILY: dict[str, Shape] = {
    "feval/tiny-30k": Shape(32, 2, 4, 88),
    "feval/tiny-42k": Shape(32, 3, 4, 88),
    "feval/tiny-90k": Shape(48, 3, 4, 128),
    "feval/tiny-160k": Shape(64, 3, 4, 176),
}
"""The models that come with feval, smallest first."""


SPECIAL = ("<pad>", "<unknown>", "<question>", "<answer>", "<end>")
PAD, UNKNOWN, QUESTION, ANSWER, END = range(5)


class Tokenizer:
    """Text to token numbers and back; the special tokens come first in the vocabulary.

    Attributes:
        longest: characters of the longest token that is read from text.
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.vocabulary = tuple(vocabulary)
        text_tokens = self.vocabulary[len(SPECIAL) :]
        self._numbers = {token: number for number, token in enumerate(text_tokens, len(SPECIAL))}
        longest_first = sorted(text_tokens, key=len, reverse=True)
        self.longest = len(longest_first[0])
        self._cut = re.compile("|".join(map(re.escape, longest_first)) + "|.", re.DOTALL)

    def __len__(self) -> int:
        return len(self.vocabulary)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text; `UNKNOWN` for each character that is neither printable ASCII
        nor a line feed.
        """
        return [self._numbers.get(piece, UNKNOWN) for piece in self._cut.findall(text)]

    def lengths(self, answer: str) -> tuple[int, ...]:
        """Return the characters of an answer that each of its tokens writes; `<end>` is left
        out.
        """
        first, *others = map(len, map(self.piece, self.encode(f" {answer}")))
        return first - 1, *others

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of tokens; unknown characters are U+FFFD, the other special tokens are
        nothing.
        """
        return "".join(self.piece(token) for token in tokens)

    def piece(self, token: int) -> str:
        """Return the text of one token."""
        if token == UNKNOWN:
            return "\ufffd"
        return "" if token < len(SPECIAL) else self.vocabulary[token]

    def prompt(self, question: str) -> list[int]:
        """Return the tokens a model continues with its answer: `<question>`, the text,
        `<answer>`.
        """
        return [QUESTION, *self.encode(f" {question}"), ANSWER]

    def completion(self, chain: str) -> list[int]:
        """Return the tokens of a whole answer, `<end>` included."""
        return [*self.encode(f" {chain}"), END]


@cache
def tokenizer() -> Tokenizer:
    """Return the tokenizer of all tiny models."""
    text = resources.files("recorders.tiny").joinpath("vocabulary.json").read_text("utf-8")
    return Tokenizer(json.loads(text))


_Race = Callable[[Ints, int], Floats]

_SCHEME = "feval-tiny-noise-1"
_ROWS = 128  # drawn together; more would only need more memory


@frozen
class TinyDecoding:
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
class TinyCompletion:
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
    decoding: TinyDecoding | None = None,
    shared: Callable[[Ints, int], Floats] | None = None,
    beginning: str | None = None,
) -> list[TinyCompletion]:
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
    decoding = decoding or TinyDecoding()
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


def first_stop(texts: Iterable[str], stops: Sequence[str]) -> tuple[int, str, str]:
    """Return how many tokens it takes to reach the first stop text, the text before it, and that
    stop text; `texts` are what is written after each token, and one of them holds a stop text.
    """
    count, text = next(
        (count, text) for count, text in enumerate(texts, 1) if any(stop in text for stop in stops)
    )
    place, stop = min((text.index(stop), stop) for stop in stops if stop in text)
    return count, text[:place], stop


def stopped(completion: TinyCompletion, stops: Sequence[str]) -> tuple[int, str, str, str | None]:
    """Return how many tokens it takes to reach the first stop text, the text before it, the finish
    reason, and that stop text; all of the completion and `None` if none is reached.
    """
    if not any(stop in completion.text for stop in stops):
        return len(completion.tokens), completion.text, completion.finish_reason, None
    decode, tokens = tokenizer().decode, completion.tokens.tolist()
    skipped = len(decode(tokens)) - len(completion.text)
    texts = (decode(tokens[:count])[skipped:] for count in range(1, len(tokens) + 1))
    count, text, stop = first_stop(texts, stops)
    return count, text, "stop", stop


def _draw(
    model: TinyModel,
    prompt: TinyPrompt,
    samples: Ints,
    decoding: TinyDecoding,
    race: _Race,
    begun: int,
) -> list[TinyCompletion]:
    """Draw one answer per sample, all together, behind the tokens of its beginning."""
    room = min(decoding.max_tokens, model.shape.context - prompt.length)
    drawn: list[list[Any]] = [[] for _ in samples]
    cache = model.begin(prompt, len(samples), room)
    rows, logits = np.arange(len(samples)), np.tile(prompt.logits, (len(samples), 1))
    for position in range(room):
        highest = logits.max(axis=-1, keepdims=True)
        log_probabilities = logits - (
            highest + np.log(np.exp(logits - highest).sum(axis=-1, keepdims=True))
        )
        tokens = _chosen(log_probabilities, samples[rows], begun + position, decoding, race)
        best = np.empty((len(rows), 0), np.int64)
        if decoding.top_logprobs:
            best = most_likely(log_probabilities, decoding.top_logprobs)
        picked = (np.take_along_axis(log_probabilities, at, -1) for at in (tokens[:, None], best))
        for row, *step in zip(rows.tolist(), tokens, best, *picked, strict=True):
            drawn[row].append(step)
        going_on = tokens != END
        if position + 1 == room or not going_on.any():
            break
        remaining = cache.keep(going_on)
        rows, tokens = rows[remaining], tokens[remaining]
        logits = model.step(cache, tokens)
    return [_completion(steps, prompt.length, begun=begun > 0) for steps in drawn]


def _completion(steps: list[Any], prompt_tokens: int, *, begun: bool) -> TinyCompletion:
    tokens, top_tokens, logprobs, top_logprobs = map(np.array, zip(*steps, strict=True))
    text = tokenizer().decode(tokens.tolist())
    return TinyCompletion(
        text=text if begun else text.removeprefix(" "),
        tokens=tokens,
        logprobs=logprobs[:, 0],
        top_tokens=top_tokens,
        top_logprobs=top_logprobs,
        finish_reason="stop" if tokens[-1] == END else "length",
        prompt_tokens=prompt_tokens,
    )


def _chosen(
    log_probabilities: Floats, samples: Ints, position: int, decoding: TinyDecoding, race: _Race
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


def _race(model: TinyModel, question: str, decoding: TinyDecoding) -> _Race:
    """Return the random numbers of one model on one question, by token number."""
    stream = model.name if decoding.stream is None else decoding.stream
    name = json.dumps([_SCHEME, stream, decoding.seed, question])
    start = int.from_bytes(sha256(name.encode()).digest()[:8], "little")

    def race(samples: Ints, position: int) -> Floats:
        keys = mixed(np.uint64(start) + (samples.astype(np.uint64) + np.uint64(1)) * GOLDEN)
        # Room for 65,536 tokens between two positions.
        counters = np.uint64(position << 16) + np.arange(1, len(tokenizer()) + 1, dtype=np.uint64)
        return exponentials(keys[:, None] + counters * GOLDEN)

    return race
