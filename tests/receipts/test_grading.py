"""Answers worked out elsewhere: graded against hand-counted values, and what cannot be graded is
said.
"""

import json
from dataclasses import replace

import pytest
from places import read_data
from small import TOY, letters, pool, write_rows, write_toy

from feval import SelfConsistency, evaluate, load, merge
from feval.errors import ConflictError, NotRecordedError, UnknownNameError, UsageError
from feval.evaluation.requests import Consumption
from feval.methods.vote import plurality
from feval.receipts.document import receipt as receipt_of
from feval.receipts.grading import answers_by_id, grade_answers
from feval.receipts.verifying import verify_receipt
from feval.report.tables.tables import grade_table

POOLS = letters("aaba", "xy-y", "bbbb", "cdc-")
GOLDS = ["a", "y", "b", "d"]
# 0.5 and 1.5 USD per million tokens in the price list 2025-06-02; prompts have 7 tokens
PRICED = "gpt-3.5-turbo"


@pytest.fixture
def toy(tmp_path):
    return write_toy(tmp_path / "toy", {PRICED: POOLS}, GOLDS)


@pytest.fixture
def loaded(toy):
    return load("toy", recording=toy)


def first(question, samples, requests=1, llm=PRICED):
    return Consumption(
        llm=llm, question=f"toy/{question}", requests=requests, samples=tuple(range(samples))
    )


ASKED = [first(0, 2), first(1, 3, 3), first(2, 1)]
ANSWERS = {"toy/0": "a", "toy/1": "x", "toy/2": "b"}


def test_accuracy_and_cost_by_hand(loaded):
    dataset, llms = loaded
    result = grade_answers(dataset, llms, ASKED, ANSWERS, run="mine", replicate=None).to_dict()
    output = (10 + 11) + (10 + 11 + 12) + 10
    assert (result["questions"], result["correct"], result["accuracy"]) == (
        3,
        2,
        pytest.approx(2 / 3),
    )
    assert (result["requests"], result["samples"], result["tokens"]) == (5, 6, 3 * 7 + output)
    assert result["usd"] == pytest.approx(1e-6 * (0.5 * 21 + 1.5 * output), rel=1e-12)
    assert result["usd_per_question"] == pytest.approx(result["usd"] / 3)
    assert result["by_llm"][PRICED] == {
        "requests": 5, "samples": 6, "prompt_tokens": 21, "output_tokens": output,
        "usd": result["usd"],
    }  # fmt: skip
    assert (result["dataset_questions"], result["unanswered"], result["as_drawn"]) == (4, 0, True)
    assert result["accuracy_low"] <= result["accuracy"] <= result["accuracy_high"]


@pytest.mark.parametrize(("billing", "prompts"), [("once", 3), ("per_round", 5), ("per_sample", 6)])
def test_prompts_are_billed_by_the_rule_of_the_load(toy, billing, prompts):
    dataset, llms = load("toy", recording=toy, billing=billing)
    result = grade_answers(dataset, llms, ASKED, ANSWERS).to_dict()
    assert result["by_llm"][PRICED]["prompt_tokens"] == 7 * prompts


def test_a_vote_is_graded_as_evaluate_grades_it(loaded):
    """The same draws, the same vote: the same numbers as those of the built-in method."""
    dataset, [llm] = loaded
    consumed, answers = [], {}
    for question in dataset.question_ids:
        handed = llm(question, 3, replicate=0)
        consumed.append(
            Consumption(llm=llm.name, question=question, requests=1, samples=handed.samples)
        )
        answers[question] = plurality(handed.answers)
    result = grade_answers(dataset, [llm], consumed, answers, replicate=0)
    usual = evaluate(SelfConsistency(3), dataset, llm, order="seeded", replicates=1)
    assert (result.accuracy, result.accuracy_low, result.accuracy_high) == (
        usual.accuracy,
        usual.accuracy_low,
        usual.accuracy_high,
    )
    assert result.to_dict()["usd_per_question"] == pytest.approx(usual.usd_per_question, rel=1e-12)
    assert result.as_drawn
    assert not grade_answers(dataset, [llm], consumed, answers, replicate=1).as_drawn


