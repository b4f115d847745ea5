"""Verdicts stay what they are through exports, merges, selections and new extractions, and what
cannot be one is refused.
"""

import json

import pytest
from command_line import said
from small import import_rows

from feval import load
from feval.errors import ConflictError, FevalError, SourceError, UsageError
from feval.exporters import export_recording
from feval.importers import import_recording
from feval.importers.layouts import Layout
from feval.recording import merge, open_recording

VERDICTS = {"small": [1, 0, 0.5, None, 1, 0], "large": [1, 1, 0.25, 0, None, 1]}


def rows_of(llm, **more):
    return [
        {"id": f"q{place // 2}", "question": f"t{place // 2}", "llm": llm, "sample": place % 2}
        | {"text": f"so: {place}", "answer": "ab"[place % 2], "tokens": 3, "grader": "pytest"}
        | ({} if verdict is None else {"verdict": verdict})
        | more
        for place, verdict in enumerate(VERDICTS[llm])
    ]


def recording_of(folder, rows, name="recording"):
    return import_rows(folder / name, rows, answer_kind="verbatim")


@pytest.fixture
def both(tmp_path):
    return recording_of(tmp_path, rows_of("small") + rows_of("large"), "both")


def right(*recordings, **options):
    """LLM -> question -> share of right CoTs."""
    dataset, _ = load("d", None, recordings, **options)
    shares = dataset.right_shares().items()
    return {llm: dict(zip(dataset.question_ids, own.tolist(), strict=True)) for llm, own in shares}


WANT = {"small": {"q0": 0.5, "q1": 0.25, "q2": 0.5}, "large": {"q0": 1.0, "q1": 0.125, "q2": 0.5}}


def through_table(recording, to):
    """Export a recording beside itself, and import the table."""
    table, back = recording.with_name(f"table.{to}"), recording.with_name("back")
    said("export", recording, "--to", to, "--out", table)
    kind = "jsonl" if to == "jsonl" else "table"
    # Parquet states them
    needs = "" if to == "parquet" else "--dataset d --answer-kind verbatim"
    said("import", kind, table, "--out", back, needs)
    return back


FEATURES = {"level": "2", "topic": "=1+1"}


@pytest.mark.parametrize(
    "more", [{}, {"score": 0.5}, {"answer": None}, {"gold": "a"}, {"features": FEATURES}]
)
@pytest.mark.parametrize("to", ["jsonl", "csv", "parquet"])
def test_verdicts_come_back_from_tables(tmp_path, to, more):
    recording = recording_of(tmp_path, rows_of("small", **more))
    back = through_table(recording, to)
    assert open_recording(back).hash == open_recording(recording).hash
    assert open_recording(back).graders("d", "small") == ["pytest"]
    features = [dict(each.features) for each in open_recording(back).questions("d")]
    assert features == 3 * [more.get("features", {})]


@pytest.mark.parametrize("to", ["jsonl", "csv", "parquet"])
def test_verdicts_of_several_graders_come_back_from_tables(tmp_path, to):
    judged = [row | ({} if row["sample"] else {"verdict": 0.25}) for row in rows_of("small")]
    parts = [rows_of("small"), [row | {"grader": "judge"} for row in judged], rows_of("large")]
    parts = [recording_of(tmp_path, own, f"part-{at}") for at, own in enumerate(parts)]
    recording = open_recording(merge(parts, tmp_path / "both"))
    back = through_table(recording.path, to)
    assert open_recording(back).hash == recording.hash
    assert {*open_recording(back).graders("d", "small")} == {"judge", "pytest"}
    with pytest.raises(UsageError, match=r"has one score, and small has verdicts of .* and "):
        export_recording(back, tmp_path / "eee", "every-eval-ever")
    one = export_recording(back, tmp_path / "eee", "every-eval-ever", llms=["large"])
    assert one.rows == len(VERDICTS["large"])


def test_every_eval_ever_has_verdicts_where_no_gold_is(both, tmp_path):
    said("export", both, "--to every-eval-ever --out", tmp_path / "eee", "--llm small")
    [lines] = (tmp_path / "eee").rglob("*.jsonl")
    found = [json.loads(line)["evaluation"] for line in lines.read_text().splitlines()]
    assert [each["score"] for each in found] == [1, 0, 0.5, 0, 1, 0]
    assert [each["is_correct"] for each in found] == [True, False, False, False, True, False]
    [summary] = (tmp_path / "eee").rglob("*.json")
    result = json.loads(summary.read_text())["evaluation_results"][0]
    assert result["score_details"]["score"] == pytest.approx(1.25 / 3)


