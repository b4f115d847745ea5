"""Recordings made of recordings with probes keep them: nothing drops them silently."""

from dataclasses import replace

import pytest
from command_line import feval
from recorded_probes import ALPHA, BETA, CUE, as_words, probe_words, write_probed
from small import full_disk, letters, pool, write_rows, write_toy

from feval.errors import ConflictError, NotRecordedError, StorageError
from feval.recording import ProbeRows, extract, merge, open_recording, select, verify_recording
from feval.recording.votes_building import VotesBuilder

PARQUET = "probes/toy/alpha.parquet"


@pytest.fixture(scope="module")
def probed(tmp_path_factory):
    return write_probed(tmp_path_factory.mktemp("probed") / "toy")


def sound(path):
    assert verify_recording(path).problems == ()
    return open_recording(path)


def shared(one, other, path):
    return (one / path).stat().st_ino == (other / path).stat().st_ino


def test_a_selection_of_llms_has_their_probes(probed, tmp_path):
    recording = sound(select(probed, tmp_path / "one", llms=["alpha"]))
    assert [*recording.manifest.keyed] == [("probes", "toy", "alpha")]
    assert probe_words(recording, "alpha") == as_words(ALPHA)
    assert shared(probed, tmp_path / "one", PARQUET)


def test_a_selection_of_questions_and_cots_has_theirs(probed, tmp_path):
    recording = sound(select(probed, tmp_path / "some", questions=["toy/0", "toy/3"], samples=1))
    assert as_words(list(recording.probe_rows("toy", "alpha"))) == [
        ("toy/0", 0, 5, "3"),
        ("toy/0", 0, 10, "4"),
        ("toy/3", 0, 5, "8"),
    ]
    assert recording.probes_record("toy", "alpha")["cue"] == CUE
    assert recording.probes_record("toy", "org/beta")["probes"] == 0


def test_whole_datasets_are_merged_by_links(probed, tmp_path):
    other = write_toy(
        tmp_path / "other", {"gamma": letters("8", "4", "1", "6")}, ["4", "5", None, "2"]
    )
    recording = sound(merge([other, probed], tmp_path / "both"))
    assert probe_words(recording, "alpha") == as_words(ALPHA)
    assert probe_words(recording, "org/beta") == as_words(BETA)
    assert shared(probed, tmp_path / "both", PARQUET)
    again = sound(merge([probed, other], tmp_path / "again"))
    assert again.hash == recording.hash


def halves(tmp_path, first, cue=CUE):
    """Two recordings of one LLM, with probes, on some of four questions and on the others."""
    rows = [ProbeRows(f"toy/{i}", [0, 1], [5, 5], [str(i)] * 2, [str(i), None]) for i in range(4)]
    paths = []
    for name, own, own_cue in (
        ("a", first, CUE),
        ("b", [i for i in range(4) if i not in first], cue),
    ):
        pools, probes = [pool(i, ["4", "5"]) for i in own], {"alpha": [rows[i] for i in own]}
        paths.append(
            write_rows(tmp_path / name, ["4"] * 4, ("alpha", pools), probes=probes, cue=own_cue)
        )
    return paths[0], paths[1]


@pytest.mark.parametrize("first", [[0, 1], [0, 2], [3]])
def test_probes_on_different_questions_are_joined(tmp_path, first):
    recording = sound(merge(halves(tmp_path, first), tmp_path / "joined"))
    assert [rows.question_id for rows in recording.probe_rows("toy", "alpha")] == [
        f"toy/{i}" for i in range(4)
    ]
    assert recording.probes("toy", "alpha").interval == 5
    assert len(recording.files("probes", "toy", "alpha")) == (1 if first == [0, 2] else 2)


def test_probes_with_different_cues_are_not_joined(tmp_path):
    with pytest.raises(
        ConflictError, match=r"were made with '</think>\\nThe answer is' in .* and with None in"
    ):
        merge(halves(tmp_path, [0, 1], cue=None), tmp_path / "joined")


def test_different_probes_of_equal_cots_are_not_merged(probed, tmp_path):
    other = write_probed(tmp_path / "other", {"alpha": ALPHA[:1]})
    with pytest.raises(ConflictError, match="hold different probes of alpha on toy"):
        merge([probed, other], tmp_path / "both")
    without = write_probed(tmp_path / "without", {})
    assert sound(merge([without, probed], tmp_path / "joined")).hash == open_recording(probed).hash


def test_extracting_anew_without_a_change_links_them(probed, tmp_path):
    extracted = extract(probed, tmp_path / "first", answer_kind="number")
    again = extract(tmp_path / "first", tmp_path / "again")
    assert again.recording_hash == extracted.recording_hash
    for path in (PARQUET, "votes/toy/alpha.probes", "votes/toy.votes"):
        assert shared(tmp_path / "first", tmp_path / "again", path)
    sound(tmp_path / "again")


