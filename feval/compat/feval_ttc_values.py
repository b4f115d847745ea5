"""The values that the names of the FEval-TTC reference package stand for: datasets, requests, CoTs,
responses.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import orjson
from pydantic import BaseModel, ValidationError

from feval.cards import names
from feval.cards.cards import our_dataset_id
from feval.cards.names import LLMType, ReferenceDataset
from feval.errors import NotRecordedError, PriceNotFoundError, SourceError
from feval.report.files import save_files

PRICES = "2025-06-02"
"""The price list of the paper; every dollar here comes from it."""


class _ByReferenceString(ReferenceDataset):
    @classmethod
    def _missing_(cls, value: object) -> _ByReferenceString | None:
        known = our_dataset_id(str(value))
        return cls(known) if known in set(cls) else None


if TYPE_CHECKING:
    from feval.cards.names import DatasetType as DatasetType
else:  # made from the other's members, as an enumeration with members cannot be extended
    DatasetType = _ByReferenceString(
        "DatasetType", {one.name: one.value for one in names.DatasetType}, module=__name__
    )

_Mode = Literal["python", "json"]

ReadText = Callable[[], str | None]
"""Gives a text when it is looked at."""


class Model:
    """What the reference package's classes have from pydantic: dumps and copies."""

    __slots__ = ()
    _dumped: ClassVar[tuple[str, ...]]

    def model_dump(self, *, mode: _Mode = "python") -> dict[str, Any]:
        """Return the fields as a dict, theirs as dicts within; `mode="json"` makes plain strings of
        the constants.
        """
        return {name: _dump(getattr(self, name), mode) for name in self._dumped}

    def model_dump_json(self, *, indent: int | None = None) -> str:
        """Return the fields as JSON: one line, or indented by two spaces, whatever the number."""
        return orjson.dumps(
            self.model_dump(), option=None if indent is None else orjson.OPT_INDENT_2
        ).decode()

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy, with the fields in `update` set; `deep` copies what the fields hold,
        too.
        """
        copied = copy.deepcopy(self) if deep else copy.copy(self)
        for name, value in (update or {}).items():
            setattr(copied, name, value)
        return copied

    copy = model_copy


def _dump(value: Any, mode: _Mode) -> Any:
    if isinstance(value, Model):
        return value.model_dump(mode=mode)
    if isinstance(value, list):
        return [_dump(each, mode) for each in value]
    return str(value) if mode == "json" and isinstance(value, StrEnum) else value


@dataclass(slots=True)
class DatasetEntry(Model):
    """A question and its gold answer; `None` where the recording has no gold."""

    _dumped: ClassVar = ("answer", "question")

    answer: str | None
    question: str


@dataclass(slots=True)
class Dataset(Model):
    """The questions. Iterating gives (row, entry); `datatype` is a plain id where the paper has no
    constant for it.
    """

    _dumped: ClassVar = ("data", "datatype", "system_prompt")

    data: list[DatasetEntry]
    datatype: DatasetType | str
    system_prompt: str | None = None

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, question_id: int) -> DatasetEntry:
        return self.data[checked_row(question_id, len(self.data))]

    def __iter__(self) -> Iterator[tuple[int, DatasetEntry]]:
        return enumerate(self.data)


@dataclass(slots=True)
class CoTMetadata(Model):
    """What one CoT cost: USD of its output tokens (`None` without a price), the tokens, and how it
    ended.
    """

    _dumped: ClassVar = ("dollar_cost", "token_cost", "finish_reason")

    dollar_cost: float | None
    token_cost: int
    finish_reason: str

    @property
    def tokens(self) -> int:
        """Output tokens, as the paper's Listing 3 calls them."""
        return self.token_cost


@dataclass(slots=True)
class CoT(Model):
    """One chain of thought. Its text is read from a recording when it is first looked at."""

    _dumped: ClassVar = ("raw_text", "answer", "metadata")

    answer: str | None
    metadata: CoTMetadata
    _read_text: ReadText = field(repr=False, compare=False)

    @property
    def raw_text(self) -> str | None:
        """The text as the LLM wrote it; `None` where the recording has none."""
        return self._read_text()

    @raw_text.setter
    def raw_text(self, text: str | None) -> None:
        self._read_text = constant(text)

    @property
    def tokens(self) -> int:
        """Output tokens, as the paper's Listing 1 prints them."""
        return self.metadata.token_cost

    @property
    def dollar_cost(self) -> float | None:
        """USD of the output tokens, as the paper's Listing 1 prints it."""
        return self.metadata.dollar_cost


