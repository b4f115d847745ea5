"""Runs: who asks. Each has its own place in every pool and its own ledger, so that methods and replicates keep apart.

Runs with one replicate see the same draws, whatever their names: two methods are compared on the same CoTs.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from feval.draws import MAX_REPLICATES
from feval.errors import ConflictError, NotRecordedError, UnknownNameError
from feval.replay import LLM
from feval.serving.errors import RequestError, UsedUpError
from feval.serving.kept import Kept

if TYPE_CHECKING:
    from feval.serving.ledger import LedgerFile

__all__ = ["ORDERS", "Picked", "RunName", "Runs", "Taken", "chosen_run", "may_be_secret", "run_name", "run_of_key"]

ORDERS = ("recorded", "seeded")
"""How a run that does not say so draws: the order of the recording, or replicate 0."""

_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63})(?:@([0-9]{1,7}|recorded))?")
_SECRET = re.compile(
    r"(sk|pk|rk|hf|gsk|xai|gh[pous]|glpat|r8|nvapi|pplx|csk)[-_].*|github_pat_.*|(AIza|eyJ|AKIA|ya29).*", re.DOTALL
)
_SHORTEST_SECRET = 32
_SHORTEST_MARKED_SECRET = 20  # one that begins as keys do
_MOST_RUNS = 100_000
_MOST_RECYCLED = 1024
_ORDER_BYTES = 32 << 20
_ROWS_AT_ONCE = 512
_KEYS_AT_ONCE = 1 << 15  # of wide pools, fewer rows: drawing more holds up every other request
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


@dataclass(frozen=True, slots=True)
class Picked:
    """A question that is asked.

    Attributes:
        llm: who is asked.
        row: of the question.
        n: CoTs wanted.
        sample: the recorded place of the one CoT wanted; `None` for the next ones of the draw.
    """

    llm: LLM
    row: int
    n: int
    sample: int | None = None


class Taken(NamedTuple):
    """What was handed out for one question.

    A tuple, as every request makes one, and a frozen dataclass takes three times as long to make.

    Attributes:
        samples: recorded places, in draw order.
        recycled: how many of them, at the end, this run had been given before.
        remaining: CoTs of the pool that the run was not yet given.
        round: number of this request among the run's requests for the question, from 0.
        prompts: how many times the prompt is paid for now.
        output_tokens: of the CoTs.
    """

    samples: tuple[int, ...]
    recycled: int
    remaining: int
    round: int
    prompts: int
    output_tokens: int


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


class Runs:
    """Every run's place in every pool, and its ledger. Safe to use from many threads.

    Args:
        order: of runs that do not say so, one of `ORDERS`.
        recycle: whether a used-up pool starts over.
        billing: one of `feval.prices.BILLINGS`.
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
        self._runs: dict[str, _Run] = {}
        self._orders = _Orders()
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
            handed = zip(asked, drawn, lengths, strict=True)
            taken = [run.take(one, order, own, self.billing) for one, order, own in handed]
            if self._file is not None:
                for one, got in zip(asked, taken, strict=True):
                    self._file.add(_entry(name, one, got))
        return taken

    def summary(self, label: str, *, detail: bool = False) -> dict[str, Any]:
        """The ledger of a run; see `Application.ledger`.

        Raises:
            NotRecordedError: it has asked nothing.
        """
        with self._lock:
            run = self._runs.get(label)
            if run is None:
                raise NotRecordedError(f"The run {label!r} has asked nothing so far. {self._known()}")
            found = run.summary()
            asked = run.questions() if detail else None
        if asked is None:
            return found
        return found | {"asked": [self._told(run.name, *one) for one in asked]}

    def labels(self) -> list[str]:
        """Names of the runs, in the order in which they came."""
        with self._lock:
            return list(self._runs)

    def _known(self) -> str:
        names = list(self._runs)
        return f"Those that have: {', '.join(names[-10:])}." if names else "Nor has any other."

    def _run(self, name: RunName) -> _Run:
        run = self._runs.get(name.label)
        if run is None:
            if len(self._runs) >= _MOST_RUNS:
                raise RequestError(
                    f"There are {_MOST_RUNS:,} runs already, and no server keeps more. Start another one."
                )
            run = self._runs[name.label] = _Run(name)
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


class _Cursor:
    """A run's place in one pool."""

    __slots__ = ("chosen", "cots", "place", "rounds")

    def __init__(self) -> None:
        self.place = self.rounds = self.cots = 0
        self.chosen: dict[int, int] | None = None


class _Counts:
    """What a run has consumed of one LLM."""

    __slots__ = (
        "cots",
        "llm",
        "output_tokens",
        "prompt_tokens",
        "questions",
        "recycled",
        "requests",
        "unknown_prompts",
    )

    def __init__(self, llm: LLM) -> None:
        self.llm = llm
        self.requests = self.cots = self.prompt_tokens = self.output_tokens = 0
        self.questions = self.recycled = self.unknown_prompts = 0


