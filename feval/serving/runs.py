"""Every run's place in every pool, and its ledger.

Runs with the same replicate see the same draws, whatever their names: two methods are compared on
the same CoTs.
"""

from __future__ import annotations

import logging
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy, deepcopy
from functools import lru_cache
from hashlib import sha256
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from feval.cards.billing import usd
from feval.errors import ConflictError, NotRecordedError
from feval.publish.secrets import LIKE_A_KEY
from feval.replay import LLM
from feval.replay.draws import MAX_REPLICATES
from feval.serving.cots import ServedCot
from feval.serving.ledger import LedgerFile
from feval.serving.library import BoundedCache
from feval.serving.matcher import PoolRequest
from feval.serving.prompts import PromptCounts, excerpts, use_of_entry
from feval.serving.wire.calls import RequestError, Sender, UsedUpError
from feval.values import Record, RecordLike

ORDERS = ("recorded", "seeded")
"""What a run without a replicate draws: the order of the recording, or replicate 0."""

_LOG = logging.getLogger("feval.serving")
_MAX_RUNS = 100_000
_MAX_RECYCLED = 1024
_TEMPLATE_BYTES = 4 << 20
_OVERHEAD = 200  # bytes of a template besides its text
_DRAW_BYTES = 32 << 20
_DRAW_OVERHEAD = 90  # bytes of an array besides its items
_MAX_ROWS = 512
_MAX_KEYS = 1 << 15  # fewer rows of wide pools: drawing more would hold up every other request

Find = Callable[[str, str, str], tuple[LLM, int] | None]


