"""Reading requests: what is wrong is said by the name of its field, and nothing that a client sends
can break the reader.
"""

import orjson
import pytest
from hypothesis import given, strategies as st
from places import read_data

from feval.serving.wire.calls import RequestError
from feval.serving.wire.openai import CompletionRequest, conversation, parse

SERVED = read_data("served.json")

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def read(fields, kind="chat", **headers):
    return parse(
        kind,
        orjson.dumps(fields),
        {name.replace("_", "-"): value for name, value in headers.items()},
    )


def refused(body, kind="chat", **headers):
    body = body if isinstance(body, bytes) else orjson.dumps(body)
    with pytest.raises(RequestError) as caught:
        parse(kind, body, {name.replace("_", "-"): value for name, value in headers.items()})
    return caught.value


def test_what_is_left_out_or_null_has_the_usual_value():
    nothing = dict.fromkeys(
        ("n", "stream", "stream_options", "logprobs", "top_logprobs", "feval", "metadata")
    )
    for fields in (CHAT, CHAT | nothing):
        asked = read(fields)
        assert (asked.n, asked.top_logprobs) == (1, 0)
        assert (asked.stream, asked.include_usage, asked.logprobs) == (False, False, False)
        assert asked.question is asked.dataset is asked.sample is None
        assert asked.settings == {}


def test_text_parts_are_joined_as_recorders_join_them():
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    result = conversation([{"role": "user", "content": parts}])
    assert result == conversation([{"role": "user", "content": "one two"}])
    assert result.text_only


def test_an_image_is_more_than_text():
    parts = [
        {"type": "text", "text": "what is it?"},
        {"type": "image_url", "image_url": {"url": "data:"}},
    ]
    result = conversation([{"role": "user", "content": parts}])
    assert (result.last_user_text, result.text_only) == ("what is it?", False)


def test_the_last_user_message_counts():
    turns = [
        ("system", "s"),
        ("user", "one"),
        ("assistant", "two"),
        ("user", "three"),
        ("assistant", "four"),
    ]
    result = conversation([{"role": role, "content": text} for role, text in turns])
    assert result.last_user_text == "three"


def test_a_question_can_be_named_in_three_places_but_only_one():
    for fields, headers in (
        ({"feval": {"question": "q é"}}, {}),
        ({}, {"x_feval_question": "q%20%C3%A9"}),
        ({"metadata": {"feval_question": "q é"}}, {}),
    ):
        assert read(CHAT | fields, **headers).question == "q é"
    both = refused(CHAT | {"feval": {"question": "a"}}, x_feval_question="b")
    assert "'a'" in str(both)
    assert "'b'" in str(both)
    assert read(CHAT | {"feval": {"question": "a"}}, x_feval_question="a").question == "a"


def test_a_slip_in_the_fields_that_are_ours_is_not_passed_over():
    assert "'qestion'" in str(refused(CHAT | {"feval": {"qestion": "a"}}))


def test_one_cot_cannot_be_chosen_and_several_be_asked_for():
    assert read(CHAT | {"feval": {"sample": 7}}).sample == 7
    assert read(CHAT, x_feval_sample="7").sample == 7
    assert refused(CHAT | {"feval": {"sample": 7}, "n": 2}).parameter == "n"
    assert "two samples" in str(refused(CHAT | {"feval": {"sample": 7}}, x_feval_sample="8"))


@pytest.mark.parametrize("sample", ["-1", "1.5", "٣", "", "9" * 30])  # noqa: RUF100  an Arabic digit is no index
def test_a_sample_that_is_no_place_is_refused(sample):
    assert "X-Feval-Sample" in str(refused(CHAT, x_feval_sample=sample))


@pytest.mark.parametrize(("name", "value"), SERVED["wrong types"])
def test_a_value_of_the_wrong_type_is_named(name, value):
    result = refused(CHAT | {name: value})
    assert result.parameter == name
    assert f"`{name}`" in str(result)
    assert result.status == 400


@pytest.mark.parametrize(("messages", "parameter"), SERVED["broken messages"])
def test_a_broken_message_is_named_by_its_place(messages, parameter):
    assert refused(CHAT | {"messages": messages}).parameter == parameter


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"nonsense", b'{"model": NaN}', b'{"n": Infinity}', b'"\xff"',
        b'{"a": "\\ud800"}', b"[" * 100_000,
        b'{"a":' * 5_000 + b"1" + b"}" * 5_000, b"[]", b"3", b"null",
    ],
)  # fmt: skip
def test_what_is_no_json_object_is_refused(body):
    assert refused(body).status == 400


def test_a_number_beyond_every_integer_is_refused():
    assert refused(orjson.dumps(CHAT)[:-1] + b',"n":' + b"9" * 400 + b"}").status == 400


def test_of_a_key_that_stands_twice_the_last_counts():
    assert parse("chat", orjson.dumps(CHAT)[:-1] + b',"n":2,"n":3}', {}).n == 3


def test_a_message_shows_little_of_what_was_sent():
    result = refused(CHAT | {"n": "x" * 1_000_000})
    assert len(str(result)) < 300


def test_completions_take_a_prompt_or_several():
    one = read({"model": "m", "prompt": "hello", "logprobs": 5}, "completion")
    assert [asking.last_user_text for asking in one.conversations] == ["hello"]
    assert (one.logprobs, one.top_logprobs) == (True, 5)
    two = read({"model": "m", "prompt": ["a", "b"]}, "completion")
    assert [asking.last_user_text for asking in two.conversations] == ["a", "b"]
    for wrong in (None, [], [1, 2], [[1, 2]], {"a": 1}):
        assert refused({"model": "m", "prompt": wrong}, "completion").parameter == "prompt"
    assert refused({"model": "m", "prompt": "x", "echo": True}, "completion").parameter == "echo"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = [
    *CHAT,
    "prompt",
    "n",
    "stream",
    "stream_options",
    "logprobs",
    "top_logprobs",
    "feval",
    "metadata",
    "stop",
]


@given(
    st.dictionaries(st.sampled_from(FIELDS), JSON),
    st.sampled_from(["chat", "completion"]),
    st.booleans(),
)
def test_any_json_is_read_or_refused(fields, kind, usual):
    given_fields = (CHAT | {"prompt": "hello"} if usual else {}) | fields
    try:
        result = parse(kind, orjson.dumps(given_fields), {})
    except RequestError as error:
        result = error
    if isinstance(result, CompletionRequest):
        assert result.n >= 1
        assert result.model
    else:
        assert result.status == 400
        assert str(result).endswith(".")
