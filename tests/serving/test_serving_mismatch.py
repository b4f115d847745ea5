"""No recorded CoT is handed out as a judge's verdict, as JSON or as a tool call; nothing else is
refused for it.
"""

import gzip
import json
import textwrap
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st
from serving_doubles import (
    asked_by_text,
    assistant,
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

from feval import import_recording
from feval.recording import LLMInfo
from feval.serving.prompts import common_passages

SALLY = "Sally has three brothers. How many sisters has she?"
TRAIN = "A train leaves at noon. When does it arrive?"
COTS = {
    SALLY: [
        (
            "Let's think step by step. Each brother has the same sisters, so Sally has two sisters."
            " The answer is 2."
        ),
        "She has 2.",
        "The three brothers share one sister, who is Sally herself, so the answer is 0.",
    ],
    TRAIN: [
        (
            "Noon is 12:00 and the ride takes two hours, so that it arrives at 14:00. The answer is"
            " 14:00."
        ),
        "A",
        "B",
    ],
}
MODEL = "gpt-3.5-turbo"


def recorded(path, prompt=None, choices=(), info=None):
    questions = asked_by_text([SALLY, TRAIN], choices=choices)
    pools = [rows(q, 3, texts=COTS[q.text], prompt=prompt, prompt_tokens=None) for q in questions]
    return write(path, [(info or LLMInfo(MODEL, 0.7, 64), pools)], questions)


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("judged") / "r")


@pytest.fixture
def app(recording):
    with opened(recording) as application:
        yield application


def refusal(app, content, **fields):
    reply = reply_to(app, content, **fields)
    assert reply.status == 400, reply.body
    result = error(reply)
    assert result["code"] == "not_recorded"
    return result


@pytest.mark.parametrize(
    "cot", [COTS[SALLY][0], COTS[SALLY][0][30:80], COTS[SALLY][2], COTS[TRAIN][0]]
)
def test_a_judges_prompt_is_not_recorded(app, cot):
    question, name = (TRAIN, "q1") if cot in COTS[TRAIN] else (SALLY, "q0")
    result = refusal(
        app, f"Score the following conversation 0-10.\nuser: {question}\nassistant: {cot}\nScore:"
    )
    assert result["param"] == "messages"
    assert "quotes a recorded CoT" in result["message"]
    assert f"'{name}' of toy" in result["message"]
    assert "allow_mismatch=True" in result["message"]


@pytest.mark.parametrize("cot", COTS[TRAIN])
def test_a_whole_cot_as_an_earlier_reply_is_a_quote_however_short(app, cot):
    refusal(app, [user(TRAIN), assistant(cot), user(f"Are you sure? {TRAIN}")])
    refusal(
        app, [user(TRAIN), assistant(f" {cot}\n"), user("Are you sure?")], feval={"question": "q1"}
    )


def test_forty_characters_are_a_quote_and_thirty_nine_are_none(recording):
    cot = COTS[SALLY][2]
    with opened(recording, recycle=True) as app:
        for start in range(len(cot) - 40):
            refusal(app, f"Judge [{cot[start : start + 40]}] as a reply to: {SALLY}")
            assert (
                reply_to(app, f"Judge [{cot[start : start + 39]}] as a reply to: {SALLY}").status
                == 200
            )


def test_a_short_cot_right_behind_the_question_is_a_quote(tmp_path):
    with opened(simple(tmp_path / "r", [SALLY], texts=["The answer is 2."] * 4)) as app:
        refusal(app, f"Score 0-10. user: {SALLY} assistant: The answer is 2. Score:")
        exemplar = "Q: Is it one or two?\nA: The answer is 2."
        assert reply_to(app, f"{exemplar}\n\nQ: {SALLY}\nA:").status == 200


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "cot", [COTS[SALLY][0], "The answer is 2.", "First line of a reply.\nSecond line of it."]
)
def test_wrapping_and_indenting_do_not_hide_a_quote(tmp_path, cot, line_end):
    with opened(simple(tmp_path / "r", [SALLY], texts=[cot] * 4, prompt=None)) as app:
        wrapped = textwrap.indent(textwrap.fill(cot, 12), "    ").replace("\n", line_end)
        refusal(app, f"user: {SALLY}\nassistant:\n{wrapped}\nScore:")
        refusal(app, [user(SALLY), assistant(wrapped), user(f"Are you sure? {SALLY}")])


def test_cots_of_every_llm_are_known_to_the_judge(tmp_path):
    questions = asked_by_text([SALLY])
    pairs = [
        (LLMInfo(name), [rows(questions[0], 1, texts=[text], prompt=None)])
        for name, text in ((MODEL, COTS[SALLY][0]), ("gpt-4", COTS[SALLY][2]))
    ]
    with opened(write(tmp_path / "r", pairs, questions)) as app:
        refusal(app, f"Is this right? {SALLY} {COTS[SALLY][0]}", model="gpt-4")


