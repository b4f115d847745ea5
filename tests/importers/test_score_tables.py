"""Scores of a table join the CoTs by question, LLM and sample number, and what does not fit is
said.
"""

import numpy as np
import pandas as pd
import pytest
from command_line import feval
from importing import as_csv
from places import read_data
from small import import_rows, letters, parquet, write_lines, write_toy

from feval import evaluate, load
from feval.errors import FevalError, SourceError
from feval.exporters import export_recording
from feval.importers.scores import import_scores
from feval.methods import METHODS
from feval.recording import merge, open_recording, verify_recording

POOLS = {"alpha": letters("44-", "7"), "org/beta": [["4"], ["9", "5"]]}
KEYS = [("toy/0", "alpha", 0), ("toy/0", "alpha", 1), ("toy/0", "alpha", 2), ("toy/1", "alpha", 0),
        ("toy/0", "org/beta", 0), ("toy/1", "org/beta", 0), ("toy/1", "org/beta", 1)]  # fmt: skip
NAN = float("nan")


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return write_toy(tmp_path_factory.mktemp("scored") / "toy", POOLS, ["4", "5"])


@pytest.fixture
def scored(toy, tmp_path):
    """Import the scores of a table, written as a file."""

    def run(table, file="t.csv", out="out", **options):
        return import_scores(toy, written(tmp_path / file, table), tmp_path / out, **options)

    return run


def rows(**columns):
    size = len(next(iter(columns.values())))
    keys = [dict(zip(("question_id", "llm", "sample"), key, strict=True)) for key in KEYS[:size]]
    return [
        key | {name: values[row] for name, values in columns.items()}
        for row, key in enumerate(keys)
    ]


def written(path, table):
    if path.suffix == ".jsonl":
        return write_lines(path, table)
    path.write_bytes(parquet(table) if path.suffix == ".parquet" else as_csv(table))
    return path


def values(recording, llm, scorer):
    return open_recording(recording).scores("toy", llm, scorer).values.tolist()


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_scores_and_step_scores_of_every_kind_of_file(toy, tmp_path, suffix):
    numbers, steps = (
        [0.5, -1, 2.25, 1e-3, 7, 0.1, 0.2],
        [[0.5, 0.25], None, [1.0], [2.0, 3.0, 4.0], None, [0.0], None],
    )
    table = written(
        tmp_path / f"t.{suffix}", rows(judge=list(map(float, numbers)), steps=steps)[::-1]
    )
    done = import_scores(toy, table, tmp_path / "out", scores=["j=judge", "prm=steps"])
    assert (done.scorers, done.rows, done.scored) == (("j", "prm"), 7, {"j": 7, "prm": 4})
    assert done.notes == (
        f"3 of 7 CoTs have no score by prm: their cells in t.{suffix} are empty or NaN.",
    )
    np.testing.assert_array_equal(
        values(tmp_path / "out", "alpha", "j"), [[0.5, -1, 2.25], [1e-3, NAN, NAN]]
    )
    np.testing.assert_array_equal(values(tmp_path / "out", "org/beta", "j"), [[7, NAN], [0.1, 0.2]])
    prm = open_recording(tmp_path / "out").scores("toy", "alpha", "prm")
    assert (
        prm.steps.of(0, 0).tolist(),
        prm.steps.of(0, 1).tolist(),
        prm.steps.of(1, 0).tolist(),
    ) == ([0.5, 0.25], [], [2, 3, 4])
    assert verify_recording(tmp_path / "out").problems == ()
    assert (
        open_recording(tmp_path / "out").manifest.raw["operation"]["source"]["file"] == table.name
    )


def test_two_equal_texts_with_different_scores_keep_their_own(tmp_path):
    same = {"text": "The answer.", "tokens": 3}
    line = {
        "id": "q",
        "question": "?",
        "gold": "2",
        "samples": [{**same, "answer": "1"}, {**same, "answer": "2"}],
    }
    # two equal questions, too
    import_rows(tmp_path / "rec", [line, {**line, "id": "r"}], llm="m", answer_kind="number")
    scores = pd.DataFrame(
        {"question_id": ["r", "q", "q", "r"], "sample": [1, 0, 1, 0], "score": [0.1, 0.2, 0.9, 0.8]}
    )
    scores.to_csv(tmp_path / "s.csv", index=False)
    done = import_scores(tmp_path / "rec", tmp_path / "s.csv", tmp_path / "out")
    recorded = open_recording(tmp_path / "out").scores("d", "m", "score").values
    assert (done.notes, recorded.tolist()) == ((), [[0.2, 0.9], [0.8, 0.1]])
    dataset, [llm] = load("d", ["m"], tmp_path / "out")
    assert evaluate(METHODS["best-of-n"](n=2, aggregate="score"), dataset, llm).right.tolist() == [
        1.0,
        0.0,
    ]


@pytest.mark.parametrize("to", ["csv", "parquet"])
def test_an_exported_table_with_scores_of_ones_own_comes_back(toy, tmp_path, to):
    exported = export_recording(toy, tmp_path / f"cots.{to}", to).path
    table = pd.read_csv(exported) if to == "csv" else pd.read_parquet(exported)
    table["score.words"] = table["text"].str.split().str.len()
    table = table.sample(frac=1, random_state=0)
    scored = tmp_path / f"scored.{to}"
    table.to_csv(scored, index=False) if to == "csv" else table.to_parquet(scored)
    assert import_scores(toy, scored, tmp_path / "out").scored == {"words": 7}
    again = export_recording(tmp_path / "out", tmp_path / "again.parquet", "parquet").path
    assert (
        pd.read_parquet(again)["score.words"]
        == pd.read_parquet(again)["text"].str.split().str.len()
    ).all()


