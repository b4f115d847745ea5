"""Extraction and canonical form on real recordings and on the gold answers of the sixteen datasets."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from feval.answers import canonical, canonical_gold, decimal_key, equality, extract, keys
from feval.cards import dataset_card

GSM8K = "mot_cascade/GPT4_result/gsm_cot1.json.gz"
DATES = "mot_cascade/GPT3_result/date_cot1_40.json.gz"
MMLU = [(letter, "") for letter in "ABCD"]
FOLIO = [(label, label) for label in ("True", "False", "Uncertain")]

# Upstream split the options at commas, so these golds are no option's label or text (real/README.md); their key is their text.
GOLDS_THAT_ARE_NO_OPTION = {
    "bbh_movie_recommendation/163": "monsters, inc",
    "bbh_ruin_names/99": "dearth, wind, & fire",
    "bbh_ruin_names/144": "rita, sue and bob poo",
}
# Pairs of equal answers that the normaliser cannot see to be equal, and why.
UNSEEN_BY_THE_NORMALISER = {"math_500/74": "upstream lost the blank of \\cot x and wrote the unknown command \\cotx"}


def read_text(path: Path) -> str:
    """The text of a file, unpacked."""
    return gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON array or of JSON Lines, unpacked."""
    text = read_text(path)
    rows: list[dict[str, Any]] = (
        json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines()]
    )
    return rows


def answered(kind: str, text: str, choices: list[tuple[str, str]] | None = None) -> str | None:
    """The key of a CoT's answer."""
    return canonical(kind, extract(kind, text, choices or ()), choices or ())


@pytest.mark.parametrize(
    "dataset",
    ["commonsense_qa", "gsm8k", "svamp", "aqua", "math_500"]
    + [
        f"bbh_{task}"
        for task in (
            "causal_judgement",
            "date_understanding",
            "disambiguation_qa",
            "formal_fallacies",
            "geometric_shapes",
        )
    ]
    + [
        f"bbh_{task}"
        for task in (
            "movie_recommendation",
            "penguins_in_a_table",
            "ruin_names",
            "snarks",
            "sports_understanding",
            "temporal_sequences",
        )
    ],
)
def test_every_gold_is_its_own_answer(dataset: str, shared: Path) -> None:
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
            assert canonical_gold(kind, str(row["source_answer"]).rpartition("#### ")[2], choices) == key, row["id"]
        if choices and kind == "choice" and row["id"] not in GOLDS_THAT_ARE_NO_OPTION:
            assert key in dict(choices)


@pytest.mark.parametrize(
    "dataset",
    [
        "commonsense_qa",
        "aqua",
        "bbh_snarks",
        "bbh_temporal_sequences",
        "bbh_geometric_shapes",
        "bbh_date_understanding",
    ],
)
def test_every_option_is_recognised_by_its_label_and_by_its_text(dataset: str, shared: Path) -> None:
    for row in read_rows(shared / "real/questions" / f"{dataset}.jsonl"):
        choices = [(choice["label"], choice["text"]) for choice in row["choices"]]
        texts = Counter(canonical("text", text) for _, text in choices)
        for label, text in choices:
            assert answered("choice", f"Let us see.\nThe answer is ({label}) {text}.", choices) == label, row["id"]
            if texts[canonical("text", text)] == 1:
                assert canonical("choice", text, choices) in (label, None), row["id"]


def test_the_normaliser_sees_82_of_83_equal_latex_pairs(shared: Path) -> None:
    rows = read_rows(shared / "real/questions/extra/math_500_answer_variants.jsonl")
    unseen = {row["id"] for row in rows if canonical("latex", row["answer"]) != canonical("latex", row["dsc_answer"])}
    assert len(rows) == 83
    assert unseen == set(UNSEEN_BY_THE_NORMALISER)


@pytest.mark.skipif(equality.version() is None, reason="math-verify is not installed (the extra `math`)")
def test_math_verify_sees_all_83(shared: Path) -> None:
    for row in read_rows(shared / "real/questions/extra/math_500_answer_variants.jsonl"):
        found = keys("latex", [row["dsc_answer"]], row["answer"])
        assert found.answers == [found.gold], row["id"]


def test_latex_answers_and_verdicts_of_qwen_are_reproduced(shared: Path) -> None:
    for row in read_rows(shared / "real/qwen_rm/math_cot_100.first50.jsonl.gz"):
        raw = [extract("latex", text) for text in row["code"]]
        found = keys("latex", raw, row["gt"])
        assert found.answers == keys("latex", row["pred"], row["gt"]).answers, row["idx"]
        assert [answer == found.gold for answer in found.answers] == row["score"], row["idx"]


@pytest.mark.parametrize("llm", ["gpt-4o", "gemini-1.5-pro"])
def test_modelswitch_verdicts_are_reproduced_from_texts_and_from_stored_answers(llm: str, shared: Path) -> None:
    rows = read_rows(shared / f"real/modelswitch/Results/GSM8K/MS/closed_source/{llm}.json.gz")
    assert len(rows) == 1319
    for row in rows:
        gold = canonical("number", row["solution"])
        assert (answered("number", row["step_sampling"][0]) == gold) == row["Correctness"], row["no"]
        assert (canonical("number", row["final_answer"]) == gold) == row["Correctness"], row["no"]


def test_numbers_of_mot_cascade_are_reproduced(shared: Path) -> None:
    for row in read_rows(shared / "real" / GSM8K):
        for text, result in zip(row["generated"], row["results"], strict=True):
            stored = canonical("number", result) if isinstance(result, str) else decimal_key(result)
            assert answered("number", text) == stored, text[-100:]


def test_worked_solutions_of_gsm8k_end_in_their_gold(shared: Path) -> None:
    for row in read_rows(shared / "real/questions/gsm8k.jsonl"):
        assert answered("number", row["source_answer"]) == row["answer"], row["id"]


