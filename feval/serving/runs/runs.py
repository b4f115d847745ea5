"""Runs: who asks. Each has its own place in every pool and its own ledger, so that methods and replicates keep apart.

Runs with one replicate see the same draws, whatever their names: two methods are compared on the same CoTs.
"""

from __future__ import annotations

import logging
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from feval.errors import ConflictError, NotRecordedError, UnknownNameError
from feval.replay import LLM
from feval.replay.draws import MAX_REPLICATES
from feval.serving.errors import RequestError, UsedUpError
from feval.serving.kept import Kept
from feval.serving.matching.templates import Use, UsedTemplates, difference
from feval.serving.runs.accounts import Account, Picked, Taken

if TYPE_CHECKING:
    from feval.serving.runs.ledger import LedgerFile

__all__ = [
    "ORDERS",
    "Picked",
    "RunName",
    "Runs",
    "Taken",
    "chosen_run",
    "count_entry",
    "may_be_secret",
    "run_name",
    "run_of_key",
]

ORDERS = ("recorded", "seeded")
"""How a run that does not say so draws: the order of the recording, or replicate 0."""

_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63})(?:@([0-9]{1,7}|recorded))?")
_SECRET = re.compile(
    r"(sk|pk|rk|hf|gsk|xai|gh[pous]|glpat|r8|nvapi|pplx|csk)[-_].*|github_pat_.*|(AIza|eyJ|AKIA|ya29).*", re.DOTALL
)
_NUMBERED = re.compile(r"(.{1,60})-([0-9]{1,2})")
_SHORTEST_SECRET = 32
_SHORTEST_MARKED_SECRET = 20  # one that begins as keys do
_LOG = logging.getLogger(__name__)
_PAUSE_S = 5  # a program that is started again takes about as long to its first request
_MOST_RUNS = 100_000
_MOST_RECYCLED = 1024
_ORDER_BYTES = 32 << 20
_ROWS_AT_ONCE = 512
_KEYS_AT_ONCE = 1 << 15  # of wide pools, fewer rows: drawing more holds up every other request
_TEMPLATE_BYTES = 4 << 20
_OVERHEAD = 200
_ARRAY_BYTES = 90  # besides its items


@dataclass(frozen=True, slots=True)
class RunName:
    """A run.

    Attributes:
        label: as it is shown.
        replicate: which draws it sees; `None` for recorded order.
    """

    label: str
    replicate: int | None


def run_name(text: str, order: str = "seeded") -> RunName:
    """Read the name of a run: `NAME`, `NAME@R` for replicate R, or `NAME@recorded`.

    Args:
        text: the name.
        order: what a name without "@" means, one of `ORDERS`.

    Raises:
        RequestError: no run can be called so.
    """
    usual = 0 if order == "seeded" else None
    found = _NAME.fullmatch(text)
    if found is None:
        raise RequestError(
            f"No run can be called {text[:80]!r}. A name has up to 64 letters, digits, '.', '_' and '-', begins with a letter or "
            "digit, and may end with @R for replicate R or with @recorded.",
            code="bad_run",
        )
    name, said = found.groups()
    replicate = usual if said is None else None if said == "recorded" else int(said)
    if replicate is not None and replicate > MAX_REPLICATES:
        raise RequestError(
            f"Replicates are numbered from 0 to {MAX_REPLICATES:,}; {text!r} asks for another one.", code="bad_run"
        )
    if replicate == usual:
        return RunName(name, replicate)
    return RunName(f"{name}@{'recorded' if replicate is None else replicate}", replicate)


@lru_cache(1024)  # what is refused is not kept
def chosen_run(text: str, order: str = "seeded") -> RunName:
    """Read the name of a run that a client put into its path or header, where a key would be kept and shown.

    Args:
        text: the name.
        order: as in `run_name`.

    Raises:
        RequestError: no run can be called so, or it looks like a secret.
    """
    if len(text) >= _SHORTEST_MARKED_SECRET and _SECRET.fullmatch(text):
        raise RequestError(
            "The name of this run looks like a secret key, and names are written down. Send a key as the API key, and name the "
            "run by a word of its own.",
            code="bad_run",
        )
    return run_name(text, order)


