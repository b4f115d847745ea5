"""Importers on small sources written out here: what they read, what they note, what they refuse."""

import gzip
import json
import os
import struct
import tracemalloc
import zipfile
from pathlib import Path

import pages
import pytest
from foreign_sources import (
    ARCHIVE_LLM,
    COT,
    MMLU_KEY,
    MMLU_REPLIES,
    QUESTION,
    archive,
    archive_members,
    cot,
    dumped,
    lines,
    mot_entry,
    open_entry,
    response,
    switch_entry,
)
from importing import check, manifest, notes, probe_rows, refusals, requests, rows
from places import read_data

from feval.errors import FevalError, SourceError, UnknownNameError, UsageError
from feval.importers import IMPORTERS, import_recording, reading
from feval.importers.papers import mmlu_answer
from feval.importers.questions import read_questions
from feval.importers.reading import Reader

READ = read_data("importers.json")


def test_reads_a_mot_cascade_file(imported):
    # equal texts, two questions
    recording = imported("mot-cascade", [mot_entry(), mot_entry(answer="3")])
    table, sent = rows(recording), requests(recording)
    assert recording.dataset_ids() == ["toy"]
    check(
        recording,
        "Requests missing from the source, replaced by the question's text: 2.",
        llms=["toy-llm"],
        ids=["toy/0", "toy/1"],
        gold_keys=["2", "3"],
        text=["One and one.\nA: 2", "A: 3", "nothing"] * 2,
        answer_raw=["2", "3", None] * 2,
        answer=["2", "3", None] * 2,
        prompt_tokens=[7, 7],
    )
    assert table["output_tokens"] == [7, 3, 1] * 2  # 5, 2 and 1 words times 1.365
    assert set(table["finish_reason"]) == {"unknown"}
    assert [json.loads(prompt) for prompt in sent["prompt"]] == [
        [{"role": "user", "content": "What is 1 + 1?"}]
    ] * 2


def test_numbers_become_decimal_keys(imported):
    results = [18.0, 18, "18", 0.5, 99096.92, True, None]
    entry = mot_entry(answer=18, generated=["x"] * 7, results=results)
    recording = imported("mot-cascade", [entry])
    check(
        recording,
        "1 of 7 stored answers are text among numbers",
        answer=["18", "18", "18", "0.5", "99096.92", "yes", None],
    )
    assert recording.questions("toy")[0].answer_key == "18"


def test_whole_numbers_beyond_64_bits_keep_their_digits(imported):
    number = 123456789012345678901234567890
    entry = mot_entry(
        answer=number, generated=["x"] * 4, results=[number, number + 1, 10**4000, 1e308]
    )
    recording = imported("mot-cascade", [entry])
    # The last two are too long for a key, and kept as text.
    check(recording, answer=[str(number), str(number + 1), str(10**4000), "1" + "0" * 308])


def test_the_option_marked_1_is_the_gold(imported):
    recording = imported("mot-cascade", [mot_entry(answer={"2": 1, "3": 0})])
    assert recording.questions("toy")[0].answer == "2"
    assert "object {option: 0 or 1}" in notes(recording)


@pytest.mark.parametrize("options", [{"2": 1, "3": 1}, {"2": 0}, {}, {"2": True}])
def test_refuses_a_gold_object_without_one_right_option(imported, options):
    imported.refuses("options marked 1", "mot-cascade", [mot_entry(answer=options)])


def test_samples_stored_twice_are_imported_once_unless_asked(imported):
    entry = mot_entry(generated=["a", "b"] * 2, results=["2", "3"] * 2)
    source = [entry, entry]
    once, twice = (
        imported("mot-cascade", source),
        imported("mot-cascade", source, keep_duplicates=True),
    )
    check(once, "only the first half was imported", text=["a", "b"] * 2)
    check(twice, "both halves were kept", text=["a", "b"] * 4)


def test_equal_samples_of_one_question_are_no_duplicates(imported):
    repeated = mot_entry(generated=["a", "b"] * 2, results=["2", "3"] * 2)
    other = mot_entry(generated=["a", "b", "c", "d"], results=["2", "3", "2", "3"])
    assert len(rows(imported("mot-cascade", [repeated, other]))["text"]) == 8
    greedy = mot_entry(generated=["a", "a"], results=["2", "2"])
    assert len(rows(imported("mot-cascade", [greedy, greedy]))["text"]) == 4


