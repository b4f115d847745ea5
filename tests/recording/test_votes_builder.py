"""The votes files, made in a second pass: the same bytes as with everything in memory, in little
memory.
"""

import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feval.answers.equivalence import AnswerClasses, Comparison, classify
from feval.cards.names import FINISH_REASONS
from feval.recording import (
    DatasetInfo,
    LLMInfo,
    ProbeRows,
    RecordingWriter,
    open_recording,
    votes_building,
)
from feval.recording.content import QuestionTable
from feval.recording.layout import flat
from feval.recording.parquet import reading
from feval.recording.votes_building import Scratch, VotesBuilder
from tests.support.plain_votes import votes_files
from tests.support.small import pool, question

FORMS = ("4", "4.0", "5", "é\n", "", "five")
COT = st.tuples(
    st.sampled_from([None, *FORMS]), st.integers(0, 70_000), st.sampled_from(FINISH_REASONS)
)
POOL = st.one_of(st.none(), st.lists(COT, max_size=5))
LLMS = st.integers(0, 4).flatmap(
    lambda questions: st.tuples(
        st.lists(st.sampled_from([None, *FORMS]), min_size=questions, max_size=questions),
        st.lists(st.lists(POOL, min_size=questions, max_size=questions), max_size=3),
    )
)


def as_they_are(question, forms, gold):
    return AnswerClasses({}, gold)


def by_length(question, forms, gold, of_probes=()):
    return classify(
        forms, gold, Comparison(lambda left, right: len(left) == len(right)), later=of_probes
    )[0]


def pools_of(rows):
    for index, cots in enumerate(rows):
        if cots is not None:
            answers, tokens, reasons = ([cot[i] for cot in cots] for i in range(3))
            plain = pool(
                index,
                [str(answer) for answer in answers],
                tokens=tokens,
                prompt_tokens=index or None,
            )
            yield replace(plain, answers=answers, finish_reasons=reasons)


def written(folder, questions, pools, probes=None):
    with RecordingWriter(folder / "r", operation={}) as writer:
        writer.add_dataset(DatasetInfo("toy", "Toy", "verbatim", "test-1"), questions)
        for llm, own in pools.items():
            writer.add_pools("toy", LLMInfo(llm), "words", own)
        for llm, rows in (probes or {}).items():
            writer.add_probes("toy", llm, rows)
    return folder / "r"


def files(folder, questions, pools, *, join):
    recording = open_recording(written(folder, questions, pools))
    with Scratch(folder) as scratch:
        builder = VotesBuilder(recording, QuestionTable("toy", questions), scratch)
        builder.build(by_length if join else None)
        return {part: b"".join(blocks) for part, blocks in builder.files()[0].items()}


@given(LLMS, st.booleans(), st.booleans())
def test_the_bytes_are_those_of_the_plain_way(tmp_path_factory, drawn, join, tiny_blocks):
    golds, llms = drawn
    questions = [question(i, gold) for i, gold in enumerate(golds)]
    pools = {f"llm {i}": list(pools_of(rows)) for i, rows in enumerate(llms)}
    with pytest.MonkeyPatch.context() as patch:
        if tiny_blocks:
            for name in ("_IN_MEMORY_BYTES", "_BLOCK_BYTES", "_BLOCK_QUESTIONS"):
                patch.setattr(votes_building, name, 2)
        assert files(tmp_path_factory.mktemp("r"), questions, pools, join=join) == votes_files(
            "toy", questions, pools, by_length if join else as_they_are
        )


@pytest.mark.parametrize("answers", [126, 127, 40_000])
def test_codes_are_as_wide_as_the_question_with_most_answers_needs(tmp_path, answers):
    questions = [question(0, "none of them"), question(1, None)]
    pools = {
        "alpha": [pool(0, [str(i) for i in range(answers)])],
        "beta": [pool(0, ["x"]), pool(1, ["7", "7"])],
    }
    expected = votes_files("toy", questions, pools, as_they_are)
    assert files(tmp_path, questions, pools, join=False) == expected


def test_whether_cots_are_correct_follows_the_parties(tmp_path):
    questions = [question(0, "4"), question(1, None), question(2, "7"), question(3, "4")]
    own = [pool(0, ["5", "55", None]), pool(1, ["5"]), pool(2, []), pool(3, ["4", "44"])]
    recording = open_recording(written(tmp_path, questions, {"alpha": own}))
    with Scratch() as scratch:
        builder = VotesBuilder(recording, QuestionTable("toy", questions), scratch)
        builder.build(by_length)
        assert list(builder.correct("alpha")) == [True, False, False, None, True, False]
        assert builder.llms["alpha"].is_stale


def peak_bytes(count, folder, cots=50):
    """The most memory that votes and probes took at once, from the first CoT to the last byte."""
    questions = [question(i, "4") for i in range(count)]
    own = pool(0, [str(i % 7) for i in range(cots)])
    pools = [replace(own, question_id=each.id) for each in questions]
    samples = [i for i in range(cots) for _ in range(2)]
    answers, offsets = [str(i % 9) for i in samples], [5, 10] * cots
    confidences = [0.5, None] * cots
    probes = [
        ProbeRows(each.id, samples, offsets, answers, answers, confidences=confidences)
        for each in questions
    ]
    written(folder, questions, {"alpha": pools, "beta": pools}, {"beta": probes})
    recording = open_recording(folder / "r")
    tracemalloc.start()
    try:
        with Scratch(folder) as scratch:
            builder = VotesBuilder(recording, QuestionTable("toy", questions), scratch)
            builder.build()
            votes, flat = builder.files()
            assert sum(map(len, flat["beta"])) > count * 2 * 9 * cots
            assert sum(len(block) for own in votes.values() for block in own) > 2 * count * 3 * cots
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_cots(tmp_path, monkeypatch):
    monkeypatch.setattr(votes_building, "_IN_MEMORY_BYTES", 1000)
    monkeypatch.setattr(votes_building, "_BLOCK_BYTES", 1000)
    monkeypatch.setattr(flat, "_BLOCK_CELLS", 1000)
    monkeypatch.setattr(reading, "_PIECE_ROWS", 100)
    folders = [tmp_path / "few", tmp_path / "many"]
    for folder in folders:
        folder.mkdir()
    few, many = peak_bytes(25, folders[0]), peak_bytes(200, folders[1])
    # the CoTs that one has more would be 52,500 bytes of votes, and 157,500 of probes; what is
    # kept of each question (35,000 bytes here) depends on the Python, by some thousands
    assert many - few < 70_000
    assert [path.name for folder in folders for path in folder.iterdir()] == ["r", "r"]
