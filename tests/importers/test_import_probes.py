"""Probes of a source: the published stores, and those of generic rows."""

from itertools import product

import pytest
from foreign_sources import COT, QUESTION, dumped, lines, probed_entry
from importing import check, manifest, notes, probe_rows, refusals
from real_files import golden

from feval import SelfConsistency, evaluate, load
from feval.errors import FevalError, UsageError
from feval.importers import import_recording
from feval.recording import extract, merge, open_recording, verify_recording

STORE = dumped([probed_entry(), probed_entry(question="2 + 2?", gold_answer=4)])
PROBE = {"offset": 4, "answer": "1"}


def cot(*probes, **changes):
    """A generic row whose CoT has probes."""
    return [COT | {"tokens": 9, "probes": list(probes), **changes}]


def test_traces_are_cots_and_their_probes_lie_at_multiples_of_the_interval(imported):
    recording = imported("probed-traces", STORE, answer_kind="number")
    check(
        recording,
        ids=["toy/0", "toy/1"],
        questions=["What is 1 + 1?", "2 + 2?"],
        golds=["2", "4"],
        answer=["2", "3", None] * 2,
        output_tokens=[12, 14, 3] * 2,
        text=[None] * 6,
    )
    assert (
        probe_rows(recording, "answer", "text", "output_tokens", "confidence")
        == [
            (sample, offset, answer, None, None, None)
            for sample, offset, answer in [
                (0, 5, "3"),
                (0, 10, "2"),
                (1, 5, "2"),
                (1, 10, None),
                (1, 15, "3"),
            ]
        ]
        * 2
    )
    (record,) = manifest(recording)["probes"]
    assert (record["interval"], record["cue"], record["traces"], record["probes"]) == (
        5,
        None,
        4,
        10,
    )
    for note in (
        "Probe answers 'ERR' (they are no answer): 2.",
        "Probes at offsets beyond the end of their CoT: 2.",
    ):
        assert note in notes(recording)


def test_a_reply_without_an_answer_votes_in_the_verbatim_kind_alone(imported):
    verbatim = imported("probed-traces", STORE)
    check(
        verbatim, "Answers 'ERR' (they vote, as for the authors): 2.", answer=["2", "3", "ERR"] * 2
    )
    assert probe_rows(verbatim, "answer")[3] == (1, 10, "ERR")
    # ERR would be a text like any other
    text = imported("probed-traces", STORE, answer_kind="text")
    check(text, answer=["2", "3", None] * 2)
    assert probe_rows(text, "answer_raw", "answer")[3] == (1, 10, None, None)


def test_questions_may_have_intervals_and_numbers_of_traces_of_their_own(imported):
    other = probed_entry(
        question="2 + 2?",
        probe_freq=7.0,
        each_branch=[[[4, None], 9, 4.0]],
        final_answers_trace=[4],
    )
    recording = imported("probed-traces", [probed_entry(), other])
    assert probe_rows(recording, "answer")[5:] == [(0, 7, "4"), (0, 14, None)]
    assert manifest(recording)["probes"][0]["interval"] is None
    check(
        recording,
        "The questions were probed at different intervals: 5, 7 tokens.",
        "The pools of toy-llm are ragged: 1 to 3 samples",
    )


def test_a_store_without_probes_is_a_flat_recording(imported):
    traces = [[[], 3, "2"]]
    recording = imported(
        "probed-traces", [probed_entry(each_branch=traces, final_answers_trace=["2"])]
    )
    assert not (recording.path / "probes").exists()


QUESTION_0 = r"[Rr]ow 1 of x\.json"
TRACE_1 = rf"[Ss]ample 1 of {QUESTION_0}"


def second_trace(*trace):
    return probed_entry(each_branch=[[["2"], 9, "2"], list(trace)], final_answers_trace=["2", "3"])


