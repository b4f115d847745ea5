"""Replay hands out recorded CoTs reproducibly, counts them, prices them, and refuses what was not
recorded.
"""

from dataclasses import replace

import pytest
from small import letters, pool, write_rows, write_toy

import feval
from feval import self_consistency_curve
from feval.cards.prices import PriceList
from feval.errors import (
    ConflictError,
    NotRecordedError,
    OutOfRangeError,
    PriceNotFoundError,
    ShortPoolError,
    UnknownNameError,
    UsageError,
)
from feval.evaluation.evaluation import evaluate
from feval.methods import SelfConsistency
from feval.methods.protocol import LEDGER_FIELDS
from feval.recording import DatasetInfo, LLMInfo, Question, Recording, RecordingWriter
from feval.replay import load
from feval.replay.loading import LoadRecipe

POOLS = {
    "gpt-3.5-turbo": letters("44-34", "757-5"),
    "gpt-3.5-turbo@t=0.8": letters("44", "99"),
    "nobody/unpriced": [["4"], ["5"]],
}
GOLDS = ["4", "5"]


@pytest.fixture
def toy(tmp_path):
    return write_toy(tmp_path / "toy", POOLS, GOLDS)


@pytest.fixture
def gpt(toy):
    return load("toy", "gpt-3.5-turbo", toy)[1][0]


def test_a_response_holds_the_recorded_cots_in_draw_order(gpt):
    response = gpt("toy/0", n=5)
    assert sorted(response.samples) == [0, 1, 2, 3, 4]
    recorded = POOLS["gpt-3.5-turbo"][0]
    assert response.answers == [recorded[i] for i in response.samples]
    for cot in response.cots:
        assert (
            cot.raw_text
            == f"Thinking about 0, sample {cot.sample}. The answer is {recorded[cot.sample]}."
        )
        assert cot.finish_reason == ("stop" if cot.answer else "length")
    assert response.request.raw_text == '[{"role":"user","content":"What is question 0?"}]'
    assert response.request.tokens == 7


def test_the_same_call_gives_the_same_cots_and_draws_nest(toy):
    _, [llm] = load("toy", "gpt-3.5-turbo", toy, seed=3)
    _, [_, again] = load("toy", ["nobody/unpriced", "gpt-3.5-turbo"], toy, seed=3)
    for replicate in range(4):
        whole = llm("toy/1", n=5, replicate=replicate).samples
        assert whole == again("toy/1", n=5, replicate=replicate).samples
        assert [llm("toy/1", n=k, replicate=replicate).samples for k in range(1, 6)] == [
            whole[:k] for k in range(1, 6)
        ]
        assert llm.orders([replicate], 5)[0, 1].tolist() == list(whole)


def test_more_than_was_recorded_is_refused_with_both_numbers(toy):
    _, [llm] = load("toy", "gpt-3.5-turbo@t=0.8", toy)
    with pytest.raises(
        ShortPoolError, match=r"has 2 recorded CoTs on question 'toy/1' of toy; 3 were asked for"
    ):
        llm("toy/1", n=3)
    with pytest.raises(OutOfRangeError, match="n=0"):
        llm("toy/1", n=0)
    with pytest.raises(UsageError, match="same thing"):
        llm("toy/1", n=1, N=2)


def test_unknown_names_are_refused_with_what_there_is(gpt, toy):
    given = {"dataset": "toy", "llms": "gpt-3.5-turbo", "recording": toy}
    for options, error, words in (
        ({"dataset": "gsm8k", "llms": None}, NotRecordedError, "holds no dataset 'gsm8k'"),
        (
            {"llms": "gpt-4"},
            NotRecordedError,
            "no CoTs of 'gpt-4' on toy. It holds toy: gpt-3.5-turbo",
        ),
        ({"billing": "hourly"}, UnknownNameError, "billing"),
        ({"prices": "1999-01-01"}, UnknownNameError, "price list"),
        (
            {"prices": {"gpt-3.5-turbo": (1, 2)}},
            UsageError,
            r"PriceList\(id, date, source, prices\) .* \{'gpt-3.5-turbo': \(1, 2\)\} \(dict\) was",
        ),
        ({"llms": ["gpt-3.5-turbo"] * 2}, UsageError, "twice"),
    ):
        with pytest.raises(error, match=words):
            load(**(given | options))
    for question, words in (("toy/9", "no question 'toy/9'"), (2, "rows 0 to 1; 2 was asked for")):
        with pytest.raises(NotRecordedError, match=words):
            gpt(question)


