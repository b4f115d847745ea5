"""Load recorded LLMs: recorded CoTs are handed out as if an LLM had just been asked (FEval-TTC,
Listing 1).

    dataset, [llm] = load("bigbench_date", ["gpt-3.5-turbo"], recording="my-recording")
    for question_id, entry in dataset:
        response = llm(question_id, n=20)
        print(entry.question, response.cots[0].answer, response.dollar_cost)

Which CoTs are handed out is a pure function of (seed, dataset, question, LLM, replicate); see
`feval.replay.draws`. Loading maps one small file and creates no object per CoT; question texts and
CoT texts are read when they are asked for.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Self

from feval.arguments import checked
from feval.cards.billing import billing_text
from feval.cards.prices import GENAI, PriceList, changed_prices, price_list
from feval.errors import ConflictError, FevalError, FevalWarning, NotRecordedError, UsageError
from feval.hub import is_address, open_place, split_places as places
from feval.recording import Recording
from feval.recording.layout.format import cached_from
from feval.recording.layout.manifest import named_prices
from feval.recording.view import DatasetView, open_view
from feval.replay.dataset import Dataset
from feval.replay.llm import LLM, LazyPrices
from feval.replay.pools import Channels, Pool, RecordedChannels


@checked
def load(
    dataset: str | Path,
    llms: str | Sequence[str] | None = None,
    recording: str | Path | Recording | Sequence[str | Path | Recording] | None = None,
    *,
    seed: int = 0,
    prices: str | Path | PriceList | None = None,
    billing: str = "once",
    cache: str | None = None,
    scorer_cost: str | float | None = None,
    right: str | None = None,
    tier: str | None = None,
) -> tuple[Dataset, list[LLM]]:
    """Open recorded LLMs on a dataset, ready to vote (Listing 1).

    Args:
        dataset: id of the dataset, such as "gsm8k" or `DatasetType.GSM8K`; or, without `recording`,
            the address of a recording of one dataset on the Hugging Face Hub,
            `hf://namespace/name@commit`.
        llms: names of the LLMs; `None` opens all that were recorded.
        recording: a recording's folder or its address on the Hub, or several. `None` takes those in
            the environment variable FEVAL_RECORDING. Of a recording on the Hub only what is needed
            is fetched, once; the rest when it is asked for.
        seed: random seed for draws.
        prices: a price list, or its id, its file or another name of `price_list`, such as
            "genai-prices@2026-11-01"; "recorded" takes the USD that each CoT states; "none"
            switches dollars off; `None` takes what the recording names. An LLM without a price
            votes all the same; only asking for its dollars is an error.
        billing: "once" (eq. 1 of the paper), "per_round" or "per_sample".
        cache: which prompt tokens cost what a cache's do: "none", "recorded" (those of which the
            provider said so) or "prefix:LEAST,BLOCK" (what was sent before for the same question).
        scorer_cost: who pays for the scores that a method reads: "recorded", "none" or USD per
            score; `None` for what was recorded, where all of it was.
        right: what decides which CoTs are right: "gold"; "verdict", that of the recorded grader;
            "verdict>=X", which makes partial credit binary; `None`: the gold where a question has
            one, else the verdict.
        tier: "batch" for what the same would cost in a batch.

    Returns:
        The dataset and the LLMs, in the order asked for.

    Raises:
        NotRecordedError: the recordings lack the dataset or an LLM; the message lists what they
            hold.
        ConflictError: several recordings have the LLM, or contradict each other.
        UnknownNameError: no such price list, tier or billing.
        PriceNotFoundError: an LLM has no price in a batch.
        UsageError: a billing with "recorded" prices, which leave nothing to bill.
        RecordingError: a recording cannot be read.
        HubError: a recording cannot be fetched.
    """
    billing = billing_text(billing, cache, scorer_cost)
    if recording is None and is_address(dataset):
        [only] = recordings = open_recordings(dataset)
        dataset = _only_dataset(only)
    else:
        recordings = open_recordings(recording)
    names = _llm_names(recordings, str(dataset), llms)
    for each in recordings:
        each.prepare(
            str(dataset), [name for name in names if (str(dataset), name) in each.manifest.pairs]
        )
    view = open_view(recordings, str(dataset), names)
    lazy_prices = _lazy_prices(prices, recordings, view, names, billing, tier)
    opened = [
        LLM(view.of(name), _pool(name, view), seed=seed, prices=lazy_prices, billing=billing)
        for name in names
    ]
    return Dataset(view, names, right), opened


def open_recordings(
    recording: str | Path | Recording | Sequence[str | Path | Recording] | None,
) -> list[Recording]:
    """Open what `load` takes as its recording; `UsageError` if none was named."""
    if recording is None:
        recording = places(os.environ.get("FEVAL_RECORDING", ""))
        if not recording:
            raise UsageError(
                "No recording was named: give its folder (in Python: recording=FOLDER), or set"
                " FEVAL_RECORDING."
            )
    several = [recording] if isinstance(recording, (str, Path, Recording)) else list(recording)
    if not several:
        raise UsageError("No recording was named: the list of recordings is empty.")
    return [place if isinstance(place, Recording) else open_place(place) for place in several]


@dataclass(frozen=True)
class LoadRecipe:
    """How another process loads the same dataset and LLMs.

    Attributes:
        recordings: place (folder, or address on the Hub) and hash of each recording.
        loaded: names of all LLMs that were loaded together; they decide how questions and answers
            are numbered.
        llms: name and seed of those that are needed.
        prices: the price list; `None` where dollars are switched off.
    """

    recordings: tuple[tuple[str, str], ...]
    dataset: str
    loaded: tuple[str, ...]
    llms: tuple[tuple[str, int], ...]
    billing: str
    right: str | None
    prices: PriceList | None = field(hash=False)

    @classmethod
    def from_loaded(cls, dataset: Dataset, llms: Sequence[LLM]) -> Self:
        """Return the recipe for some LLMs that were loaded with a dataset."""
        folders = zip(dataset.recording_paths, dataset.recording_hashes, strict=True)
        return cls(
            tuple((cached_from(path) or str(path.absolute()), digest) for path, digest in folders),
            dataset.id,
            dataset.llm_names,
            tuple((llm.name, llm.seed) for llm in llms),
            llms[0].billing,
            dataset.right,
            llms[0].prices,
        )

    def load(self) -> tuple[Dataset, list[LLM]]:
        """Load them; `ConflictError` if a recording has changed."""
        recordings = open_recordings([place for place, _ in self.recordings])
        for recording, (place, expected) in zip(recordings, self.recordings, strict=True):
            if recording.hash != expected:
                raise ConflictError(
                    f"{place} has changed: its hash was {expected[:12]} and is now"
                    f" {recording.hash[:12]}."
                )
        prices = "none" if self.prices is None else self.prices
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FevalWarning)  # the first load gave them
            dataset, llms = load(
                self.dataset,
                self.loaded,
                recordings,
                prices=prices,
                billing=self.billing,
                right=self.right,
            )
        by_name = {llm.name: llm for llm in llms}
        return dataset, [by_name[name].seeded(seed) for name, seed in self.llms]


def _pool(llm: str, view: DatasetView) -> Pool:
    votes, llm_view = view.votes.llms[llm], view.of(llm)
    channels: Channels = RecordedChannels(llm_view.recording, view.votes.dataset, llm)
    if llm_view.rows is not None:
        channels = channels.rows(llm_view.rows, llm_view.code_tables.get(llm))
    return Pool(
        llm,
        votes.codes,
        votes.output_tokens,
        votes.prompt_tokens,
        votes.sizes,
        votes.read_finish,
        view.votes.candidate_counts(),
        view.votes.question_keys,
        channels,
    )


def _lazy_prices(
    prices: str | Path | PriceList | None,
    recordings: Sequence[Recording],
    view: DatasetView,
    llms: Sequence[str],
    billing: str,
    tier: str | None,
) -> LazyPrices:
    """Return a function that gives the price list; a list that the caller names is read at once, to
    report mistakes early. Recorded USD that nobody asked for are left out where some are missing.
    """
    own = partial(named_prices, [recording.manifest for recording in recordings])
    name = own() if prices is None else prices
    if tier is not None and not isinstance(name, PriceList):
        name = changed_prices(str(name), tier=tier) or name
    if name == "none":
        return lambda: None
    if billing != "once" and "recorded" in (name, getattr(name, "id", None)):
        raise UsageError(
            f"CoTs state their own USD (prices 'recorded'), so that nothing is left to bill"
            f" {billing!r}. Leave the billing out, or name a price list."
        )
    if isinstance(name, PriceList):
        listed = price_list(changed_prices("", tier=tier) or "", llms, named=lambda: name)
        return lambda: listed
    known = {llm for recording in recordings for llm in recording.manifest.llms}
    models = {
        str(scorer["parameters"].get("model"))
        for recording in recordings
        for scorer in recording.manifest.raw["scorers"]
    }

    @cache
    def read_prices() -> PriceList | None:
        if prices is None and name == "recorded":
            samples = view.votes.dataset
            if any(view.of(llm).recording.unpaid(samples, llm) for llm in llms):
                return None
        listed = price_list(name, llms, named=own, known=known | models)
        # genai-prices has only the LLMs that it is asked for
        for model in models - {*llms} if GENAI in str(name) else ():
            with suppress(FevalError):
                scoring = price_list(name, [model], named=own, known=known | models).prices
                listed = replace(listed, prices={**scoring, **listed.prices})
        return listed

    if prices is not None or tier is not None:
        read_prices()
    return read_prices


def only_name(noun: str, name: str | None, recorded: Iterable[str]) -> str:
    """Return the name that the user chose, else the only one recorded.

    Raises:
        NotRecordedError: none is.
        UsageError: several are.
    """
    if name is not None:
        return name
    names = list(dict.fromkeys(recorded))
    if len(names) == 1:
        return names[0]
    if not names:
        raise NotRecordedError(
            f"No {noun} is recorded there; `feval info` shows what a recording holds."
        )
    raise UsageError(
        f"{len(names)} {noun}s are recorded; choose one with --{noun.lower()}: {', '.join(names)}."
    )


def only_dataset(name: str | None, opened: Sequence[Recording]) -> str:
    """Return the dataset that the user chose, else the only one of some recordings; see
    `only_name`.
    """
    return only_name(
        "dataset", name, (each for recording in opened for each in recording.dataset_ids())
    )


def _only_dataset(recording: Recording) -> str:
    datasets = recording.dataset_ids()
    if len(datasets) != 1:
        where = recording.address or recording.path
        raise UsageError(
            f"{where} holds {len(datasets)} datasets ({', '.join(datasets) or 'none'}); name one"
            f" and give the address as the recording: load({(datasets or ['gsm8k'])[0]!r},"
            f" recording={str(where)!r})."
        )
    return datasets[0]


def _llm_names(
    recordings: Sequence[Recording], dataset: str, llms: str | Sequence[str] | None
) -> list[str]:
    """Return the LLMs asked for as plain strings; all of the dataset for `None`."""
    if llms is None:
        names = list(
            dict.fromkeys(llm for recording in recordings for llm in recording.llm_names(dataset))
        )
        if not names:
            recordings[0].require(dataset)
            raise NotRecordedError(
                f"{recordings[0].path} has the questions of {dataset}, but no LLM's CoTs on them."
            )
        return names
    names = [str(llms)] if isinstance(llms, str) else [str(llm) for llm in llms]
    if len(set(names)) < len(names):
        raise UsageError(f"The same LLM was asked for twice: {', '.join(names)}.")
    return names
