"""The columns of generic rows: their meaning, the names that other tools use, and how values are
read.

`COLUMNS` lists them. A name with dots is a nested member, as `pandas.json_normalize` writes it:
"usage.completion_tokens" is `{"usage": {"completion_tokens": ...}}`. Null is a missing value in
every column but `answer`, where it means no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from feval.errors import ConflictError, SourceError
from feval.importers.shapes import (
    ADVICE,
    choices_of,
    finish_reason,
    identifier,
    member,
    number,
    number_list,
    refuse,
    scalar_text,
    sentence_start,
    text,
    whole_number,
)
from feval.importers.source import Prompt


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: feval's own.
        of: what it belongs to; a request is shared by the CoTs of one LLM on one question, and a
            CoT may have probes.
        read: turns a value, and its place for messages, into what is stored.
        about: its meaning.
        aliases: names that other tools use.
    """

    name: str
    of: Literal["question", "request", "llm", "cot", "probe"]
    read: Callable[[Any, str], Any]
    about: str
    aliases: tuple[str, ...] = ()

    @property
    def is_text(self) -> bool:
        """Whether a text is a value as it stands, rather than a number, a list or an object written
        as text.
        """
        return self.read in (text, scalar_text, identifier, finish_reason, _name)


def _prompt(value: Any, where: str) -> Prompt:
    if isinstance(value, str):
        return Prompt.of(value)
    if not isinstance(value, list):
        refuse(where, "text or a list of messages", value)
    messages = [
        {key: member(message, key, str, f"a message of {where}") for key in ("role", "content")}
        for message in value
    ]
    return Prompt(
        orjson.dumps(messages).decode(), "\n".join(message["content"] for message in messages)
    )


def _messages(value: Any, where: str) -> str:
    return _prompt(
        value or refuse(where, "text that is not empty, or a list of messages", value), where
    ).messages


