"""AutoMix's threshold rule, and the cost of verification."""

import math
from dataclasses import replace

import numpy as np
import pytest
from dealt import answers_of, in_recorded_order, letters_of, pools_of, scores_of

from feval.errors import NotRecordedError, UsageError
from feval.methods import AutoMix
from feval.replay.pools import ArrayChannels


def verified(answers, values, tokens=4):
    """A small LLM with a verification of each of its CoTs, one per question, and a large one that
    says z.
    """
    table = np.array(values, np.float64)[:, None]
    channels = [ArrayChannels({"self": scores_of(table, tokens=tokens)}), ArrayChannels()]
    return pools_of(list(answers), ["z"] * len(answers), channels=channels)


def test_an_answer_is_kept_at_the_threshold_in_the_paper_and_not_in_its_code():
    pools = verified(["a", "b", "c", [None]], [0.75, 0.5, math.nan, 1.0])
    assert answers_of(AutoMix(0.75), pools) == ["a", "z", "z", "z"]
    assert answers_of(AutoMix(0.75, strict=True), pools) == ["z"] * 4
    assert answers_of(AutoMix(0), pools) == ["a", "b", "z", "z"]


def test_a_mean_of_verifications_reaches_the_fraction_that_it_is():
    steps = {(0, 0): np.array([1.0, 0.0, 0.0]), (1, 0): np.array([1.0, 1.0, 0.0])}
    scores = scores_of(np.full((2, 1), math.nan), steps)
    pools = pools_of(
        ["a", "b"], ["z", "z"], channels=[ArrayChannels({"self": scores}), ArrayChannels()]
    )
    for threshold, expected in (
        ("1/3", ["a", "b"]),
        ("0.34", ["z", "b"]),
        ("2/3", ["z", "b"]),
        (0.67, ["z", "z"]),
    ):
        assert answers_of(AutoMix(threshold, aggregate="mean"), pools) == expected


def test_verification_is_billed_to_the_small_llm_wherever_there_was_an_answer_to_verify():
    pools = verified(["a", "b", [None]], [1.0, 0.0, 0.5])
    small, large = in_recorded_order(AutoMix(), pools).ledgers
    assert small.rounds.tolist() == [[1, 1, 1]]
    assert large.rounds.tolist() == [[0, 1, 1]]
    for taken, expected in (
        (small.auxiliary_calls, [[1, 1, 0]]),
        (small.auxiliary_prompt_tokens, [[4, 4, 0]]),
        (small.auxiliary_output_tokens, [[4, 4, 0]]),
    ):
        assert taken.tolist() == expected
    assert large.auxiliary_calls is None


def test_verification_may_cost_what_the_answer_did_as_in_the_paper():
    pools = verified(["a", "b", [None]], [1.0, 0.0, 0.5], tokens=-1)
    small, _ = in_recorded_order(AutoMix(verification="as-answer"), pools).ledgers
    prompts, outputs = small.auxiliary_prompt_tokens, small.auxiliary_output_tokens
    assert prompts.tolist() == [[10, 10, 0]]
    assert outputs.tolist() == [[*pools[0].output_tokens[:2, 0].tolist(), 0]]
    unknown = replace(pools[0], prompt_tokens=np.array([10, -1, 10]))
    with pytest.raises(NotRecordedError, match="prompt tokens of the small LLM"):
        in_recorded_order(AutoMix(verification="as-answer"), [unknown, pools[1]])


def test_verifications_of_unknown_cost_are_not_passed_over_in_silence():
    pools = verified(["a", "b"], [1.0, 0.0], tokens=-1)
    with pytest.raises(NotRecordedError):
        in_recorded_order(AutoMix(), pools)
    free = in_recorded_order(AutoMix(verification="free"), pools)
    assert letters_of(free.answer[0]) == ["a", "z"]
    assert free.ledgers[0].auxiliary_calls is None
    with pytest.raises(NotRecordedError, match="no scores"):
        in_recorded_order(AutoMix(), pools_of(["a"], ["b"]))


def test_it_takes_two_llms():
    for llms in (1, 3):
        with pytest.raises(UsageError):
            AutoMix().draws(llms)