test_names_question_and_trace_of_what_a_store_has_wrong = refusals(
    "probed-traces",
    [
        (probed_entry(question=...), f"{QUESTION_0} has no 'question'; it has 'gold_answer'"),
        (probed_entry(question=3), "'question' of .* should be text; found a whole number 3"),
        (probed_entry(gold_answer=...), f"{QUESTION_0} has no 'gold_answer'"),
        (probed_entry(gold_answer=["2", "3"]), f"'gold_answer' of .* {QUESTION_0} should be text"),
        (probed_entry(probe_freq=...), f"{QUESTION_0} has no 'probe_freq'"),
        (probed_entry(probe_freq=0), "'probe_freq' of .* should be a whole number from 1"),
        (probed_entry(probe_freq=2.5), "'probe_freq' of .* should be a whole number .* number 2.5"),
        (probed_entry(probe_freq=2**30), "'offset' of probe 1 of sample 0 of .* from 1 to"),
        (probed_entry(each_branch=...), f"{QUESTION_0} has no 'each_branch'"),
        (probed_entry(each_branch={}), f"'each_branch' of {QUESTION_0} should be a list"),
        (probed_entry(final_answers_trace=...), f"{QUESTION_0} has no 'final_answers_trace'"),
        (probed_entry(final_answers_trace=["2"]), r"lengths \(3 in 'each_branch', 1 in"),
        (
            probed_entry(final_answers_trace=["2", "4", "ERR"]),
            rf"{TRACE_1} has 'each_branch.2' \('3'\) and 'final_answers_trace' \('4'\), .* differ",
        ),
        (second_trace(["2"], 9), f"'each_branch.2' of {TRACE_1} should be inside a list of 3"),
        (second_trace("2", 9, "3"), f"'each_branch.0' of {TRACE_1} should be a list of objects"),
        (second_trace([["2"]], 9, "3"), f"'answer' of probe 0 of {TRACE_1} should be text"),
        (second_trace(["2"], 9, ["3", "4"]), f"'each_branch.2' of {TRACE_1} should be text"),
        *(
            (
                second_trace(["2"], count, "3"),
                f"'each_branch.1' of {TRACE_1} should be a whole number from 0 to 2147483647",
            )
            for count in (-1, 1.5, 2**31, True)
        ),
        ([], f"{QUESTION_0} should be an object; found a list of 0"),
    ],
    lambda entry: [entry],
)


def test_a_question_twice_is_refused(imported):
    imported.refuses(
        r"Questions 'toy/0' and 'toy/2' are the same, 'What is 1 \+ 1\?'",
        "probed-traces",
        [probed_entry(), probed_entry(question="b"), probed_entry()],
    )


def test_a_store_needs_a_name_an_answer_kind_and_stored_answers(imported):
    imported.refuses(
        r"x\.json has the CoTs of one LLM and does not name it.*llm='NAME'",
        "probed-traces",
        STORE,
        error=UsageError,
        llm=None,
    )
    imported.refuses(
        r"no card for the dataset 'toy'.*answer_kind='KIND'",
        "probed-traces",
        STORE,
        error=UsageError,
        answer_kind=None,
    )
    imported.refuses(
        r"Answers from the texts were asked for.*probes of question 'toy/0' have no text",
        "probed-traces",
        STORE,
        error=UsageError,
        answer_kind="number",
        answers="text",
    )


def test_probes_of_generic_rows(imported):
    source = cot(
        # any order, any offsets, also beyond the end
        {"offset": 90, "answer": 2, "confidence": 0.25, "tokens": 3},
        {"offset": 4.0, "answer": None, "output_tokens": None},
        {"offset": 7, "prediction": "1", "text": "is 2"},
    )
    recording = imported("jsonl", source)
    assert probe_rows(recording, "answer", "text", "output_tokens", "confidence") == [
        (0, 4, None, None, None, None),
        (0, 7, "1", "is 2", None, None),
        (0, 90, "2", None, 3, 0.25),
    ]
    (record,) = manifest(recording)["probes"]
    assert (record["interval"], record["no_answer"], record["output_tokens"]) == (None, 1, 3)