def test_the_recording_can_come_from_the_environment(toy, monkeypatch):
    monkeypatch.delenv("FEVAL_RECORDING", raising=False)
    with pytest.raises(UsageError, match="FEVAL_RECORDING"):
        load("toy")
    monkeypatch.setenv("FEVAL_RECORDING", str(toy))
    assert [llm.name for llm in load("toy")[1]] == list(POOLS)


def test_questions_are_read_in_blocks_of_which_the_last_are_kept(tmp_path, monkeypatch):
    toy = write_toy(tmp_path / "toy", {"gpt-3.5-turbo": letters(*"0123456")}, "0123456")
    monkeypatch.setattr("feval.recording.view._BLOCK", 2)
    monkeypatch.setattr("feval.recording.view._BLOCKS", 2)
    dataset, _ = load("toy", recording=toy)
    read = []
    scan = Recording.scan_questions

    def counted(recording, name, rows=None):
        read.append(rows or range(0))
        return scan(recording, name, rows)

    monkeypatch.setattr(Recording, "scan_questions", counted)
    assert [dataset[row].answer for row in (6, 0, 1, 3, 2, 6, "toy/0")] == [*"6013260"]
    assert read == [range(6, 7), range(2), range(2, 4), range(6, 7), range(2)]
    assert [entry.id for _, entry in dataset] == [f"toy/{row}" for row in range(7)]


@pytest.mark.parametrize("kept", [1, 16])
def test_requests_are_read_in_blocks_only_where_there_are_many(tmp_path, monkeypatch, kept):
    monkeypatch.setattr("feval.recording.view._BLOCK", 2)
    monkeypatch.setattr("feval.recording.view._BLOCKS", kept)
    sent = [
        pool(row, ["1"], prompt=None if row == 3 else f"[{row}]") for row in range(7) if row != 4
    ]
    _, [llm] = load(
        "toy", recording=write_rows(tmp_path / "toy", ["1"] * 7, ("gpt-3.5-turbo", sent))
    )
    requests = [llm.request(row).raw_text for row in (6, 0, 4, 3, 5, 6, 1, 2)]
    assert requests == ["[6]", "[0]", None, None, "[5]", "[6]", "[1]", "[2]"]
    assert llm.prompts() == ["[0]", "[1]", "[2]", None, None, "[5]", "[6]"]


def test_dollars_follow_equation_1_and_the_billing(toy):
    expected = {"once": 7 * 0.5, "per_round": 7 * 0.5, "per_sample": 5 * 7 * 0.5}
    for billing, prompt in expected.items():
        _, [llm] = load("toy", "gpt-3.5-turbo", toy, billing=billing)
        assert llm("toy/0", n=5).dollar_cost == pytest.approx(
            1e-6 * (prompt + 1.5 * (10 + 11 + 12 + 13 + 14)), rel=1e-14
        )


def test_an_llm_without_a_price_votes_and_only_its_dollars_fail(toy):
    _, [llm] = load("toy", "nobody/unpriced", toy)
    response = llm("toy/0", n=1)
    assert response.answers == ["4"]
    assert response.cots[0].dollar_cost is None
    with pytest.raises(PriceNotFoundError, match="nobody/unpriced"):
        _ = response.dollar_cost
    _, [free] = load("toy", "gpt-3.5-turbo", toy, prices="none")
    with pytest.raises(PriceNotFoundError, match="prices='none'"):
        _ = free("toy/0", n=1).dollar_cost


