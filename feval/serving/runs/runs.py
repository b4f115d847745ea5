"""Every run's place in every pool, and its ledger.

Runs with the same replicate see the same draws, whatever their names: two methods are compared on
the same CoTs.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from feval.errors import ConflictError, NotRecordedError, StorageError, UnknownNameError
from feval.replay import LLM
from feval.serving.matching.cache import BoundedCache
from feval.serving.matching.templates import PromptCounts, PromptUse, difference
from feval.serving.runs.accounts import Account, Handout, PoolRequest, Taken, tokens_if_cut
from feval.serving.runs.names import RunName, next_name, run_name
from feval.serving.texts import ServedCot
from feval.serving.wire.errors import RequestError, UsedUpError

if TYPE_CHECKING:
    from feval.serving.runs.ledger import LedgerFile
    from feval.serving.wire.replies import Sender

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
        UnknownNameError: no such order.
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
        if order not in ORDERS:
            raise UnknownNameError.of("order", order, ORDERS)
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
        draws = [self._draws.of(request.llm, request.row, name.replicate) for request in requests]
        with self._lock:
            run = self._run(name)
            places: dict[tuple[LLM, int], int] = {}
            cots: list[list[ServedCot]] = []
            for request, draw, read in zip(requests, draws, reads, strict=True):
                key = request.llm, request.row
                place = places.get(key, run.place(key))
                places[key] = place + self._require(name, request, len(draw), place)
                cots.append(read(request.samples(draw, place)))
            again = run.begins_again(requests, sender)
            if again and not run.is_warned:
                run.is_warned = True
                _LOG.warning(
                    "The run %r asks again after it had gone on to other questions, and pays again. %s",  # noqa: E501
                    run.name.label, _how_to_start_again(run.name.label),
                )  # fmt: skip
            is_late = self._file is not None and self._file.is_late
            undo = run.saved(requests) if is_late else None
            handouts = run.take(requests, draws, cots, self.billing, again=again)
            entries = []
            for request, handout in zip(requests, handouts, strict=True):
                is_new = request.use is not None and run.templates.count(request.use)
                example = self._example(run.templates, request) if is_new else None
                if self._file is not None:
                    entries.append(_entry(name, request, handout, example))
            if self._file is not None:
                try:
                    self._file.add(entries, at_once=is_late)
                except StorageError:  # a request that is not answered does not count
                    if undo is not None:
                        undo()
                    raise
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

    def summary(self, label: str, *, detail: bool = False) -> dict[str, Any]:
        """Return the ledger of a run, see `Application.ledger`; `NotRecordedError` if it has asked
        nothing.
        """
        with self._lock:
            run = self._runs.get(label)
            if run is None:
                raise self._unknown(label)
            summary, questions = run.summary(), run.questions() if detail else []
        return (
            summary | {"asked": [self._detail(run.name, *each) for each in questions]}
            if detail
            else summary
        )

    def labels(self) -> list[str]:
        """Return the names of the runs, in the order of their first requests."""
        with self._lock:
            return list(self._runs)

    def _example(self, templates: PromptCounts, request: PoolRequest) -> Sequence[str] | None:
        """Where a template that is new to a run begins to differ from its first one; `None` for the
        first one.
        """
        if request.template is None:
            return None
        dataset, template = request.llm.dataset, request.template
        self._templates.put(template.digest, template.text, len(template.text) + _OVERHEAD)
        first = templates.first(dataset)
        text = None if first in {None, template.digest} else self._templates.get(str(first))
        if text is None:
            return None
        example = difference(text, template.text)
        templates.add_example(dataset, template.digest, example)
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
        if request.n > size - place and not (
            self.recycle and size and request.n <= max(size, _MAX_RECYCLED)
        ):
            raise _used_up(name, request, size, min(place, size), recycle=self.recycle)
        return request.n

    def _replay(self, entry: Mapping[str, Any], find: Find) -> None:
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
        llm, row = match
        draw = self._draws.of(llm, row, name.replicate)
        if not len(draw) or max(entry["samples"]) >= len(draw):
            raise ConflictError(
                f"{where} that this recording does not have. Continue with the recording that it"
                " was made with."
            )
        chosen = entry["samples"][0] if entry.get("chosen") else None
        run = self._runs[name.label] = self._run(name)
        request = PoolRequest(llm, row, entry["n"], chosen)
        again = not run.is_in_pass(request, entry.get("pass", 1))
        cots = _read_back(
            entry,
            llm.pool.output_tokens[
                row, list(request.samples(draw, run.place((llm, row))))
            ].tolist(),
        )
        [handout] = run.take([request], [draw], [cots], self.billing, again=again)
        if list(handout.samples) != entry["samples"]:
            raise ConflictError(
                f"{where} in another order than these draws. The file was changed, or another"
                " version of feval wrote it."
            )
        count_entry(run.templates, entry)

    def _detail(
        self,
        name: RunName,
        llm: LLM,
        row: int,
        rounds: int,
        passes: int,
        place: int,
        cut: Mapping[int, int],
        chosen: Mapping[Taken, int],
    ) -> dict[str, Any]:
        draw = self._draws.of(llm, row, name.replicate)
        taken = [(draw[number % len(draw)], cut.get(number)) for number in range(place)]
        taken += [each for each, times in chosen.items() for _ in range(times)]
        tokens = [number for _, number in taken]
        return {
            "llm": llm.name,
            "dataset": llm.dataset,
            "question": llm.question_ids[row],
            "requests": rounds,
            "passes": passes,
            "samples": [sample for sample, _ in taken],
        } | ({} if set(tokens) <= {None} else {"tokens": tokens})


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
            block = _drawn(
                llm,
                replicate,
                range(key[2] * rows, min((key[2] + 1) * rows, len(llm.pool.sizes))),
                width,
            )
            self._cache.put(
                key, block, sum(draw.itemsize * len(draw) + _DRAW_OVERHEAD for draw in block)
            )
        return block[row % rows]


def _drawn(llm: LLM, replicate: int, rows: range, width: int) -> list[array[int]]:
    draws = llm.orders([replicate], width, np.array(rows))[0].tolist()
    sizes = llm.pool.sizes[rows.start : rows.stop].tolist()
    return [array("H", draw[:size]) for draw, size in zip(draws, sizes, strict=True)]


def _how_to_start_again(label: str) -> str:
    return (
        "A run that asks again continues with the next CoTs. To start again with the first ones,"
        f" take a new name, such as {next_name(label)!r}, or reset the run: POST"
        f" /run/{label}/feval/reset (in process: reset() of the HTTP client)."
    )


def _pool(request: PoolRequest, size: int) -> str:
    llm = request.llm
    question = llm.question_ids[request.row]
    return (
        f"{llm.name} has {size:,} recorded CoT{'s' * (size != 1)} on question {question!r} of"
        f" {llm.dataset}"
    )


def _used_up(
    name: RunName, request: PoolRequest, size: int, used: int, *, recycle: bool
) -> UsedUpError:
    left, n = size - used, request.n
    sentences = [
        (
            f"{_pool(request, size)}; run {name.label!r} was given {used:,} of them, so {left:,} are"  # noqa: E501
            f" left, and {n:,} were asked for."
        )
    ]
    if used and n <= size:
        sentences.append(_how_to_start_again(name.label))
    advice = [f"ask for {left:,} or fewer"] * (left > 0)
    if recycle:
        advice = [f"ask for {max(size, _MAX_RECYCLED):,} or fewer"] if size else []
    elif size:
        advice.append("start the server with --recycle")
    todo = ", or ".join(advice) or "record some"
    sentences.append(f"Or {todo}." if len(sentences) > 1 else f"{todo[0].upper()}{todo[1:]}.")
    return UsedUpError(" ".join(sentences), parameter="n")


def _entry(
    name: RunName, request: PoolRequest, handout: Handout, example: Sequence[str] | None
) -> dict[str, Any]:
    entry = {
        "run": name.label,
        "dataset": request.llm.dataset,
        "llm": request.llm.name,
        "question": request.llm.question_ids[request.row],
        "samples": handout.samples,
        "n": len(handout.samples),
        "recycled": handout.recycled,
    }
    if request.use is not None:
        entry |= {"match": request.use.match, "template": request.use.digest}
        if request.use.mismatch is not None:
            entry["mismatch"] = request.use.mismatch
    if handout.cut:
        entry |= {
            "tokens": [tokens_if_cut(cot) for cot in handout.cots],
            "answers": [c.answer for c in handout.cots],
        }
    if handout.limited:
        entry["limited"] = [
            s for s, cot in zip(handout.samples, handout.cots, strict=True) if cot.is_limited
        ]
    if handout.visit > 1:
        entry["pass"] = handout.visit
    if request.sample is not None:
        entry["chosen"] = True
    if example is not None:
        entry["example"] = example
    return entry


def _read_back(entry: Mapping[str, Any], recorded: Sequence[int]) -> list[ServedCot]:
    """What the CoTs of a request in a ledger file cost; `recorded` are the tokens of the whole
    ones.
    """
    tokens, limited = entry.get("tokens") or [None] * len(recorded), entry.get("limited", ())
    return [
        ServedCot(
            None,
            None,
            "unknown",
            whole if cut is None else cut,
            None,
            cut is not None,
            sample in limited,
        )
        for sample, cut, whole in zip(entry["samples"], tokens, recorded, strict=True)
    ]


def count_entry(templates: PromptCounts, entry: Mapping[str, Any]) -> None:
    """Count the template of a request in a ledger file; what matches no template has none."""
    if "match" not in entry:
        return
    digest = entry.get("template")
    templates.count(PromptUse(entry["dataset"], digest, entry["match"], entry.get("mismatch")))
    if digest is not None and entry.get("example"):
        templates.add_example(entry["dataset"], digest, entry["example"])
