"""Runs that were served, graded: over HTTP, from a ledger file, on the command line; the numbers
are those of `evaluate`.
"""

import csv
import json

import pytest
from places import read_data
from serving_doubles import asked_by_text, reply_to, rows, texts_of, write
from small import letters, write_lines, write_toy
from typer.testing import CliRunner

from feval import SelfConsistency, evaluate, load
from feval.cli import app
from feval.errors import ConflictError, NotRecordedError, UnknownNameError, UsageError
from feval.methods.vote import plurality
from feval.receipts.verifying import verify_receipt
from feval.recording import LLMInfo, open_recording
from feval.serving import Application, Call, grade
from feval.serving.grading import grade_saved, read_answers, read_ledger

MODEL = "gpt-3.5-turbo"
POOLS = letters("aaba", "xy-y", "bbbb", "cdc-")
GOLDS = ["a", "y", "b", "d"]
ANSWERS = {"toy/0": "a", "toy/1": "y", "toy/2": "c"}


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return write_toy(tmp_path_factory.mktemp("graded") / "toy", {MODEL: POOLS}, GOLDS)


@pytest.fixture
def served(toy, tmp_path):
    with Application.open(toy, ledger=tmp_path / "ledger.jsonl") as application:
        yield application


def ask(application, question, n=1, run="mine", prompt="{}", **fields):
    """What the run is told of a question."""
    content = prompt.format(f"What is question {question}?")
    return texts_of(reply_to(application, content, n=n, run=run, **fields))


def post(application, path, body, status=200):
    reply = application.respond(Call("POST", path, "", {}, json.dumps(body).encode()))
    assert reply.status == status, reply.body
    return json.loads(reply.body)


def regraded(toy, path, answers, run=None, **options):
    return grade_saved(read_ledger(path), run, answers, [open_recording(toy)], **options)


def feval(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="feval")


def test_a_vote_over_http_is_graded_as_evaluate_grades_it(served, toy):
    """The program reads answers out of texts, and knows questions by their texts alone."""
    answers = []
    for number in range(len(POOLS)):
        read = [
            text.split("The answer is ")[1].rstrip(".") for text in ask(served, number, 3) if text
        ]
        vote = plurality([None if answer == "None" else answer for answer in read])
        answers.append({"question": f"What is question {number}?", "answer": vote})
    result = post(served, "/run/mine/feval/grade", {"answers": answers})
    dataset, [llm] = load("toy", recording=toy)
    usual = evaluate(SelfConsistency(3), dataset, llm, order="seeded", replicates=1).to_dict()
    same = (
        "accuracy",
        "accuracy_low",
        "accuracy_high",
        "calls_per_question",
        "samples_per_question",
    )
    assert {name: result["grade"][name] for name in same} == {name: usual[name] for name in same}
    assert result["grade"]["usd_per_question"] == pytest.approx(
        usual["usd_per_question"], rel=1e-12
    )
    assert [remark.partition(":")[0] for remark in result["remarks"]] == ["Only 4 questions"]
    assert result["grade"]["as_drawn"]


def test_the_ledger_and_the_grade_count_alike(toy):
    """Recycled and chosen CoTs are paid each time, in the one as in the other."""
    with Application.open(toy, recycle=True, billing="per_round") as application:
        ask(application, 0, 3)
        ask(application, 0, 3)
        for _ in range(2):
            ask(application, 1, feval={"sample": 1})
        ledger = application.ledger("mine", detail=True)
        result = grade(application, "mine", {"toy/0": "a"}).grade.to_dict()
    assert [len(entry["samples"]) for entry in ledger["asked"]] == [6, 2]
    assert (result["requests"], result["samples"]) == (ledger["requests"], ledger["cots"]) == (4, 8)
    assert result["tokens"] == ledger["prompt_tokens"] + ledger["output_tokens"]
    assert result["usd"] == pytest.approx(ledger["usd"], rel=1e-12)
    assert (result["as_drawn"], result["unanswered"]) == (False, 1)


