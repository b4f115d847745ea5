"""Recorded scores behind vLLM's `/score`, `/rerank` and `/pooling`."""

import orjson
import pytest
from command_line import said
from serving_doubles import asked_by_text, assistant, body, opened, rows, user, write

from feval import load
from feval.recording import LLMInfo, ScorerInfo, ScoreRows, add_scores
from feval.serving import Call, serve

pytest.importorskip("uvicorn", reason="the extra serve is not installed")

QUESTIONS = [f"What is the answer to question number {i}, please?" for i in range(2)]
RM, PRM = (ScorerInfo(name, "http", {}) for name in ("my-rm", "my-prm"))


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    folder, questions = tmp_path_factory.mktemp("scores"), asked_by_text(QUESTIONS)
    pools = [rows(question) for question in questions]
    plain = write(folder / "plain", [(LLMInfo("alpha", 0.7, 64), pools)], questions)
    places = [0, 1, 2]  # the last CoT has no step scores
    whole = [
        ScoreRows(q.id, range(4), [(0.25 + row) * (place + 1) for place in range(4)])
        for row, q in enumerate(questions)
    ]
    steps = [
        ScoreRows(q.id, places, [None] * 3, [[0.5, place / 4] for place in places])
        for q in questions
    ]
    add_scores(plain, folder / "scored", RM, {("toy", "alpha"): whole})
    return add_scores(folder / "scored", folder / "both", PRM, {("toy", "alpha"): steps})


@pytest.fixture
def app(recording):
    with opened(recording) as application:
        yield application


def ask(app, path, model="my-rm", **fields):
    reply = app.respond(Call("POST", path, "", {}, orjson.dumps({"model": model} | fields)))
    return reply.status, body(reply)


def cot(row, sample):
    return f"q{row}, thought {sample}: the answer is {sample % 2}."


PAIR = {"text_1": QUESTIONS[0], "text_2": cot(0, 1)}


@pytest.mark.parametrize("path", ["/score", "/v1/score", "/run/a/score"])
def test_scores_are_found_by_the_exact_texts(app, path):
    own = {"text_1": QUESTIONS[1], "text_2": [cot(1, 2), cot(1, 0)]}
    status, reply = ask(app, path, **own)
    assert (status, [each["score"] for each in reply["data"]]) == (200, [3.75, 1.25])
    pairs = {"queries": QUESTIONS, "documents": [cot(0, 1), cot(1, 1)]}
    assert [each["score"] for each in ask(app, path, **pairs)[1]["data"]] == [0.5, 2.5]
    assert app.ledger()["runs"] == []  # they are free


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_documents_are_sorted_by_their_scores(app, path):
    documents = [cot(0, 0), {"text": cot(0, 2)}, cot(0, 1)]
    results = ask(app, path, query=QUESTIONS[0], documents=documents)[1]["results"]
    found = [(each["index"], each["relevance_score"]) for each in results]
    assert found == [(1, 0.75), (2, 0.5), (0, 0.25)]
    top = ask(app, path, query=QUESTIONS[0], documents=documents, top_n=1)[1]["results"]
    assert top == results[:1]


def test_a_conversation_has_its_score_or_those_of_its_steps(app):
    messages = [user(QUESTIONS[0]), assistant(cot(0, 1))]
    assert ask(app, "/pooling", messages=messages)[1]["data"][0]["data"] == [0.5]
    steps = ask(app, "/pooling", "my-prm", messages=messages)[1]["data"][0]["data"]
    assert steps == [[0.5], [0.25]]


