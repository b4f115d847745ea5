"""Importers of harness logs, of LINC and of the Game of 24: on files that the real tools wrote
(`tests/data`), on small ones.
"""

import gzip
import io
import json
import re
import zipfile
import zlib
from collections import Counter
from fractions import Fraction
from functools import cache, partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from foreign_sources import (
    PUZZLES,
    archive,
    details,
    details_row,
    dumped,
    game_entry,
    harness_line,
    inspect_archive,
    inspect_log,
    inspect_sample,
    lines,
)
from hypothesis import given, strategies as st
from importing import Columns, Import, check, manifest, notes, refusals, requests, rows
from places import DATA, read_data
from small import parquet

from feval.answers.thoughts import split
from feval.errors import SourceError, TokenCounterError, UnknownNameError, UsageError
from feval.importers import reading as archives
from feval.importers.papers import game24_answer as answer_of
from feval.importers.reading import Reader

READ = read_data("importers.json")

SAMPLES = "lm-eval/samples_tiny_sums_2026-11-21T19-33-23.832881.jsonl"
CUT_SAMPLES = "lm-eval/samples_tiny_sums_plain_2026-11-21T19-33-23.832881.jsonl"
TRANSFORMERS = "lighteval/details/tiny-42k/2026-11-21T19-48-17.584347/details_tiny_sums_2026-11-21T19-48-17.584347.parquet"  # noqa: E501
LITELLM = (
    "lighteval/details/openai/feval/tiny-42k/2026-11-21T19-49-05.542535/"
    "details_tiny_sums_2026-11-21T19-49-05.542535.parquet"
)
WRITTEN = {
    "lm-eval": ("lm-eval", SAMPLES),
    "lm-eval cut": ("lm-eval", CUT_SAMPLES),
    "inspect-ai archive": ("inspect-ai", "inspect-ai/tiny_sums.eval"),
    "inspect-ai JSON": ("inspect-ai", "inspect-ai/tiny_sums_cut.json.gz"),
    "lighteval transformers": ("lighteval", TRANSFORMERS),
    "lighteval litellm": ("lighteval", LITELLM),
}
QUESTIONS = [
    json.loads(line) for line in (DATA / "tiny_sums.jsonl").read_text("utf-8").splitlines()
]


def written(imported, name, **options):
    format_name, file = WRITTEN[name]
    return imported(
        format_name,
        DATA / file,
        **{"dataset": "tiny_sums", "llm": None, "answer_kind": None, **options},
    )


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """The recordings of what the tools wrote, each imported once."""
    return cache(partial(written, Import(tmp_path_factory.mktemp("logs"))))


def stated(file, *path):
    """A figure of the results that a tool wrote."""
    value = json.loads((DATA / file).read_text("utf-8"))
    for name in path:
        value = value[name]
    return float(value)


def test_the_harness_metric_is_the_accuracy_of_one_call(logs):
    results = "lm-eval/results_2026-11-21T19-33-23.832881.json"
    recording = logs("lm-eval")
    assert Columns(recording).mean_accuracy() == pytest.approx(
        stated(results, "results", "tiny_sums", "exact_match,every")
    )
    assert Columns(logs("lm-eval cut")).mean_accuracy() == stated(
        results, "results", "tiny_sums_plain", "exact_match,none"
    )


def test_the_metrics_of_inspect_are_the_accuracy_of_one_call(logs):
    with archives.opened_archive(DATA / WRITTEN["inspect-ai archive"][1]) as log:
        header = log.json("header.json", Reader())
    metric = header["results"]["scores"][0]["metrics"]["accuracy"]["value"]
    assert Columns(logs("inspect-ai archive")).mean_accuracy() == pytest.approx(metric)
    assert header["results"]["scores"][0]["name"] == "pattern"