@pytest.mark.parametrize(
    ("recording", "stored_dates", "run_on", "found_in_sentence", "none_in_sentence"),
    [
        ("GPT3_result/date_cot1_40", 12_782, 0, 1664, 314),
        ("GPT3_result/date_cot2", 6527, 0, 491, 362),
        ("GPT3_result/date_cot1_t=0.8", 6069, 0, 1094, 217),
        ("GPT4_result/date_cot1", 1104, 0, 3, 0),
        ("GPT4_result/date_cot2", 1107, 0, 0, 0),
        ("llama2_13B_result/date_cot1", 6914, 10, 402, 54),
    ],
)
def test_dates_of_mot_cascade_are_reproduced_where_a_date_was_stored(
    recording: str, stored_dates: int, run_on: int, found_in_sentence: int, none_in_sentence: int, shared: Path
) -> None:
    """Upstream stores what follows the last "A:", or the whole text without one.

    Where it stored a date we find the same, but where Llama 2 went on to questions of its own and upstream took the answer to the
    last of those. Where it stored something else we find the date of that sentence, or none.
    """
    seen: Counter[str] = Counter()
    for row in read_rows(shared / f"real/mot_cascade/{recording}.json.gz"):
        for text, result in zip(row["generated"], row["results"], strict=True):
            key = answered("date", text)
            if not re.fullmatch(r"\s*\d{1,2}/\d{1,2}/\d{4}\s*", result):
                seen["none" if key is None else "found"] += 1
            elif key == canonical("date", result):
                seen["same"] += 1
            else:
                assert re.search(r"\n\W*(?:Question \d+|Q):", text), text
                seen["run on"] += 1
    assert seen == Counter(
        {"same": stored_dates, "run on": run_on, "found": found_in_sentence, "none": none_in_sentence}
    )


def test_standardised_dates_raise_the_accuracy_of_mot_cascade(shared: Path) -> None:
    rows = read_rows(shared / "real" / DATES)
    upstream = sum(result == row["answer"] for row in rows for result in row["results"])
    ours = sum(answered("date", text) == canonical("date", row["answer"]) for row in rows for text in row["generated"])
    assert (upstream, ours) == (9069, 11_138)  # 0.614 and 0.755 of 14,760


@pytest.mark.parametrize(
    ("file", "same", "several_labels", "clearer"),
    [
        ("Llama-3.1-8B-Instruct/responses_0_14042_seed72645763", 140_416, 3, 1),
        ("Llama-3.2-3B-Instruct/responses_0_14042_seed72645763", 140_401, 17, 2),
        ("Llama-3.2-1B-Instruct/responses_0_14042_seed72645763", 139_278, 1115, 27),
    ],
)
def test_mmlu_replies_are_read_as_upstream_did_but_for_lists_of_labels(
    file: str, same: int, several_labels: int, clearer: int, shared: Path
) -> None:
    """Upstream takes the first word, so that "A, B, D" and a list of all options are votes for A; they choose nothing."""
    text = read_text(shared / f"real/coupled_mmlu/outputs/mmlu/{file}.csv.gz")
    replies = Counter(row[0] if row else "" for row in list(csv.reader(io.StringIO(text, newline="")))[1:])
    seen: Counter[str] = Counter()
    for reply, count in replies.items():
        key, upstream = answered("choice", reply, MMLU), upstream_letter(reply)
        seen["same" if key == upstream else "none" if key is None else "other"] += count
    assert seen == Counter({"same": same, "none": several_labels, "other": clearer})


def upstream_letter(reply: str) -> str | None:
    """The letter that the coupled-generation code reads, None for its "E" (real/README.md)."""
    word = re.sub(r'[.",);]', "", (reply or "nan").split(" ")[0]).strip()
    letter = word if word in tuple("ABCD") else reply.split("\n")[0].strip()
    return letter if letter in tuple("ABCD") else None


def test_letters_of_esc_are_reproduced_where_the_cot_says_the_answer_is(shared: Path) -> None:
    """The others of the 20,000: 13 answers with accented letters, which upstream drops, and 73 texts without the phrase."""
    seen: Counter[str] = Counter()
    for row in read_rows(shared / "real/esc/GPT3.5_result/last_letters/T0.7.jsonl.gz"):
        for text in row["generated_answer"]:
            _, phrase, tail = text.lower().rpartition("the answer is")
            key, upstream = answered("letters", text), re.sub("[^a-z]", "", tail)
            if not phrase:
                seen["empty" if not text else "another phrase" if key else "none"] += 1
            elif key == upstream:
                seen["same"] += 1
            else:
                assert key is not None
                assert re.sub("[^a-z]", "", key) == upstream
                seen["accents"] += 1
    assert seen == Counter({"same": 19_914, "accents": 13, "empty": 40, "another phrase": 31, "none": 2})


@pytest.mark.parametrize("shots", [4, 8])
def test_folio_labels_of_linc_are_reproduced(shots: int, shared: Path) -> None:
    """Of 1,820 labels upstream stores 10 that its own texts contradict ("ANSWER: False" as Uncertain) or do not name."""
    stem = f"real/linc/outputs/gpt-3.5-turbo-16k-0613_folio-cot-{shots}shot_generations"
    texts, labels = (
        json.loads(read_text(shared / f"{stem}_raw.json.gz")),
        json.loads(read_text(shared / f"{stem}_prc.json")),
    )
    pairs = [pair for text, label in zip(texts, labels, strict=True) for pair in zip(text, label, strict=True)]
    same = [answered("choice", text, FOLIO) == (None if label == "Error" else label) for text, label in pairs]
    assert (len(same), sum(same)) == (1820, 1810)
