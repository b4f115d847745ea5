"""Which question is meant: found where it stands, missed with the reason, and never guessed."""

import pytest
from hypothesis import given, strategies as st
from places import read_data
from serving_doubles import (
    asked_by_text,
    chat,
    error,
    opened,
    reply_to,
    rows,
    simple,
    texts_of,
    user,
    write,
)

from feval.errors import NotRecordedError
from feval.recording import LLMInfo, Question
from feval.serving.prompts import TextIndex

SALLY = "Sally has three brothers. How many sisters has she?"
TRAIN = "A train leaves at noon. When does it arrive?"
SYSTEM = {"role": "system", "content": "Think step by step."}


def where(app, content, **fields):
    reply = reply_to(app, content, **fields)
    assert reply.status == 200, reply.body
    return reply.headers["x-feval-question"], reply.headers["x-feval-match"]


def test_the_recorded_request_is_found_as_such(tmp_path):
    with opened(simple(tmp_path / "r", [SALLY, TRAIN])) as app:
        assert where(app, SALLY) == ("q0", "request")
        parts = [{"type": "text", "text": TRAIN[:9]}, {"type": "text", "text": TRAIN[9:]}]
        assert where(app, [{"role": "user", "content": parts}]) == ("q1", "request")


def test_a_question_is_found_in_a_prompt_of_ones_own(tmp_path):
    with opened(simple(tmp_path / "r", [SALLY, TRAIN])) as app:
        assert where(app, [SYSTEM, user(SALLY)]) == ("q0", "question")
        assert where(app, f"[[ ## question ## ]]\n{TRAIN}\n\n[[ ## answer ## ]]") == (
            "q1",
            "question",
        )
        turns = [user(SALLY), {"role": "assistant", "content": "Two."}, user(f"And this? {TRAIN}")]
        assert where(app, turns) == ("q1", "question")


def test_the_longest_question_holds_the_shorter_ones_in_it(tmp_path):
    longer = f"{TRAIN} Say it in hours."
    with opened(simple(tmp_path / "r", [TRAIN, longer, "noon"])) as app:
        assert where(app, f"Please: {longer}") == ("q1", "question")
        assert where(app, f"Please: {TRAIN}") == ("q0", "question")


def test_two_questions_in_one_message_are_never_chosen_between(tmp_path):
    with opened(simple(tmp_path / "r", [SALLY, TRAIN])) as app:
        result = error(reply_to(app, f"{SALLY} And also: {TRAIN}"))
        assert result["code"] == "ambiguous"
        assert "'q0'" in result["message"]
        assert "'q1'" in result["message"]
        assert where(app, f"{SALLY} And also: {TRAIN}", feval={"question": "q1"}) == ("q1", "id")
        assert where(app, f"{SALLY} I repeat: {SALLY}") == ("q0", "question")


@pytest.mark.parametrize(("message", "found"), read_data("served.json")["short questions"])
def test_a_very_short_question_is_found_on_its_own_only(tmp_path, message, found):
    with opened(simple(tmp_path / "r", ["2+2"])) as app:
        reply = reply_to(app, f"{message}", n=1)
        assert reply.status == (200 if found else 400)


def test_a_question_is_not_found_inside_a_longer_word():
    index = TextIndex(["Is this an art of its own", "another question of some length"])
    assert index.outermost("Is this an art of its ownership") == []
    assert [hit.numbers for hit in index.outermost("(Is this an art of its own)")] == [(0,)]


def test_line_ends_and_forms_of_unicode_do_not_hide_a_question(tmp_path):
    composed, decomposed = "Où est le caf\u00e9?\nDis-le.", "Où est le cafe\u0301?\r\nDis-le."
    with opened(
        simple(tmp_path / "r", [composed, "数学の勉強は\u3000とても難しいですか、先生？"])
    ) as app:
        assert where(app, f"Bonjour! {decomposed}")[0] == "q0"
        assert where(app, "質問：数学の勉強は\u3000とても難しいですか、先生？答えて。")[0] == "q1"


def test_equal_texts_are_told_apart_by_their_options(tmp_path):
    text = "Which of these statements is the true one?"
    choices = [
        (("A", "snow is black"), ("B", "snow is white")),
        (("A", "coal is black"), ("B", "coal is white")),
    ]
    questions = [Question(f"q{i}", text, None, None, own) for i, own in enumerate(choices)]
    pools = [rows(question, prompt=None, prompt_tokens=None) for question in questions]
    with opened(write(tmp_path / "r", [(LLMInfo("gpt-3.5-turbo"), pools)], questions)) as app:
        assert where(app, f"{text}\n(A) coal is black\n(B) coal is white") == ("q1", "question")
        assert error(reply_to(app, text))["code"] == "ambiguous"