def test_prices_change_without_touching_the_recording(toy, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(
        '{"id": "mine", "date": "2026-01-01", "source": "us", "prices": {"nobody/unpriced": [1.0,'
        " 2.0]}}"
    )
    for prices in (path, str(path)):
        _, [llm] = load("toy", "nobody/unpriced", toy, prices=prices)
        assert isinstance(llm.prices, PriceList)
        assert llm("toy/0", n=1).dollar_cost == pytest.approx(1e-6 * (7 + 2 * 10), rel=1e-14)


def test_sample_hands_out_the_next_cots_and_counts_them(toy):
    _, [llm] = load("toy", "gpt-3.5-turbo", toy, billing="per_round")
    metered = llm.ask("toy/0", replicate=2)
    first, second = metered.sample(2), metered.sample(3)
    assert first.samples + second.samples == llm("toy/0", n=5, replicate=2).samples
    assert (metered.rounds, metered.cots, metered.output_tokens) == (2, 5, 60)
    assert metered.dollar_cost == pytest.approx(1e-6 * (2 * 7 * 0.5 + 60 * 1.5), rel=1e-14)
    with pytest.raises(ShortPoolError, match="6 were asked for"):
        metered.sample()
    with pytest.raises(OutOfRangeError):
        metered.sample(0)


def test_a_cut_cot_is_billed_up_to_the_cut_and_what_gives_no_cot_is_billed_apart(gpt):
    metered = gpt.ask("toy/0", replicate=None)
    assert metered.sample(3).samples == (0, 1, 2)  # of 10, 11 and 12 tokens
    metered.truncate(1, 4)
    metered.truncate(2, 400)
    metered.charge(calls=2, prompt_tokens=100, output_tokens=5)
    assert (metered.rounds, metered.cots, metered.output_tokens) == (1, 3, 10 + 4 + 12)
    assert (
        metered.auxiliary_calls,
        metered.auxiliary_prompt_tokens,
        metered.auxiliary_output_tokens,
    ) == (2, 100, 5)
    assert metered.dollar_cost == pytest.approx(
        1e-6 * ((7 + 100) * 0.5 + (26 + 5) * 1.5), rel=1e-14
    )
    with pytest.raises(OutOfRangeError, match="3 CoTs, numbered from 0; CoT 3"):
        metered.truncate(3, 1)
    with pytest.raises(OutOfRangeError, match="Costs only grow"):
        metered.charge(prompt_tokens=-1)
    with pytest.raises(AttributeError):
        metered.cots = 0


def test_a_metered_llm_shows_no_gold_and_no_id(gpt):
    public = {name for name in dir(gpt.ask("toy/0")) if not name.startswith("_")}
    methods = {"sample", "start", "advance", "expand", "reply", "truncate", "charge", "uniform"}
    account = {"name", "remaining", "tokens_billed", "dollar_cost", *LEDGER_FIELDS}
    assert public == methods | account
    assert not {name for name in dir(gpt.pool) if "gold" in name}


def test_a_curve_names_all_recordings_that_were_opened(tmp_path, toy):
    other = write_toy(tmp_path / "other", {"beta": letters("3-", "56")}, GOLDS)
    hashes = {path: feval.open_recording(path).hash for path in (toy, other)}
    dataset, [beta, gpt] = load("toy", ["beta", "gpt-3.5-turbo"], [toy, other])
    assert gpt.pool.codes[0, 3] == beta.pool.codes[0, 0]  # both said "3"
    assert [cot.raw_text for cot in beta(1, 2).cots] == [
        cot.raw_text for cot in load("toy", "beta", other)[1][0](1, 2).cots
    ]
    curve = self_consistency_curve(dataset, beta, [1], confidence=None)
    assert curve.recording_hash == hashes[other]
    assert {*curve.recording_hashes} == {*dataset.recording_hashes} == {*hashes.values()}
    assert curve.to_dict()["recording_hashes"] == list(curve.recording_hashes)


def test_recordings_are_joined_by_question_block_after_block(tmp_path, monkeypatch):
    monkeypatch.setattr("feval.recording.view._BLOCK", 2)
    orders = {"gpt-3.5-turbo": [0, 1, 2, 3, 4], "gpt-4o-mini": [3, 0, 4, 2, 1]}
    answers = {
        llm: {
            row: [f"{llm[4]}{row}", "same", None, f"{row * sample}"]
            for sample, row in enumerate(rows)
        }
        for llm, rows in orders.items()
    }
    for llm, rows in orders.items():
        golds = {row: f"gold {row}" if row else "same" for row in rows}
        write_rows(tmp_path / llm, golds, (llm, [pool(row, answers[llm][row]) for row in rows]))
    dataset, llms = load("toy", list(orders), [tmp_path / llm for llm in orders])
    for row in range(5):
        candidates, given = dataset.candidates(row), [answers[llm.name][row] for llm in llms]
        expected = dict.fromkeys(answer for pool in given for answer in pool if answer is not None)
        assert set(candidates) == {*expected, f"gold {row}" if row else "same"}
        assert candidates[int(dataset.gold[row])] == (f"gold {row}" if row else "same")
        assert [llm.answers(row, range(4)) for llm in llms] == given
        assert [int(llm.pool.candidates[row]) for llm in llms] == [len(candidates)] * 2
        near = llms[1].texts_near(row)
        assert near[row] == llms[1].texts(row)
        assert sorted(near) == list(range(5))


def test_an_answer_is_right_if_its_canonical_form_is_the_gold(tmp_path):
    info, rows = DatasetInfo("n", "Numbers", "number", "test"), [pool(0, ["7"]), pool(1, ["7"])]
    numbers, _ = load("n", None, write_rows(tmp_path / "n", ["0.5", None], ("a", rows), info=info))
    right = {"0.5": True, "1/2": True, "$0.50": True, "50": False, "nonsense": False, None: False}
    assert {answer: numbers.is_right("toy/0", answer) for answer in right} == right
    assert numbers.is_right(0, "0.5")
    with pytest.raises(NotRecordedError, match="'toy/1' of n has no gold"):
        numbers.is_right("toy/1", "0.5")
    with pytest.raises(NotRecordedError, match="no question 'toy/9'"):
        numbers.is_right("toy/9", "0.5")
    with RecordingWriter(tmp_path / "c", operation={"name": "test"}) as writer:
        sky = Question("toy/0", "Sky?", "(B)", "B", (("A", "red"), ("B", "blue")))
        writer.add_dataset(DatasetInfo("c", "Colours", "choice", "test"), [sky])
        writer.add_pools("c", LLMInfo("a"), "words", [pool(0, ["A"])])
    colours, _ = load("c", None, tmp_path / "c")
    right = {"B": True, "(B)": True, "blue": True, "A": False, "red": False}
    assert {answer: colours.is_right(0, answer) for answer in right} == right


def test_a_dataset_and_an_llm_of_different_loads_do_not_mix(tmp_path, toy):
    other = write_toy(tmp_path / "other", {"beta": letters("34", "56")}, GOLDS)
    dataset, [gpt] = load("toy", ["gpt-3.5-turbo"], toy)
    again, [same] = load("toy", ["gpt-3.5-turbo"], toy, seed=1)
    numbers, [beta] = load("toy", ["beta"], other)  # here "3" has the code that "4" has there
    assert (
        self_consistency_curve(dataset, same, [1]).points
        == self_consistency_curve(again, gpt, [1]).points
    )
    assert self_consistency_curve(numbers, beta, [1]).points[0].accuracy == 0.5
    with pytest.raises(UsageError, match="different calls of `load`"):
        self_consistency_curve(dataset, beta, [1])
    with pytest.raises(UsageError, match="open them together"):
        evaluate(SelfConsistency(1), numbers, [gpt])
    joined, [gpt, beta] = load("toy", ["gpt-3.5-turbo", "beta"], [toy, other])
    assert [self_consistency_curve(joined, llm, [1]).points[0].accuracy for llm in (gpt, beta)] == [
        0.5,
        0.5,
    ]


def test_intervals_do_not_depend_on_the_order_of_questions(tmp_path):
    def recording(llm, order):
        rows = [pool(i, ["1"] * (i % 5) + ["0"] * (4 - i % 5)) for i in order]
        return write_rows(tmp_path / llm, dict.fromkeys(order, "1"), (llm, rows))

    one, two = recording("a", range(30)), recording("b", range(29, -1, -1))
    alone, [b] = load("toy", ["b"], two)
    joined, [_, beside] = load("toy", ["a", "b"], [one, two])
    own, other = (
        [(point.accuracy_low, point.accuracy_high) for point in curve.points]
        for curve in (
            self_consistency_curve(alone, b, [1, 3]),
            self_consistency_curve(joined, beside, [1, 3]),
        )
    )
    assert own == other


def test_recordings_that_contradict_do_not_open_together(tmp_path, toy):
    twice = write_toy(tmp_path / "twice", {"gpt-3.5-turbo": [["4"], ["4"]]}, GOLDS)
    with pytest.raises(ConflictError, match="open one of them"):
        load("toy", "gpt-3.5-turbo", [toy, twice])
    golds = write_toy(tmp_path / "golds", {"beta": [["4"], ["4"]]}, ["4", "6"])
    with pytest.raises(ConflictError, match="two golds"):
        load("toy", ["gpt-3.5-turbo", "beta"], [toy, golds])
    fewer = write_toy(tmp_path / "fewer", {"beta": [["4"]]}, ["4"])
    with pytest.raises(ConflictError, match="different questions"):
        load("toy", ["gpt-3.5-turbo", "beta"], [toy, fewer])


def coupled(path, noise):
    """Two LLMs that were recorded with that noise, whatever it is."""
    decoding = {} if noise is None else {"noise": noise}
    infos = (
        LLMInfo(name, temperature=1.0, decoding=decoding) for name in ("one/llm", "another/llm")
    )
    return write_rows(path, ["1"], *((info, [pool(0, ["1"] * 9)]) for info in infos), prices="none")


@pytest.mark.parametrize(
    "noise", [None, "7", {"scheme": "gumbel-v1"}, {"scheme": "gumbel-v1", "seed": True}]
)
def test_llms_with_noise_of_their_own_have_draws_of_their_own(tmp_path, noise):
    _, [one, other] = load("toy", None, coupled(tmp_path / "r", noise))
    assert one.noise is other.noise is None
    assert any(one.order(0, replicate) != other.order(0, replicate) for replicate in range(5))


def test_llms_that_share_noise_share_their_draws(tmp_path):
    _, [one, other] = load("toy", None, coupled(tmp_path / "r", {"scheme": "gumbel-v1", "seed": 7}))
    assert one.noise == other.noise == ("gumbel-v1", 7)
    assert [one.order(0, r) for r in range(5)] == [other.order(0, r) for r in range(5)]
    _, [apart, _] = load("toy", None, coupled(tmp_path / "s", {"scheme": "gumbel-v1", "seed": 8}))
    assert any(one.order(0, r) != apart.order(0, r) for r in range(5))


def test_another_process_loads_the_same_by_a_recipe(tmp_path, toy):
    other = write_toy(tmp_path / "other", {"beta": letters("34", "56")}, GOLDS)
    dataset, [_, gpt] = load("toy", ["beta", "gpt-3.5-turbo"], [toy, other], billing="per_round")
    recipe = LoadRecipe.from_loaded(dataset, [gpt.seeded(9)])
    again, [same] = recipe.load()
    assert (same.name, same.seed, same.billing, same.prices) == (
        gpt.name,
        9,
        "per_round",
        gpt.prices,
    )
    assert list(again.question_ids) == list(dataset.question_ids)
    assert same.numbered_as(dataset._view)
    assert same.pool.codes.tolist() == gpt.pool.codes.tolist()
    places = tuple((place, "0" * 64) for place, _ in recipe.recordings)
    with pytest.raises(ConflictError, match="has changed: its hash was 000000000000"):
        replace(recipe, recordings=places).load()