class _Run:
    def __init__(self, name: RunName) -> None:
        self.name = name
        self._cursors: dict[tuple[LLM, int], _Cursor] = {}
        self._counts: dict[LLM, _Counts] = {}

    def place(self, key: tuple[LLM, int]) -> int:
        cursor = self._cursors.get(key)
        return 0 if cursor is None else cursor.place

    def take(self, one: Picked, order: Sequence[int], tokens: Sequence[int], billing: str) -> Taken:
        key = one.llm, one.row
        cursor = self._cursors.get(key)
        if cursor is None:
            cursor = self._cursors[key] = _Cursor()
        counts = self._counts.get(one.llm)
        if counts is None:
            counts = self._counts[one.llm] = _Counts(one.llm)
        samples, recycled = self._samples(one, order, cursor)
        prompts = 1 if billing == "per_round" else len(samples) if billing == "per_sample" else int(not cursor.rounds)
        counts.questions += not cursor.rounds
        output_tokens = sum([tokens[sample] for sample in samples])
        taken = Taken(samples, recycled, max(len(order) - cursor.place, 0), cursor.rounds, prompts, output_tokens)
        cursor.rounds += 1
        cursor.cots += len(samples)
        _count(counts, one, taken)
        return taken

    @staticmethod
    def _samples(one: Picked, order: Sequence[int], cursor: _Cursor) -> tuple[tuple[int, ...], int]:
        if one.sample is not None:
            cursor.chosen = cursor.chosen if cursor.chosen is not None else {}
            cursor.chosen[one.sample] = cursor.chosen.get(one.sample, 0) + 1
            return (one.sample,), 0
        size, first = len(order), cursor.place
        cursor.place += one.n
        if cursor.place <= size:
            return tuple(order[first : cursor.place]), 0
        samples = tuple(order[place % size] for place in range(first, cursor.place))
        return samples, min(one.n, cursor.place - size)

    def questions(self) -> list[tuple[LLM, int, int, int, dict[int, int]]]:
        return [(llm, row, c.rounds, c.place, dict(c.chosen or {})) for (llm, row), c in self._cursors.items()]

    def summary(self) -> dict[str, Any]:
        by_name: dict[str, list[_Counts]] = {}
        for counts in self._counts.values():
            by_name.setdefault(counts.llm.name, []).append(counts)
        return {
            "run": self.name.label,
            "replicate": self.name.replicate,
            **_summed(list(self._counts.values())),
            "llms": {name: _summed(own) for name, own in by_name.items()},
        }


def _count(counts: _Counts, one: Picked, taken: Taken) -> None:
    prompt = int(one.llm.pool.prompt_tokens[one.row])
    counts.requests += 1
    counts.cots += len(taken.samples)
    counts.output_tokens += taken.output_tokens
    counts.recycled += taken.recycled
    if prompt < 0:
        counts.unknown_prompts += taken.prompts
    else:
        counts.prompt_tokens += taken.prompts * prompt


def _pool(one: Picked, size: int) -> str:
    question = one.llm.question_ids[one.row]
    return f"{one.llm.name} has {size:,} recorded CoT{'s' * (size != 1)} on question {question!r} of {one.llm.dataset}"


def _used_up(name: RunName, one: Picked, size: int, given: int, *, recycle: bool) -> UsedUpError:
    left, other = size - given, f"{name.label.split('@')[0]}@{(name.replicate or 0) + 1}"
    advice = [f"ask for {left:,} or fewer"] * (left > 0) + [f"take another run, such as {other}"] * (one.n <= size)
    if recycle:
        advice = [f"ask for {max(size, _MOST_RECYCLED):,} or fewer"] if size else []
    elif size:
        advice.append("start the server with --recycle")
    todo = " or ".join(advice) or "record some"
    return UsedUpError(
        f"{_pool(one, size)}; run {name.label!r} was given {given:,} of them, so {left:,} are left, and {one.n:,} were asked "
        f"for. {todo[0].upper()}{todo[1:]}.",
        parameter="n",
    )


def _summed(counts: Sequence[_Counts]) -> dict[str, Any]:
    dollars, missing = _dollars(counts)
    found = {
        name: sum(getattr(own, name) for own in counts)
        for name in ("requests", "cots", "prompt_tokens", "output_tokens", "questions", "recycled")
    } | {"usd": dollars}
    return found if missing is None else found | {"usd_missing": missing}


def _dollars(counts: Sequence[_Counts]) -> tuple[float | None, str | None]:
    """USD of everything, or why there are none."""
    from feval.prices import usd

    total = 0.0
    for own in counts:
        prices, price = own.llm.prices, own.llm.price
        if prices is None:
            return None, "The recording was opened without a price list."
        if price is None:
            return None, f"The price list {prices.id!r} has no price for the LLM {own.llm.name!r}."
        if own.unknown_prompts:
            return None, f"The prompt tokens of {own.llm.name} were not recorded for every question."
        total += usd(price, own.prompt_tokens, own.output_tokens)
    return total, None


def _entry(name: RunName, one: Picked, taken: Taken) -> dict[str, Any]:
    entry = {
        "run": name.label,
        "dataset": one.llm.dataset,
        "llm": one.llm.name,
        "question": one.llm.question_ids[one.row],
        "samples": taken.samples,
        "n": len(taken.samples),
        "recycled": taken.recycled,
    }
    return entry if one.sample is None else entry | {"chosen": True}
