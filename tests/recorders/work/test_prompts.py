import gzip
import itertools
import json
import os
import re
from collections import Counter

import pytest
from places import read_data

from feval import answers
from feval.cards.cards import dataset_card
from feval.cards.front_matter import card_folder
from feval.errors import CardError, OutOfRangeError, SourceError, UnknownNameError, UsageError
from feval.recording.content import Question
from recorders.request import Message
from recorders.work.prompts import (
    Exemplar,
    PromptCard,
    check_prompt,
    messages,
    prompt_card,
    prompt_names,
    prompt_version,
    with_train_exemplars,
)

BBH = (
    "causal_judgement", "date_understanding", "disambiguation_qa", "formal_fallacies",
    "geometric_shapes",
    "movie_recommendation", "penguins_in_a_table", "ruin_names", "snarks", "sports_understanding",
    "temporal_sequences",
)  # fmt: skip
PAPER_DATASETS = [
    "aqua",
    *(f"bbh_{name}" for name in BBH),
    "commonsense_qa",
    "gsm8k",
    "math_500",
    "svamp",
]
DATASETS = [*PAPER_DATASETS, "bigbench_date"]

PUZZLES = """\
dataset: puzzles
version: 1
title: Puzzles
system: Solve it.
zero_shot: Say "The answer is N."
answer_sentence: The answer is {answer}.
exemplars:
  - {question: What is 2 + 2?, cot: 2 and 2 make 4., answer: '4'}
"""

SMALL = PromptCard(
    dataset="capitals",
    version=3,
    system="Choose.",
    zero_shot="Choose. Say: The answer is (X).",
    answer_sentence="The answer is ({answer}).",
    exemplars=(Exemplar("Capital of Peru?", "It is Lima.", "B", (("A", "Quito"), ("B", "Lima"))),),
)
ASKED = Question(
    "capitals/0", "Capital of Chad?", answer="A", choices=(("A", "N'Djamena"), ("B", "Dakar"))
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A card folder of the user's own, with one prompt."""
    monkeypatch.setenv("FEVAL_CARDS", str(tmp_path))
    put(tmp_path, "puzzles", PUZZLES)
    return tmp_path


def put(folder, name, facts):
    path = folder / "prompts" / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\n{facts}---\n\n# Puzzles\n", encoding="utf-8")
    return path


def questions_of(dataset, shared):
    path = shared / "real/questions" / f"{dataset}.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [
        Question(
            row["id"],
            row["question"],
            choices=tuple((c["label"], c["text"]) for c in row.get("choices", [])),
        )
        for row in rows
    ]


def date_questions(shared):
    """The 369 questions of bigbench_date, as they were recorded."""
    with gzip.open(
        shared / "real/mot_cascade/GPT3_result/date_cot1_40.json.gz", "rt", encoding="utf-8"
    ) as file:
        return [
            Question(f"bigbench_date/{row}", entry["question"])
            for row, entry in enumerate(json.load(file))
        ]


def test_every_dataset_of_the_paper_has_a_prompt():
    assert prompt_names() == sorted(f"{dataset}@1" for dataset in DATASETS)


@pytest.mark.parametrize("dataset", DATASETS)
def test_every_exemplar_is_read_back_as_its_gold(dataset):
    card, kind = prompt_card(dataset), dataset_card(dataset).answer_kind
    check_prompt(card, kind)
    for exemplar in card.exemplars:
        raw = answers.extract(kind, card.reply(exemplar), exemplar.choices)
        gold = answers.canonical_gold(kind, exemplar.answer, exemplar.choices)
        assert gold is not None
        assert answers.canonical(kind, raw, exemplar.choices) == gold
        # A reader that looks for the last answer sentence only must find the same.
        assert card.reply(exemplar).splitlines()[-1] == card.answer_sentence.replace(
            "{answer}", exemplar.answer
        )


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_prompt_is_short_and_says_how_to_end(dataset):
    card = prompt_card(dataset)
    assert 4 <= len(card.exemplars) <= 8
    assert len({exemplar.question + str(exemplar.choices) for exemplar in card.exemplars}) == len(
        card.exemplars
    )
    assert all(len(exemplar.cot.split()) <= 80 for exemplar in card.exemplars)
    for text in (card.system or "", card.zero_shot):
        assert "The answer is " in text
        assert "(X)." in text if card.answer_sentence.endswith("({answer}).") else "(X)" not in text


