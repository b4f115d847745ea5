"""Models in this process, as backends: those that come with feval, which need nothing but NumPy,
and those of Hugging Face (torch and transformers; a GPU if there is one).

`generate` draws a whole batch from one random stream. Here every sample has its own, so that it can
be drawn again alone, and log-probabilities are collected while drawing: the logits of 40 CoTs of
2,000 tokens over 150,000 words would take 48 GB.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, cached_property, partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from feval.answers.thoughts import mark_tokens
from feval.errors import FevalError, OutOfRangeError, SourceError, UsageError
from recorders import tiny
from recorders.errors import Fatal, RefusalError, Transient
from recorders.request import Completion, Decoding, Message, Request, as_json, ignore_note
from recorders.shared_noise import TokenNoise, question_noise, token_texts
from recorders.tiny.model import END, SPECIAL, first_stop

Tensor = Any  # torch is optional

_Noise = Callable[[npt.ArrayLike, int], npt.NDArray[np.float64]]

_NO_TEMPLATE = (
    "The model has no chat template: the messages were joined with blank lines and continued as"
    " text."
)


class _Local:
    """A backend in this process: what it draws, it draws in a thread of its own."""

    name: str
    takes_seed = shares_noise = True

    def __init__(self, *, note: Callable[[str], None] = ignore_note) -> None:
        self._note = cache(note)  # each sentence once
        # One thread: most of the time the GPU is used, or Python's lock is held.
        self._thread = ThreadPoolExecutor(1, self.name)

    async def complete(self, request: Request, samples: Sequence[int]) -> list[Completion]:
        """Draw one completion per sample."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._drawn, request, samples)

    def _drawn(self, request: Request, samples: Sequence[int]) -> list[Completion]:
        raise NotImplementedError

    def vocabulary(self) -> list[str]:
        """Return the text of every token, by number: LLMs share noise where they share texts."""
        raise NotImplementedError

    @cached_property
    def _noise(self) -> TokenNoise:
        return TokenNoise(self.vocabulary())

    def _shared(self, request: Request) -> _Noise | None:
        """Return what gives the noise [samples, vocabulary] of samples and a position, which other
        LLMs share, if the request asks for it.
        """
        seed = request.decoding.noise_seed
        if seed is None:
            return None
        start = question_noise(seed, request.dataset, request.question_id)
        return partial(self._noise.exponentials, start)

    async def aclose(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)