def test_a_question_in_two_datasets_needs_the_dataset(tmp_path):
    paths = []
    for name in ("one", "two"):
        questions = [
            Question(f"{name}/0", SALLY),
            Question("shared", TRAIN if name == "one" else "Who is it, then?"),
        ]
        llms = [(LLMInfo("gpt-3.5-turbo"), [rows(question) for question in questions])]
        paths.append(write(tmp_path / name, llms, questions, dataset=name))
    with opened(paths) as app:
        for call in (chat(SALLY), chat(f"So: {SALLY}")):
            result = error(app.respond(call))
            assert result["code"] == "ambiguous"
            assert "'one/0' of one" in result["message"]
            assert "'two/0' of two" in result["message"]
        assert where(app, SALLY, feval={"dataset": "two"}) == ("two/0", "request")
        assert where(app, SALLY, headers={"x-feval-dataset": "one"}) == ("one/0", "request")
        assert where(app, "it", feval={"question": "two/0"}) == ("two/0", "id")
        assert error(reply_to(app, "it", feval={"question": "shared"}))["code"] == "ambiguous"
        assert where(app, TRAIN, feval={"question": "shared"}) == ("shared", "id")
        assert "three" in error(reply_to(app, SALLY, feval={"dataset": "three"}))["message"]
    with opened(paths, datasets="two") as app:
        assert where(app, SALLY) == ("two/0", "request")


def test_an_id_that_contradicts_the_text_is_an_error(tmp_path):
    with opened(simple(tmp_path / "r", [SALLY, TRAIN])) as app:
        result = error(reply_to(app, SALLY, feval={"question": "q1"}))
        assert result["code"] == "contradiction"
        assert "'q0'" in result["message"]
        assert where(app, SALLY, feval={"question": "q0"}) == ("q0", "id")
        assert where(app, "anything", metadata={"feval_question": "q1"}) == ("q1", "id")


def variants(path):
    questions = asked_by_text([SALLY, TRAIN])
    own = [rows(question) for question in questions]
    pairs = [
        (LLMInfo("gpt-3.5-turbo@t=0.2", 0.2, 64), own),
        (LLMInfo("gpt-3.5-turbo@t=0.8", 0.8, 64, {"top_p": 0.9}), own),
        (LLMInfo("gpt-4", None, None, {"model": "gpt-4-0613"}), own),
    ]
    return write(path, pairs, questions)


def test_base_names_and_names_sent_to_the_provider_are_known(tmp_path):
    with opened(variants(tmp_path / "r"), llms=["gpt-3.5-turbo@t=0.8", "gpt-4"]) as app:
        assert reply_to(app, SALLY, model="gpt-4-0613").headers["x-feval-llm"] == "gpt-4"
        assert reply_to(app, SALLY).headers["x-feval-llm"] == "gpt-3.5-turbo@t=0.8"


def test_sampling_parameters_tell_variants_apart(tmp_path):
    with opened(variants(tmp_path / "r")) as app:
        assert reply_to(app, SALLY, temperature=0.2).headers["x-feval-llm"] == "gpt-3.5-turbo@t=0.2"
        assert reply_to(app, SALLY, top_p=0.9).headers["x-feval-llm"] == "gpt-3.5-turbo@t=0.8"
        reply = reply_to(app, SALLY, model="gpt-3.5-turbo@t=0.8", temperature=0.2)
        assert reply.headers["x-feval-ignored"] == "temperature"
        for fields in ({}, {"temperature": 1}, {"max_tokens": 64}):
            result = error(reply_to(app, SALLY, **fields))
            assert (result["code"], result["param"]) == ("ambiguous", "model")
            assert "gpt-3.5-turbo@t=0.2 (temperature 0.2, max_tokens 64)" in result["message"]


def ends(path):
    """One prompt recorded under several limits and stops."""
    questions = asked_by_text([SALLY, TRAIN])
    own = [
        rows(question, texts=["One two. Three four five six."] * 4, output_tokens=[8] * 4)
        for question in questions
    ]
    infos = [
        LLMInfo("gpt-3.5-turbo@short", 0.2, 8), LLMInfo("gpt-3.5-turbo@long", 0.2, 64),
        LLMInfo("gpt-3.5-turbo@stops", 0.2, 64, {"until": ["X", "."]}),
        LLMInfo("gpt-3.5-turbo@free", 0.2),
        LLMInfo("gpt-3.5-turbo@hot", 0.9, 64, {"top_p": 0.9}),
    ]  # fmt: skip
    return write(path, [(info, own) for info in infos], questions)


