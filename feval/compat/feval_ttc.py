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

`docs/importing.md` lists what is kept from the reference package, and what differs on purpose.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar, NamedTuple

import orjson

from feval import replay
from feval.cards.billing import usd
from feval.cards.cards import our_dataset_id
from feval.cards.finish_reasons import FINISH_REASONS
from feval.cards.names import LLMType
from feval.cards.prices import price_list
from feval.cards.tokens import count_words
from feval.compat.feval_ttc_values import (
    PRICES,
    CoT,
    CoTMetadata,
    Dataset,
    DatasetEntry,
    DatasetType,
    LLMConfig,
    LLMRequest,
    LLMResponse,
    Model,
    ReadText,
    checked_row,
    constant,
)
from feval.errors import NotARecordingError, OutOfRangeError
from feval.importers.feval_ttc import read, recorded_llms
from feval.importers.source import ImportRequest, SourcePool
from feval.recording import Recording

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
        dollars = None
        if price is not None and prompt_tokens is not None:
            dollars = usd(price, prompt_tokens, 0)
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
        if len(recorded) <= N:
            samples: Sequence[int] = recorded
        elif deterministic:
            samples = recorded[:N]
        else:
            samples = random.sample(recorded, k=N)
        return self._response(row, samples)


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
    return (
        _load_archive(source, dataset, names)
        if isinstance(source, Path)
        else _load_recorded(source, dataset, names)
    )


def available_models(
    datatype: DatasetType | str, api_path: str | Path | None = None
) -> list[LLMType | str]:
    """List the LLMs recorded on a dataset (arguments and errors as of `load`); one without a
    constant is a plain string.
    """
    source, dataset = _source(api_path), our_dataset_id(str(datatype))
    if isinstance(source, Path):
        return [_llm_type(name) for name in recorded_llms(source, dataset)]
    _first_with(source, dataset)
    return [_llm_type(name) for recording in source for name in recording.llm_names(dataset)]


def _load_archive(path: Path, dataset: str, names: list[str]) -> tuple[Dataset, list[LLM]]:
    imported = read(path, ImportRequest(dataset, tuple(names)))
    llms = []
    for llm in imported.llms if names else ():
        config = LLMConfig(_llm_type(llm.info.name), llm.info.temperature, llm.info.max_tokens)
        llms.append(LLM(config, _archived(list(llm.pools))))
    entries = [DatasetEntry(question.gold, question.text or "") for question in imported.questions]
    return Dataset(entries, _datatype(dataset), imported.system_prompt), llms


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
    llms = []
    for llm in replays:
        config = LLMConfig(_llm_type(llm.name), llm.info.temperature, llm.info.max_tokens)
        llms.append(LLM(config, _recorded(llm)))
    return Dataset(entries, _datatype(dataset), info.system_prompt), llms


def _first_with(recordings: Sequence[Recording], dataset: str) -> Recording:
    """Return the first recording with a dataset; the error where none has it lists what the first
    holds.
    """
    first = next(
        (recording for recording in recordings if dataset in recording.manifest.datasets),
        recordings[0],
    )
    first.require(dataset)
    return first


class _Source(NamedTuple):
    """Where the CoTs of an LLM come from: how many there are of each question; answer, tokens,
    finish reason and text of some of a row; text and tokens of its request.
    """

    sizes: Sequence[int]
    cots: Callable[[int, list[int]], Iterable[tuple[str | None, int, str, ReadText]]]
    request: Callable[[int], tuple[str | None, int | None]]


def _archived(pools: list[SourcePool]) -> _Source:
    """Return the CoTs of one LLM from a zip, all in memory: the zip has one JSON text per LLM."""

    def cots(row: int, samples: list[int]) -> Iterable[tuple[str | None, int, str, ReadText]]:
        pool = pools[row]
        answers, tokens, reasons = pool.answers or (), pool.tokens or (), pool.finish_reasons or ()
        return [(answers[i], tokens[i], reasons[i], constant(pool.texts[i])) for i in samples]

    def request(row: int) -> tuple[str | None, int | None]:
        prompt = pools[row].prompt
        return None if prompt is None else prompt.text, pools[row].prompt_tokens

    return _Source([len(pool.texts) for pool in pools], cots, request)


def _recorded(llm: replay.LLM) -> _Source:
    """Return the CoTs of one LLM from a recording: arrays, and texts when they are looked at."""

    def cots(row: int, samples: list[int]) -> Iterable[tuple[str | None, int, str, ReadText]]:
        tokens = llm.pool.output_tokens[row, samples].tolist()
        reasons = [FINISH_REASONS[code] for code in llm.pool.finish[row, samples].tolist()]
        texts = [partial(_text_of, llm, row, sample) for sample in samples]
        return zip(llm.answers(row, samples), tokens, reasons, texts, strict=True)

    def request(row: int) -> tuple[str | None, int | None]:
        sent = llm.request(row)
        return _plain_prompt(sent.raw_text), sent.tokens

    return _Source(llm.pool.sizes.tolist(), cots, request)


def _text_of(llm: replay.LLM, row: int, sample: int) -> str | None:
    return llm.texts(row)[sample]


def _plain_prompt(prompt: str | None) -> str | None:
    """Return a recorded request as text: the words of a single message, else its JSON."""
    try:
        messages = orjson.loads(prompt or "null")
    except orjson.JSONDecodeError:
        return prompt
    only = messages[0] if isinstance(messages, list) and len(messages) == 1 else None
    content = only.get("content") if isinstance(only, dict) else None
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


def _datatype(dataset: str) -> DatasetType | str:
    return DatasetType(dataset) if dataset in set(DatasetType) else dataset


def _llm_type(name: str) -> LLMType | str:
    return LLMType(name) if name in set(LLMType) else name
