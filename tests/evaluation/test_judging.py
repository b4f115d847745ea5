"""Answers of users' methods count by the dataset's equality, and the gold has no say in a vote."""

import json

import numpy as np
import pytest

from feval import SelfConsistency, evaluate, import_recording, load
from feval.evaluation.replicates import decisions

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
    (source := out.with_suffix(".jsonl")).write_text("\n".join(map(json.dumps, rows)))
    return import_recording(
        "jsonl", source, out, dataset="sums", llm="m", answer_kind="number", prices="none"
    )


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


def test_spellings_of_one_answer_vote_together_whatever_the_gold(tmp_path):
    voted, right = [], []
    for gold in ("0.5", "7", "3"):
        dataset, [llm] = load(
            "sums", recording=write_numbers(tmp_path / gold, [gold] * 2, [POOL, POOL[::-1]])
        )
        [votes] = decisions(SelfConsistency(5), [llm], order="recorded")
        voted.append(
            [dataset.candidates(row)[code] for row, code in enumerate(votes.answer[0].tolist())]
        )
        right.append(evaluate(SelfConsistency(5), dataset, llm, order="recorded").right.tolist())
        ledger = votes.ledgers[0]
        assert np.array_equal(ledger.output_tokens, [[50, 50]])
    assert voted[0] == voted[1] == voted[2]
    assert right == [[1, 1], [0, 0], [0, 0]]


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
