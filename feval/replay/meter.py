"""An LLM asked one question, with a meter: what a method is given."""

from __future__ import annotations

import numpy as np

from feval.cards.billing import billed_prompts
from feval.errors import OutOfRangeError, UsageError
from feval.replay.draws import uniforms
from feval.replay.responses import LLMResponse, RecordedLLM


class MeteredLLM:
    """Hands out the CoTs of one draw of one question, and counts them. A method sees this and nothing more.

    Args:
        llm: the recorded LLM.
        row: of the question.
        replicate: of the draw; `None` hands the CoTs out in recorded order.
    """

    __slots__ = ("_auxiliary", "_closed", "_llm", "_order", "_rounds", "_row", "_tokens")

    def __init__(self, llm: RecordedLLM, row: int, replicate: int | None = 0) -> None:
        self._llm, self._row = llm, row
        self._order = tuple(range(int(llm.pool.sizes[row]))) if replicate is None else llm.order(row, replicate)
        self._rounds = 0
        self._tokens: list[int] = []
        self._auxiliary = (0, 0, 0)
        self._closed = False

    def __repr__(self) -> str:
        return f"MeteredLLM({self.name!r}, {self.cots} of {len(self._order)} CoTs handed out)"

    @property
    def name(self) -> str:
        """The LLM's name."""
        return self._llm.name

    @property
    def rounds(self) -> int:
        """Number of `sample` requests so far."""
        return self._rounds

    @property
    def cots(self) -> int:
        """CoTs handed out so far."""
        return len(self._tokens)

    @property
    def remaining(self) -> int:
        """CoTs that can still be handed out."""
        return len(self._order) - len(self._tokens)

    @property
    def tokens_billed(self) -> int:
        """Prompt and output tokens so far, prompts by the LLM's billing.

        Raises:
            PriceNotFoundError: the prompt tokens are not known.
        """
        prompt_tokens = self._llm.known_prompt_tokens(self._row, "the tokens billed are not known")
        prompts = int(billed_prompts(self._llm.billing, self.rounds, self.cots))
        auxiliary = self.auxiliary_prompt_tokens + self.auxiliary_output_tokens
        return prompts * prompt_tokens + self.output_tokens + auxiliary

    @property
    def output_tokens(self) -> int:
        """Tokens of the CoTs handed out so far, less what was cut off."""
        return sum(self._tokens)

    @property
    def auxiliary_calls(self) -> int:
        """Number of requests so far that gave no CoT: verifications, self-checks, rankings."""
        return self._auxiliary[0]

    @property
    def auxiliary_prompt_tokens(self) -> int:
        """Prompt tokens of the auxiliary calls."""
        return self._auxiliary[1]

    @property
    def auxiliary_output_tokens(self) -> int:
        """Output tokens of the auxiliary calls."""
        return self._auxiliary[2]

    def sample(self, k: int = 1) -> LLMResponse:
        """Return the next k CoTs of the draw; the ledger counts them as one request.

        Raises:
            ShortPoolError: fewer than k are left.
            OutOfRangeError: k is below 1 or not a whole number.
            UsageError: the ledger is closed.
        """
        if self._closed:
            raise UsageError(
                f"This {self.name} was kept from another question or draw, whose ledger is closed; ask the one that the method "
                "was called with."
            )
        if k < 1 or k % 1:
            raise OutOfRangeError(f"A method asks {self.name} for 1 CoT or more at a time; {k!r} were asked for.")
        self._llm.require(self._row, self.cots + k)
        response = LLMResponse(self._order[self.cots : self.cots + k], self._llm, self._row)
        self._rounds += 1
        self._tokens += self._llm.pool.output_tokens[self._row, list(response.samples)].tolist()
        return response

    def truncate(self, index: int, tokens: int) -> None:
        """Stop a CoT early: only its first tokens are billed. Cutting a recorded CoT does not change what came before the cut.

        Args:
            index: which of the CoTs handed out so far, from 0.
            tokens: how many of its tokens were generated before it was stopped; more than it has changes nothing.

        Raises:
            OutOfRangeError: no such CoT, or a negative number of tokens.
        """
        if not 0 <= index < self.cots or tokens < 0:
            raise OutOfRangeError(
                f"{self.name} has handed out {self.cots} CoTs, numbered from 0; CoT {index} cannot be cut after {tokens} tokens."
            )
        self._tokens[index] = min(self._tokens[index], tokens)

    def charge(self, *, calls: int = 1, prompt_tokens: int = 0, output_tokens: int = 0) -> None:
        """Bill requests that give no CoT, such as a recorded verification, at this LLM's price.

        Raises:
            OutOfRangeError: a negative number.
        """
        if min(calls, prompt_tokens, output_tokens) < 0:
            raise OutOfRangeError(
                f"Costs only grow; {calls} calls of {prompt_tokens} and {output_tokens} tokens cannot be charged to {self.name}."
            )
        before = self._auxiliary
        self._auxiliary = (before[0] + calls, before[1] + prompt_tokens, before[2] + output_tokens)

    def uniform(self, seed: int = 0) -> float:
        """Return a random number in [0, 1), a function of the question and the CoTs handed out so far; see `draws.uniforms`."""
        keys = self._llm.question_keys[self._row : self._row + 1]
        samples = np.array(self._order[: max(self.cots, 1)], np.uint16)[None, None, :]
        return float(uniforms(keys, samples, seed)[0, 0, -1])

    @property
    def dollar_cost(self) -> float:
        """USD so far; see `LLM.dollars`."""
        _, prompt_tokens, output_tokens = self._auxiliary
        return self._llm.dollars(
            self._row,
            rounds=self.rounds,
            cots=self.cots,
            output_tokens=self.output_tokens + output_tokens,
            auxiliary_prompt_tokens=prompt_tokens,
        )


def close_ledger(llm: MeteredLLM) -> None:
    """Close a ledger that was read: CoTs handed out from now on would be counted nowhere. Not a method, so no user calls it."""
    llm._closed = True  # noqa: SLF001  users' methods must not find this among the public attributes