def may_be_secret(key: str) -> bool:
    """Whether an API key is not plainly the name of a run; empty ones and those of "-", "_" and "." alone are no secret.

    Args:
        key: as it was sent, without "Bearer".
    """
    if not key.strip("-_. "):
        return False
    return len(key) >= _SHORTEST_SECRET or not _NAME.fullmatch(key) or bool(_SECRET.fullmatch(key))


def run_of_key(key: str, order: str = "seeded") -> RunName:
    """Return the run of an API key. A key that may be a secret is not kept: its run is named by a hash of it.

    Args:
        key: as it was sent, without "Bearer".
        order: as in `run_name`.
    """
    if not key.strip("-_. "):
        return run_name("default", order)
    if not may_be_secret(key):
        try:
            return run_name(key, order)
        except RequestError:
            pass
    return run_name(f"key-{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}", order)


def _how_to_start_again(label: str) -> str:
    return (
        f"A run that asks again goes on with the next CoTs. To start again with the first ones, take a new name, such as "
        f"{_next_name(label)!r}, or reset the run: POST /run/{label}/feval/reset (in process: reset() of the HTTP client)."
    )


def _next_name(label: str) -> str:
    """A new name for a run that is to see the same draws: "mine-2" after "mine", "mine-3@1" after "mine-2@1"."""
    base, at, replicate = label.partition("@")
    numbered = _NUMBERED.fullmatch(base)
    stem, number = (numbered[1], int(numbered[2]) + 1) if numbered else (base[:60], 2)
    return f"{stem}-{number}{at}{replicate}"


