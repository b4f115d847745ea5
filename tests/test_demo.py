"""The demo: seconds, the same bytes of content everywhere, and honest about being synthetic."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from feval.cli import app
from feval.demo import COTS, DATASET, LLMS, QUESTIONS, run_demo, write_recording
from feval.errors import DamagedRecordingError, StorageError
from feval.recording import open_recording

HASH = "fe106c07a22d820a289216a48e5527f87c09c04a6393a5a00d6a1859100b33a7"


def feval(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), prog_name="feval")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's folder, made by the command."""
    folder = tmp_path_factory.mktemp("demo") / "feval-demo"
    result = feval("demo", "--out", folder, "--quiet")
    assert (result.exit_code, result.output) == (0, "")
    return folder


def test_the_demo_says_that_it_is_synthetic(demo: Path) -> None:
    shown = feval("demo", "--out", demo).stdout
    assert shown.startswith("This is SYNTHETIC data")
    assert all(llm.startswith("synthetic-") for llm in LLMS)
    assert DATASET.startswith("synthetic_")
    assert "Synthetic" in feval("info", demo / "recording").stdout
    assert "Synthetic" in (demo / "README.md").read_text()
    assert json.loads((demo / "prices.json").read_text())["id"] == "synthetic"
    assert open_recording(demo / "recording").manifest.prices == "none"


def test_the_demo_is_the_same_on_every_machine(demo: Path, tmp_path: Path) -> None:
    write_recording(tmp_path / "again")
    again = open_recording(tmp_path / "again").hash
    assert again == open_recording(demo / "recording").hash
    assert again == HASH


def test_the_demo_shows_each_llm_at_each_count(demo: Path) -> None:
    lines = feval("demo", "--out", demo).stdout.splitlines()
    for llm in LLMS:
        assert [line.split()[1] for line in lines if line.startswith(llm)] == ["1", "5", "10", "20", "40"]


def test_the_demo_as_json(demo: Path) -> None:
    result = feval("demo", "--out", demo, "--json")
    told = json.loads(result.stdout)
    assert result.stderr == ""
    assert told["synthetic"] is True
    assert list(told["curves"]) == list(LLMS)
    assert all(Path(path).is_file() for path in told["files"])


def test_the_llms_behave_like_llms(demo: Path) -> None:
    curves = json.loads(feval("demo", "--out", demo, "--json").stdout)["curves"]
    single, voted = ([curves[llm]["points"][at]["accuracy"] for llm in LLMS] for at in (0, 39))
    assert single == sorted(single)
    assert voted == sorted(voted)
    for llm in LLMS:
        first, last = curves[llm]["points"][0], curves[llm]["points"][-1]
        assert 0.02 < last["accuracy"] - first["accuracy"] < 0.15  # voting helps, as it does
        assert last["accuracy"] < last["pass_at_n"] < 1  # some majorities are confidently wrong
        assert first["usd_per_question"] > 0


def test_the_recording_is_whole(demo: Path) -> None:
    told = json.loads(feval("info", demo / "recording", "--json").stdout)
    assert [pair["cots"] for pair in told["pairs"]] == [QUESTIONS * COTS] * len(LLMS)
    assert all(0 < pair["no_answer_rate"] < 0.05 for pair in told["pairs"])
    assert told["datasets"][0]["with_gold"] == QUESTIONS
    assert feval("verify", demo / "recording").exit_code == 0


def test_answers_are_those_of_the_texts(demo: Path) -> None:
    recording = open_recording(demo / "recording")
    for pool in recording.pools(DATASET, "synthetic-small"):
        for text, answer in zip(pool.texts, pool.answers, strict=True):
            assert text is not None
            assert text.endswith(f"The answer is {answer}." if answer else "cannot give a result.")


def test_what_it_says_to_try_works(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = feval("demo", "--out", demo).stdout.splitlines()
    commands = [line.strip() for line in lines[lines.index("Try next:") + 1 :]]
    assert len(commands) >= 4
    monkeypatch.chdir(tmp_path)
    for command in commands:
        name, *arguments = shlex.split(command)
        assert name == "feval"
        result = feval(*arguments)
        assert result.exit_code == 0, (command, result.output)
        assert "error" not in result.stderr
    assert (tmp_path / "my-curve" / "curve.png").is_file()
    assert (tmp_path / "smaller" / "manifest.json").is_file()


def test_a_second_run_uses_the_same_recording(demo: Path) -> None:
    before = (demo / "recording" / "manifest.json").stat().st_mtime_ns
    mine = demo / "notes.txt"
    mine.write_text("mine")
    assert feval("demo", "--out", demo).exit_code == 0
    assert (demo / "recording" / "manifest.json").stat().st_mtime_ns == before
    assert mine.read_text() == "mine"
    mine.unlink()


def test_a_run_that_was_interrupted_is_taken_up(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("feval.demo.write_recording", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_demo(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "prices.json"]
    assert run_demo(folder).recording.is_dir()


def _interrupt(_: Path) -> None:
    raise KeyboardInterrupt


def test_somebody_elses_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    result = feval("demo", "--out", tmp_path)
    assert result.exit_code == 1
    assert "was not made by `feval demo`" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(StorageError, match="was not made by"):
        run_demo(tmp_path / "thesis.tex")
    (tmp_path / "README.md").write_text("# My thesis")
    with pytest.raises(StorageError, match="was not made by"):
        run_demo(tmp_path)


def test_a_damaged_demo_is_not_believed(tmp_path: Path) -> None:
    run_demo(tmp_path / "demo")
    manifest = tmp_path / "demo" / "recording" / "README.md"
    manifest.write_text("changed")
    with pytest.raises(DamagedRecordingError, match="no longer what the demo wrote"):
        run_demo(tmp_path / "demo")