@dataclass(slots=True)
class LLMRequest(Model):
    """What was sent for a question. `None`: the recording does not have it, or (dollars) the LLM
    has no price.
    """

    _dumped: ClassVar = ("raw_text", "dollar_cost", "token_cost")

    raw_text: str | None
    dollar_cost: float | None
    token_cost: int | None

    @property
    def tokens(self) -> int | None:
        """Tokens of the request, as the paper's Listing 3 calls them."""
        return self.token_cost


@dataclass(slots=True)
class LLMResponse(Model):
    """The CoTs handed out for one question."""

    _dumped: ClassVar = ("cots", "request", "num_cots")

    cots: list[CoT]
    request: LLMRequest

    def __len__(self) -> int:
        return len(self.cots)

    @property
    def num_cots(self) -> int:
        """Number of CoTs."""
        return len(self.cots)

    @property
    def answers(self) -> list[str | None]:
        """The answer of each CoT, `None` where none was extracted."""
        return [cot.answer for cot in self.cots]

    @property
    def dollar_cost(self) -> float:
        """USD by eq. (1) of the paper: the request once, and every CoT.

        Raises:
            PriceNotFoundError: the LLM has no price, or the request's tokens were not recorded.
        """
        costs = [self.request.dollar_cost, *(cot.metadata.dollar_cost for cot in self.cots)]
        known = [cost for cost in costs if cost is not None]
        if len(known) < len(costs):
            raise PriceNotFoundError(
                f"This response has no dollars: its LLM is not in the price list {PRICES}, or the"
                " tokens of its request were not recorded. `token_cost` of each CoT is there all"
                " the same."
            )
        return sum(known)

    @property
    def token_cost(self) -> int:
        """Tokens of the request and of every CoT.

        Raises:
            NotRecordedError: the request's tokens were not recorded.
        """
        if self.request.token_cost is None:
            raise NotRecordedError(
                "The tokens of this response's request were not recorded; sum `token_cost` of the"
                " CoTs for output tokens."
            )
        return self.request.token_cost + sum(cot.metadata.token_cost for cot in self.cots)

    def to_json(self, filename: str | Path) -> None:
        """Write the response as JSON, in the reference package's form."""
        path = Path(filename)
        save_files(path.parent, {path.name: self.model_dump_json(indent=2).encode()}, replace=True)

    @classmethod
    def from_json(cls, filename: str | Path) -> Self:
        """Read a response that `to_json`, ours or the reference package's, wrote; dollars are as
        written in the file.
        """
        try:
            stored = _StoredResponse.model_validate_json(Path(filename).read_bytes())
        except OSError as error:
            raise SourceError(
                f"{filename} could not be read: {error.strerror or error}."
            ) from error
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"])) or "the whole file"
            raise SourceError(
                f"{filename} is not a response written by to_json: {place}: {first['msg']}."
            ) from error
        return cls(
            [CoT(cot.answer, cot.metadata, constant(cot.raw_text)) for cot in stored.cots],
            stored.request,
        )


class _StoredCoT(BaseModel):
    raw_text: str | None
    answer: str | None = None
    metadata: CoTMetadata


class _StoredResponse(BaseModel):
    cots: list[_StoredCoT]
    request: LLMRequest


@dataclass(slots=True)
class LLMConfig(Model):
    """An LLM and its decoding; `None` where the source does not say."""

    _dumped: ClassVar = ("name", "temperature", "max_tokens")

    name: LLMType | str
    temperature: float | None = None
    max_tokens: int | None = None


def checked_row(question_id: int, count: int) -> int:
    """Return a row of the questions; raise `NotRecordedError` where there is none."""
    if not 0 <= question_id < count:
        raise NotRecordedError(
            f"The questions are numbered 0 to {count - 1}; {question_id} was asked for."
        )
    return question_id


def constant(text: str | None) -> ReadText:
    """Return a reader of a text that is here already."""
    return lambda: text
