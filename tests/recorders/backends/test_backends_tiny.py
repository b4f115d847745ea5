"""The built-in models as a backend."""

import numpy as np
import pytest
from recording_doubles import completions

from recorders.errors import Fatal, RefusalError
from recorders.request import Decoding, Message, Request

tiny = pytest.importorskip("recorders.tiny", reason="the tiny models are not there")

from recorders.backends.local import Tiny  # noqa: E402  after the skip

QUESTION = "Tom has 49 apples. Tom gives away 22. How many apples does Tom have now?"
MODEL = next(iter(tiny.FAMILY))


def request(question=QUESTION, *, model=MODEL, messages=None, **decoding):
    chosen = (Message("user", question),) if messages is None else tuple(messages)
    return Request(
        "feval_tiny",
        "q1",
        chosen,
        model,
        Decoding(**({"temperature": 1.0, "max_tokens": 64} | decoding)),
    )


def complete(asked, samples=(0,), notes=None):
    return completions(Tiny(note=([] if notes is None else notes).append), asked, samples)


def test_samples_are_the_models_own():
    model = tiny.load_model(MODEL)
    drawn = tiny.sample(
        model, QUESTION, range(3, 8), tiny.TinyDecoding(max_tokens=64, top_logprobs=4)
    )
    replies = complete(request(logprobs=4), range(3, 8))
    assert [completion.text for completion in replies] == [answer.text for answer in drawn]
    assert [completion.output_tokens for completion in replies] == [
        answer.output_tokens for answer in drawn
    ]
    assert [completion.finish_reason for completion in replies] == [
        answer.finish_reason for answer in drawn
    ]
    assert replies[0].token_logprobs == tuple(drawn[0].logprobs.tolist())
    np.testing.assert_allclose(
        replies[0].token_confidences or (), -drawn[0].top_logprobs.mean(axis=1)
    )
    assert replies[0].served_model == MODEL


def test_the_seed_counts_on():
    assert complete(request(seed=5), [0, 1]) == complete(request(), [5, 6])


def test_log_probabilities_are_there_only_when_asked_for():
    [plain], [sampled] = complete(request()), complete(request(logprobs=0))
    assert (plain.token_logprobs, plain.token_confidences) == (None, None)
    assert sampled.token_logprobs is not None
    assert sampled.token_confidences is None


def test_a_stop_text_ends_the_answer_and_is_not_part_of_it():
    [whole] = complete(request(logprobs=2))
    stop = whole.text[4:8]
    [cut] = complete(request(logprobs=2, stop=(stop, "never")))
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.finish_reason == "stop"
    assert cut.output_tokens is not None
    assert cut.output_tokens < (whole.output_tokens or 0)
    assert len(cut.token_logprobs or ()) == len(cut.token_confidences or ()) == cut.output_tokens


def test_the_other_messages_have_no_effect_and_that_is_said_once():
    notes = []
    messages = [
        Message("system", "Be brief."),
        Message("user", "Hi"),
        Message("assistant", "Hello"),
        Message("user", QUESTION),
    ]
    assert complete(request(messages=messages), notes=notes) == complete(request())
    assert len(notes) == 1
    assert "last user message" in notes[0]


def test_models_with_a_shared_stream_share_their_noise():
    assert complete(request(extra_body={"stream": "a"}), range(9)) != complete(request(), range(9))


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        (request(model="feval/tiny-none"), Fatal),
        (request(temperature=-1.0), Fatal),
        (request(seed=-1), Fatal),
        (request(extra_body={"min_p": 0.1}), Fatal),
        (request("apple " * 300), RefusalError),
        (request(messages=[Message("system", "Hi")]), RefusalError),
    ],
)
def test_what_cannot_work_is_said(asked, kind):
    with pytest.raises(kind):
        complete(asked)
