"""Importers on real recordings: counts, tokens, no-answers and votes equal the published and
recomputed figures.
"""

import gzip
import json
from collections import Counter

import numpy as np
import pytest
from importing import Columns
from real_files import golden

import feval
from feval.importers import import_recording, papers
from feval.importers.questions import read_questions
from feval.importers.reading import Reader
from feval.importers.source import ImportRequest
from feval.recording import open_recording

MOT = "real/mot_cascade"
NAMED = {
    "date_cot1_40": f"{MOT}/GPT3_result/date_cot1_40.json.gz",
    "date_cot1": f"{MOT}/GPT3_result/date_cot1.json.gz",
    "date_cot1_t04": f"{MOT}/GPT3_result/date_cot1_t=0.4.json.gz",
    "date_cot2": f"{MOT}/GPT3_result/date_cot2.json.gz",
    "date_cot2_t04": f"{MOT}/GPT3_result/date_cot2_t=0.4.json.gz",
    "date_pot1": f"{MOT}/GPT3_result/date_pot1.json.gz",
    "date_pot1_t04": f"{MOT}/GPT3_result/date_pot1_t=0.4.json.gz",
    "date_pot2": f"{MOT}/GPT3_result/date_pot2.json.gz",
    "date_pot2_t04": f"{MOT}/GPT3_result/date_pot2_t=0.4.json.gz",
    "gpt4_date_cot1": f"{MOT}/GPT4_result/date_cot1.json.gz",
    "gpt4_date_cot2": f"{MOT}/GPT4_result/date_cot2.json.gz",
    "llama2_date_cot1": f"{MOT}/llama2_13B_result/date_cot1.json.gz",
    "last_letters_gpt35": "real/esc/GPT3.5_result/last_letters/T0.7.jsonl.gz",
}
MMLU = "real/coupled_mmlu/outputs/mmlu"


@pytest.fixture(scope="module")
def importing(shared, tmp_path_factory):
    """Imports a real file, verbatim by default; each import is made once."""
    made = {}

    def run(format_name, source, dataset, **options):
        key = repr((format_name, source, dataset, sorted(options.items())))
        if key not in made:
            out = tmp_path_factory.mktemp("imported") / "recording"
            arguments = {"llm": "an-llm", "answer_kind": "verbatim", **options}
            import_recording(format_name, shared / source, out, dataset=dataset, **arguments)
            made[key] = Columns(open_recording(out))
        return made[key]

    return run


def named(importing, name, **options):
    if name == "last_letters_gpt35":
        return importing("esc", NAMED[name], "last_letters", **options)
    return importing("mot-cascade", NAMED[name], "bigbench_date", **options)


@pytest.mark.parametrize("name", sorted(NAMED))
def test_counts_equal_the_published_ones(shared, importing, name):
    expected = json.loads((shared / "golden" / "methods.json").read_text())["inputs"][name]
    columns = named(importing, name, keep_duplicates=True)
    assert len(columns.answers) == expected["questions"]
    assert {len(row) for row in columns.answers} == {expected["samples_per_question"]}
    assert sum(row.count(None) for row in columns.answers) == expected["none_samples"]
    assert columns.manifest["pairs"][0]["counter"] == "words"


def test_tokens_equal_the_reference_package(shared, importing):
    (entry,) = golden(shared, "cost.tokens.date_cot1_40").values()
    tokens = named(importing, "date_cot1_40", keep_duplicates=True).tokens
    assert tokens[0] == entry["expected"]["first_question"]
    assert sum(map(sum, tokens)) == entry["expected"]["tokens"] == 526654


def test_prefix_votes_equal_the_reference_figures(shared, importing):
    checked = 0
    for entry in golden(shared, "sc.prefix.").values():
        (name,) = entry["inputs"]
        columns = named(importing, name, keep_duplicates=True)
        expected = entry["expected"]["correct"]
        assert columns.prefix_votes(entry["params"]["N"]) == expected, entry["id"]
        checked += 1
    assert checked >= 6