def test_a_question_that_was_asked_and_not_answered_is_wrong_and_said(loaded):
    dataset, llms = loaded
    result = grade_answers(dataset, llms, ASKED, {"toy/0": "a"})
    assert (result.questions, result.unanswered, result.accuracy) == (3, 2, pytest.approx(1 / 3))
    assert any(
        sentence.startswith("2 questions were asked and not answered, which counts as wrong")
        for sentence in result.remarks()
    )


def test_costs_by_different_token_counters_are_marked(toy, tmp_path):
    other = write_toy(tmp_path / "other", {"b": POOLS}, GOLDS, counter="usage")
    dataset, llms = load("toy", [PRICED, "b"], recording=merge([toy, other], tmp_path / "both"))
    for asked, marks in (((PRICED, "b"), 1), ((PRICED,), 0)):
        result = grade_answers(
            dataset, llms, [first(0, 2, llm=llm) for llm in asked], {"toy/0": "a"}
        )
        assert (
            sum("counted by different counters (words; usage)" in each for each in result.remarks())
            == marks
        )
        assert (
            "tokens/question *" in [column.name for column in grade_table(result).columns]
        ) == bool(marks)


def test_no_answer_to_a_question_that_was_not_asked_counts(loaded):
    dataset, llms = loaded
    result = grade_answers(dataset, llms, ASKED, ANSWERS | {"toy/3": None})
    assert (result.questions, result.to_dict()["answered"], result.accuracy) == (4, 3, 0.5)


def test_all_right_of_three_leaves_room(loaded):
    dataset, llms = loaded
    result = grade_answers(dataset, llms, ASKED, ANSWERS | {"toy/1": "y"})
    # 1, 1, 1 and imaginary 1 and 0: mean 4/5, standard error 1/5, Student's quantile with 4 degrees
    # of freedom 2.776.
    assert (result.accuracy_low, result.accuracy_high) == (
        pytest.approx(0.8 - 2.776445 / 5, abs=1e-6),
        1.0,
    )


def test_answers_are_made_canonical_by_the_answer_kind(tmp_path):
    info = replace(TOY, answer_kind="number")
    write_rows(tmp_path / "sums", ["0.5"], ("m", [pool(0, ["0.5"])]), info=info, prices="none")
    dataset, llms = load("toy", recording=tmp_path / "sums")

    def graded(answer):
        answers = answers_by_id(dataset, {"toy/0": answer})
        return grade_answers(dataset, llms, [first(0, 1, llm="m")], answers)

    for written in ("1/2", "$0.50", 0.5, "<think>7, I guess</think> 0.5"):
        assert graded(written).accuracy == 1
    for thought in ("<think>0.5", "<think>0.5</think>", "<think>\\boxed{0.5}</think> So it is 7."):
        assert graded(thought).accuracy == 0
    result = graded("many")
    assert (result.accuracy, result.to_dict()["answered"], result.to_dict()["usd"]) == (0, 0, None)
    assert any("no dollars" in sentence for sentence in result.remarks())


def test_questions_are_found_by_id_by_text_and_within_a_prompt(loaded):
    dataset, _ = loaded
    posted = [
        {"question": "toy/0", "answer": "a"},
        {"question": " What is question 1?\n", "answer": "y"},
        {"id": "toy/3", "answer": None},
        {"question_id": "Answer this. What is question 2? Think first.", "answer": 7},
    ]
    assert answers_by_id(dataset, posted) == {
        "toy/0": "a",
        "toy/1": "y",
        "toy/3": None,
        "toy/2": "7",
    }
    assert answers_by_id(dataset, {"toy/0": "a", "What is question 1?": None}) == {
        "toy/0": "a",
        "toy/1": None,
    }


