"""Seconds: replayed from recorded durations, or modelled by a serving profile; in every form,
output and receipt.
"""

import heapq
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest
from command_line import said
from small import letters, pool, write_rows

from feval import Plan, compare, evaluate, load, method_curve
from feval.cards.serving import ServingProfile, serving_profile
from feval.errors import CardError, NotRecordedError, UnknownNameError, UsageError
from feval.evaluation.method_names import make_method
from feval.methods import (
    AdaptiveConsistency,
    EarlyStopping,
    ModelSwitch,
    SelfConsistency,
    SingleCall,
)
from feval.receipts.verifying import verify_receipt
from feval.replay.clock import Clock, makespan

ANSWERS = {"quick": letters("abacb", "xy-yy", "ddedd"), "slow": letters("aaaba", "yxyyy", "deddd")}
TOKENS = [[10, 40, 20, 35, 25], [5, 8, 90, 30, 31], [12, 11, 13, 14, 60]]
SECONDS = {
    "quick": [
        [1.5, 0.25, 2.0, 1.0, 0.125],
        [3.0, 2.5, 0.5, 1.25, 4.0],
        [0.75, 0.5, 1.0, 0.25, 2.25],
    ],
    "slow": [[9.0, 7.5, 8.0, 6.25, 5.0], [4.0, 8.5, 7.0, 6.0, 9.25], [5.5, 6.5, 7.75, 8.25, 4.5]],
}
GOLDS = ["a", "y", "d"]
PROFILE = {
    "id": "mine",
    "date": "2026-11-20",
    "source": "measured",
    "llms": {
        "quick": {"seconds_to_first_token": 0.25, "tokens_per_second": 40},
        "slow": {"seconds_to_first_token": 2, "tokens_per_second": 8.0},
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("seconds")
    for name, without in (("rec", None), ("gaps", ("quick", 1))):
        llms = []
        for llm, rows in ANSWERS.items():
            durations = [[*each] for each in SECONDS[llm]]
            if without is not None and without[0] == llm:
                durations[without[1]][2:4] = [None, None]
            own = [
                pool(i, each, tokens=TOKENS[i], extra={"duration_s": durations[i]})
                for i, each in enumerate(rows)
            ]
            llms.append((llm, own))
        write_rows(out / name, GOLDS, *llms)
    lines = [f"{key} = {json.dumps(PROFILE[key])}" for key in ("id", "date", "source")]
    for name, speed in PROFILE["llms"].items():
        lines += [f"[llms.{name}]", *(f"{key} = {value}" for key, value in speed.items())]
    (out / "mine.toml").write_text("\n".join(lines))
    return out


@pytest.fixture(scope="module")
def replay(folder):
    return load("toy", ["quick", "slow"], folder / "rec", seed=3)


def scheduled(lengths, places):
    """List scheduling, by a heap of the times at which places are free."""
    free = [0.0] * places
    for length in lengths:
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def test_jobs_begin_in_their_order_when_a_place_is_free():
    draw = np.random.default_rng(0)
    lengths = draw.integers(0, 50, (4, 3, 7))
    for places in (1, 2, 3, 7, 9):
        brute = [[scheduled(row, places) for row in rows] for rows in lengths.tolist()]
        assert makespan(lengths, places).tolist() == brute
    assert makespan(np.zeros((2, 0)), 3).tolist() == [0, 0]


@pytest.mark.parametrize("n", [1, 2, 4, 5])
def test_a_vote_takes_the_mean_over_draws_of_its_longest_reply(replay, n):
    dataset, [quick, _] = replay
    result = evaluate(SelfConsistency(n), dataset, quick, cost="seconds")
    expected = [
        np.mean([max(draw) for draw in combinations(seconds, n)]) for seconds in SECONDS["quick"]
    ]
    assert result.kind == "exact"
    assert result.seconds == pytest.approx(expected)
    assert result.to_dict()["seconds"].startswith(
        "replayed from recorded durations, all CoTs of a round at once"
    )
    plain = evaluate(SelfConsistency(n), dataset, quick)
    assert (plain.seconds, plain.timing, plain.accuracy) == (None, None, result.accuracy)
    assert plain.to_dict().keys() == result.to_dict().keys() - {"seconds", "seconds_per_question"}


def test_a_method_that_draws_one_by_one_takes_the_sum(replay):
    dataset, [quick, _] = replay
    method = AdaptiveConsistency(threshold=0.7, budget=4)
    result = evaluate(method, dataset, quick, cost="seconds")
    expected = []
    for answers, seconds in zip(ANSWERS["quick"], SECONDS["quick"], strict=True):
        sums = []
        for order in permutations(range(5)):
            drawn = 0
            while drawn < 4:
                drawn += 1
                votes = sorted(
                    (answers[i] for i in order[:drawn] if answers[i] is not None), key=str
                )
                counts = sorted((votes.count(each) for each in set(votes)), reverse=True)
                if method.rule.stops(tuple(counts), drawn):
                    break
            sums.append(sum(seconds[i] for i in order[:drawn]))
        expected.append(np.mean(sums))
    assert (result.kind, result.seconds) == ("exact", pytest.approx(expected))


@pytest.mark.parametrize("parallel", [1, 2, 3, None])
def test_rounds_are_scheduled_in_draw_order(replay, parallel):
    dataset, [quick, slow] = replay
    replicates = 6
    given = {"order": "seeded", "replicates": replicates, "cost": "seconds", "parallel": parallel}
    vote = evaluate(SelfConsistency(5), dataset, quick, **given)
    windows = evaluate(EarlyStopping(2, 4), dataset, slow, **given)
    places = parallel or 5
    for row in range(3):
        both = [0.0, 0.0]
        for replicate in range(replicates):
            both[0] += scheduled(
                [SECONDS["quick"][row][i] for i in quick.order(row, replicate)], places
            )
            drawn = [
                (ANSWERS["slow"][row][i], SECONDS["slow"][row][i])
                for i in slow.order(row, replicate)
            ]
            for start in (0, 2):
                both[1] += scheduled([seconds for _, seconds in drawn[start : start + 2]], places)
                if drawn[start][0] is not None and drawn[start][0] == drawn[start + 1][0]:
                    break
        assert [vote.seconds[row], windows.seconds[row]] == pytest.approx(
            [total / replicates for total in both]
        )
    kind = evaluate(SelfConsistency(2), dataset, quick, **given | {"order": None}).kind
    assert kind == ("exact" if parallel is None else "seeded")


def test_modelled_seconds_are_waits_for_first_tokens_and_sequential_tokens(replay):
    dataset, [quick, slow] = replay
    profile = serving_profile(PROFILE)
    vote = evaluate(SelfConsistency(3), dataset, quick, serving=profile, cost="seconds")
    longest = [np.mean([max(draw) for draw in combinations(tokens, 3)]) for tokens in TOKENS]
    assert (vote.kind, vote.seconds) == ("exact", pytest.approx(0.25 + np.array(longest) / 40))
    windows = evaluate(
        EarlyStopping(2, 4), dataset, slow, serving=profile, cost="seconds", replicates=4
    )
    assert windows.kind == "seeded"
    assert windows.seconds == pytest.approx(2 * windows.calls + windows.sequential_tokens / 8)
    switched = evaluate(ModelSwitch(2), dataset, [quick, slow], serving=profile, replicates=4)
    alone = evaluate(SelfConsistency(2), dataset, quick, order="seeded", replicates=4)
    second = switched.sequential_tokens - alone.sequential_tokens  # the first LLM is always asked
    asked = switched.calls - 1
    assert switched.seconds == pytest.approx(
        0.25 + alone.sequential_tokens / 40 + 2 * asked + second / 8
    )
    assert str(switched.timing) == "modelled by the serving profile mine of 2026-11-20"


def test_a_cut_reply_waits_for_its_first_token_and_shares_the_rest():
    tokens, nan = np.array([[5, 5, 5, 1, 5]]), np.nan
    clock = Clock.from_seconds(
        tokens, np.array([[9.0, 9.0, 9.0, 4.0, 2.0]]), np.array([[1.0, nan, 20.0, 3.0, 2.0]])
    )
    reached = {t: (clock.after(np.full((1, 5), t)) / 1e6)[0].tolist() for t in (0, 1, 3, 5, 7)}
    assert reached == {
        0: [0, 0, 0, 0, 0],
        1: [1, 1.8, 9, 4, 2],  # when the first came; a fifth; no later than the last; the only one
        3: [5, 5.4, 9, 4, 2],
        5: [9, 9, 9, 4, 2],
        7: [9, 9, 9, 4, 2],
    }
    assert (
        clock.rows(slice(0, 1)).after(np.full((1, 5), 3)) == clock.after(np.full((1, 5), 3))
    ).all()


def test_times_to_first_token_are_read_used_and_named(replay, tmp_path):
    pools = [
        pool(
            i,
            each,
            tokens=TOKENS[i],
            extra={"duration_s": SECONDS["quick"][i]}
            | ({} if i else {"first_token_s": [0.5, None, 0.5, None, None]}),
        )
        for i, each in enumerate(ANSWERS["quick"])
    ]
    dataset, [llm] = load(
        "toy", ["quick"], write_rows(tmp_path / "rec", GOLDS, ("quick", pools)), seed=3
    )
    first = llm.pool.channels.numbers("first_token_s")
    assert np.isfinite(first).tolist() == [
        [True, False, True, False, False],
        [False] * 5,
        [False] * 5,
    ]
    some, none = (
        evaluate(SelfConsistency(3), dataset, llm, cost="seconds", rows=rows)
        for rows in (None, [1, 2])
    )
    assert str(some.timing).endswith(
        "cut ones in proportion to their tokens behind the first, where its time was recorded"
    )
    assert str(none.timing).endswith("cut ones in proportion to their tokens")
    without = evaluate(SelfConsistency(3), replay[0], replay[1][0], cost="seconds")
    assert (some.seconds == without.seconds).all()  # whole replies take what they took


def test_a_function_and_a_file_are_timed_like_the_built_in_method(replay, tmp_path):
    dataset, [quick, _] = replay

    def vote(question, llm):
        answers = [*llm.sample(2).answers, *llm.sample(3).answers]
        return max(answers, key=answers.count)

    options = {"order": "recorded", "cost": "seconds", "parallel": 2}
    by_hand = [scheduled(own[:2], 2) + scheduled(own[2:], 2) for own in SECONDS["quick"]]
    assert evaluate(vote, dataset, quick, **options).seconds == pytest.approx(by_hand)
    (tmp_path / "mine.py").write_text(
        "def first(question, llm):\n    return llm.sample(3).answers[0]\n"
    )
    file = make_method(f"{tmp_path}/mine.py:first")
    assert evaluate(file, dataset, quick, **options).seconds == pytest.approx(
        [scheduled(own[:3], 2) for own in SECONDS["quick"]]
    )
    assert evaluate(vote, dataset, quick, order="recorded").seconds is None
    file.host.end()


def test_tasks_open_the_durations_themselves(replay):
    dataset, [_, slow] = replay
    given = {"order": "seeded", "replicates": 5, "cost": "seconds"}
    here, there = (
        evaluate(SelfConsistency(4), dataset, slow, **given, executor=executor)
        for executor in (None, ThreadPoolExecutor(1))
    )
    assert (here.seconds == there.seconds).all()


def test_replies_without_durations_are_counted(folder):
    dataset, [quick, slow] = load("toy", ["quick", "slow"], folder / "gaps")
    with pytest.raises(
        NotRecordedError, match=r"2 of 15 replies of quick were .* without a duration.*`serving`"
    ):
        evaluate(SelfConsistency(2), dataset, quick, cost="seconds")
    assert evaluate(SelfConsistency(2), dataset, quick, cost="seconds", rows=[0, 2]).questions == 2
    assert evaluate(SelfConsistency(2), dataset, slow, cost="seconds").seconds is not None
    assert (
        evaluate(SelfConsistency(2), dataset, quick, serving=PROFILE, cost="seconds").seconds
        is not None
    )


def test_seconds_that_nobody_can_know_are_refused(replay, folder):
    dataset, [quick, _] = replay
    for options in ({"cost": "usd"}, {"cost": "seconds", "serving": folder / "mine.toml"}, {}):
        with pytest.raises(UsageError, match="parallel=2 schedules recorded durations"):
            evaluate(SingleCall(), dataset, quick, parallel=2, **options)
    lacking = PROFILE | one(1, 1)
    with pytest.raises(
        NotRecordedError, match=r"'mine' says nothing about the LLM 'quick'; it has: a. Add a line"
    ):
        evaluate(SingleCall(), dataset, quick, serving=lacking)
    with pytest.raises(
        UsageError, match=r"Its seconds per question are not known \(no closed form"
    ):
        method_curve(
            dataset,
            [quick],
            "early-stopping",
            "window",
            [2],
            settings={"budget": 4},
            order="exact",
            cost="seconds",
        )

    class ByTokens(SelfConsistency):
        def decide(self, pools, orders):
            short = pools[0].output_tokens < 1000
            return super().decide(
                [replace(pools[0], codes=np.where(short, pools[0].codes, -1))], orders
            )

    with pytest.raises(UsageError, match="decides by how many tokens its CoTs have"):
        evaluate(ByTokens(3), dataset, quick, cost="seconds", replicates=2)


def one(first, speed):
    """The LLMs of a profile that knows one."""
    return {"llms": {"a": {"seconds_to_first_token": first, "tokens_per_second": speed}}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"date": "2026"}, "has '2026' in the field 'date'.*YYYY-MM-DD"),
        ({"llms": {}}, "field 'llms'"),
        ({"llms": {"a@t=1": PROFILE["llms"]["quick"]}}, "without '@'"),
        (one(-1, 4), "seconds_to_first_token"),
        (one(1, 0), "tokens_per_second"),
        (one(1, 1e-320), "tokens_per_second"),
        (one(1e308, 4), "seconds_to_first_token"),
        ({"speed": 3}, "speed"),
    ],
)
def test_a_profile_with_a_wrong_field_is_refused(change, message):
    with pytest.raises(UsageError, match=message):
        serving_profile(PROFILE | change)