@pytest.mark.parametrize("dataset", DATASETS)
def test_no_exemplar_is_a_question_of_the_dataset_and_no_label_is_right_too_often(dataset, shared):
    questions = (
        date_questions(shared) if dataset == "bigbench_date" else questions_of(dataset, shared)
    )
    card = prompt_card(dataset)
    check_prompt(card, dataset_card(dataset).answer_kind, questions)
    golds = Counter(exemplar.answer for exemplar in card.exemplars)
    if any(exemplar.choices for exemplar in card.exemplars):
        assert max(golds.values()) <= min(golds.values()) + 1


def test_the_standard_format():
    assert messages(SMALL, ASKED) == (
        Message("system", "Choose."),
        Message("user", "Capital of Peru?\n(A) Quito\n(B) Lima"),
        Message("assistant", "It is Lima.\nThe answer is (B)."),
        Message("user", "Capital of Chad?\n(A) N'Djamena\n(B) Dakar"),
    )
    # Pins the format: if it changes, so do all prompts that were ever published.
    assert prompt_version(SMALL) == "capitals/3#ab9a4fd82cfa298c"


def test_a_reasoning_model_is_asked_zero_shot_in_one_message():
    assert messages(SMALL, ASKED, reasoning=True) == (
        Message(
            "user", "Capital of Chad?\n(A) N'Djamena\n(B) Dakar\n\nChoose. Say: The answer is (X)."
        ),
    )
    assert prompt_version(SMALL, reasoning=True) == "capitals/3/zero-shot#48a17d449e1bb82e"


def test_the_system_prompt_can_begin_the_first_user_message():
    first, *others = messages(SMALL, ASKED, system_role=False)
    assert first == Message("user", "Choose.\n\nCapital of Peru?\n(A) Quito\n(B) Lima")
    assert tuple(others) == messages(SMALL, ASKED)[2:]
    assert prompt_version(SMALL, system_role=False) != prompt_version(SMALL)


def test_options_that_are_their_own_labels_have_none_in_front():
    question = Question("x", "Is it?", choices=(("Yes", "Yes"), ("No", "No")))
    assert messages(SMALL, question)[-1].content == "Is it?\n- Yes\n- No"
    assert messages(SMALL, Question("x", "How many?"))[-1].content == "How many?"


def test_the_gold_is_not_sent():
    told = Question("x", "Which?", answer="secret", answer_key="secret", choices=(("A", "a"),))
    for reasoning in (False, True):
        assert "secret" not in str(messages(SMALL, told, reasoning=reasoning))


def test_a_question_without_a_text_cannot_be_asked():
    with pytest.raises(SourceError, match="'mmlu/7' has no text"):
        messages(SMALL, Question("mmlu/7", " \n"))


def test_a_question_is_sent_to_the_letter():
    odd = "  {answer} \u202e<script> {0} %s\r\n"
    assert messages(SMALL, Question("x", odd))[-1].content == odd


def test_a_prompt_of_the_users_own(folder):
    card = prompt_card("puzzles")
    assert (card.name, card.exemplars) == (
        "puzzles@1",
        (Exemplar("What is 2 + 2?", "2 and 2 make 4.", "4"),),
    )
    check_prompt(card, "number")
    assert "puzzles@1" in prompt_names()


def test_the_example_of_the_guide_to_cards_is_a_prompt(folder):
    [example] = re.findall(
        r"```yaml\n(dataset: my_dataset\n.*?)```",
        (card_folder() / "README.md").read_text("utf-8"),
        re.DOTALL,
    )
    put(folder, "my_dataset", example)
    check_prompt(prompt_card("my_dataset"), "number")


