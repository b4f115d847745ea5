"""Scores by reward models behind HTTP: feval's own protocol, and vLLM's for cross-encoders."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

from feval.recording import ScorerInfo
from recorders.backends import replies
from recorders.backends.endpoint import Endpoint
from recorders.backends.faults import Answer, of_answer
from recorders.errors import BackendError, Fatal, Transient
from recorders.scoring.score_journal import Score
from recorders.scoring.scorer import Item, RequestCost, read_score

_CONNECT_TIMEOUT_S = 15.0


class _HTTPScorer:
    """JSON sent and received, with the key in a header; the base of both protocols."""

    batch = 64
    concurrency = None
    request_cost: RequestCost | None = None

    def __init__(self, endpoint: Endpoint, model: str, timeout_s: float) -> None:
        self._endpoint, self._model, self._timeout_s = endpoint, model, timeout_s
        self._client: httpx2.AsyncClient | None = None
        self.warnings = () if endpoint.warning is None else (endpoint.warning,)
        self.facts: Mapping[str, Any] = {"base_url": endpoint.url}

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
        self._endpoint.redaction.leave_logs()

    async def post(self, url: str, body: object) -> Any:
        """Send JSON and return the JSON that comes back; a `BackendError` says what came
        instead.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                response, content = await self._exchange(url, json.dumps(body).encode())
        except (TimeoutError, httpx2.TimeoutException):
            failure: BackendError = Transient(
                f"{self._endpoint.host} did not answer within {self._timeout_s:g} s"
            )
        except httpx2.HTTPError as error:
            failure = Transient(
                f"the connection to {self._endpoint.host} failed ({type(error).__name__})"
            )
        else:
            if not response.is_success:
                raise self._error(
                    Answer(response.status_code, response.headers, _json_or_text(content))
                )
            try:
                return json.loads(content)
            except (ValueError, RecursionError) as error:
                raise Transient(f"{self._endpoint.host} sent no valid JSON") from error
        # Raised here and not above, where Python would chain the client's error to it: it may quote
        # what was sent.
        raise failure

    async def _exchange(self, url: str, data: bytes) -> tuple[httpx2.Response, bytes]:
        if self._client is None:
            self._endpoint.redaction.guard_logs()
            timeout = httpx2.Timeout(
                self._timeout_s, connect=min(self._timeout_s, _CONNECT_TIMEOUT_S)
            )
            # A redirect would carry the key to another host.
            limits = httpx2.Limits(max_connections=None)
            self._client = httpx2.AsyncClient(
                timeout=timeout, limits=limits, follow_redirects=False
            )
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {self._endpoint.client_key}",
        }
        headers |= replies.ACCEPTED | self._endpoint.headers
        async with self._client.stream("POST", url, content=data, headers=headers) as response:
            return response, await replies.body(response, self._endpoint.host)

    def _error(self, answer: Answer) -> BackendError:
        return of_answer(answer, self._endpoint, self._model)

    def _scores(self, values: object, number: int, expected: str) -> list[Score]:
        """Read the scores of a reply."""
        if not isinstance(values, list):
            raise self._wrong_reply(expected, "none")
        if len(values) != number:
            raise self._wrong_reply(expected, f"{len(values):,} for {number:,} CoTs")
        return [read_score(value) or Score(problem="unreadable") for value in values]

    def _wrong_reply(self, expected: str, received: str) -> Fatal:
        return Fatal(
            f"{self._endpoint.host} did not answer with one score for each CoT: expected"
            f" {expected}, received {received}. Check the URL, and that a reward model with the"
            " named protocol is there."
        )


def _json_or_text(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body[:20_000].decode(errors="replace")


class RewardScorer(_HTTPScorer):
    """feval's own protocol: a list of CoTs in, a list of scores out, in the same order.

    Request: `[{"question": str, "text": str, "answer": str | null}, ...]`, all of one question.
    Reply: `{"scores": [number | [number, ...] | null, ...]}`, a list standing for step scores.
    """

    def __init__(self, endpoint: Endpoint, name: str | None, timeout_s: float) -> None:
        super().__init__(endpoint, "the reward model", timeout_s)
        self.info = ScorerInfo(
            name or f"http:{endpoint.url}",
            "http",
            {"url": endpoint.url, "protocol": "feval-rewards-1"},
        )

    async def score(self, items: Sequence[Item]) -> list[Score]:
        """Return one result per CoT."""
        body = [
            {"question": item.question_text, "text": item.text, "answer": item.answer}
            for item in items
        ]
        reply = await self.post(self._endpoint.url, body)
        scores = reply.get("scores") if isinstance(reply, dict) else None
        return self._scores(scores, len(items), "a list `scores` in a JSON object")

    def _error(self, answer: Answer) -> BackendError:
        if answer.status not in {404, 405}:
            return super()._error(answer)
        reason = self._endpoint.redaction.reason(answer.message).rstrip(".")
        return Fatal(
            f"{self._endpoint.host} answered {answer.status}"
            + (f": {reason}" if reason else "")
            + ". Check the URL "
            f"({self._endpoint.url}): a reward model there should take a POST of JSON."
        )


class VLLMScorer(_HTTPScorer):
    """vLLM's `/score` for cross-encoders: https://docs.vllm.ai, "OpenAI-Compatible Server", Score
    API.
    """

    def __init__(self, endpoint: Endpoint, model: str, name: str | None, timeout_s: float) -> None:
        super().__init__(endpoint, model, timeout_s)
        self.info = ScorerInfo(name or f"vllm-score:{model}", "vllm-score", {"model": model})
        self.request_cost = RequestCost(model, 0, lambda item: f"{item.question_text}\n{item.text}")

    async def score(self, items: Sequence[Item]) -> list[Score]:
        """Return one result per CoT."""
        body = {
            "model": self._model,
            "text_1": items[0].question_text,
            "text_2": [item.text for item in items],
        }
        reply = await self.post(f"{self._endpoint.url}/score", body)
        data = reply.get("data") if isinstance(reply, dict) else None
        expected = "a list `data` in a JSON object, with an index and a score in each entry"
        if not isinstance(data, list) or not all(isinstance(entry, dict) for entry in data):
            raise self._wrong_reply(expected, "none")
        by_index = {entry["index"]: entry for entry in data if type(entry.get("index")) is int}
        if sorted(by_index) != list(range(len(data))):
            raise self._wrong_reply(expected, "entries without an index of their own")
        data = [by_index[index] for index in range(len(data))]
        # Older servers wrap each score in a list.
        scores = [
            value[0] if isinstance(value, list) and value else value
            for value in (e.get("score") for e in data)
        ]
        return self._scores(scores, len(items), expected)
