"""Answers extracted again: what changes is counted, what stays is linked, and the parent is never
touched.
"""

import json
import shutil
from dataclasses import replace

import pytest
from command_line import feval
from small import content

from feval.answers import EXTRACTOR_VERSION
from feval.errors import (
    AnswerError,
    DamagedRecordingError,
    StorageError,
    UnknownNameError,
    UsageError,
)
from feval.recording import (
    DatasetInfo,
    LLMInfo,
    PoolRows,
    Question,
    RecordingWriter,
    extract,
    open_recording,
    verify_recording,
)
from feval.recording.derived.extraction import AnswerChange, GoldChange

QUESTIONS = [
    Question("q/0", "Half of one?", "1/2", "1/2"),
    Question("q/1", "Two and two?", "4", "4"),
    Question("q/2", "And without a gold?"),
]
# text -> the answer that some older extraction read in it
COTS = [
    [
        ("The answer is 0.5.", "0.5"),
        ("The answer is 1/2.", "1/2"),
        ("I cannot say.", "2"),
        (None, "0.50"),
    ],
    [("The answer is 4.", None), ("The answer is 5.", "4"), ("The answer is unknown.", None)],
    [],
]


def write(out, *, kind="verbatim", dataset="sums", more=None):
    """A recording whose stored answers are an older extraction's; `more` adds a dataset of another
    kind.
    """
    with RecordingWriter(
        out, operation={"name": "test"}, notes=["Odd."], licences={"outputs": "MIT"}
    ) as writer:
        for name, answer_kind in filter(None, [(dataset, kind), more]):
            writer.add_dataset(DatasetInfo(name, "Sums", answer_kind, "old-1", "Think."), QUESTIONS)
            for llm in ("alpha", "org/beta"):
                writer.add_pools(name, LLMInfo(llm, 0.5, decoding={"top_p": 0.9}), "words", pools())
    return out


def pools():
    return [
        PoolRows(
            question.id,
            [text for text, _ in cots],
            [answer for _, answer in cots],
            [answer for _, answer in cots],
            [7] * len(cots),
            ["stop"] * len(cots),
            "[]",
            3,
            {"seed": list(range(len(cots)))},
        )
        for question, cots in zip(QUESTIONS, COTS, strict=True)
    ]


@pytest.fixture
def old(tmp_path):
    return write(tmp_path / "old")


def linked(one, other):
    """The files that two recordings share on the disk."""
    return {
        path
        for path in content(one)
        if (other / path).exists() and (one / path).samefile(other / path)
    }


def test_answers_are_read_again_and_what_changed_is_counted(old, tmp_path):
    before, steps = content(old), list[tuple[int, int]]()
    extraction = extract(
        old, tmp_path / "new", answer_kind="number", progress=lambda *done: steps.append(done)
    )
    assert content(old) == before
    assert steps == [(done, 6) for done in range(7)]  # pools
    assert linked(old, tmp_path / "new") == {
        f"{part}/sums/{llm}.parquet"
        for part in ("requests", "texts")
        for llm in ("alpha", "org--beta")
    }
    [sums] = extraction.datasets
    alpha, beta = sums.llms
    assert (alpha.llm, beta.llm) == ("alpha", "org/beta")
    assert (alpha.cots, alpha.without_text) == (7, 1)
    assert (alpha.gained, alpha.lost, alpha.changed) == (1, 1, 3)
    # before: "1/2" and one "4" equal the golds as strings; now the three halves and the first four
    # do
    assert (alpha.right_before, alpha.right_after) == (2, 4)
    assert alpha.examples == (
        AnswerChange("q/1", 0, None, "4", None, "4"),
        AnswerChange("q/0", 2, "2", None, "2", None),
        AnswerChange("q/0", 1, "1/2", "0.5", "1/2", "1/2"),
        AnswerChange("q/0", 3, "0.50", "0.5", "0.50", "0.50"),
        AnswerChange("q/1", 1, "4", "5", "4", "5"),
    )
    assert replace(beta, llm="alpha") == alpha
    assert (sums.golds_changed, sums.gold_examples) == (
        1,
        (GoldChange("q/0", "1/2", "1/2", "0.5"),),
    )
    assert (sums.answer_kind_before, sums.answer_kind) == ("verbatim", "number")
    assert (sums.extractor_before, sums.extractor) == ("old-1", EXTRACTOR_VERSION)
    assert extraction.notes == (
        "sums: 2 CoTs have no text; their raw answers are those of the parent.",
    )


def test_the_new_recording_is_whole_and_says_where_it_comes_from(old, tmp_path):
    extraction = extract(old, tmp_path / "new", answer_kind="number")
    assert verify_recording(extraction.path).problems == ()
    made, parent = open_recording(extraction.path), open_recording(old)
    assert (made.hash, parent.hash) == (extraction.recording_hash, extraction.parent_hash)
    assert made.hash != parent.hash
    raw = made.manifest.raw
    assert raw["parents"] == [{"hash": parent.hash, "operation": {"name": "test"}}]
    assert raw["operation"] == {
        "name": "extract",
        "answers": "text",
        "extractors": {"sums": EXTRACTOR_VERSION},
        "answer_kind": "number",
    }
    assert raw["notes"] == ["Before answers were extracted again: Odd.", *extraction.notes]
    assert raw["licences"]["outputs"] == "MIT"
    assert made.dataset_info("sums") == DatasetInfo(
        "sums", "Sums", "number", EXTRACTOR_VERSION, "Think."
    )
    assert made.llm_info("org/beta") == parent.llm_info("org/beta")
    for mine, theirs in zip(
        made.pools("sums", "alpha"), parent.pools("sums", "alpha"), strict=True
    ):
        assert replace(mine, raw_answers=theirs.raw_answers, answers=theirs.answers) == theirs
    assert [pool.answers for pool in made.pools("sums", "alpha")] == [
        ["0.5", "0.5", None, "0.5"],
        ["4", "5", None],
        [],
    ]
    assert made.votes("sums").gold.tolist() == [0, 0, -1]