@pytest.mark.parametrize(
    ("name", "model"), [("transformers", "tiny-42k"), ("litellm", "openai/feval/tiny-42k")]
)
def test_the_metrics_of_lighteval_are_accuracy_and_majority(logs, name, model):
    date = (
        (TRANSFORMERS if name == "transformers" else LITELLM)
        .rpartition("_")[2]
        .removesuffix(".parquet")
    )
    results = f"lighteval/results/{model}/results_{date}.json"
    recording = logs(f"lighteval {name}")
    assert Columns(recording).mean_accuracy() == pytest.approx(
        stated(results, "results", "tiny_sums|0", "avg@3")
    )
    assert Columns(recording).prefix_votes(3) / 4 == stated(
        results, "results", "tiny_sums|0", "maj@3"
    )


@pytest.mark.parametrize(
    ("name", "llm", "temperature", "limit", "counter", "shape"), READ["who was asked"]
)
def test_the_logs_say_who_was_asked_and_how(logs, name, llm, temperature, limit, counter, shape):
    recording = logs(name)
    stated = manifest(recording)
    check(recording, llms=[llm])
    assert (stated["llms"][0]["temperature"], stated["llms"][0]["max_tokens"]) == (
        temperature,
        limit,
    )
    assert stated["pairs"][0]["counter"] == counter
    questions = recording.questions("tiny_sums")
    assert [(q.text, q.answer) for q in questions] == [
        (q["question"], q["answer"]) for q in QUESTIONS[: shape[0]]
    ]
    assert Counter(rows(recording)["question_id"]) == {
        question.id: shape[1] for question in questions
    }


def test_finish_reasons_and_tokens_of_inspect_are_kept(logs):
    whole, cut = logs("inspect-ai archive"), logs("inspect-ai JSON")
    assert set(rows(whole)["finish_reason"]) == {"stop"}
    assert set(rows(cut)["finish_reason"]) == {"length"}
    assert rows(cut)["output_tokens"] == [8] * 6
    # its scorer found none, though the cut texts hold numbers
    assert rows(cut)["answer"] == [None] * 6
    assert "are the same text: the decoding was greedy" in notes(cut)
    with archives.opened_archive(DATA / WRITTEN["inspect-ai archive"][1]) as log:
        usage = log.json("header.json", Reader())["stats"]["model_usage"][
            "openai-api/local/feval/tiny-42k"
        ]
    assert sum(rows(whole)["output_tokens"]) == usage["output_tokens"]
    sent = requests(whole)["prompt_tokens"]
    assert 3 * sum(sent) == usage["input_tokens"]


def test_padding_is_not_counted(logs):
    recording = logs("lighteval transformers")
    words = [text.split() for text in rows(recording)["text"]]
    stored = pq.read_table(DATA / TRANSFORMERS).to_pylist()
    ids = {row["doc"]["id"]: row["model_response"]["output_tokens"] for row in stored}
    unpadded = [
        len(bytes(i % 256 for i in sample).rstrip(b"\4")) + (sample[-1] == 4)
        for q in "0123"
        for sample in ids[q]
    ]
    assert rows(recording)["output_tokens"] == unpadded
    assert sum(unpadded) < sum(len(sample) for rows_ in ids.values() for sample in rows_)
    assert all(words)
    assert "filled up with their end token" in notes(recording)


def test_requests_to_chat_endpoints_are_messages(logs):
    for name in ("lm-eval", "lighteval litellm", "inspect-ai archive"):
        recording = logs(name)
        sent = requests(recording)
        assert json.loads(sent["prompt"][0]) == [
            {"role": "user", "content": QUESTIONS[0]["question"]}
        ]


def test_files_read_beside_a_source_stand_in_the_manifest(logs):
    for name, beside in [("lm-eval", 1), ("lighteval litellm", 1)]:
        operation = manifest(logs(name))["operation"]
        assert [file["file"][:8] for file in operation["beside"]] == ["results_"] * beside
    assert "beside" not in manifest(logs("inspect-ai archive"))["operation"]


