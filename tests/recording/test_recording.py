"""A recording on disk: what is written is read, an interruption leaves nothing, damage is named."""

import errno
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from json_values import json_values
from places import SUPPORT, read_data
from small import (
    TOY,
    change_column,
    changed_manifest,
    letters,
    pool,
    question,
    restate,
    write_rows,
    write_toy,
)

from feval import SelfConsistency, errors, evaluate, load, self_consistency_curve
from feval.errors import (
    ConflictError,
    DamagedRecordingError,
    FevalError,
    NotARecordingError,
    NotRecordedError,
    OutOfRangeError,
    ShortPoolError,
    StorageError,
    UsageError,
)
from feval.recording import (
    LLMInfo,
    PoolRows,
    Question,
    RecordingWriter,
    merge,
    open_recording,
    select,
    verify_recording,
)
from feval.recording.layout.format import LeafHash, is_safe_path, slug
from feval.recording.layout.manifest import checksum
from feval.report.tables.recordings import info_dict

POOLS = {"alpha": letters("44-", "757"), "org/beta": [["4"], ["9", None]]}
GOLDS = ["4", "5"]


@pytest.fixture
def toy(tmp_path):
    return write_toy(tmp_path / "toy", POOLS, GOLDS)


def test_what_is_written_is_read(toy):
    recording = open_recording(toy)
    assert recording.dataset_ids() == ["toy"]
    assert recording.llm_names("toy") == ["alpha", "org/beta"]
    assert recording.questions("toy") == [question(0, "4"), question(1, "5")]
    assert list(recording.pools("toy", "org/beta")) == [pool(0, ["4"]), pool(1, ["9", None])]
    assert recording.texts("toy", "alpha", 1)[2] == "Thinking about 1, sample 2. The answer is 7."
    assert recording.llm_info("alpha") == LLMInfo("alpha", 0.7, 64)


def test_votes_share_codes_between_llms(toy):
    votes = open_recording(toy).votes("toy")
    assert votes.candidates(0) == ["4"]
    assert votes.candidates(1) == ["7", "5", "9"]
    assert votes.llms["alpha"].codes.tolist() == [[0, 0, -1], [0, 1, 0]]
    assert votes.llms["org/beta"].codes.tolist() == [[0, -2], [2, -1]]
    assert votes.llms["org/beta"].sizes.tolist() == [1, 2]
    assert votes.gold.tolist() == [0, 1]
    assert votes.llms["alpha"].output_tokens.tolist() == [[10, 11, 12], [10, 11, 12]]


def test_a_leaf_writes_floats_as_the_format_says_whatever_json_library_is_installed():
    leaf = LeafHash()
    leaf.add(['1e+16 "e+\\', [1e16, 1.5e300, 9999999999999998.0, 1.0, 1e-5, 1.5e-7]])
    line = rb'["1e+16 \"e+\\",[1e16,1.5e300,9999999999999998.0,1.0,0.00001,1.5e-7]]' + b"\n"
    assert leaf.hexdigest() == hashlib.sha256(line).hexdigest()


def test_every_damaged_file_is_named(toy):
    for path in sorted(p for p in toy.rglob("*") if p.is_file() and p.name != "manifest.json"):
        good = path.read_bytes()
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        problems = verify_recording(toy).problems
        assert len(problems) == 1
        assert path.relative_to(toy).as_posix() in problems[0]
        path.write_bytes(good[:-1])
        assert "bytes expected" in verify_recording(toy).problems[0]
        path.unlink()
        assert "cannot be opened" in verify_recording(toy).problems[0]
        path.write_bytes(good)
    sound = verify_recording(toy)
    assert (sound.ok, sound.leaves) == (True, 2 + 2 * 4)


NAMES = "its column `llm` names another LLM than 'alpha'"
DIFFER = "its question ids and sample indices differ from those of the samples"


@pytest.mark.parametrize(
    ("part", "column", "value", "problem"),
    [
        ("requests", "llm", "beta", NAMES),
        ("samples", "llm", "beta", NAMES),
        ("texts", "llm", None, NAMES),
        ("texts", "question_id", "q1", DIFFER),
        ("texts", "sample_index", 7, DIFFER),
    ],
)
def test_key_columns_that_name_other_rows_are_found(toy, part, column, value, problem):
    path = f"{part}/toy/alpha.parquet"
    change_column(toy, path, column, lambda values: [value, *values[1:]])
    assert verify_recording(toy).problems == (f"{path}: {problem}.",)


