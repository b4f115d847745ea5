"""The application: a request in, a reply out. It opens no connection and knows no web framework.

A door (the transport in this process, the server) makes a `Call` of what it received and sends the `Reply` on.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import parse_qs, quote

import orjson

from feval import __version__
from feval.cards.schema import FINISH_REASONS
from feval.errors import FevalError, NotRecordedError, ReplayWarning, StorageError, UsageError
from feval.serving import replies, requests
from feval.serving.errors import MissError, RequestError, ServingError
from feval.serving.grading import grade_posted
from feval.serving.kept import Kept
from feval.serving.matching.matcher import Library, Match
from feval.serving.matching.mismatch import Mismatches
from feval.serving.openapi import description
from feval.serving.runs.ledger import LedgerFile
from feval.serving.runs.runs import Picked, RunName, Runs, Taken, chosen_run, run_name, run_of_key
from feval.serving.texts import UNKNOWN_FINISH, Prepared, Texts

if TYPE_CHECKING:
    import numpy.typing as npt

    from feval.cards.prices import Price, PriceList
    from feval.recording.logprobs import TokenLogprobs
    from feval.recording.reader import Recording
    from feval.replay import LLM

__all__ = ["Application", "Call", "Reply"]

_LOG = logging.getLogger(__name__)
_PLAN_BYTES = 32 << 20
_PLAN_OVERHEAD = 2000
_SHOWN = 64
_MOST_NAMED = 32
_SAFE = "/:@!$&'()*;=~+ "  # what an id in a header shows as it is
_JSON_HEADERS = {"content-type": replies.JSON}
_SPEAKS = (
    "POST /v1/chat/completions, POST /v1/completions, GET /v1/models, GET /feval/health, GET /feval/ledger, POST /feval/grade, "
    "POST /feval/reset and GET /openapi.json, each also under /run/NAME"
)


class Call(NamedTuple):
    """One request.

    A tuple, as `runs.Taken` is.

    Attributes:
        method: "GET", "POST", ...
        path: percent-decoded once, without the query, such as "/v1/chat/completions" or "/run/NAME/v1/chat/completions".
        query: as it was sent, without the question mark.
        headers: names in lower case; of repeated ones the last.
        body: decoded from its transfer.
        warn: is given each sentence that a run should be told once; a reply does not hold it.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    warn: Callable[[str], object] = _LOG.warning


class Reply(NamedTuple):
    """What is sent back.

    A tuple, as `runs.Taken` is.

    Attributes:
        status: of HTTP.
        headers: content-type among them, names as they are to be sent; those of the transfer are the door's.
        body: whole, or the events of a stream, one item each (`data: ...` and two line ends).
    """

    status: int
    headers: Mapping[str, str]
    body: bytes | Iterable[bytes]


@dataclass(frozen=True, slots=True)
class _Plan:
    """A request that was read and matched: everything about its reply but the CoTs."""

    asked: requests.Asked
    matches: tuple[Match, ...]
    picked: tuple[Picked, ...]
    kinds: str
    headers: Mapping[str, str]
    opening: bytes
    identity: bytes