class Runs:
    """Every run's place in every pool, and its ledger. Safe to use from many threads.

    Args:
        order: of runs that do not say so, one of `ORDERS`.
        recycle: whether a used-up pool starts over.
        billing: one of `feval.cards.prices.BILLINGS`.
        file: the ledger file, if there is one; its requests are those made so far.
        find: (dataset, LLM, question) -> LLM and row, for these requests.

    Raises:
        UnknownNameError: no such order.
        ConflictError: the ledger file speaks of CoTs that this recording would not have handed out.
    """

    def __init__(
        self,
        *,
        order: str = "seeded",
        recycle: bool = False,
        billing: str = "once",
        file: LedgerFile | None = None,
        find: Any = None,
    ) -> None:
        if order not in ORDERS:
            raise UnknownNameError.of("order", order, ORDERS)
        self.order, self.recycle, self.billing = order, recycle, billing
        self._runs: dict[str, Account] = {}
        self._orders = _Orders()
        self._templates: Kept[str, str] = Kept(_TEMPLATE_BYTES)
        self._lock = Lock()
        self._file = file
        for entry in file.entries if file is not None else ():
            self._again(entry, find)
        if file is not None:
            file.entries.clear()

    def take(
        self, name: RunName, asked: Sequence[Picked], tokens: Sequence[Sequence[int]] | None = None
    ) -> list[Taken]:
        """Hand out CoTs: of every question asked, or of none.

        Args:
            name: who asks.
            asked: the questions.
            tokens: of every recorded CoT of each of them, where they are at hand.

        Raises:
            UsedUpError: a pool has fewer left.
            RequestError: no such CoT was recorded, or there are too many runs.
            StorageError: the ledger file cannot be written.
        """
        drawn = [self._orders.of(one.llm, one.row, name.replicate) for one in asked]
        lengths = tokens or [one.llm.pool.output_tokens[one.row].tolist() for one in asked]
        with self._lock:
            run = self._run(name)
            first: dict[tuple[LLM, int], int] = {}
            for one, order in zip(asked, drawn, strict=True):
                key = one.llm, one.row
                place = first.get(key, run.place(key))
                first[key] = place + self._require(name, one, len(order), place)
            now = monotonic()
            if now - run.asked_at >= _PAUSE_S:
                self._note_repeat(run, asked)
            run.asked_at = now
            handed = zip(asked, drawn, lengths, strict=True)
            taken = [run.take(one, order, own, self.billing) for one, order, own in handed]
            for one, got in zip(asked, taken, strict=True):
                is_new = one.use is not None and run.templates.count(one.use)
                example = self._example(run.templates, one) if is_new else None
                if self._file is not None:
                    self._file.add(_entry(name, one, got, example))
        return taken

    def reset(self, name: RunName) -> None:
        """Begin a run again: its draws, its place in every pool and its ledger.

        Raises:
            NotRecordedError: it has asked nothing.
            StorageError: the ledger file cannot be written.
        """
        with self._lock:
            if name.label not in self._runs:
                raise self._unknown(name.label)
            if self._file is not None:
                self._file.add({"run": name.label, "reset": True})
            del self._runs[name.label]

    @staticmethod
    def _note_repeat(run: Account, asked: Sequence[Picked]) -> None:
        """Say once that a run goes on, where it seems to be started again: a question is asked again after a pause."""
        if not run.is_told and any(run.place((one.llm, one.row)) for one in asked):
            run.is_told = True
            _LOG.warning("The run %r asks again after a pause. %s", run.name.label, _how_to_start_again(run.name.label))

    def _example(self, templates: UsedTemplates, one: Picked) -> Sequence[str] | None:
        """Where a template that is new to a run begins to differ from its first one; `None` for the first one."""
        if one.template is None:
            return None
        dataset, template = one.llm.dataset, one.template
        self._templates.put(template.digest, template.text, len(template.text) + _OVERHEAD)
        first = templates.first(dataset)
        text = None if first in {None, template.digest} else self._templates.get(str(first))
        if text is None:
            return None
        example = difference(text, template.text)
        templates.illustrate(dataset, template.digest, example)
        return example

    def summary(self, label: str, *, detail: bool = False) -> dict[str, Any]:
        """The ledger of a run; see `Application.ledger`.

        Raises:
            NotRecordedError: it has asked nothing.
        """
        with self._lock:
            run = self._runs.get(label)
            if run is None:
                raise self._unknown(label)
            found = run.summary()
            asked = run.questions() if detail else None
        if asked is None:
            return found
        return found | {"asked": [self._told(run.name, *one) for one in asked]}

    def labels(self) -> list[str]:
        """Names of the runs, in the order in which they came."""
        with self._lock:
            return list(self._runs)

    def _unknown(self, label: str) -> NotRecordedError:
        names = list(self._runs)
        known = f"Those that have: {', '.join(names[-10:])}." if names else "Nor has any other."
        return NotRecordedError(f"The run {label!r} has asked nothing so far. {known}")

    def _run(self, name: RunName) -> Account:
        run = self._runs.get(name.label)
        if run is None:
            if len(self._runs) >= _MOST_RUNS:
                raise RequestError(
                    f"There are {_MOST_RUNS:,} runs already, and no server keeps more. Start another one."
                )
            run = self._runs[name.label] = Account(name)
        return run

    def _require(self, name: RunName, one: Picked, size: int, place: int) -> int:
        """Make sure that CoTs can be handed out; how many of them are of the draw."""
        if one.sample is not None:
            if one.sample >= size:
                raise RequestError(
                    f"{_pool(one, size)}, numbered from 0; sample {one.sample:,} was asked for.",
                    parameter="feval.sample",
                )
            return 0
        if one.n > size - place and not (self.recycle and size and one.n <= max(size, _MOST_RECYCLED)):
            raise _used_up(name, one, size, min(place, size), recycle=self.recycle)
        return one.n

    def _again(self, entry: Mapping[str, Any], find: Any) -> None:
        """Do once more what a ledger file tells."""
        name = run_name(entry["run"], self.order)
        if entry.get("reset"):
            self._runs.pop(name.label, None)
            return
        where = f"The ledger tells that run {name.label!r} was given CoTs of {entry['llm']} on {entry['question']!r}"
        found = find(entry["dataset"], entry["llm"], entry["question"])
        if found is None:
            raise ConflictError(f"{where}, which is not served now. Serve the same datasets and LLMs as before.")
        llm, row = found
        chosen = entry["samples"][0] if entry.get("chosen") else None
        run = self._run(name)
        order = self._orders.of(llm, row, name.replicate)
        if not len(order) or max(entry["samples"]) >= len(order):
            raise ConflictError(
                f"{where} that this recording does not have. Go on with the recording it was made with."
            )
        lengths = llm.pool.output_tokens[row].tolist()
        taken = run.take(Picked(llm, row, entry["n"], chosen), order, lengths, self.billing)
        if list(taken.samples) != entry["samples"]:
            raise ConflictError(
                f"{where} in another order than these draws. The file was changed, or is of another feval."
            )
        count_entry(run.templates, entry)

    def _told(
        self, name: RunName, llm: LLM, row: int, rounds: int, place: int, chosen: Mapping[int, int]
    ) -> dict[str, Any]:
        order = self._orders.of(llm, row, name.replicate)
        samples = [order[taken % len(order)] for taken in range(place)]
        return {
            "llm": llm.name,
            "dataset": llm.dataset,
            "question": llm.question_ids[row],
            "requests": rounds,
            "samples": samples + [sample for sample, times in chosen.items() for _ in range(times)],
        }