@pytest.mark.parametrize(
    ("shape", "steps", "score"),
    [("pair", [[0.5, 0.5], [0.75, 0.25]], [0.5, 0.5]), ("number", [0.5, 0.25], [0.5])],
)
def test_the_card_of_a_reward_model_states_the_shape(
    shape, steps, score, app, tmp_path, monkeypatch
):
    monkeypatch.setenv("FEVAL_CARDS", str(tmp_path))
    (tmp_path / "llms").mkdir()
    fields = {
        "title": "x", "family": "x", "provider": "x", "reasoning": "false", "cots_to_record": 1,
        "temperature": "null", "max_tokens": "null", "source": "x", "pooling": shape,
    }  # fmt: skip
    for name in ("my-prm", "my-rm"):
        lines = [f"{key}: {value}" for key, value in {"name": name, **fields}.items()]
        card = "\n".join(["---", *lines, "---", ""])
        (tmp_path / "llms" / f"{name}.md").write_text(card)
    messages = [user(QUESTIONS[0]), assistant(cot(0, 1))]
    for name, data in (("my-prm", steps), ("my-rm", score)):
        assert ask(app, "/pooling", name, messages=messages)[1]["data"][0]["data"] == data


@pytest.mark.parametrize(
    ("path", "fields", "status", "said"),
    [
        ("/score", {"text_1": QUESTIONS[0], "text_2": "Another text."}, 400, "of the CoT"),
        ("/score", PAIR | {"text_2": cot(0, 3), "model": "my-prm"}, 400, "No score by"),
        ("/score", {"text_1": QUESTIONS, "text_2": cot(0, 1)}, 400, "one text, or as many"),
        ("/score", {"text_1": QUESTIONS[0]}, 400, "`text_2` must be text"),
        ("/score", {"model": "other", "text_1": "a", "text_2": "b"}, 404, "my-prm"),
        ("/score", {"model": "my-prm"} | PAIR, 400, "step scores"),
        ("/rerank", {"query": QUESTIONS, "documents": [cot(0, 1)]}, 400, "one text"),
        ("/rerank", {"query": QUESTIONS[0], "documents": [cot(0, 1)], "top_n": "1"}, 400, "top"),
        ("/pooling", {"input": f"{QUESTIONS[0]} {cot(0, 1)}"}, 400, "looked up by messages"),
        ("/pooling", {"messages": {}}, 400, "a list of messages"),
        ("/pooling", {"model": {}, "messages": []}, 400, "the name of a scorer"),
    ],
)  # fmt: skip
def test_what_was_not_scored_is_refused_and_never_0(app, path, fields, status, said):
    found, reply = ask(app, path, **fields)
    assert (found, said in reply["error"]["message"]) == (status, True), reply


def test_lower_may_be_better_and_the_first_of_equal_texts_counts(tmp_path):
    [question] = asked_by_text(QUESTIONS[:1])
    texts = ["One.", "Two.", "Two.", "Three."]
    plain = write(
        tmp_path / "p", [(LLMInfo("alpha", 0.7, 64), [rows(question, texts=texts)])], [question]
    )
    scores = [ScoreRows("q0", range(4), [4.5, 1.5, 1.25, 3.0])]
    for name in ("loss:lower", "ppl"):
        own = ScorerInfo(name, "http", {})
        path = add_scores(plain, tmp_path / name.replace(":", "-"), own, {("toy", "alpha"): scores})
        asked = {"query": QUESTIONS[0], "documents": ["One.", "Two."]}
        with opened(path) as app:
            if name == "ppl":
                status, reply = ask(app, "/rerank", name, **asked)
                assert (status, "lower" in reply["error"]["message"]) == (400, True)
                name = "ppl:lower"
            results = ask(app, "/rerank", name, **asked)[1]["results"]
            assert [(own["index"], own["relevance_score"]) for own in results] == [
                (1, -1.5),
                (0, -4.5),
            ]


def test_our_own_client_gets_the_scores_back(recording, tmp_path):
    """`feval score --scorer vllm-score:...` asks the served recording as it would ask vLLM."""
    plain = recording.parent / "plain"
    with serve(recording) as server:
        said(
            "score --scorer vllm-score:my-rm --base-url", server.url, plain, "--out", tmp_path / "s"
        )  # fmt: skip
    _, [llm] = load("toy", recording=tmp_path / "s")
    _, [original] = load("toy", recording=recording)
    found = llm.pool.scores("vllm-score:my-rm").values
    assert found.tolist() == original.pool.scores("my-rm").values.tolist()