def test_a_name_given_by_the_user_wins(imported):
    check(
        written(imported, "inspect-ai archive", llm="feval/tiny-42k@t=1"),
        llms=["feval/tiny-42k@t=1"],
    )
    with pytest.raises(UnknownNameError, match="There is no LLM in"):
        written(imported, "lm-eval", llm=["a", "b"])
    with pytest.raises(SourceError, match=r"says temperature 1\.0, and 0\.5 was given"):
        written(imported, "lm-eval", temperature=0.5)
    with pytest.raises(SourceError, match="says max_tokens 48, and 9 was given"):
        written(imported, "inspect-ai archive", max_tokens=9)


@pytest.mark.parametrize("name", ["lm-eval", "lighteval transformers"])
def test_without_results_beside_it_the_user_names_the_llm(save, imported, name):
    format_name, file = WRITTEN[name]
    source = save("elsewhere/" + Path(file).name, (DATA / file).read_bytes())
    imported.refuses(
        "pass its name, llm='NAME'",
        format_name,
        source,
        error=UsageError,
        llm=None,
        answer_kind="number",
    )
    check(imported(format_name, source, answer_kind="number"), llms=["toy-llm"])


def test_a_wrong_format_is_told_the_right_one(imported):
    imported.refuses("It can be read as 'lm-eval': name that format", "esc", DATA / SAMPLES)
    imported.refuses(
        "It can be read as 'inspect-ai'", "feval-ttc", DATA / "inspect-ai/tiny_sums.eval"
    )
    imported.refuses("It can be read as 'lighteval'", "lm-eval", DATA / LITELLM)


def test_reads_the_filter_that_keeps_every_repeat(imported):
    first = [harness_line(filter="first", filtered_resps=["2"], doc_id=n) for n in (1, 0)]
    every = [harness_line(doc_id=n) for n in (1, 0)]
    recording = imported("lm-eval", [*first, *every])
    check(
        recording,
        "those of the filter 'every'; the filters are 'first', 'every'",
        answer=["2", "3", None] * 2,
        ids=["toy/0", "toy/1"],
    )
    assert manifest(recording)["llms"][0]["temperature"] == 0.7
    assert (
        requests(recording)["prompt"][0] == '[{"role":"user","content":"Q: What is 1 + 1?\\nA:"}]'
    )


def test_a_filter_that_keeps_the_texts_extracts_nothing(imported):
    line = harness_line(filter="none", resps=[["It is 2."]], filtered_resps=["It is 2."])
    check(imported("lm-eval", line, answer_kind="number"), answer_raw=["2"])
    imported.refuses("Verbatim answers are the stored ones", "lm-eval", line, error=UsageError)


def test_worked_solutions_lists_and_options_become_golds(imported):
    options = {"text": ["two", "three"], "label": ["A", "B"]}
    source = [
        harness_line(target="1 + 1 = <<1+1=2>>2\n#### 2"),
        harness_line(doc_id=1, target=["2", "two"], doc={"problem": "1 + 1?", "choices": options}),
        harness_line(doc_id=2, target=2, doc={"choices": ["two", "three"]}),
        harness_line(doc_id=3, target="A", doc={"question": "?", "choices": ["A", "B"]}),
    ]
    recording = imported("lm-eval", source)
    questions = recording.questions("toy")
    assert [question.answer for question in questions] == ["2", "2", "2", "A"]
    assert [question.text for question in questions] == [
        "What is 1 + 1?",
        "1 + 1?",
        "Q: What is 1 + 1?\nA:",
        "?",
    ]
    assert [question.choices for question in questions] == [(), (("A", "two"), ("B",
        "three"))] * 1 + [
        (("A", "two"), ("B", "three")), (),
    ]  # fmt: skip
    check(
        recording,
        "several accepted answers, whose first is the gold answer: 1.",
        "worked solution, with the gold answer behind '####': 1.",
    )