def test_refuses_other_numbers_of_texts_and_answers(imported):
    imported.refuses(
        r"Question 1 of x\.json has 3 texts in 'generated' and 4 answers in 'results'",
        "mot-cascade",
        [mot_entry(), mot_entry(results=["2"] * 4)],
    )


def test_mot_cascade_texts_whose_results_are_missing_are_named_or_have_no_answer(imported):
    # As in the published files of programs: (texts, results) of (3, 3), (3, 2), (3, 0) and (0, 0).
    entries = [
        mot_entry(),
        mot_entry(results=["2", "3"]),
        mot_entry(results=[]),
        mot_entry(generated=[], results=[]),
    ]
    recording = imported("mot-cascade", entries)
    assert [len(recording.texts("toy", "toy-llm", q)) for q in range(4)] == [3, 0, 3, 0]
    check(
        recording,
        "Questions with texts and no result: 1 of 4 (toy/2)",
        "Questions with fewer results than texts: 1 of 4 (toy/1)",
        "Questions without samples of toy-llm: 2 of 4 (toy/1, toy/3)",
        answer=["2", "3", None, None, None, None],
    )


def test_reads_an_esc_file_by_its_authors_rule(imported):
    texts = [
        "A: The last letter. The answer is YAJO.",
        "so yajo",
        "the answer is 42",
        "The answer is x. The answer is y",
    ]
    line = {"question": "Q: letters?", "answer": "yajO", "generated_answer": texts}
    recording = imported("esc", line)
    check(
        recording,
        "extracted from the texts by the authors' rule",
        answer=["yajo", "soyajo", "", "y"],
    )
    assert recording.questions("toy")[0].answer_key == "yajO"


@pytest.mark.parametrize(("reply", "letter"), READ["MMLU replies"])
def test_reads_mmlu_replies_by_their_authors_rule(reply, letter):
    assert mmlu_answer(reply) == letter


def test_reads_coupled_mmlu_with_an_answer_key(save, imported):
    key = save("key.csv", MMLU_KEY)
    recording = imported(
        "coupled-mmlu", save("responses_0_2_seed123.csv", MMLU_REPLIES), questions=key
    )
    check(
        recording,
        "nothing can be priced",
        "noise seed 123",
        answer=["A"] * 10 + ["B"] * 9 + ["E"],
        golds=["A", "B"],
        prompt=[None, None],
    )
    assert manifest(recording)["llms"][0]["decoding"] == {
        "noise": {"scheme": "coupled-llm-evaluation", "seed": 123}
    }


def test_reads_coupled_mmlu_with_texts_and_options(save, imported):
    choices = [{"label": label, "text": f"option {label}"} for label in "ABCD"]
    questions = lines(
        *(
            {"id": f"toy/{i}", "question": f"Q{i}", "answer": "A", "choices": choices}
            for i in (1, 0)
        )
    )
    recording = imported("coupled-mmlu", MMLU_REPLIES, questions=questions, answer_kind="choice")
    check(recording, questions=["Q0", "Q1"], answer=["A"] * 10 + ["B"] * 9 + [None])
    assert recording.questions("toy")[0].choices[3] == ("D", "option D")


def test_coupled_mmlu_needs_its_questions(save, imported):
    source = MMLU_REPLIES
    imported.refuses("questions='FILE'", "coupled-mmlu", source, error=UsageError)
    imported.refuses(
        r"replies to 2 questions, 'toy/0' to 'toy/1'; the questions file has 3",
        "coupled-mmlu",
        source,
        questions=MMLU_KEY + b"algebra,2,C\n",
    )
    imported.refuses(
        "must have the same questions",
        "coupled-mmlu",
        source,
        questions=lines({"question": "a", "id": 7}, {"question": "b", "id": 8}),
    )


test_refuses_other_csv = refusals(
    "coupled-mmlu",
    [
        (MMLU_REPLIES + b"C\n", "21 replies; it should be 10 for each question"),
        (b"0\n", "0 replies"),
        (b"1\nA\n", "one column named 0"),
        (MMLU_REPLIES + b"C,D\n", "not readable as CSV: .* Expected 1 columns, got 2"),
        (b'0\n"unclosed\n', "ends within the quotes of a cell"),
        (b"0\n\xff\n", "not readable as CSV: .*UTF8"),
    ],
    questions=MMLU_KEY,
)


