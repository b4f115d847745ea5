"""The names of the FEval-TTC reference package (arXiv 2511.01203), over its zip or a feval
recording.

    from feval.compat.feval_ttc import load, DatasetType, LLMType

    dataset, [llm] = load(DatasetType.AQUA, [LLMType.Mixtral8x7B], api_path="api_responses.zip")
    for question_id, entry in dataset:
        response = llm(question_id, N=20)

The paper's listings and the reference package's scripts run as printed by `python -m feval.compat
SCRIPT.py`, which lets `feval_ttc` stand for this module. Without `api_path`, as Listing 1 calls
`load`, the environment variable FEVAL_RECORDING names the recordings.

**THIS MODULE DRAWS FROM PYTHON'S GLOBAL `random`**, as the reference package does: after
`random.seed(0)` it hands out the very CoTs that the reference package hands out, and so reproduces
its runs. It is the only module of feval that does. What you get depends on everything else that
draws from `random`, and two methods on one question see different draws. For anything but repeating
an old run, use `feval.load`, whose draws depend on nothing but (seed, dataset, question, LLM,
replicate).

`docs/import-rows.md` lists what is kept from the reference package, and what differs on purpose.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from feval import replay
from feval.cards import count_words, names, price_list
from feval.cards.billing import usd
from feval.cards.cards import our_dataset_id
from feval.cards.names import FINISH_REASONS, LLMType, ReferenceDataset
from feval.errors import (
    NotARecordingError,
    NotRecordedError,
    OutOfRangeError,
    PriceNotFoundError,
    SourceError,
)
from feval.importers.papers import read_feval_ttc, recorded_llms
from feval.importers.source import ImportRequest, SourcePool
from feval.recording import LLMInfo, Recording
from feval.report.files import save_files
from feval.values import inside

__all__ = [
    "LLM",
    "PRICES",
    "CoT",
    "CoTMetadata",
    "Dataset",
    "DatasetEntry",
    "DatasetType",
    "LLMConfig",
    "LLMRequest",
    "LLMResponse",
    "LLMType",
    "ModelCost",
    "available_models",
    "load",
]

_THEIR_FINISH_REASONS = {"length": "max_tokens", "error": "run_failed"}


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

_CoTs = Iterable[tuple[str | None, int, str, ReadText]]
_Constant = TypeVar("_Constant", bound=StrEnum)


class Model:
    """What the reference package's classes have from pydantic: dumps and copies."""

    __slots__ = ()
    _dumped: ClassVar[tuple[str, ...]] = ()
    """Where it is not the fields."""

    def model_dump(self, *, mode: _Mode = "python") -> dict[str, Any]:
        """Return the fields as a dict, theirs as dicts within; `mode="json"` makes plain strings of
        the constants.
        """
        return {name: _dump(getattr(self, name), mode) for name in self._dumped or self.__slots__}

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

    answer: str | None
    question: str


@dataclass(slots=True)
class Dataset(Model):
    """The questions. Iterating gives (row, entry); `datatype` is a plain id where the paper has no
    constant for it.
    """

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