def test_answers_are_read_behind_the_cue_or_from_the_stored_answer(tmp_path):
    texts = [" 4.", "\\boxed{12}", None, "<think>5"]
    rows = ProbeRows(
        "toy/0", [0] * 4, [5, 10, 15, 20], ["x", "x", "1,000", "x"], ["x", "x", "x", "x"], texts
    )
    source = write_probed(tmp_path / "r", {"alpha": [rows]})
    extraction = extract(source, tmp_path / "new", answer_kind="number")
    [read] = sound(tmp_path / "new").probe_rows("toy", "alpha")
    assert read.answers == ["4", "12", "1000", None]
    assert read.texts == texts
    assert extraction.datasets[0].llms[0].probes_changed == 4
    assert "toy: 4 probes of alpha have another answer than in the parent." in extraction.notes
    extract(source, tmp_path / "stored", answer_kind="number", source="stored")
    [stored] = sound(tmp_path / "stored").probe_rows("toy", "alpha")
    assert stored.answers == [None, None, "1000", None]
    assert stored.raw_answers == rows.raw_answers


def write_seeded(out, answers, seeds, rows):
    own = pool(0, answers, tokens=seeds, extra={"seed": seeds})
    own = replace(own, texts=[f"Reply {seed}." for seed in seeds])
    probes = {"alpha": rows} if rows else {}
    return open_recording(write_rows(out, ["4"], ("alpha", [own]), probes=probes, cue=CUE))


OLD = [ProbeRows("toy/0", [1, 1], [5, 10], ["a", "b"], ["a", "b"], output_tokens=[1, 1])]
NEW = [ProbeRows("toy/0", [0, 1, 1, 2], [5, 5, 10, 5], ["c", "a", "b", "d"], ["c", "a", "b", "d"])]


@pytest.mark.parametrize("probed", [[], OLD])
def test_more_cots_behind_the_same_ones_are_merged_with_their_probes(tmp_path, probed):
    base = write_seeded(tmp_path / "base", ["4", "5"], [1, 2], probed)
    more = write_seeded(tmp_path / "more", ["4", "5", "6"], [1, 2, 3], NEW)
    for number, parents in enumerate(((base, more), (more, base))):
        recording = sound(merge([each.path for each in parents], tmp_path / f"{number}"))
        [pool] = recording.pools("toy", "alpha")
        assert (pool.answers, pool.raw_texts()) == (
            ["4", "5", "6"],
            ["Reply 1.", "Reply 2.", "Reply 3."],
        )
        assert [probe[1:] for probe in probe_words(recording, "alpha")] == [
            (0, 5, "c"),
            (1, 5, "a"),
            (1, 10, "b"),
            (2, 5, "d"),
        ]


def test_other_probes_of_an_old_cot_are_a_conflict(tmp_path):
    base = write_seeded(tmp_path / "base", ["4", "5"], [1, 2], OLD)
    more = write_seeded(
        tmp_path / "more",
        ["4", "5", "6"],
        [1, 2, 3],
        [replace(NEW[0], answers=["c", "other", "b", "d"])],
    )
    with pytest.raises(
        ConflictError, match=r"probes of alpha on toy, with other content on 'toy/0'"
    ):
        merge([base.path, more.path], tmp_path / "out")


def test_a_full_disk_while_files_are_linked_is_said_of_the_recording(probed, tmp_path, monkeypatch):
    other = write_probed(tmp_path / "other", {}, {"gamma": letters("4", "9", "9", "9")})
    monkeypatch.setattr(VotesBuilder, "build", full_disk)
    with pytest.raises(StorageError, match=r"merged could not be written: the disk is full"):
        merge([probed, other], tmp_path / "merged")


def test_a_renamed_llm_keeps_everything_but_its_name(probed, tmp_path):
    recording = sound(select(probed, tmp_path / "r", rename={"alpha": "org/gamma@2"}))
    assert recording.llm_names("toy") == ["org/gamma@2", "org/beta"]
    assert as_words(list(recording.probe_rows("toy", "org/gamma@2"))) == as_words(ALPHA)
    assert recording.manifest.raw["operation"]["rename"] == {"alpha": "org/gamma@2"}
    back = sound(select(tmp_path / "r", tmp_path / "back", rename={"org/gamma@2": "alpha"}))
    assert back.hash == sound(probed).hash
    with pytest.raises(ConflictError, match=r"Two LLMs of .* would be called 'org/beta'"):
        select(probed, tmp_path / "twice", rename={"alpha": "org/beta"})
    with pytest.raises(NotRecordedError, match="no LLM 'delta'"):
        select(probed, tmp_path / "absent", rename={"delta": "x"})


@pytest.mark.parametrize("pairs", [("alpha",), ("alpha=",), ("alpha=x", "alpha=y")])
def test_new_names_come_behind_old_ones(pairs, probed, tmp_path):
    options = [f"--rename {pair}" for pair in pairs]
    done = feval("select", probed, "--out", tmp_path / "r", *options)
    assert done.exit_code == 2
    assert "--rename takes OLD=NEW" in done.output