def test_with_the_switch_they_are_answered_and_counted(recording):
    judged = f"Score 0-10. user: {SALLY} assistant: {COTS[SALLY][0]}"
    with opened(recording, allow_mismatch=True) as app:
        assert texts_of(reply_to(app, judged))[0] in COTS[SALLY]
        assert reply_to(app, SALLY, response_format={"type": "json_object"}).status == 200
        counts = [use["mismatches"] for use in app.ledger("default")["prompts"]]
        assert counts == [{"messages": 1}, {"response_format": 1}]


def test_what_the_recorded_prompt_holds_is_no_quote(tmp_path):
    """The exemplar is one of the question's own CoTs, word for word."""
    prompt = [user("Who is it?"), assistant(COTS[SALLY][1]), user(f"{COTS[SALLY][0]}\n\n{SALLY}")]
    own = {"texts": COTS[SALLY], "prompt": json.dumps(prompt)}
    with opened(simple(tmp_path / "r", [SALLY], size=3, **own)) as app:
        assert reply_to(app, prompt).headers["x-feval-match"] == "request"
        again = [*prompt[:-1], user(f"{COTS[SALLY][0]}\n\nAnd now: {SALLY}")]
        assert reply_to(app, again).headers["x-feval-match"] == "question"
        refusal(app, f"{SALLY} {COTS[SALLY][2]}")


def test_the_question_and_its_options_are_no_quote(tmp_path):
    """CoTs often repeat both, labels and all."""
    options = (
        ("A", "the eldest of the three brothers"),
        ("B", "the youngest of the three brothers"),
    )
    shown = f"{SALLY}\nOptions:\n(A) {options[0][1]}\n(B) {options[1][1]}"
    own = {"texts": [f"{shown}\nThe answer is (A)."], "prompt": None, "choices": options}
    with opened(simple(tmp_path / "r", [SALLY], size=1, **own)) as app:
        assert reply_to(app, f"Answer this.\n{shown}").status == 200


@pytest.mark.parametrize(
    "more",
    [
        [assistant("I guess that she has")],
        [assistant("I guess two."), user("Are you sure?")],
        [assistant("I guess two."), user(f"Are you sure? {SALLY}")],
        [user("Are you sure?")],
        [{"role": "tool", "tool_call_id": "1", "content": "2"}],
        [{"role": "system", "content": "Reply with a score alone."}],
    ],
)  # fmt: skip
def test_what_comes_after_the_question_was_not_recorded(recording, more):
    named = {"feval": {"question": "q0"}}
    asked = [user(f"Solve it. {SALLY}"), *more]
    with opened(recording) as app:
        result = refusal(app, asked, **named)
        assert (
            f"the request goes on ({more[0]['role']}: {more[0]['content']!r}" in result["message"]
        )
        follows = more[-1] == user("Are you sure?")
        assert ("A message before it asks 'q0' of toy" in refusal(app, asked)["message"]) is follows
        assert app.ledger()["runs"] == []
    with opened(recording, allow_mismatch=True) as app:
        reply_to(app, asked, **named)
        assert app.ledger("default")["prompts"][0]["mismatches"] == {"messages": 1}


@pytest.mark.parametrize(
    "before",
    [
        [{"role": "system", "content": "Think."}], [user("Here it comes.")], [user(SALLY)],
        [user(TRAIN), assistant("At two."), {"role": "system", "content": "Think."}],
    ],
)  # fmt: skip
def test_what_comes_before_the_question_or_repeats_it_is_answered(app, before):
    assert reply_to(app, [*before, user(f"Once more: {SALLY}")]).status == 200


def test_a_recorded_prefill_is_known_in_a_prompt_of_ones_own(tmp_path):
    prefill = [user(SALLY), assistant("Let us think.")]
    with opened(recorded(tmp_path / "r", prompt=json.dumps(prefill))) as app:
        asked = [{"role": "system", "content": "Think."}, *prefill]
        assert reply_to(app, asked).headers["x-feval-match"] == "question"
        refusal(app, [*asked[:-1], assistant("Let us guess.")])