class LLM(Model):
    """A recorded LLM. Call it with the row of a question to get CoTs.

    Attributes:
        config: name and decoding.
    """

    _dumped: ClassVar = ("config", "responses")

    def __init__(self, config: LLMConfig, source: _Source) -> None:
        self.config, self._source = config, source
        self._price = price_list(PRICES).find(str(config.name))

    def __repr__(self) -> str:
        return f"LLM({str(self.config.name)!r}, {len(self)} questions)"

    def __len__(self) -> int:
        """Number of questions."""
        return len(self._source.sizes)

    @cached_property
    def responses(self) -> list[LLMResponse]:
        """Return every question's response with all its CoTs, in recorded order (Listing 3)."""
        return [self._response(row, range(self._source.sizes[row])) for row in range(len(self))]

    def _response(self, row: int, samples: Sequence[int]) -> LLMResponse:
        price, (prompt, prompt_tokens) = self._price, self._source.request(row)
        cots = [
            CoT(
                answer,
                CoTMetadata(
                    None if price is None else usd(price, 0, tokens),
                    tokens,
                    _THEIR_FINISH_REASONS.get(reason, reason),
                ),
                text,
            )
            for answer, tokens, reason, text in self._source.cots(row, list(samples))
        ]
        dollars = None if price is None or prompt_tokens is None else usd(price, prompt_tokens, 0)
        return LLMResponse(cots, LLMRequest(prompt, dollars, prompt_tokens))

    def __call__(
        self,
        question_id: int,
        N: int = 40,  # noqa: N803  the reference package's name for it
        deterministic: bool = False,
    ) -> LLMResponse:
        """Hand out CoTs of a question, drawn without replacement FROM PYTHON'S GLOBAL `random`.

        Args:
            question_id: row of the question.
            N: how many; where no more were recorded, all of them, in recorded order, without
                drawing.
            deterministic: the first N in recorded order, without drawing.

        Raises:
            OutOfRangeError: N below 1.
            NotRecordedError: no such question.
        """
        if N < 1:
            raise OutOfRangeError(f"{self.config.name} gives 1 CoT or more; N={N} was asked for.")
        row = checked_row(question_id, len(self))
        recorded = range(self._source.sizes[row])
        drawn = len(recorded) > N and not deterministic
        return self._response(row, random.sample(recorded, k=N) if drawn else recorded[:N])


class ModelCost:
    """Prices of an LLM and the reference package's token estimate, 1.365 per word.

    Attributes:
        llm_type: the LLM.
        input_cost: USD per million input tokens.
        output_cost: USD per million output tokens.

    Raises:
        PriceNotFoundError: the price list 2025-06-02 does not have the LLM.
    """

    def __init__(self, llm_type: LLMType | str) -> None:
        self._price = price_list(PRICES).price(str(llm_type))
        self.llm_type = llm_type
        self.input_cost = self._price.input_usd_per_mtok
        self.output_cost = self._price.output_usd_per_mtok

    def input_dollar_cost(self, text: str) -> float:
        """Return the USD of sending a text."""
        return float(usd(self._price, self.token_cost(text), 0))

    def output_dollar_cost(self, text: str) -> float:
        """Return the USD of generating a text."""
        return float(usd(self._price, 0, self.token_cost(text)))

    def token_cost(self, text: str) -> int:
        """Return the tokens of a text by `feval.cards.tokens.count_words`."""
        return count_words(text)


def load(
    datatype: DatasetType | str, llms: Sequence[LLMType | str], api_path: str | Path | None = None
) -> tuple[Dataset, list[LLM]]:
    """Load a dataset and recorded LLMs.

    Args:
        datatype: the dataset, by feval's id or the reference package's string.
        llms: names of the LLMs.
        api_path: the reference package's zip, or the folder of a recording. `None`, as in Listing
            1, takes the recordings in the environment variable FEVAL_RECORDING.

    Returns:
        The dataset, and the LLMs in the order asked for.

    Raises:
        NotARecordingError: there is neither a zip nor a recording.
        UsageError: no `api_path`, and no FEVAL_RECORDING.
        NotRecordedError, UnknownNameError, SourceError: the recording or the zip lacks the dataset
            or an LLM, or is damaged.
    """
    source, dataset = _source(api_path), our_dataset_id(str(datatype))
    names = [str(llm) for llm in llms]
    if isinstance(source, Path):
        return _load_archive(source, dataset, names)
    return _load_recorded(source, dataset, names)


def available_models(
    datatype: DatasetType | str, api_path: str | Path | None = None
) -> list[LLMType | str]:
    """List the LLMs recorded on a dataset (arguments and errors as of `load`); one without a
    constant is a plain string.
    """
    source, dataset = _source(api_path), our_dataset_id(str(datatype))
    if isinstance(source, Path):
        found: Iterable[str] = recorded_llms(source, dataset)
    else:
        _first_with(source, dataset)
        found = (name for recording in source for name in recording.llm_names(dataset))
    return [_constant(LLMType, name) for name in found]


def _load_archive(path: Path, dataset: str, names: list[str]) -> tuple[Dataset, list[LLM]]:
    imported = read_feval_ttc(path, ImportRequest(dataset, tuple(names)))
    found = imported.llms if names else ()
    llms = [_llm(llm.info, _archived(list(llm.pools))) for llm in found]
    entries = [DatasetEntry(question.gold, question.text or "") for question in imported.questions]
    return Dataset(entries, _constant(DatasetType, dataset), imported.system_prompt), llms