def test_verdicts_are_merged_selected_and_extracted_again(both, tmp_path):
    small = recording_of(tmp_path, rows_of("small"), "small")
    large = recording_of(tmp_path, rows_of("large")[::-1], "large")
    other = recording_of(tmp_path, rows_of("large", grader="judge"), "other")
    named = recording_of(
        tmp_path,
        [row | {"score": {"pytest": 1}} | {"verdict": None} for row in rows_of("large")],
        "named",
    )
    assert right(both) == right(small, large) == right(large, small) == right(small, other) == WANT
    assert open_recording(merge([small, large], tmp_path / "m")).hash == open_recording(both).hash
    assert right(merge([small, other], tmp_path / "two")) == WANT
    with pytest.raises(ConflictError, match="Scorer pytest was added with two kinds"):
        merge([small, named], tmp_path / "none")
    (tmp_path / "ids").write_text("q2\nq0\n")
    said("select", both, "--llm large --questions-file", tmp_path / "ids", "--out", tmp_path / "s")
    assert right(tmp_path / "s") == {"large": {"q0": 1.0, "q2": 0.5}}
    said("select", both, "--samples 1 --out", tmp_path / "one")
    assert right(tmp_path / "one")["small"] == {"q0": 1.0, "q1": 0.5, "q2": 1.0}
    said("extract", both, "--answer-kind text --out", tmp_path / "again")
    assert right(tmp_path / "again") == WANT
    assert "is sound" in said("verify", tmp_path / "again")


@pytest.mark.parametrize("to", ["jsonl", "table"])
@pytest.mark.parametrize(
    ("verdict", "words"),
    [(1.5, "from 0 to 1"), (-0.1, "from 0 to 1"), ("right", "should be"), ("inf", "should be")],
)
def test_what_is_no_verdict_is_refused_with_its_row(tmp_path, verdict, words, to):
    row = {"id": "q", "question": "t", "llm": "m", "text": "so", "tokens": 3, "verdict": verdict}
    table = ",".join(row) + "\n" + ",".join(map(str, row.values()))
    source = tmp_path / "source"
    source.write_text(json.dumps(row) if to == "jsonl" else table)
    with pytest.raises(FevalError, match=rf"'verdict' of (line|row) 1 .*{words}"):
        import_recording(to, source, tmp_path / "out", dataset="d", answer_kind="verbatim")
    assert [*tmp_path.iterdir()] == [source]


NUMBERS = {
    **{f"{name}'": {name: "X"} for name in ("verdict", "score", "usd", "tokens", "prompt_tokens")},
    "'a' of": {"score": {"a": "X"}},
    "'level' of": {"features": {"level": "X"}},
    "Number 1 in": {"step_scores": [1, "X"]},
}


@pytest.mark.parametrize("to", ["jsonl", "table", "cells"])
@pytest.mark.parametrize("name", NUMBERS)
def test_nan_and_infinity_are_refused_where_a_number_should_be(tmp_path, to, name):
    """Also inside JSON that stands in a cell, and where verdicts are cut to [0, 1]."""
    row, source, layout = rows_of("small")[0] | NUMBERS[name], tmp_path / "source.jsonl", None
    for value in ("NaN", "-Infinity", "1e999"):
        line = json.dumps(row).replace('"X"', value)
        if to == "cells":
            layout = Layout(clip=True, columns={column: f"cell.{column}" for column in row})
            line = json.dumps({"cell": line})
        source.write_text(f"\n{line}")
        with pytest.raises(SourceError, match=rf"{name}.* of line 2 .*; found a number"):
            import_recording(
                "jsonl" if to == "jsonl" else "table", source, tmp_path / "out", dataset="d",
                answer_kind="text", layout=layout,
            )  # fmt: skip
        assert [*tmp_path.iterdir()] == [source]


@pytest.mark.parametrize("value", ["NaN", "Infinity"])
def test_nan_and_infinity_are_no_answers_and_noted(tmp_path, value):
    rows = [{**row, "mood": "X"} for row in rows_of("small")]
    rows[0]["answer"] = "X"
    source = tmp_path / "source.jsonl"
    source.write_text("".join(json.dumps(row).replace('"X"', value) + "\n" for row in rows))
    made = import_recording("jsonl", source, tmp_path / "out", dataset="d", answer_kind="verbatim")
    recording = open_recording(made)
    assert recording.votes("d").llms["small"].codes[0].tolist() == [-1, 0]
    assert "7 values were NaN or infinite" in " ".join(recording.manifest.raw["notes"])


def notes_of(folder, rows):
    return " ".join(open_recording(recording_of(folder, rows)).manifest.raw["notes"])


def test_notes_call_verdicts_what_they_are(tmp_path):
    noted = notes_of(tmp_path, rows_of("small", score=1))
    assert "CoTs of small without a verdict by pytest: 1." in noted
    assert "without a score" not in noted


@pytest.mark.parametrize("other", [{}, {"verdict": 0}, {"tokens": 4}, {"text": "other"}])
@pytest.mark.parametrize("text", ["", "so"])
def test_samples_of_one_text_are_greedy_where_nothing_differs(tmp_path, text, other):
    rows = [row | {"text": text, "verdict": 1} for row in rows_of("small")]
    rows[1] |= other
    assert ("decoding was greedy" in notes_of(tmp_path, rows)) == (text == "so" and not other)


@pytest.mark.parametrize("row", [1, 4], ids=["within a question", "midway"])
def test_one_grader_judges_an_llm(tmp_path, row):
    rows = rows_of("small")
    rows[row]["grader"] = "judge"
    with pytest.raises(ConflictError, match=r"Question 'q[02]' has verdicts of") as error:
        recording_of(tmp_path, rows)
    assert all(
        word in str(error.value) for word in ("judge", "pytest", "mport the verdicts of one")
    )
    assert [path.name for path in tmp_path.iterdir()] == ["recording.jsonl"]