class Application:
    """Answers requests in OpenAI's dialect from recordings. Safe to use from many threads; see `open`.

    Args:
        library: the recordings.
        runs: who asks.
        file: the ledger file, if there is one; it is closed with the application.
        seed: what every draw is made from.
        allow_mismatch: whether requests are answered that no recorded CoT can answer.

    Attributes:
        library: as given.
        runs: as given.
    """

    def __init__(
        self,
        library: Library,
        runs: Runs,
        file: LedgerFile | None = None,
        *,
        seed: int = 0,
        allow_mismatch: bool = False,
    ) -> None:

        self.library, self.runs, self.seed = library, runs, seed
        self._file = file
        self._texts = Texts()
        self._mismatches = Mismatches(self._cots, allowed=allow_mismatch)
        self._warned: set[tuple[str, str]] = set()
        self._reading = Lock()
        self._plans: Kept[object, _Plan] = Kept(_PLAN_BYTES)
        self._openings: dict[tuple[str, LLM], bytes] = {}
        self._words = tuple(replies.finish_word(reason) for reason in FINISH_REASONS)
        self._endings = {kind: [replies.ending(kind, word) for word in self._words] for kind in ("chat", "completion")}
        self._prices = {llm: llm.price for llm in library.llms}
        self._routes: dict[str, tuple[str, Callable[[Call, str, RunName], Reply]]] = {
            "/v1/chat/completions": ("POST", self._chat),
            "/v1/completions": ("POST", self._completion),
            "/v1/models": ("GET", self._models),
            "/feval/health": ("GET", self._health),
            "/feval/ledger": ("GET", self._ledger_asked),
            "/feval/grade": ("POST", self._grade),
            "/feval/reset": ("POST", self._reset),
            "/openapi.json": ("GET", self._description),
        }

    @classmethod
    def open(
        cls,
        recording: str | Path | Recording | Sequence[str | Path | Recording] | None = None,
        *,
        datasets: str | Sequence[str] | None = None,
        llms: str | Sequence[str] | None = None,
        seed: int = 0,
        order: str = "seeded",
        recycle: bool = False,
        strict: bool = False,
        few_shot: str = "none",
        allow_mismatch: bool = False,
        prices: str | Path | PriceList | None = None,
        billing: str = "once",
        ledger: str | Path | None = None,
        resume: bool = False,
    ) -> Self:
        """Open recordings for serving.

        Args:
            recording: what `feval.load` takes: a folder, an open recording, or several.
            datasets: only these; all that were recorded for `None`.
            llms: only these; all that were recorded for `None`.
            seed: what every draw is made from.
            order: of runs that name none: "seeded" (replicate 0) or "recorded".
            recycle: whether a used-up pool starts over, and what is handed out again is marked.
            strict: whether only requests that were recorded, and questions named by their id, are answered.
            few_shot: "last": of several recorded questions in a message the last one is asked, the others are exemplars; "none":
                they are ambiguous.
            allow_mismatch: whether requests are answered that no recorded CoT can answer: those that quote one, as judges do, and
                those that demand JSON or a tool call.
            prices: as in `feval.load`.
            billing: as in `feval.load`.
            ledger: file to write every request to; `None` keeps the ledger in memory.
            resume: whether to go on where an existing ledger file ends.

        Raises:
            FevalError: whatever `feval.load` raises, and StorageError or ConflictError for a ledger file that cannot be used.
        """
        library = Library(
            recording,
            datasets=datasets,
            llms=llms,
            strict=strict,
            few_shot=few_shot,
            seed=seed,
            prices=prices,
            billing=billing,
        )
        if ledger is None:
            if resume:
                raise UsageError("There is no ledger to go on with (--resume); name its file.")
            runs = Runs(order=order, recycle=recycle, billing=billing)
            return cls(library, runs, seed=seed, allow_mismatch=allow_mismatch)
        file = LedgerFile(ledger, _pinned(library, seed, order, billing), resume=resume)
        try:
            runs = Runs(order=order, recycle=recycle, billing=billing, file=file, find=library.find)
        except BaseException:
            file.close()
            raise
        return cls(library, runs, file, seed=seed, allow_mismatch=allow_mismatch)

    def prepare(self) -> None:
        """Read now what the first requests would wait for: questions and prompts."""
        self.library.prepare()

    def respond(self, call: Call) -> Reply:
        """Answer a request. What cannot be answered is an error reply in OpenAI's shape; nothing is raised but warnings."""
        try:
            return self._routed(call)
        except ServingError as error:
            return _error(error, error.status, error.headers)
        except NotRecordedError as error:
            return _error(error, 404)
        except UsageError as error:
            return _error(error, 400)
        except StorageError as error:
            return _error(error, 507)
        except FevalError as error:
            return _error(error, 500)
        except ReplayWarning:  # where warnings are errors; nothing was drawn
            raise
        except Exception as error:  # noqa: BLE001  a bug of ours must not end the connection without a word
            where = extract_tb(error.__traceback__)[-1]  # the message itself could show what was sent
            _LOG.error(
                "A request could not be answered: %s at %s:%s.", type(error).__name__, where.filename, where.lineno
            )
            return _error(
                FevalError(f"Something unexpected happened ({type(error).__name__}); the server logged where."), 500
            )

    def ledger(self, run: str | None = None, *, detail: bool = False) -> dict[str, Any]:
        """What was handed out.

        Args:
            run: the name of one; `None` for all.
            detail: whether to list, as "asked", every question of the run: llm, dataset, question, requests, samples (places
                of the CoTs, those of the draw first; what was handed out again stands there again).

        Returns:
            For one run: "run", "replicate" (`None`: recorded order), "requests", "cots", "prompt_tokens" (as billed),
            "output_tokens", "usd" (`None` where something has no price; "usd_missing" says why), "questions", "recycled" and
            "llms", name -> the same counts, and "prompts", what it put around the questions: for each dataset and template
            "requests", "matches" (how -> requests), "mismatches" (field -> requests) and "example", where it begins to differ
            from the first one. For all: "runs", a list of these. Beside either, what they rest on: "recordings"
            (hashes), "seed", "order", "billing", "prices" (id, or "none").

        Raises:
            NotRecordedError: no such run has asked anything.
        """
        pinned = _pinned(self.library, self.seed, self.runs.order, self.runs.billing)
        if run is not None:
            return pinned | self.runs.summary(run_name(run, self.runs.order).label, detail=detail)
        return pinned | {"runs": [self.runs.summary(label, detail=detail) for label in self.runs.labels()]}

    def reset(self, run: str) -> None:
        """Begin a run again: its draws, its place in every pool and its ledger.

        Args:
            run: its name.

        Raises:
            NotRecordedError: no such run has asked anything.
            StorageError: the ledger file cannot be written.
        """
        self.runs.reset(run_name(run, self.runs.order))

    def close(self) -> None:
        """Write what is left of the ledger file and let go of it."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _routed(self, call: Call) -> Reply:
        path, name = call.path, None
        if path.startswith("/run/"):
            name, _, rest = path[5:].partition("/")
            path = f"/{rest}"
        run = self._run(name, call.headers)
        path = path.rstrip("/")
        route = self._routes.get(path)
        if route is None and path.startswith("/v1/models/"):
            route = self._routes["/v1/models"]
        if route is None:
            advice = "Give clients a base URL that ends with /v1. " if f"/v1{path}" in self._routes else ""
            raise MissError(f"There is nothing at {path[:80] or '/'}. {advice}Here are {_SPEAKS}.", code="unknown_url")
        method, handler = route
        if call.method != method and not (call.method == "HEAD" and method == "GET"):
            raise RequestError(
                f"{path} takes {method} requests; this one is {call.method[:20]}.",
                status=405,
                headers={"allow": method},
            )
        return handler(call, path, run)

    def _run(self, name: str | None, headers: Mapping[str, str]) -> RunName:
        order = self.runs.order
        name = name if name is not None else headers.get("x-feval-run")
        if name is not None:
            return chosen_run(name, order)
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key:
            key = headers.get("x-api-key") or headers.get("api-key") or ""
        return run_of_key(key.strip(), order)

    def _chat(self, call: Call, _: str, run: RunName) -> Reply:
        return self._answered("chat", call, run)

    def _completion(self, call: Call, _: str, run: RunName) -> Reply:
        return self._answered("completion", call, run)

    def _answered(self, kind: str, call: Call, run: RunName) -> Reply:
        headers = call.headers
        key: object = (kind, call.body)
        if (
            "x-feval-question" in headers
            or "x-feval-dataset" in headers
            or "x-feval-sample" in headers
            or "x-feval-few-shot" in headers
        ):
            key = (kind, call.body, *map(headers.get, requests.OWN_HEADERS))
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plan(requests.parse(kind, call.body, headers))
            self._plans.put(key, plan, 3 * len(call.body) + _PLAN_OVERHEAD * len(plan.matches))
        prepared = [self._prepared(match) for match in plan.matches]
        if plan.kinds and (run.label, plan.kinds) not in self._warned:
            self._warn(run, plan, call.warn)
        taken = self.runs.take(run, plan.picked, [own.tokens for own in prepared])
        return self._reply(plan, run, prepared, taken)

    def _warn(self, run: RunName, plan: _Plan, warn: Callable[[str], object]) -> None:
        """Tell a run once of each kind of thing that its replies do not heed, before anything is drawn."""
        for kind, what in (each for match in plan.matches for each in match.unheeded):
            if (run.label, kind) not in self._warned:
                warn(f"The run {run.label!r} {what} Replies are as they were recorded; this is said once.")
                self._warned.add((run.label, kind))
        self._warned.add((run.label, plan.kinds))

    def _plan(self, asked: requests.Asked) -> _Plan:
        matches = self.library.match(asked)
        mismatches = [self._mismatches.check(asked, match) for match in matches]
        llm = matches[0].llm
        opening = self._openings.get((asked.kind, llm))
        if opening is None:
            opening = self._openings[asked.kind, llm] = _opening(asked.kind, llm)
        questions = [match.question for match in matches]
        ignored = dict.fromkeys(name for match in matches for name in match.ignored)
        headers = {
            "content-type": replies.STREAM if asked.stream else replies.JSON,
            "x-feval-dataset": _listed(match.llm.dataset for match in matches),
            "x-feval-question": _listed(questions),
            "x-feval-llm": _listed(match.llm.name for match in matches),
            "x-feval-match": ",".join(match.how for match in matches),
        }
        if ignored:
            shown = [name[:_SHOWN] for name in ignored][:_MOST_NAMED]
            headers["x-feval-ignored"] = _listed(shown) + ",..." * (len(ignored) > _MOST_NAMED)
        return _Plan(
            asked,
            matches,
            tuple(
                Picked(match.llm, match.row, asked.n, asked.sample, match.use(mismatch), match.template)
                for match, mismatch in zip(matches, mismatches, strict=True)
            ),
            ",".join(sorted({each.kind for match in matches for each in match.unheeded})),
            headers,
            opening,
            "\n".join(
                [
                    f"{match.llm.name}\n{match.llm.dataset}\n{name}"
                    for match, name in zip(matches, questions, strict=True)
                ]
            ).encode(),
        )

    def _cots(self, llm: LLM, row: int) -> list[str | None]:
        """The texts of the CoTs of a question, through what is kept of them anyway."""
        prepared = self._texts.of(llm, row)
        return [orjson.loads(prepared.content(sample)) for sample in range(len(prepared.closed))]

    def _prepared(self, match: Match) -> Prepared:
        prepared = self._texts.of(match.llm, match.row)
        if prepared.closed and not prepared.texts:
            raise MissError(
                f"The recording holds no texts of {match.llm.name} on {match.question!r} of {match.llm.dataset}, only answers, "
                "so there is nothing to reply with. Evaluate it with feval.load, or serve a recording with texts.",
                code="text_not_recorded",
            )
        return prepared

    def _reply(self, plan: _Plan, run: RunName, prepared: Sequence[Prepared], taken: Sequence[Taken]) -> Reply:
        asked, plain = plan.asked, self._endings[plan.asked.kind]
        unknown: dict[str, None] = {}
        pieces: list[bytes] = []
        completion_tokens = prompt_tokens = first = 0
        reasoning_tokens: int | None = 0
        dollars: float | None = 0.0
        for match, own, got in zip(plan.matches, prepared, taken, strict=True):
            samples = got.samples
            prompt = own.prompt_tokens
            completion_tokens += got.output_tokens
            thought = own.reasoning_tokens_of(samples)
            reasoning_tokens = None if thought is None or reasoning_tokens is None else reasoning_tokens + thought
            prompt_tokens += max(prompt, 0)
            dollars = _added(dollars, self._prices[match.llm], got.prompts, prompt, got.output_tokens)
            if prompt < 0:
                unknown["prompt_tokens"] = None
            if own.usual and asked.kind == "chat" and not asked.logprobs and not got.recycled:
                pieces += replies.closed_choices([own.closed[sample] for sample in samples], first=first)
                first += len(samples)
                continue
            contents = [own.message(sample) if asked.kind == "chat" else own.content(sample) for sample in samples]
            finishes = [own.finishes[sample] for sample in samples]
            if UNKNOWN_FINISH in finishes:
                unknown["finish_reason"] = None
            if own.texts < len(own.closed) and b"null" in map(own.content, samples):
                unknown["content"] = None
            endings = (
                self._rich_endings(asked, match, got, finishes, unknown)
                if asked.logprobs or got.recycled
                else [plain[finish] for finish in finishes]
            )
            pieces += replies.choices(asked.kind, contents, endings, first=first)
            first += len(samples)
        identity = blake2b(
            b"%b\n%b\n%d" % (run.label.encode(), plan.identity, taken[0].round), digest_size=12
        ).hexdigest()
        body = b"".join(
            (
                plan.opening % identity.encode(),
                *pieces,
                b'],"usage":',
                replies.usage(prompt_tokens, completion_tokens, reasoning_tokens),
                b"}",
            )
        )
        headers = dict(plan.headers)
        headers["x-feval-run"] = run.label
        headers["x-feval-samples"] = ";".join([",".join(map(str, got.samples)) for got in taken])
        headers["x-feval-remaining"] = ",".join([str(got.remaining) for got in taken])
        if dollars is not None:
            headers["x-feval-cost-usd"] = repr(dollars)
        if recycled := sum([got.recycled for got in taken]):
            headers["x-feval-recycled"] = str(recycled)
        if unknown:
            headers["x-feval-unknown"] = ",".join(unknown)
        return Reply(200, headers, _events(asked, body) if asked.stream else body)

    def _rich_endings(
        self, asked: requests.Asked, match: Match, got: Taken, finishes: Sequence[int], unknown: dict[str, None]
    ) -> list[bytes]:
        """What stands after the texts where it is more than a finish reason."""
        fresh = len(got.samples) - got.recycled
        told = self._logprobs(asked, match, got, unknown) if asked.logprobs else [(None, {})] * len(got.samples)
        return [
            replies.rich_ending(
                asked.kind,
                self._words[finish],
                logprobs=logprobs,
                own=own | ({"recycled": True} if place >= fresh else {}),
            )
            for place, ((logprobs, own), finish) in enumerate(zip(told, finishes, strict=True))
        ]

    def _logprobs(
        self, asked: requests.Asked, match: Match, got: Taken, unknown: dict[str, None]
    ) -> list[tuple[dict[str, Any] | None, dict[str, Any]]]:
        """Of each CoT the log-probabilities in OpenAI's shape, and what was recorded besides."""
        try:
            with self._reading:
                kept = match.llm.pool.logprobs()
        except NotRecordedError:
            unknown["logprobs"] = None
            return [(None, {})] * len(got.samples)
        unknown["logprobs.token"] = None
        if asked.top_logprobs:
            unknown["logprobs.top_logprobs"] = None
        return [_told(asked.kind, kept, match.row, sample) for sample in got.samples]

    def _models(self, _: Call, path: str, __: RunName) -> Reply:
        listed = [
            {"id": name, "object": "model", "created": _created(llm.recording), "owned_by": "feval"}
            for name, llm in {llm.name: llm for llm in self.library.llms}.items()
        ]
        wanted = path.removeprefix("/v1/models").removeprefix("/")
        if not wanted:
            return _json({"object": "list", "data": listed})
        for model in listed:
            if model["id"] == wanted:
                return _json(model)
        raise MissError(
            f"No LLM {wanted[:80]!r} was recorded; GET /v1/models lists those that were.", code="model_not_found"
        )

    def _health(self, _: Call, __: str, ___: RunName) -> Reply:
        return _json(
            {
                "status": "ok",
                "version": __version__,
                "recordings": [recording.hash for recording in self.library.recordings],
                "datasets": {name: len(dataset) for name, dataset in self.library.datasets.items()},
                "llms": self.library.model_names(),
            }
        )

    def _description(self, _: Call, __: str, ___: RunName) -> Reply:

        return _json(description(self.library.model_names()))

    def _grade(self, call: Call, _: str, run: RunName) -> Reply:

        return _json(grade_posted(self, run.label, call.body))

    def _reset(self, _: Call, __: str, run: RunName) -> Reply:
        self.runs.reset(run)
        return _json({"run": run.label, "reset": True})

    def _ledger_asked(self, call: Call, _: str, run: RunName) -> Reply:
        query = parse_qs(call.query, keep_blank_values=True)
        strange = sorted(query.keys() - {"run", "detail"})
        if strange:
            raise RequestError(
                f"/feval/ledger takes run and detail; {strange[0][:80]!r} is neither.", parameter=strange[0][:80]
            )
        named = query["run"][-1] if "run" in query else run.label if call.path.startswith("/run/") else None
        return _json(self.ledger(named, detail=query.get("detail", ["0"])[-1] not in {"0", "", "false"}))