def test_answers_of_probes_are_read_in_their_texts_behind_the_cue(imported, tmp_path):
    probes = [
        {"offset": 1, "text": "12}. Yes"},
        {"offset": 2, "text": "no idea"},
        {"offset": 3, "text": "3} or 4"},
    ]
    probes.append({"offset": 4, "text": "<think> 5"})  # goes on thinking
    row = {"probe_cue": "</think> Final answer: \\boxed{", "answer": "7", "text": "7"}
    recording = imported("jsonl", cot(*probes, **row), answer_kind="number")
    assert probe_rows(recording, "answer") == [
        (0, 1, "12"),
        (0, 2, None),
        (0, 3, "3"),
        (0, 4, None),
    ]  # and never the CoT's 7
    assert manifest(recording)["probes"][0]["cue"] == "</think> Final answer: \\boxed{"
    assert manifest(recording)["probes"][0]["no_answer"] == 2
    extract(recording.path, tmp_path / "extracted")  # reads them in one way
    assert open_recording(tmp_path / "extracted").hash == recording.hash


def test_stored_answers_of_probes_win_unless_the_texts_are_asked_for(imported):
    source = cot({"offset": 1, "answer": "5", "text": "It is 6."})
    stored = imported("jsonl", source, answer_kind="number")
    read = imported("jsonl", source, answer_kind="number", answers="text")
    assert [probe_rows(recording, "answer") for recording in (stored, read)] == [
        [(0, 1, "5")],
        [(0, 1, "6")],
    ]
    nulls = imported(
        "jsonl", cot({"offset": 1, "answer": None, "text": "It is 6."}), answer_kind="number"
    )
    assert probe_rows(nulls, "answer") == [(0, 1, "6")]


def test_unknown_members_of_probes_are_noted(imported):
    assert "not imported: logit (such as 0.5)" in notes(
        imported("jsonl", cot(PROBE | {"logit": 0.5}))
    )


test_names_the_probe_that_a_row_has_wrong = refusals(
    "jsonl",
    [
        (cot({"answer": "1"}), r"Probe 0 of line 1 of x\.jsonl has no 'offset'; give"),
        (
            cot(PROBE, {"offset": 5}),
            r"Probe 1 of line 1 of x\.jsonl has neither 'answer' nor 'text'",
        ),
        (cot(PROBE, PROBE), r"Line 1 of x\.jsonl has two probes at the offset 4; remove one"),
        (
            cot({"offset": 0, "answer": "1"}),
            r"'offset' of probe 0 of line 1 of x\.jsonl should be a whole number from 1",
        ),
        (
            cot({"offset": 1.5, "answer": "1"}),
            r"'offset' of probe 0 of line 1 .* found a number 1\.5",
        ),
        (
            cot({"offset": 2**31, "answer": "1"}),
            r"'offset' of probe 0 of line 1 .* should be a whole number from 1 to",
        ),
        (
            cot(PROBE | {"answer": ["1"]}),
            r"'answer' of probe 0 of line 1 .* should be text, a number",
        ),
        (
            cot(PROBE | {"confidence": 1e39}),
            r"'confidence' of probe 0 of line 1 .* should be a number of 32 bits",
        ),
        (cot(PROBE | {"tokens": -1}), r"'tokens' of probe 0 of line 1 .* should be a whole number"),
        (cot(4), r"Entry 0 of .probes. of line 1 .* should be an object; found a whole number 4"),
        (
            cot(probes={"4": "1"}),
            r"'probes' of line 1 of x\.jsonl should be a list of objects; found an object",
        ),
        (
            lines(QUESTION | {"samples": [QUESTION["samples"][0] | {"probes": [PROBE, PROBE]}]}),
            r"Sample 0 of line 1 of x\.jsonl has two probes at the offset 4",
        ),
        (
            cot(PROBE) + cot({"offset": 4, "text": "1"}),
            (
                r"Some probes in x\.jsonl have an 'answer', and probe 0 of line 2 of x\.jsonl has"
                r" none; give it to all"
            ),
        ),
        (
            cot(PROBE, probe_cue="a") + cot(PROBE, probe_cue="b"),
            (
                r"Line 2 .* has probe_cue 'b', and rows before it have 'a' for the same"
                r" LLM.*'NAME@p=2'"
            ),
        ),
        (
            cot({"offset": 4, "text": "1"}),
            r"Verbatim answers are the stored ones, and the probes of question 'a' have",
        ),
    ],
    error=FevalError,
)