def test_profiles_are_cards_files_and_values(folder, tmp_path):
    mine = serving_profile(folder / "mine.toml")
    assert mine == ServingProfile.model_validate(PROFILE) == serving_profile(PROFILE)
    assert mine.speed("quick@t=0.8").tokens_per_second == 40
    example = serving_profile("tiny-example")
    assert "example" in example.source
    assert "feval/tiny-42k" in example.llms
    with pytest.raises(UnknownNameError, match=r"no serving profile 'tiny'.*tiny-example"):
        serving_profile("tiny")
    with pytest.raises(UsageError, match="cannot be read"):
        serving_profile(tmp_path / "gone.toml")
    (tmp_path / "wrong.toml").write_text("id = 3")
    with pytest.raises(CardError, match=r"wrong.toml has 3 in the field 'id'"):
        serving_profile(tmp_path / "wrong.toml")


@pytest.mark.parametrize("source", ["", "parallel = 2", "serving = 'mine.toml'"])
def test_seconds_are_marked_and_receipts_verify(folder, tmp_path, source):
    (settings := folder / "settings.toml").write_text(source)
    word = "modelled" if "serving" in source else "replayed"
    options = "--cost seconds --settings", settings, "--out", tmp_path / "run"
    asked = "run self-consistency --set n=3 --llm quick --recording", folder / "rec"
    shown = said(*asked, *options)
    assert f"{word} seconds/question" in " ".join(shown.split())
    assert f"seconds: {word}" in shown
    assert verify_receipt(tmp_path / "run" / "receipt.json").equal
    held = json.loads((tmp_path / "run" / "receipt.json").read_text())
    assert (held["request"]["serving"] or {}).get("id") == ("mine" if "serving" in source else None)