def test_a_second_extraction_changes_nothing(old, tmp_path):
    once = extract(old, tmp_path / "once", answer_kind="number")
    twice = extract(once.path, tmp_path / "twice")
    assert twice.recording_hash == once.recording_hash
    assert [(llm.gained, llm.lost, llm.changed) for llm in twice.datasets[0].llms] == [
        (0, 0, 0)
    ] * 2
    assert twice.datasets[0].golds_changed == 0
    # All but README.md and the manifest: golds, answers and votes are the same bytes.
    assert content(once.path).keys() - linked(once.path, twice.path) == {
        "README.md",
        "manifest.json",
    }
    assert verify_recording(twice.path).ok
    notes = open_recording(twice.path).manifest.raw["notes"]
    assert notes == [
        "Before answers were extracted again: Odd.",
        f"Before answers were extracted again: {once.notes[0]}",
        once.notes[0],
    ]


def test_a_link_in_a_cache_is_followed_and_the_parent_may_be_deleted(old, tmp_path):
    texts = old / "texts" / "sums" / "alpha.parquet"
    texts.rename(tmp_path / "blob")
    texts.symlink_to(tmp_path / "blob")
    extract(old, tmp_path / "new", answer_kind="number")
    assert not (tmp_path / "new" / "texts" / "sums" / "alpha.parquet").is_symlink()
    (tmp_path / "blob").unlink()
    shutil.rmtree(old)
    assert verify_recording(tmp_path / "new").ok


@pytest.mark.parametrize("part", ["texts", "requests", "samples", "questions"])
def test_a_damaged_parent_leaves_nothing(old, tmp_path, part):
    path = next((old / part).rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedRecordingError, match=part):
        extract(old, tmp_path / "new", answer_kind="number")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_stored_answers_get_new_keys_only(old, tmp_path):
    extraction = extract(old, tmp_path / "new", answer_kind="number", source="stored")
    alpha = extraction.datasets[0].llms[0]
    assert (alpha.gained, alpha.lost, alpha.changed, extraction.notes) == (0, 0, 2, ())
    pools = list(open_recording(tmp_path / "new").pools("sums", "alpha"))
    assert [pool.answers for pool in pools] == [["0.5", "0.5", "2", "0.5"], [None, "4", None], []]
    assert [pool.raw_answers for pool in pools] == [
        pool.raw_answers for pool in open_recording(old).pools("sums", "alpha")
    ]


def test_verbatim_is_not_in_texts(old, tmp_path):
    with pytest.raises(AnswerError, match="sums would have the answer kind 'verbatim'"):
        extract(old, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    extract(old, tmp_path / "new", source="stored")
    assert open_recording(tmp_path / "new").dataset_info("sums").extractor == EXTRACTOR_VERSION


def test_each_dataset_keeps_its_kind(tmp_path):
    write(tmp_path / "old", kind="number", more=("words", "text"))
    extraction = extract(tmp_path / "old", tmp_path / "new")
    assert [(changes.dataset, changes.answer_kind) for changes in extraction.datasets] == [
        ("sums", "number"),
        ("words", "text"),
    ]
    with pytest.raises(UsageError, match="answer kinds number, text; 'date' cannot suit them all"):
        extract(tmp_path / "old", tmp_path / "other", answer_kind="date")


def test_wrong_names_and_folders_are_refused(old, tmp_path):
    with pytest.raises(UnknownNameError, match="answer kind 'nubmer'"):
        extract(old, tmp_path / "new", answer_kind="nubmer")
    with pytest.raises(UnknownNameError, match="place to take answers from"):
        extract(old, tmp_path / "new", source="air")
    with pytest.raises(StorageError, match="exists already"):
        extract(old, old, answer_kind="number")


def test_the_command_shows_what_changed(old, tmp_path):
    out = tmp_path / "new"
    done = feval("extract", old, "--answer-kind number --out", out)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"{out}: 14 CoTs, 2 LLMs, 1 dataset, hash ")
    assert "sums     org/beta     7       1     1        3             2          4" in done.stdout
    assert (
        f"sums: answer kind number (was verbatim), extractor {EXTRACTOR_VERSION} (was old-1)."
        in done.stdout
    )
    assert "golds that changed: 1" in done.stdout
    assert (
        done.stderr
        == "note: sums: 2 CoTs have no text; their raw answers are those of the parent.\n"
    )


def test_the_command_prints_json(old, tmp_path):
    out = tmp_path / "new"
    done = feval("extract", old, "--answer-kind number --out", out, "--json")
    account = json.loads(done.stdout)
    assert (account["path"], account["recording_hash"]) == (str(out), open_recording(out).hash)
    assert account["datasets"][0]["llms"][0]["examples"][0]["after"] == "4"