def test_answers_of_probes_do_not_change_which_cots_vote_together(imported):
    """The probe's answer is near one of two equal answers; as the first of its party it would part
    them.
    """
    options = {"answer_kind": "number", "equality": "tolerance-0.05"}
    alone, probed = (
        imported("jsonl", cot(*probes, answer="1.04") + cot(answer="1.08"), **options)
        for probes in ([], [{"offset": 1, "answer": "1.0"}])
    )
    assert alone.votes("toy").llms["toy-llm"].codes.tolist() == [[0, 0]]
    assert probed.votes("toy").llms["toy-llm"].codes.tolist() == [[0, 0]]
    assert probed.probes("toy", "toy-llm").codes.tolist() == [0]


def as_rows(pools):
    """Generic rows of pools of traces, probed every five tokens: answers of probes, tokens, final
    answer.
    """

    def sample(probes, tokens, final):
        objects = [{"offset": 5 * n, "answer": answer} for n, answer in enumerate(probes, 1)]
        return {"tokens": tokens, "answer": final, "probes": objects[::-1]}

    return [
        QUESTION | {"id": row, "samples": [sample(*trace) for trace in traces]}
        for row, traces in enumerate(pools)
    ]


def test_a_probe_sees_nothing_behind_it(imported):
    """What comes after five tokens changes; what was read before does not."""
    pools = [[(["1", "2", None], 19, "2"), ([None, "x"], 11, None)], [([None, "7"], 10, None)]]
    changed = [
        [([probes[0], *"98"], tokens + 1, "9") for probes, tokens, _ in traces] for traces in pools
    ]
    before, after = (
        [
            row
            for row in probe_rows(imported("jsonl", as_rows(each), answer_kind="number"), "answer")
            if row[1] == 5
        ]
        for each in (pools, changed)
    )
    assert before == after == [(0, 5, "1"), (1, 5, None), (0, 5, None)]


LLMS = ("Qwen3-0.6B", "Qwen3-4B")


@pytest.mark.slow
def test_votes_over_published_stores_equal_those_of_their_authors(shared, tmp_path):
    for llm in LLMS:
        source = shared / "real" / "probed" / f"{llm}.aime24.json.gz"
        options = {"dataset": "aime24", "llm": f"Qwen/{llm}", "answer_kind": "verbatim"}
        import_recording("probed-traces", source, tmp_path / llm, **options)
    both = merge([tmp_path / llm for llm in LLMS], tmp_path / "both")
    verify_recording(both)
    probes = [open_recording(both).probes("aime24", f"Qwen/{llm}") for llm in LLMS]
    assert [(each.interval, each.shape, len(each.codes)) for each in probes] == [
        (500, (30, 128), 117_931),
        (500, (30, 128), 103_578),
    ]
    goldens = golden(shared, file="probed.json")
    for llm, n in product(LLMS, (64, 128)):
        dataset, llms = load("aime24", [f"Qwen/{llm}"], both)
        done = evaluate(SelfConsistency(n), dataset, llms, order="recorded")
        assert done.right.sum() == goldens[f"{llm}.aime24.sc.n{n}"]["correct"]