@pytest.fixture(scope="module")
def compared(folder, tmp_path_factory):
    methods = [
        {"name": "self-consistency", "llms": ["quick"], "budgets": {"n": [1, 3]}},
        {"name": "model-switch", "llms": ["quick", "slow"], "budgets": {"samples": [1, 2]}},
    ]
    content = {
        "dataset": "toy",
        "recordings": ["rec"],
        "resamples": 20,
        "replicates": 3,
        "prices": "none",
    }
    return lambda **more: Plan.from_dict(content | {"method": methods, "cost": "seconds"} | more)


def test_a_comparison_in_seconds_says_where_they_come_from(folder, tmp_path, compared):
    plan = folder / "plan.toml"
    plan.write_text(
        compared().to_toml().replace('cost = "seconds"', 'cost = "seconds"\nserving = "mine.toml"')
    )
    assert Plan.read(plan) == compared(serving=PROFILE)
    shown = said("compare", plan, "--out", tmp_path / "out")
    assert "modelled seconds/question" in shown
    assert "modelled by the serving profile mine of 2026-11-20" in shown
    page = (tmp_path / "out" / "report.html").read_text()
    assert "mean modelled seconds per question" in page
    assert "modelled by the serving profile mine" in page
    assert "modelled seconds per question" in (tmp_path / "out" / "comparison.svg").read_text()
    assert "seconds_per_question" in (tmp_path / "out" / "results.csv").read_text()
    assert verify_receipt(tmp_path / "out" / "receipt.json").equal
    assert Plan.read(tmp_path / "out" / "comparison.toml").serving == serving_profile(PROFILE)


def test_a_comparison_is_seeded_where_replies_wait_for_each_other(folder, compared):
    waits = compare(compared(parallel=1), base=folder)
    assert waits.kinds == ("seeded",)
    assert (
        "replayed from recorded durations, 1 CoT of a round at once" in waits.to_dict()["seconds"]
    )
    [vote, _] = waits.curves
    [one, three] = vote.points
    assert three.seconds_per_question == pytest.approx(3 * np.mean(SECONDS["quick"]), rel=0.3)
    frame = waits.to_frame("pandas")
    assert frame["seconds_per_question"][:2].tolist() == [
        one.seconds_per_question,
        three.seconds_per_question,
    ]
    assert three.to_frame("pandas")["seconds"].mean() == pytest.approx(three.seconds_per_question)
    with pytest.raises(UsageError, match="serving"):
        compared(serving="/etc/passwd")
