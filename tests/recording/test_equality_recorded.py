"""Equal answers of a recording: compared when it is sealed, voting together ever after, whatever is
installed or opened.
"""

from contextlib import contextmanager
from functools import partial
from itertools import count

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from places import read_data
from small import change_column, import_rows, stated

from feval import evaluate, load
from feval.answers import equality, equivalence
from feval.errors import AnswerError, ConflictError, SeparateAnswersWarning, UsageError
from feval.evaluation import curves
from feval.evaluation.cautions import few_questions
from feval.evaluation.requests import Consumption
from feval.forecast import estimate
from feval.methods import SelfConsistency, SingleCall
from feval.receipts.grading import grade_answers
from feval.recording import (
    DatasetInfo,
    LLMInfo,
    PoolRows,
    Question,
    RecordingWriter,
    extract,
    merge,
    open_recording,
    select,
)
from feval.recording.verify import verify_recording
from feval.report.tables.recordings import info_dict, info_tables
from feval.report.tables.tables import plain

pytestmark = pytest.mark.skipif(
    equality.version() is None, reason="math-verify is not installed (the extra `math`)"
)

ANSWERS = ["x+1", "1+x", "x+2", "2+x", "\\frac{2x+4}{2}"]


def recorded(out, answers=ANSWERS, gold="x+1", llm="some-llm", kind="latex", **options):
    samples = [
        {"text": f"The answer is ${answer}$.", "answer": answer, "tokens": 5} for answer in answers
    ]
    row = {
        "id": "q",
        "question": "What is it?",
        "answer": gold,
        "prompt_tokens": 3,
        "samples": samples,
    }
    options = {"dataset": "maths", "answer_kind": kind, "prices": "none"} | options
    return import_rows(out, [row], llm=llm, **options)


def accuracy(recording, n=5, llms=None):
    dataset, opened = load("maths", llms, recording)
    return evaluate(SelfConsistency(n=n), dataset, opened[0], confidence=None).accuracy


