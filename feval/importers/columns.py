"""The columns of rows: their meaning, the names that other tools use, and how values are read.

`COLUMNS` lists them. A name with dots is a nested member, as `pandas.json_normalize` writes it:
"usage.completion_tokens" is `{"usage": {"completion_tokens": ...}}`. Null is a missing value in
every column but `answer`, where it means no answer.

A reader returns a value, or raises a `SourceError` with the place (such as "'id' of line 3 of
x.jsonl"), what was expected and what was found.
"""

from __future__ import annotations

import json
import math
import string
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from feval.answers import decimal_key
from feval.cards.billing import MOST_USD
from feval.cards.reading import parse_json, some
from feval.errors import ConflictError, SourceError
from feval.importers.layouts import is_name
from feval.importers.source import FINISH_REASON_WORDS, Prompt, Row, chat
from feval.recording.content import calls_as_json
from feval.values import Pairs, frozen

_T = TypeVar("_T")
_Read = Callable[[Any, str], Any]
_WORDS: dict[type, str] = {
    str: "text",
    list: "a list",
    dict: "an object",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}
LARGEST = 2**31 - 1
"""Largest token count that can be stored."""
_ADVICE = "Is the format the right one?"


def refuse(where: str, expected: str, value: object) -> NoReturn:
    """Raise that `where` should be `expected`, and what was found instead."""
    shown = ""
    if isinstance(value, list | dict | str):
        shown = f" of {len(value)}"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        shown = f" {value!r:.60}"
    kind = _WORDS.get(type(value), type(value).__name__)
    raise SourceError(f"{where} should be {expected}; found {kind}{shown}. {_ADVICE}")


def sentence_start(where: str) -> str:
    """Return a place as a sentence starts with it."""
    return where[0].upper() + where[1:]


def member(record: object, name: str, kind: type[_T], where: str) -> _T:
    """Return the value of `name` in a JSON object; raise unless it has the given type (a bool is
    not an int; `object` is any).
    """
    if not isinstance(record, dict):
        refuse(where, "an object", record)
    if name not in record:
        names = ", ".join(repr(known)[:40] for known in list(record)[:12]) or "nothing"
        raise SourceError(f"{where} has no {name!r}; it has {names}. {_ADVICE}")
    value: _T = record[name]
    if kind is not object and type(value) is not kind:
        refuse(f"{name!r} of {where}", _WORDS[kind], value)
    return value


def strings(values: list[Any], where: str) -> list[str]:
    """Return the texts of a question's samples."""
    if not all(type(value) is str for value in values):
        for place, value in enumerate(values):
            text(value, f"Sample {place} of {where}")
    return values


def scalar_text(value: object, where: str) -> str | None:
    """Return a stored answer as a raw answer: a number as its decimal key, true and false as yes
    and no, null and what is no finite number as no answer.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        # beyond what a key may have, the number stays as text
        return decimal_key(value) or (str(value) if abs(value) < math.inf else None)
    return refuse(where, "text, a number, true, false or null", value)


def _reader_of(kind: type) -> _Read:
    """Return a reader of values of a type."""

    def read(value: Any, where: str) -> Any:
        return value if isinstance(value, kind) else refuse(where, _WORDS[kind], value)

    return read


text, json_object, _truth = map(_reader_of, (str, dict, bool))


def number(value: object, where: str) -> float:
    """Return a finite number."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not abs(value) <= sys.float_info.max
    ):
        refuse(where, "a number", value)
    return float(value)


def number_list(value: object, where: str) -> list[float]:
    """Return a list of finite numbers."""
    if not isinstance(value, list):
        refuse(where, "a list of numbers", value)
    if all(type(each) is float for each in value) and all(map(math.isfinite, value)):
        return value
    return [number(each, f"Number {position} in {where}") for position, each in enumerate(value)]


def whole(value: object) -> int | None:
    """Return a token count or sample number, which some sources write as 12.0; `None` for anything
    else.
    """
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value <= LARGEST
        and value == int(value)
    ):
        return int(value)
    return None


