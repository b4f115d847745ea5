"""Early-stopping self-consistency, ESC: draw window by window, stop when a window is unanimous (Li et al., arXiv 2401.10480)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError, UnknownNameError, UsageError
from feval.methods.decisions import Decisions, Ledger
from feval.methods.fields import require_types
from feval.methods.protocol import Sampler, drawn, require_draws, seen_tokens
from feval.methods.vote import plurality, plurality_codes

if TYPE_CHECKING:
    from feval.replay.pools import Pool

__all__ = ["EarlyStopping"]

ANSWERS = ("all", "window")


@dataclass(frozen=True)
class EarlyStopping:
    """Self-consistency that stops after the first window of CoTs that all give the same answer (ESC, algorithm 1).

    Windows of `window` CoTs are drawn, one request each, until one is unanimous or floor(budget / window) are drawn; what is
    left of the budget is never drawn. A window with a CoT without an answer is not unanimous. Of tied answers the one seen first
    wins; swapping two answers everywhere swaps their windows, too, so that over all draws this is a uniform tie-break.

    Attributes:
        window: CoTs per request.
        budget: most CoTs.
        answer: what a stop answers: "all", the plurality of everything drawn, or "window", the answer of the unanimous window.
    """

    window: int = 5
    budget: int = 40
    # The paper's text leaves the answer of a stop open. The authors' script returns the window's; the authors of DSC vote over
    # everything drawn when they run ESC. The vote is the default: it is self-consistency on the CoTs that were paid for.
    answer: str = "all"

    def __post_init__(self) -> None:
        require_types(self)
        if not 1 <= self.window <= self.budget:
            raise OutOfRangeError(
                f"Early stopping draws windows of 1 CoT up to the budget; window={self.window} and budget={self.budget} "
                "were given."
            )
        if self.answer not in ANSWERS:
            raise UnknownNameError.of("answer of early stopping", self.answer, ANSWERS)

    @property
    def windows(self) -> int:
        """Most windows drawn."""
        return self.budget // self.window

    def draws(self, llms: int) -> tuple[int, ...]:
        """The most CoTs asked of the one LLM."""
        if llms != 1:
            raise UsageError(f"Early stopping draws windows of one LLM; {llms} were given.")
        return (self.windows * self.window,)

    def __call__(self, question: str, llm: Sampler) -> str | None:  # noqa: ARG002  a replayed LLM already has its question
        """The answer to one question; `None` if no CoT has one.

        Args:
            question: the text.
            llm: anything with `sample(k)`, recorded or live.
        """
        seen: list[str | None] = []
        for _ in range(self.windows):
            window = llm.sample(self.window).answers
            seen += window
            if window[0] is not None and len(set(window)) == 1:
                return window[0] if self.answer == "window" else plurality(seen)
        return plurality(seen)

    def decide(self, pools: Sequence[Pool], orders: Sequence[npt.NDArray[np.uint16]]) -> Decisions:
        """The same for all questions and many replicates; see `BatchMethod.decide`."""
        [draws] = require_draws(self, pools, orders)
        pool, order = pools[0], orders[0][:, :, :draws]
        codes = drawn(pool.codes, order)
        windows = codes.reshape(*codes.shape[:2], self.windows, self.window)
        unanimous = (windows == windows[..., :1]).all(axis=3) & (windows[..., 0] >= 0)
        stopped = unanimous.any(axis=2)
        rounds = np.where(stopped, unanimous.argmax(axis=2) + 1, self.windows).astype(np.int32)
        cots = rounds * self.window
        seen = np.arange(draws, dtype=np.int32) < cots[:, :, None]
        answer = plurality_codes(np.where(seen, codes, codes.dtype.type(-1)))
        if self.answer == "window":
            last = np.take_along_axis(codes, (cots - 1)[:, :, None].astype(np.intp), axis=2)[:, :, 0]
            answer = np.where(stopped, last, answer)
        tokens = seen_tokens(drawn(pool.output_tokens, order), seen)
        return Decisions(answer, (Ledger(rounds, cots, tokens),))
