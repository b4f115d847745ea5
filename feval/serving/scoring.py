"""Recorded scores for programs that ask a reward model or a reranker: `/score`, `/rerank` and
`/pooling` as vLLM serves them, so that best-of-N and searches of other packages replay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from feval.cards import find_llm_card
from feval.cards.reading import some
from feval.recording.arrays import stated_direction
from feval.serving.cots import TextCache
from feval.serving.library import Library, ServedDataset
from feval.serving.runs import RunName
from feval.serving.wire.calls import (
    AmbiguousError,
    Call,
    MissError,
    Reply,
    UnknownError,
    json_reply,
    wrong,
)
from feval.serving.wire.openai import conversation, parse_object
from feval.values import Record

_SHOWN = 60
_Place = tuple[ServedDataset, int]


@dataclass(eq=False)
class RecordedScores:
    """Looks scores up by the exact texts of a question and a CoT; they are free, and stand in no
    ledger. Safe to use from many threads.
    """

    _library: Library
    _texts: TextCache
    _places: dict[str, list[_Place]] | None = None

    def score(self, call: Call, _: RunName) -> Reply:
        """Score each text of `text_2` (or `documents`) with the one of `text_1` (or `queries`)."""
        fields = parse_object(call.body)
        first, second = ("text_1", "text_2") if "text_1" in fields else ("queries", "documents")
        questions, texts = _texts(fields, first), _texts(fields, second)
        if len(questions) == 1:
            questions *= len(texts)
        if len(questions) != len(texts):
            raise wrong(first, f"one text, or as many as `{second}` ({len(texts)})", questions)
        scores = self._scores(fields, zip(questions, texts, strict=True))
        return _reply(fields, [{"object": "score", "score": own} for own, _ in scores])

    def rerank(self, call: Call, _: RunName) -> Reply:
        """Sort the `documents` of a `query` by their scores, the highest first."""
        fields = parse_object(call.body)
        questions, texts = _texts(fields, "query"), _texts(fields, "documents")
        if len(questions) > 1:
            raise wrong("query", "one text", questions)
        top = fields.get("top_n") or len(texts)
        if type(top) is not int or top < 1:
            raise wrong("top_n", "a whole number of at least 1", top)
        scores = self._scores(fields, ((questions[0], text) for text in texts))
        order = sorted(range(len(texts)), key=lambda place: -scores[place][0])
        results = [
            {
                "index": place,
                "document": {"text": texts[place]},
                "relevance_score": scores[place][0],
            }
            for place in order[:top]
        ]
        return json_reply({"id": "rerank", "model": fields["model"], "results": results})

    def pooling(self, call: Call, _: RunName) -> Reply:
        """Give the score of a conversation, or its step scores, in the shape that the card of the
        reward model states: without one, a list of each.
        """
        fields = parse_object(call.body)
        if "messages" not in fields:
            raise MissError(
                "Scores are looked up by messages: a user's with the question, the assistant's with"
                " the CoT. How a template would render them was not recorded.",
                parameter="input",
            )
        if not isinstance(fields["messages"], list):
            raise wrong("messages", "a list of messages", fields["messages"])
        asked = conversation(fields["messages"])
        replies = [text for role, text in asked.messages if role == "assistant"]
        pair = asked.last_user_text, replies[-1] if replies else ""
        [(own, steps)] = self._scores(fields, [pair], whole=False)
        card = find_llm_card(stated_direction(fields["model"])[0])
        shape = "list" if card is None else card.pooling
        data: list[Any] = [*steps] or [own]
        if shape != "number":
            data = [[1 - each, each] if shape == "pair" else [each] for each in data]
            data = data if steps else data[0]
        return _reply(fields, [{"object": "pooling", "data": data}])

    def _scores(
        self, fields: Record, pairs: Iterable[tuple[str, str]], *, whole: bool = True
    ) -> list[tuple[float, list[float]]]:
        """Score and step scores of each pair of a question and a CoT."""
        scorer = fields.get("model")
        if not isinstance(scorer, str):
            raise wrong("model", "the name of a scorer", scorer)
        known = {name: None for llm in self._library.llms for name in llm.pool.channels.scorers()}
        if scorer not in known and stated_direction(scorer)[0] not in known:
            raise UnknownError(
                f"No scorer {scorer[:_SHOWN]!r} was recorded. Scores are by"
                f" {some(known) or 'nobody'}; name one as the model.",
                parameter="model",
            )
        return [self._of(scorer, *pair, whole=whole) for pair in pairs]

    def _of(
        self, scorer: str, question: str, text: str, *, whole: bool
    ) -> tuple[float, list[float]]:
        found: dict[str, tuple[float, list[float]]] = {}
        for served, row in self._rows().get(question, ()):
            for llm in served.llms:
                if not {scorer, stated_direction(scorer)[0]} & {*llm.pool.channels.scorers()}:
                    continue
                scores = llm.pool.scores(scorer)
                has_steps = bool(scores.steps.values.size)
                # the higher the better, or refused
                values = llm.pool.aggregated(scorer, "last" if has_steps else "score")
                for sample, cot in enumerate(self._texts.of(llm, row)):
                    own = float(values[row, sample])
                    steps = scores.steps.of(row, sample).tolist()
                    if cot.text == text and not np.isnan(own):
                        if steps and steps[-1] != own:  # lower was better
                            steps = [-each for each in steps]
                        found[repr((own, steps))] = own, steps
                        break  # of CoTs with one text the first counts
        if not found:
            raise MissError(
                f"No score by {scorer!r} was recorded of the CoT {text[:_SHOWN]!r} on the question"
                f" {question[:_SHOWN]!r}; both texts are compared exactly."
            )
        if len(found) > 1:
            raise AmbiguousError(
                f"{len(found)} scores by {scorer!r} were recorded of the CoT {text[:_SHOWN]!r} on"
                f" the question {question[:_SHOWN]!r}. Serve one LLM (--llm)."
            )
        [(own, steps)] = found.values()
        if whole and steps:
            raise MissError(
                f"{scorer!r} gave step scores and no score of whole CoTs; ask /pooling for them."
            )
        return own, steps

    def _rows(self) -> dict[str, list[_Place]]:
        """The questions by their texts, and by the last user messages of their prompts."""
        with self._library.lock:
            if self._places is None:
                places = defaultdict[str, dict[_Place, None]](dict)
                for served in self._library.served:
                    for row, text in enumerate(served.texts):
                        places[text][served, row] = None
                    for row, own in chain(*map(served.conversations, served.llms)):
                        places[own.last_user_text][served, row] = None
                self._places = {text: [*own] for text, own in places.items()}
            return self._places


def _texts(fields: Record, name: str) -> list[str]:
    value = fields.get(name)
    sent = value if isinstance(value, list) else [value]
    texts = [own.get("text") if isinstance(own, dict) else own for own in sent]
    known = [text for text in texts if isinstance(text, str)]
    if not texts or len(known) < len(texts):
        raise wrong(name, "text, or a list of texts", value)
    return known


def _reply(fields: Record, data: Sequence[dict[str, Any]]) -> Reply:
    numbered = [{"index": place, **own} for place, own in enumerate(data)]
    usage = {"prompt_tokens": 0, "total_tokens": 0}
    whole = {"id": "scores", "object": "list", "model": fields["model"], "data": numbered}
    return json_reply(whole | {"usage": usage})