def test_a_program_that_was_run_twice_under_one_key_is_marked_to_the_receipt(served, toy, tmp_path):
    """Under another key, the second pass gets the CoTs of the first; under the same one, it gets
    others and pays again.
    """
    for run in ("mine", "mine", "yours"):
        for question in range(3):
            ask(served, question, 2, run)
    remarks = {}
    for run, again in (("mine", 3), ("yours", 0)):
        graded = grade(served, run, ANSWERS)
        result = graded.grade.to_dict()
        assert (result["asked_again"], served.ledger(run)["asked_again"]) == (again, again)
        assert result["samples"] == 6 * (2 if again else 1)
        remarks[run] = [remark for remark in graded.remarks() if "With a key of its own" in remark]
        receipt = graded.receipt(tmp_path)
        assert [entry["passes"] for entry in receipt["request"]["consumed"]] == [
            2 if again else 1
        ] * 3
        (tmp_path / f"{run}.json").write_text(json.dumps(receipt))
        assert verify_receipt(tmp_path / f"{run}.json", [toy]).equal
    assert [len(each) for each in remarks.values()] == [1, 0]
    assert remarks["mine"][0].startswith(
        "3 questions were asked again after the run had gone on to others"
    )


def test_the_ledger_file_is_graded_as_the_running_server_was(served, toy, tmp_path):
    for question in range(3):
        ask(served, question, 2)
    ask(served, 0)
    ask(served, 0, 4, run="other@2")
    live = grade(served, "mine", ANSWERS).grade.to_dict()
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps(served.ledger(detail=True)))
    one = tmp_path / "one.json"
    one.write_text(json.dumps(served.ledger("mine", detail=True)))
    served.close()
    for path in (tmp_path / "ledger.jsonl", saved, one):
        again = regraded(toy, path, ANSWERS, "mine")
        assert again.grade.to_dict() == live
    other = regraded(toy, saved, {"toy/0": "a"}, "other@2").grade
    assert (other.replicate, other.as_drawn, other.accuracy) == (2, True, 1.0)


def test_lines_of_answers_end_where_json_lines_do(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text('{"question": "two\u2028lines\x85", "answer": "1"}\n', encoding="utf-8")
    assert read_answers(path) == [{"question": "two\u2028lines\x85", "answer": "1"}]


def test_the_command(served, toy, tmp_path):
    for question in range(3):
        ask(served, question, 2)
    served.close()
    rows = [{"id": name, "answer": answer} for name, answer in ANSWERS.items() if name != "toy/1"]
    answers = write_lines(tmp_path / "answers.jsonl", rows)
    out = tmp_path / "graded"
    given = ("--ledger", tmp_path / "ledger.jsonl", "--answers", answers, "--recording", toy)
    given += ("--out", out)
    done = feval("grade", *given)
    assert done.exit_code == 0, done.output
    assert "toy, 3 questions" in done.stdout
    assert "33.33" in done.stdout
    assert "note: 1 question was asked and not answered, which counts as wrong." in done.stderr
    result = json.loads(feval("grade", *given, "--json").stdout)
    assert result.pop("receipt") == str(out / "receipt.json")
    assert result == json.loads((out / "result.json").read_text())
    assert (result["run"], result["correct"], result["unanswered"]) == ("mine", 1, 1)
    assert feval("verify", out / "receipt.json").exit_code == 0
    receipt = json.loads((out / "receipt.json").read_text())
    receipt["request"]["answers"]["toy/2"] = "b"
    (out / "receipt.json").write_text(json.dumps(receipt))
    changed = feval("verify", out / "receipt.json")
    assert changed.exit_code == 1
    assert "correct: the receipt says 1, now 2, +1" in changed.stderr


def test_a_run_that_used_several_prompts_says_so(served, toy, tmp_path):
    for question in range(3):
        ask(served, question, prompt="{} Let us think.")
        ask(served, question, prompt="{} Let us think.", run="steady")
    ask(served, 0, prompt="{} Answer at once.")
    ask(served, 0, prompt="Q: {0}\nRead it again: {0}", run="repeated")
    ask(served, 1, prompt="Q: {0}\nRead it again: {0}", run="repeated")
    first, other = served.ledger("mine")["prompts"]
    assert [(use["requests"], use["matches"]) for use in (first, other)] == [
        (3, {"question": 3}),
        (1, {"question": 1}),
    ]
    assert (first["example"], first["dataset"], len(first["template"])) == (None, "toy", 16)
    assert other["example"] == [
        "user: <question> Let us think.",
        "user: <question> Answer at once.",
    ]
    [repeated] = served.ledger("repeated")["prompts"]
    assert repeated["requests"] == 2
    sentence = (
        "The run put 2 different prompts around the questions (3, 1 requests), which recorded CoTs"
        " do not reflect. For example, 'user: <question> Let us think.' in one reads 'user:"
        " <question> Answer at once.' in another."
    )
    live = grade(served, "mine", ANSWERS)
    assert sentence in live.remarks()
    few, unasked = grade(served, "steady", ANSWERS).remarks()
    assert few.startswith("Only 3 questions: below 10,")
    assert unasked == "1 question was never asked, which leaves accuracy and cost as they are."
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps(served.ledger(detail=True)))
    served.close()
    lines = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()[1:]]
    assert {line["match"] for line in lines} == {"question"}
    assert len({line["template"] for line in lines}) == 3
    for path in (tmp_path / "ledger.jsonl", saved):
        again = regraded(toy, path, ANSWERS, "mine")
        assert again.result() == live.result()
        assert again.remarks() == live.remarks()