def _load_recorded(
    recordings: list[Recording], dataset: str, names: list[str]
) -> tuple[Dataset, list[LLM]]:
    opened, replays = replay.load(dataset, names, recordings, prices=PRICES)
    entries = []
    for row, (_, entry) in enumerate(opened):
        gold = int(opened.gold[row])
        # The voting key; a gold that the answer kind cannot read has none, and stays as the dataset
        # writes it.
        entries.append(
            DatasetEntry(entry.answer if gold < 0 else opened.candidates(row)[gold], entry.question)
        )
    info = _first_with(recordings, dataset).dataset_info(dataset)
    llms = [_llm(llm.info, _recorded(llm)) for llm in replays]
    return Dataset(entries, _constant(DatasetType, dataset), info.system_prompt), llms


def _llm(info: LLMInfo, source: _Source) -> LLM:
    name = _constant(LLMType, info.name)
    return LLM(LLMConfig(name, info.temperature, info.max_tokens), source)


def _first_with(recordings: Sequence[Recording], dataset: str) -> Recording:
    """Return the first recording with a dataset; the error where none has it lists what the first
    holds.
    """
    holders = (each for each in recordings if dataset in each.manifest.datasets)
    first = next(holders, recordings[0])
    first.require(dataset)
    return first


class _Source(NamedTuple):
    """Where the CoTs of an LLM come from: how many there are of each question; answer, tokens,
    finish reason and text of some of a row; text and tokens of its request.
    """

    sizes: Sequence[int]
    cots: Callable[[int, list[int]], _CoTs]
    request: Callable[[int], tuple[str | None, int | None]]


def _archived(pools: list[SourcePool]) -> _Source:
    """Return the CoTs of one LLM from a zip, all in memory: the zip has one JSON text per LLM."""

    def cots(row: int, samples: list[int]) -> _CoTs:
        pool = pools[row]
        answers, tokens, reasons = pool.answers or (), pool.tokens or (), pool.finish_reasons or ()
        return [(answers[i], tokens[i], reasons[i], constant(pool.texts[i])) for i in samples]

    def request(row: int) -> tuple[str | None, int | None]:
        prompt = pools[row].prompt
        return None if prompt is None else prompt.text, pools[row].prompt_tokens

    return _Source([len(pool.texts) for pool in pools], cots, request)


def _recorded(llm: replay.LLM) -> _Source:
    """Return the CoTs of one LLM from a recording: arrays, and texts when they are looked at."""

    def cots(row: int, samples: list[int]) -> _CoTs:
        tokens = llm.pool.output_tokens[row, samples].tolist()
        reasons = [FINISH_REASONS[code] for code in llm.pool.finish[row, samples].tolist()]
        # read from disk when they are looked at
        texts = [lambda sample=sample: llm.texts(row)[sample] for sample in samples]
        return zip(llm.answers(row, samples), tokens, reasons, texts, strict=True)

    def request(row: int) -> tuple[str | None, int | None]:
        sent = llm.request(row)
        return _plain_prompt(sent.raw_text), sent.tokens

    return _Source(llm.pool.sizes.tolist(), cots, request)


def _plain_prompt(prompt: str | None) -> str | None:
    """Return a recorded request as text: the words of a single message, else its JSON."""
    try:
        messages = orjson.loads(prompt or "null")
    except orjson.JSONDecodeError:
        return prompt
    only = messages[0] if isinstance(messages, list) and len(messages) == 1 else None
    content = inside(only, "content")
    return content if isinstance(content, str) else prompt


def _source(api_path: str | Path | None) -> Path | list[Recording]:
    """Return the path of a zip, or opened recordings."""
    if api_path is None:
        return replay.open_recordings(None)
    path = Path(api_path)
    if not path.exists():
        raise NotARecordingError(
            f"api_path {path} does not exist; give the reference package's zip or a recording's"
            " folder."
        )
    return replay.open_recordings(path) if path.is_dir() else path


def _constant(kind: type[_Constant], name: str) -> _Constant | str:
    """The constant of a name, the name itself where there is none."""
    return kind(name) if name in set(kind) else name