def test_modelswitch_is_put_in_the_order_of_its_numbers(imported):
    entries = [
        switch_entry(no=7, question="b", solution=4),
        switch_entry(
            no=3,
            question="a",
            step_sampling=["x", "y"],
            intermediate_results=["", "Error"],
            ans_list=["", "Error"],
        ),
    ]
    recording = imported("modelswitch", entries)
    check(
        recording,
        ids=["toy/3", "toy/7"],
        questions=["a", "b"],
        golds=["2", "4"],
        answer=[None, None, "2"],
    )
    for mark in ("", "Error"):
        assert f"Answers {mark!r} (they are no answer): 1." in notes(recording)
    assert "shuffled order" in notes(recording)


def test_modelswitch_files_of_open_models_name_their_llms(imported):
    source = [open_entry(1), open_entry(0, gemma_Sampling=None, gemma_ans_list=None)]
    recording = imported("modelswitch", source, llm=None)
    check(
        recording,
        "Questions without samples of gemma: 1 of 2 (toy/0).",
        llms=["Llama-3.1-70B-Instruct", "gemma"],
        answer=["2", "3"] * 2,
    )
    check(recording, llm="gemma", question_id=["toy/1"])
    check(imported("modelswitch", source, llm="gemma"), llms=["gemma"])
    imported.refuses(
        r"no LLM in x\.json, 'o'\.(.*)Known: Llama-3\.1-70B-Instruct, gemma",
        "modelswitch",
        source,
        error=UnknownNameError,
        llm="o",
    )


def test_modelswitch_questions_without_numbers_are_numbered_by_their_rows(imported):
    recording = imported("modelswitch", [open_entry(None), open_entry(None)], llm="gemma")
    check(recording, "does not number its questions", ids=["toy/0", "toy/1"])
    imported.refuses(
        r"row 2 of x\.json has no 'no'",
        "modelswitch",
        [open_entry(0), open_entry(None)],
        llm="gemma",
    )


def test_modelswitch_files_that_hold_only_a_list_of_answers(imported):
    with_texts = switch_entry(ans_list=["2"])
    del with_texts["intermediate_results"]
    without_texts = {
        name: value for name, value in with_texts.items() if name != "step_sampling"
    } | {"no": 1}
    without_texts["ans_list"] = ["2", "", "Error"]
    recording = imported("modelswitch", [with_texts, without_texts])
    check(
        recording,
        "CoTs without a text, for which the answer stands, so",
        answer=["2", "2", None, None],
        text=["It is \\boxed{2}.", "2", "", ""],
    )


test_refuses_other_modelswitch_files_of_open_models = refusals(
    "modelswitch",
    [
        (
            {"gemma_ans_list": ["2", "3"]},
            "Row 1 of x.json .* several lengths .1 in '{llm}_Sampling', 2 in '{llm}_ans_list'",
        ),
        ({"gemma_ans_list": "2"}, "'{llm}_ans_list' of row 1 of x.json should be a list"),
        ({"solution": None}, "has no 'solution'"),
    ],
    lambda change: [open_entry(0, **change), open_entry(1)],
    llm=None,
)


def test_modelswitch_refuses_a_number_twice(imported):
    imported.refuses(
        r"Row 2 of .* two entries for one question id",
        "modelswitch",
        [switch_entry(), switch_entry()],
    )


def test_reads_a_reference_archive(imported):
    recording = imported("feval-ttc", archive(archive_members()))
    check(
        recording,
        llms=[ARCHIVE_LLM, "o3-mini"],
        ids=["gsm8k/0", "gsm8k/1"],
        questions=["1 + 1?", "2 + 2?"],
        golds=["2", "4"],
        answer=["2", None, "3", "2", "2", None],
        output_tokens=[4, 2048, 1, 4, 4, 0],
        finish_reason=["stop", "length", "content_filter", "error", "error", "error"],
        prompt_tokens=[5, 5],
    )
    sent = requests(recording)
    assert json.loads(sent["prompt"][0]) == [{"role": "user", "content": "Q: 1 + 1?"}]
    described = manifest(recording)
    assert described["datasets"][0]["system_prompt"] == "Be brief."
    assert [llm["temperature"] for llm in described["llms"]] == [0.7, None]
    assert {pair["counter"] for pair in described["pairs"]} == {"usage"}
    assert "1.365 per word" in notes(recording)


def test_an_archive_can_be_counted_anew(imported):
    source = archive(archive_members())
    recording = imported("feval-ttc", source, llm=["o3-mini"], counter="words")
    check(recording, llms=["o3-mini"], output_tokens=[1, 1], prompt_tokens=[5, 5])