class Runs:
    """Every run's place in every pool, and its ledger. Safe to use from many threads.

    With a ledger file, whose (dataset, LLM, question) `find` looks up, the runs continue where its
    requests end.

    Raises:
        ConflictError: the ledger file names CoTs that this recording would not have handed out.
    """

    def __init__(
        self,
        *,
        order: str = "seeded",
        recycle: bool = False,
        billing: str = "once",
        file: LedgerFile | None = None,
        find: Find | None = None,
    ) -> None:
        self.order, self.recycle, self.billing = order, recycle, billing
        self._runs: dict[str, Account] = {}
        self._draws = DrawCache()
        self._templates: BoundedCache[str, str] = BoundedCache(_TEMPLATE_BYTES)
        self._lock = Lock()
        self._file = file
        if file is not None and find is not None:
            for entry in file.entries:
                self._replay(entry, find)
            file.entries.clear()

    def take(
        self,
        name: RunName,
        requests: Sequence[PoolRequest],
        reads: Sequence[Callable[[Sequence[int]], list[ServedCot]]],
        sender: Sender | None = None,
    ) -> list[Handout]:
        """Hand out CoTs: for every one of some requests, or for none; `sender` is what they come
        from.

        `reads` return what is sent of the CoTs of each.

        Raises:
            MissError: a CoT cannot be sent as the request asks.
            UsedUpError: a pool has fewer left.
            RequestError: no such CoT was recorded, or there are too many runs.
            StorageError: the ledger file cannot be written.
        """
        draws = [self._draws.of(*request.key, name.replicate) for request in requests]
        with self._lock:
            run = self._run(name)
            places: dict[tuple[LLM, int], int] = {}
            cots: list[list[ServedCot]] = []
            for request, draw, read in zip(requests, draws, reads, strict=True):
                place = places.get(request.key, run.place(request))
                places[request.key] = place + self._require(name, request, len(draw), place)
                cots.append(read(request.samples(draw, place)))
            again = run.begins_again(requests, sender)
            if again and not run.is_warned:
                run.is_warned = True
                _LOG.warning(
                    "The run %r asks again after it had gone on to other questions, and pays"
                    " again. %s",
                    name.label,
                    _how_to_start_again(name.label),
                )
            is_late = self._file is not None and self._file.is_late
            if is_late:  # a request that cannot be written, and is not answered, does not count
                run = run.copied()
            handouts = run.take(requests, draws, cots, self.billing, again=again)
            entries = []
            for handout in handouts:
                request = handout.request
                is_new = run.templates.count(request.use)
                example = self._example(run.templates, request) if is_new else None
                entries.append(_entry(name, handout, example))
            if self._file is not None:
                self._file.add(entries, at_once=is_late)
            self._runs[name.label] = run
        return handouts

    def reset(self, name: RunName) -> None:
        """Start a run again; `NotRecordedError` if it has asked nothing."""
        with self._lock:
            if name.label not in self._runs:
                raise self._unknown(name.label)
            if self._file is not None:
                self._file.add([{"run": name.label, "reset": True}], at_once=self._file.is_late)
            del self._runs[name.label]

    def summary(self, label: str, *, detail: bool = False) -> Record:
        """Return the ledger of a run, see `Application.ledger`; `NotRecordedError` if it has asked
        nothing.
        """
        with self._lock:
            run = self._runs.get(label)
            if run is None:
                raise self._unknown(label)
            summary, cursors = run.summary(), run.cursors() if detail else []
        if detail:
            summary["asked"] = []
        for llm, row, cursor in cursors:
            draw = self._draws.of(llm, row, run.name.replicate)
            taken = [
                (draw[place % len(draw)], cursor.cut.get(place)) for place in range(cursor.place)
            ]
            taken += [each for each, times in cursor.chosen.items() for _ in range(times)]
            asked = {
                "llm": llm.name,
                "dataset": llm.dataset,
                "question": llm.question_ids[row],
                "requests": cursor.rounds,
                "passes": cursor.visits,
                "samples": [sample for sample, _ in taken],
            }
            tokens = [number for _, number in taken]
            summary["asked"].append(asked | ({} if set(tokens) <= {None} else {"tokens": tokens}))
        return summary

    def labels(self) -> list[str]:
        """Return the names of the runs, in the order of their first requests."""
        with self._lock:
            return list(self._runs)

    def _example(self, templates: PromptCounts, request: PoolRequest) -> Sequence[str] | None:
        """Where a template that is new to a run begins to differ from its first one; `None` for the
        first one.
        """
        dataset, template, digest = request.llm.dataset, request.template, request.use.digest
        if template is None or digest is None:
            return None
        self._templates.put(digest, template, len(template) + _OVERHEAD)
        first = templates.first(dataset)
        text = None if first in {None, digest} else self._templates.get(str(first))
        if text is None:
            return None
        example = excerpts(text, template)
        templates.add_example(dataset, digest, example)
        return example

    def _unknown(self, label: str) -> NotRecordedError:
        names = list(self._runs)
        known = (
            f"Runs that have: {', '.join(names[-10:])}." if names else "No other run has, either."
        )
        return NotRecordedError(f"The run {label!r} has asked nothing so far. {known}")

    def _run(self, name: RunName) -> Account:
        run = self._runs.get(name.label)
        if run is None:
            if len(self._runs) >= _MAX_RUNS:
                raise RequestError(
                    f"This server has {_MAX_RUNS:,} runs, the most that it keeps. Start another"
                    " server."
                )
            run = Account(name)
        return run

    def _require(self, name: RunName, request: PoolRequest, size: int, place: int) -> int:
        """Make sure that CoTs can be handed out; return how many of them come from the draw."""
        if request.sample is not None:
            if request.sample >= size:
                raise RequestError(
                    f"{_pool(request, size)}, numbered from 0; sample {request.sample:,} was asked"
                    " for.",
                    parameter="feval.sample",
                )
            return 0
        n, used, most = request.n, min(place, size), max(size, _MAX_RECYCLED)
        left = size - used
        if n <= left or (self.recycle and size and n <= most):
            return n
        sentences = [
            (
                f"{_pool(request, size)}; run {name.label!r} was given {used:,} of them, so"
                f" {left:,} are left, and {n:,} were asked for."
            )
        ]
        if used and n <= size:
            sentences.append(_how_to_start_again(name.label))
        advice = [f"ask for {left:,} or fewer"] * (left > 0)
        if self.recycle:
            advice = [f"ask for {most:,} or fewer"] if size else []
        elif size:
            advice.append("start the server with --recycle")
        todo = ", or ".join(advice) or "record some"
        sentences.append(f"Or {todo}." if len(sentences) > 1 else f"{todo[0].upper()}{todo[1:]}.")
        raise UsedUpError(" ".join(sentences), parameter="n")

    def _replay(self, entry: RecordLike, find: Find) -> None:
        """Repeat a request of a ledger file."""
        name = run_name(entry["run"], self.order)
        if entry.get("reset"):
            self._runs.pop(name.label, None)
            return
        where = (
            f"The ledger says that run {name.label!r} was given CoTs of {entry['llm']} on"
            f" {entry['question']!r}"
        )
        match = find(entry["dataset"], entry["llm"], entry["question"])
        if match is None:
            raise ConflictError(
                f"{where}, which is not served now. Serve the same datasets and LLMs as before."
            )
        draw = self._draws.of(*match, name.replicate)
        if not len(draw) or max(entry["samples"]) >= len(draw):
            raise ConflictError(
                f"{where} that this recording does not have. Continue with the recording that it"
                " was made with."
            )
        chosen = entry["samples"][0] if entry.get("chosen") else None
        run = self._runs[name.label] = self._run(name)
        request = PoolRequest(*match, entry["n"], chosen, use_of_entry(entry))
        samples = list(request.samples(draw, run.place(request)))
        if samples != entry["samples"]:
            raise ConflictError(
                f"{where} in another order than these draws. The file was changed, or another"
                " version of feval wrote it."
            )
        llm, row = match
        recorded = llm.pool.output_tokens[row, samples].tolist()
        tokens, limited = entry.get("tokens") or [None] * len(samples), entry.get("limited", ())
        cots = [
            ServedCot(
                sample,
                tokens=whole if cut is None else cut,
                is_cut=cut is not None,
                is_limited=sample in limited,
            )
            for sample, cut, whole in zip(samples, tokens, recorded, strict=True)
        ]
        again = not run.is_in_pass(request, entry.get("pass", 1))
        run.take([request], [draw], [cots], self.billing, again=again)
        run.templates.count_entry(entry)