def test_requests_that_were_answered_all_the_same_are_told(toy, tmp_path):
    ledger = tmp_path / "judged.jsonl"
    with Application.open(toy, allow_mismatch=True, ledger=ledger) as application:
        ask(application, 0)
        ask(application, 0, response_format={"type": "json_object"})
        ask(application, 0, prompt="{} Thinking about 0, sample 1. The answer is a. Right?")
        sentence = grade(application, "mine", {"toy/0": "a"}).remarks()[-1]
    assert (
        sentence
        == "Requests that no recorded CoT can answer were answered because of --allow-mismatch: 2"
        " (response_format: 1, messages: 1)."
    )
    lines = map(json.loads, ledger.read_text().splitlines()[1:])
    assert [line.get("mismatch") for line in lines] == [None, "response_format", "messages"]
    assert sentence in regraded(toy, ledger, {"toy/0": "a"}).remarks()


def test_a_question_that_was_reset_is_not_graded(toy, tmp_path):
    ledger = tmp_path / "reset.jsonl"
    with Application.open(toy, ledger=ledger) as application:
        ask(application, 0, 4)
        application.reset("mine")
        ask(application, 1, 2)
    result = regraded(toy, ledger, {"toy/1": "y"}, "mine").grade
    assert (result.questions, result.to_dict()["samples"], result.as_drawn) == (1, 2, True)


def test_sentences_of_the_command(served, toy, tmp_path):
    ask(served, 0)
    ask(served, 0, run="yours")
    served.close()
    ledger, answers = tmp_path / "ledger.jsonl", tmp_path / "answers.json"
    other = write_toy(tmp_path / "other", {MODEL: POOLS[::-1]}, GOLDS)

    def said(content, *options, recording=toy, code=2):
        answers.write_text(json.dumps(content))
        done = feval(
            "grade", "--ledger", ledger, "--answers", answers, "--recording", recording, *options
        )
        assert done.exit_code == code, done.output
        return str(done.stderr)

    assert "has 2 runs: mine, yours. Name one with --run." in said(ANSWERS)
    assert "Did you mean 'mine'?" in said(ANSWERS, "--run", "mime")
    assert "Give that recording with --recording" in said(
        ANSWERS, "--run", "mine", recording=other, code=1
    )
    stderr = said(ANSWERS, "--run", "mine", "--dataset", "sums")
    assert "no dataset that the run 'mine' asked about, called 'sums'" in stderr


@pytest.mark.parametrize(("body", "status", "words"), read_data("served.json")["grading refused"])
def test_what_cannot_be_graded_over_http(body, status, words, served):
    ask(served, 0)
    error = post(served, "/run/mine/feval/grade", body, status)["error"]
    assert words in error["message"]


def test_a_body_that_is_no_json(served):
    for body in (b"{", b"\xff", b"[" * 100_000):
        assert served.respond(Call("POST", "/feval/grade", "", {}, body)).status == 400
    two_answers = served.respond(
        Call("POST", "/feval/grade", "", {}, b'{"answers": {"toy/0": "a", "toy/0": "b"}}')
    )
    assert two_answers.status == 400
    assert b"occurs twice" in bytes(two_answers.body)


