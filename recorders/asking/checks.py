"""Do the replies as a whole show that the server does what it was asked?

A server that ignores a parameter does not say so; it shows in the replies. These checks see every
CoT once, keep a few numbers per question, and return sentences.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from feval.answers.thoughts import Thoughts, split
from recorders.request import Completion, Decoding

_LOOKS = (20, 100)  # after so many CoTs, check whether too many end at the limit
_MOST_AT_LIMIT = 0.05
_ROOM_TO_THINK = 32_768
_ENOUGH_REPEATS = 3


class ReplyChecks:
    """Counts oddities among the CoTs of one LLM on one dataset."""

    def __init__(self, decoding: Decoding) -> None:
        self._decoding = decoding
        self._questions: dict[str, _Texts] = {}
        self._seen: Counter[str] = Counter()
        self._doubts: Counter[str] = Counter()

    def see(self, key: str, completion: Completion, *, refused: bool = False) -> None:
        """Look at one CoT of a question's `key`; `refused` marks the placeholder of a refused
        request.
        """
        seen = self._seen
        if refused:
            seen["refused"] += 1
            return
        seen["cots"] += 1
        seen[completion.finish_reason] += 1
        seen["empty"] += not completion.text
        if completion.usage_doubt is not None:
            self._doubts[completion.usage_doubt] += 1
        else:
            seen["without usage"] += completion.output_tokens is None
        seen["without logprobs"] += completion.token_logprobs is None
        text = hash(completion.text)
        known = self._questions.get(key)
        if known is None:
            self._questions[key] = _Texts(text)
        else:
            known.count += 1
            known.differ |= text != known.first

    def notes(self) -> list[str]:
        """Return the oddities, in sentences."""
        seen, cots = self._seen, self._seen["cots"]
        have = "CoT has" if seen["refused"] == 1 else "CoTs have"
        facts = [
            (
                seen["refused"],
                (
                    f"{have} no text because the server refused the request, which counts as no"
                    " answer."
                ),
            ),
            (seen["length"], f"of {cots} CoTs were cut off at the limit on output tokens."),
            (
                seen["content_filter"],
                f"of {cots} CoTs were stopped by a content filter; they count as no answer.",
            ),
            (
                seen["error"],
                f"of {cots} CoTs ended in an error of the server; they count as no answer.",
            ),
            (seen["unknown"], f"of {cots} CoTs came without a finish reason."),
            (seen["empty"], f"of {cots} CoTs are empty."),
            (seen["without usage"], f"of {cots} CoTs came without a count of their tokens."),
        ]
        for doubt, number in sorted(self._doubts.items()):
            facts.append(
                (
                    number,
                    (
                        f"of {cots} CoTs came with a count of tokens that cannot be, and was not"
                        f" taken: {doubt}."
                    ),
                )
            )
        if self._decoding.logprobs is not None:
            missing = seen["without logprobs"]
            facts.append(
                (missing, f"of {cots} CoTs came without the log-probabilities that were asked for.")
            )
        return [
            f"{number} {sentence}" for number, sentence in facts if number
        ] + self._about_temperature()

    def _about_temperature(self) -> list[str]:
        temperature = self._decoding.temperature
        several = [texts for texts in self._questions.values() if texts.count > 1]
        equal = sum(not texts.differ for texts in several)
        repeats = sum(texts.count - 1 for texts in several)
        if temperature == 0 or repeats < _ENOUGH_REPEATS or 2 * equal < len(several):
            return []
        requested = (
            "the provider's default temperature"
            if temperature is None
            else f"the temperature {temperature:g}"
        )
        sentence = (
            f"On {equal} of {len(several)} questions all CoTs are equal word for word, though"
            f" {requested} was asked for; the server may ignore the temperature, or a cache may"
            " answer."
        )
        return [sentence]


class LimitWatch:
    """Warns early if more than 5 % of the first replies end at the limit on output tokens."""

    def __init__(self, decoding: Decoding, thoughts: Thoughts | None, total: int) -> None:
        self._limit, self._thoughts = decoding.max_tokens, thoughts
        self._looks = {min(look, total) for look in _LOOKS}
        self._seen = self._at_limit = self._thinking = 0

    def see(self, completion: Completion) -> str | None:
        """Look at one CoT; return a warning if it is time for one."""
        if not self._looks:
            return None
        parts = split(completion.text, self._thoughts)
        thinking = not parts.closed or (bool(completion.reasoning) and not completion.text.strip())
        at_limit = completion.finish_reason == "length" or (
            completion.finish_reason == "unknown" and not parts.closed
        )
        self._seen += 1
        self._at_limit += at_limit
        self._thinking += at_limit and thinking
        if self._seen not in self._looks:
            return None
        self._looks.remove(self._seen)
        if self._at_limit <= _MOST_AT_LIMIT * self._seen:
            return None
        self._looks.clear()
        return self._sentence()

    def _sentence(self) -> str:
        limit = (
            "the provider's limit on" if self._limit is None else f"the limit of {self._limit:,}"
        )
        inside = f", {self._thinking} of them inside a thought" if self._thinking else ""
        more = max(
            2 * (self._limit or 0), _ROOM_TO_THINK if self._thinking or self._limit is None else 0
        )
        return (
            f"{self._at_limit} of the first {self._seen} CoTs end at {limit} output tokens{inside},"
            " so that their answers are not known. Stop, and record into another folder with a"
            f" higher limit, such as --max-tokens {more}."
        )


@dataclass(slots=True)
class _Texts:
    """The texts of one question: a hash of the first, their number, and whether any differs."""

    first: int
    count: int = 1
    differ: bool = False