def test_a_stray_file_is_reported(toy):
    (toy / "texts" / "toy" / "notes.txt").write_text("mine")
    assert verify_recording(toy).problems == (
        "texts/toy/notes.txt: not listed in manifest.json; it does not belong to the recording.",
    )


def test_votes_that_disagree_with_the_parquet_files_are_found(toy, tmp_path):
    """Bytes and manifest may agree with each other and still not say what the truth says."""
    other = write_toy(tmp_path / "other", POOLS | {"alpha": letters("44-", "755")}, GOLDS)
    shutil.copy(other / "votes/toy.votes", toy / "votes/toy.votes")
    restate(toy, "votes/toy.votes")
    assert "it contradicts the Parquet files" in verify_recording(toy).problems[0]


@pytest.mark.parametrize(
    ("part", "ask"),
    [
        ("votes", lambda votes: votes.gold),
        ("details", lambda votes: votes.question_ids),
        ("details", lambda votes: votes.text_keys),
        ("details", lambda votes: votes.candidates(0)),
        ("details", lambda votes: votes.llms["alpha"].finish),
    ],
)
def test_changed_arrays_are_refused_when_they_are_first_asked_for(toy, part, ask):
    path = toy / f"votes/toy.{part}"
    good = path.read_bytes()
    for data, words in (
        (good[:-64] + bytes([good[-64] ^ 1]) + good[-63:], "should have SHA-256"),
        (good[:100], "should have .* found 100"),
        (None, "cannot be opened"),
    ):
        path.unlink()
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(DamagedRecordingError, match=rf"toy\.{part} {words}"):
            ask(open_recording(toy).votes("toy"))
    assert part == "votes" or open_recording(toy).votes("toy").gold.tolist() == [0, 1]


def test_details_of_another_dataset_or_of_other_questions_are_refused(toy, tmp_path):
    other = write_toy(tmp_path / "other", {"alpha": [["4"]]}, ["4"])
    shutil.copy(other / "votes/toy.details", toy / "votes/toy.details")
    restate(toy, "votes/toy.details")
    with pytest.raises(DamagedRecordingError, match="should have 7 arrays, found 6"):
        open_recording(toy).votes("toy").candidates(0)
    with changed_manifest(toy) as manifest:
        del manifest["files"]["votes/toy.details"]
    with pytest.raises(DamagedRecordingError, match="does not list"):
        open_recording(toy).votes("toy").candidates(0)


def test_a_changed_text_is_refused_when_it_is_read(tmp_path):
    toy = write_toy(tmp_path / "toy", {"alpha": [["4"] * 40 for _ in range(50)]}, ["4"] * 50)
    path = toy / "texts/toy/alpha.parquet"
    data = bytearray(path.read_bytes())
    for place in range(200, 1200, 7):
        data[place] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(DamagedRecordingError, match="contradicts its pages"):
        for row in range(50):
            open_recording(toy).texts("toy", "alpha", row)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        *read_data("recordings.json")["wrong manifests"],
        (
            lambda m: {k: v for k, v in m.items() if k != "checksum"},
            "DamagedRecordingError",
            "lacks the field 'checksum'",
        ),
        (lambda m: [m], "NotARecordingError", "is not the manifest"),
    ],
)
def test_a_wrong_manifest_is_refused(toy, change, error, words):
    path = toy / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(change(manifest) if callable(change) else manifest | change))
    with pytest.raises(getattr(errors, error), match=words):
        open_recording(toy)


def test_what_is_not_a_recording_says_so(tmp_path, toy):
    with pytest.raises(NotARecordingError, match="does not exist"):
        open_recording(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotARecordingError, match=r"has no manifest\.json"):
        open_recording(tmp_path / "empty")
    with pytest.raises(NotARecordingError, match="is not a folder"):
        open_recording(toy / "README.md")
    (toy / "manifest.json").write_bytes(b"")
    with pytest.raises(DamagedRecordingError, match="not valid JSON"):
        open_recording(toy)


def test_an_existing_folder_is_never_overwritten(toy):
    before = (toy / "manifest.json").read_bytes()
    with pytest.raises(StorageError, match="never overwritten"):
        write_toy(toy, POOLS, GOLDS)
    assert (toy / "manifest.json").read_bytes() == before