def whole_number(value: object, where: str) -> int:
    """Return a token count, or the number of a sample, read like `whole`."""
    count = whole(value)
    return (
        count if count is not None else refuse(where, f"a whole number from 0 to {LARGEST}", value)
    )


def positive(value: Any, where: str) -> int:
    """Return a limit, an offset or an interval in tokens."""
    count = whole(value)
    return count or refuse(where, f"a whole number from 1 to {LARGEST}", value)


def not_negative(value: Any, where: str) -> float:
    """Return a temperature, a duration or an amount of USD."""
    amount = number(value, where)
    return amount if amount >= 0 else refuse(where, "a number from 0", value)


def finish_reason(value: object, where: str) -> str:
    """Return a finish reason in a recording's words; null is unknown."""
    if value is None:
        return "unknown"
    if isinstance(value, str) and value in FINISH_REASON_WORDS:
        return FINISH_REASON_WORDS[value]
    refuse(where, f"one of {', '.join(FINISH_REASON_WORDS)}", value)


def identifier(value: object, where: str) -> str:
    """Return a question's id, which may be text or a whole number."""
    if type(value) is str and value:
        return value
    if type(value) is int:
        return str(value)
    return refuse(where, "text that is not empty, or a whole number", value)


def choices_of(value: object, where: str) -> Pairs:
    """Return the options of a question as (label, text).

    They may be a list of `{"label", "text"}`, a list of texts (labelled A, B, C, ...), or
    `{"label": [], "text": []}`.
    """
    if isinstance(value, tuple):
        return value
    if isinstance(value, dict):
        labels, texts = member(value, "label", list, where), member(value, "text", list, where)
        if len(labels) != len(texts):
            refuse(f"'label' of {where}", f"as many labels as its {len(texts)} texts", labels)
        value = [{"label": label, "text": text} for label, text in zip(labels, texts, strict=True)]
    if not isinstance(value, list):
        refuse(where, "a list of options", value)
    if value and all(isinstance(text, str) for text in value):
        if len(value) > len(string.ascii_uppercase):
            refuse(where, f"a list of at most {len(string.ascii_uppercase)} texts", value)
        return tuple(zip(string.ascii_uppercase, value, strict=False))
    here = f"an option in {where}"
    choices = tuple(
        (member(choice, "label", str, here), member(choice, "text", str, here)) for choice in value
    )
    if len(dict(choices)) != len(choices):
        raise SourceError(f"{where} have a label twice: {[label for label, _ in choices]!r:.80}.")
    return choices


def _features(value: Any, where: str) -> Pairs:
    return tuple(
        (name, str(scalar_text(number(each, here) if isinstance(each, float) else each, here)))
        for name, each in json_object(value, where).items()
        if each is not None and (here := f"{name!r:.60} of {where}")
    )


def _prompt(value: Any, where: str) -> Prompt:
    if isinstance(value, Prompt):
        return value
    if isinstance(value, str):
        return chat(value)
    if not isinstance(value, list):
        refuse(where, "text or a list of messages", value)
    return chat(
        {key: member(message, key, str, f"a message of {where}") for key in ("role", "content")}
        | {key: message[key] for key in ("tool_calls", "tool_call_id") if key in message}
        for message in value
    )


def _text_or_messages(value: Any, where: str) -> str:
    """Return a text, or a conversation's messages (a role each) as canonical JSON."""
    if not isinstance(value, list):
        return str(text(value, where))
    for place, message in enumerate(value):
        member(message, "role", str, f"message {place} of {where}")
    return _json(value, where)


def _json(value: Any, where: str) -> str:
    """Return canonical JSON."""
    try:
        return json.dumps(
            value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
        )
    except ValueError:
        refuse(where, "without NaN and infinity", value)


def _decoding(value: Any, where: str) -> Row:
    _json(json_object(value, where), where)
    return dict(value)


def _messages(value: Any, where: str) -> str:
    return _prompt(
        value or refuse(where, "text that is not empty, or a list of messages", value), where
    ).messages


