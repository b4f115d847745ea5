"""The votes files, made in a second pass: they say what was answered, and take little memory."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from small import pool, question, write_rows

from feval.answers.equivalence import AnswerClasses, PairVerdict, classify
from feval.cards.names import FINISH_REASONS
from feval.recording import ProbeRows, open_recording, votes_building
from feval.recording.content import QuestionTable
from feval.recording.layout import flat
from feval.recording.layout.files import write_file
from feval.recording.parquet import reading
from feval.recording.votes import ABSENT, open_votes
from feval.recording.votes_building import Scratch, VotesBuilder

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


def by_length(question, forms, gold, of_probes=()):
    return classify(
        forms, gold, PairVerdict(lambda left, right: len(left) == len(right)), later=of_probes
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


def built(folder, golds, pools, divide=None):
    """The votes of a recording, read from the files that a builder makes."""
    recording = open_recording(write_rows(folder / "r", golds, *pools.items()))
    questions = QuestionTable("toy", recording.questions("toy"))
    with Scratch(folder) as scratch:
        builder = VotesBuilder(recording, questions, scratch)
        builder.build(divide)
        places = [
            (folder / part, write_file(folder / part, blocks, len(golds)))
            for part, blocks in builder.files()[0].items()
        ]
    return open_votes(*places[0], places[1])


@given(LLMS, st.booleans(), st.booleans())
def test_the_arrays_say_what_was_answered(tmp_path_factory, drawn, join, tiny_blocks):
    golds, llms = drawn
    pools = {f"llm {i}": list(pools_of(rows)) for i, rows in enumerate(llms)}
    with pytest.MonkeyPatch.context() as patch:
        if tiny_blocks:
            for name in ("_IN_MEMORY_BYTES", "_BLOCK_BYTES", "_BLOCK_QUESTIONS"):
                patch.setattr(votes_building, name, 2)
        votes = built(tmp_path_factory.mktemp("r"), golds, pools, by_length if join else None)
    of_question = {llm: {own.question_id: own for own in rows} for llm, rows in pools.items()}
    for row, gold in enumerate(golds):
        name = f"toy/{row}"
        assert votes.question_ids[row] == name
        own = {llm: rows.get(name) or pool(row, []) for llm, rows in of_question.items()}
        given = [answer for each in own.values() for answer in each.answers]
        forms = [form for form in dict.fromkeys(given) if form is not None]
        parties = by_length(name, forms, gold) if join else AnswerClasses({}, gold)
        keys = dict.fromkeys(
            [*map(parties.key, forms), *([] if parties.gold is None else [parties.gold])]
        )
        assert votes.candidates(row) == [*keys]
        known = [*keys, None]  # of which -1 is the last
        assert known[votes.gold[row]] == parties.gold
        assert {form: known[code] for form, code in votes.aliases(row).items()} == {
            form: key for form, key in parties.joined.items() if key in keys
        }
        for llm, each in own.items():
            arrays, size = votes.llms[llm], len(each.answers)
            assert arrays.sizes[row] == size
            assert [known[code] for code in arrays.codes[row, :size]] == [
                answer if answer is None else parties.key(answer) for answer in each.answers
            ]
            assert (arrays.codes[row, size:] == ABSENT).all()
            assert arrays.output_tokens[row, :size].tolist() == each.output_tokens
            assert [FINISH_REASONS[at] for at in arrays.finish[row, :size]] == each.finish_reasons
            sent = each.prompt_tokens if name in of_question[llm] else None
            assert arrays.prompt_tokens[row] == (-1 if sent is None else sent)


@pytest.mark.parametrize(("answers", "kind"), [(125, "int8"), (126, "int16"), (40_000, "int32")])
def test_codes_are_as_wide_as_the_question_with_most_answers_needs(tmp_path, answers, kind):
    pools = {
        "alpha": [pool(0, [str(i) for i in range(answers)])],
        "beta": [pool(0, ["x"]), pool(1, ["7", "7"])],
    }
    votes = built(tmp_path, [None, None], pools)
    assert {llm.codes.dtype for llm in votes.llms.values()} == {np.dtype(kind)}
    assert votes.llms["alpha"].codes[0].tolist() == [*range(answers)]
    assert votes.llms["beta"].codes.tolist() == [[answers, ABSENT], [0, 0]]


def test_whether_cots_are_correct_follows_the_parties(tmp_path):
    own = [pool(0, ["5", "55", None]), pool(1, ["5"]), pool(2, []), pool(3, ["4", "44"])]
    recording = open_recording(write_rows(tmp_path / "r", ["4", None, "7", "4"], ("alpha", own)))
    with Scratch() as scratch:
        questions = QuestionTable("toy", recording.questions("toy"))
        builder = VotesBuilder(recording, questions, scratch)
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
    llms = (("alpha", pools), ("beta", pools))
    recording = open_recording(
        write_rows(folder / "r", ["4"] * count, *llms, probes={"beta": probes})
    )
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