class TransformersLocal(_Local):
    """A backend that samples from a model on disk or in the Hugging Face cache.

    Sample i is drawn from a random stream of its own, seeded with `seed + i` (without a seed, with
    i). Temperature and top-p are applied as the request says (by default 1 and none); other
    sampling settings of `generation_config.json` are ignored, so that the recorded decoding is the
    one that was used. Log-probabilities are the model's own, before temperature and top-p. Code
    from model repositories is never run, and weights are read from safetensors only. Messages go
    through the model's chat template, and the model that a request names is only a name.

    Args:
        model: a folder, or a name on the Hub.
        device: such as "cuda"; `None`: a GPU where there is one.
        dtype: such as "bfloat16"; `None`: as the weights are.
        batch: most samples drawn together.
        local_files_only: whether downloads are forbidden.
        note: called once with anything unusual.

    Raises:
        UsageError: torch or transformers is not installed.
        OutOfRangeError: a batch smaller than 1.
        SourceError: the model cannot be loaded.
    """

    name = "transformers"

    def __init__(
        self,
        model: str,
        *,
        device: str | None = None,
        dtype: str | None = None,
        batch: int = 16,
        local_files_only: bool = False,
        note: Callable[[str], None] = ignore_note,
    ) -> None:
        if batch < 1:
            raise OutOfRangeError(
                f"Samples were to be drawn in batches of {batch}; the smallest batch is 1."
            )
        self._libraries = torch_libraries("Sampling from a local model")
        self._model, self._tokenizer = _load(
            self._libraries, model, device, dtype, local_files_only
        )
        added = self._tokenizer.get_added_vocab()
        self._marks = {int(added[token]): token for token in mark_tokens(added)}
        self._batch = batch
        super().__init__(note=note)

    def token_lengths(self, model: str, text: str) -> tuple[int, ...] | None:  # noqa: ARG002  there is one model
        """Return the characters of each token of a reply's text; `None` where the tokenizer does
        not say.
        """
        if not self._tokenizer.is_fast:
            return None
        spans = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)[
            "offset_mapping"
        ]
        ends = accumulate((int(end) for _, end in spans), max, initial=0)
        return tuple(end - start for start, end in pairwise(ends))

    def _drawn(self, request: Request, samples: Sequence[int]) -> list[Completion]:
        torch = self._libraries.torch
        _check(request.decoding, {})
        prompt = self._prompt(request.sent, request.prefill.text if request.prefill else "")
        room = self._room(len(prompt), request.decoding.max_tokens)
        parts = [
            samples[start : start + self._batch] for start in range(0, len(samples), self._batch)
        ]
        try:
            return [
                completion
                for part in parts
                for completion in self._together(request, prompt, room, part)
            ]
        except torch.OutOfMemoryError as error:
            torch.cuda.empty_cache()
            raise Transient(
                f"the device has too little memory for {len(parts[0])} samples together; draw fewer"
                " (batch)"
            ) from error

    def _prompt(self, messages: Sequence[Message], beginning: str) -> list[int]:
        """Return the tokens that the model continues, with the beginning of its reply."""
        if self._tokenizer.chat_template is None:
            self._note(_NO_TEMPLATE)
            text = "\n\n".join(message.content for message in messages) + beginning
            return [int(token) for token in self._tokenizer(text)["input_ids"]]
        text = self._tokenizer.apply_chat_template(
            as_json(messages), add_generation_prompt=True, tokenize=False
        )
        text += beginning
        # A template writes the special tokens itself.
        return [
            int(token) for token in self._tokenizer(text, add_special_tokens=False)["input_ids"]
        ]

    def _room(self, prompt: int, max_tokens: int | None) -> int:
        context = getattr(self._model.config, "max_position_embeddings", None)
        left = None if context is None else int(context) - prompt
        if left is not None and left < 1:
            raise RefusalError(
                f"the prompt has {prompt} tokens, and the model's context holds {context}"
            )
        limits = [limit for limit in (left, max_tokens) if limit is not None]
        if not limits:
            raise Fatal(
                "The model states no length of its context; give the most tokens of a CoT"
                " (max_tokens)."
            )
        return min(limits)

    def _together(
        self, request: Request, prompt: list[int], room: int, samples: Sequence[int]
    ) -> list[Completion]:
        """Draw one batch."""
        torch, transformers = self._libraries
        decoding = request.decoding
        first = decoding.seed or 0
        noise = self._shared(request)
        draw = _Draw(
            decoding,
            [first + sample for sample in samples],
            self._model.device,
            torch,
            noise and partial(noise, samples),
        )
        inputs = torch.tensor([prompt] * len(samples), device=self._model.device)
        with torch.inference_mode():
            output = self._model.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                generation_config=self._settings(room),
                logits_processor=transformers.LogitsProcessorList([draw]),
                stopping_criteria=transformers.StoppingCriteriaList(
                    [self._stopper(len(prompt), decoding.stop)]
                ),
            )
        rows = output[:, len(prompt) :].tolist()
        ends = _ends(self._model.generation_config.eos_token_id)
        completions = []
        for number, row in enumerate(rows):
            # The end token was drawn and is billed; padding follows it.
            size = next((at for at, token in enumerate(row, 1) if token in ends), len(row))
            args = row[:size], ends, draw.of(number)
            completions.append(self._completion(request, len(prompt), *args))
        return completions

    def vocabulary(self) -> list[str]:
        """Return the text of every token, by number: LLMs share noise where they share texts."""
        size = int(self._model.config.get_text_config().vocab_size)
        known = self._tokenizer.convert_ids_to_tokens(range(min(size, len(self._tokenizer))))
        spelled = [f"<unused {n}>" if token is None else token for n, token in enumerate(known)]
        spelled += [f"<unused {n}>" for n in range(len(spelled), size)]
        unused = [n for n, token in enumerate(spelled) if n >= len(known) or known[n] is None]
        # Of several ends, the tokenizer's own is the one that a chat's replies end with.
        ends = sorted(
            _ends(self._model.generation_config.eos_token_id),
            key=lambda end: (end != self._tokenizer.eos_token_id, end),
        )
        return token_texts(spelled, [*self._tokenizer.all_special_ids, *unused], ends)

    def _stopper(self, prompt: int, stops: Sequence[str]) -> Callable[[Tensor, object], Tensor]:
        """Return a criterion for rows that hold a stop text; transformers' own does not work with
        every tokenizer.
        """
        torch = self._libraries.torch
        # A character may take up to four tokens of one byte each.
        tail = 4 * max(map(len, stops), default=0) + 4

        def stopped(tokens: Tensor, _scores: object, **_others: object) -> Tensor:
            rows = (
                tokens[:, max(prompt, tokens.shape[1] - tail) :].tolist()
                if stops
                else [[]] * len(tokens)
            )
            texts = [
                self._tokenizer.decode(row, skip_special_tokens=True) if row else "" for row in rows
            ]
            return torch.tensor(
                [any(stop in text for stop in stops) for text in texts], device=tokens.device
            )

        return stopped

    def _settings(self, room: int) -> Any:
        """Return length, ends and padding; `_Draw` does the drawing."""
        defaults = self._model.generation_config
        ends = sorted(_ends(defaults.eos_token_id))
        padding = (
            defaults.pad_token_id if defaults.pad_token_id is not None else (ends[0] if ends else 0)
        )
        return self._libraries.transformers.GenerationConfig(
            do_sample=False,
            max_new_tokens=room,
            eos_token_id=ends or None,
            pad_token_id=padding,
            bos_token_id=defaults.bos_token_id,
        )

    def _completion(
        self, request: Request, prompt: int, tokens: list[int], ends: set[int], logprobs: _Sampled
    ) -> Completion:
        decode = partial(decoded, marks=self._marks, decode=self._tokenizer.decode)
        text = decode(tokens)
        finish_reason, ended_at = "stop" if tokens and tokens[-1] in ends else "length", ""
        wanted = request.decoding.stop
        if any(stop in text for stop in wanted):
            finish_reason = "stop"
            texts = (decode(tokens[:count]) for count in range(1, len(tokens) + 1))
            count, text, ended_at = first_stop(texts, wanted)
            tokens = tokens[:count]
        completion = Completion(
            text=text,
            finish_reason=finish_reason,
            output_tokens=len(tokens),
            prompt_tokens=prompt,
            served_model=request.model,
            stop_text=ended_at if wanted else None,
        )
        if request.decoding.logprobs is None:
            return completion
        sampled, confidences = (values[: len(tokens)] for values in logprobs)
        return replace(
            completion,
            token_logprobs=tuple(sampled),
            token_confidences=tuple(confidences) if request.decoding.logprobs else None,
        )