@contextmanager
def math_verify_gone(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(equality, "version", lambda: None)
        patch.setattr(equality, "equal", lambda *_: pytest.fail("asked"))
        yield


def test_two_right_votes_lose_against_three_equal_wrong_ones(tmp_path):
    assert accuracy(recorded(tmp_path / "two-of-five")) == 0
    assert accuracy(recorded(tmp_path / "three-of-five", gold="x+2")) == 1


def test_the_answers_of_a_recording_stay_normal_forms_and_say_which_are_right(tmp_path):
    recording = recorded(tmp_path / "rec")
    samples = pq.read_table(recording / "samples/maths/some-llm.parquet").to_pydict()
    assert samples["answer"] == ANSWERS
    assert samples["correct"] == [True, True, False, False, False]
    assert samples["llm"] == ["some-llm"] * 5
    _, [llm] = load("maths", None, recording)
    assert llm.answers(0, range(5)) == ["1+x", "1+x", "2+x", "2+x", "2+x"]


def test_the_verdicts_are_a_part_of_the_recording_with_a_leaf(tmp_path):
    recording = recorded(tmp_path / "rec")
    rows = pq.read_table(recording / "equality/maths.parquet").to_pylist()
    assert [(row["left"], row["right"], row["equal"]) for row in rows] == [
        ("1+x", "2+x", False),
        ("1+x", "\\frac{2x+4}{2}", False),
        ("2+x", "\\frac{2x+4}{2}", True),
        ("1+x", "x+1", True),
        ("1+x", "x+2", False),
        ("2+x", "x+2", True),
    ]
    manifest = stated(recording)
    assert [leaf["llm"] for leaf in manifest["leaves"] if leaf["part"] == "equality"] == [None]
    assert manifest["datasets"][0]["equality"] == {
        "name": f"math-verify-{equality.version()}",
        "equal": 3,
        "different": 3,
        "undecided": 0,
        "not_asked": 0,
    }
    plainly = recorded(tmp_path / "plain", equality="normal-form")
    assert not (plainly / "equality").exists()
    assert open_recording(plainly).hash != open_recording(recording).hash


def test_a_reader_needs_no_math_verify(tmp_path, monkeypatch):
    recording = recorded(tmp_path / "rec", gold="x+2")
    with math_verify_gone(monkeypatch):
        assert accuracy(recording) == 1
        assert verify_recording(recording).ok
        dataset, _ = load("maths", None, recording)
        assert dataset.is_right("q", "\\dfrac{2x+4}{2}")
        chosen = select(recording, tmp_path / "first-three", samples=3)
        assert verify_recording(chosen).ok
        assert accuracy(chosen, n=3) == 0


def test_parties_do_not_depend_on_which_llms_are_opened(tmp_path):
    """The form that stands for a party may be one that only another LLM gave."""
    both = merge(
        [
            recorded(tmp_path / "a", ["x+2", "2+x"], llm="a"),
            recorded(tmp_path / "b", ["1+1+x"], llm="b"),
        ],
        tmp_path / "both",
    )
    assert verify_recording(both).ok
    _, [alone] = load("maths", ["a"], both)
    _, [first, second] = load("maths", ["a", "b"], both)
    assert (
        alone("q", n=2).answers
        == first("q", n=2).answers
        == 2 * second("q", n=1).answers
        == ["1+1+x"] * 2
    )


def test_a_merge_compares_the_answers_of_all(tmp_path):
    parts = [recorded(tmp_path / "a", ["x+1"], llm="a"), recorded(tmp_path / "b", ["1+x"], llm="b")]
    with pytest.warns(
        SeparateAnswersWarning, match=r"2 recordings of maths are opened together.*`feval merge`"
    ):
        _, opened = load("maths", None, parts)
    assert [llm("q", n=1).answers for llm in opened] == [["x+1"], ["1+x"]]
    _, opened = load("maths", None, merge(parts, tmp_path / "both"))
    assert [llm("q", n=1).answers for llm in opened] == [["1+x"], ["1+x"]]


def test_recordings_that_are_opened_together_join_where_a_normal_form_is_common(tmp_path):
    parts = [
        recorded(tmp_path / "a", ["x+1", "1+x", "7"], llm="a", gold=None),
        recorded(tmp_path / "b", ["x+1", "\\frac{2x+2}{2}"], llm="b", gold="x+1"),
        recorded(tmp_path / "c", ["7"], llm="c", gold="x+1"),
    ]
    with pytest.warns(SeparateAnswersWarning):
        dataset, opened = load("maths", None, parts)
    answers = [llm.answers(0, range(size)) for llm, size in zip(opened, (3, 2, 1), strict=True)]
    assert answers == [["1+x", "1+x", "7"], ["1+x", "1+x"], ["7"]]
    assert dataset.is_right("q", "\\frac{2x+2}{2}")
    assert not dataset.is_right("q", "7")


def test_recordings_of_different_equality_are_not_opened_together(tmp_path):
    parts = [
        recorded(tmp_path / "a", llm="a"),
        recorded(tmp_path / "b", llm="b", equality="normal-form"),
    ]
    with pytest.raises(
        ConflictError,
        match=r"equality of answers 'math-verify-.*' in .* but 'normal-form'.*feval extract",
    ):
        load("maths", None, parts)
    with pytest.raises(ConflictError, match="equality='NAME'"):
        merge(parts, tmp_path / "both")
    merged = open_recording(merge(parts, tmp_path / "both", equality="normal-form"))
    assert merged.dataset_info("maths").equality == "normal-form"


def test_latex_is_not_imported_without_math_verify_unless_by_normal_form(tmp_path, monkeypatch):
    with math_verify_gone(monkeypatch):
        with pytest.raises(
            AnswerError, match=r"not installed\. Install it.*equality='normal-form'"
        ):
            recorded(tmp_path / "rec")
        assert not (tmp_path / "rec").exists()
        assert accuracy(recorded(tmp_path / "plain", equality="normal-form"), n=1) == pytest.approx(
            0.2
        )


def test_pairs_without_a_verdict_are_counted_in_notes_and_info(tmp_path, monkeypatch):
    monkeypatch.setattr(equality, "equal", lambda *_: None)
    monkeypatch.setattr(
        equivalence, "monotonic", partial(next, count(0, equivalence.SECONDS_PER_QUESTION / 3))
    )
    recording = open_recording(recorded(tmp_path / "rec"))
    counts = info_dict(recording)["datasets"][0]["equality"]
    assert (counts["undecided"], counts["not_asked"]) == (3, 7)
    [remark] = verify_recording(recording.path).remarks
    assert "maths: 10 pairs of answers have no verdict" in remark
    notes = recording.manifest.raw["notes"]
    assert any("3 pairs of answers could not be compared in time" in note for note in notes)
    assert any("7 pairs of answers were beyond the budget" in note for note in notes)
    assert "(10 pairs without a verdict)" in "".join(
        plain(table) for table in info_tables(recording)
    )


def test_extracting_again_changes_nothing_and_compares_nothing_twice(tmp_path, monkeypatch):
    recording = recorded(tmp_path / "rec")
    monkeypatch.setattr(equality, "equal", lambda *_: pytest.fail("asked"))
    again = extract(recording, tmp_path / "again", source="stored")
    assert again.recording_hash == open_recording(recording).hash
    assert verify_recording(again.path).ok


def test_extraction_counts_right_answers_as_they_vote(tmp_path):
    plainly = recorded(tmp_path / "plain", ["x+1", "1+x", "x+2"], "1+x", equality="normal-form")
    equal = extract(plainly, tmp_path / "equal", source="stored")
    back = extract(equal.path, tmp_path / "back", source="stored", equality="normal-form")
    assert open_recording(equal.path).dataset_info("maths").equality.startswith("math-verify-")
    assert back.recording_hash == open_recording(plainly).hash
    counts = [
        (llm.right_before, llm.right_after)
        for made in (equal, back)
        for llm in made.datasets[0].llms
    ]
    assert counts == [(1, 2), (2, 1)]


def test_an_import_counts_right_answers_as_they_vote(tmp_path):
    samples = [{"text": "a reply", "answer": answer} for answer in ("x+1", "1+x", "1 + x", "x+2")]
    row = {"id": "q", "question": "?", "gold": "x+1", "samples": samples}
    made = import_rows(tmp_path / "made", [row], dataset="math_500", llm="m")
    assert any(
        "m: 75.0 % and 25.0 %" in note for note in open_recording(made).manifest.raw["notes"]
    )


def test_a_tolerance_is_an_equality_of_the_recording(tmp_path):
    numbers = ["3.14159", "3.1416", "3.2"]
    recording = recorded(
        tmp_path / "rec", numbers, "3.141592", kind="number", equality="tolerance-1e-4"
    )
    assert open_recording(recording).dataset_info("maths").equality == "tolerance-0.0001"
    assert accuracy(recording, n=3) == 1
    assert verify_recording(recording).ok
    with pytest.raises(UsageError, match="no equality"):
        recorded(tmp_path / "no", numbers, "3", kind="text", equality="tolerance-1e-4")


@pytest.mark.parametrize("column", ["left", "right", "equal"])
def test_changed_verdicts_are_found(tmp_path, column):
    recording = recorded(tmp_path / "rec")
    change_column(
        recording,
        "equality/maths.parquet",
        column,
        lambda values: [not values[0] if column == "equal" else "3", *values[1:]],
    )
    assert any(
        "Leaf maths / equality" in problem for problem in verify_recording(recording).problems
    )


def written(out, kind, extractor, gold, answers, **fields):
    """A recording with these normal forms."""
    with RecordingWriter(out, operation={"name": "import"}, prices="none") as writer:
        writer.add_dataset(
            DatasetInfo("maths", "Maths", kind, extractor),
            [Question("q", "What is it?", gold, gold)],
        )
        size = len(answers)
        pool = PoolRows("q", [None] * size, answers, answers, [5] * size, ["stop"] * size, **fields)
        writer.add_pools("maths", LLMInfo("some-llm"), "usage", [pool])
    return out


def test_recordings_whose_answers_were_read_by_other_rules_say_so_together(tmp_path):
    old = written(tmp_path / "old", "number", "feval-answers-1", "109", ["109.00000000000001"])
    new = recorded(
        tmp_path / "new", ["109.00000000000001"], gold="109", llm="other-llm", kind="number"
    )
    with pytest.warns(
        SeparateAnswersWarning,
        match=r"feval-answers-1 in .*old, feval-answers-3 in .*feval extract",
    ):
        load("maths", None, [old, new])


def judged(dataset, llm, answer):
    """Whether `evaluate`, `grade` and `is_right`, which agree, find an answer to "q" right, and the
    cautions of the first two.
    """
    evaluated = evaluate(
        lambda _q, llm: llm.sample(1) and answer, dataset, llm, replicates=3, confidence=None
    )
    asked = [Consumption(llm="some-llm", question="q", requests=1, samples=(0,))]
    graded = grade_answers(dataset, [llm], asked, {"q": answer}, run="r", confidence=None)
    assert evaluated.accuracy == graded.accuracy == dataset.is_right("q", answer)
    assert [each.partition(":")[0] for each in evaluated.cautions] == [
        each.partition(":")[0] for each in graded.cautions
    ]
    return evaluated.accuracy == 1, [*evaluated.cautions, *graded.cautions]


@pytest.mark.parametrize("answer", ["$12.0", "12", "12.00", " 12 ", "twelve"])
def test_a_method_is_judged_by_what_its_answer_means(tmp_path, answer):
    """`evaluate`, `is_right` and `grade` are one judge."""
    dataset, [llm] = load(
        "maths", None, recorded(tmp_path / "rec", ["7", "12"], "12", kind="number")
    )
    assert judged(dataset, llm, answer)[0]


@pytest.mark.parametrize(
    ("kind", "equality", "gold", "recorded_answers"), read_data("answers.json")["recorded golds"]
)
def test_the_golds_own_text_is_right_under_every_equality(
    tmp_path, kind, equality, gold, recorded_answers
):
    rec = recorded(tmp_path / "rec", recorded_answers, gold, kind=kind, equality=equality)
    dataset, [llm] = load("maths", None, rec)
    assert judged(dataset, llm, gold) == (True, [])
    assert dataset.answer_key("q", gold) == dataset.candidates("q")[dataset.gold[0]]


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("99.5", True),
        ("$99.1", True),
        ("98.9", False),
        ("101.9", True),
        ("102", False),
        ("7", False),
        ("nothing", False),
    ],
)
def test_numbers_that_nobody_recorded_are_compared_under_a_tolerance(tmp_path, answer, right):
    # 1 %: within 1 of the gold, or of the recorded 100.9, which votes with it: 101.9 - 100.9 = 1 <=
    # 1.019.
    rec = recorded(
        tmp_path / "rec", ["100.9", "7"], "100", kind="number", equality="tolerance-0.01"
    )
    dataset, [llm] = load("maths", None, rec)
    assert judged(dataset, llm, answer) == (right, [])
    assert dataset.answer_key("q", "7.07") == "7"


