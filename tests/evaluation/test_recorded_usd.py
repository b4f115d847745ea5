"""What CoTs state that they cost, in every form of a method; counts that a source lacks."""

import gzip
import json
from itertools import combinations

import numpy as np
import pytest
from command_line import failed, feval, said
from small import import_rows, letters, pool, write_rows

from feval import BudgetEnvironment, evaluate, load, self_consistency_curve
from feval.errors import (
    NotRecordedError,
    OutOfRangeError,
    PriceNotFoundError,
    TokenCounterError,
    UsageError,
)
from feval.evaluation.method_names import make_method
from feval.evaluation.requests import Consumption
from feval.evaluation.surfaces import coarse_surface
from feval.forecast import estimate, plan
from feval.importers import import_recording
from feval.methods import METHODS, ModelSwitch, Oracle, SelfConsistency, SingleCall
from feval.methods.protocol import capabilities, in_amounts
from feval.receipts import grade_answers
from feval.receipts.verifying import verify_receipt
from feval.recording import ProbeRows, open_recording
from feval.replay.meter import handed_out

ANSWERS = {"cheap": letters("abacb", "xy-yy", "ddedd"), "dear": letters("aaaba", "yxyyy", "deddd")}
DRAW = np.random.default_rng(30)
USD = {llm: DRAW.integers(0, 10**6, (3, 5)) / 10**9 for llm in ANSWERS}
METHODS_OF = {
    "single-call": (["cheap"], {}),
    "self-consistency": (["dear"], {"n": 3}),
    "adaptive-consistency": (["cheap"], {"threshold": 0.7, "budget": 4}),
    "early-stopping": (["dear"], {"window": 2, "budget": 4}),
    "model-switch": (["cheap", "dear"], {"samples": 2}),
    "mixture-of-thoughts": (["cheap", "dear"], {"samples": 3}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("usd")
    llms = [
        (llm, [pool(i, own, extra={"usd": USD[llm][i].tolist()}) for i, own in enumerate(rows)])
        for llm, rows in ANSWERS.items()
    ]
    free = ("free", [pool(i, own) for i, own in enumerate(ANSWERS["dear"])])
    write_rows(out / "rec", ["a", "y", "d"], *llms, free)
    return out


@pytest.fixture(scope="module")
def replay(folder):
    dataset, llms = load("toy", ["cheap", "dear"], folder / "rec", prices="recorded", seed=3)
    return dataset, {llm.name: llm for llm in llms}


@pytest.mark.parametrize("name", METHODS_OF)
def test_a_method_costs_what_its_cots_state(replay, name):
    dataset, llms = replay
    names, settings = METHODS_OF[name]
    used, method = [llms[each] for each in names], make_method(name, settings)
    result = evaluate(method, dataset, used, order="seeded", replicates=8)
    for row in range(3):
        stated = []
        for replicate in range(8):
            metered = [llm.ask(row, replicate) for llm in used]
            method(dataset[row].question, *metered)
            for llm, asked in zip(used, metered, strict=True):
                stated += [USD[llm.name][row, place] for place, _ in handed_out(asked)]
        assert result.usd[row] == pytest.approx(sum(stated) / 8, abs=1e-15)
    plain = evaluate(lambda question, *own: method(question, *own), dataset, used, replicates=8)
    assert plain.usd.tolist() == result.usd.tolist()


def test_large_amounts_are_added_exactly_or_refused(tmp_path):
    for usd in (4e6, 5e6):
        write_rows(tmp_path / str(usd), ["a"], ("m", [pool(0, "aa", extra={"usd": [usd] * 2})]))
        dataset, [llm] = load("toy", None, tmp_path / str(usd), prices="recorded")
        options = {"order": "seeded", "replicates": 9}
        if usd == 5e6:
            with pytest.raises(OutOfRangeError, match="state 10,000,000 USD; at most 9,000,000"):
                evaluate(SelfConsistency(2), dataset, llm, **options)
            return
        [point] = self_consistency_curve(dataset, llm, [2], **options).points
        result = evaluate(SelfConsistency(2), dataset, llm, **options)
        assert point.usd_per_question == result.usd_per_question == 8e6


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_vote_costs_the_mean_over_draws(replay, n):
    dataset, llms = replay
    expected = [np.mean([sum(draw) for draw in combinations(own, n)]) for own in USD["cheap"]]
    result = evaluate(SelfConsistency(n), dataset, llms["cheap"])
    assert (result.kind, result.usd.tolist()) == ("exact", pytest.approx(expected, abs=1e-15))
    [point] = self_consistency_curve(dataset, llms["cheap"], [n]).points
    seeded = self_consistency_curve(dataset, llms["cheap"], [n], order="seeded").points[0]
    again = evaluate(SelfConsistency(n), dataset, llms["cheap"], order="seeded")
    each = [point.usd_per_question, seeded.usd_per_question]
    assert each == pytest.approx([np.mean(expected), again.usd_per_question], abs=1e-15)


def test_recorded_usd_are_never_mixed_or_made_up(folder, replay):
    _, llms = replay
    with pytest.raises(UsageError, match="nothing is left to bill 'per_round'"):
        load("toy", ["cheap"], folder / "rec", prices="recorded", billing="per_round")
    toy, [cheap, free] = load("toy", ["cheap", "free"], folder / "rec", prices="recorded")
    with pytest.raises(NotRecordedError, match="15 of 15 CoTs of free state no USD"):
        evaluate(ModelSwitch(2), toy, [cheap, free], replicates=2)
    with pytest.raises(NotRecordedError, match="15 of 15 CoTs of free state no USD"):
        _ = free(0, n=1).dollar_cost
    with pytest.raises(PriceNotFoundError, match="state their own USD"):
        BudgetEnvironment(toy, [cheap], unit="usd")
    cuts = [each for each in METHODS.values() if capabilities(each).cuts_cots]
    assert cuts
    for each in cuts:
        with pytest.raises(UsageError, match="cuts CoTs, and nothing says what a part of one cost"):
            in_amounts(each, llms["cheap"].pool, "picodollars")


def test_a_cot_costs_what_it_states_in_responses_and_grades(replay):
    dataset, llms = replay
    response = llms["cheap"]("toy/1", n=3)
    for cot in response.cots:
        assert cot.dollar_cost == pytest.approx(USD["cheap"][1, cot.sample], abs=1e-15)
    whole = sum(cot.dollar_cost for cot in response.cots)
    assert response.dollar_cost == pytest.approx(whole, abs=1e-15)
    entries = [
        Consumption(llm=llm, question="toy/0", requests=1, samples=samples)
        for llm, samples in (("cheap", (0, 2)), ("dear", (4,)))
    ]
    grade = grade_answers(dataset, [*llms.values()], entries, {"toy/0": "a"}).to_dict()
    own = {"cheap": USD["cheap"][0, [0, 2]].sum(), "dear": USD["dear"][0, 4]}
    by_llm = {llm: each["usd"] for llm, each in grade["by_llm"].items()}
    assert by_llm == pytest.approx(own, abs=1e-15)
    assert grade["usd"] == pytest.approx(sum(own.values()), abs=1e-15)
    cut = [entries[1].changed(tokens=(3,))]
    cut = grade_answers(dataset, [*llms.values()], cut, {"toy/0": "a"})
    assert cut.usd_per_question is None
    assert any("state their own were cut" in sentence for sentence in cut.remarks())


def test_forecasts_and_plans_cost_the_mean_of_what_cots_state(replay, tmp_path):
    dataset, llms = replay
    mean = USD["cheap"].mean()
    forecast = estimate(dataset, llms["cheap"], g=2, m=[1, 3], resamples=10)
    assert forecast.prices == "recorded"
    assert forecast.usd_per_question == pytest.approx((mean, 3 * mean), abs=1e-15)
    bought = plan(dataset, llms["cheap"], budget_usd=3.5 * mean, questions=1, most_votes=5)
    costs = [option.usd_per_question for option in bought.options]
    assert costs == pytest.approx([mean, 3 * mean, 5 * mean], abs=1e-15)
    assert [option.affordable for option in bought.options] == [True, True, False]
    rows = [
        {"id": f"q{q}", "question": f"{q}?", "gold": "a", "sample": i, "answer": a, "usd": 0.25}
        for q in range(2)
        for i, a in enumerate("aab")
    ]
    import_rows(tmp_path / "r", rows, dataset="toy", llm="m", answer_kind="text")
    shown = said("plan --budget 9usd --recording", tmp_path / "r")
    assert "Buy 3 votes on 2 questions for 1.5 USD, and expect" in shown
    assert "USD as each CoT states them" in shown
    assert "- prompt and - output tokens" in shown
    failed(feval("plan --budget 9tokens --recording", tmp_path / "r"), 1, "needs prompt tokens")


def test_a_surface_on_a_page_has_tokens_where_cots_state_usd(tmp_path):
    rows = pool(0, ["a", "b"], extra={"usd": [0.5, 0.25]})
    probed = {"m": [ProbeRows("toy/0", [0, 1], [2, 2], ["b", "a"], ["b", "a"])]}
    write_rows(tmp_path / "r", ["a"], ("m", [rows]), probes=probed)
    dataset, [llm] = load("toy", ["m"], tmp_path / "r", prices="recorded")
    seen = coarse_surface(dataset, llm)
    assert {point.usd_per_question for point in seen.points} == {None}
    assert [point.output_tokens for point in seen.points] == [2, 4, 10.5, 21]
    assert "nothing says what a part of one cost; a price list" in seen.warnings[-1]


def test_the_command_line_says_whose_usd_they_are(folder, tmp_path):
    of = ("--recording", folder / "rec", "--llm cheap --prices recorded")
    shown = said("curve self-consistency --n 1,3 --out", tmp_path / "c", *of)
    assert "USD as each CoT states them" in shown
    assert verify_receipt(tmp_path / "c" / "receipt.json").equal
    failed(feval("run single-call --billing per_round", *of), 2, "nothing is left to bill")
    assert "The USD that each CoT states." in said("ls prices")


def test_usd_that_some_cots_lack_are_left_out_unless_asked_for(folder, tmp_path):
    (tmp_path / "t.csv").write_text(
        "id,sample,verdict,usd\nq,0,1,0.25\nq,1,0,\nr,0,1,0.5\nr,1,0,0.5\n"
    )
    out = tmp_path / "graded"
    said(
        "import table", tmp_path / "t.csv", "--dataset other --llm m --answer-kind text --out", out
    )
    shown = feval("curve single-call --measure pass@k --n 1,2 --recording", out)
    assert "No dollars: 1 of 4 CoTs state no USD." in shown.stderr
    assert "judged by verdicts\nno prices" in shown.stdout  # and nothing is billed
    of = ("--recording", out, "--prices recorded")
    failed(feval("run single-call", *of), 1, "1 of 4 CoTs of m state no USD")
    said("merge", folder / "rec", out, "--out", tmp_path / "merged")
    first, merged = (
        open_recording(each).manifest for each in (folder / "rec", tmp_path / "merged")
    )
    assert merged.prices == first.prices != "recorded"


def test_usd_that_tokens_hide_are_pointed_at(folder, tmp_path):
    stated = feval("run single-call --llm cheap --recording", folder / "rec")
    assert "CoTs of 'cheap' state their own USD. Take these with --prices recorded" in stated.stderr
    (tmp_path / "t.csv").write_text("id,answer,gold,tokens,usd\nq,1,1,7,0.25\n")
    out = tmp_path / "paid"
    said("import table", tmp_path / "t.csv", "--dataset d --llm m --answer-kind number --out", out)
    assert "--prices recorded" in said("info", out)
    known = feval("run self-consistency --set n=1 --recording", out)
    assert "No tokens per question: no prompts recorded" in known.stderr


def test_routerarena_costs_what_its_cache_states(shared, tmp_path):
    """Mean USD of two LLMs, and of the cheaper of the best answers."""
    golden = json.loads((shared / "golden/verdicts.json").read_text())["routerarena"]
    llms = ["claude-3-haiku-20240307", "gemini-2.0-flash-001"]
    rows = []
    for llm in llms:
        source = shared / f"real/routerarena/cached_results/{llm}.jsonl.gz"
        rows += map(json.loads, gzip.decompress(source.read_bytes()).splitlines())
    lines = [
        {
            "id": row["global_index"], "question": row["question"], "llm": row["llm_selected"],
            "text": row["generated_answer"], "tokens": row["token_usage"]["output_tokens"],
            "inference_cost": row["evaluation_result"]["inference_cost"],
            "verdict": min(max(row["evaluation_result"]["score"], 0), 1),
        }
        for row in rows
    ]  # fmt: skip
    out = import_rows(tmp_path / "r", lines, dataset="arena", answer_kind="text")
    dataset, opened = load("arena", llms, out, prices="recorded", right="verdict")
    for llm in opened:
        call = evaluate(SingleCall(), dataset, llm)
        assert call.usd_per_question == pytest.approx(golden[llm.name]["mean_usd"], abs=1e-12)
    oracle, best = evaluate(Oracle(1), dataset, opened), golden["oracle"]
    expected = best["mean_score_clipped"], best["mean_usd_of_cheapest_best"]
    assert (oracle.accuracy, oracle.usd_per_question) == pytest.approx(expected, abs=1e-12)


def test_tokens_that_nobody_counted_are_not_known(tmp_path):
    rows = [
        {"id": "q", "question": "?", "gold": "a", "sample": i, "answer": a, "usd": 0.25}
        for i, a in enumerate("aab")
    ]
    options = {"dataset": "toy", "llm": "m", "answer_kind": "text"}
    with pytest.raises(TokenCounterError, match="has none for m"):
        import_rows(tmp_path / "u", rows, counter="usage", **options)
    out = import_rows(tmp_path / "r", rows, **options)
    dataset, [llm] = load("toy", recording=out)
    result = evaluate(SingleCall(), dataset, llm)
    assert (result.usd_per_question, result.calls_per_question) == (0.25, 1)
    assert {result.tokens, result.sequential_tokens} == {None}
    with pytest.raises(UsageError, match=r"\(no tokens recorded\).*cost='usd'"):
        result.known_costs("tokens")
    assert "tokens not recorded" in said("info", out)
    said("export", out, "--to jsonl --out", tmp_path / "y.jsonl")
    again = import_recording("jsonl", tmp_path / "y.jsonl", tmp_path / "s", **options)
    assert open_recording(again).hash == open_recording(out).hash


@pytest.mark.parametrize("column", ["traj", "messages"])
def test_a_conversation_is_shown_by_roles(tmp_path, column):
    call = {"function": {"name": "find", "arguments": "{}"}}
    traj = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "x" * 999},
        {"role": "assistant", "content": "Done."},
    ]
    (tmp_path / "x.jsonl").write_text(json.dumps({"id": "q", column: traj, "verdict": 1}))
    of = ("--dataset toy --llm m --answer-kind text --out", tmp_path / "r")
    said("import table", tmp_path / "x.jsonl", *of)
    shown = said("show", tmp_path / "r", "q")
    assert '── assistant ──\n[calls {"function": {"arguments": "{}", "name": "find"}}]' in shown
    assert f"── tool ──\n{'x' * 159}… (999 characters)\n\n── assistant ──\nDone." in shown
    _, [llm] = load("toy", recording=tmp_path / "r")
    assert (json.loads(llm(0).cots[0].text), llm.counter) == (traj, "none")