def test_the_order_before_chat_requests_is_read(imported):
    arguments = [["Q: ?", {"do_sample": False, "until": ["\n"], "deep": [[]]}]]
    recording = imported("lm-eval", harness_line(arguments=arguments, resps=[["It is 2."] * 3]))
    stated = manifest(recording)["llms"][0]
    assert (stated["temperature"], stated["decoding"]) == (
        0.0,
        {"do_sample": False, "until": ["\n"]},
    )
    assert "one seed was sent" in notes(recording)  # the repeats are equal


def test_results_beside_the_samples_say_more(save, imported):
    source = save("samples_toy_2026-01-02T03-04-05.678.jsonl", lines(harness_line()))
    results = {
        "model_name": "org/m",
        "system_instruction": "Be brief.",
        "n-samples": {"toy": {"original": 9, "effective": 1}},
    }
    save("results_2026-01-02T03-04-05.678.json", dumped(results))
    recording = imported("lm-eval", source, llm=None)
    check(recording, "asked 1 of the task's 9 questions", llms=["org/m"])
    assert manifest(recording)["datasets"][0]["system_prompt"] == "Be brief."
    save("results_2026-01-02T03-04-05.678.json", b"[1]")
    imported.refuses(
        r"results_2026-01-02T03-04-05\.678\.json should be an object", "lm-eval", source
    )


test_refuses_other_samples = refusals(
    "lm-eval",
    READ["lm-eval samples"],
    lambda changed: [harness_line(), harness_line(**{"doc_id": 1, **changed})],
)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20).filter(
    lambda text: not split(text + " .").marks
)


def test_reads_a_log_and_its_archive_alike(imported):
    log = inspect_log(inspect_sample(epoch=2), inspect_sample(id=2), inspect_sample())
    plain = imported("inspect-ai", log, llm=None)
    for packed in (inspect_archive(log), gzip.compress(dumped(log))):
        assert imported("inspect-ai", packed, llm=None).hash == plain.hash
    check(
        plain,
        llms=["openai/gpt-4o"],
        ids=["1", "2"],
        question_id=["1", "1", "2"],
        answer=["2"] * 3,
        output_tokens=[5] * 3,
        finish_reason=["stop"] * 3,
    )
    sent = requests(plain)
    assert sent["prompt_tokens"] == [12, 12]  # 3 of them from the provider's cache
    assert [message["role"] for message in json.loads(sent["prompt"][0])] == ["system", "user"]
    stated = manifest(plain)["llms"][0]
    assert (stated["temperature"], stated["max_tokens"], stated["decoding"]) == (
        0.5,
        100,
        {"top_p": 0.9},
    )
    assert "The pools of openai/gpt-4o are ragged: 1 to 2 samples" in notes(plain)


def test_a_failed_sample_is_no_answer(imported):
    failed = inspect_sample(
        epoch=2, output={"choices": []}, error={"message": "boom"}, messages=[], scores=None
    )
    partly = inspect_sample(epoch=3, error={"message": "boom"})
    source = inspect_log(inspect_sample(), failed, partly, status="error")
    recording = imported("inspect-ai", source)
    check(
        recording,
        "and the finish reason 'error': 2.",
        "did not end well (status 'error')",
        answer=["2", None, None],
        finish_reason=["stop", "error", "error"],
        output_tokens=[5, 0, 5],
    )


def test_the_first_scorer_that_extracts_gives_the_answers(imported):
    scores = {
        "includes": {"value": "C", "answer": "IT IS 2."},
        "number": {"value": "C", "answer": "2"},
    }
    recording = imported("inspect-ai", inspect_log(inspect_sample(scores=scores)))
    check(
        recording,
        "those of the scorer 'number'; the scorers are 'includes', 'number'",
        answer=["2"],
    )
    only = inspect_log(inspect_sample(scores={"includes": scores["includes"]}))
    again = imported("inspect-ai", only, answer_kind="number")
    check(
        again, "None of the scorers ('includes') says which answer it extracted", answer_raw=["2"]
    )


