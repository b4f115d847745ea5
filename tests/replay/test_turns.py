"""Turns that are replayed: looked up by what they reply to and by their messages, in draw order,
and counted.
"""

import json
from dataclasses import replace

import pytest
from recorded_turns import REVISE, ROWS, WHY, chains, write_turns
from small import letters, write_toy

from feval.errors import NotRecordedError, OutOfRangeError, ShortPoolError, UsageError
from feval.recording import PoolRows
from feval.replay import load

# The first CoT of each has three replies to the same messages and one to others; the first two of
# these have one each.
BUSHY = PoolRows(
    "toy/1",
    [f"Text {place}." for place in range(8)],
    *letters("456789-1", "456789-1"),
    [*range(10, 18)],
    ["stop"] * 8,
    '[{"role":"user","content":"2 + 2?"}]',
    7,
    parents=[None, None, 0, 0, 0, 0, 2, 3],
    ends=[True] * 8,
    messages=[None, None, REVISE, REVISE, WHY, REVISE, REVISE, WHY],
    turn_prompt_tokens=[None, None, 20, 20, 23, 20, 40, 43],
)


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    folder = write_turns(tmp_path_factory.mktemp("turns") / "r", [chains(0), BUSHY, chains(2)])
    return load("toy", recording=folder, prices="none")[1][0]


@pytest.mark.parametrize(
    "messages",
    [
        "Revise.",
        [{"content": "Revise.", "role": "user"}],
        ({"role": "user", "content": "Revise."},),
    ],
    ids=["text", "other order", "tuple"],
)
def test_a_turn_is_found_by_its_messages(messages, llm):
    metered = llm.ask("toy/0", None)
    first = metered.sample(2)
    turn = metered.reply(first.cots[0], messages)
    assert (turn.samples, turn.answers) == ((2,), ["4"])
    assert metered.reply(turn, messages).samples == (4,)
    assert metered.reply(first.cots[0], "Why?").samples == (3,)


def test_each_reply_is_a_request_with_its_own_prompt(llm):
    metered = llm.ask("toy/0", None)
    first = metered.sample(2)
    second = metered.reply(first.cots[0], "Revise.")
    third = metered.reply(second)
    # The request has 7 tokens; the turns were sent 30 and 50. The CoTs have 10, 11, 12, 13 and 14.
    assert (
        metered.rounds,
        metered.cots,
        metered.auxiliary_calls,
        metered.auxiliary_prompt_tokens,
    ) == (3, 4, 0, 23 + 43)
    assert (metered.output_tokens, metered.sequential_tokens, metered.longest_trace_tokens) == (
        47,
        11 + 12 + 14,
        36,
    )
    assert [request.tokens for request in (first.request, second.request, third.request)] == [
        7,
        30,
        50,
    ]
    texts = llm.texts(0)
    assert json.loads(third.request.raw_text or "") == [
        {"role": "user", "content": "What is question 0?"},
        {"role": "assistant", "content": texts[0]},
        {"role": "user", "content": "Revise."},
        {"role": "assistant", "content": texts[2]},
        {"role": "user", "content": "Revise."},
    ]
    with pytest.raises(UsageError, match="replayed whole"):
        metered.truncate(0, 3)


def test_several_cots_are_replied_to_in_one_round(llm):
    metered = llm.ask("toy/1", None)
    zero, _ = metered.sample(2).cots
    two, four = metered.reply([zero, zero], ["Revise.", "Why?"]).cots
    assert (two.sample, four.sample) == (2, 4)
    assert metered.reply([zero], "Revise.", 2).samples == (3, 5)
    assert metered.sequential_tokens == 11 + 14 + 15
    assert (metered.rounds, metered.auxiliary_prompt_tokens) == (1 + 2 + 1, 13 + 16 + 13)
    assert metered.reply([], "Revise.").samples == ()
    assert metered.rounds == 4


@pytest.mark.parametrize("replicate", range(5))
def test_replies_come_in_the_order_of_the_draw(replicate, llm):
    order, metered = llm.order(1, replicate), llm.ask("toy/1", replicate)
    first = metered.sample(2)
    assert first.samples == tuple(place for place in order if place < 2)
    [zero] = [cot for cot in first.cots if cot.sample == 0]
    drawn = [*metered.reply(zero, "Revise.").samples, *metered.reply(zero, "Revise.", 2).samples]
    assert drawn == [place for place in order if place in {2, 3, 5}]