def test_the_recording_that_is_not_independent_says_so(importing):
    both = named(importing, "date_cot1_40", keep_duplicates=True)
    first = named(importing, "date_cot1", keep_duplicates=True)
    second = named(importing, "date_cot1_t04", keep_duplicates=True)
    assert both.answers == [
        one + two for one, two in zip(first.answers, second.answers, strict=True)
    ]
    assert "not independent of two others" in both.notes
    assert "not independent" not in first.notes


def test_llama2_samples_are_imported_once(importing):
    columns = named(importing, "llama2_date_cot1")
    assert {len(row) for row in columns.answers} == {10}
    assert columns.gold == named(importing, "date_cot1", keep_duplicates=True).gold
    assert "only the first half was imported" in columns.notes
    assert round(columns.mean_accuracy(), 3) == 0.429


@pytest.mark.parametrize(
    ("name", "accuracy"),
    [
        ("date_cot1_40", 0.614),
        ("date_cot2_t04", 0.666),
        ("date_pot2", 0.776),
        ("gpt4_date_cot1", 0.885),
        ("last_letters_gpt35", 0.804),
    ],
)
def test_mean_accuracy_equals_the_published_one(importing, name, accuracy):
    assert round(named(importing, name, keep_duplicates=True).mean_accuracy(), 3) == accuracy


@pytest.mark.parametrize("kind", ["verbatim", "number"])
def test_gsm8k_by_gpt4_is_ragged_and_mixes_texts_with_numbers(importing, kind):
    columns = importing(
        "mot-cascade", f"{MOT}/GPT4_result/gsm_cot1.json.gz", "gsm8k", answer_kind=kind
    )
    assert Counter(map(len, columns.answers)) == {3: 1318, 1: 1}
    assert "The pools of an-llm are ragged: 1 to 3 samples" in columns.notes
    assert "7 of 3955 stored answers are text among numbers" in columns.notes
    assert round(columns.mean_accuracy(), 3) == 0.951


@pytest.mark.parametrize(
    ("file", "accuracy", "unreadable"),
    [
        ("Llama-3.1-8B-Instruct/responses_0_14042_seed72645763", 0.644, 48),
        ("Llama-3.2-3B-Instruct/responses_0_14042_seed29387482", 0.553, 145),
        ("Llama-3.2-1B-Instruct/responses_0_14042_seed18987374", 0.353, 329),
    ],
)
def test_mmlu_replies_equal_the_published_check(shared, file, accuracy, unreadable):
    key = read_questions(shared / "real/coupled_mmlu/mmlu_test_answer_key.csv", "mmlu", Reader())
    request = ImportRequest("mmlu", ("an-llm",), key)
    read = papers.read_coupled_mmlu(shared / MMLU / f"{file}.csv.gz", request)
    (llm,) = read.llms
    answers = [[papers.mmlu_answer(text or "") for text in pool.texts] for pool in llm.pools]
    right = sum(
        row.count(question.gold or "")
        for question, row in zip(read.questions, answers, strict=True)
    )
    assert len(answers) == 14042
    assert {len(row) for row in answers} == {10}
    assert round(right / 140420, 3) == accuracy
    assert sum(row.count("E") for row in answers) == unreadable


@pytest.mark.parametrize(("llm", "accuracy"), [("gpt-4o", 0.957), ("gemini-1.5-pro", 0.953)])
def test_modelswitch_equals_its_verdicts(shared, importing, llm, accuracy):
    source = f"real/modelswitch/Results/GSM8K/MS/closed_source/{llm}.json.gz"
    questions = shared / "real/questions/gsm8k.jsonl"
    columns = importing("modelswitch", source, "gsm8k", answer_kind="number", questions=questions)
    assert len(columns.answers) == 1319
    assert round(columns.mean_accuracy(), 3) == accuracy
    assert "shuffled order" in columns.notes


LINC = "real/linc/outputs/gpt-3.5-turbo-16k-0613_folio-{mode}"
LINC_RUNS = ("cot-1shot", "cot-2shot", "cot-4shot", "cot-8shot", "neurosymbolic-8shot")