def test_several_calls_and_choices_are_told_apart(imported):
    talk = [
        *inspect_sample()["messages"],
        {"role": "user", "content": "Sure?"},
        {"role": "assistant", "content": "Yes: 2."},
    ]
    usage = {"openai/gpt-4o": {"input_tokens": 30, "output_tokens": 11}}
    several = inspect_sample(messages=talk, model_usage=usage)
    recording = imported("inspect-ai", inspect_log(several))
    check(recording, "the tokens of all: 1.", output_tokens=[11])
    output = inspect_sample()["output"]
    parts = [
        [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": f"It is {n}."}]
        for n in (2, 3)
    ]
    output["choices"] = [
        {"message": {"role": "assistant", "content": content}} for content in parts
    ]
    both = imported("inspect-ai", inspect_log(inspect_sample(output=output)), answer_kind="number")
    check(both, "each of them a CoT: 1.", text=["It is 2.", "It is 3."], answer=["2", "3"])
    assert [pool.reasoning for pool in both.pools("toy", both.llm_names("toy")[0])] == [
        ["hm", "hm"]
    ]
    assert manifest(both)["pairs"][0]["counter"] == "words"  # usage is of both together


def test_attachments_options_and_conversations_are_resolved(imported):
    talk = [{"role": "user", "content": "attachment://a1"}]
    sent = inspect_sample(
        input=talk,
        messages=talk,
        attachments={"a1": "A long question?"},
        choices=["two", "three"],
        target=["A", "B"],
    )
    recording = imported("inspect-ai", inspect_log(sent))
    (question,) = recording.questions("toy")
    assert (question.text, question.answer, question.choices) == (
        "A long question?",
        "A",
        (("A", "two"), ("B", "three")),
    )
    assert json.loads(requests(recording)["prompt"][0]) == [
        {"role": "user", "content": "A long question?"}
    ]
    assert "several accepted answers, whose first is the gold answer: 1." in notes(recording)


def with_usage(usage):
    return inspect_log(inspect_sample(output=inspect_sample()["output"] | {"usage": usage}))


def without_member(log, name):
    return {key: value for key, value in log.items() if key != name}


test_refuses_other_logs = refusals(
    "inspect-ai",
    [
        (inspect_log(version=3), "format version 3; feval reads up to 2"),
        (without_member(inspect_log(), "version"), "x.json has no 'version'"),
        (inspect_log(samples=[]), "has no samples"),
        (inspect_log(samples=[1]), "sample 0 of x.json should be an object"),
        (inspect_log(without_member(inspect_sample(), "id")), "sample 0 of x.json has no 'id'"),
        (inspect_log(inspect_sample(input=[])), "no user message"),
        (inspect_log(inspect_sample(), inspect_sample()), "is epoch 1 of sample '1' a second time"),
        (
            inspect_log(inspect_sample(), inspect_sample(epoch=2, input="Other?")),
            "different questions, targets",
        ),
        (
            inspect_log(inspect_sample(), inspect_sample(epoch=2, target="3")),
            "with target '2' before",
        ),
        (
            inspect_log(inspect_sample(output={"choices": [{}]})),
            "a choice of sample 0 of x.json has no 'message'",
        ),
        (inspect_log(inspect_sample(scores={"a": {"answer": 2}})), "The answer of scorer 'a'"),
        (with_usage({"input_tokens": 3}), "has no 'output_tokens'"),
        (with_usage({"output_tokens": 3, "input_tokens": "3"}), "whole numbers"),
        (
            inspect_log(plan={"config": {"max_tokens": 0}}),
            "'max_tokens' of sample 0 of x.json should be a whole number from 1",
        ),
    ],
)


def test_usage_must_be_there_to_be_taken(imported):
    source = with_usage(None)
    assert manifest(imported("inspect-ai", source))["pairs"][0]["counter"] == "words"
    imported.refuses(
        "this inspect-ai source has none",
        "inspect-ai",
        source,
        error=TokenCounterError,
        counter="usage",
    )
    with pytest.raises(UsageError, match="pass its name, llm='NAME'"):
        nameless = inspect_log() | {"eval": {"model": None}}
        imported("inspect-ai", nameless, llm=None)


def test_an_unfinished_archive_is_read_by_its_journal(imported):
    log = inspect_log()
    start = {name: log[name] for name in ("version", "eval", "plan")}
    members = [("_journal/start.json", start), ("samples/1_epoch_1.json", inspect_sample())]
    recording = imported("inspect-ai", archive(members), llm=None)
    assert "only the samples that it finished" in notes(recording)
    imported.refuses(r"has no member 'header\.json'", "inspect-ai", archive(members[1:]))


def zstandard_archive(members, **spoilt):
    """A zip as inspect-ai writes it: method 93, which Python's own writer does not know before
    3.14.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, data in members.items():
            file.writestr(name, pa.compress(data, "zstd", asbytes=True))
            stated = {"compress_type": 93, "file_size": len(data), "CRC": zlib.crc32(data)}
            for field, value in (stated | spoilt).items():
                setattr(file.getinfo(name), field, value)
    return buffer.getvalue()


def zstandard_members():
    log = inspect_log()
    members = {
        "header.json": dumped({name: value for name, value in log.items() if name != "samples"})
    }
    return members | {
        f"samples/1_epoch_{number}.json": dumped(inspect_sample(epoch=number)) for number in (1, 2)
    }


def test_zstandard_archives_are_read_and_checked(imported):
    good = imported("inspect-ai", zstandard_archive(zstandard_members()))
    assert good.hash == imported("inspect-ai", inspect_archive(inspect_log())).hash
    for spoilt in (
        zstandard_archive(zstandard_members(), CRC=1),
        zstandard_archive(zstandard_members(), file_size=5),
    ):
        imported.refuses("Bad CRC-32 or size", "inspect-ai", spoilt)
    broken = bytearray(zstandard_archive(zstandard_members()))
    place = broken.index(b"\x28\xb5\x2f\xfd")
    broken[place : place + 4] = b"nope"
    imported.refuses("not a zip archive, or is damaged", "inspect-ai", bytes(broken))


def test_bombs_in_archives_are_refused(imported, monkeypatch):
    bomb = zstandard_members() | {"samples/9_epoch_1.json": b'"' + b" " * (20 << 20) + b'"'}
    imported.refuses("expands to more than 200 times", "inspect-ai", zstandard_archive(bomb))
    monkeypatch.setattr(archives, "MAX_EXPANDED_BYTES", 700)  # many members, each within the bounds
    imported.refuses(
        r"expand to .* bytes; at most 700 are read", "inspect-ai", inspect_archive(inspect_log())
    )


@pytest.mark.parametrize(
    "name", ["../samples/1.json", "/samples/1.json", "samples\\1.json", "C:/1.json"]
)
def test_members_outside_of_a_log_are_refused(save, imported, name):
    data = inspect_archive(inspect_log())
    source = save("x.eval", data)
    with zipfile.ZipFile(source, "a") as file:
        file.writestr(name.replace("\\", "|"), b"{}")
    source.write_bytes(source.read_bytes().replace(b"samples|1", b"samples\\1"))
    imported.refuses("points outside of it", "inspect-ai", source)


def test_reads_details(imported):
    second = details_row(id="1", choices=["two", "three"], gold_index=1, query="Which?")
    source = details(second, details_row())
    recording = imported("lighteval", source)
    questions = recording.questions("toy")
    assert [(q.id, q.answer, q.choices) for q in questions] == [
        ("toy/0", "2", ()), ("toy/1", "B", (("A", "two"), ("B", "three"))),
    ]  # fmt: skip
    check(recording, output_tokens=[2, 3] * 2, prompt_tokens=[2, 2])
    assert rows(recording)["answer"][:2] == ["2", "3"]


def test_golds_may_be_labels_or_several(imported):
    letters = details_row(choices=[" A", " B"], gold_index=1)
    ways = details_row(id="1", choices=["1/2", "0.5"], gold_index=0)
    recording = imported("lighteval", details(letters, ways))
    assert [(q.answer, q.choices) for q in recording.questions("toy")] == [
        ("B", ()), ("A", (("A", "1/2"), ("B", "0.5"))),
    ]  # fmt: skip
    several = details_row(choices=["1/2", "0.5"], gold_index=[0, 1])
    again = imported("lighteval", details(several))
    check(
        again,
        "several accepted answers, whose first is the gold answer: 1.",
        golds=["1/2"],
        choices=[()],
    )


test_refuses_other_details = refusals(
    "lighteval",
    READ["lighteval details"],
    lambda each: details(*(details_row(**changes) for changes in each)),
)


def test_refuses_details_of_another_version(imported):
    older = parquet({"example": ["?"], "predictions": ["2"], "gold": ["2"]})
    imported.refuses(
        r"no column doc and no model_response.*its columns are example, predictions, gold",
        "lighteval",
        older,
    )
    empty = pq.read_table(io.BytesIO(details())).slice(0, 0)
    imported.refuses("has no questions", "lighteval", parquet(empty))
    imported.refuses("damaged Parquet file", "lighteval", details()[:-20])
    other = {"query": "?", "choices": ["2"], "gold_index": 0}, {"logprobs": [1.0]}
    imported.refuses("model_response", "lighteval", details(other))


def test_parquet_bombs_are_refused(imported):
    doc, response = details_row(text=["x" * (3 << 20)], output_tokens=[])
    many = parquet([{"doc": doc | {"id": str(n)}, "model_response": response} for n in range(100)])
    assert len(many) < 1 << 20  # one text of 3 MiB, which a dictionary holds once
    imported.refuses("no recording compresses so well", "lighteval", many)


def linc_run(save, **parts):
    for part, value in parts.items():
        save(f"m_folio-cot-1shot_{part}.json", dumped(value))
    return save(
        "m_folio-cot-1shot_generations_prc.json",
        dumped([["True", "Error"], ["Uncertain", "Uncertain"]]),
    )


RESULTS = {"folio-cot-1shot": {"accuracy (pass@1 majority)": 0.5}, "config": {"model": "m"}}


def test_reads_a_linc_run_with_what_lies_beside_it(save, imported):
    texts = [["ANSWER: True", "hm"], ["a", "b"]]
    source = linc_run(save, references=["True", "False"], generations_raw=texts, results=RESULTS)
    recording = imported("linc", source, llm=None)
    llm = "m@folio-cot-1shot"
    check(
        recording,
        "Labels 'Error', which were read as no answer: 1.",
        llm=llm,
        llms=[llm],
        golds=["True", "False"],
        answer=["True", None, "Uncertain", "Uncertain"],
        text=["ANSWER: True", "hm", "a", "b"],
    )
    assert len(manifest(recording)["operation"]["beside"]) == 3


def test_labels_stand_for_texts_that_linc_does_not_store(save, imported):
    questions = lines(
        {"question": "Is it?", "answer": "True"}, {"question": "Was it?", "answer": "False"}
    )
    source = linc_run(save)
    recording = imported("linc", source, questions=questions)
    check(
        recording,
        "each label stands for its text",
        text=["True", "Error", "Uncertain", "Uncertain"],
        questions=["Is it?", "Was it?"],
        golds=["True", "False"],
    )
    imported.refuses("llm='NAME'", "linc", source, error=UsageError, llm=None)


@pytest.mark.parametrize(("parts", "sentence"), READ["linc files"])
def test_refuses_linc_files_of_different_runs(save, imported, parts, sentence):
    imported.refuses(sentence, "linc", linc_run(save, **parts))


@pytest.mark.parametrize("value", [[["Maybe"]], [["True", 1]], [1], [], {}])
def test_refuses_other_labels(save, imported, value):
    imported.refuses(r"should be", "linc", save("x_generations_prc.json", dumped(value)))


@pytest.mark.parametrize(
    ("text", "answer"), [*READ["expressions"], ("(" * 100_000 + "4 + 5 + 6 + 10", None)]
)
def test_the_answer_is_what_the_expression_comes_to(text, answer):
    assert answer_of(text, ["4", "5", "6", "10"]) == answer


EXPRESSIONS = st.recursive(
    st.integers(1, 13).map(str),
    lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(
        lambda part: f"({part[0]} {part[1]} {part[2]})"
    ),
    max_leaves=6,
)


@given(expression=EXPRESSIONS)
def test_expressions_are_computed_as_python_computes_them(expression):
    numbers = re.findall(r"\d+", expression)
    try:
        value = evaluated(expression)
    except ZeroDivisionError:
        assert answer_of(f"Answer: {expression} = 24", numbers) is None
    else:
        assert answer_of(f"Answer: {expression} = 24", numbers) == str(value)


def evaluated(expression):
    """By Python itself."""
    exact = re.sub(r"(\d+)", r"Fraction(\1)", expression)
    return eval(exact, {"Fraction": Fraction})  # noqa: S307  (made up above)


def test_reads_a_log_of_the_game(save, imported):
    source = [game_entry(), game_entry(idx=1, ys=["Answer: 6 * 4 * 1 * 1"] * 3, accs=[True] * 3)]
    recording = imported("game24", source, questions=PUZZLES)
    assert [(q.id, q.text, q.answer) for q in recording.questions("toy")] == [
        ("toy/0", "4 5 6 10", "24"), ("toy/1", "1 1 4 6", "24"),
    ]  # fmt: skip
    check(
        recording,
        "Samples without an answer, as they do not end in an expression that uses each number"
        " once: 1.",
        "30 completion and 10 prompt tokens",
        answer=["24", "25", None, "24", "24", "24"],
    )
    assert "exact arithmetic" not in notes(recording)
    stated = [{"r": 0}, {"r": 1}, {"r": 0}]
    entry = {key: value for key, value in game_entry(infos=stated).items() if key != "accs"}
    other = imported("game24", [entry], questions=PUZZLES)
    assert "the authors' verdict differs from exact arithmetic, which was taken: 2." in notes(other)


test_refuses_other_games = refusals(
    "game24", READ["games"], lambda changes: [game_entry(**changes)], questions=PUZZLES
)


def test_the_game_needs_its_puzzles(save, imported):
    source = [game_entry()]
    imported.refuses(r"pass 24\.csv, questions='FILE'", "game24", source, error=UsageError)
    imported.refuses(
        r"Row 1 of q.jsonl should have numbers under Puzzles",
        "game24",
        source,
        questions=b"Rank,Puzzles\n1,four\n",
    )
    for entry, sentence in (({"idx": 0, "ys": []}, "has no 'infos'"), ([], "should be an object")):
        imported.refuses(sentence, "game24", [entry], questions=PUZZLES)


def thoughts(recording):
    ((pool,),) = [list(recording.pools("toy", llm)) for llm in recording.llm_names("toy")]
    return None if pool.reasoning is None else list(pool.reasoning)


@pytest.mark.parametrize(("part", "expected"), READ["reasoning of inspect"])
def test_the_reasoning_of_inspect_is_kept(imported, part, expected):
    output = inspect_sample()["output"]
    said = {"role": "assistant", "content": [part, {"type": "text", "text": "It is 2."}]}
    output["choices"] = [{"message": said, "stop_reason": "stop"}]
    sample = inspect_sample(output=output, attachments={"a1": "Long thoughts."})
    recording = imported("inspect-ai", inspect_log(sample))
    assert thoughts(recording) == ([expected] if expected else None)
    check(recording, text=["It is 2."])


def test_the_reasonings_of_lighteval_are_kept(tmp_path, imported):
    path = tmp_path / "details.parquet"
    path.write_bytes(details(details_row(reasonings=["hm", None])))
    assert thoughts(imported("lighteval", path)) == ["hm", None]
