"""What a recording looks like to `datasets` and to the Hub's viewer: configurations, splits and
features.

A configuration has one schema for all its splits: `datasets` assumes that every file has the
columns of the first. So there is one configuration for each dataset and part (`gsm8k` for its
samples, `gsm8k-questions`, `gsm8k-requests`, `gsm8k-texts` and, where there are any, `-reasoning`,
`-logprobs`, `-probes`, `-steps`, `-turns` and `-scores`), with one split for each LLM.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from feval.errors import DamagedRecordingError
from feval.recording import Recording
from feval.recording.layout.format import SCORES, open_regular, slug

MOST_SPLITS = 30
"""Splits of one configuration that the Hub's viewer shows; `datasets` loads any number."""

_PAIR_PARTS = (
    "samples",
    "requests",
    "texts",
    "reasoning",
    "logprobs",
    "probes",
    "steps",
    "turns",
    "timings",
)
_NOT_IN_SPLITS = re.compile(r"[^A-Za-z0-9_.]+")
_Files = tuple[str, list[str], str | None, str | None]
"""Name of a split, its paths, LLM, scorer."""
_RESERVED = frozenset(("all",))  # `datasets` takes it for all splits together


@dataclass(frozen=True, slots=True)
class Split:
    """The files of a part under a name that `datasets` accepts; `arrow_bytes` is their size in
    memory.

    Questions have no `llm`, only scores have a `scorer`; `nulls` counts the missing values of
    columns with any.
    """

    name: str
    paths: tuple[str, ...]
    rows: int
    file_bytes: int
    arrow_bytes: int
    llm: str | None = None
    scorer: str | None = None
    nulls: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Config:
    """One schema and its files with at least a row each, such as "gsm8k-texts" with the part
    "texts" of the dataset "gsm8k".
    """

    name: str
    dataset: str
    part: str
    features: list[dict[str, Any]]
    splits: tuple[Split, ...]


def configs_of(recording: Recording) -> list[Config]:
    """Return every configuration of a recording that has rows, samples first; `datasets` does not
    load empty files.
    """
    names, splits = _Names(), split_names(recording)
    samples = {dataset: names.take(slug(dataset)) for dataset in recording.dataset_ids()}
    configs = []
    for dataset, name in samples.items():
        parts = _parts(recording, dataset, splits)
        for part, files in parts.items():
            config_name = name if part == "samples" else names.take(f"{name}-{part}")
            if (config := _config(recording, config_name, dataset, part, files)) is not None:
                configs.append(config)
    return configs


def split_names(recording: Recording) -> dict[str, str]:
    """Return LLM -> the name of its split in every configuration, with the characters that
    `datasets` allows.
    """
    names = _Names(_RESERVED)
    return {llm: names.take(_split_name(llm), "_") for llm in recording.manifest.llms}


def _parts(
    recording: Recording, dataset: str, splits: Mapping[str, str]
) -> dict[str, list[_Files]]:
    """Return part -> the files of each split, the samples first."""
    parts: dict[str, list[_Files]] = {
        "samples": [],
        "questions": [("questions", recording.files("questions", dataset), None, None)],
    }
    for llm in recording.llm_names(dataset):
        for part in _PAIR_PARTS:
            if paths := recording.files(part, dataset, llm):
                parts.setdefault(part, []).append((splits[llm], paths, llm, None))
        for scorer in recording.scorers(dataset, llm):
            name, paths = (
                f"{splits[llm]}.{_split_name(scorer)}",
                recording.files(SCORES + scorer, dataset, llm),
            )
            parts.setdefault("scores", []).append((name, paths, llm, scorer))
    return parts


def _config(
    recording: Recording, name: str, dataset: str, part: str, files: Iterable[_Files]
) -> Config | None:
    names, splits, schema = _Names(), [], None
    for split, paths, llm, scorer in files:
        filled = tuple(path for path in paths if recording.file_record(path)["rows"])
        if filled:
            schemas, sizes, nulls = zip(
                *(_measured(recording.path / path) for path in filled), strict=True
            )
            schema = schema or schemas[0]
            rows, file_bytes = (
                sum(recording.file_record(path)[key] for path in filled)
                for key in ("rows", "bytes")
            )
            counts = sum(nulls, Counter[str]())
            splits.append(
                Split(
                    names.take(split, "_"),
                    filled,
                    rows,
                    file_bytes,
                    sum(sizes),
                    llm,
                    scorer,
                    counts,
                )
            )
    return (
        None
        if schema is None
        else Config(name, dataset, part, list(_features(schema)), tuple(splits))
    )


def _measured(path: Path) -> tuple[Any, int, Counter[str]]:
    """Return a Parquet file's schema, the size of its rows in memory, and its missing values by
    column.
    """
    try:
        with open_regular(path) as source, pq.ParquetFile(source) as file:
            size, nulls = 0, Counter[str]()
            for number in range(file.num_row_groups):
                group = file.read_row_group(number, use_threads=False)
                size += group.nbytes
                nulls.update(
                    {
                        name: column.null_count
                        for name, column in zip(group.column_names, group.columns, strict=True)
                    }
                )
            return file.schema_arrow, size, +nulls
    except (pa.ArrowException, OSError) as error:
        raise DamagedRecordingError(
            f"{path} cannot be read ({error}); run `feval verify`."
        ) from error


def _features(fields: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield Arrow fields as the front matter has them: `dtype` for plain ones, `list` for nested
    ones.
    """
    for column in fields:
        if pa.types.is_list(column.type):
            item = column.type.value_type
            yield {
                "name": column.name,
                "list": list(_features(item)) if pa.types.is_struct(item) else _dtype(item),
            }
        else:
            yield {"name": column.name, "dtype": _dtype(column.type)}


def _dtype(kind: Any) -> str:
    return {"double": "float64", "float": "float32"}.get(str(kind), str(kind))


def _split_name(llm: str) -> str:
    """Return an LLM's name with the characters that `datasets` allows in names of splits."""
    words = _NOT_IN_SPLITS.sub("_", llm)
    return re.sub(r"\.{2,}", ".", words).strip("._") or "llm"


class _Names:
    """Distinct names, also on a disk that does not tell "A" from "a"."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._taken = {name.casefold() for name in names}

    def take(self, base: str, joint: str = "-") -> str:
        """Return the name, or the name with a number where it is taken."""
        name, number = base, 1
        while name.casefold() in self._taken:
            number += 1
            name = f"{base}{joint}{number}"
        self._taken.add(name.casefold())
        return name