@pytest.mark.parametrize(
    ("words", "quoted"),
    [
        ("Proposed answer: 1\nIs it correct?", "1"), ("Is (0) the answer?", "0"),
        ("Choose: 0, 1, 0", "0"),
        ("Is it 14 or 10?", None), ("Think step by step.", None),
    ],
)  # fmt: skip
def test_a_verifier_that_quotes_the_answer_alone_is_warned(recording, words, quoted):
    """The recorded answers are 0 and 1; what the words around the question always hold is no
    quote.
    """
    with opened(recording) as app:
        said = []
        for asked in (f"{SALLY}\n{words}", f"{words}\n{SALLY}"):
            assert app.respond(replace(chat(asked), warn=said.append)).status == 200
        assert len(said) == (quoted is not None)  # once
        for exemplar in ("Q: Two less one? A: 1", "Q: Is it one? The answer is 0."):
            assert (
                app.respond(replace(chat(f"{exemplar}\n\nQ: {TRAIN}"), warn=said.append)).status
                == 200
            )
        assert len(said) == (quoted is not None)
        assert (
            not said
            or f"puts {quoted!r}, the answer of a recorded CoT, beside the question 'q0' of toy"
            in said[0]
        )


@pytest.mark.parametrize(
    ("words", "answers", "warnings"),
    [
        ("Answer yes or no.", ["no"], 0), ("Proposed answer: no.", ["no"], 1),
        ("Answer with A or B.", ["A"], 0),
        ("Is it (A)?", ["A"], 1),
    ],
)  # fmt: skip
def test_the_answers_that_there_are_quote_none(tmp_path, words, answers, warnings):
    own = {"texts": ["So."], "raw_answers": answers, "answers": answers}
    own["choices"] = (("A", "one or none"), ("B", "two or more"))
    with opened(simple(tmp_path / "r", [SALLY], size=1, **own)) as app:
        said = []
        app.respond(replace(chat(f"{SALLY}\n{words}"), warn=said.append))
        assert len(said) == warnings


def test_exemplars_in_earlier_messages_are_no_quote(app):
    """Replies to other questions, though one of them is, word for word, a CoT of this one."""
    turns = [
        user("Is snow white? (A) yes (B) no"),
        assistant("A"),
        user(SALLY),
        assistant("B"),
        user(TRAIN),
    ]
    assert reply_to(app, turns).status == 200


def test_words_around_many_questions_are_no_quote_of_one(tmp_path):
    """An exemplar that one CoT of the last question imitates."""
    exemplar = 'The last letter of "Bill" is "l". The last letter of "Gates" is "s".'
    texts = [f"Take the last letters of the words in name number {i}." for i in range(5)]
    questions = asked_by_text(texts)
    cots = [f"It is the letter number {i}, as far as I can see." for i in range(4)] + [
        f"{exemplar} So far."
    ]
    pools = [rows(q, 1, texts=[cot], prompt=None) for q, cot in zip(questions, cots, strict=True)]
    with opened(write(tmp_path / "r", [(LLMInfo(MODEL), pools)], questions)) as app:
        refusal(app, f"{exemplar}\n{texts[4]}")
        for text in [*texts[:4], texts[4]]:
            assert reply_to(app, f"{exemplar}\n{text}").status == 200


@given(st.text("ab", min_size=30, max_size=120), st.lists(st.text("ab", max_size=90), max_size=4))
def test_passages_are_found_wherever_they_stand(message, texts):
    result = set(common_passages(message, texts, 34))
    wanted = {text[start : start + 34] for text in texts for start in range(len(text) - 33)}
    assert bool(result) == any(passage in message for passage in wanted)
    assert all(passage in message and passage in wanted for passage in result)


SCHEMA = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": {"type": "object"}}}
NAMED = {"type": "function", "function": {"name": "verdict"}}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("response_format", SCHEMA), ("response_format", {"type": "json_object"}), ("guided_json",
        {"type": "object"}),
        ("tool_choice", "required"), ("tool_choice", NAMED), ("function_call", {"name": "verdict"}),
        ("tool_choice", {"type": "allowed_tools", "allowed_tools": {"mode": "required",
        "tools": [NAMED]}}),
    ],
)  # fmt: skip
def test_json_and_forced_tools_are_not_recorded(recording, field, value):
    with opened(recording) as app:
        result = refusal(app, SALLY, **{field: value})
        assert result["param"] == field
        assert f"({field}" in result["message"]
        assert f"Leave {field} out" in result["message"]
    with opened(recording, allow_mismatch=True) as app:
        assert field in reply_to(app, SALLY, **{field: value}).headers["x-feval-ignored"]


def test_what_was_recorded_so_is_answered_so(tmp_path):
    info = LLMInfo(MODEL, 0.7, 64, {"response_format": SCHEMA, "tool_choice": NAMED})
    with opened(recorded(tmp_path / "r", info=info)) as app:
        same = (
            {"response_format": SCHEMA},
            {"tool_choice": NAMED},
            {"response_format": {"type": "json_object"}},
        )
        for fields in same:
            assert reply_to(app, SALLY, **fields).status == 200
        other = SCHEMA | {"json_schema": {"name": "score"}}
        refusal(app, SALLY, response_format=other)