def decoded(tokens: Sequence[int], marks: Mapping[int, str], decode: Callable[..., str]) -> str:
    """Return the text of tokens, without special ones except the `marks` that separate thoughts
    from the reply.
    """
    pieces, start = [], 0
    for place, token in enumerate(tokens):
        if token in marks:
            before = tokens[start:place]
            pieces += [decode(before, skip_special_tokens=True) if before else "", marks[token]]
            start = place + 1
    rest = tokens[start:]
    return "".join([*pieces, decode(rest, skip_special_tokens=True) if rest or not pieces else ""])


_Sampled = tuple[list[float], list[float]]


class _Draw:
    """A logits processor that draws the next token itself and leaves the model no other choice.

    A token is drawn by an exponential race: token v arrives at E_v / p_v, and the first wins with
    probability p_v. Rows share nothing: each has its own generator, unless `noise` gives the E_v
    [rows, vocabulary] of a position.
    """

    def __init__(
        self,
        decoding: Decoding,
        seeds: Sequence[int],
        device: Any,
        torch: Any,
        noise: Callable[[int], npt.NDArray[np.float64]] | None = None,
    ) -> None:
        self._torch, self._noise, self._position = torch, noise, 0
        self._temperature = 1.0 if decoding.temperature is None else decoding.temperature
        self._top_p = 1.0 if decoding.top_p is None else decoding.top_p
        self._top = decoding.logprobs
        self._generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]
        self._steps: list[tuple[Tensor, Tensor]] = []

    def __call__(self, _tokens: Tensor, logits: Tensor) -> Tensor:
        """Draw one token per row; `logits` are [rows, vocabulary]."""
        torch = self._torch
        logprobs = torch.log_softmax(logits.float(), dim=-1)
        chosen = logprobs.argmax(dim=-1) if self._temperature == 0 else self._race(logprobs)
        if self._top is not None:
            sampled = logprobs.gather(1, chosen[:, None])[:, 0]
            likeliest = logprobs.topk(max(self._top, 1), dim=-1).values
            self._steps.append((sampled, -likeliest.mean(dim=-1)))
        return torch.full_like(logits, float("-inf")).scatter_(1, chosen[:, None], 0.0)

    def _race(self, logprobs: Tensor) -> Tensor:
        torch = self._torch
        # Shared noise decides between LLMs, so it is not rounded; float64 agrees between CPU and
        # GPU.
        wide = logprobs.double() if self._noise is not None else logprobs
        # Close to temperature 0 the quotients overflow, as they should.
        shares = torch.softmax((wide - wide.amax(dim=-1, keepdim=True)) / self._temperature, dim=-1)
        if self._top_p < 1:
            # Of equal shares the lower number stays first, on every device.
            ordered, order = shares.sort(dim=-1, descending=True, stable=True)
            outside = ordered.cumsum(dim=-1) - ordered >= self._top_p
            shares = shares.masked_fill(outside.gather(1, order.argsort(dim=-1)), 0.0)
        return (shares / self._times(shares)).argmax(dim=-1)

    def _times(self, shares: Tensor) -> Tensor:
        """Return the exponential random numbers of the next position."""
        torch = self._torch
        if self._noise is not None:
            noise = self._noise(self._position)
            self._position += 1
            return torch.from_numpy(noise).to(shares.device)
        drawn = [
            torch.empty_like(shares[0]).exponential_(generator=generator)
            for generator in self._generators
        ]
        return torch.stack(drawn)

    def of(self, row: int) -> _Sampled:
        """Return the log-probabilities and confidences of a row, token by token, padding
        included.
        """
        return [float(sampled[row]) for sampled, _ in self._steps], [
            float(value[row]) for _, value in self._steps
        ]