def _pinned(library: Library, seed: int, order: str, billing: str) -> dict[str, Any]:
    """What draws and dollars rest on."""
    prices = {llm.prices.id if llm.prices is not None else "none": None for llm in library.llms}
    return {
        "recordings": [recording.hash for recording in library.recordings],
        "seed": seed,
        "order": order,
        "billing": billing,
        "prices": ",".join(prices),
    }


def _opening(kind: str, llm: LLM) -> bytes:
    """What replies of an LLM begin with, but for their ids."""
    shape, prefix = (b"chat.completion", b"chatcmpl") if kind == "chat" else (b"text_completion", b"cmpl")
    told = orjson.dumps(
        {
            "created": _created(llm.recording),
            "model": llm.name,
            "system_fingerprint": f"fp_{llm.recording_hash[:12]}",
        }
    )
    return b'{"id":"%b-%%b","object":"%b",%b,"choices":[' % (prefix, shape, told[1:-1].replace(b"%", b"%%"))


def _created(recording: Recording) -> int:
    created = recording.manifest.raw.get("created")
    try:
        return int(datetime.fromisoformat(str(created)).timestamp())
    except ValueError:
        return 0


def _events(asked: requests.Asked, body: bytes) -> Iterable[bytes]:
    cut = replies.events if asked.kind == "chat" else replies.completion_events
    return replies.lines(cut(orjson.loads(body), usage=asked.include_usage))


