"""The demo: real samples, the same recording everywhere, and everything it says to try works."""

import json
import shlex
import shutil
from pathlib import Path

import pytest
from command_line import feval, said, told

from feval.errors import DamagedRecordingError, StorageError
from feval.recording import open_recording
from recorders.demo import DATASET, LIVE_LLM, LLMS, bundled_recording, run_demo
from recorders.tiny import TinyDecoding, load_model, sample, tokenizer
from recorders.work.settings import load_questions

HASH = "b07065b2e24c0280aed35a85aed507c0435e3bd7ee67fd35ccb5266dec1d774c"

DEPTH_HASH = "95bab09ec717710f638314c919b4143c42afe5447e2e9231501b3025f6a72d9d"


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo's folder, made by the command after a run that was interrupted."""
    folder = tmp_path_factory.mktemp("demo") / "feval-demo"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("recorders.demo.shutil.copytree", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_demo(folder)
    assert [path.name for path in folder.iterdir()] == ["README.md"]
    result = feval("demo --out", folder, "--quiet")
    assert (result.exit_code, result.output) == (0, "")
    return folder


def _interrupt(*_, **__):
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def shown(demo):
    """The lines that a second run prints, which uses the same recordings and leaves other files
    alone.
    """
    before = (demo / "recording" / "manifest.json").stat().st_mtime_ns
    mine = demo / "notes.txt"
    mine.write_text("mine")
    result = said("demo --out", demo)
    assert (demo / "recording" / "manifest.json").stat().st_mtime_ns == before
    assert mine.read_text() == "mine"
    return result.splitlines()


@pytest.fixture(scope="module")
def account(demo):
    """What a third run prints as JSON."""
    result = feval("demo --out", demo, "--json")
    assert result.stderr == ""
    return json.loads(result.stdout)


def test_the_bundled_recordings_are_small_and_pinned():
    with bundled_recording("depth") as folder:
        assert open_recording(folder).hash == DEPTH_HASH
    with bundled_recording() as folder:
        assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 2_000_000
        recording = open_recording(folder)
        assert recording.hash == HASH
        assert recording.manifest.prices == "tiny-2026-11"
        for llm in LLMS:
            pair = recording.manifest.pairs[DATASET, llm]
            assert (pair["cots"], pair["smallest_pool"], pair["counter"]) == (8000, 40, "usage")
            assert recording.llm_info(llm).decoding["model"] == llm


def test_the_bundled_samples_are_what_the_models_say():
    """Some recorded CoTs are drawn again from the weights."""
    with bundled_recording() as folder:
        recording = open_recording(folder)
        for llm in LLMS:
            info = recording.llm_info(llm)
            model = load_model(llm)
            for row in (0, 117):
                decoding = TinyDecoding(temperature=1.0, max_tokens=info.max_tokens or 0)
                drawn = sample(model, load_questions(DATASET)[row].text, range(40), decoding)
                assert [answer.text for answer in drawn] == recording.texts(DATASET, llm, row)


def test_the_bundled_probes_are_what_the_model_answers():
    with bundled_recording("depth") as folder:
        recording = open_recording(folder)
        [_, _, _, probes, *_] = recording.probe_rows(DATASET, LIVE_LLM)
        texts = recording.texts(DATASET, LIVE_LLM, 3)
    question, model = load_questions(DATASET)[3].text, load_model(LIVE_LLM)
    cots = sample(model, question, range(20), TinyDecoding(max_tokens=120))
    assert [cot.text for cot in cots] == texts
    for place in (0, 4, -1):
        tokens = cots[probes.sample_indices[place]].tokens[: probes.offsets[place]].tolist()
        begun = tokenizer().decode(tokens).removeprefix(" ") + " The answer is"
        decoding = TinyDecoding(temperature=0.0, max_tokens=20)
        [answer] = sample(model, question, [0], decoding, beginning=begun)
        assert answer.text == probes.texts[place]


def test_the_demo_has_votes_over_width_and_depth(demo, account):
    frontier = account["depth"]["frontier"]
    accuracies = [point["accuracy"] for point in frontier]
    assert accuracies == sorted(accuracies)
    assert accuracies[-1] > 0.7 > 0.05 > accuracies[0]
    assert (demo / "surface.csv").read_text().startswith("n,tokens,accuracy")


def test_the_demo_shows_each_llm_at_each_count(shown):
    [answer] = [line for line in shown if line.startswith("Three small language models")]
    assert f"40 votes lift {LIVE_LLM} from 61.12 to 72.50 % right" in answer
    for llm in LLMS:
        counts = [int(line.split()[1]) for line in shown if line.startswith(llm)]
        assert counts == [1, 5, 10, 20, 40]


def test_the_demo_as_json(account):
    assert account["recording_hash"] == HASH
    assert list(account["curves"]) == list(LLMS)
    assert all(Path(path).is_file() for path in account["files"])
    assert account["live"]["seconds"] is None  # the first run recorded it


def test_the_live_batch_is_a_recording_of_its_own(demo):
    info = told("info", demo / "live")
    assert [pair["cots"] for pair in info["pairs"]] == [200]
    said("verify", demo / "live")
    with bundled_recording() as folder:
        bundled = open_recording(folder).texts(DATASET, LIVE_LLM, 0)
    # other seeds, other samples
    assert open_recording(demo / "live").texts(DATASET, LIVE_LLM, 0) != bundled[:10]


def test_what_it_says_to_try_works(shown, tmp_path, monkeypatch):
    commands = [line.strip() for line in shown[shown.index("Try next:") + 1 :]]
    assert len(commands) == 3
    monkeypatch.chdir(tmp_path)
    for command in commands:
        name, *arguments = shlex.split(command)
        assert name == "feval"
        result = feval(*arguments)
        assert result.exit_code == 0, (command, result.output)
        assert "error" not in result.stderr
    assert (tmp_path / "my-curve" / "curve.png").is_file()
    assert (tmp_path / "recording.html").is_file()


def test_somebody_elses_folder_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    result = feval("demo --out", tmp_path)
    assert result.exit_code == 1
    assert "was not made by `feval demo`" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(StorageError, match="was not made by"):
        run_demo(tmp_path / "thesis.tex")
    (tmp_path / "README.md").write_text("# My thesis")
    with pytest.raises(StorageError, match="was not made by"):
        run_demo(tmp_path)


def test_a_damaged_demo_is_not_believed(demo, tmp_path):
    shutil.copytree(demo, tmp_path / "demo")
    manifest = tmp_path / "demo/live/manifest.json"
    manifest.rename(tmp_path / "kept")
    with pytest.raises(
        DamagedRecordingError,
        match=r"live is no longer .* Delete the folder and run the demo again",
    ):
        run_demo(tmp_path / "demo")
    (tmp_path / "kept").rename(manifest)
    (tmp_path / "demo/recording/README.md").write_text("changed")
    with pytest.raises(DamagedRecordingError, match="no longer what the demo wrote"):
        run_demo(tmp_path / "demo")