def _load(
    libraries: TorchLibraries,
    model: str,
    device: str | None,
    dtype: str | None,
    local_files_only: bool,
) -> tuple[Any, Any]:
    torch, transformers = libraries
    if dtype is not None and not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise UsageError(
            f"There is no number type {dtype!r} in torch; use one such as bfloat16, float16 or"
            " float32."
        )
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    settings: dict[str, Any] = {"local_files_only": local_files_only, "trust_remote_code": False}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(model, **settings)
        loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
            model, use_safetensors=True, dtype=dtype or "auto", **settings
        )
        return loaded.to(place).eval(), tokenizer
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        raise SourceError(
            f"The model {model!r} could not be loaded on {place!r} ({str(error)[:300]}). Give a"
            " folder with config.json, tokenizer files and weights in safetensors, or a name on"
            " the Hub."
        ) from error


def _check(decoding: Decoding, known: Collection[str]) -> None:
    """Raise `Fatal` for settings that mean nothing, or that a local model does not know."""
    try:
        decoding.check()
    except FevalError as error:
        raise Fatal(str(error)) from error
    if unknown := sorted(decoding.extra_body.keys() - known):
        raise Fatal(f"Local models know no extra setting {unknown[0]!r}; leave it out.")


def _ends(tokens: int | list[int] | None) -> set[int]:
    return set(tokens) if isinstance(tokens, list) else set() if tokens is None else {tokens}


class TorchLibraries(NamedTuple):
    """The two packages, untyped."""

    torch: Any
    transformers: Any