@pytest.mark.parametrize("mode", LINC_RUNS)
def test_linc_majorities_equal_the_accuracy_its_authors_state(shared, importing, mode):
    run = LINC.format(mode=mode)
    columns = importing("linc", f"{run}_generations_prc.json", "folio", llm=None)
    stated = json.loads((shared / f"{run}_results.json").read_text())[f"folio-{mode}"][
        "accuracy (pass@1 majority)"
    ]
    assert columns.prefix_votes(10) / 182 == pytest.approx(stated, abs=1e-12)
    assert columns.recording.llm_names("folio") == [f"gpt-3.5-turbo-16k-0613@folio-{mode}"]
    assert {len(row) for row in columns.answers} == {10}


TOT = "real/tot/logs/game24/gpt-4_0.7_naive_standard_sample_100_start900_end1000.json.gz"


def test_the_game_of_24_is_judged_as_its_authors_judged_it(shared, importing):
    puzzles = shared / "real/tot/src/tot/data/24/24.csv"
    columns = importing("game24", TOT, "game24", answer_kind="number", questions=puzzles)
    entries = json.loads(gzip.decompress((shared / TOT).read_bytes()))
    assert [[answer == "24" for answer in row] for row in columns.answers] == [
        entry["accs"] for entry in entries
    ]
    assert columns.gold == ["24"] * 100
    assert (
        round(columns.mean_accuracy(), 4)
        == 0.0734
        == sum(sum(entry["accs"]) for entry in entries) / 10_000
    )
    assert (
        round(100 * columns.mean_accuracy(), 1) == 7.3
    )  # "IO prompt" of the paper's table 2, and below "IO (best of 100)"
    assert sum("24" in row for row in columns.answers) == 33
    assert "exact arithmetic" not in columns.notes
    assert "180008 completion and 100000 prompt tokens" in columns.notes


def published(shared, out, folder, layout, dataset):
    """The LLMs of a set, imported by its layout, and what it should say of them."""
    import_recording(
        "table", shared / "real" / folder, out, dataset=dataset, layout=layout,
        answer_kind=None if folder == "boinf" else "verbatim",
    )  # fmt: skip
    golden = json.loads((shared / "golden/verdicts.json").read_text("utf-8"))
    return golden, *feval.load(dataset, None, out, prices="none")


@pytest.mark.parametrize("year", ["aime2024", "aime2025"])
def test_best_of_infinity(shared, tmp_path, year):
    golden, dataset, llms = published(shared, tmp_path / "out", "boinf", "best-of-infinity", year)
    assert len(llms) == 4
    for llm in llms:
        expected = golden["boinf"][f"{year}_{llm.name}"]
        assert [llm.pool.smallest, int(llm.pool.sizes.max())] == expected["samples"]
        curve = feval.self_consistency_curve(dataset, llm, [1, 10, llm.pool.smallest])
        one, ten, every = curve.points
        tokens = llm.pool.output_tokens.mean()
        assert (one.accuracy, ten.pass_at_n, every.accuracy, tokens) == pytest.approx(
            [
                expected[name]
                for name in (
                    "mean_accuracy", "pass_at_10", "majority_of_all_ties_shared",
                    "output_tokens_per_sample",
                )
            ],
            rel=1e-12,
        )  # fmt: skip


def test_routerarena(shared, tmp_path):
    out = tmp_path / "out"
    folder = "routerarena/cached_results"
    golden, dataset, llms = published(shared, out, folder, "routerarena", "arena")
    golden = golden["routerarena"]
    best = np.maximum(*(dataset.rightness.of_llm[llm.name][:, 0] for llm in llms))
    assert len(best) == golden["questions"]
    assert best.mean() == pytest.approx(golden["oracle"]["mean_score_clipped"], abs=1e-12)
    for llm in feval.load("arena", None, out, prices="recorded")[1]:
        result = feval.evaluate(feval.SingleCall(), dataset, llm)
        expected = golden[llm.name]
        assert (result.accuracy, result.usd_per_question) == pytest.approx(
            (expected["mean_score_clipped"], expected["mean_usd"]), abs=1e-12
        )