def test_what_was_not_recorded_is_an_error_that_says_what_was(llm, tmp_path):
    for ask, sentence in (
        (
            lambda m, cot: m.reply(cot),
            (
                "replies to CoT 0 of m@revise on question 'toy/0' without its messages, and .*"
                " several: "
            ),
        ),
        (
            lambda m, cot: m.reply(cot, "Check."),
            r'CoT 0 of .* with \[.*"Check."}\], and the turns .* reply to .*Revise.*Why',
        ),
        (
            lambda m, cot: m.reply(cot, "Why?", 2),
            "asks m@revise for 2 replies to CoT 0 on question 'toy/0', and 1 was recorded",
        ),
        (
            lambda m, cot: m.reply(m.reply(cot, "Why?")),
            "replies to turn 3 of m@revise on .*, and no turn was recorded there",
        ),
        (
            lambda m, _: m.expand(),
            "m@revise on toy was recorded as conversations .* cannot be expanded step by step",
        ),
    ):
        metered = llm.ask("toy/0", None)
        with pytest.raises(NotRecordedError, match=sentence):
            ask(metered, metered.sample(1).cots[0])
        # whoever caught it would know what was recorded
        with pytest.raises(NotRecordedError, match=sentence):
            metered.sample(1)
    metered = llm.ask("toy/0")
    with pytest.raises(
        ShortPoolError,
        match="has 2 recorded CoTs that reply to no other on question 'toy/0'; 3 were",
    ):
        metered.sample(3)
    assert metered.sample(2).num_cots == 2
    flat = load("toy", recording=write_toy(tmp_path / "flat", {"alpha": [["4"]]}, ["4"]))[1][0].ask(
        "toy/0"
    )
    with pytest.raises(
        NotRecordedError, match="replies to a CoT of alpha on toy, and no turns were recorded"
    ):
        flat.reply(flat.sample(1))


def test_misuse_is_refused(llm):
    metered, other = llm.ask("toy/0", None), llm.ask("toy/2", None)
    first, foreign = metered.sample(1), other.sample(1)
    for cots in (foreign, foreign.cots[0], replace(first, samples=(1,)), 3, [None]):
        with pytest.raises(UsageError, match="was not handed out by m@revise on this question"):
            metered.reply(cots)
    for messages in (5, [], [{"role": "user"}], [["Revise."]]):
        with pytest.raises(
            UsageError, match="is replied to with a text, or with a list of messages"
        ):
            metered.reply(first, messages)
    with pytest.raises(UsageError, match="1 CoTs are replied to, with messages for 2"):
        metered.reply(first, ["Revise.", "Why?"])
    with pytest.raises(OutOfRangeError, match="for 1 CoT or more at a time; 0 were"):
        metered.reply(first, "Revise.", 0)
    with pytest.raises(
        UsageError, match=r"as conversations of several turns, .* by `llm.sample` and `llm.reply`"
    ):
        llm("toy/0", 1)
    assert (metered.rounds, metered.cots) == (1, 1)


def test_nothing_shows_of_turns_that_were_not_handed_out(tmp_path):
    """What a method sees stays the same where all other turns are wrong."""
    wrong = chains(0)
    columns = {
        name: [own if place in {0, 2} else other for place, own in enumerate(getattr(wrong, name))]
        for name, other in (
            ("answers", "9"),
            ("raw_answers", "9."),
            ("texts", "No."),
            ("output_tokens", 99),
        )
    }
    seen = []
    for number, rows in enumerate((ROWS, [replace(wrong, **columns), *ROWS[1:]])):
        metered = load("toy", recording=write_turns(tmp_path / str(number), rows))[1][0].ask(
            "toy/0", None
        )
        turn = metered.reply(metered.sample(1), "Revise.")
        ledger = (
            metered.output_tokens,
            metered.sequential_tokens,
            metered.auxiliary_prompt_tokens,
            metered.remaining,
        )
        seen.append((turn.answers, turn.cots[0].raw_text, turn.request, ledger))
    assert seen[0] == seen[1]