def _name(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        refuse(where, "text that is not empty", value)
    return value


def _grader(value: Any, where: str) -> str:
    return str(value) if is_name(value) else refuse(where, "a name of 1 to 200 characters", value)


def _sample(value: Any, where: str) -> int | str:
    return value if isinstance(value, str) and value else whole_number(value, where)


def _confidence(value: Any, where: str) -> float:
    confidence = number(value, where)
    return confidence if abs(confidence) < 2**128 else refuse(where, "a number of 32 bits", value)


def _tool_calls(value: Any, where: str) -> str:
    try:
        return calls_as_json(parse_json(value) if isinstance(value, str) else value)
    except ValueError:
        return refuse(where, 'calls, such as [{"name": "add", "arguments": "{}"}]', value)


def _milliseconds(value: Any, where: str) -> float:
    return not_negative(value, where) / 1000


def _usd(value: Any, where: str) -> float:
    amount = not_negative(value, where)
    return amount if amount <= MOST_USD else refuse(where, f"at most {MOST_USD:,} USD", value)


def _seed(value: Any, where: str) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        refuse(where, "a whole number of 64 bits", value)
    return value


def _score(value: Any, where: str) -> float:
    return float(value) if isinstance(value, bool) else number(value, where)


def _verdict(value: Any, where: str) -> float:
    verdict = _score(value, where)
    return verdict if 0 <= verdict <= 1 else refuse(where, "a verdict, from 0 to 1", value)


def _verdicts(value: Any, where: str) -> float | Row:
    is_object = isinstance(value, dict)
    verdicts: float | Row = (_by_scorer(_verdict) if is_object else _verdict)(value, where)
    return verdicts


def _by_scorer(read: _Read) -> _Read:
    """Return a reader of one scorer's value, or of an object scorer -> value; a lone value's scorer
    is called "score".
    """

    def by_scorer(value: Any, where: str) -> Row:
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


def _objects(value: Any, where: str) -> list[Row]:
    if not isinstance(value, list):
        refuse(where, "a list of objects", value)
    return [
        json_object(each, f"Entry {position} of {where}") for position, each in enumerate(value)
    ]


@frozen
class Column:
    """One column.

    Attributes:
        name: feval's own.
        of: what it belongs to: a table (which may have several datasets), a question, a request
            (shared by the CoTs of one LLM on one question), an LLM, a CoT, a turn or a probe of a
            CoT; several words where it is in the objects of each.
        read: turns a value, and its place for messages, into what is stored.
        about: its meaning.
        aliases: names that other tools use.
        usual: names that count where a table has none of the former; on a single row of any origin
            they would say too little.
    """

    name: str
    of: str
    read: _Read
    about: str
    aliases: tuple[str, ...] = ()
    usual: tuple[str, ...] = ()

    @property
    def is_text(self) -> bool:
        """Whether a text is a value as it stands, rather than a number, a list or an object written
        as text.
        """
        return self.read in (
            text,
            _text_or_messages,
            scalar_text,
            identifier,
            finish_reason,
            _name,
            _grader,
        )


COLUMNS: tuple[Column, ...] = (
    Column("dataset", "table", _name, "the id of the dataset", (),
    ("dataset_name", "dataset_id", "benchmark", "task_name")),
    Column("id", "question", identifier, "the question's id", ("question_id",),
    ("qid", "problem_id", "task_id", "example_id", "doc_id", "question_idx", "problem_idx",
    "question_index", "unique_id")),
    Column("question", "question", text, "the question's text, without options", ("problem",),
    ("query", "instruction", "question_text", "problem_text", "input")),
    Column("gold", "question", scalar_text, "the gold answer", ("target", "ground_truth"),
    ("reference", "reference_answer", "gold_answer", "gold_label", "correct_answer",
    "expected_answer", "expected", "answer_key", "gt", "gt_answer")),
    Column("choices", "question", choices_of, "the options", ("options",)),
    Column("features", "question", _features, "an object: what else is known of the question"),
    Column("prompt", "request", _prompt, "what was sent: a text, or a list of messages"),
    Column("prompt_tokens", "request", whole_number, "tokens of what was sent",
    ("input_tokens", "usage.prompt_tokens", "usage.input_tokens", "usage.prompt_token_count"),
    ("num_prompt_tokens", "num_input_tokens", "n_prompt_tokens")),
    Column("llm", "llm", _name, "name of the LLM", ("model", "model_name"),
    ("model_id", "llm_name", "generator")),
    Column("temperature", "llm", not_negative, "temperature of the decoding"),
    Column("max_tokens", "llm", positive, "limit on output tokens"),
    Column("decoding", "llm", _decoding, "other parameters of the decoding"),
    Column("sample", "cot", _sample,
    "number of the CoT among those of its question and LLM, which orders them; or any other name",
    ("sample_id", "sample_index"),
    ("sample_idx", "sample_number", "trial", "attempt", "rollout", "idx_answer")),
    Column("text", "cot turn probe", _text_or_messages, "the CoT: a text, or its messages",
    ("completion", "response", "generation"),
    ("output", "generated_text", "model_output", "raw_output", "cot", "chain_of_thought",
    "rationale", "reply", "traj", "messages")),
    Column("answer", "cot turn probe", scalar_text, "the answer that was extracted",
    ("prediction", "extracted_answer"),
    ("pred", "parsed_answer", "predicted_answer", "model_answer", "final_answer")),
    Column("tokens", "cot turn probe", whole_number, "output tokens, hidden reasoning included",
    ("output_tokens", "completion_tokens", "usage.completion_tokens", "usage.output_tokens",
    "usage.candidates_token_count"),
    ("num_tokens", "n_tokens", "token_count", "num_output_tokens", "generated_tokens",
    "completion_length")),
    Column("finish_reason", "cot turn", finish_reason, "why the CoT ended", (), ("stop_reason",)),
    Column("reasoning", "cot turn", text, "reasoning that was given apart from the text",
    ("reasoning_content", "thinking")),
    Column("reasoning_tokens", "cot turn", whole_number,
    "how many of the output tokens were reasoning",
    ("usage.completion_tokens_details.reasoning_tokens",
    "usage.output_tokens_details.reasoning_tokens", "usage.reasoning_tokens")),
    Column("cached_tokens", "cot turn", whole_number,
    "how many of the prompt's tokens came from a cache",
    ("usage.prompt_tokens_details.cached_tokens", "usage.input_tokens_details.cached_tokens",
    "usage.prompt_cache_hit_tokens", "usage.cached_content_token_count")),
    Column("thoughts_tokens", "cot turn", whole_number,
    "tokens of thoughts counted beside the output (Gemini), to which they are added",
    ("usage.thoughts_token_count",)),
    Column("cache_read_tokens", "cot turn", whole_number,
    "tokens read from a cache beside the prompt (Anthropic), added to it",
    ("cache_read_input_tokens", "usage.cache_read_input_tokens")),
    Column("cache_write_tokens", "cot turn", whole_number,
    "tokens written to a cache beside the prompt (Anthropic), added to it",
    ("cache_creation_input_tokens", "usage.cache_creation_input_tokens")),
    Column("stated_total_tokens", "cot turn", whole_number,
    "tokens of prompt and output together, which tells what is inside them",
    ("usage.total_tokens", "usage.total_token_count")),
    Column("score", "cot turn", _by_scorer(_score), "a score, or an object scorer -> score",
    ("scores",)),
    Column("step_scores", "cot turn", _by_scorer(number_list),
    "a score for each step, or an object scorer -> such a list"),
    Column("verdict", "cot turn", _verdicts,
    "how right the CoT is, from 0 to 1, by who graded it, or an object grader -> such a number"),
    Column("grader", "cot turn", _grader, "who or what gave the verdict"),
    Column("sequence_logprob", "cot turn", _logprob,
    "log-probability of the whole CoT; by default the sum of its tokens'",
    ("cumulative_logprob",)),
    Column("token_logprobs", "cot turn", _logprobs, "log-probability of each token", ("logprobs",)),
    Column("token_confidences", "cot turn", number_list,
    "minus the mean log-probability of the top k at each token (DeepConf)"),
    Column("duration_s", "cot turn", not_negative, "seconds that the reply took",
    ("duration", "latency_s", "latency")),
    Column("duration_s", "cot turn", _milliseconds, "milliseconds that the reply took",
    ("duration_ms", "latency_ms")),
    Column("first_token_s", "cot turn", not_negative, "seconds to the first token",
    ("ttft_s", "ttft", "time_to_first_token")),
    Column("first_token_s", "cot turn", _milliseconds, "milliseconds to the first token",
    ("first_token_ms", "ttft_ms", "time_to_first_token_ms")),
    Column("tool_calls", "cot turn", _tool_calls,
    "the tools that the CoT calls, each with name and arguments", ("message.tool_calls",)),
    Column("usd", "cot turn", _usd, "USD that the CoT cost, its prompt included",
    ("cost_usd", "usd_cost", "inference_cost")),
    Column("seed", "cot turn", _seed, "the seed that was sent"),
    Column("response_id", "cot turn", text, "the provider's id of the reply"),
    Column("served_model", "cot turn", text, "the model that the provider says answered"),
    Column("system_fingerprint", "cot turn", text, "the provider's fingerprint of its system"),
    Column("recorded_at", "cot turn", text, "when the CoT was recorded"),
    Column("node", "cot", identifier, "name of the step, among those of its question and LLM"),
    Column("parent", "cot", identifier, "name of the step before"),
    Column("ends", "cot", _truth,
    "whether the step ends a solution; by default, whether it has an answer, null included"),
    Column("turns", "cot", _objects, "replies to the CoT, one after the other"),
    Column("turn_messages", "cot turn", _messages,
    "what was sent for a turn, behind the CoT it replies to, like `prompt`"),
    Column("turn_prompt_tokens", "cot turn", whole_number,
    "tokens of all that was sent for a turn"),
    Column("step_stop", "llm", text, "the string that ends a step"),
    Column("step_policy", "llm", text, "which steps were gone on from when the tree was recorded"),
    Column("probes", "cot", _objects, "answers that the LLM gave when it was made to answer early"),
    Column("probe_cue", "llm", text, "what was appended to make the LLM answer early"),
    Column("offset", "probe", positive, "output tokens of the CoT before the probe"),
    Column("confidence", "probe", _confidence, "how sure the LLM was of the probe's answer"),
)  # fmt: skip
"""Every known column. Two of one name are the same quantity in two units."""

USAGE = {
    "reasoning_tokens": "reasoning", "cached_tokens": "cached", "thoughts_tokens": "thoughts",
    "cache_read_tokens": "cache_read",
    "cache_write_tokens": "cache_write", "stated_total_tokens": "total",
}  # fmt: skip
"""Columns whose meaning depends on the others: column -> argument of
`feval.cards.tokens.Usage.from_reply`.
"""

_WITHOUT_UNIT = frozenset({"duration", "latency", "ttft", "time_to_first_token"})
_DERIVED = frozenset({"total_tokens"})  # the sum of two others


def names_of(*parts: str) -> dict[str, Column]:
    """Return the columns of some of table, question, request, llm, cot, turn and probe, by every
    name they are written under.
    """
    columns = [column for column in COLUMNS if {*column.of.split()} & {*parts}]
    # A column's own name is its own only: "duration_ms" is not "duration_s".
    names = {column.name: column for column in reversed(columns)}
    return names | {alias: column for column in columns for alias in column.aliases}


def turn_names() -> dict[str, Column]:
    """Return the same for the object of a turn, whose messages and prompt tokens are its own."""
    names = names_of("turn")
    tokens = {
        name: names["turn_prompt_tokens"]
        for name, column in names_of("request").items()
        if column.name == "prompt_tokens"
    }
    return names | tokens | {"messages": names["turn_messages"]}


def question_names(*parts: str) -> dict[str, Column]:
    """Return the same for a line per question, where `answer` is the gold."""
    names = names_of(*parts)
    return names | {"answer": names["gold"]}


_Plan = tuple[list[tuple[int, str, _Read]], list[int], frozenset[str]]
"""How rows with the same members are read: the places of the known ones and their columns; the
places of others; known ones that state no unit, which are seconds.
"""


class RowReader:
    """Reads the known columns of rows, by the names from `names_of`; how rows with the same members
    are read is worked out once.
    """

    _MOST_PLANS = 1000  # rows whose members are names of their own are read one by one

    def __init__(self, names: Mapping[str, Column]) -> None:
        self._names = names
        self._plans: dict[tuple[str, ...], _Plan] = {}

    def read(self, row: Row, where: str) -> tuple[Row, Row, frozenset[str]]:
        """Read a row, as the source has it; `where` is such as "line 3 of x.jsonl".

        Returns:
            feval's name of each column -> value; the unknown members, under the row's own names;
            and the known ones that state no unit.

        Raises:
            SourceError: a value does not have its column's type.
            ConflictError: two names of one column have two values.
        """
        if row.get("question_id") is not None and "id" in row:  # the latter is the row's own
            row = {name: value for name, value in row.items() if name != "id"}
        members = tuple(row)
        values: Sequence[Any] = list(row.values())
        if isinstance(row.get("usage"), dict):
            pairs = list(_flat(row.items()))
            members, values = tuple(name for name, _ in pairs), [value for _, value in pairs]
        known, unknown, without_unit = self._plans.get(members) or self._plan(members)
        try:
            read = {
                name: None if (value := values[place]) is None else reader(value, "")
                for place, name, reader in known
            }
        except SourceError:
            read = {}  # read again below, to say where it is
        if len(read) < len(known):
            read = self._read_checked(members, values, known, where)
        return read, {members[i]: values[i] for i in unknown if values[i] is not None}, without_unit

    def _plan(self, members: tuple[str, ...]) -> _Plan:
        if len(self._plans) == self._MOST_PLANS:
            self._plans.clear()
        columns = [self._names.get(member) for member in members]
        plan = self._plans[members] = (
            [(i, column.name, column.read) for i, column in enumerate(columns) if column],
            [i for i, each in enumerate(columns) if not each and members[i] not in _DERIVED],
            _WITHOUT_UNIT & set(members) & self._names.keys(),
        )
        return plan

    def _read_checked(
        self,
        members: Sequence[str],
        values: Sequence[Any],
        known: Sequence[tuple[int, str, _Read]],
        where: str,
    ) -> Row:
        """Read one value after the other; say which is wrong, or which two differ."""
        read: Row = {}
        first: dict[str, int] = {}
        for place, name, reader in known:
            value, column = values[place], self._names[members[place]]
            if value is None:
                read.setdefault(name, None)
                continue
            try:
                content = reader(value, f"{members[place]!r} of {where}")
            except SourceError as error:
                raise SourceError(
                    f"{str(error).removesuffix(_ADVICE)}It is read as {column.about}: correct it,"
                    " or rename it if it holds something else."
                ) from error
            if name in first and read[name] != content:
                one, other = (f"{members[i]!r} ({values[i]!r:.40})" for i in (first[name], place))
                raise ConflictError(
                    f"{sentence_start(where)} has {one} and {other}, which are two names of one"
                    f" column ({name!r}: {column.about}), and they differ. Remove or rename one of"
                    f" them.{_HINTS.get(name, '')}"
                )
            read[name], first[name] = content, place
        return read


_HINTS = {"answer": " A gold answer is named 'gold'.", "text": " What was sent is named 'prompt'."}


def _flat(items: Iterable[tuple[str, Any]], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Yield the members of a row; nested counts have names with dots."""
    for name, value in items:
        if isinstance(value, dict) and (prefix or name == "usage"):
            yield from _flat(value.items(), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def examples(values: Row) -> str:
    """Return names with one value each, for a note."""
    return some((f"{name:.40} (such as {value!r:.40})" for name, value in values.items()), 20)