def test_an_archive_says_what_it_holds(imported):
    source = archive(archive_members())
    imported.refuses(
        r"has no dataset 'svamp' \(as 'SVAMP'\); it has gsm8k",
        "feval-ttc",
        source,
        dataset="svamp",
        llm=None,
    )
    imported.refuses(
        r"'gpt-4'.*Known: .*o3-mini", "feval-ttc", source, error=UnknownNameError, llm="gpt-4"
    )


def with_llm(*responses, **config):
    """What replaces the first LLM's member: its responses (one stands for two), and its config."""
    responses = responses * 2 if len(responses) == 1 else responses
    return {
        f"LLM_{ARCHIVE_LLM}_dataset_GSM8K.txt": {
            "config": {"name": ARCHIVE_LLM, **config},
            "responses": list(responses),
        }
    }


test_refuses_other_archives = refusals(
    "feval-ttc",
    [
        (with_llm(response(), response(), response()), "3 responses to 2 questions"),
        (with_llm(1), r"response 0 of LLM_.* should be an object"),
        (
            {"LLM_o3-mini_dataset_GSM8K.txt": {"config": {"name": "o3-mini"}}},
            "has no 'responses'; it has 'config'",
        ),
        (with_llm(response(), name="other"), "its config for 'other'"),
        (with_llm(response(), max_tokens="x"), "'max_tokens' of the config"),
        (with_llm(response(cot(reason="done"))), "finish reason of CoT 0 of response 0"),
        (with_llm(response(cot(tokens=1.5))), "token count of sample 0"),
        (with_llm(response({"raw_text": "x"})), r"CoT 0 of response 0 of .* has no 'metadata'"),
        (with_llm(response(cot() | {"metadata": {}})), "has no 'token_cost'"),
        (with_llm(response(cot() | {"answer": 2})), "Answer 0 of"),
        (with_llm(response(cot() | {"raw_text": None})), "'raw_text' of CoT 0 of response 0"),
        (with_llm({"cots": [], "request": {"raw_text": "x"}}), "'token_cost' of the request"),
        (
            {"dataset_GSM8K_models.txt": {"llms": ["o3-mini", "o3-mini"]}},
            "should list each LLM once",
        ),
        (
            {"dataset_GSM8K_models.txt": {"llms": ["absent"]}},
            "has no member 'LLM_absent_dataset_GSM8K.txt'",
        ),
        ({"dataset_GSM8K.txt": {"data": [], "system_prompt": None}}, "has no questions"),
        ({"dataset_GSM8K.txt": {"data": [], "system_prompt": 1}}, "'system_prompt'"),
        ({"dataset_GSM8K.txt": b'{"data"'}, "not valid JSON"),
    ],
    lambda changes: archive(archive_members(**changes)),
)


def test_refuses_an_archive_with_a_member_twice(imported):
    members = [*archive_members().items(), ("dataset_GSM8K.txt", {"data": []})]
    with pytest.warns(UserWarning, match="Duplicate name"):
        data = archive(members)
    imported.refuses("two members of one name", "feval-ttc", data)


def spoilt(**numbers):
    """An archive whose headers have another number at an offset."""
    data = bytearray(archive(archive_members(**{"dataset_GSM8K.txt": b" " * 100_000})))
    for magic, offset, form, number in numbers.values():
        struct.pack_into(form, data, data.index(magic) + offset, number)
    return bytes(data)


LOCAL, CENTRAL = b"PK\x03\x04", b"PK\x01\x02"
test_refuses_archives_that_cannot_be_bounded = refusals(
    "feval-ttc",
    [
        (spoilt(local=(LOCAL, 6, "<H", 1), central=(CENTRAL, 8, "<H", 1)), "encrypted"),
        (spoilt(size=(CENTRAL, 24, "<L", 10)), "damaged|not valid JSON"),
        *(
            (archive(archive_members(), method), "neither deflate nor Zstandard")
            for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
        ),
    ],
)