def test_the_same_answer_twice_is_one_and_two_answers_are_refused(loaded):
    dataset, _ = loaded
    twice = [
        {"question": "toy/0", "answer": "a"},
        {"question": "What is question 0?", "answer": "a"},
    ]
    assert answers_by_id(dataset, twice) == {"toy/0": "a"}
    with pytest.raises(ConflictError, match=r"'toy/0' has two answers, 'a' and 'b'\. Keep one"):
        answers_by_id(dataset, [*twice, {"question": "toy/0", "answer": "b"}])


@pytest.mark.parametrize(("posted", "words"), read_data("receipts.json")["what is no answer"])
def test_what_is_no_answer(posted, words, loaded):
    with pytest.raises((UsageError, ConflictError), match=words):
        answers_by_id(loaded[0], posted)


def test_what_cannot_be_graded(loaded):
    dataset, llms = loaded
    with pytest.raises(UsageError, match="'mine' asked nothing about toy"):
        grade_answers(dataset, llms, [], {}, run="mine")
    with pytest.raises(
        UsageError, match="1 question was answered that the run 'mine' never asked, such as 'toy/3'"
    ):
        grade_answers(dataset, llms, ASKED, ANSWERS | {"toy/3": "d"}, run="mine")
    with pytest.raises(UnknownNameError, match="'toy/9'"):
        grade_answers(dataset, llms, ASKED, {"toy/9": "d"})
    with pytest.raises(ConflictError, match="twice"):
        grade_answers(dataset, llms, [*ASKED, first(0, 1)], ANSWERS)
    for wrong in (
        first(0, 5),
        first(0, 1, 2),
        first(0, 1, 0),
        first(9, 1),
        first(0, 1, llm="gpt-4"),
    ):
        with pytest.raises(NotRecordedError, match="Give the recording that was served"):
            grade_answers(dataset, llms, [wrong], {})


def test_recycled_cots_are_paid_again(loaded):
    dataset, llms = loaded
    again = Consumption(llm=PRICED, question="toy/0", requests=2, samples=(0, 1, 2, 3, 0, 1))
    result = grade_answers(dataset, llms, [again], {"toy/0": "a"}, replicate=None)
    assert (result.to_dict()["tokens"], result.as_drawn) == (7 + 10 + 11 + 12 + 13 + 10 + 11, True)


def test_a_question_without_a_gold_is_never_right_and_said(tmp_path):
    dataset, llms = load(
        "toy", recording=write_toy(tmp_path / "toy", {PRICED: POOLS[:2]}, ["a", None])
    )
    result = grade_answers(dataset, llms, ASKED[:2], {"toy/0": "a", "toy/1": "y"})
    assert (result.accuracy, result.to_dict()["without_gold"]) == (0.5, 1)
    assert any("without a gold answer" in sentence for sentence in result.remarks())


@pytest.fixture
def receipt(loaded, tmp_path):
    result = grade_answers(*loaded, ASKED, ANSWERS, run="mine", replicate=None)
    return receipt_of(result.request(), result.to_dict(), *loaded, tmp_path)


def test_the_receipt_is_computed_again_and_a_better_number_is_noticed(receipt, tmp_path):
    path = tmp_path / "receipt.json"
    path.write_text(json.dumps(receipt))
    found = verify_receipt(path)
    assert (found.equal, found.kind, found.notes) == (True, "grade", ())
    path.write_text(json.dumps(receipt | {"numbers": receipt["numbers"] | {"correct": 3}}))
    assert [str(each) for each in verify_receipt(path).differences] == [
        "correct: the receipt says 3, now 2, -1"
    ]
    cheaper = receipt["request"] | {"consumed": receipt["request"]["consumed"][1:]}
    path.write_text(json.dumps(receipt | {"request": cheaper}))
    with pytest.raises(UsageError, match="never asked"):
        verify_receipt(path)


@pytest.mark.parametrize("part", read_data("receipts.json")["damaged receipts of grades"])
def test_a_damaged_receipt_is_refused(part, receipt, tmp_path):
    path = tmp_path / "receipt.json"
    path.write_text(json.dumps(receipt | {"request": receipt["request"] | part}))
    with pytest.raises(UsageError, match="damaged receipt"):
        verify_receipt(path)