def _name(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        refuse(where, "text that is not empty", value)
    return value


def _sample(value: Any, where: str) -> int | str:
    return value if isinstance(value, str) and value else whole_number(value, where)


def _positive(value: Any, where: str) -> int:
    return whole_number(value, where) or refuse(where, "a whole number from 1", value)


def _confidence(value: Any, where: str) -> float:
    confidence = number(value, where)
    return confidence if abs(confidence) < 2**128 else refuse(where, "a number of 32 bits", value)


def _not_negative(value: Any, where: str) -> float:
    amount = number(value, where)
    return amount if amount >= 0 else refuse(where, "a number from 0", value)


def _milliseconds(value: Any, where: str) -> float:
    return _not_negative(value, where) / 1000


def _seed(value: Any, where: str) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        refuse(where, "a whole number of 64 bits", value)
    return value


def _score(value: Any, where: str) -> float:
    return float(value) if isinstance(value, bool) else number(value, where)


def _by_scorer(read: Callable[[Any, str], Any]) -> Callable[[Any, str], dict[str, Any]]:
    """Return a reader of one scorer's value, or of an object scorer -> value; a lone value's scorer
    is called "score".
    """

    def by_scorer(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            return {"score": read(value, where)}
        return {
            name: read(each, f"{name!r:.60} of {where}")
            for name, each in value.items()
            if each is not None
        }

    return by_scorer


def _logprobs(value: Any, where: str) -> list[float]:
    """Read a list of numbers, or OpenAI's `{"content": [{"logprob": ...}]}` or `{"token_logprobs":
    [...]}`.
    """
    if isinstance(value, dict):
        inner = next(
            (name for name in ("content", "token_logprobs") if value.get(name) is not None),
            "token_logprobs",
        )
        value = member(value, inner, list, where)
    if isinstance(value, list):
        value = [each.get("logprob") if isinstance(each, dict) else each for each in value]
    logprobs = number_list(value, where)
    for position, each in enumerate(logprobs):
        if each > 1e-3:  # what rounding makes of a probability of 1
            refuse(
                f"Token {position} of {where}",
                "a natural logarithm of a probability, at most 0",
                each,
            )
    return logprobs


def _logprob(value: Any, where: str) -> float:
    return _logprobs([number(value, where)], where)[0]


def _truth(value: Any, where: str) -> bool:
    return value if isinstance(value, bool) else refuse(where, "true or false", value)


def _object(value: Any, where: str) -> dict[str, Any]:
    return value if isinstance(value, dict) else refuse(where, "an object", value)


def _objects(value: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        refuse(where, "a list of objects", value)
    for position, each in enumerate(value):
        if not isinstance(each, dict):
            refuse(f"Entry {position} of {where}", "an object", each)
    return value


COLUMNS: tuple[Column, ...] = (
    Column("id", "question", identifier, "the question's id", ("question_id",)),
    Column("question", "question", text, "the question's text, without options", ("problem",)),
    Column("gold", "question", scalar_text, "the gold answer", ("target", "ground_truth")),
    Column("choices", "question", choices_of, "the options", ("options",)),
    Column("prompt", "request", _prompt, "what was sent: a text, or a list of messages"),
    Column(
        "prompt_tokens", "request", whole_number, "tokens of what was sent",
        ("input_tokens", "usage.prompt_tokens", "usage.input_tokens", "usage.prompt_token_count"),
    ),
    Column("llm", "llm", _name, "name of the LLM", ("model", "model_name")),
    Column("temperature", "llm", _not_negative, "temperature of the decoding"),
    Column("max_tokens", "llm", _positive, "limit on output tokens"),
    Column("decoding", "llm", _object, "other parameters of the decoding"),
    Column(
        "sample", "cot", _sample,
        "number of the CoT among those of its question and LLM, which orders them; or any other name",  # noqa: E501
        ("sample_id", "sample_index"),
    ),
    Column("text", "cot", text, "the CoT", ("completion", "response", "generation")),
    Column("answer", "cot", scalar_text, "the answer that was extracted", ("prediction",
    "extracted_answer")),
    Column(
        "tokens", "cot", whole_number, "output tokens, hidden reasoning included",
        ("output_tokens", "completion_tokens", "usage.completion_tokens", "usage.output_tokens",
        "usage.candidates_token_count"),
    ),
    Column("finish_reason", "cot", finish_reason, "why the CoT ended"),
    Column("reasoning", "cot", text, "reasoning that was given apart from the text",
    ("reasoning_content", "thinking")),
    Column(
        "reasoning_tokens", "cot", whole_number, "how many of the output tokens were reasoning",
        ("usage.completion_tokens_details.reasoning_tokens",
        "usage.output_tokens_details.reasoning_tokens",
         "usage.reasoning_tokens"),
    ),
    Column(
        "cached_tokens", "cot", whole_number, "how many of the prompt's tokens came from a cache",
        ("usage.prompt_tokens_details.cached_tokens", "usage.input_tokens_details.cached_tokens",
         "usage.prompt_cache_hit_tokens", "usage.cached_content_token_count"),
    ),
    Column(
        "thoughts_tokens", "cot", whole_number,
        "tokens of thoughts counted beside the output (Gemini), to which they are added",
        ("usage.thoughts_token_count",),
    ),
    Column(
        "cache_read_tokens", "cot", whole_number,
        "tokens read from a cache beside the prompt (Anthropic), added to it",
        ("cache_read_input_tokens", "usage.cache_read_input_tokens"),
    ),
    Column(
        "cache_write_tokens", "cot", whole_number,
        "tokens written to a cache beside the prompt (Anthropic), added to it",
        ("cache_creation_input_tokens", "usage.cache_creation_input_tokens"),
    ),
    Column(
        "stated_total_tokens", "cot", whole_number,
        "tokens of prompt and output together, which tells what is inside them",
        ("usage.total_tokens", "usage.total_token_count"),
    ),
    Column("score", "cot", _by_scorer(_score), "a score, or an object scorer -> score", ("scores",
    )),
    Column("step_scores", "cot", _by_scorer(number_list),
    "a score for each step, or an object scorer -> such a list"),
    Column(
        "sequence_logprob", "cot", _logprob,
        "log-probability of the whole CoT; by default the sum of its tokens'",
        ("cumulative_logprob",),
    ),
    Column("token_logprobs", "cot", _logprobs, "log-probability of each token", ("logprobs",)),
    Column("token_confidences", "cot", number_list,
    "minus the mean log-probability of the top k at each token (DeepConf)"),
    Column("duration_s", "cot", _not_negative, "seconds that the reply took", ("duration",
    "latency_s", "latency")),
    Column("duration_s", "cot", _milliseconds, "milliseconds that the reply took", ("duration_ms",
    "latency_ms")),
    Column("first_token_s", "cot", _not_negative, "seconds to the first token", ("ttft_s", "ttft",
    "time_to_first_token")),
    Column(
        "first_token_s", "cot", _milliseconds, "milliseconds to the first token",
        ("first_token_ms", "ttft_ms", "time_to_first_token_ms"),
    ),
    Column("seed", "cot", _seed, "the seed that was sent"),
    Column("response_id", "cot", text, "the provider's id of the reply"),
    Column("served_model", "cot", text, "the model that the provider says answered"),
    Column("system_fingerprint", "cot", text, "the provider's fingerprint of its system"),
    Column("recorded_at", "cot", text, "when the CoT was recorded"),
    Column("node", "cot", identifier, "name of the step, among those of its question and LLM"),
    Column("parent", "cot", identifier, "name of the step before"),
    Column("ends", "cot", _truth,
    "whether the step ends a solution; by default, whether it has an answer, null included"),
    Column("turns", "cot", _objects, "replies to the CoT, one after the other"),
    Column("turn_messages", "cot", _messages,
    "what was sent for a turn, behind the CoT it replies to, like `prompt`"),
    Column("turn_prompt_tokens", "cot", whole_number, "tokens of all that was sent for a turn"),
    Column("step_stop", "llm", text, "the string that ends a step"),
    Column("step_policy", "llm", text, "which steps were gone on from when the tree was recorded"),
    Column("probes", "cot", _objects, "answers that the LLM gave when it was made to answer early"),
    Column("probe_cue", "llm", text, "what was appended to make the LLM answer early"),
    Column("offset", "probe", _positive, "output tokens of the CoT before the probe"),
    Column("confidence", "probe", _confidence, "how sure the LLM was of the probe's answer"),
)  # fmt: skip
"""Every known column. Two of one name are the same quantity in two units."""

USAGE = {
    "reasoning_tokens": "reasoning", "cached_tokens": "cached", "thoughts_tokens": "thoughts",
    "cache_read_tokens": "cache_read",
    "cache_write_tokens": "cache_write", "stated_total_tokens": "total",
}  # fmt: skip
"""Columns whose meaning depends on the others: column -> argument of
`feval.cards.tokens.Usage.of`.
"""

WITHOUT_UNIT = frozenset({"duration", "latency", "ttft", "time_to_first_token"})
"""Known names that state no unit; they are read as seconds, with a note."""

_DERIVED = frozenset({"total_tokens"})  # the sum of two others
_NESTED = frozenset({"usage"})


def names_of(*parts: str) -> dict[str, Column]:
    """Return the columns of some of question, request, llm and cot, by every name they are written
    under.
    """
    columns = [column for column in COLUMNS if column.of in parts]
    # A column's own name is its own only: "duration_ms" is not "duration_s".
    names = {column.name: column for column in reversed(columns)}
    return names | {alias: column for column in columns for alias in column.aliases}


def probe_names() -> dict[str, Column]:
    """Return the same for the object of a probe: its own columns, and of a CoT's those that a probe
    has, too.
    """
    return names_of("probe") | {
        name: column
        for name, column in names_of("cot").items()
        if column.name in {"text", "answer", "tokens"}
    }


def turn_names() -> dict[str, Column]:
    """Return the same for the object of a turn: a CoT's columns; messages and prompt tokens are its
    own.
    """
    names, tree = names_of("cot"), {"sample", "node", "parent", "ends", "turns", "probes"}
    tokens = {
        name: names["turn_prompt_tokens"]
        for name, column in names_of("request").items()
        if column.name == "prompt_tokens"
    }
    own = tokens | {"messages": names["turn_messages"]}
    return {name: column for name, column in names.items() if column.name not in tree} | own


def question_names(*parts: str) -> dict[str, Column]:
    """Return the same for a line per question, where `answer` is the gold."""
    names = names_of(*parts)
    return names | {"answer": names["gold"]}


def recognised(
    row: Mapping[str, Any], names: Mapping[str, Column], where: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the known columns of a row, as the source has it.

    Args:
        row: name -> value.
        names: from `names_of`.
        where: for the messages, such as "line 3 of x.jsonl".

    Returns:
        feval's name of each column -> value; and the unknown members, under the row's own names.

    Raises:
        SourceError: a value does not have its column's type.
        ConflictError: two names of one column have two values.
    """
    values: dict[str, Any] = {}
    written: dict[str, str] = {}
    others: dict[str, Any] = {}
    for name, value in _flat(_without_own_id(row).items()):
        column = names.get(name)
        if column is None:
            if name not in _DERIVED and value is not None:
                others[name] = value
            continue
        if value is None:
            values.setdefault(column.name, None)
            continue
        content = _read(column, value, f"{name!r} of {where}")
        if column.name in written and values[column.name] != content:
            raise ConflictError(_two_values(column, written[column.name], name, row, where))
        values[column.name], written[column.name] = content, name
    return values, others


class RowReader:
    """Reads rows by `recognised`; how rows with the same members are read is worked out once."""

    _MOST_PLANS = 1000  # rows whose members are names of their own are read one by one

    def __init__(self, names: Mapping[str, Column]) -> None:
        self._names = names
        self._plans: dict[tuple[str, ...], _Plan | None] = {}

    def recognised(
        self, row: Mapping[str, Any], where: str
    ) -> tuple[dict[str, Any], dict[str, Any], frozenset[str]]:
        """Return what `recognised` does, and the members that state no unit."""
        members = _members(row)
        plan = None if members is None else self._plan(tuple(members))
        if members is not None and plan is not None:
            try:
                values = {
                    name: None if (value := members[member]) is None else read(value, "")
                    for member, name, read in plan.known
                }
            except SourceError:
                pass  # read again below, to say where it is
            else:
                others = {
                    member: value
                    for member in plan.others
                    if (value := members[member]) is not None
                }
                return values, others, plan.without_unit
        return *recognised(row, self._names, where), WITHOUT_UNIT & row.keys() & self._names.keys()

    def _plan(self, members: tuple[str, ...]) -> _Plan | None:
        if members not in self._plans:
            if len(self._plans) == self._MOST_PLANS:
                self._plans.clear()
            self._plans[members] = _Plan.of(members, self._names)
        return self._plans[members]


@dataclass(frozen=True, slots=True)
class _Plan:
    """How rows with the same members are read: member, column and reader of the known ones, and the
    others.
    """

    known: tuple[tuple[str, str, Callable[[Any, str], Any]], ...]
    others: tuple[str, ...]
    without_unit: frozenset[str]

    @classmethod
    def of(cls, members: Sequence[str], names: Mapping[str, Column]) -> _Plan | None:
        """Return the plan for some members; `None` where two of them are one column, whose values
        must agree.
        """
        known = [
            (member, names[member].name, names[member].read)
            for member in members
            if member in names
        ]
        if len({name for _, name, _ in known}) < len(known):
            return None
        others = [member for member in members if member not in names and member not in _DERIVED]
        return cls(tuple(known), tuple(others), WITHOUT_UNIT & set(members) & names.keys())


def _read(column: Column, value: Any, where: str) -> Any:
    try:
        return column.read(value, where)
    except SourceError as error:
        sentence = str(error).removesuffix(ADVICE)
        raise SourceError(
            f"{sentence}It is read as {column.about}: correct it, or rename it if it holds"
            " something else."
        ) from error


def _flat(items: Iterable[tuple[str, Any]], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Yield the members of a row; nested counts have names with dots."""
    for name, value in items:
        if isinstance(value, dict) and (prefix or name in _NESTED):
            yield from _flat(value.items(), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _members(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the members of a row as `recognised` looks at them; `None` where one is written twice,
    nested and with a dot.
    """
    row = _without_own_id(row)
    if not any(isinstance(row.get(name), dict) for name in _NESTED):
        return row
    pairs = list(_flat(row.items()))
    members = dict(pairs)
    return members if len(members) == len(pairs) else None


def _without_own_id(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row without `id` where it has a `question_id`: then the former is the row's own."""
    if row.get("question_id") is None or "id" not in row:
        return row
    return {name: value for name, value in row.items() if name != "id"}


def _two_values(column: Column, first: str, second: str, row: Mapping[str, Any], where: str) -> str:
    flat = dict(_flat(row.items()))
    hints = {
        "answer": " A gold answer is named 'gold'.",
        "text": " What was sent is named 'prompt'.",
    }
    return (
        f"{sentence_start(where)} has {first!r} ({flat[first]!r:.40}) and {second!r}"
        f" ({flat[second]!r:.40}), which are two names of one column ({column.name!r}:"
        f" {column.about}), and they differ. Remove or rename one of"
        f" them.{hints.get(column.name, '')}"
    )


def examples(values: Mapping[str, Any]) -> str:
    """Return names with one value each, for a note."""
    shown = ", ".join(
        f"{name:.40} (such as {value!r:.40})" for name, value in list(values.items())[:20]
    )
    return shown + (f" and {len(values) - 20} more" if len(values) > 20 else "")