@pytest.mark.parametrize(
    ("fields", "variant", "text"),
    [
        # recorded under exactly these settings
        ({"max_tokens": 8}, "short", "One two. Three four five six."),
        ({"max_completion_tokens": 64}, "long", "One two. Three four five six."),
        ({"max_tokens": 64, "stop": [".", "X"]}, "stops", "One two. Three four five six."),
        ({}, "free", "One two. Three four five six."),
        ({"max_tokens": 5}, "short", "One two. Three four"),  # the nearest limit that is not below
        ({"max_tokens": 20, "stop": " Th"}, "long", "One two."),
        ({"max_tokens": 100}, "free", "One two. Three four five six."),
        ({"max_tokens": 64, "stop": [".", "X", "Y"]}, "stops", "One two. Three four five six."),
        ({"stop": "."}, "free", "One two"),
    ],
)
def test_the_variant_that_serves_is_the_recorded_one_or_one_that_can_be_cut(
    fields, variant, text, tmp_path
):
    with opened(ends(tmp_path / "r")) as app:
        reply = reply_to(app, SALLY, temperature=0.2, **fields)
        assert reply.headers["x-feval-llm"] == f"gpt-3.5-turbo@{variant}"
        assert texts_of(reply) == [text]


def test_a_refusal_names_the_fields_that_differ(tmp_path):
    with opened(
        ends(tmp_path / "r"),
        llms=["gpt-3.5-turbo@short", "gpt-3.5-turbo@stops", "gpt-3.5-turbo@hot"],
    ) as app:
        result = error(reply_to(app, SALLY, temperature=0.2, max_tokens=70, stop=["Y"]))
        assert (result["code"], result["param"]) == ("ambiguous", "model")
        assert (
            "gpt-3.5-turbo@short: max_tokens 70 (recorded: 8); gpt-3.5-turbo@stops: max_tokens 70"
            " (recorded: 64), stop ['Y'] (recorded: ['X', '.']); gpt-3.5-turbo@hot: max_tokens 70"
            " (recorded: 64), temperature 0.2 (recorded: 0.9)." in result["message"]
        )
        assert (
            reply_to(app, SALLY, temperature=0.9, top_p=0.9).headers["x-feval-llm"]
            == "gpt-3.5-turbo@hot"
        )
        assert texts_of(reply_to(app, SALLY, model="gpt-3.5-turbo@stops", max_tokens=3)) == [
            "One two."
        ]
    with opened(
        tmp_path / "r"
    ) as app:  # found by its text, a question may have been put in other words to each of them
        assert (
            error(reply_to(app, f"So: {SALLY}", temperature=0.2, max_tokens=5))["code"]
            == "ambiguous"
        )


def test_what_cannot_have_an_effect_is_said(tmp_path):
    with opened(simple(tmp_path / "r", [SALLY])) as app:
        same = chat(
            SALLY,
            temperature=0.7,
            max_tokens=64,
            top_p=1,
            tools=[],
            stop=None,
            user="me",
            presence_penalty=0,
        )
        assert "x-feval-ignored" not in app.respond(same).headers
        other = chat(SALLY, temperature=1, max_completion_tokens=90, seed=1234, foo={"a": 1})
        ignored = app.respond(other).headers["x-feval-ignored"]
        assert ignored == "temperature,max_completion_tokens,seed,foo"


def test_headers_stay_short_whatever_is_sent(tmp_path):
    with opened(simple(tmp_path / "r", [SALLY])) as app:
        reply = reply_to(app, SALLY, **{f"{i}" + "é\r\n" * 1000: i for i in range(1000)})
        assert reply.status == 200
        assert reply.headers["x-feval-ignored"].isascii()
        assert len(reply.headers["x-feval-ignored"]) < 32 * 64 * 6
        assert not set("\r\n") & set(reply.headers["x-feval-ignored"])


def test_a_message_with_every_question_is_answered_in_time(tmp_path):
    texts = [f"How far is it from village {i} to the town, in miles?" for i in range(3000)]
    with opened(simple(tmp_path / "r", texts, size=1)) as app:
        result = error(reply_to(app, "\n".join(texts)))
        assert result["code"] == "ambiguous"
        assert "3000 recorded questions" in result["message"]


