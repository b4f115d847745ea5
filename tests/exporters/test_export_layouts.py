"""Exports for other tools: Every Eval Ever's records fit its schema."""

import hashlib
import json
import re

import pytest
from places import read_data
from small import pool, write_rows
from test_export import EXPORTED, LINES, TREE, TURNS, recorded

from feval.errors import NotRecordedError, UsageError
from feval.exporters import export_recording
from feval.recording import DatasetInfo, LLMInfo

CHOICE = EXPORTED["choice"]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("layouts"), LINES)


@pytest.mark.parametrize(
    "name",
    [
        "..",
        ".",
        "../../x",
        "/etc/x",
        "a\\..\\b",
        "C:x",
        "nul",
        "COM1.txt",
        "x.",
        "\u202etxt",
        "é" * 190,
        ".hidden",
        "~",
    ],
)
def test_no_name_leads_out_of_the_folder(name, tmp_path):
    toy = write_rows(
        tmp_path / "toy",
        ["a"],
        (LLMInfo(name), [pool(0, ["a", "b"])]),
        info=DatasetInfo(name, "Toy", "verbatim", "1"),
    )
    out = tmp_path / "deep" / "er" / "out"
    out.parent.mkdir(parents=True)
    done = export_recording(toy, out, "every-eval-ever")
    made = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_relative_to(toy)]
    assert len(made) == 2
    assert all(path.is_relative_to(done.path) for path in made)
    for part in (part for path in made for part in path.relative_to(out).parts):
        assert len(part.encode()) < 255
        assert not re.search(r'^\.|\.$|[<>:"|?*\\\u202e]|^(nul|com1)(\.|$)', part, re.IGNORECASE)


# What version 0.3.0 of the two schemas requires, written by hand: member -> its type, or the
# members of an object in it.
REQUIRED = read_data("exports.json")["what Every Eval Ever requires"]
TYPES = {"str": str, "int": int, "bool": bool, "list": list, "number": int | float}
ALLOWED = read_data("exports.json")["what Every Eval Ever allows beside"]
PLACE = (
    r"data/[^/]+/[^/]+/[^/]+/[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
)


def fits(value, schema):
    return all(
        fits(value[name], kind) if isinstance(kind, dict) else isinstance(value[name], TYPES[kind])
        for name, kind in schema.items()
    )


def check(record, name):
    """A record has what its schema requires, and nothing that it does not allow."""
    assert fits(record, REQUIRED[name])
    if name in ALLOWED:
        assert record.keys() <= {*REQUIRED[name], *ALLOWED[name]}


def test_every_eval_evers_records_fit_its_schema(toy, tmp_path):
    done = export_recording(toy, tmp_path / "out", "every-eval-ever")
    assert done.rows == 4
    for summary in sorted(done.path.rglob("*.json")):
        aggregate = json.loads(summary.read_text())
        samples = summary.with_name(f"{summary.stem}_samples.jsonl")
        lines = [json.loads(line) for line in samples.read_text().splitlines()]
        check(aggregate, "aggregate")
        for result in aggregate["evaluation_results"]:
            check(result, "result")
        for line in lines:
            check(line, "instance")
            for each in line["answer_attribution"]:
                check(each, "attribution")
        assert all(isinstance(value, str) for line in lines for value in line["metadata"].values())
        detailed = aggregate["detailed_evaluation_results"]
        assert done.path / detailed["file_path"] == samples
        assert re.fullmatch(PLACE + r"_samples\.jsonl", detailed["file_path"])
        assert (detailed["total_rows"], detailed["checksum"]) == (
            len(lines),
            hashlib.sha256(samples.read_bytes()).hexdigest(),
        )
        for name in ("evaluation_id", "schema_version"):
            assert {line[name] for line in lines} == {aggregate[name]}
        assert {line["model_id"] for line in lines} == {aggregate["model_info"]["id"]}
        assert aggregate["evaluation_results"][0]["score_details"]["score"] == 0.5


def test_every_eval_evers_lines_by_hand(tmp_path):
    done = export_recording(
        recorded(tmp_path, [CHOICE], kind="choice"), tmp_path / "out", "every-eval-ever"
    )
    [samples] = done.path.rglob("*_samples.jsonl")
    assert samples.relative_to(done.path).parts[:4] == ("data", "toy", "org", "m")
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    assert [line["evaluation"]["is_correct"] for line in lines] == [True, False, False]
    assert (
        lines[0]["input"].items() >= {"reference": ["B"], "choices": ["(A) one", "(B) two"]}.items()
    )
    assert lines[0]["output"] == {"raw": ["(B)"], "reasoning_trace": ["hm"]}
    assert lines[0]["token_usage"] == {
        "input_tokens": 4,
        "output_tokens": 3,
        "total_tokens": 7,
        "reasoning_tokens": 2,
    }
    assert lines[0]["metadata"] == {"sample": "0", "finish_reason": "unknown", "score.j": "0.25"}
    assert lines[2]["answer_attribution"] == []
    [aggregate] = (json.loads(path.read_text()) for path in done.path.rglob("*.json"))
    assert aggregate["evaluation_results"][0]["score_details"]["score"] == pytest.approx(1 / 3)
    assert aggregate["evaluation_results"][0]["generation_config"] == {
        "generation_args": {"temperature": 1.0, "top_p": 0.5},
        "additional_details": {"llm": "org/m@t=1", "stop": '["\\n"]'},
    }


@pytest.mark.parametrize(
    ("lines", "error", "message"),
    [
        (
            [TREE],
            UsageError,
            "m@steps was recorded on toy as trees of steps, which every-eval-ever has no place for",
        ),
        (
            TURNS,
            UsageError,
            "m@revise was recorded on toy as conversations of several turns, which every-eval-ever",
        ),
        (
            [LINES[0] | {"gold": None}],
            NotRecordedError,
            "No question of toy that a answered has a gold",
        ),
    ],
)
def test_what_has_no_place_is_said(tmp_path, lines, error, message):
    recording = recorded(tmp_path, lines)
    with pytest.raises(error, match=message):
        export_recording(recording, tmp_path / "out", "every-eval-ever")
    assert {path.name for path in tmp_path.iterdir()} == {"rec", "rec.jsonl"}