def test_reads_a_line_per_question(imported):
    first = {
        "id": "a",
        "question": "1 + 1?",
        "answer": 2,
        "choices": [{"label": "A", "text": "2"}],
        "prompt": [{"role": "system", "content": "Brief."}, {"role": "user", "content": "1 + 1?"}],
        "prompt_tokens": 11,
        "samples": [
            {"text": "so 2", "answer": 2.0, "tokens": 3, "finish_reason": "stop"},
            {"text": "well", "answer": None, "tokens": 1, "finish_reason": "max_tokens"},
        ],
    }
    second = {
        "id": 5,
        "question": "?",
        "prompt": "Q: ?",
        "samples": [{"text": None, "answer": "x", "tokens": 2.0}],
        "mood": 1,
    }
    recording = imported("jsonl", [first, second])
    sent = requests(recording)
    check(
        recording,
        "Unknown members, which were not imported: mood (such as 1).",
        "Questions without a gold answer (accuracies need one or verdicts, or --drop"
        " unlabelled): 1.",
        "Requests without a token count, so that nothing can be priced on their questions: 1.",
        ids=["a", "5"],
        golds=["2", None],
        choices=[(("A", "2"),), ()],
        answer=["2", None, "x"],
        text=["so 2", "well", None],
        output_tokens=[3, 1, 2],
        finish_reason=["stop", "length", "unknown"],
        prompt_tokens=[11, None],
    )
    assert json.loads(sent["prompt"][0]) == first["prompt"]


def test_a_line_without_an_id_is_named_by_its_row(imported):
    source = b"\n" + lines(
        *({"question": q, "samples": [{"text": "t", "answer": "1"}]} for q in "ab")
    )
    check(imported("jsonl", source), ids=["toy/0", "toy/1"])


def test_the_documented_examples_can_be_imported(save, imported):
    blocks = [
        block.text.encode()
        for name in ("importing", "import-rows")
        for block in pages.blocks(pages.page(name))
        if block.language == "json"
    ]
    questions, by_question, by_cot, with_probes, store, tree, with_turns = blocks
    first = imported("jsonl", by_question)
    check(first, answer=["2", None], finish_reason=["stop", "length"])
    check(imported("jsonl", by_cot, llm=None), answer=["2", "3"])
    source = save("c.jsonl", lines({"id": "aqua/0", "text": "The answer is (A).", "tokens": 7}))
    third = imported("jsonl", source, questions=questions, answer_kind="choice")
    check(third, answer=["A"])
    traces = imported("probed-traces", b"[" + store + b"]")
    assert probe_rows(traces, "answer") == [(0, 500, "3"), (0, 1000, "2"), (1, 500, "2")]
    assert probe_rows(imported("jsonl", with_probes, llm=None), "answer") == [
        (0, 250, "3"),
        (0, 1000, "2"),
    ]
    assert imported("jsonl", tree, llm=None).manifest.pairs["toy", "m@steps"]["depth"] == 2
    assert imported("jsonl", with_turns, llm=None).manifest.pairs["toy", "m@revise"]["turns"] == 1


OPTIONS = [{"label": label, "text": "x"} for label in "AB"]


def without(record, name):
    return {key: value for key, value in record.items() if key != name}


test_refuses_other_json_lines = refusals(
    "jsonl",
    [
        ([COT, COT | {"gold": "2"}], "has two gold answers: '1' before, and '2' on line 2"),
        ([COT, COT | {"question": "B?"}], "two texts"),
        ([COT | {"choices": [option]} for option in OPTIONS], "two sets of choices"),
        ([COT | {"prompt": "a"}, COT | {"prompt": "b"}], "two prompts: 'a' before"),
        ([COT | {"prompt_tokens": 1}, COT | {"prompt_tokens": 2}], "prompt token counts"),
        (
            [COT | {"sample": 1}, COT | {"sample": 1}],
            "sample number twice: 1 on line 1 of x.jsonl and on line 2",
        ),
        ([COT | {"sample": 1}, COT], "on each line, or on none"),
        (
            [COT | {"llm": "m"}, COT],
            r"Some lines of x.jsonl name an LLM and others do not \(line 2",
        ),
        ([QUESTION, QUESTION], "has the question id 'a' a second time"),
        ([QUESTION, COT], "Line 2 of x.jsonl is a CoT, the lines before are questions"),
        ([COT, QUESTION], "a file has one layout"),
        ([{"text": "x"}], "neither 'samples' nor an 'id'"),
        ([COT | {"id": True}], "'id' of line 1"),
        ([COT | {"tokens": 1.5}], "'tokens' of line 1"),
        ([COT | {"prompt": [{"role": "user", "content": []}]}], "a message of 'prompt' of line 1"),
        ([COT | {"finish_reason": "bored"}], "'finish_reason' of line 1"),
        ([COT | {"choices": [{"label": "A", "text": "x"}] * 2}], "label twice"),
        ([COT | {"sample": 0}, COT | {"sample": 1, "text": None}], "neither text nor a usable"),
        ([without(COT, "question")], "The text of question 'a' is not known"),
        ([COT, without(COT, "answer")], "1 of 2 samples in x.jsonl have 'answer', and line 2"),
        ([QUESTION | {"samples": [1]}], "Sample 0 of line 1"),
        ([QUESTION | {"samples": None}], "'samples' of line 1"),
        ([[1]], "Line 1 of x.jsonl should be an object; found a list of 1"),
    ],
)


