"""The version of what numbers mean, and what each version changed.

The same recording, method and seed give the same numbers as long as the version stays. Whoever changes what a number means raises
`VERSION` once per release and describes the difference here, in a sentence for readers. A receipt carries its version, so that
`feval verify` of an older one can say what has changed since instead of calling it wrong. Version 1 is the first.
"""

from __future__ import annotations

from collections.abc import Mapping

VERSION = 4

CHANGES: Mapping[int, tuple[str, ...]] = {
    2: (
        (
            "Questions without a gold answer that can be read are refused, or left out with --unlabelled drop; before, every "
            "answer to them counted as wrong."
        ),
        (
            "Intervals of accuracies are score intervals instead of the percentile bootstrap; differences, their intervals and "
            "p-values come from sign flips, and differences at a shared first point are not tested."
        ),
        (
            "Comparisons without an `order` that mix exact and seeded methods are evaluated on seeded draws throughout; `order = "
            '"mixed"` evaluates each method in its own kind, as before.'
        ),
        (
            "What a method answers is read by the dataset's answer kind before it is compared with the gold; before, another "
            "spelling of the right answer was wrong, and thoughts were read."
        ),
        (
            "A recording that was extracted again has another hash: equal answers vote together whatever the gold is, thoughts "
            "are no answers, and more spellings of numbers and options are read (feval-answers-2)."
        ),
    ),
    3: (
        (
            "The share of wrong answers that were stopped early is exact for more budgets of Adaptive-Consistency; where it is "
            "still estimated, questions that are rarely wrong are no longer taken for never stopped early, which made it too low."
        ),
        "Results state output tokens, tokens generated one after the other, and those of the longest trace.",
    ),
    4: (
        (
            "Intervals of accuracies are Student's with one imaginary question right and one wrong, and differences have a test "
            "and an interval of the same kind; before, intervals missed rare failures on few questions, and sign flips found "
            "differences between equally good methods too often where differences are skewed."
        ),
        (
            "Questions with the same text and choices count as one in intervals, tests and resamples; before, each was evidence "
            "of its own."
        ),
        (
            "An answer that is the gold's own text is right under every equality, and a number that nobody recorded is right "
            "within the tolerance; before, both were wrong."
        ),
        (
            "Scores below 0 are refused as weights of votes; before, they elected the minority. Scores named like a loss ask "
            "which way is better."
        ),
        (
            "Differences of methods that share no cost stand in a table with a Holm family of its own, and comparisons state the "
            "best setting within three budgets with those that are within noise of it."
        ),
        (
            "Without an order, exact walks that would visit more than 400,000,000 counts are seeded; before, they were refused."
        ),
        (
            "A recording that was extracted again has another hash: powers, repeating decimals and equations are read as what "
            "they come to, expressions and numbers of other bases are no answer, and more thoughts are split off "
            "(feval-answers-3)."
        ),
    ),
}
"""Version -> what it changed, a sentence each."""

LATER = frozenset(
    {
        "output_tokens",
        "output_tokens_per_question",
        "sequential_tokens",
        "sequential_tokens_per_question",
        "longest_trace_tokens",
        "traces",
    }
)
"""Numbers that came within a version, beside those that it has; a receipt that lacks them is an earlier one."""


def changes_since(version: int) -> tuple[str, ...]:
    """What has changed since a version, oldest first."""
    return tuple(sentence for later in sorted(CHANGES) if later > version for sentence in CHANGES[later])