def test_the_latest_version_counts_unless_one_is_named(folder):
    for version in (2, 10):
        put(folder, f"puzzles@{version}", PUZZLES.replace("version: 1", f"version: {version}"))
    assert prompt_card("puzzles").version == 10
    assert prompt_card("puzzles@1").version == 1
    assert prompt_card("puzzles@2").version == 2
    with pytest.raises(
        UnknownNameError, match=r"no prompt card 'puzzles@3'.*puzzles@1, puzzles@10, puzzles@2"
    ):
        prompt_card("puzzles@3")


def test_the_first_folder_with_a_prompt_for_the_dataset_decides(
    folder, tmp_path_factory, monkeypatch
):
    other = tmp_path_factory.mktemp("other")
    put(other, "puzzles", PUZZLES.replace("Solve it.", "Solve it twice."))
    put(other, "puzzles@2", PUZZLES.replace("version: 1", "version: 2"))
    monkeypatch.setenv("FEVAL_CARDS", f"{folder}{os.pathsep}{other}")
    assert (prompt_card("puzzles").version, prompt_card("puzzles").system) == (1, "Solve it.")
    assert prompt_card("puzzles@2").version == 2
    first = prompt_version(prompt_card("puzzles"))
    monkeypatch.setenv("FEVAL_CARDS", f"{other}{os.pathsep}{folder}")
    assert prompt_card("puzzles").version == 2
    assert prompt_version(prompt_card("puzzles@1")).split("#")[0] == first.split("#")[0]
    assert prompt_version(prompt_card("puzzles@1")) != first


def test_a_dataset_without_a_prompt_is_told_how_to_get_one():
    with pytest.raises(
        UnknownNameError,
        match=r"no prompt card 'gsm9k'. Did you mean 'gsm8k'\?.*prompts with a file gsm9k.md",
    ):
        prompt_card("gsm9k")
    with pytest.raises(UnknownNameError, match=r"FEVAL_CARDS=my-cards\. Or .*prompt=none"):
        prompt_card("../gsm8k")


@pytest.mark.parametrize(("old", "new", "sentence"), read_data("cards.json")["prompt cards"])
def test_a_broken_prompt_card_says_what_is_wrong(folder, old, new, sentence):
    put(folder, "puzzles", PUZZLES.replace(old, new))
    with pytest.raises(CardError, match=sentence):
        prompt_card("puzzles")


@pytest.mark.parametrize("name", ["puzzles@1", "puzzles@x", "puzzles@02", "puzzles@"])
def test_an_odd_file_name_is_refused(folder, name):
    put(folder, name, PUZZLES)
    with pytest.raises(CardError, match="odd name"):
        prompt_card("puzzles")


@pytest.mark.parametrize(("parts", "kind", "sentence"), read_data("cards.json")["wrong exemplars"])
def test_a_wrong_exemplar_is_found_before_anything_is_paid(parts, kind, sentence):
    shown = (Exemplar(*parts),)
    card = PromptCard("capitals", 1, None, "Choose.", "The answer is ({answer}).", shown)
    with pytest.raises(CardError, match=f"Exemplar 1 of the prompt capitals@1 .*{sentence}"):
        check_prompt(card, kind, [ASKED])


def test_a_chain_of_thought_that_contradicts_its_answer_is_found():
    card = PromptCard(
        "x",
        1,
        None,
        "z",
        "So much for {answer}.",
        (Exemplar("Q", "The answer is 4, I think.", "5"),),
    )
    with pytest.raises(CardError, match="'5', but its reply is read as '4'"):
        check_prompt(card, "number")


GSM8K_ROWS = [
    {
        "question": f"Ann has {n} pens and buys {n}. How many has she?",
        "answer": f"She has {n}+{n}=<<{n}+{n}={2 * n}>>{2 * n}.\n#### {2 * n:,}",
    }
    for n in (5, 1200, 7, 8)
]


