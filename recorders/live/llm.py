"""Live LLMs: where they are asked, how, and at which price."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from feval.answers import canonical
from feval.answers.equality import named_equality
from feval.cards.billing import billed_prompts
from feval.cards.cards import thoughts_of
from feval.cards.prices import PriceList, price_list
from feval.errors import OutOfRangeError, UsageError
from feval.recording import Question
from feval.replay.meter import MeteredLLM
from recorders.asking.probing import Probing
from recorders.live.source import Journaled, LiveConfig, LiveSource, Loop
from recorders.request import Backend, Decoding, Message
from recorders.scoring.scores import Scorer
from recorders.work.settings import default_cue, default_decoding, default_prices, tree_of


class LiveLLM:
    """A live LLM; `ask` gives it a question. Use it as a context manager, or call `close`."""

    def __init__(self, name: str, config: LiveConfig) -> None:
        self.name = name
        self._config = config
        self._loop = Loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def ask(
        self,
        question: str,
        choices: Sequence[tuple[str, str]] = (),
        *,
        dataset: str = "",
        question_id: str = "",
    ) -> MeteredLLM:
        """Return the LLM for one question, with a meter: what a method is given.

        Args:
            question: the text that the prompt is made of.
            choices: (label, text) of its options, for reading answers.
            dataset: id of the dataset that it is from.
            question_id: its id; random numbers of `uniform` are then those of a replay in recorded
                order.
        """
        asked = Question(question_id, question, choices=tuple(choices))
        return MeteredLLM(LiveSource(self.name, self._config, self._loop, asked, dataset))

    def recorded(
        self, journaled: Journaled, messages: Callable[[Question], Sequence[Message]]
    ) -> Self:
        """Have what is asked kept in a journal, and questions put as for a recording; see
        `recorders.live.recording`.
        """
        self._config = replace(self._config, journaled=journaled, messages=messages)
        return self

    def close(self) -> None:
        """Close connections and the thread; do nothing if closed."""
        if self._loop.closed:
            return
        try:
            self._loop.run(self._config.backend.aclose())
            if self._config.scorer is not None:
                self._loop.run(self._config.scorer.aclose())
        finally:
            self._loop.close()


def live(
    backend: Backend,
    llm: str,
    *,
    answer_kind: str,
    equality: str | None = None,
    model: str | None = None,
    decoding: Decoding | None = None,
    messages: Callable[[str], Sequence[Message]] | None = None,
    prices: str | PriceList | None = None,
    billing: str = "once",
    retries: int = 5,
    probe_cue: str | None = None,
    probe_tokens: int = 20,
    probe_template: str | None = None,
    step_stop: str | None = None,
    step_depth: int | None = None,
    step_template: str | None = None,
    scorer: Scorer | None = None,
    wait: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
) -> LiveLLM:
    """Return a live LLM with the replay's `sample(k)`, `reply(cot, messages, k)`, `start(k)`,
    `expand(node, k)` and ledger.

    Args:
        backend: asked, and closed with the LLM.
        llm: name, such as "gpt-4o-mini@t=0.8"; the part before "@" finds the price.
        answer_kind: a key of `feval.answers.KINDS` except "verbatim".
        equality: of answers, see `feval.answers.equality.named_equality`; `None`: that of the
            answer kind. An answer is compared with earlier ones to the same question, whichever LLM
            gave them.
        model: as the provider calls it; `None`: the part of `llm` before "@".
        decoding: sampling parameters; `None`: see `recorders.work.settings.default_decoding`.
        messages: returns what is sent for a question; `None`: the question as one user message.
        prices: a price list or its id; "none" for no dollars; `None`: see
            `recorders.work.settings.default_prices`.
        billing: "once", "per_round" or "per_sample".
        retries: after temporary failures, before giving up.
        probe_cue: put behind a trace to make the LLM answer; `None`: see
            `recorders.work.settings.default_cue`.
        probe_tokens: most output tokens of a probe.
        probe_template: see `recorders.request.Prefill`.
        step_stop: text that a step ends at; `None`: as `feval record --tree` has it.
        step_depth: steps of the longest path, whose last one goes on to the end of the solution;
            `None`: likewise.
        step_template: see `recorders.request.Prefill`.
        scorer: of each step's path, as `recorders.scoring.scorers.make_scorer` gives it; closed
            with the LLM, and not charged.
        wait: for tests.

    Raises:
        UnknownNameError: no such answer kind, price list or billing.
        UsageError: an answer kind that is not read from texts.
        OutOfRangeError: negative retries, or a depth below 1.
    """
    canonical(answer_kind, None)
    if answer_kind == "verbatim":
        raise UsageError(
            "Verbatim answers are not read from texts; name another answer kind for a live LLM."
        )
    prices = default_prices(llm) if prices is None else prices
    billed_prompts(billing, 1, 1)
    if retries < 0:
        raise OutOfRangeError(f"The number of retries must be 0 or more; {retries} was given.")
    listed = None if prices == "none" else price_list(prices) if isinstance(prices, str) else prices
    config = LiveConfig(
        backend,
        model or llm.split("@", 1)[0],
        answer_kind,
        named_equality(answer_kind, equality),
        thoughts_of(llm),
        decoding or default_decoding(llm),
        lambda question: (
            [Message("user", question.text)] if messages is None else messages(question.text)
        ),
        None if listed is None else listed.find(llm),
        billing,
        retries,
        Probing(
            1, default_cue(llm) if probe_cue is None else probe_cue, probe_tokens, probe_template
        ),
        tree_of(llm, 1, 1, step_depth, step_stop, step_template),
        scorer,
        wait,
    )
    return LiveLLM(llm, config)