def torch_libraries(purpose: str) -> TorchLibraries:
    """Import torch and transformers; the error names the purpose that needs them."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise UsageError(
            f"{purpose} needs torch and transformers ({error}): pip install 'feval[coupled]'."
        ) from error
    return TorchLibraries(torch, transformers)


_OWN_WAY = (
    "The tiny models understand the question alone: in a later turn they keep the first half of the"
    " sentences of their last reply and write the rest anew, whatever was said."
)
_ALONE = (
    "The tiny models read only the last user message: the other messages of the prompt were"
    " recorded, but have no effect."
)


class Tiny(_Local):
    """A backend that samples from the model that a request names, such as "feval/tiny-42k".

    Sample i is the model's sample number `seed + i` (without a seed, number i): a pure function of
    model, question, decoding and that number. In a later turn of a conversation it keeps the first
    half of the sentences of its last reply, which it writes again, and goes on from there. `note`
    is called once with each thing that has no effect.
    """

    name = "tiny"

    def token_lengths(self, model: str, text: str) -> tuple[int, ...]:  # noqa: ARG002  they share one tokenizer
        """Return the characters of each token of a reply's text."""
        return tiny.tokenizer().lengths(text)

    def vocabulary(self) -> list[str]:
        """Return the text of every token: ASCII, as it reads; the last special token ends an
        answer.
        """
        return token_texts(tiny.tokenizer().vocabulary, range(len(SPECIAL)), [END])

    def _drawn(self, request: Request, samples: Sequence[int]) -> list[Completion]:
        for part, sentence in ((request.messages[1:], _ALONE), (request.conversation, _OWN_WAY)):
            if part:
                self._note(sentence)
        questions = [message.content for message in request.messages if message.role == "user"]
        if not questions:
            raise RefusalError("the prompt has no user message, which is what a tiny model reads")
        _check(request.decoding, {"stream"})
        try:
            model = tiny.load_model(request.model)
            decoding = _decoding(request, model)
        except FevalError as error:
            raise Fatal(str(error)) from error
        indices = [(request.decoding.seed or 0) + sample for sample in samples]
        begun = request.prefill.text if request.prefill else None
        if kept := _kept(request, decoding.max_tokens):
            begun, decoding = kept, replace(decoding, max_tokens=decoding.max_tokens - _size(kept))
        try:
            answers = tiny.sample(
                model, questions[-1], indices, decoding, self._shared(request), begun
            )
        except OutOfRangeError as error:
            raise RefusalError(str(error)) from error
        completions = [_completion(answer, request) for answer in answers]
        if not request.conversation:
            return completions
        return [_as_turn(completion, request, kept) for completion in completions]


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
    prompt, reply = tiny.tokenizer().prompt, tiny.tokenizer().completion
    *_, question = (turn for turn in request.messages if turn.role == "user")
    sizes = [
        len(reply(turn.content) if turn.role == "assistant" else prompt(turn.content))
        for turn in (question, *request.conversation)
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


def _decoding(request: Request, model: tiny.TinyModel) -> tiny.TinyDecoding:
    decoding = request.decoding
    stream = decoding.extra_body.get("stream")
    return tiny.TinyDecoding(
        temperature=1.0 if decoding.temperature is None else decoding.temperature,
        top_p=1.0 if decoding.top_p is None else decoding.top_p,
        max_tokens=model.shape.context if decoding.max_tokens is None else decoding.max_tokens,
        stream=None if stream is None else str(stream),
        top_logprobs=decoding.logprobs or 0,
    )


def _completion(answer: tiny.TinyCompletion, request: Request) -> Completion:
    decoding = request.decoding
    count, text, finish_reason, ended_at = tiny.stopped(answer, decoding.stop)
    completion = Completion(
        text=text,
        finish_reason=finish_reason,
        output_tokens=count,
        prompt_tokens=answer.prompt_tokens,
        served_model=request.model,
        stop_text=(ended_at or "") if decoding.stop else None,
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
        token_lengths=tuple(
            min(end, len(text)) - min(start, len(text))
            for start, end in pairwise(accumulate(lengths, initial=0))
        ),
    )