class DrawCache:
    """Whole draws of questions: every recorded CoT, in the order in which a replicate sees them."""

    def __init__(self) -> None:
        self._cache: BoundedCache[tuple[LLM, int, int], list[array[int]]] = BoundedCache(
            _DRAW_BYTES
        )

    def of(self, llm: LLM, row: int, replicate: int | None) -> Sequence[int]:
        """Return the draw of a question as recorded positions; recorded order for replicate
        `None`.
        """
        if replicate is None:
            return range(llm.pool.sizes[row])
        width = max(int(llm.pool.codes.shape[1]), 1)
        rows = min(max(_MAX_KEYS // width, 1), _MAX_ROWS)
        key = llm, replicate, row // rows
        block = self._cache.get(key)
        if block is None:
            first = row - row % rows
            sizes = llm.pool.sizes[first : first + rows].tolist()
            draws = llm.orders([replicate], width, np.arange(first, first + len(sizes)))[0].tolist()
            block = [array("H", draw[:size]) for draw, size in zip(draws, sizes, strict=True)]
            self._cache.put(key, block, sum(2 * len(draw) + _DRAW_OVERHEAD for draw in block))
        return block[row % rows]


def _how_to_start_again(label: str) -> str:
    return (
        "A run that asks again continues with the next CoTs. To start again with the first ones,"
        f" take a new name, such as {next_name(label)!r}, or reset the run: POST"
        f" /run/{label}/feval/reset (in process: reset() of the HTTP client)."
    )


def _pool(request: PoolRequest, size: int) -> str:
    return (
        f"{request.llm.name} has {size:,} recorded CoT{'s' * (size != 1)} on question"
        f" {request.question!r} of {request.llm.dataset}"
    )


def _entry(name: RunName, handout: Handout, example: Sequence[str] | None) -> Record:
    request, use, cots = handout.request, handout.request.use, handout.cots
    entry = {
        "run": name.label,
        "dataset": use.dataset,
        "llm": request.llm.name,
        "question": request.question,
        "samples": handout.samples,
        "n": len(cots),
        "recycled": handout.recycled,
        "match": use.match,
        "template": use.digest,
    }
    if use.mismatch is not None:
        entry["mismatch"] = use.mismatch
    if handout.cut:
        entry["tokens"] = [cot.tokens_if_cut for cot in cots]
        entry["answers"] = [cot.answer for cot in cots]
    if handout.limited:
        entry["limited"] = [cot.sample for cot in cots if cot.is_limited]
    if handout.visit > 1:
        entry["pass"] = handout.visit
    if request.sample is not None:
        entry["chosen"] = True
    if example is not None:
        entry["example"] = example
    return entry


_LEEWAY = 8
_MIN_KEPT = 16


class Handout(NamedTuple):
    """The CoTs that a run was given for one request of a pool.

    Attributes:
        samples: recorded positions, in draw order.
        recycled: how many of them, at the end, this run had been given before.
        remaining: CoTs of the pool that the run was not yet given.
        round: number of this request among the run's requests for the question, from 0.
        prompts: how many times the prompt is paid for.
        cots: what is sent, one for each sample.
        output_tokens: of all of them.
        cut: how many of them a stop or a limit of the request ended.
        limited: how many of them were recorded up to a limit below the one asked for.
        visit: 2 in the second pass of the run that asks the question, and so on; see `Account`.
    """

    request: PoolRequest
    samples: tuple[int, ...]
    recycled: int
    remaining: int
    round: int
    prompts: int
    cots: Sequence[ServedCot]
    output_tokens: int
    cut: int
    limited: int
    visit: int = 1


Taken = tuple[int, int | None]
"""The recorded position of a CoT, and how many of its tokens a run got; `None` for all of them."""


_NOTHING: Mapping[Any, int] = {}


class _Cursor:
    """A run's place in one pool; `others` were the pools of other questions begun when it was asked
    last, in pass `last`.

    `start` counts how often all that asked had gone before.
    """

    __slots__ = ("chosen", "cut", "last", "others", "place", "rounds", "start", "visits")

    def __init__(self) -> None:
        self.place = self.rounds = self.visits = self.last = self.others = self.start = 0
        # replaced, never changed, so that copies stay as they were
        self.chosen: Mapping[Taken, int] = _NOTHING  # -> times
        self.cut: Mapping[int, int] = _NOTHING  # number in the draw -> tokens


class Account:
    """What one run has consumed: its place in every pool, its counts per LLM, its prompts.

    A program that is run twice under one name asks again what it had left for other questions:
    another pass begins, in which every question that was asked before gets other CoTs, and is paid
    for again. A program that asks several questions at once comes back to them, too, after others:
    from the thread or task that asks nothing else, or after a few from each of its connections. So
    a pass begins when a question is asked again by a sender that has asked others since, after more
    than eight others were begun for each other sender that is still there: after one, where there
    is none. Where all senders had gone before, it begins with any question but the one that was
    asked last.
    """

    def __init__(self, name: RunName) -> None:
        self.name = name
        self.templates = PromptCounts()
        self.is_warned = False
        self._cursors: defaultdict[tuple[LLM, int], _Cursor] = defaultdict(_Cursor)
        self._counts: defaultdict[LLM, Counter[str]] = defaultdict(Counter)
        self._pass = 1
        # question -> its pools that were begun, once in each pass
        self._begun: dict[tuple[str, int], int] = {}
        self._all_begun = 0
        self._senders: dict[Sender, Sequence[PoolRequest]] = {}  # and what each asked last
        self._kept = _MIN_KEPT
        self._starts = 0  # how often a sender came when all others had gone
        self._latest: Sequence[PoolRequest] = ()  # what was asked last, by whomever

    def place(self, request: PoolRequest) -> int:
        """Return how many CoTs of a question's draw the run was given."""
        return self._cursors[request.key].place if request.key in self._cursors else 0

    def take(
        self,
        requests: Sequence[PoolRequest],
        draws: Sequence[Sequence[int]],
        cots: Sequence[Sequence[ServedCot]],
        billing: str,
        again: bool,
    ) -> list[Handout]:
        """Hand out the next CoTs of questions from their whole draws; `cots` are what is sent of
        those of each question.

        `again` where another pass begins.
        """
        self._pass += again
        handouts = [
            self._take(request, len(draw), sent, billing)
            for request, draw, sent in zip(requests, draws, cots, strict=True)
        ]
        for request in requests:  # those of one request are asked together
            cursor = self._cursors[request.key]
            cursor.others, cursor.start = self._others(request), self._starts
        self._latest = requests
        return handouts

    def begins_again(self, requests: Sequence[PoolRequest], sender: Sender | None) -> bool:
        """Return whether another pass begins with some requests, and note who sends them."""
        if sender is not None and sender not in self._senders:
            self._starts += not any(map(_is_there, reversed(self._senders)))
        others, is_started_again = 0, False
        for request in requests:
            cursor = self._cursors.get(request.key)
            if cursor is not None and cursor.last == self._pass:
                others = max(others, self._others(request) - cursor.others)
                is_started_again |= cursor.start < self._starts
        before: Sequence[PoolRequest] = ()
        if sender is not None:
            before, self._senders[sender] = self._senders.get(sender, ()), requests
        if others or len(self._senders) > 2 * self._kept:
            self._senders = {each: last for each, last in self._senders.items() if _is_there(each)}
            self._kept = max(len(self._senders), _MIN_KEPT)
        if is_started_again and _questions(self._latest).isdisjoint(_questions(requests)):
            return True
        if not others or not _questions(requests).isdisjoint(_questions(before)):
            return False
        return others > _LEEWAY * len(self._senders.keys() - {sender})

    def is_in_pass(self, request: PoolRequest, visit: int) -> bool:
        """Return whether a request of a ledger file, in the pass `visit` that asks its question,
        belongs to the present pass.
        """
        cursor = self._cursors.get(request.key)
        return cursor is None or cursor.last < self._pass or cursor.visits == visit

    def _others(self, request: PoolRequest) -> int:
        """Return how many pools of other questions were begun."""
        return self._all_begun - self._begun.get((request.llm.dataset, request.row), 0)

    def _take(
        self, request: PoolRequest, size: int, cots: Sequence[ServedCot], billing: str
    ) -> Handout:
        llm, row = request.key
        counts, cursor = self._counts[llm], self._cursors[llm, row]
        if cursor.last < self._pass:
            cursor.last = self._pass
            cursor.visits += 1
            self._begun[llm.dataset, row] = self._begun.get((llm.dataset, row), 0) + 1
            self._all_begun += 1
            counts["asked_again"] += cursor.visits == 2
        counts["questions"] += not cursor.rounds
        recycled = 0
        if request.sample is not None:
            taken = request.sample, cots[0].tokens_if_cut
            cursor.chosen = {**cursor.chosen, taken: cursor.chosen.get(taken, 0) + 1}
        else:
            cut = {place: cot.tokens for place, cot in enumerate(cots, cursor.place) if cot.is_cut}
            if cut:
                cursor.cut = {**cursor.cut, **cut}
            cursor.place += len(cots)
            recycled = min(request.n, max(cursor.place - size, 0))
        billed = {"per_round": 1, "per_sample": len(cots)}
        handout = Handout(
            request,
            tuple([cot.sample for cot in cots]),
            recycled,
            remaining=max(size - cursor.place, 0),
            round=cursor.rounds,
            prompts=billed.get(billing, int(not cursor.rounds)),
            cots=cots,
            output_tokens=sum([cot.tokens for cot in cots]),
            cut=sum([cot.is_cut for cot in cots]),
            limited=sum([cot.is_limited for cot in cots]),
            visit=cursor.visits,
        )
        cursor.rounds += 1
        counts["requests"] += 1
        counts["cots"] += len(cots)
        for name in ("output_tokens", "recycled", "cut", "limited"):
            counts[name] += getattr(handout, name)
        if request.prompt_tokens < 0:
            counts["unknown_prompts"] += handout.prompts
        else:
            counts["prompt_tokens"] += handout.prompts * request.prompt_tokens
        return handout

    def copied(self) -> Account:
        """Return a copy, for requests that may turn out not to count."""
        other = copy(self)
        vars(other).update(
            templates=deepcopy(self.templates),
            _begun=self._begun.copy(),
            _cursors=defaultdict(
                _Cursor, {key: copy(cursor) for key, cursor in self._cursors.items()}
            ),
            _counts=defaultdict(Counter, {llm: each.copy() for llm, each in self._counts.items()}),
        )
        return other

    def cursors(self) -> list[tuple[LLM, int, _Cursor]]:
        """Return LLM, row and cursor of every question that was asked."""
        return [(*key, copy(cursor)) for key, cursor in self._cursors.items()]

    def summary(self) -> Record:
        """Return the ledger of the run; see `Application.ledger`."""
        by_name: defaultdict[str, dict[LLM, Counter[str]]] = defaultdict(dict)
        for llm, counts in self._counts.items():
            by_name[llm.name][llm] = counts
        return {
            "run": self.name.label,
            "replicate": self.name.replicate,
            **_summed(self._counts),
            "llms": {name: _summed(counts) for name, counts in by_name.items()},
            "prompts": self.templates.to_list(),
        }


def _questions(requests: Iterable[PoolRequest]) -> set[tuple[str, int]]:
    return {(request.llm.dataset, request.row) for request in requests}


def _is_there(sender: Sender) -> bool:
    return sender[0]() is not sender[1]


COUNTED = (
    "requests", "cots", "prompt_tokens", "output_tokens", "questions", "recycled", "asked_again",
    "cut", "limited",
)  # fmt: skip
"""What the ledger of a run counts."""


def _summed(counts: Mapping[LLM, Counter[str]]) -> Record:
    """The counts of several LLMs, and the total in USD, or why there is none."""
    total, missing = 0.0, None
    for llm, each in counts.items():
        if llm.prices is None:
            missing = "The recording was opened without a price list."
        elif llm.states_usd:
            missing = "CoTs state their own USD, which `feval grade` sums."
        elif llm.price is None:
            missing = f"The price list {llm.prices.id!r} has no price for the LLM {llm.name!r}."
        elif llm.price.steps:
            missing = f"The price of {llm.name} changes with the length of a prompt."
        elif each["unknown_prompts"]:
            missing = f"The prompt tokens of {llm.name} were not recorded for every question."
        else:
            total += usd(llm.price, each["prompt_tokens"], each["output_tokens"])
    sums: Record = {name: sum(each[name] for each in counts.values()) for name in COUNTED}
    if missing is not None:
        return sums | {"usd": None, "usd_missing": missing}
    return sums | {"usd": total}


_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63})(?:@([0-9]{1,7}|recorded))?")
_NUMBERED = re.compile(r"(.{1,60})-([0-9]{1,2})")
_MIN_SECRET = 32
_MIN_MARKED_SECRET = 20  # with a prefix that keys have