def test_gsm8k_rationales_become_exemplars():
    card = with_train_exemplars(prompt_card("gsm8k"), GSM8K_ROWS[:1], 1)
    assert card.exemplars == (
        Exemplar("Ann has 5 pens and buys 5. How many has she?", "She has 5+5=10.", "10"),
    )
    assert messages(card, ASKED)[2].content == "She has 5+5=10.\nThe answer is 10."
    check_prompt(card, "number")
    assert prompt_version(card).startswith("gsm8k/1/train#")
    assert prompt_version(card, reasoning=True) == prompt_version(
        prompt_card("gsm8k"), reasoning=True
    )


@pytest.mark.parametrize(
    "verdict",
    ["Answer: B", "ANSWER:B", "So, the correct answer is (B).", "Option B", "B", "Ans. B"],
)
def test_aqua_rationales_become_exemplars(verdict):
    row = {
        "question": "A pen costs $2. What do 3 pens cost?",
        "options": ["A)$5", "B)$6", "C)$7", "D)$8", "E)$9"],
        "rationale": f"3 pens cost 3*2 = $6.\n{verdict}",
        "correct": "B",
    }
    card = with_train_exemplars(prompt_card("aqua"), [row], 1)
    choices = (("A", "$5"), ("B", "$6"), ("C", "$7"), ("D", "$8"), ("E", "$9"))
    assert card.exemplars == (
        Exemplar(str(row["question"]), "3 pens cost 3*2 = $6.", "B", choices),
    )
    assert card.reply(card.exemplars[0]) == "3 pens cost 3*2 = $6.\nThe answer is (B)."


def test_the_choice_of_rows_depends_on_the_rows_and_not_on_their_order():
    card = prompt_card("gsm8k")
    chosen = with_train_exemplars(card, GSM8K_ROWS, 3)
    for order in itertools.permutations(GSM8K_ROWS):
        assert with_train_exemplars(card, [*order, *order], 3) == chosen
    assert with_train_exemplars(card, GSM8K_ROWS, 2).exemplars == chosen.exemplars[:2]


def test_rows_that_cannot_be_used_are_passed_over():
    odd = [
        {"question": "No mark?", "answer": "It is 4."},
        {"question": "No rationale?", "answer": "#### 4"},
        {"question": "No number?", "answer": "It is unknown.\n#### unknown"},
        {"question": "Too long?", "answer": "so " * 400 + "\n#### 4"},
        {"question": "No options?", "options": ["five"], "rationale": "Because.", "correct": "A"},
        {
            "question": "A verdict alone?",
            "options": ["A)5", "B)6"],
            "rationale": "Answer: B",
            "correct": "B",
        },
    ]
    card, asked = prompt_card("gsm8k"), [Question("x", GSM8K_ROWS[1]["question"])]
    with pytest.raises(
        SourceError, match=r"2 exemplars were asked for, but of 6 rows .* only 1 can be used"
    ):
        with_train_exemplars(card, [*odd[:4], *GSM8K_ROWS[:2]], 2, asked)
    with pytest.raises(SourceError, match="only 0 can be used"):
        with_train_exemplars(prompt_card("aqua"), odd[4:], 1)


def test_a_train_split_of_another_shape_is_refused():
    with pytest.raises(
        SourceError, match=r"Row 2 .* should have question, answer .* its 'answer' is None"
    ):
        with_train_exemplars(prompt_card("gsm8k"), [GSM8K_ROWS[0], {"question": "Q"}], 1)
    with pytest.raises(SourceError, match=r"its 'options' is 'A\)5'"):
        with_train_exemplars(prompt_card("aqua"), [{"question": "Q", "options": "A)5"}], 1)


def test_a_dataset_whose_train_split_has_no_rationales_says_so():
    with pytest.raises(
        UsageError, match=r"no split of 'svamp' with rationales is known.*aqua@1, gsm8k@1"
    ):
        with_train_exemplars(prompt_card("svamp"), [], 4)
    with pytest.raises(OutOfRangeError, match="0 exemplars were asked for"):
        with_train_exemplars(prompt_card("gsm8k"), GSM8K_ROWS, 0)