def test_latex_that_nobody_recorded_is_counted_beside_the_result(tmp_path):
    dataset, [llm] = load("maths", None, recorded(tmp_path / "rec", gold="x+2"))
    right, (evaluated, graded) = judged(dataset, llm, "\\frac{4+2x}{2}")
    assert not right
    assert "in a spelling of LaTeX that nobody recorded: 3 of 3." in evaluated
    assert "in a spelling of LaTeX that nobody recorded: 1 of 1." in graded
    plainly, [llm] = load(
        "maths", None, recorded(tmp_path / "plain", gold="x+2", equality="normal-form")
    )
    assert judged(plainly, llm, "\\frac{4+2x}{2}") == (False, [])
    numbers, [llm] = load("maths", None, recorded(tmp_path / "numbers", ["7"], gold="0.5"))
    assert judged(numbers, llm, "\\frac{1}{3}") == (False, [])  # two numbers differ for good


def test_a_cot_is_right_by_its_own_answer_whatever_its_party_holds(tmp_path):
    """98.5 and 99 differ by less than 1 %, as 99 and 100 do, 98.5 and 100 by more: they are one
    party, in which A is right and B wrong.
    """
    options = {"gold": "98.5", "kind": "number", "equality": "tolerance-0.01"}
    first, second = (
        recorded(tmp_path / "a", ["99"] * 2, llm="a", **options),
        recorded(tmp_path / "b", ["100"] * 2, llm="b", **options),
    )
    dataset, llms = load("maths", None, merge([first, second], tmp_path / "both"))
    assert dataset.mixed_parties == 1
    assert [evaluate(SingleCall(), dataset, llm).accuracy for llm in llms] == [1, 0]
    assert [dataset.is_right("q", answer) for answer in ("99", "100", "98")] == [True, False, True]
    result = curves.self_consistency_curve(dataset, llms[0], [1])
    assert (result.points[0].accuracy, result.warnings) == (1, tuple(few_questions(1)))
    with pytest.raises(UsageError, match="On 1 of 1 questions of maths several answers are right"):
        estimate(dataset, llms[0], g=1, m=[1], methods=["plug-in"], resamples=100)