def test_verbatim_needs_stored_answers(imported):
    source = {"id": "a", "question": "A?", "gold": "1", "text": "The answer is 1."}
    imported.refuses(
        "Verbatim answers are the stored ones of a jsonl source", "jsonl", source, error=UsageError
    )
    imported.refuses(
        "answers from the texts were asked for", "jsonl", source, error=UsageError, answers="text"
    )
    check(imported("jsonl", source, answer_kind="number"), answer=["1"])


def test_answers_can_be_extracted_again(imported):
    source = [mot_entry(results=["9", "9", "9"], generated=["The answer is 2."] * 3)]
    check(imported("mot-cascade", source, answer_kind="number"), answer=["9"] * 3)
    check(imported("mot-cascade", source, answer_kind="number", answers="text"), answer=["2"] * 3)


def test_unreadable_answers_and_golds_are_noted(imported):
    entries = [mot_entry(results=["2", "plates", None]), mot_entry(answer="no number")]
    recording = imported("mot-cascade", entries, answer_kind="number")
    assert rows(recording)["answer"][:3] == ["2", None, None]
    check(
        recording,
        "Raw answers that cannot be read as number and count as no answer: 1.",
        "Gold answers that cannot be read as number (accuracies need one or verdicts,",
    )


def test_the_card_gives_the_answer_kind(imported):
    source = [mot_entry(answer="5/1/2021", results=["05/01/2021", "May 1, 2021", None])]
    recording = imported("mot-cascade", source, dataset="bigbench_date", answer_kind=None)
    check(
        recording,
        "the dataset's card says 369",
        answer=["05/01/2021", "05/01/2021", None],
        answer_raw=["05/01/2021", "May 1, 2021", None],
    )
    imported.refuses(
        "pass answer_kind='KIND'", "mot-cascade", source, error=UsageError, answer_kind=None
    )


@pytest.mark.parametrize(("options", "sentence"), READ["import options"])
def test_refuses_other_options(imported, options, sentence):
    imported.refuses(sentence, "mot-cascade", [mot_entry()], FevalError, **options)


def test_names_the_formats_it_knows(imported):
    imported.refuses(
        r"no import format 'mot'.*coupled-mmlu, esc, feval-ttc, game24",
        "mot",
        b"[]",
        error=UnknownNameError,
    )
    assert all(name == importer.name and importer.title for name, importer in IMPORTERS.items())


def test_the_manifest_says_where_it_came_from(save, imported):
    source = save("x.json", dumped([mot_entry()]))
    operation = manifest(imported("mot-cascade", source, temperature=0.4))["operation"]
    assert operation["name"] == "import"
    assert operation["format"] == "mot-cascade"
    assert operation["source"]["file"] == "x.json"  # and no folder
    assert operation["source"]["bytes"] == source.stat().st_size
    assert len(operation["source"]["sha256"]) == 64


