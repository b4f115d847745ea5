"""Answers of users' methods count by the dataset's equality, and the gold has no say in a vote."""

import pytest
from small import import_rows

from feval import evaluate, load

POOL = ["1/2", "0.5", "7", "0.50", "7"]  # three spellings of a half outvote two sevens


def write_numbers(out, golds, pools):
    """A recording of one LLM on a dataset whose answers are numbers."""
    rows = [
        {
            "id": str(i),
            "question": "What is it?",
            "answer": gold,
            "prompt_tokens": 7,
            "samples": [
                {"text": f"The answer is {answer}.", "answer": answer, "tokens": 10}
                for answer in own
            ],
        }
        for i, (gold, own) in enumerate(zip(golds, pools, strict=True))
    ]
    return import_rows(out, rows, dataset="sums", llm="m", answer_kind="number", prices="none")


@pytest.mark.parametrize("spelling", ["12", "12.0", " 12 ", "24/2", "$12", "12."])
def test_a_method_may_spell_its_answer_as_it_likes(spelling, tmp_path):
    replay = load(
        "sums", recording=write_numbers(tmp_path / "sums", ["12", "13"], [["12", "13"]] * 2)
    )

    def spelled(question, llm):
        llm.sample()
        return spelling

    assert evaluate(spelled, *replay, order="recorded").right.tolist() == [1, 0]
    assert evaluate(spelled, *replay, order="recorded").no_answer.tolist() == [0, 0]


def test_a_method_of_the_user_votes_as_the_built_in_one(tmp_path):
    """It is handed the answers as they were recorded, and what it returns is judged by what it
    equals.
    """
    dataset, [llm] = load(
        "sums", recording=write_numbers(tmp_path / "sums", ["1/2", "7"], [POOL, POOL])
    )
    for index, right in ((0, [1, 0]), (1, [1, 0]), (2, [0, 1])):
        evaluation = evaluate(
            lambda question, llm, index=index: llm.sample(5).answers[index],
            dataset,
            llm,
            order="recorded",
        )
        assert evaluation.right.tolist() == right