def _told(kind: str, kept: TokenLogprobs, row: int, sample: int) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The log-probabilities of one CoT. The tokens' texts are not recorded, so they are empty."""
    logprobs, confidences = _shortest(kept.logprobs.of(row, sample)), _shortest(kept.confidences.of(row, sample))
    sequence = float(kept.sequence[row, sample])
    own: dict[str, Any] = {"token_confidences": confidences} if confidences else {}
    if not math.isnan(sequence):
        own["sequence_logprob"] = sequence
    if not logprobs:
        return None, own
    if kind == "completion":
        return {
            "tokens": [""] * len(logprobs),
            "token_logprobs": logprobs,
            "top_logprobs": None,
            "text_offset": None,
        }, own
    tokens: list[dict[str, Any]] = [
        {"token": "", "logprob": logprob, "bytes": None, "top_logprobs": []} for logprob in logprobs
    ]
    return {"content": tokens, "refusal": None}, own


def _shortest(values: npt.NDArray[Any]) -> list[float]:
    """32-bit floats as the shortest decimals that are read back as the same."""
    return [float(text) for text in values.astype(str).tolist()]


def _added(dollars: float | None, price: Price | None, prompts: int, prompt_tokens: int, tokens: int) -> float | None:
    """Dollars with those of one question more; `None` where they are not known."""
    if dollars is None or price is None or (prompts and prompt_tokens < 0):
        return None
    return dollars + 1e-6 * (price.input_usd_per_mtok * prompts * prompt_tokens + price.output_usd_per_mtok * tokens)


def _listed(ids: Iterable[str]) -> str:
    """Ids for a header: what is not plain ASCII, and every comma, is percent-encoded."""
    return ",".join([_quoted(name) for name in ids])


@lru_cache(4096)
def _quoted(name: str) -> str:
    return quote(name, safe=_SAFE)


def _json(value: Mapping[str, Any]) -> Reply:
    return Reply(200, _JSON_HEADERS, orjson.dumps(value))


def _error(error: FevalError, status: int, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(status, {**_JSON_HEADERS, **(headers or {})}, replies.error_body(error, status))