def test_an_error_while_writing_leaves_nothing(tmp_path):
    def broken():
        yield pool(0, ["4"])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_rows(tmp_path / "r", GOLDS, ("alpha", broken()))  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "words"), [(errno.ENOSPC, "disk is full"), (errno.EROFS, "read-only")]
)
def test_a_disk_that_says_no_leaves_nothing(tmp_path, monkeypatch, number, words):
    def refuse(_descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError, match=words):
        write_toy(tmp_path / "r", POOLS, GOLDS)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_grow_leaves_nothing(tmp_path):
    """The kernel itself refuses the write, in the middle of a Parquet file."""
    code = (
        "import resource, sys; from pathlib import Path; sys.path[:0] = sys.argv[2:]\n"
        "from small import write_toy; from feval.errors import StorageError\n"
        "import pyarrow.parquet, feval.recording.writer\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "try: write_toy(Path(sys.argv[1]) / 'r', {'a': [['4'] * 40] * 200}, ['4'] * 200)\n"
        "except StorageError as error: print(error)\n"
    )
    command = [sys.executable, "-B", "-c", code, str(tmp_path), str(SUPPORT), str(SUPPORT.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "could not be written: the disk is full" in done.stdout, done.stderr
    assert list(tmp_path.iterdir()) == []
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 2000


def test_a_kill_leaves_no_recording_or_a_whole_one(tmp_path):
    code = (
        "import sys; from pathlib import Path; sys.path[:0] = sys.argv[2:]\n"
        "from small import write_toy\n"
        "print('go', flush=True)\n"
        "write_toy(Path(sys.argv[1]), {'a': [['4'] * 40] * 300}, ['4'] * 300)\n"
    )
    for attempt, wait in enumerate((0.0, 0.05, 0.15, 0.3)):
        out = tmp_path / str(attempt) / "r"
        out.parent.mkdir()
        arguments = [sys.executable, "-c", code, str(out), str(SUPPORT), str(SUPPORT.parent)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(wait)
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert not out.exists() or verify_recording(out).ok


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        ([pool(1, ["4"]), pool(0, ["4"])], ConflictError, "out of order"),
        ([pool(0, ["4"]), pool(0, ["4"])], ConflictError, "twice"),
        ([pool(7, ["4"])], ConflictError, "no recorded question"),
        ([pool(0, ["4"], tokens=[-1])], UsageError, "output tokens"),
        ([pool(0, ["4"], tokens=[1, 2])], UsageError, "different lengths"),
        ([pool(0, ["4"], extra={"mood": ["good"]})], UsageError, "unknown columns"),
        ([pool(0, ["\ud800"])], UsageError, "valid Unicode"),
        (
            [PoolRows("toy/0", ["x"], ["4"], ["4"], [1], ["max_tokens"])],
            UsageError,
            "finish reason",
        ),
    ],
)
def test_rows_that_cannot_be_stored_are_refused(tmp_path, rows, error, words):
    with pytest.raises(error, match=words):
        write_rows(tmp_path / "r", GOLDS, ("alpha", rows))
    assert list(tmp_path.iterdir()) == []


def test_duplicate_questions_and_llms_are_refused_and_leave_no_folders(tmp_path):
    out = tmp_path / "new" / "deep" / "r"
    with pytest.raises(ConflictError, match="twice"), RecordingWriter(out, operation={}) as writer:
        writer.add_dataset(TOY, [question(0, "4"), question(0, "5")])
    with pytest.raises(ConflictError, match="twice"):
        write_rows(out, ["4"], *[("alpha", [pool(0, ["4"])])] * 2)
    assert list(tmp_path.iterdir()) == []


def test_missing_pairs_are_named_with_what_there_is(toy):
    recording = open_recording(toy)
    with pytest.raises(NotRecordedError, match="It holds toy: alpha, org/beta"):
        recording.votes("gsm8k")
    with pytest.raises(NotRecordedError, match="no CoTs of 'gamma' on toy"):
        recording.texts("toy", "gamma", 0)


def test_merge_keeps_everything_and_names_its_parents(tmp_path, toy):
    more = write_toy(tmp_path / "more", {"gamma": letters("49", "55")}, GOLDS)
    merged = open_recording(merge([toy, more], tmp_path / "merged"))
    assert merged.llm_names("toy") == ["alpha", "org/beta", "gamma"]
    assert [p["hash"] for p in merged.manifest.raw["parents"]] == [
        open_recording(toy).hash,
        open_recording(more).hash,
    ]
    assert verify_recording(tmp_path / "merged").ok
    for llm, source in (("alpha", toy), ("gamma", more)):
        assert list(merged.pools("toy", llm)) == list(open_recording(source).pools("toy", llm))


@pytest.mark.parametrize(
    ("pools", "golds", "words"),
    [
        ({"alpha": [["4"], ["5"]]}, GOLDS, "with other content"),
        ({"gamma": [["4"], ["5"]]}, ["4", "6"], "two golds"),
    ],
)
def test_contradicting_recordings_do_not_merge(tmp_path, toy, pools, golds, words):
    other = write_toy(tmp_path / "other", pools, golds)
    with pytest.raises(ConflictError, match=words):
        merge([toy, other], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_recordings_with_different_texts_for_one_id_do_not_merge(tmp_path, toy):
    with RecordingWriter(tmp_path / "other", operation={}) as writer:
        writer.add_dataset(TOY, [Question("toy/0", "Something else?", "4", "4")])
    with pytest.raises(ConflictError, match="two texts"):
        merge([toy, tmp_path / "other"], tmp_path / "merged")


def test_select_refuses_what_is_not_there(tmp_path, toy):
    with pytest.raises(ShortPoolError, match="2 were requested"):
        select(toy, tmp_path / "s", samples=2)
    with pytest.raises(NotRecordedError, match="no question 'toy/9'"):
        select(toy, tmp_path / "s", questions=["toy/9"])
    with pytest.raises(NotRecordedError, match="no LLM 'gamma'"):
        select(toy, tmp_path / "s", llms=["gamma"])
    with pytest.raises(OutOfRangeError):
        select(toy, tmp_path / "s", samples=0)
    assert not (tmp_path / "s").exists()


def test_file_names_are_safe_and_different():
    names = [
        "a/b",
        "a--b",
        "a b",
        "a_b",
        "..",
        ".hidden",
        "gpt@t=0.8",
        "ü",
        "x" * 150,
        "x" * 150 + "y",
    ]
    assert len({slug(name) for name in names}) == len(names)
    assert all(is_safe_path(slug(name)) and not slug(name).startswith(".") for name in names)
    assert slug("gpt-3.5-turbo@t=0.8") == "gpt-3.5-turbo@t=0.8"


def test_names_that_differ_only_in_case_do_not_share_a_recording(tmp_path):
    with pytest.raises(ConflictError, match="cannot be in one recording: some disks"):
        write_toy(tmp_path / "r", {"Alpha": [["4"]], "alpha": [["4"]]}, ["4"])


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_fuzzed_manifests_raise_nothing_but_our_errors(tmp_path, data):
    toy = tmp_path / "fuzz"
    if not toy.exists():
        write_toy(toy, POOLS, GOLDS)
        (tmp_path / "good.json").write_bytes((toy / "manifest.json").read_bytes())
    manifest = json.loads((tmp_path / "good.json").read_text())
    key = data.draw(st.sampled_from(sorted(manifest)))
    inner = manifest[key]
    if isinstance(inner, list) and inner and data.draw(st.booleans()):
        inner = inner[0]
    if isinstance(inner, dict) and inner:
        inner[data.draw(st.sampled_from(sorted(inner)))] = data.draw(json_values())
    else:
        manifest[key] = data.draw(json_values())
    try:
        (toy / "manifest.json").write_text(json.dumps(manifest | {"checksum": checksum(manifest)}))
        recording = open_recording(toy)
        for dataset in recording.dataset_ids():
            recording.votes(dataset)
            for llm in recording.llm_names(dataset):
                list(recording.pools(dataset, llm))
        verify_recording(toy)
    except FevalError:
        pass


@pytest.mark.parametrize(
    "name", ["manifest.json", "votes/toy.votes", "questions/toy.parquet", "texts/toy/alpha.parquet"]
)
def test_a_pipe_or_a_device_in_place_of_a_file_is_not_read(toy, name):
    for put in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        (toy / name).unlink()
        put(toy / name)
        with pytest.raises(FevalError, match="no regular file"):
            select(toy, toy.parent / "out")
        if name != "manifest.json":
            assert any("no regular file" in problem for problem in verify_recording(toy).problems)


def test_a_recording_below_a_folder_whose_name_is_no_text_is_read(tmp_path):
    folder = tmp_path / os.fsdecode(b"f\xfftol")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system takes names in UTF-8 only")
    toy = write_toy(folder / "toy", POOLS, GOLDS)
    assert verify_recording(toy).ok
    assert (
        open_recording(toy).texts("toy", "alpha", 0)[0]
        == "Thinking about 0, sample 0. The answer is 4."
    )


@pytest.mark.parametrize(
    ("llm", "words"),
    [
        (LLMInfo("@t=0.8"), "put the name before the '@'"),
        (LLMInfo("x" * 201), r"LLM names have 1 to 200 characters .* found 'x+'\.\.\. of 201"),
        (LLMInfo("m", max_tokens=2**64), "a number have 64 bits"),
        (LLMInfo("m", decoding={"stop": "\ud800"}), "valid Unicode"),
    ],
)
def test_an_llm_that_cannot_be_stored_is_refused(tmp_path, llm, words):
    with pytest.raises(UsageError, match=words):
        write_rows(tmp_path / "r", ["4"], (llm, [pool(0, ["4"])]))
    assert not any(tmp_path.iterdir())


def test_a_question_that_cannot_be_stored_is_refused(tmp_path):
    with (
        pytest.raises(UsageError, match="valid Unicode"),
        RecordingWriter(tmp_path / "r", operation={}) as writer,
    ):
        writer.add_dataset(TOY, [question(0, "4", "half \ud800")])


def test_nothing_is_written_into_a_recording(toy):
    for out in (toy / "sub", toy / "votes" / "deep" / "er"):
        with pytest.raises(StorageError, match="inside the recording"):
            write_toy(out, POOLS, GOLDS)
    (toy.parent / "link").symlink_to(toy)
    with pytest.raises(StorageError, match="inside the recording"):
        write_toy(toy.parent / "link" / "sub", POOLS, GOLDS)
    assert verify_recording(toy).ok


def test_a_manifest_of_something_else_above_is_no_obstacle(tmp_path):
    (tmp_path / "manifest.json").write_text('{"format": "web-extension"}')
    assert verify_recording(write_toy(tmp_path / "toy", POOLS, GOLDS)).ok


def test_what_is_in_the_way_is_said_without_the_names_of_hidden_folders(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to("nowhere")
    for out, words in [
        (tmp_path / "file" / "r", "a part of its path is a file"),
        (tmp_path / "dangling", "exists already"),
        (tmp_path / ("x" * 250), "too long for the disk"),
        (tmp_path / ("x" * 300), "too long for the disk"),
    ]:
        with pytest.raises(StorageError, match=words) as caught:
            write_toy(out, POOLS, GOLDS)
        assert "partial" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "file"]


def test_of_two_that_write_one_folder_the_second_says_so(tmp_path):
    with (
        pytest.raises(StorageError, match="somebody else made it"),
        RecordingWriter(tmp_path / "r", operation={"name": "test"}) as writer,
    ):
        writer.add_dataset(TOY, [question(0, "4")])
        first = write_toy(tmp_path / "r", POOLS, GOLDS)
    assert verify_recording(first).ok
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_a_name_with_backticks_stays_one_code_span_in_the_readme(tmp_path):
    names = {"a`b": [["4"]], "``c": [["4"]], "d|e": [["4"]], "plain": [["4"]]}
    readme = (write_toy(tmp_path / "r", names, ["4"]) / "README.md").read_text()
    cells = [line.split(" | ")[1] for line in readme.splitlines() if line.startswith("| Toy")]
    assert cells == ["`` a`b ``", "``` ``c ```", r"`d\|e`", "`plain`"]


@pytest.mark.parametrize(
    ("asked", "names", "sentence", "other"), read_data("replies.json")["served models"]
)
def test_the_models_that_answered_are_said(asked, names, sentence, other, tmp_path):
    stated = [name for name, count in names.items() for _ in range(count)]
    row = replace(pool(0, ["a", "a", "b", "a"]), extra={"served_model": stated})
    out = write_rows(tmp_path / "toy", ["a"], (LLMInfo(asked), [row]), prices="none")
    recording = open_recording(out)
    assert recording.manifest.pairs["toy", asked]["served"] == names
    verification = verify_recording(out)
    assert verification.ok
    dataset, [llm] = load("toy", recording=out)
    runs = [
        evaluate(SelfConsistency(2), dataset, llm),
        self_consistency_curve(dataset, llm, [1, 2]),
    ]
    said = [verification.remarks, info_dict(recording)["served"], *(run.warnings for run in runs)]
    found = [[each for each in texts if sentence and each.endswith(sentence)] for texts in said]
    assert [len(each) for each in found] == [sentence is not None] * 2 + [other] * 2
    # no request says as what it was asked
    assert not other or found[0][0].startswith(f"{asked} on toy: ")