def test_a_strict_server_answers_recorded_requests_only(tmp_path):
    with opened(simple(tmp_path / "r", [SALLY, TRAIN]), strict=True) as app:
        assert where(app, SALLY, temperature=0.7, seed=3) == ("q0", "request")
        # cut to what was asked for
        assert texts_of(reply_to(app, SALLY, max_tokens=3)) == ["q0, thought"]
        result = error(reply_to(app, [SYSTEM, user(SALLY)]))
        assert "'q0'" in result["message"]
        assert "2 messages were sent, 1 recorded" in result["message"]
        result = error(reply_to(app, SALLY, temperature=0.9))
        assert "temperature 0.9 (recorded: 0.7)" in result["message"]
        assert result["param"] == "temperature"
        assert where(app, "anything", feval={"question": "q1"}) == ("q1", "id")


def test_a_miss_says_what_differs_and_what_is_there(tmp_path):
    with opened(simple(tmp_path / "r", [SALLY, TRAIN])) as app:
        reply = reply_to(app, SALLY, model="gpt-3.5-turb")
        result = error(reply)
        assert (reply.status, result["code"], result["param"]) == (404, "model_not_found", "model")
        assert "Did you mean 'gpt-3.5-turbo'?" in result["message"]
        assert "gpt-3.5-turbo on toy (2 questions)" in result["message"]
        reply = reply_to(app, "Sally has four brothers. How many sisters has she?")
        result = error(reply)
        assert (reply.status, result["code"], result["param"]) == (400, "not_recorded", "messages")
        assert "The nearest is 'q0' of toy" in result["message"]
        assert "X-Feval-Question" in result["message"]
        assert "no user message" in error(reply_to(app, [SYSTEM]))["message"]
        result = error(reply_to(app, "x", feval={"question": "q7"}))
        assert "'q7'" in result["message"]
        assert "toy (2 questions, such as 'q0')" in result["message"]


def test_a_message_without_end_is_not_searched(tmp_path):
    with opened(simple(tmp_path / "r", [SALLY])) as app:
        reply = reply_to(app, "x " * 600_000 + SALLY)
        assert reply.status == 400
        assert "characters" in error(reply)["message"]


def test_what_is_to_be_served_must_be_there(tmp_path):
    path = simple(tmp_path / "r", [SALLY])
    for options, word in (({"datasets": "gsm8k"}, "'gsm8k'"), ({"llms": ["gpt-9"]}, "'gpt-9'")):
        with pytest.raises(NotRecordedError, match=word):
            opened(path, **options)


def test_foreign_ids_are_percent_encoded_in_headers(tmp_path):
    questions = [Question("größe, 1/2%", SALLY)]
    pools = [rows(questions[0])]
    with opened(write(tmp_path / "r", [(LLMInfo("gpt-3.5-turbo"), pools)], questions)) as app:
        reply = reply_to(app, SALLY)
        assert reply.headers["x-feval-question"] == "gr%C3%B6%C3%9Fe%2C 1/2%25"
        again = reply_to(app, "x", headers={"x-feval-question": reply.headers["x-feval-question"]})
        assert again.headers["x-feval-question"] == reply.headers["x-feval-question"]


def by_force(texts, message):
    """Every text at every place, less those that lie in a longer one: by looking everywhere."""
    hits = {
        (start, start + len(text), text)
        for text in set(texts)
        for start in range(len(message))
        if text and message.startswith(text, start)
    }
    return sorted(
        hit for hit in hits if not any(o != hit and o[0] <= hit[0] and hit[1] <= o[1] for o in hits)
    )


# Without ASCII letters and digits, and of 16 characters or more, nothing but the place counts.
SYMBOLS = st.text("αβ", min_size=16, max_size=20)


@given(st.lists(SYMBOLS, min_size=1, max_size=6), st.text("αβ", max_size=60), st.data())
def test_the_index_finds_what_looking_everywhere_finds(texts, noise, data):
    chosen = data.draw(st.lists(st.sampled_from(texts), max_size=3))
    message = noise.join(["", *chosen, ""])
    result = TextIndex(texts).outermost(message)
    expected = by_force(texts, message)
    assert [(hit.start, hit.stop) for hit in result] == [
        (start, stop) for start, stop, _ in expected
    ]
    assert [hit.numbers for hit in result] == [
        tuple(i for i, own in enumerate(texts) if own == text) for _, _, text in expected
    ]
