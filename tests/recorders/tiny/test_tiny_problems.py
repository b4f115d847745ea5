"""The word problems of the tiny models: always the same, right, and reserved for testing where they
should be; their tokens.
"""

import json
import re
from hashlib import sha256

import pytest
from hypothesis import given, strategies as st

from recorders.tiny import problems
from recorders.tiny.model import ANSWER, END, QUESTION, SPECIAL, UNKNOWN, tokenizer

QUESTIONS = problems.test_questions()
PRINTABLE = st.text(st.sampled_from(["\n", *map(chr, range(32, 127))]))


def arithmetic(problem):
    return problem.first, problem.steps


def digest(listed):
    lines = [json.dumps([problem.question, problem.chain, problem.answer]) for problem in listed]
    return sha256("\n".join(lines).encode()).hexdigest()


def test_the_test_questions_never_change():
    assert digest(QUESTIONS) == "47b9478f4813059a98e803cfc6d3a5714cd2dd07cadcdb6dba5dfa5c523b043f"
    assert (
        QUESTIONS[0].question
        == "Ana has 56 shells. Ana sells 26. Ana makes 5 equal piles and keeps one. Ana loses 4."
        " How many shells does Ana have now?"
    )
    assert QUESTIONS[0].chain == "Start with 56. 56-26=30. 30/5=6. 6-4=2. The answer is 2."
    assert QUESTIONS[0].answer == 2


def training(seed, number):
    return [problems.problem(seed, "training", index) for index in range(number)]


def test_the_training_problems_never_change():
    told = digest(training(1, 1000))
    assert told == "1e7bb5f01b8542691feb62a11cbc10718efa3c9ac596e694bfe5d3a795bf0aeb"


def test_there_are_200_test_questions_and_no_two_have_the_same_arithmetic():
    assert len(QUESTIONS) == problems.TEST_QUESTIONS == 200
    assert len({arithmetic(problem) for problem in QUESTIONS}) == 200
    assert len({problem.question for problem in QUESTIONS}) == 200
    assert {len(problem.steps) for problem in QUESTIONS} == {1, 2, 3, 4, 5}


def test_test_questions_are_reserved_and_training_problems_are_not():
    assert all(problems.is_reserved(*arithmetic(problem)) for problem in QUESTIONS)
    seen = [problem for seed in range(3) for problem in training(seed, 2000)]
    assert not any(problems.is_reserved(*arithmetic(problem)) for problem in seen)
    assert not {arithmetic(problem) for problem in seen} & {
        arithmetic(problem) for problem in QUESTIONS
    }
    assert not {problem.question for problem in seen} & {problem.question for problem in QUESTIONS}


@pytest.mark.parametrize("split", ["training", "test"])
def test_chains_are_right_and_numbers_stay_small(split):
    for index in range(500):
        problem = problems.problem(3, split, index)
        total = problem.first
        told = f"Start with {total}."
        for step in problem.steps:
            after = step.apply(total)
            assert step.operation != "/" or after * step.number == total
            told += f" {total}{step.operation}{step.number}={after}."
            total = after
            assert 1 <= total <= 399
        assert (problem.chain, problem.answer) == (f"{told} The answer is {total}.", total)
        numbers = [problem.first, *(step.number for step in problem.steps)]
        assert re.findall(r"\d+", problem.question) == list(map(str, numbers))


def test_the_answer_is_extracted_from_the_chain():
    answers = pytest.importorskip("feval.answers")
    for problem in QUESTIONS:
        raw = answers.extract("number", problem.chain)
        assert answers.canonical("number", raw) == str(problem.answer)


def test_the_vocabulary_is_the_one_the_problems_need():
    words = re.findall(r"[A-Za-z]+", " ".join(f"{p.question} {p.chain}" for p in training(1, 2000)))
    assert {f" {word}" for word in words} == set(tokenizer().vocabulary[len(SPECIAL) + 96 :])
    assert len(tokenizer()) == 143
    assert tokenizer().vocabulary[: len(SPECIAL)] == SPECIAL


@given(PRINTABLE)
def test_printable_ascii_comes_back_exactly(text):
    tokens = tokenizer().encode(text)
    assert tokenizer().decode(tokens) == text
    assert all(token >= len(SPECIAL) for token in tokens)


@given(st.text())
def test_other_characters_are_unknown_one_by_one(text):
    tokens = tokenizer().encode(text)
    expected = "".join(char if char == "\n" or " " <= char <= "~" else "\ufffd" for char in text)
    assert tokenizer().decode(tokens) == expected


def test_the_longest_token_is_taken_and_digits_stand_alone():
    pieces = [tokenizer().piece(token) for token in tokenizer().encode(" Then Tom has 42 apples")]
    assert pieces == [" Then", " Tom", " has", " ", "4", "2", " apples"]


def test_special_tokens_are_not_read_out_of_a_text():
    assert len(tokenizer().encode("<end>")) == 5
    assert tokenizer().decode([QUESTION, ANSWER, END, UNKNOWN]) == "\ufffd"


def test_a_prompt_and_a_completion_have_their_marks():
    prompt, completion = tokenizer().prompt("How many?"), tokenizer().completion("The answer is 4.")
    assert (prompt[0], prompt[-1], completion[-1]) == (QUESTION, ANSWER, END)
    assert tokenizer().decode(prompt) == " How many?"
    assert tokenizer().decode(completion) == " The answer is 4."