def test_several_datasets_are_graded_one_by_one(toy, tmp_path):
    questions = asked_by_text(["How many?"], answer="2", answer_key="2")
    pools = [rows(questions[0], raw_answers=["2"] * 4, answers=["2"] * 4)]
    write(tmp_path / "sums", [(LLMInfo(MODEL), pools)], questions, dataset="sums", kind="number")
    with Application.open([toy, tmp_path / "sums"]) as application:
        ask(application, 0)
        assert reply_to(application, "How many?", run="mine").status == 200
        with pytest.raises(UsageError, match="asked about 2 datasets, toy, sums"):
            grade(application, "mine", {"q0": "2.0"})
        result = grade(application, "mine", {"q0": "2.0"}, dataset="sums").grade
        assert (result.accuracy, result.to_dict()["samples"]) == (1.0, 1)


def test_files_of_answers(tmp_path):
    table = tmp_path / "answers.csv"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows(
            [["question", "answer"], ['Which, "a" or b?', "a, b"], ["toy/1", ""]]
        )
    assert read_answers(table) == [
        {"question": 'Which, "a" or b?', "answer": "a, b"},
        {"question": "toy/1", "answer": None},
    ]
    lines = tmp_path / "answers.jsonl"
    lines.write_text('{"id": "toy/0", "answer": "a"}\n\n{"id": "toy/1", "answer": null}\n')
    assert read_answers(lines) == [{"id": "toy/0", "answer": "a"}, {"id": "toy/1", "answer": None}]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", b'{"toy/0": "a", "toy/0": "b"}', "'toy/0' occurs twice"),
        ("a.json", b'{"id": "toy/0"}\n{"id": "toy/1"}\n', r"end in \.jsonl"),
        ("a.jsonl", b'{"id": "toy/0"}\n{"id": ', "Line 2 of .* is not valid JSON"),
        ("a.json", b"\xff\xfe", "not text in UTF-8"),
        ("a.json", b"[" * 100_000, "not valid JSON"),
        (
            "a.csv",
            b"name,answer\ntoy/0,a\n",
            "needs the columns 'question' .ids or texts. and 'answer'; it has name, answer",
        ),
        ("a.csv", b"", "it has none"),
        ("a.csv", b'question,answer\n"toy/0', "not a table"),
    ],
)
def test_files_that_are_no_answers(name, content, words, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=words):
        read_answers(tmp_path / name)
    with pytest.raises(UsageError, match="cannot be read"):
        read_answers(tmp_path / "nothing.json")


HEAD = {"recordings": ["00"], "seed": 0, "order": "seeded", "billing": "once", "prices": "none"}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        json.dumps(HEAD | {"runs": 1}),
        json.dumps(HEAD | {"runs": [{"run": "mine", "replicate": 0}]}),
        json.dumps(HEAD | {"runs": [{"run": "mine", "replicate": -1, "asked": []}]}),
        json.dumps(HEAD | {"runs": [{"run": "mine", "replicate": 0, "asked": [{"llm": "x"}]}]}),
        json.dumps({"runs": []}),
        json.dumps(HEAD | {"runs": [], "seed": "0"}),
    ],
)
def test_files_that_are_no_ledger(content, tmp_path):
    path = tmp_path / "ledger.json"
    path.write_text(content)
    with pytest.raises(UsageError):
        read_ledger(path)


def test_a_ledger_opens_no_price_list_of_its_choice(served, toy, tmp_path):
    ask(served, 0)
    result = served.ledger(detail=True) | {"prices": "../prices.json"}
    path = tmp_path / "ledger.json"
    path.write_text(json.dumps(result))
    with pytest.raises(UsageError, match=r"has no card\. Give it with `prices`"):
        regraded(toy, path, {"toy/0": "a"})
    again = regraded(toy, path, {"toy/0": "a"}, prices="2025-06-02").grade
    assert again.to_dict()["usd"] == served.ledger("mine")["usd"]


def test_cots_that_were_never_recorded(served, toy, tmp_path):
    ask(served, 0)
    result = served.ledger(detail=True)
    result["runs"][0]["asked"][0]["samples"] = [4]
    path = tmp_path / "ledger.json"
    path.write_text(json.dumps(result))
    with pytest.raises(NotRecordedError, match="4 were recorded, numbered from 0"):
        regraded(toy, path, {"toy/0": "a"})
    with pytest.raises((UnknownNameError, ConflictError)):
        regraded(toy, path, {"toy/0": "a"}, "other")
