"""The recordings that are served."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from threading import RLock

from feval.cards.prices import PriceList
from feval.errors import NotRecordedError
from feval.recording.reader import Recording
from feval.replay import LLM, Dataset
from feval.replay.loading import load, open_recordings
from feval.serving.matching.shelves import Shelf

_NAMED = 5


class Library:
    """Recordings opened for serving, with a shelf per dataset; `lock` is held while questions or
    prompts are read.
    """

    def __init__(
        self,
        recording: str | Path | Recording | Sequence[str | Path | Recording] | None = None,
        *,
        datasets: str | Sequence[str] | None = None,
        llms: str | Sequence[str] | None = None,
        seed: int = 0,
        prices: str | Path | PriceList | None = None,
        billing: str = "once",
    ) -> None:
        self.recordings = open_recordings(recording)
        self.lock = RLock()
        pairs = _pairs(self.recordings, _name_list(datasets), _name_list(llms))
        self.shelves = [
            Shelf(
                *load(dataset, names, self.recordings, seed=seed, prices=prices, billing=billing),
                self.lock,
            )
            for dataset, names in pairs.items()
        ]
        self.datasets: dict[str, Dataset] = {
            shelf.dataset.id: shelf.dataset for shelf in self.shelves
        }
        self.llms: list[LLM] = [llm for shelf in self.shelves for llm in shelf.llms]
        for llm in self.llms:
            llm.require_whole_cots()

    def model_names(self) -> list[str]:
        """Return the names of the recorded LLMs, which a request can give as its model."""
        return list(dict.fromkeys(llm.name for llm in self.llms))

    def find(self, dataset: str, llm: str, question: str) -> tuple[LLM, int] | None:
        """Return an LLM by its full name and the row of a question by its id; `None` without such a
        pair.
        """
        for shelf in self.shelves:
            if shelf.dataset.id == dataset and question in shelf.rows:
                return next(
                    ((each, shelf.rows[question]) for each in shelf.llms if each.name == llm), None
                )
        return None

    def contents(self) -> str:
        """Return in words which LLMs were recorded on which datasets."""
        return "; ".join(
            f"{_some([llm.name for llm in shelf.llms])} on {shelf.dataset.id} ({len(shelf.ids):,}"
            " questions)"
            for shelf in self.shelves[:_NAMED]
        ) + (
            ""
            if len(self.shelves) <= _NAMED
            else f"; and {len(self.shelves) - _NAMED} more datasets"
        )


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"


def _name_list(names: str | Sequence[str] | None) -> list[str] | None:
    return (
        None
        if names is None
        else [names]
        if isinstance(names, str)
        else [str(name) for name in names]
    )


def _pairs(
    recordings: Sequence[Recording], datasets: Sequence[str] | None, llms: Sequence[str] | None
) -> dict[str, list[str]]:
    """Dataset -> names of the LLMs to serve on it."""
    recorded: defaultdict[str, list[str]] = defaultdict(list)
    for recording in recordings:
        for dataset, llm in recording.manifest.pairs:
            if llm not in recorded[dataset]:
                recorded[dataset].append(llm)
    all_llms = list(dict.fromkeys(llm for names in recorded.values() for llm in names))
    for noun, requested, available in (
        ("dataset", datasets, list(recorded)),
        ("LLM", llms, all_llms),
    ):
        for name in requested or ():
            if name not in available:
                raise NotRecordedError(
                    f"The {noun} {name!r} was to be served, but the recordings do not hold it. They"
                    f" hold {_some(available)}."
                )
    pairs = {
        dataset: served
        for dataset, names in recorded.items()
        if (datasets is None or dataset in datasets)
        and (served := [n for n in names if llms is None or n in llms])
    }
    if not pairs:
        what = (
            f"{_some(list(llms or all_llms))} on {_some(list(datasets or recorded))}"
            if all_llms
            else "any LLM"
        )
        raise NotRecordedError(f"Nothing is left to serve: the recordings hold no CoTs of {what}.")
    return pairs