def test_a_table_that_seems_to_number_samples_from_1_is_noted(scored):
    from_1 = [
        {"question_id": "toy/0", "llm": "alpha", "sample": sample, "score": 1} for sample in (1, 2)
    ]
    noted = scored(from_1).notes
    assert noted[0].startswith("No row of t.csv is of sample 0: samples count from 0")
    for number, file in ((np.inf, "t.parquet"), (NAN, "t.jsonl")):
        with pytest.raises(SourceError, match="should be a number"):
            scored(rows(score=[number]), file, "none")


def test_missing_rows_empty_cells_and_nan_are_no_scores_and_counted(scored, tmp_path):
    done = scored(rows(score=[0.5, NAN, None, 1.0]), "t.parquet", name="mine")
    assert done.scored == {"mine": 2}
    assert done.notes == (
        "2 of 7 CoTs have no score by mine: their cells in t.parquet are empty or NaN.",
        "3 of 7 CoTs have no score by mine: t.parquet has no rows for them.",
    )
    recording = open_recording(tmp_path / "out")
    assert recording.manifest.raw["notes"] == list(done.notes)
    assert recording.scores("toy", "alpha", "mine").scored.tolist() == [
        [True] * 3,
        [True, False, False],
    ]
    assert recording.scorers("toy", "org/beta") == []
    # what was given to the scorer is a part of the content, as with any other scorer
    table = rows(score=["0.5", " NaN ", "", "true", "FALSE", "1e2", "-.5"])
    assert scored(table, "u.csv", "words", llms=["alpha"]).notes == (
        "2 of 4 CoTs have no score by score: their cells in u.csv are empty or NaN.",
    )
    assert values(tmp_path / "words", "alpha", "score")[1][0] == 1.0


@pytest.mark.parametrize(
    ("table", "options", "message"), read_data("importers.json")["scores that do not fit"]
)
def test_what_does_not_fit_is_said(scored, tmp_path, table, options, message):
    with pytest.raises(FevalError, match=message):
        scored(table, **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv"]


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"", "is empty"), (b'question_id,score\n"a', "not readable as CSV"), (b"a,score\n1\n",
    "Expected 2 columns, got 1"),
     (b"PAR1", "damaged Parquet"), (b"score\n\xff\n", "not readable as CSV: .*UTF8")],
)  # fmt: skip
def test_a_broken_table_is_a_sentence(toy, tmp_path, data, message):
    (tmp_path / "t.csv").write_bytes(data)
    with pytest.raises(SourceError, match=message):
        import_scores(toy, tmp_path / "t.csv", tmp_path / "out")


def test_several_datasets_are_named_by_a_column(toy, tmp_path):
    line = {
        "id": "toy/0",
        "question": "?",
        "temperature": 0.7,
        "max_tokens": 64,
        "samples": [{"text": "x", "answer": "4"}],
    }
    options = {"dataset": "other", "llm": "alpha", "answer_kind": "verbatim"}
    other = import_rows(tmp_path / "other", [line], **options)
    both = merge([toy, other], tmp_path / "both")
    table = rows(score=[1, 2, 3, 4, 5, 6, 7])
    with pytest.raises(SourceError, match="has no dataset"):
        import_scores(both, written(tmp_path / "t.csv", table), tmp_path / "out")
    table = [{"dataset": "toy", **row} for row in table]
    table.append(
        {"dataset": "other", "question_id": "toy/0", "llm": "alpha", "sample": 0, "score": 8}
    )
    done = import_scores(both, written(tmp_path / "t.csv", table), tmp_path / "out")
    assert done.scored == {"score": 8}
    assert open_recording(tmp_path / "out").scores("other", "alpha", "score").values.tolist() == [
        [8.0]
    ]


def test_the_command(toy, tmp_path):
    table = written(tmp_path / "t.csv", rows(reward=[1, 2, 3, 4, 5, 6, ""]))
    options = "--scores", table, "--score rm=reward --out"
    done = feval("score", toy, *options, tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith("scored: 6 CoTs by rm\n")
    assert "note: 1 of 7 CoTs have no score by rm" in done.stderr
    again = feval("score", toy, *options, tmp_path / "out")
    assert again.stderr.startswith("error:")  # nothing is overwritten
    again = feval("score", tmp_path / "out", *options, tmp_path / "b")
    assert (
        "already has scores of alpha on toy by 'rm'. Give the scorer another name." in again.stderr
    )
    for wrong, message in (
        (["--out x"], "give one of --scorer SPEC and --scores FILE"),
        ([*options, "x --scorer judge:m"], "give one of --scorer SPEC and --scores FILE"),
        ([*options, "x --dry-run"], "leave out --pairwise"),
        (["--scorer judge:m --score a --out x"], "--score names columns of a table"),
    ):
        refused = feval("score", toy, *wrong)
        assert (refused.exit_code, message in refused.stderr) == (2, True)
