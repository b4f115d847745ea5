"""The application: a call in, a reply out. It opens no connection and knows no web framework.

The in-process transport (`transport`) and the server (`server`) both call it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Self, TypedDict
from urllib.parse import parse_qs

from feval import __version__
from feval.arguments import checked
from feval.cards import PriceList
from feval.cards.reading import parse_json
from feval.errors import ConflictError, NotRecordedError, ReplayWarning, UsageError, require_known
from feval.recording import Recording
from feval.serving.completions import completion_of, created, match_headers, require_texts
from feval.serving.cots import TextCache, cut_cots
from feval.serving.grading import RunGrade, grade_run
from feval.serving.ledger import LedgerFile
from feval.serving.library import BoundedCache, Library
from feval.serving.matcher import Match, Matcher
from feval.serving.mismatch import Mismatches
from feval.serving.openapi import description
from feval.serving.runs import ORDERS, RunName, Runs, public_run, run_name, run_of_key
from feval.serving.scoring import RecordedScores
from feval.serving.wire import dialects
from feval.serving.wire.calls import (
    Call,
    MissError,
    Reply,
    RequestError,
    ServingError,
    UnknownError,
    error_reply,
    json_reply,
    keys_of,
    split_run,
)
from feval.serving.wire.openai import (
    OWN_HEADERS,
    CompletionRequest,
    as_body,
    completion_reply,
    parse,
    parse_object,
)
from feval.serving.wire.parts import Asked, Fields
from feval.values import Closing, Record, RecordLike, frozen

_SAID = ("role", "content", "tool_calls")
_MOST_REFUSED = 10_000  # runs
_QUESTION_BYTES = 32 << 20
_QUESTION_OVERHEAD = 2000  # bytes of a match
_PATHS = (
    "POST /v1/chat/completions, POST /v1/completions, POST /v1/responses, POST /v1/messages, POST"
    " /v1beta/models/NAME:generateContent, POST /api/chat, POST /api/generate, POST /score, POST"
    " /rerank, POST /pooling, GET /v1/models, GET /feval/health, GET /feval/ledger, POST"
    " /feval/grade, POST /feval/reset and GET /openapi.json, each also under /run/NAME"
)


class ApplicationOptions(TypedDict, total=False):
    """The options of `Application.open`; see there."""

    datasets: str | Sequence[str] | None
    llms: str | Sequence[str] | None
    seed: int
    order: str
    recycle: bool
    strict: bool
    few_shot: str
    allow_mismatch: bool
    prices: str | Path | PriceList | None
    billing: str
    ledger: str | Path | None
    resume: bool


@frozen
class _Question:
    """A request that was read and matched, with the headers of its replies that say so."""

    request: CompletionRequest
    matches: tuple[Match, ...]
    headers: dict[str, str]


class Application(Closing):
    """Answers requests in OpenAI's dialect from recordings; see `open`. Safe to use from many
    threads.
    """

    def __init__(
        self,
        library: Library,
        matcher: Matcher,
        runs: Runs,
        file: LedgerFile | None,
        pinned: RecordLike,
        *,
        allow_mismatch: bool,
    ) -> None:
        self.library, self.runs = library, runs
        self._matcher, self._file, self._pinned = matcher, file, pinned
        self._texts = TextCache()
        self._mismatches = Mismatches(self._texts, allowed=allow_mismatch)
        self._questions: BoundedCache[object, _Question] = BoundedCache(_QUESTION_BYTES)
        self._turns: BoundedCache[tuple[str, str], list[Record]] = BoundedCache(_QUESTION_BYTES)
        self._warned: set[tuple[str, str]] = set()
        self._refused: defaultdict[str, Counter[str]] = defaultdict(Counter)
        scores = RecordedScores(library, self._texts)
        self._routes: dict[str, tuple[str, Callable[[Call, RunName], Reply]]] = {
            **dict.fromkeys(("/score", "/v1/score"), ("POST", scores.score)),
            **dict.fromkeys(("/rerank", "/v1/rerank", "/v2/rerank"), ("POST", scores.rerank)),
            "/pooling": ("POST", scores.pooling),
            "/v1/chat/completions": ("POST", partial(self._completions, "chat")),
            "/v1/completions": ("POST", partial(self._completions, "completion")),
            "/v1/models": ("GET", self._models),
            "/feval/health": ("GET", self._health),
            "/feval/ledger": ("GET", self._ledger),
            "/feval/grade": ("POST", self._grade),
            "/feval/reset": ("POST", self._reset),
            "/openapi.json": ("GET", lambda *_: json_reply(description(library.model_names()))),
        }

    @classmethod
    @checked
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
            datasets: only these; `None` for all.
            llms: only these; `None` for all.
            seed: random seed of the draws.
            order: of runs that do not name one: "seeded" (replicate 0) or "recorded".
            recycle: whether a used-up pool starts over; CoTs that are handed out again are marked.
            strict: whether only recorded requests, and questions named by id, are answered.
            few_shot: "last": of several recorded questions in a message the last one is asked, the
                others are exemplars; "none": they are ambiguous.
            allow_mismatch: whether to answer requests that no recorded CoT can answer: those that
                quote one, as judges do, and those that demand JSON or a tool call.
            prices: as in `feval.load`.
            billing: as in `feval.load`.
            ledger: file to write every request to; `None` keeps the ledger in memory only.
            resume: whether to continue where an existing ledger file ends.

        Raises:
            FevalError: whatever `feval.load` raises, and StorageError or ConflictError for a ledger
                file that cannot be used.
        """
        library = Library(
            recording, datasets=datasets, llms=llms, seed=seed, prices=prices, billing=billing
        )
        require_known("order", order, ORDERS)
        matcher = Matcher(library, strict=strict, few_shot=few_shot)
        if ledger is None and resume:
            raise UsageError(
                "--resume continues where a ledger file ends; name it with --ledger FILE."
            )
        pinned = {  # what draws and dollars depend on
            "recordings": [recording.hash for recording in library.recordings],
            "seed": seed,
            "order": order,
            "billing": billing,
            "prices": ",".join(
                dict.fromkeys(llm.prices.id if llm.prices else "none" for llm in library.llms)
            ),
        }
        file = None if ledger is None else LedgerFile(ledger, resume=resume)
        if file is not None:
            file.open(pinned)
        try:
            runs = Runs(order=order, recycle=recycle, billing=billing, file=file, find=library.find)
            return cls(library, matcher, runs, file, pinned, allow_mismatch=allow_mismatch)
        except BaseException:
            if file is not None:
                file.close()
            raise

    def respond(self, call: Call) -> Reply:
        """Answer a request. Errors become replies in the dialect's shape; only a `ReplayWarning` is
        raised.
        """
        try:
            return self._routed(call)
        except ReplayWarning:  # where warnings are errors; nothing was drawn
            raise
        except Exception as error:  # noqa: BLE001  a bug must not end the connection without an answer
            return error_reply(error, dialects.error_shape(call.path))

    def answers(self, method: str, path: str) -> bool:
        """Whether a request is one to LLMs, reward models, or for a list of them."""
        path = split_run(path)[1]
        own = dialects.openai_path(path)[0]
        if method == "GET":
            listed = own == "/v1/models" or own.startswith("/v1/models/")
            return listed or dialects.list_of(path, {}) is not None
        is_route = own in self._routes and not own.startswith("/feval/")
        posts = is_route and self._routes[own][0] == "POST"
        return method == "POST" and (posts or dialects.of_path(path) is not None)

    def refusals(self) -> dict[str, dict[str, int]]:
        """Return the run of each request that was refused, and how many of its requests were, by
        code.
        """
        return {run: dict(codes) for run, codes in self._refused.copy().items()}

    def ledger(self, run: str | None = None, *, detail: bool = False) -> Record:
        """Return what was handed out.

        Args:
            run: the name of a run; `None` for all runs.
            detail: whether to list, as "asked", every question of the run: llm, dataset, question,
                requests, passes, samples (recorded positions, those of the draw first; a CoT that
                was handed out twice is listed twice), tokens (where some were cut: how many of each
                were handed out, `None` for all).

        Returns:
            For one run: "run", "replicate" (`None`: recorded order), "requests", "cots",
            "prompt_tokens" (as billed), "output_tokens", "usd" (`None` where something has no
            price; "usd_missing" says why), "questions", "recycled", "asked_again" (questions that
            were asked in more than one pass), "cut", "limited" (CoTs that ended at a recorded limit
            below the one asked for) and "llms", name -> the same counts, and "prompts", what it put
            around the questions: for each dataset and template "requests", "matches" (how ->
            requests), "mismatches" (field -> requests) and "example", where it begins to differ
            from the first one. For all runs: "runs", a list of these. In both cases also what they
            depend on: "recordings" (hashes), "seed", "order", "billing", "prices" (id, or "none").

        Raises:
            NotRecordedError: no such run has asked anything.
        """
        summary = partial(self.runs.summary, detail=detail)
        if run is not None:
            return {**self._pinned, **summary(run_name(run, self.runs.order).label)}
        runs = []
        for label in self.runs.labels():
            with suppress(NotRecordedError):  # reset meanwhile
                runs.append(summary(label))
        return {**self._pinned, "runs": runs}

    def reset(self, run: str) -> None:
        """Start a run again: its draws, its place in every pool and its ledger.

        Args:
            run: its name.

        Raises:
            NotRecordedError: no such run has asked anything.
            StorageError: the ledger file cannot be written.
        """
        name = run_name(run, self.runs.order)
        self.runs.reset(name)
        self._refused.pop(name.label, None)

    def close(self) -> None:
        """Write what is left of the ledger file and close it."""
        if self._file is not None:
            self._file.close()

    def _routed(self, call: Call) -> Reply:
        name, path = split_run(call.path)
        name = call.headers.get("x-feval-run") if name is None else name
        order = self.runs.order
        run = run_of_key(next(iter(keys_of(call.headers, call.query)), ""), order)
        run = run if name is None else public_run(name, order)
        try:
            return self._answered(path, call, run)
        except ServingError as error:
            if run.label in self._refused or len(self._refused) < _MOST_REFUSED:
                self._refused[run.label][error.code or str(error.status)] += 1
            raise

    def _answered(self, path: str, call: Call, run: RunName) -> Reply:
        if found := dialects.of_path(path):
            _require_method(call, path, "POST")
            return self._in_dialect(*found, call, run)
        path, model = dialects.openai_path(path)
        if model is not None:
            call = replace(call, body=as_body(parse_object(call.body) | {"model": model}))
        listed = dialects.list_of(path, call.headers)
        route = self._routes.get("/v1/models" if path.startswith("/v1/models/") else path)
        if listed is not None:
            route = "GET", lambda *_: json_reply(listed.models(self._recorded()))
        if route is None:
            advice = (
                "Give clients a base URL that ends with /v1. "
                if f"/v1{path}" in self._routes
                else ""
            )
            raise UnknownError(
                f"There is nothing at {path[:80] or '/'}. {advice}Use {_PATHS}.", code="unknown_url"
            )
        method, handler = route
        _require_method(call, path, method)
        return handler(call, run)

    def _in_dialect(
        self, dialect: ModuleType, path: Mapping[str, str], call: Call, run: RunName
    ) -> Reply:
        """Answer a request of another dialect as the chat completion that it asks for."""
        asked: Asked = dialect.request(
            Fields(parse_object(call.body)), {**path, "query": call.query}
        )
        messages, first = asked.fields["messages"], asked.instructions
        if asked.previous is not None:
            earlier = self._turns.get((run.label, asked.previous))
            if earlier is None:
                raise RequestError(
                    f"The run {run.label!r} got no response {asked.previous[:80]!r} that can be"
                    " continued. Send the whole conversation as `input`.",
                    parameter="previous_response_id",
                    code="previous_response_not_found",
                )
            messages[first:first] = earlier
        call = replace(call, body=as_body(asked.fields))
        if "count" in path:
            return json_reply(dialect.counted(self._counted(call)))
        _, completion, headers = self._completion("chat", call, run)
        whole = dialect.whole(completion, asked, "x-feval-cut" in headers)
        if asked.kept:
            said = completion["choices"][0]["message"]
            turn = [*messages[first:], {name: said[name] for name in _SAID if name in said}]
            self._turns.put((run.label, whole["id"]), turn, 3 * len(call.body))
        return dialects.reply(dialect, whole, asked, headers)

    def _completions(self, kind: str, call: Call, run: RunName) -> Reply:
        request, completion, headers = self._completion(kind, call, run)
        return completion_reply(
            completion, stream=request.stream, with_usage=request.include_usage, headers=headers
        )

    def _completion(
        self, kind: str, call: Call, run: RunName
    ) -> tuple[CompletionRequest, Record, Mapping[str, str]]:
        """Draw for a request; it comes back with the completion and its headers."""
        key = (kind, call.body, *map(call.headers.get, OWN_HEADERS))
        question = self._questions.get(key)  # most requests are repeated for the next CoTs
        if question is None:
            request = parse(kind, call.body, call.headers)
            found = self._matcher.match(request)
            # all are checked before any is warned of
            fields = [self._mismatches.check(request, match) for match in found]
            for match in found:
                require_texts(match, self._texts.of(*match.key))
            matches = tuple(
                replace(
                    match,
                    use=match.use._replace(mismatch=field),
                    warnings=(*match.warnings, *self._mismatches.warnings(match)),
                )
                for match, field in zip(found, fields, strict=True)
            )
            question = _Question(request, matches, match_headers(matches))
            size = 3 * len(call.body) + _QUESTION_OVERHEAD * len(matches)
            self._questions.put(key, question, size)
        reads = [partial(cut_cots, match, self._texts.of(*match.key)) for match in question.matches]
        self._warn(run, question.matches, call.warn)
        handouts = self.runs.take(run, question.matches, reads, call.sender)
        made = completion_of(question.request, run, handouts, question.headers)
        return question.request, *made

    def _warn(self, run: RunName, matches: Sequence[Match], warn: Callable[[str], object]) -> None:
        """Tell a run, once of each kind and before anything is drawn, which settings have no
        effect.
        """
        for kind, what in (each for match in matches for each in match.warnings):
            if (run.label, kind) not in self._warned:
                warn(
                    f"The run {run.label!r} {what} Replies are as they were recorded; this is said"
                    " once."
                )
                self._warned.add((run.label, kind))

    def _counted(self, call: Call) -> int:
        """The recorded number of tokens of a prompt."""
        [match] = self._matcher.match(parse("chat", call.body, call.headers))
        if not match.is_recorded or match.prompt_tokens < 0:
            raise MissError(
                "Only the tokens of recorded prompts are known, and these messages are none whose"
                " tokens were counted. Count them with the tokenizer of the live LLM."
            )
        return match.prompt_tokens

    def _models(self, call: Call, _: RunName) -> Reply:
        models = {
            name: {"id": name, "object": "model", "created": seconds, "owned_by": "feval"}
            for name, seconds in self._recorded().items()
        }
        name = call.path.partition("/v1/models")[2].strip("/")
        if not name:
            return json_reply({"object": "list", "data": list(models.values())})
        if name not in models:
            raise UnknownError(
                f"No LLM {name[:80]!r} was recorded; GET /v1/models lists those that were."
            )
        return json_reply(models[name])

    def _recorded(self) -> dict[str, int]:
        """Each LLM, with when it was recorded."""
        return {llm.name: created(llm.recording) for llm in self.library.llms}

    def _health(self, *_: object) -> Reply:
        return json_reply(
            {
                "status": "ok",
                "version": __version__,
                "recordings": [recording.hash for recording in self.library.recordings],
                "datasets": {name: len(dataset) for name, dataset in self.library.datasets.items()},
                "llms": self.library.model_names(),
            }
        )

    def _grade(self, call: Call, run: RunName) -> Reply:
        try:
            fields = parse_json(call.body)
        except ValueError as error:
            raise RequestError(
                f"The body is not valid JSON: {error}. Post an object with `answers`.",
                code="invalid_json",
            ) from error
        if not isinstance(fields, dict) or "answers" not in fields:
            raise RequestError(
                "The body lacks `answers`: an object from question to answer.", parameter="answers"
            )
        for field in ("run", "dataset"):
            if not isinstance(fields.get(field), str | None):
                raise RequestError(f"`{field}` must be a name, as text.", parameter=field)
        try:
            name = fields.get("run") or run.label
            graded = grade(self, name, fields["answers"], dataset=fields.get("dataset"))
        except (UsageError, ConflictError) as error:
            raise RequestError(str(error), parameter="answers") from error
        return json_reply(graded.to_dict())

    def _reset(self, _: Call, run: RunName) -> Reply:
        self.reset(run.label)
        return json_reply({"run": run.label, "reset": True})

    def _ledger(self, call: Call, run: RunName) -> Reply:
        query = parse_qs(call.query, keep_blank_values=True)
        if unknown := sorted(query.keys() - {"run", "detail", "key"}):
            name = unknown[0][:80]
            raise RequestError(
                f"/feval/ledger takes run and detail; {name!r} is neither.", parameter=name
            )
        own = run.label if call.path.startswith("/run/") else None
        detail = query.get("detail", ["0"])[-1] not in {"0", "", "false"}
        return json_reply(self.ledger(query.get("run", [own])[-1], detail=detail))


def grade(
    application: Application, run: str, answers: object, *, dataset: str | None = None
) -> RunGrade:
    """Grade the answers of a run of a running application.

    Args:
        application: what handed the CoTs out.
        run: its name, as the ledger has it.
        answers: see `feval.receipts.grading.answers_by_id`.
        dataset: which one, if the run asked about several.

    Raises:
        NotRecordedError: the run has asked nothing.
        UsageError: the answers are not valid, or the run asked about several datasets.
        UnknownNameError: the run did not ask about that dataset.
        ConflictError: a question has two answers.
    """
    ledger = application.ledger(run, detail=True)
    return grade_run(ledger, application.library.opened, answers, dataset)


def _require_method(call: Call, path: str, method: str) -> None:
    if call.method not in {method, "HEAD" if method == "GET" else method}:
        raise RequestError(
            f"{path[:80]} takes {method} requests, not {call.method[:20]}.",
            status=405,
            headers={"allow": method},
        )
