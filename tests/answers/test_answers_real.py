"""Extraction and canonical form on real recordings and on the gold answers of the sixteen
datasets.
"""

import gzip
import json
from collections import Counter

import pytest

from feval.answers import canonical, canonical_gold, equality, extract, keys
from feval.cards.cards import dataset_card

DATES = "mot_cascade/GPT3_result/date_cot1_40.json.gz"

BBH_TASKS = (
    "causal_judgement", "date_understanding", "disambiguation_qa", "formal_fallacies",
    "geometric_shapes",
    "movie_recommendation", "penguins_in_a_table", "ruin_names", "snarks", "sports_understanding",
    "temporal_sequences",
)  # fmt: skip
DATASETS = [
    "commonsense_qa",
    "gsm8k",
    "svamp",
    "aqua",
    "math_500",
    *(f"bbh_{task}" for task in BBH_TASKS),
]

# Upstream split the options at commas, so these golds are no option's label or text
# (real/README.md); their key is their text.
GOLDS_THAT_ARE_NO_OPTION = {
    "bbh_movie_recommendation/163": "monsters, inc",
    "bbh_ruin_names/99": "dearth, wind, & fire",
    "bbh_ruin_names/144": "rita, sue and bob poo",
}
# Pairs of equal answers that the normaliser cannot see to be equal, and why.
UNSEEN_BY_THE_NORMALISER = {
    "math_500/74": "upstream lost the blank of \\cot x and wrote the unknown command \\cotx"
}


def read_text(path):
    """The text of a file, unpacked."""
    return gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()


def read_rows(path):
    """The rows of a JSON array or of JSON Lines, unpacked."""
    text = read_text(path)
    return (
        json.loads(text)
        if text.lstrip().startswith("[")
        else [json.loads(line) for line in text.splitlines()]
    )


def answered(kind, text, choices=None):
    """The key of a CoT's answer."""
    return canonical(kind, extract(kind, text, choices or ()), choices or ())


@pytest.mark.parametrize("dataset", DATASETS)
def test_every_gold_is_its_own_answer(dataset, shared):
    kind = dataset_card(dataset).answer_kind
    for row in read_rows(shared / "real/questions" / f"{dataset}.jsonl"):
        choices = [(choice["label"], choice["text"]) for choice in row.get("choices", ())]
        key = canonical_gold(kind, row["answer"], choices)
        assert key is not None, row["id"]
        assert keys(kind, [row["answer"]], row["answer"], choices) == ([key], key), row["id"]
        if row["id"] in GOLDS_THAT_ARE_NO_OPTION:
            assert key == GOLDS_THAT_ARE_NO_OPTION[row["id"]]
        else:
            assert canonical(kind, key, choices) == key, row["id"]
            source = str(row["source_answer"]).rpartition("#### ")[2]
            assert canonical_gold(kind, source, choices) == key, row["id"]
        if choices and kind == "choice" and row["id"] not in GOLDS_THAT_ARE_NO_OPTION:
            assert key in dict(choices)


@pytest.mark.parametrize(
    "dataset",
    [
        "commonsense_qa", "aqua", "bbh_snarks", "bbh_temporal_sequences", "bbh_geometric_shapes",
        "bbh_date_understanding",
    ],
)  # fmt: skip
def test_every_option_is_recognised_by_its_label_and_by_its_text(dataset, shared):
    for row in read_rows(shared / "real/questions" / f"{dataset}.jsonl"):
        choices = [(choice["label"], choice["text"]) for choice in row["choices"]]
        texts = Counter(canonical("text", text) for _, text in choices)
        for label, text in choices:
            cot = f"Let us see.\nThe answer is ({label}) {text}."
            assert answered("choice", cot, choices) == label, row["id"]
            if texts[canonical("text", text)] == 1:
                assert canonical("choice", text, choices) in (label, None), row["id"]


def test_the_normaliser_sees_82_of_83_equal_latex_pairs(shared):
    rows = read_rows(shared / "real/questions/extra/math_500_answer_variants.jsonl")
    unseen = {
        row["id"]
        for row in rows
        if canonical("latex", row["answer"]) != canonical("latex", row["dsc_answer"])
    }
    assert len(rows) == 83
    assert unseen == set(UNSEEN_BY_THE_NORMALISER)


@pytest.mark.skipif(
    equality.version() is None, reason="math-verify is not installed (the extra `math`)"
)
def test_math_verify_sees_all_83(shared):
    for row in read_rows(shared / "real/questions/extra/math_500_answer_variants.jsonl"):
        result = keys("latex", [row["dsc_answer"]], row["answer"])
        assert result.answers == [result.gold], row["id"]


def test_latex_answers_and_verdicts_of_qwen_are_reproduced(shared):
    for row in read_rows(shared / "real/qwen_rm/math_cot_100.first50.jsonl.gz"):
        raw = [extract("latex", text) for text in row["code"]]
        result = keys("latex", raw, row["gt"])
        assert result.answers == keys("latex", row["pred"], row["gt"]).answers, row["idx"]
        assert [answer == result.gold for answer in result.answers] == row["score"], row["idx"]


@pytest.mark.parametrize("llm", ["gpt-4o", "gemini-1.5-pro"])
def test_modelswitch_verdicts_are_reproduced_from_texts_and_from_stored_answers(llm, shared):
    rows = read_rows(shared / f"real/modelswitch/Results/GSM8K/MS/closed_source/{llm}.json.gz")
    assert len(rows) == 1319
    for row in rows:
        gold = canonical("number", row["solution"])
        both = answered("number", row["step_sampling"][0]), canonical("number", row["final_answer"])
        assert [key == gold for key in both] == [row["Correctness"]] * 2, row["no"]


def test_standardised_dates_raise_the_accuracy_of_mot_cascade(shared):
    rows = read_rows(shared / "real" / DATES)
    upstream = sum(result == row["answer"] for row in rows for result in row["results"])
    ours = sum(
        answered("date", text) == canonical("date", row["answer"])
        for row in rows
        for text in row["generated"]
    )
    assert (upstream, ours) == (9069, 11_139)  # 0.614 and 0.755 of 14,760