def test_reports_progress(save, tmp_path):
    source, seen = save("api.zip", archive(archive_members())), []
    import_recording(
        "feval-ttc",
        source,
        tmp_path / "r",
        dataset="gsm8k",
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def question_file(**changes):
    choices = [{"label": "A", "text": "two"}, {"label": "B", "text": "three"}]
    return lines(
        {"id": "toy/0", "question": "What is 1 + 1?", "answer": "A", "choices": choices, **changes}
    )


def test_a_questions_file_may_be_csv(save):
    table = save(
        "q.csv",
        b'question_id,question,answer,options\r\nq1,"One\nline, or two?",2,"[""one"",'
        b' ""two""]"\r\nq2,Why?,,\r\n',
    )
    first, second = read_questions(table, "toy", Reader())
    assert (first.id, first.text, first.gold) == ("q1", "One\nline, or two?", "2")
    assert first.choices == (("A", "one"), ("B", "two"))
    assert (second.id, second.text, second.gold, second.choices) == ("q2", "Why?", None, ())
    bare = save("bare.csv", b"problem,target\nWhat?,x\n\nWho?,y\n")
    assert [(q.id, q.text, q.gold) for q in read_questions(bare, "toy", Reader())] == [
        ("toy/0", "What?", "x"),
        ("toy/1", "Who?", "y"),
    ]
    with pytest.raises(
        SourceError, match=r"short\.csv is not readable as CSV: .* Expected 3 columns, got 2"
    ):
        read_questions(save("short.csv", b"question_id,question,answer\n1,x\n"), "toy", Reader())
    with pytest.raises(SourceError, match="has the column 'answer' twice"):
        read_questions(save("twice.csv", b"question,answer,answer,,\nx,1,2,,\n"), "toy", Reader())


def test_the_questions_file_adds_options(save, imported):
    entry = mot_entry(answer="(A)", results=["two", "(B)", None], question="Q: What  is 1 + 1?")
    recording = imported("mot-cascade", [entry], questions=question_file(), answer_kind="choice")
    question = recording.questions("toy")[0]
    assert (question.text, question.answer, question.answer_key) == (
        "Q: What  is 1 + 1?",
        "(A)",
        "A",
    )
    assert question.choices == (("A", "two"), ("B", "three"))
    check(recording, answer=["A", "B", None])


def test_the_questions_file_gives_texts_and_golds(save, imported):
    source = {"id": "toy/0", "text": "t", "answer": "A"}
    recording = imported("jsonl", source, questions=gzip.compress(question_file()))
    question = recording.questions("toy")[0]
    assert (question.text, question.answer) == ("What is 1 + 1?", "A")
    assert manifest(recording)["operation"]["questions"]["file"] == "q.jsonl"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (
            question_file(answer="B"),
            "two gold answers: '2' in the source and 'B' in the questions file",
        ),
        (question_file(answer=None, question="What is 2 + 2?"), "in the source and 'What is 2"),
        (question_file(id="toy/1"), r"has no question 'toy/0' \(its ids look like 'toy/1'\)"),
        (question_file() * 2, "two entries for the question id 'toy/0'"),
        (
            question_file() + question_file(answer="B"),
            "two gold answers for the question id 'toy/0'",
        ),
        (question_file(choices="AB"), "'choices' of line 1"),
        (b"[1]\n", "Row 1 of q.jsonl should be an object"),
        (b"{}\n", "has no 'question'; it has nothing"),
        (b"subject,index,answer\n", "has no questions"),
        (b"subject,index,answer\nx,0,\n", "Row 1 of q.jsonl should be subject, index and answer"),
        (b"", "is empty"),
    ],
)
def test_refuses_other_questions_files(imported, data, sentence):
    imported.refuses(sentence, "mot-cascade", [mot_entry()], questions=data)


READS_JSON = ["mot-cascade", "modelswitch", "probed-traces"]


@pytest.mark.parametrize("format_name", sorted(IMPORTERS))
@pytest.mark.parametrize("data", [b"", b"  \n", gzip.compress(b"", mtime=0)])
def test_refuses_an_empty_file(save, imported, format_name, data):
    imported.refuses(
        r"is empty|not a zip archive|not a Parquet file",
        format_name,
        save("x", data),
        questions=MMLU_KEY,
    )


@pytest.mark.parametrize("format_name", ["esc", "jsonl"])
def test_names_the_broken_line(save, imported, format_name):
    good = (
        COT
        if format_name == "jsonl"
        else {"question": "q", "answer": "a", "generated_answer": ["t"]}
    )
    data = b"".join(lines(good) for _ in range(16)) + b'{"question": "q"\n'
    imported.refuses(r"Line 17 of x is not valid JSON: .*column 17\b", format_name, save("x", data))


@pytest.mark.parametrize("format_name", READS_JSON)
@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"[" * 2000 + b"]" * 2000, "nested too deeply"),
        (b"[" * 200_000, "nested too deeply"),
        (b"[" + b"1" * 5000 + b"]", "number that cannot be read"),
        (b"{}", "should be a JSON array|has no 'question'"),
        (b"[]", "should be a JSON array|has no rows"),
        (b"[[]]", "should be an object; found a list of 0"),
        (b"\xff\xfe[\x00]\x00", "not UTF-8: byte 0"),
        (b'["\xed\xa0\x80"]', "not UTF-8: byte 2"),
    ],
)
def test_refuses_broken_documents(save, imported, format_name, data, sentence):
    imported.refuses(sentence, format_name, save("x", data))


