"""What a recording looks like to `datasets` and to the Hub's viewer: configurations, splits and features.

A configuration has one schema, whatever split is loaded: `datasets` takes the columns of the first file for those of all. The
Parquet files of a recording do not say whose rows they hold; their paths do. So there is one configuration for each dataset and
part (`gsm8k` for its samples, `gsm8k-questions`, `gsm8k-requests`, `gsm8k-texts` and, where there are any, `-reasoning`,
`-logprobs` and `-scores`), with one split for each LLM.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as own_field
from pathlib import Path
from typing import Any

from feval.errors import DamagedRecordingError
from feval.recording import Recording
from feval.recording.layout.format import SCORES, file_path, open_regular, slug

__all__ = ["MOST_SPLITS", "Config", "Split", "configs_of", "split_names"]

MOST_SPLITS = 30
"""Splits of one configuration that the Hub's viewer shows; `datasets` loads any number."""

_PAIR_PARTS = ("samples", "requests", "texts", "reasoning", "logprobs")
_NOT_IN_SPLITS = re.compile(r"[^A-Za-z0-9_.]+")
_RESERVED = frozenset(("all",))  # `datasets` takes it for all splits together


@dataclass(frozen=True, slots=True)
class Split:
    """One file under a name that `datasets` accepts.

    Attributes:
        name: letters, digits, "_" and "." between them.
        path: in the recording.
        rows: how many.
        file_bytes: of the file.
        arrow_bytes: of its rows in memory.
        llm: whose rows; `None` for questions.
        scorer: for scores.
        nulls: column -> how many of its values are missing, for columns that miss some.
    """

    name: str
    path: str
    rows: int
    file_bytes: int
    arrow_bytes: int
    llm: str | None = None
    scorer: str | None = None
    nulls: Mapping[str, int] = own_field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Config:
    """One schema and its files.

    Attributes:
        name: such as "gsm8k" or "gsm8k-texts".
        dataset: id of the dataset.
        part: "samples", "questions", ...
        features: as the front matter of a dataset card spells them.
        splits: with at least a row each.
    """

    name: str
    dataset: str
    part: str
    features: list[dict[str, Any]]
    splits: tuple[Split, ...]


def configs_of(recording: Recording) -> list[Config]:
    """Every configuration of a recording, samples first; what holds no row is left out, for `datasets` loads no empty file.

    Raises:
        DamagedRecordingError: a Parquet file cannot be read.
    """
    names, splits = _Names(), split_names(recording)
    samples = {dataset: names.take(slug(dataset)) for dataset in recording.dataset_ids()}
    configs = []
    for dataset, name in samples.items():
        parts = _parts(recording, dataset, splits)
        for part, files in parts.items():
            own = name if part == "samples" else names.take(f"{name}-{part}")
            if (config := _config(recording, own, dataset, part, files)) is not None:
                configs.append(config)
    return configs


def split_names(recording: Recording) -> dict[str, str]:
    """LLM -> the name of its split in every configuration, made of the letters that `datasets` allows."""
    names = _Names(_RESERVED)
    return {llm: names.take(_split_name(llm), "_") for llm in recording.manifest.llms}


def _parts(
    recording: Recording, dataset: str, splits: Mapping[str, str]
) -> dict[str, list[tuple[str, str, str | None, str | None]]]:
    """Part -> (name of the split, path, LLM, scorer) of each file, the samples first."""
    parts: dict[str, list[tuple[str, str, str | None, str | None]]] = {
        "samples": [],
        "questions": [("questions", file_path("questions", dataset), None, None)],
    }
    for llm in recording.llm_names(dataset):
        for part in _PAIR_PARTS:
            if (path := file_path(part, dataset, llm)) in recording.manifest.files:
                parts.setdefault(part, []).append((splits[llm], path, llm, None))
        for scorer in recording.scorers(dataset, llm):
            name, path = f"{splits[llm]}.{_split_name(scorer)}", file_path(SCORES + scorer, dataset, llm)
            parts.setdefault("scores", []).append((name, path, llm, scorer))
    return parts


def _config(
    recording: Recording, name: str, dataset: str, part: str, files: Iterable[tuple[str, str, str | None, str | None]]
) -> Config | None:
    names, splits, schema = _Names(), [], None
    for wanted, path, llm, scorer in files:
        record = recording.file_record(path)
        if record["rows"]:
            own, arrow_bytes, nulls = _looked_at(recording.path / path)
            schema = schema or own
            splits.append(
                Split(names.take(wanted, "_"), path, record["rows"], record["bytes"], arrow_bytes, llm, scorer, nulls)
            )
    return None if schema is None else Config(name, dataset, part, list(_features(schema)), tuple(splits))


def _looked_at(path: Path) -> tuple[Any, int, dict[str, int]]:
    """Schema of a Parquet file, what its rows take in memory, and how much is missing, one row group at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_regular(path) as source, pq.ParquetFile(source) as file:
            size, nulls = 0, Counter[str]()
            for number in range(file.num_row_groups):
                group = file.read_row_group(number, use_threads=False)
                size += group.nbytes
                nulls.update(
                    {name: column.null_count for name, column in zip(group.column_names, group.columns, strict=True)}
                )
            return file.schema_arrow, size, dict(+nulls)
    except (pa.ArrowException, OSError) as error:
        raise DamagedRecordingError(f"{path} cannot be read ({error}); run `feval verify`.") from error


def _features(fields: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Arrow fields as the front matter has them: `dtype` for plain ones, `list` and `struct` for what nests."""
    import pyarrow as pa

    for field in fields:
        if pa.types.is_list(field.type):
            item = field.type.value_type
            yield {"name": field.name, "list": list(_features(item)) if pa.types.is_struct(item) else _dtype(item)}
        else:
            yield {"name": field.name, "dtype": _dtype(field.type)}


def _dtype(kind: Any) -> str:
    return {"double": "float64", "float": "float32"}.get(str(kind), str(kind))


def _split_name(llm: str) -> str:
    """An LLM's name with the letters that `datasets` allows in the names of splits."""
    words = _NOT_IN_SPLITS.sub("_", llm)
    return re.sub(r"\.{2,}", ".", words).strip("._") or "llm"


class _Names:
    """Names that differ from each other, also on a disk that does not tell "A" from "a"."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {name.casefold() for name in taken}

    def take(self, wanted: str, joint: str = "-") -> str:
        """The name that was wanted, or that with a number behind it."""
        name, number = wanted, 1
        while name.casefold() in self._taken:
            number += 1
            name = f"{wanted}{joint}{number}"
        self._taken.add(name.casefold())
        return name