class RunName(NamedTuple):
    """A run: its name as it is shown, and which draws it sees (`None`: recorded order)."""

    label: str
    replicate: int | None


def run_name(text: str, order: str = "seeded") -> RunName:
    """Parse `NAME`, `NAME@R` for replicate R, or `NAME@recorded`; a name alone means replicate 0,
    or the order "recorded".

    Raises:
        RequestError: the name is not valid.
    """
    default = 0 if order == "seeded" else None
    match = _NAME.fullmatch(text)
    if match is None:
        raise RequestError(
            f"{text[:80]!r} is not a valid name of a run. A name has up to 64 letters, digits, '.',"
            " '_' and '-', begins with a letter or digit, and may end with @R for replicate R or"
            " with @recorded.",
            code="bad_run",
        )
    name, suffix = match.groups()
    replicate = default if suffix is None else None if suffix == "recorded" else int(suffix)
    if replicate is not None and replicate > MAX_REPLICATES:
        raise RequestError(
            f"Replicates are numbered from 0 to {MAX_REPLICATES:,}; {text!r} asks for another one.",
            code="bad_run",
        )
    if replicate == default:
        return RunName(name, replicate)
    return RunName(f"{name}@{'recorded' if replicate is None else replicate}", replicate)


@lru_cache(1024)  # of names that raise, none is kept
def public_run(text: str, order: str = "seeded") -> RunName:
    """Parse the name of a run from a path or header; `RequestError` for what looks like a secret,
    since names are stored.
    """
    if len(text) >= _MIN_MARKED_SECRET and LIKE_A_KEY.fullmatch(text):
        raise RequestError(
            "The name of this run looks like a secret key, and names are written down. Send a key"
            " as the API key, and choose another name for the run.",
            code="bad_run",
        )
    return run_name(text, order)


def run_of_key(key: str, order: str = "seeded") -> RunName:
    """Return the run of an API key. A key that may be a secret is not stored: its run is named by a
    hash of it.
    """
    if not key.strip("-_. "):
        return run_name("default", order)
    if len(key) < _MIN_SECRET and _NAME.fullmatch(key) and not LIKE_A_KEY.fullmatch(key):
        try:
            return run_name(key, order)
        except RequestError:
            pass
    return run_name(f"key-{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}", order)


def next_name(label: str) -> str:
    """Return a new name for a run that sees the same draws: "mine-2" after "mine", "mine-3@1" after
    "mine-2@1".
    """
    base, at, replicate = label.partition("@")
    numbered = _NUMBERED.fullmatch(base)
    stem, number = (numbered[1], int(numbered[2]) + 1) if numbered else (base[:60], 2)
    return f"{stem}-{number}{at}{replicate}"
