"""What both processes of a user's method need: how a callable is asked (`evaluate` asks trusted
Python, the worker users' files), and how messages travel: a length (four bytes, little-endian) and
a JSON text.
"""

from __future__ import annotations

import base64
import inspect
import json
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from feval.errors import FevalError, MethodError, UsageError
from feval.methods.protocol import LEDGER_FIELDS, Question, Rows
from feval.replay.meter import close_ledger, handed_out, require_recorded
from feval.values import Record, RecordLike

if TYPE_CHECKING:
    from feval.replay import LLM, Dataset, MeteredLLM


ID = "<question>"
"""Stands for a question's id in the worker's messages."""

_FEVAL = str(Path(__file__).parents[2])


class MethodAnswer(NamedTuple):
    """What a method did on one question.

    Attributes:
        answer: as the method spells it; `None` for no answer.
        ledgers: per LLM, the numbers of `LEDGER_FIELDS`.
        grown: where it is looked at closely, per LLM, place and tokens of what was handed out, see
            `handed_out`.
    """

    answer: str | None
    ledgers: list[list[int]]
    grown: Sequence[Sequence[tuple[int, int]]] = ()


def answers(
    method: Callable[..., Any],
    name: str,
    dataset: Dataset,
    llms: Sequence[LLM],
    rows: Rows | Sequence[int],
    replicate: int | None,
    *,
    closely: bool = False,
) -> Iterator[MethodAnswer]:
    """Ask a method some questions, one after the other; `None` for the replicate hands CoTs out in
    recorded order.

    Raises:
        MethodError: the method failed; the message names it and the question.
    """
    for row in map(int, rows):
        metered = [llm.ask(row, replicate) for llm in llms]
        where = f"The method {name} on question {dataset.question_ids[row]!r}"
        entry = dataset[row]
        question = Question(entry.question, entry.features, int(dataset.question_keys[row]))
        answer = call_method(method, where, question, metered)
        yield MethodAnswer(
            answer, closed_ledgers(metered), [*map(handed_out, metered)] if closely else ()
        )


def closed_ledgers(llms: Sequence[MeteredLLM]) -> list[list[int]]:
    """Close the ledgers of a question and return, per LLM, the numbers of `LEDGER_FIELDS`."""
    ledgers = [[int(getattr(llm, field)) for field in LEDGER_FIELDS] for llm in llms]
    for llm in llms:
        close_ledger(llm)
    return ledgers


def call_method(
    method: Callable[..., Any], where: str, question: str, llms: Sequence[Any]
) -> str | None:
    """Return the answer of a method to one question; messages begin with `where`, which names both.

    Raises:
        MethodError: it raised, asked for more CoTs than there are, or returned something that is
            neither text nor `None`.
    """
    with contained(where):
        answer = method(question, *llms)
        for llm in llms:
            require_recorded(llm)
        if answer is None:
            return None
        if isinstance(answer, str):
            return str.__str__(answer)  # a subclass could claim to equal anything
        if inspect.iscoroutine(answer):
            answer.close()
        shown = f"{answer!r:.80}, of type {type(answer).__name__}"
    raise MethodError(f"{where} returned {shown}. A method returns its answer as text, or None.")


def require_arguments(method: Callable[..., Any], name: str, llms: int) -> None:
    """Raise `UsageError` unless a method can be called with a question and so many LLMs."""
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):
        return  # written in C, for example: the first call shows
    try:
        signature.bind("", *[None] * llms)
    except TypeError as error:
        raise UsageError(
            f"The method {name}{signature} cannot be called with a question and {llms}"
            f" LLM{'s' * (llms != 1)}: {error}. Give as many LLMs as it takes; it is called as"
            " method(question, llm, ...)."
        ) from error


@contextmanager
def contained(where: str) -> Iterator[None]:
    """Run a user's code so that every exception but Ctrl-C becomes a `MethodError`; its sentence
    begins with `where`.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except FevalError as error:
        raise MethodError(f"{where} failed: {error}") from error
    except BaseException as error:
        raise MethodError(f"{where} raised {described(error)}.") from error


def described(error: BaseException) -> str:
    """Return type, message and place of an exception. The file's folder is left out: reports and
    receipts keep the sentence.
    """
    message = f": {error}" if str(error) else ""
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    users = [(file, line) for file, line in frames if not file.startswith((_FEVAL, "<"))]
    place = f" ({Path(users[-1][0]).name}, line {users[-1][1]})" if users else ""
    return f"{type(error).__name__}{message}{place}"


LENGTH = struct.Struct("<I")
"""The length before a message."""


def encoded(message: RecordLike) -> bytes:
    """Return a message as it goes through a pipe. Text that is no valid Unicode (lone surrogates)
    survives.
    """
    text = json.dumps(message, default=_json_value).encode("ascii")
    return LENGTH.pack(len(text)) + text


def decoded(text: bytes, revived: Callable[[Record], Any] | None = None) -> Record:
    """Return a message from its JSON text, of whose objects `revived` makes what was sent;
    `ValueError` for anything else.
    """
    try:
        message = json.loads(text, object_hook=revived)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(message, dict):
        raise ValueError("it is not an object")  # noqa: TRY004  as for text that is not JSON
    return message


KIND = "\0"
"""The key of an object that stands for an array or a data class; no other text begins with it."""


def _json_value(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {KIND: "array", "dtype": value.dtype.str, "shape": value.shape, "base64": data}
    if isinstance(value, np.generic):
        return value.item()
    if is_dataclass(value):
        names = (field.name for field in fields(value))
        return {KIND: type(value).__name__} | {name: getattr(value, name) for name in names}
    raise TypeError(f"{value!r:.80} cannot be sent to another process")
