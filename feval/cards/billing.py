"""Billing and eq. (1) of the paper: from tokens to US dollars. Nothing here imports pydantic.

    USD = 1e-6 (C_in · prompt tokens billed + C_out · output tokens)

C_in and C_out are USD per million tokens; see `prices`.

Source: FEval-TTC (arXiv 2511.01203), section 2.3, eq. (1), and Appendix A. Every prompt is billed
once there; the other two billings are what papers without a sampling API that returns many CoTs per
request paid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

from feval.cards.reading import shorten
from feval.errors import OutOfRangeError, UnknownNameError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BILLINGS: tuple[str, ...] = ("once", "per_round", "per_sample")
"""How a prompt is charged: `once` per LLM and question (eq. 1, the default), `per_round` (each
request sends it again, as ESC's windows do), or `per_sample` (each CoT is a request of its own, as
in Adaptive-Consistency).
"""

_Counts = TypeVar("_Counts", int, "NDArray[Any]")
PRICE_FIELDS = ("input_usd_per_mtok", "output_usd_per_mtok")
# far above any price, and far below where sums of dollars leave floats
MOST_USD_PER_MTOK = 1_000_000_000
MOST_USD = 1_000
"""The most that one CoT may state: sums of whole picodollars over draws stay below 2**63."""
PICODOLLARS = 1e12
"""Of a USD: recorded amounts are added as whole numbers, so that no sum depends on its order."""


@dataclass(frozen=True, slots=True)
class Price:
    """What an LLM costs.

    Attributes:
        input_usd_per_mtok: C_in, USD per million prompt tokens, 0 to 1e9.
        output_usd_per_mtok: C_out, USD per million output tokens, 0 to 1e9.

    Raises:
        OutOfRangeError: a price is negative, beyond 1e9, or no number.
    """

    input_usd_per_mtok: float
    output_usd_per_mtok: float

    def __post_init__(self) -> None:
        for name in PRICE_FIELDS:
            value = getattr(self, name)
            try:
                price = float(value)  # an integer, times an array of small integers, would overflow
            except (OverflowError, TypeError, ValueError):
                price = math.nan
            if not 0 <= price <= MOST_USD_PER_MTOK:  # NaN, too, is refused
                raise OutOfRangeError(
                    f"A price cannot be {shorten(value)} USD per million tokens. Give a number from"
                    f" 0 to {MOST_USD_PER_MTOK:,}."
                )
            object.__setattr__(self, name, price)


def billed_prompts(billing: str, rounds: _Counts, cots: _Counts) -> _Counts:
    """Return how many times the prompt of a question is paid.

    Args:
        billing: one of `BILLINGS`.
        rounds: requests made to one LLM for one question, at least 0: an integer, or an array of
            any shape.
        cots: CoTs received, of the same shape.

    Returns:
        Integers of the same shape: 1 wherever anything was asked (`once`), `rounds` (`per_round`),
        or `cots` (`per_sample`); 0 wherever nothing was asked.

    Raises:
        UnknownNameError: `billing` is none of `BILLINGS`.
    """
    if billing not in BILLINGS:
        raise UnknownNameError.among("billing", billing, BILLINGS)
    times: Any = {"once": 1, "per_round": rounds, "per_sample": cots}[billing]
    billed: _Counts = times * (rounds > 0)
    return billed


@overload
def usd(price: Price, prompt_tokens: float, output_tokens: float) -> float: ...
@overload
def usd(price: Price, prompt_tokens: Any, output_tokens: Any) -> NDArray[np.float64]: ...
def usd(price: Price, prompt_tokens: Any, output_tokens: Any) -> Any:
    """Return the cost in USD by eq. (1).

    Args:
        price: of the LLM.
        prompt_tokens: input tokens billed: those of the prompt as often as it is paid; a number, or
            an array of any shape.
        output_tokens: of all CoTs paid for; of a shape that broadcasts with it.

    Returns:
        USD: a float, or a float64 array. Unknown token counts (negative in a pool) are the caller's
        to leave out.
    """
    return 1e-6 * (
        price.input_usd_per_mtok * prompt_tokens + price.output_usd_per_mtok * output_tokens
    )