def test_a_selection_of_questions_keeps_their_verdicts_only(tmp_path):
    rows = [
        {
            "id": name,
            "question": name,
            "answer": "7",
            "samples": [{"text": "", "answer": f"{x}+1"}, {"text": "", "answer": f"1+{x}"}],
        }
        for name, x in (("first", "x"), ("second", "y"))
    ]
    whole = import_rows(tmp_path / "two", rows, llm="m", answer_kind="latex", prices="none")
    assert list(open_recording(whole).verdicts("d")) == ["first", "second"]
    chosen = select(whole, tmp_path / "one", questions=["second"])
    assert list(open_recording(chosen).verdicts("d")) == ["second"]
    assert verify_recording(chosen).ok


def test_times_are_timestamps_and_hash_as_they_did(tmp_path):
    times = ["2026-11-22T14:31:41Z", "2026-11-22T15:31:41.5+01:00", "2026-11-22"]
    recording = written(
        tmp_path / "rec", "number", "new", "1", ["1"] * 3, extra={"recorded_at": times}
    )
    schema = pq.read_schema(recording / "samples/maths/some-llm.parquet")
    assert schema.field("recorded_at").type == pa.timestamp("us", "UTC")
    [read] = open_recording(recording).pools("maths", "some-llm")
    assert read.extra["recorded_at"] == [
        "2026-11-22T14:31:41Z",
        "2026-11-22T14:31:41.500000Z",
        "2026-11-22T00:00:00Z",
    ]
    assert verify_recording(recording).ok


def test_a_time_that_is_none_is_refused(tmp_path):
    with pytest.raises(
        UsageError, match=r"some-llm on maths, question 'q': A time should be ISO 8601.*'yesterday'"
    ):
        written(tmp_path / "rec", "number", "new", "1", ["1"], extra={"recorded_at": ["yesterday"]})
