"""Turns in generic rows: replies to CoTs, one after the other or as nodes."""

import json

import pytest
from importing import notes, refusals, rows
from places import read_data

from feval import evaluate, load
from feval.errors import ConflictError, FevalError, UsageError
from feval.recording import verify_recording

QUESTION = {
    "id": "q1",
    "question": "What is 2 + 2?",
    "gold": "4",
    "prompt": "2 + 2?",
    "prompt_tokens": 9,
}
FIRST = {
    "messages": "Are you sure?",
    "text": "It is 4.",
    "answer": "4",
    "tokens": 3,
    "prompt_tokens": 20,
}
SECOND = {
    "messages": [{"role": "system", "content": "Be strict."}, {"role": "user", "content": "Why?"}],
    "text": "Because.",
    "answer": None,
    "tokens": 2,
    "usage": {"prompt_tokens": 31},
    "score": 0.5,
}
SAMPLES = [
    {"text": "It is 5.", "answer": "5", "tokens": 4, "turns": [FIRST, SECOND]},
    {"text": "It is 4.", "answer": "4", "tokens": 5, "score": 1},
    {
        "text": "No idea.",
        "answer": None,
        "tokens": 6,
        "turns": [FIRST | {"answer": "7", "tokens": 7}],
    },
]


def line(samples, **fields):
    return QUESTION | {"samples": samples} | fields


def sent(*messages):
    return json.dumps(messages, separators=(",", ":"))


SURE, WHY = sent({"role": "user", "content": "Are you sure?"}), sent(*SECOND["messages"])


def test_a_turn_replies_to_the_result_of_a_tool(imported):
    call = {"id": "c", "name": "add", "arguments": '{"a": 2, "b": 2}'}
    result = [{"role": "tool", "tool_call_id": "c", "content": "4"}]
    first = {"text": "", "answer": None, "tokens": 3, "tool_calls": [call]}
    recording = imported(
        "jsonl", line([first | {"turns": [FIRST | {"messages": result}]}]), answer_kind="number"
    )
    dataset, [llm] = load("toy", recording=recording)

    def agent(_, llm):
        return llm.reply(llm.sample(1), result).answers[0]

    assert evaluate(agent, dataset, llm).accuracy == 1
    *_, said, last = json.loads(llm.request(0, 1).raw_text or "")
    assert (said["tool_calls"][0]["function"]["name"], [last]) == ("add", result)


def test_turns_are_a_chain_behind_their_cot(imported):
    recording = imported("jsonl", line(SAMPLES), answer_kind="number")
    [pool] = recording.pools("toy", "toy-llm")
    assert pool.texts == ["It is 5.", "It is 4.", "No idea.", "It is 4.", "It is 4.", "Because."]
    assert pool.parents == [None, None, None, 0, 2, 3]
    assert pool.ends == [True] * 6
    assert pool.answers == ["5", "4", None, "4", "7", None]
    assert pool.output_tokens == [4, 5, 6, 3, 7, 2]
    assert pool.messages == [None, None, None, SURE, SURE, WHY]
    assert (pool.prompt_tokens, pool.turn_prompt_tokens) == (9, [None, None, None, 20, 20, 31])
    scores = next(recording.score_rows("toy", "toy-llm", "score"))
    assert (scores.sample_indices, scores.scores) == ([1, 5], [1.0, 0.5])
    assert verify_recording(recording.path).problems == ()
    assert "not imported" not in notes(recording)
    # a line a CoT
    apart = imported("jsonl", [QUESTION | sample for sample in SAMPLES], answer_kind="number")
    assert (rows(apart), apart.hash) == (rows(recording), recording.hash)


def test_turns_as_nodes_may_branch(imported):
    def node(name, parent, text, **turn):
        return {
            "node": name,
            "parent": parent,
            "text": text,
            "tokens": 1,
            "answer": None,
            "ends": True,
        } | turn

    asked = {"turn_messages": "Are you sure?", "turn_prompt_tokens": 12}
    steps = [node("c", "a", "yes", **asked), node("a", None, "4"), node("b", "a", "no", **asked)]
    [pool] = imported("jsonl", QUESTION | {"steps": steps}, answer_kind="text").pools(
        "toy", "toy-llm"
    )
    assert (pool.texts, pool.parents, pool.messages) == (
        ["4", "yes", "no"],
        [None, 0, 0],
        [None, SURE, SURE],
    )
    assert pool.turn_prompt_tokens == [None, 12, 12]


