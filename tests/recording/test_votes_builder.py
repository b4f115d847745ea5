"""The votes files, made block by block: the same bytes as with everything in memory, in little
memory.
"""

from __future__ import annotations

import errno
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feval.answers.parties import Comparison, Parties, divide
from feval.cards.finish_reasons import FINISH_REASONS
from feval.errors import DamagedRecordingError
from feval.recording import PoolRows, ProbeRows
from feval.recording.content import Question
from feval.recording.sealing import probe_columns, spill
from feval.recording.sealing.question_table import QuestionTable
from feval.recording.sealing.votes_builder import VotesBuilder
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


def as_they_are(question: str, forms: list[str], gold: str | None) -> Parties:
    return Parties({}, gold)


def by_length(
    question: str, forms: list[str], gold: str | None, of_probes: Sequence[str] = ()
) -> Parties:
    return divide(
        forms, gold, Comparison(lambda left, right: len(left) == len(right)), later=of_probes
    )[0]


def pools_of(rows: Sequence[Sequence[tuple[str | None, int, str]] | None]) -> Iterator[PoolRows]:
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


def files(
    questions: Sequence[Question],
    pools: dict[str, list[PoolRows]],
    *,
    join: bool,
    folder: Path | None = None,
) -> dict[str, bytes]:
    with closing(VotesBuilder(QuestionTable("toy", questions), folder)) as builder:
        for llm, own in pools.items():
            builder.add_llm(llm)
            for each in own:
                builder.add(llm, each)
        if join:
            builder.join(by_length)
        return {part: b"".join(blocks) for part, blocks in builder.files().items()}


@given(LLMS, st.booleans(), st.booleans())
def test_the_bytes_are_those_of_the_plain_way(
    drawn: tuple[list[str | None], list[list[list[tuple[str | None, int, str]] | None]]],
    join: bool,
    tiny_blocks: bool,
) -> None:
    golds, llms = drawn
    questions = [question(i, gold) for i, gold in enumerate(golds)]
    pools = {f"llm {i}": list(pools_of(rows)) for i, rows in enumerate(llms)}
    with pytest.MonkeyPatch.context() as patch:
        if tiny_blocks:
            for module, name in (
                (spill, "_IN_MEMORY_BYTES"),
                (spill, "_BLOCK_BYTES"),
                (probe_columns, "_BLOCK_CELLS"),
            ):
                patch.setattr(module, name, 8)
        assert files(questions, pools, join=join) == votes_files(
            "toy", questions, pools, by_length if join else as_they_are
        )


@pytest.mark.parametrize("answers", [126, 127, 40_000])
def test_codes_are_as_wide_as_the_question_with_most_answers_needs(answers: int) -> None:
    questions = [question(0, "none of them"), question(1, None)]
    pools = {
        "alpha": [pool(0, [str(i) for i in range(answers)])],
        "beta": [pool(0, ["x"]), pool(1, ["7", "7"])],
    }
    assert files(questions, pools, join=False) == votes_files("toy", questions, pools, as_they_are)


def test_whether_cots_are_correct_follows_the_parties() -> None:
    questions = [question(0, "4"), question(1, None), question(2, "7"), question(3, "4")]
    with closing(VotesBuilder(QuestionTable("toy", questions))) as builder:
        builder.add_llm("alpha")
        for each in (pool(0, ["5", "55", None]), pool(1, ["5"]), pool(2, []), pool(3, ["4", "44"])):
            builder.add("alpha", each)
        builder.join(by_length)
        assert list(builder.correct("alpha")) == [True, False, False, None, True, False]


@pytest.mark.parametrize(
    ("index", "words"),
    [(0, "'toy/0', which is out of order"), (9, "'toy/9', which is no question of toy")],
)
def test_a_pool_that_is_unknown_or_out_of_order_is_refused(index: int, words: str) -> None:
    with closing(
        VotesBuilder(QuestionTable("toy", [question(0, "4"), question(1, "4")]))
    ) as builder:
        builder.add_llm("alpha")
        builder.add("alpha", pool(1, ["4"]))
        with pytest.raises(DamagedRecordingError, match=words):
            builder.add("alpha", pool(index, ["4"]))


def peak_bytes(cots: int, folder: Path) -> int:
    """The most memory that votes and probes of 50 questions took at once, from the first CoT to the
    last byte.
    """
    questions = QuestionTable("toy", [question(i, "4") for i in range(50)])
    own = pool(0, [str(i % 7) for i in range(cots)])
    samples = [i for i in range(cots) for _ in range(2)]
    probes = ProbeRows(
        "",
        samples,
        [5, 10] * cots,
        *[[str(i % 9) for i in samples]] * 2,
        confidences=[0.5, None] * cots,
    )
    tracemalloc.start()
    try:
        with closing(VotesBuilder(questions, folder)) as builder:
            for llm in ("alpha", "beta"):
                builder.add_llm(llm)
                for i in range(50):
                    builder.add(llm, replace(own, question_id=f"toy/{i}"))
            builder.add_llm_probes("beta")
            for i in range(50):
                builder.add_probes("beta", replace(probes, question_id=f"toy/{i}"))
            assert (
                sum(len(block) for _, blocks in builder.probe_files() for block in blocks)
                > 50 * 2 * 9 * cots
            )
            assert (
                sum(len(block) for blocks in builder.files().values() for block in blocks)
                > 2 * 50 * 3 * cots
            )
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_cots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "_IN_MEMORY_BYTES", 1000)
    monkeypatch.setattr(spill, "_BLOCK_BYTES", 1000)
    monkeypatch.setattr(probe_columns, "_BLOCK_CELLS", 1000)
    few, many = peak_bytes(50, tmp_path), peak_bytes(400, tmp_path)
    # the CoTs that one has more would be 315,000 bytes of votes, and 630,000 of probes
    assert many - few < 150_000
    assert not list(tmp_path.iterdir())


def test_a_file_that_a_full_disk_cut_short_is_given_back_in_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its error would be a traceback when the process ends, behind the sentence about the disk."""
    file = spill.Spill()
    close = file._file.close

    def full() -> None:
        close()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(file._file, "close", full)
    file.close()
    monkeypatch.undo()