class _Orders:
    """The draws of many questions at once, kept for the next request."""

    def __init__(self) -> None:
        self._kept: Kept[tuple[LLM, int, int], list[array[int]]] = Kept(_ORDER_BYTES)

    def of(self, llm: LLM, row: int, replicate: int | None) -> Sequence[int]:
        """The whole draw of a question: recorded places."""
        if replicate is None:
            return range(llm.pool.sizes[row])
        width = max(int(llm.pool.codes.shape[1]), 1)
        many = min(max(_KEYS_AT_ONCE // width, 1), _ROWS_AT_ONCE)
        key = llm, replicate, row // many
        block = self._kept.get(key) or self._drawn(key, many, width)
        return block[row % many]

    def _drawn(self, key: tuple[LLM, int, int], many: int, width: int) -> list[array[int]]:
        llm, replicate, block = key
        sizes = llm.pool.sizes
        rows = np.arange(block * many, min((block + 1) * many, len(sizes)))
        drawn = llm.orders([replicate], width, rows)[0].tolist()
        # An array of NumPy's takes three times as long to cut.
        found = [array("H", own[:size]) for own, size in zip(drawn, sizes[rows].tolist(), strict=True)]
        self._kept.put(key, found, sum([own.itemsize * len(own) + _ARRAY_BYTES for own in found]))
        return found


def _pool(one: Picked, size: int) -> str:
    question = one.llm.question_ids[one.row]
    return f"{one.llm.name} has {size:,} recorded CoT{'s' * (size != 1)} on question {question!r} of {one.llm.dataset}"


def _used_up(name: RunName, one: Picked, size: int, given: int, *, recycle: bool) -> UsedUpError:
    left = size - given
    sentences = [
        f"{_pool(one, size)}; run {name.label!r} was given {given:,} of them, so {left:,} are left, and {one.n:,} were asked for."
    ]
    if given and one.n <= size:
        sentences.append(_how_to_start_again(name.label))
    advice = [f"ask for {left:,} or fewer"] * (left > 0)
    if recycle:
        advice = [f"ask for {max(size, _MOST_RECYCLED):,} or fewer"] if size else []
    elif size:
        advice.append("start the server with --recycle")
    todo = ", or ".join(advice) or "record some"
    sentences.append(f"Or {todo}." if len(sentences) > 1 else f"{todo[0].upper()}{todo[1:]}.")
    return UsedUpError(" ".join(sentences), parameter="n")


def _entry(name: RunName, one: Picked, taken: Taken, example: Sequence[str] | None) -> dict[str, Any]:
    entry = {
        "run": name.label,
        "dataset": one.llm.dataset,
        "llm": one.llm.name,
        "question": one.llm.question_ids[one.row],
        "samples": taken.samples,
        "n": len(taken.samples),
        "recycled": taken.recycled,
    }
    if one.use is not None:
        entry |= {"match": one.use.match, "template": one.use.digest}
        if one.use.mismatch is not None:
            entry["mismatch"] = one.use.mismatch
    if one.sample is not None:
        entry["chosen"] = True
    if example is not None:
        entry["example"] = example
    return entry


def count_entry(templates: UsedTemplates, entry: Mapping[str, Any]) -> None:
    """Count the template of a request in a ledger file; those of older files do not tell of it.

    Args:
        templates: of the run.
        entry: of the file.
    """
    if "match" not in entry:
        return
    digest = entry.get("template")
    templates.count(Use(entry["dataset"], digest, entry["match"], entry.get("mismatch")))
    if digest is not None and entry.get("example"):
        templates.illustrate(entry["dataset"], digest, entry["example"])
