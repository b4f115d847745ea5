"""Trees of steps in generic rows."""

import json
from pathlib import Path

from importing import notes, refusals, rows
from places import read_data

from feval.recording import verify_recording

QUESTION = {"id": "q1", "question": "What is 2 + 2?", "gold": "4"}
EXAMPLE = Path(__file__).parents[2] / "examples" / "tree.jsonl"
NODES = read_data("importers.json")["nodes"]


def line(nodes, **fields):
    return QUESTION | {"steps": nodes, **fields}


def test_steps_come_behind_their_parents_with_their_siblings(imported):
    recording = imported(
        "jsonl", line(NODES, step_stop="\n\n", step_policy="mine"), answer_kind="number"
    )
    [pool] = recording.pools("toy", "toy-llm")
    assert pool.texts == ["One.", "Two.", "<think> 5.", "4.", "6"]
    assert pool.parents == [None, None, 0, 1, 1]
    assert pool.ends == [False, False, False, True, True]
    assert pool.answers == [None, None, None, "4", None]
    assert pool.output_tokens == [1, 2, 4, 3, 5]
    assert recording.llm_info("toy-llm").decoding == {"steps": {"stop": "\n\n", "policy": "mine"}}
    scores = {
        scorer: next(recording.score_rows("toy", "toy-llm", scorer))
        for scorer in ("score", "prm", "other")
    }
    assert [(each.sample_indices, each.scores) for each in scores.values()] == [
        ([3], [0.5]),
        ([0], [0.25]),
        ([0], [1]),
    ]
    assert verify_recording(recording.path).problems == ()
    assert "without a reply" not in notes(recording)
    # a line a step
    apart = imported("jsonl", [QUESTION | node for node in NODES], answer_kind="number")
    assert (rows(apart), list(apart.pools("toy", "toy-llm"))) == (rows(recording), [pool])


def test_answers_are_read_in_the_texts_of_ends_where_the_file_has_none(imported):
    nodes = [{**node, "ends": "answer" in node or node.get("ends", False)} for node in NODES]
    for node in nodes:
        node.pop("answer", None)
    [pool] = imported("jsonl", line(nodes), answer_kind="number").pools("toy", "toy-llm")
    assert pool.answers == [None, None, None, "4", "6"]


def test_steps_without_nodes_are_an_unknown_member(imported):
    recording = imported(
        "jsonl", QUESTION | {"text": "It is 2.", "answer": "2", "tokens": 3, "steps": ["It", "is"]}
    )
    assert not recording.has_steps("toy", "toy-llm")
    assert "not imported: steps" in notes(recording)


def test_a_tree_of_no_steps_is_a_question_that_was_not_asked(imported):
    other = {"id": "q2", "question": "1 + 1?", "gold": "2", "steps": []}
    for rows_ in ((other, QUESTION | {"steps": NODES}), (QUESTION | {"steps": NODES}, other)):
        recording = imported("jsonl", rows_, answer_kind="number")
        assert {
            pool.question_id: len(pool.answers) for pool in recording.pools("toy", "toy-llm")
        } == {"q1": 5, "q2": 0}


def test_a_line_with_samples_and_a_tree_is_refused(imported):
    imported.refuses(
        r"Line 1 .* has both 'completions' and a tree in 'steps'; give CoTs and trees",
        "jsonl",
        line(NODES, completions=["It is 4."]),
        answer_kind="number",
    )


def test_the_example_is_a_tree(imported):
    recording = imported("jsonl", EXAMPLE, answer_kind="number", llm=None)
    steps = recording.steps("toy", "m@steps")
    assert steps is not None
    assert steps.children(0, 1) == range(4, 6)
    assert recording.manifest.pairs["toy", "m@steps"]["depth"] == 3
    assert [json.loads(each)["id"] for each in EXAMPLE.read_text().splitlines()] == ["q1", "q2"]


test_what_is_no_tree_is_refused = refusals(
    "jsonl",
    [
        ([*NODES, {"node": "a", "tokens": 1}], "Question 'q1' has the node 'a' twice"),
        (
            [*NODES, {"node": "c", "parent": "x", "tokens": 1}],
            "'c' of question 'q1' has the parent 'x', and",
        ),
        (
            [*NODES, {"node": "c", "parent": 3, "tokens": 1}],
            "'c' .* goes on from the node '3', which ends",
        ),
        (
            [*NODES, *({"node": one, "parent": other, "tokens": 1} for one, other in ("cd", "dc"))],
            "The node 'c' of question 'q1' comes back to itself",
        ),
        (
            [*NODES, {"node": "c", "tokens": 1, "ends": False, "answer": "4"}],
            "has an answer and 'ends' is false",
        ),
        (
            [*NODES, {"tokens": 1}],
            "5 of 6 samples in .* have 'node', and sample 5 of line 1 .* has none",
        ),
        (
            [*NODES, {"node": "c", "tokens": 1, "score": "high"}],
            "'score' .*sample 5 .* should be a number; found text",
        ),
        (
            [*NODES, {"node": "c", "tokens": 1, "ends": 1}],
            "'ends' .*sample 5 .* should be true or false",
        ),
        ([*NODES, {"node": [], "tokens": 1}], "'node' .*sample 5 .* should be text"),
    ],
    line,
    answer_kind="number",
)
