"""What is sent to an LLM and what comes back, as plain values, and the protocol of a backend.

A request is one question's exact messages under one model and decoding. Its key is a hash of that
content: the same after a restart, on another machine, and whatever the question is called. The
sample index (0, 1, 2, ...) is neither part of it nor sent.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import field
from itertools import takewhile
from typing import Protocol

import orjson

from feval.cards import count_words
from feval.errors import OutOfRangeError, UsageError
from feval.serving.wire.openai import canonical
from feval.values import Record, RecordLike, frozen
from recorders.shared_noise import NOISE_SCHEME

_ROOM_FOR_SAMPLES = 2**32 - 1  # sample i is asked for with seed + i


@frozen
class Message:
    """One turn of a chat.

    Attributes:
        role: "system", "user", "assistant" or "tool".
        content: the text.
        tools: what it says of tools, see `feval.serving.wire.openai.Conversation`.
    """

    role: str
    content: str
    tools: str = ""

    @classmethod
    def of(cls, values: RecordLike) -> Message:
        """Read a message that `as_json` made."""
        more = {name: values[name] for name in values if name not in ("role", "content")}
        return cls(values["role"], values["content"], canonical(more) if more else "")

    def to_dict(self) -> Record:
        """Return it as JSON values."""
        more = orjson.loads(self.tools) if self.tools else {}
        return {"role": self.role, "content": self.content, **more}

    def hashed(self) -> list[str]:
        """Return what keys are made of."""
        return [self.role, self.content, *([self.tools] if self.tools else [])]


def as_json(messages: Iterable[Message]) -> list[Record]:
    """Return messages as JSON values."""
    return [message.to_dict() for message in messages]


def require_sampling(temperature: float | None, top_p: float | None) -> None:
    """Raise an `OutOfRangeError` for a temperature or top-p that means nothing."""
    if temperature is not None and not 0 <= temperature < math.inf:
        raise OutOfRangeError(
            f"The setting temperature must be a number from 0 on; {temperature} was given."
        )
    if top_p is not None and not 0 < top_p <= 1:
        raise OutOfRangeError(
            f"The setting top_p must be a number above 0 and at most 1; {top_p} was given."
        )


@frozen
class Decoding:
    """Every parameter that shapes the CoTs besides the messages. `None`: not sent, so the
    provider's default.

    Attributes:
        temperature: sampling temperature.
        top_p: of nucleus sampling.
        max_tokens: limit on output tokens per CoT.
        stop: texts that end a CoT.
        seed: the base seed; sample i is requested with `seed + i` if the backend takes seeds.
        logprobs: how many of the top log-probabilities to keep per token.
        extra_body: further fields of the request's body (JSON values), sent as they are.
        noise_seed: of the noise that samples share with other LLMs (`recorders.shared_noise`);
            `None`: noise of its own.
    """

    temperature: float | None = 0.7
    top_p: float | None = None
    max_tokens: int | None = 2048
    stop: tuple[str, ...] = ()
    seed: int | None = None
    logprobs: int | None = None
    extra_body: RecordLike = field(default_factory=dict)
    noise_seed: int | None = None

    def check(self) -> None:
        """Refuse what no server takes or no file can hold, before anything is paid for.

        Raises:
            OutOfRangeError: a number outside its range.
            UsageError: shared noise together with a seed, or without randomness.
        """
        if self.noise_seed is not None and self.seed is not None:
            raise UsageError(
                f"Coupled samples are drawn with noise seed {self.noise_seed}, and have no seed of"
                f" their own; leave the seed {self.seed} out."
            )
        if self.noise_seed is not None and self.temperature == 0:
            raise UsageError(
                "At temperature 0 nothing is drawn, so no noise can be shared; choose a temperature"
                " above 0."
            )
        limit = 2**63 - 1
        counts = {"max_tokens": (1, limit), "logprobs": (0, limit), "noise_seed": (0, limit)}
        counts["seed"] = (0, limit - _ROOM_FOR_SAMPLES)
        if "" in self.stop:
            raise OutOfRangeError(
                "The setting stop holds an empty text, which would end every CoT at once; leave it"
                " out."
            )
        require_sampling(self.temperature, self.top_p)
        for name, (least, most) in counts.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                top = "2^63 - 1" if most == limit else "2^63 - 2^32"
                raise OutOfRangeError(
                    f"The setting {name} must be {least} to {top}; {value} was given."
                )

    def content(self) -> Record:
        """Return every parameter except the seed, as JSON values: what all samples of a request
        share.
        """
        values = {name: getattr(self, name) for name in ("max_tokens", "logprobs")}
        for name in ("temperature", "top_p"):  # 1 and 1.0 are one temperature
            value = getattr(self, name)
            values[name] = None if value is None else float(value)
        if self.noise_seed is not None:
            values["noise"] = {"scheme": NOISE_SCHEME, "seed": self.noise_seed}
        return values | {"stop": list(self.stop), "extra_body": dict(self.extra_body)}


@frozen
class Prefill:
    """The beginning of a reply, which the LLM continues.

    Attributes:
        text: the beginning, as the LLM would have written it.
        opening: what the chat template writes before it, where that opens a thought; needed where a
            message is continued.
        template: one turn as the LLM reads it, with "{prompt}" in it, for endpoints that continue a
            text; `None`: the endpoint continues a message.
    """

    text: str
    opening: str = ""
    template: str | None = None


@frozen
class Request:
    """One question as it is put to an LLM.

    Attributes:
        dataset: the dataset's id.
        question_id: unique within the dataset.
        messages: exactly what is sent.
        model: as the provider calls it.
        decoding: sampling parameters.
        prefill: the beginning of the reply; `None` where the LLM begins it. Not part of the key.
        conversation: of a turn, what came after the messages, a reply first. Not part of the key: a
            turn is a sample of its question's request.
    """

    dataset: str
    question_id: str
    messages: tuple[Message, ...]
    model: str
    decoding: Decoding
    prefill: Prefill | None = None
    conversation: tuple[Message, ...] = ()

    @property
    def sent(self) -> tuple[Message, ...]:
        """All that is sent: the messages and the conversation after them."""
        return self.messages + self.conversation

    @property
    def characters(self) -> int:
        """Characters of all that is sent, the beginning of the reply included."""
        beginning = len(self.prefill.text) if self.prefill else 0
        return beginning + sum(len(message.content + message.tools) for message in self.sent)

    @property
    def words(self) -> int:
        """Words of the messages, which stand for their tokens where nobody counted them."""
        return sum(count_words(message.content + message.tools) for message in self.messages)

    def said(self) -> list[Record]:
        """Return what was said behind the last reply of the conversation, as JSON values; nothing
        without a conversation.
        """
        said = takewhile(lambda message: message.role != "assistant", self.conversation[::-1])
        return as_json(said)[::-1]

    def key(self) -> str:
        """Return the content key: the sha256, in hex, of model, messages and decoding without its
        seed, as canonical JSON.
        """
        content = {
            "model": self.model,
            "messages": [message.hashed() for message in self.messages],
            "decoding": self.decoding.content(),
        }
        return hashlib.sha256(
            json.dumps(content, sort_keys=True, separators=(",", ":")).encode("ascii")
        ).hexdigest()

    def prompt(self) -> str:
        """Return the messages as a recording stores them: a JSON array."""
        return orjson.dumps(as_json(self.messages)).decode()


@frozen
class Completion:
    """One reply of a backend. `None`: the backend does not say.

    Attributes:
        text: the CoT.
        finish_reason: a word of `feval.cards.names.FINISH_REASONS`.
        reasoning: text of the thoughts, if the API returns it separately.
        tool_calls: the tools that it calls, as `Recording.tool_calls` has them.
        output_tokens: as billed, reasoning included.
        reasoning_tokens: how many of the output tokens were reasoning.
        prompt_tokens: of the whole request.
        cached_tokens: how many of the prompt tokens came from the provider's cache.
        response_id: the provider's.
        served_model: the model's name as the provider states it.
        system_fingerprint: the provider's.
        token_logprobs: natural log-probabilities of the sampled tokens, in order.
        token_confidences: minus the mean log-probability of the top k at each token (DeepConf).
        token_lengths: characters of `reasoning`, if it came separately, and `text` that each token
            wrote, 0 for a mark.
        sequence_logprob: if known more exactly than as the sum of `token_logprobs`.
        tokens_split: true if the provider counted several replies together, so that `output_tokens`
            is a share of a total.
        stop_text: the stop text that it ended at, empty where it ended by itself.
        usage_doubt: why the provider's token counts cannot be, and were not taken.
        duration_s: seconds from sending the request over a network to the last byte of the reply
            that it came with.
    """

    text: str
    finish_reason: str
    reasoning: str | None = None
    tool_calls: str | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    response_id: str | None = None
    served_model: str | None = None
    system_fingerprint: str | None = None
    token_logprobs: tuple[float, ...] | None = None
    token_confidences: tuple[float, ...] | None = None
    token_lengths: tuple[int, ...] | None = None
    sequence_logprob: float | None = None
    tokens_split: bool | None = None
    stop_text: str | None = None
    usage_doubt: str | None = None
    duration_s: float | None = None


def require_template(setting: str, template: str | None) -> None:
    """Raise a `UsageError` unless a setting, which may be left out, is a template for `Prefill`."""
    if template is not None and template.count("{prompt}") != 1:
        raise UsageError(
            f'The setting {setting} holds "{{prompt}}" once, where the question is put;'
            f" {template!r:.80} was given."
        )


def note_on_number(got: int, asked: int) -> str | None:
    """Return a sentence if a reply holds another number of choices than were asked for; `None` if
    not.
    """
    if got > asked:
        return (
            "The server sent more choices than were asked for; the extra ones are dropped, and may"
            " have been billed."
        )
    if got == asked:
        return None
    how = "ignores n: it sent one choice where several" if got == 1 else "sent fewer choices than"
    return f"The server {how} were asked for. The rest is asked for again."


def ignore_note(_sentence: str) -> None:
    """Do nothing with what a backend notes."""


class Backend(Protocol):
    """Something that samples replies: an HTTP endpoint, a local model, a built-in one.

    Attributes:
        name: for messages and the recording.
        takes_seed: whether `Decoding.seed` has an effect.
        shares_noise: whether `Decoding.noise_seed` has an effect; HTTP servers take no noise.
    """

    name: str
    takes_seed: bool
    shares_noise: bool

    async def complete(self, request: Request, samples: Sequence[int]) -> list[Completion]:
        """Return one completion per sample, or fewer (a server that ignores n): the engine asks
        again for the rest.

        Args:
            request: what to send.
            samples: indices of the wanted samples; they determine the seeds and are not sent.
        """

    def token_lengths(self, model: str, text: str) -> tuple[int, ...] | None:
        """Return the characters of each token of a reply's text; `None` where only a server could
        tell.
        """

    async def aclose(self) -> None:
        """Release connections and memory."""