def test_half_surrogate_pairs_are_replaced_and_noted(imported):
    entry = dumped(
        [
            mot_entry(
                generated=["half \ud800, pair \U0001f600", "b", "c"], results=["\udc00", None, "2"]
            )
        ]
    )
    assert b"\\ud800" in entry
    recording = imported("mot-cascade", entry)
    assert rows(recording)["text"][0] == "half \ufffd, pair \U0001f600"
    assert rows(recording)["answer"][0] == "\ufffd"
    assert "2 half surrogate pairs" in notes(recording)


def test_nan_and_infinity_are_no_answers(imported):
    data = dumped([mot_entry(results=[float("nan"), float("-inf"), 2])]).replace(
        b'"2"', b"1e999", 1
    )
    recording = imported("mot-cascade", data)
    check(recording, "3 values were NaN or infinite", answer=[None, None, "2"])
    assert recording.questions("toy")[0].answer is None


@pytest.mark.parametrize("format_name", ["mot-cascade", "jsonl"])
def test_a_byte_order_mark_is_left_out(imported, format_name):
    data = dumped([mot_entry()]) if format_name == "mot-cascade" else lines(COT)
    recording = imported(format_name, b"\xef\xbb\xbf" + data)
    assert "byte order mark" in notes(recording)


def test_refuses_gzip_that_is_cut_or_has_a_wrong_checksum(save, imported):
    whole = gzip.compress(dumped([mot_entry()]))
    for data in (
        whole[:5],
        whole[:12],
        whole[:40],
        whole[:-6] + bytes([whole[-6] ^ 1]) + whole[-5:],
    ):
        imported.refuses("is damaged", "mot-cascade", save("x.gz", data))


def test_a_bomb_is_refused_before_it_fills_the_memory(save, imported):
    source = save("x.gz", gzip.compress(bytes(128 << 20), compresslevel=9))
    tracemalloc.start()
    try:
        imported.refuses("expands to more than 200 times", "mot-cascade", source)
        assert tracemalloc.get_traced_memory()[1] < 80 << 20
    finally:
        tracemalloc.stop()


def test_refuses_more_bytes_than_the_limit(imported, monkeypatch):
    monkeypatch.setattr(reading, "MAX_EXPANDED_BYTES", 100)
    imported.refuses("expands to more than 100 bytes", "mot-cascade", [mot_entry()])


def test_a_file_name_that_is_no_text_is_written_with_replacements(tmp_path, imported):
    source = tmp_path / os.fsdecode(b"x\xff.zip")
    try:
        source.write_bytes(archive(archive_members()))
    except OSError:
        pytest.skip("this file system takes Unicode names only")
    recording = imported("feval-ttc", source)
    assert manifest(recording)["operation"]["source"]["file"] == "x\ufffd.zip"


def test_a_source_is_a_file(tmp_path, imported, save):
    imported.refuses("there is a folder", "mot-cascade", tmp_path)
    imported.refuses("there is nothing", "mot-cascade", tmp_path / "absent")
    imported.refuses("neither file nor folder", "mot-cascade", Path("/dev/null"))
    imported.refuses("could not be read", "mot-cascade", tmp_path / ("x" * 5000))
    link = tmp_path / "link.json"
    link.symlink_to(save("x.json", dumped([mot_entry()])))
    assert imported("mot-cascade", link).questions("toy")


def test_a_file_of_another_shape_gets_the_format_that_fits(imported):
    imported.refuses(
        r"It can be read as 'mot-cascade': name that format\.$", "modelswitch", [mot_entry()]
    )
    with pytest.raises(SourceError) as raised:
        imported("mot-cascade", b"{}")
    assert "can be read as" not in str(raised.value)


def test_json_of_brackets_is_refused_before_it_takes_thirty_times_its_size(monkeypatch):
    monkeypatch.setattr(reading, "BRACKETS_FREE", 1000)
    for brackets in (b"[" + b"[]," * 2000 + b"[]]", b"[" + b"{}," * 2000 + b"{}]"):
        with pytest.raises(SourceError, match=r"brackets in .* bytes, as no recording has"):
            reading.Reader().json(brackets, "x.json")
    assert len(reading.Reader().json(b"[" + b"[1,2]," * 2000 + b"[]]", "x.json")) == 2001


def test_a_questions_file_that_is_not_there_is_told_from_the_source(imported, tmp_path):
    for path, kind in ((tmp_path / "none.jsonl", "nothing"), (tmp_path, "a folder")):
        imported.refuses(
            rf"should be the questions file \(`questions`\); there is {kind}\. Check",
            "mot-cascade",
            [mot_entry()],
            questions=path,
        )