def test_cots_that_are_json_answer_who_wants_json(tmp_path):
    """A prompt can ask for JSON without a schema; a text among them is no object."""
    for number, (texts, status) in enumerate(
        ((['{"answer": 2}'], 200), (['{"answer": 2}', "2"], 400), (["2"], 400))
    ):
        with opened(simple(tmp_path / str(number), [SALLY], size=len(texts), texts=texts)) as app:
            assert reply_to(app, SALLY, response_format=SCHEMA).status == status
            refusal(app, SALLY, tool_choice="required")


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [], "tool_choice": "auto"},
        {"tool_choice": "none"},
        {"response_format": {"type": "text"}},
    ],
)
def test_what_demands_nothing_is_answered(app, fields):
    assert reply_to(app, SALLY, **fields).status == 200


def test_other_tools_than_were_recorded_are_not(tmp_path):
    function = {"name": "verdict", "description": None}  # null is as good as absent
    info = LLMInfo(MODEL, 0.7, 64, {"tools": [NAMED]})
    with opened(recorded(tmp_path / "r", info=info)) as app:
        own = [{"type": "function", "function": function}]
        assert reply_to(app, SALLY, tools=own).status == 200
        other = refusal(app, SALLY, tools=[*own, {"type": "function", "function": {"name": "f"}}])
        assert "offers the tools verdict, f, and" in other["message"]
        assert "with verdict, or" in other["message"]


def test_the_last_question_of_a_few_shot_prompt_is_asked(recording):
    prompt = f"Q: {SALLY}\nA: {COTS[SALLY][0]}\n\nQ: {TRAIN}\nA:"
    with opened(recording) as app:
        result = error(reply_to(app, prompt))
        assert result["code"] == "ambiguous"
        assert "few_shot='last'" in result["message"]
        for fields in ({"feval": {"few_shot": "last"}}, {"headers": {"x-feval-few-shot": "last"}}):
            headers = reply_to(app, prompt, **fields).headers
            assert (headers["x-feval-question"], headers["x-feval-match"]) == ("q1", "few-shot")
    with opened(recording, few_shot="last") as app:
        assert reply_to(app, prompt).headers["x-feval-question"] == "q1"
        assert error(reply_to(app, prompt, feval={"few_shot": "none"}))["code"] == "ambiguous"
        assert (
            error(reply_to(app, prompt, feval={"few_shot": "first"}))["param"] == "feval.few_shot"
        )
        refusal(app, f"{prompt} {COTS[TRAIN][0]}\n\nIs this right?")
        twice = f"Q: {SALLY}\nA: 2.\n\nQ: {TRAIN}\nRead it again: {TRAIN}\nA:"
        assert reply_to(app, twice).headers["x-feval-question"] == "q1"


def test_every_standard_few_shot_prompt_is_answered(shared, tmp_path):
    """Exemplars in the form of BIG-Bench Hard's, which are recorded questions; 369 of 369 were
    ambiguous.
    """
    source = shared / "real/mot_cascade/GPT3_result/date_cot1_40.json.gz"
    import_recording("mot-cascade", source, tmp_path / "r", dataset="bigbench_date", llm=MODEL)
    entries = json.loads(gzip.decompress(source.read_bytes()))
    first = {entry["question"]: entry["generated"][0] for entry in entries[:3]}
    with opened(tmp_path / "r", few_shot="last") as app:
        asked = {}
        for entry in entries:
            exemplars = "".join(f"Q: {text}\nA: {cot}\n\n" for text, cot in first.items())
            reply = reply_to(
                app, f"Infer the date from context.\n\n{exemplars}Q: {entry['question']}\nA:"
            )
            assert texts_of(reply)[0] in entry["generated"]
            asked[reply.headers["x-feval-question"]] = entry["question"]
        assert len(asked) == 369
        [use] = app.ledger("default")["prompts"]
        assert use["matches"] == {"few-shot": 369}
        assert use["template"] is not None


def test_judges_of_real_cots_are_all_refused_and_plain_prompts_answered(shared, tmp_path):
    source = shared / "real/mot_cascade/GPT3_result/date_cot1_40.json.gz"
    import_recording("mot-cascade", source, tmp_path / "r", dataset="bigbench_date", llm=MODEL)
    with opened(tmp_path / "r") as app:
        for entry in json.loads(gzip.decompress(source.read_bytes()))[::4]:
            for cot in entry["generated"][:3]:
                refusal(
                    app,
                    f"Score the following conversation 0-10.\nuser: {entry['question']}\nassistant:"
                    f" {cot}\n",
                )
            own = (
                f"Let's think step by step. {entry['question']} The answer is a date (MM/DD/YYYY)."
            )
            assert reply_to(app, own).status == 200