def test_answers_and_tokens_that_the_file_lacks_are_read_and_counted(imported):
    bare = [
        {
            "text": "<think>2, 3</think>It is 5.",
            "turns": [{"messages": "Are you sure?", "text": "Sorry, it is 4."}],
        },
        {"text": "It is 4.", "turns": [{"messages": "Why?", "text": "Because 2 + 2 is 4."}]},
    ]
    recording = imported(
        "jsonl", line(bare, prompt="What is 2 + 2?", prompt_tokens=None), answer_kind="number"
    )
    [pool] = recording.pools("toy", "toy-llm")
    assert pool.answers == ["5", "4", "4", "4"]
    assert (pool.texts[0], pool.reasoning) == ("It is 5.", ["2, 3", None, None, None])
    # 1.365 tokens a word: of the request 7, of the CoT as written, with its thoughts, 5, of the
    # message 4.
    assert (recording.counter("toy", "toy-llm"), pool.prompt_tokens) == ("words", 7)
    assert pool.turn_prompt_tokens == [None, None, 7 + 5 + 4, 7 + 4 + 1]
    again = imported("jsonl", line(SAMPLES), answer_kind="number", counter="words")
    assert next(again.pools("toy", "toy-llm")).turn_prompt_tokens == [
        None,
        None,
        None,
        4 + 4 + 4,
        4 + 3 + 4,
        12 + 4 + 4,
    ]


def test_prompt_tokens_of_turns_may_be_unknown_where_those_of_the_request_are(imported):
    bare = [
        {
            **SAMPLES[0],
            "turns": [{name: value for name, value in FIRST.items() if name != "prompt_tokens"}],
        }
    ]
    [pool] = imported("jsonl", line(bare, prompt_tokens=None), answer_kind="number").pools(
        "toy", "toy-llm"
    )
    assert (pool.prompt_tokens, pool.turn_prompt_tokens) == (None, None)


def test_empty_lists_of_turns_are_plain_cots(imported):
    recording = imported(
        "jsonl", line([sample | {"turns": []} for sample in SAMPLES]), answer_kind="number"
    )
    assert recording.channels("toy", "toy-llm") == []


def with_turn(**changes):
    turn = {name: value for name, value in (FIRST | changes).items() if value != "..."}
    return [SAMPLES[0], SAMPLES[1] | {"turns": [FIRST, turn]}]


NO_TURNS = read_data("importers.json")["no turns"]

test_what_is_no_turn_is_refused = refusals(
    "jsonl",
    [
        *(
            (with_turn(**changes), sentence)
            for changes, sentence in read_data("importers.json")["no turns"]
        ),
        (
            [SAMPLES[0] | {"turns": ["Why?"]}],
            "Entry 0 of 'turns' of sample 0 of line 1 .* should be an object",
        ),
        (
            [SAMPLES[0] | {"turns": 3}],
            "'turns' of sample 0 of line 1 .* should be a list of objects",
        ),
        (
            [*SAMPLES, {"node": "a", "tokens": 1, "answer": "4"}],
            "has both CoTs with 'turns' and nodes of trees",
        ),
    ],
    line,
    answer_kind="number",
)


NODES = [{"node": "a", "tokens": 1, "answer": "4"}, {"node": "b", "tokens": 1}]
TURN = {
    "node": "c",
    "parent": "a",
    "tokens": 1,
    "ends": True,
    "turn_messages": "Why?",
    "turn_prompt_tokens": 10,
}


@pytest.mark.parametrize(
    "changes",
    [{"parent": None}, {"ends": False}, {"parent": "b"}],
    ids=["no parent", "no end", "a step that goes on"],
)
def test_nodes_that_reply_to_no_cot_are_refused(changes, imported):
    imported.refuses(
        "The node 'c' of question 'q1' has 'turn_messages' and is no turn",
        "jsonl",
        QUESTION | {"steps": [*NODES, TURN | changes]},
        answer_kind="number",
    )


def test_turns_in_a_tree_of_steps_are_refused(imported):
    imported.refuses(
        "question 'q1': turn 2 has the parent 0 in a tree",
        "jsonl",
        QUESTION | {"steps": [*NODES, TURN]},
        error=(UsageError, ConflictError, FevalError),
        answer_kind="number",
    )
