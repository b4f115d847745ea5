"""The front matter of a page: the YAML that the Hub and `datasets` read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from feval.cards.cards import find_dataset_card
from feval.cards.front_matter import refuse_bombs
from feval.errors import CardError
from feval.publish.configs import Config
from feval.publish.licences import OTHER, Licence, is_licence
from feval.recording import Recording

_SIZES = (
    (10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7,
    "1M<n<10M"),
    (10**8, "10M<n<100M"), (10**9, "100M<n<1B"), (10**10, "1B<n<10B"),
)  # fmt: skip
_TAGS = (
    "feval",
    "llm",
    "chain-of-thought",
    "test-time-compute",
    "self-consistency",
    "evaluation",
    "synthetic",
)
_OURS = frozenset((
    "annotations_creators", "configs", "dataset_info", "language", "license", "license_details",
    "license_link", "license_name",
    "pretty_name", "size_categories", "source_datasets", "tags", "task_categories",
))  # fmt: skip
_MOST_BYTES = 4 << 20
_MOST_DEPTH = 12


_MADE_TITLE = re.compile(
    r"Recorded chains of thought: .*|.*: recorded chains of thought", re.DOTALL
)
"""Titles that `card.default_title` makes; any other title was chosen by somebody."""


@dataclass(frozen=True, slots=True)
class EarlierMatter:
    """The front matter of an earlier page, as far as it stays.

    The title if somebody chose it, the licence if it is in the Hub's spelling (it may lack what
    `other` needs), and in `kept` tags, language and fields that feval does not write.
    """

    title: str | None = None
    licence: Licence | None = None
    kept: Mapping[str, Any] = field(default_factory=dict)


def front_matter(
    recording: Recording,
    configs: Sequence[Config],
    *,
    title: str,
    licence: Licence,
    licence_details: str,
    languages: Sequence[str],
    kept: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the fields of the front matter; `kept` are those of an earlier page, see
    `EarlierMatter`.
    """
    kinds = {record.get("answer_kind") for record in recording.manifest.datasets.values()}
    cots = sum(pair["cots"] for pair in recording.manifest.pairs.values())
    fields: dict[str, Any] = {
        "pretty_name": title,
        **licence.fields,
        "license_details": licence_details,
        **({"language": list(languages)} if languages else {}),
        "task_categories": [
            "text-generation",
            "question-answering",
            *(["multiple-choice"] * ("choice" in kinds)),
        ],
        "size_categories": [next((name for most, name in _SIZES if cots < most), "n>1T")],
        "annotations_creators": ["machine-generated"],
        **({"source_datasets": sources} if (sources := _sources(recording)) else {}),
        "tags": [*_TAGS, *(tag for tag in kept.get("tags", ()) if tag not in _TAGS)],
        "configs": [_config(config, default=place == 0) for place, config in enumerate(configs)],
        "dataset_info": [_info(config) for config in configs],
    }
    return fields | {name: value for name, value in kept.items() if name not in fields}


def earlier_matter(page: str, where: str) -> EarlierMatter | None:
    """Return what stays of an earlier page's front matter, `None` without any; raise a `CardError`
    if it is not plain YAML.
    """
    lines = page.replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != "---":
        return None
    ends = [number for number, line in enumerate(lines) if number and line.rstrip() == "---"]
    text = "\n".join(lines[1 : ends[0]]) if ends else ""
    if not ends or len(text) > _MOST_BYTES:
        raise CardError(
            f"The front matter of {where} has no end, or is too long. Correct it, or it would be"
            " lost."
        )
    try:
        refuse_bombs(text, f"The front matter of {where}", _MOST_DEPTH, yaml.SafeLoader)
        fields = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        first = str(error).splitlines()[0]
        raise CardError(
            f"The front matter of {where} is not YAML ({first}). Correct it, or it would be lost."
        ) from error
    if not isinstance(fields, dict):
        return None
    kept = {
        key: value for key, value in fields.items() if isinstance(key, str) and key not in _OURS
    }
    title, licence, tags, language = (
        fields.get(key) for key in ("pretty_name", "license", "tags", "language")
    )
    texts = (
        fields.get(key) if licence == OTHER else None for key in ("license_name", "license_link")
    )
    named = (text if isinstance(text, str) else None for text in texts)
    if isinstance(tags, list):
        kept["tags"] = [tag for tag in tags if isinstance(tag, str)]
    if isinstance(language, str | list) and language:
        kept["language"] = language
    return EarlierMatter(
        (
            title
            if isinstance(title, str) and title.strip() and not _MADE_TITLE.fullmatch(title)
            else None
        ),
        Licence(licence, *named) if isinstance(licence, str) and is_licence(licence) else None,
        kept,
    )


def _sources(recording: Recording) -> list[str]:
    """Return the repositories on the Hub that the questions are from, as far as dataset cards
    say.
    """
    cards = (find_dataset_card(dataset) for dataset in recording.dataset_ids())
    return list(
        dict.fromkeys(
            card.hub.repository for card in cards if card is not None and card.hub is not None
        )
    )


def _config(config: Config, *, default: bool) -> dict[str, Any]:
    files = [
        {
            "split": split.name,
            "path": split.paths[0] if len(split.paths) == 1 else list(split.paths),
        }
        for split in config.splits
    ]
    return {
        "config_name": config.name,
        **({"default": True} if default else {}),
        "data_files": files,
    }


def _info(config: Config) -> dict[str, Any]:
    return {
        "config_name": config.name,
        "features": config.features,
        "splits": [
            {"name": split.name, "num_bytes": split.arrow_bytes, "num_examples": split.rows}
            for split in config.splits
        ],
        "download_size": sum(split.file_bytes for split in config.splits),
        "dataset_size": sum(split.arrow_bytes for split in config.splits),
    }
