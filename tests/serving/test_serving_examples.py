"""The examples of serving, run as printed: each finds what a vote over the same draws finds.

Clients that bring a world of their own run only where they are: FEVAL_LITELLM_PYTHON (a Python with
litellm), FEVAL_NODE_MODULES (a folder node_modules with openai), FEVAL_LM_EVAL_COMMAND (lm_eval of
lm-eval[api]), FEVAL_INSPECT_COMMAND (inspect of inspect-ai).
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from places import ROOT
from serving_doubles import reply_to

from feval import load
from feval.serving.server import serve
from recorders.servers.tiny_server import tiny_server
from recorders.work.settings import load_questions

pytest.importorskip("openai", reason="the official client (extra `record`) is not installed")
pytest.importorskip("uvicorn", reason="the server (extra `serve`) is not installed")

EXAMPLES = ROOT / "examples"
RECORDING = ROOT / "recorders" / "tiny" / "recording"
MODEL, VOTES = "feval/tiny-42k", 20
QUESTIONS = [
    json.loads(line) for line in (EXAMPLES / "questions.jsonl").read_text("utf-8").splitlines()
]
GOLDS = {row["id"]: row["answer"] for row in QUESTIONS}


@pytest.fixture(scope="module")
def llm():
    return load("tiny_sums", MODEL, RECORDING)[1][0]


@pytest.fixture
def server():
    with serve(RECORDING, port=0) as running:
        yield running


def run(*command, timeout=300, cwd=ROOT, **environment):
    """Standard output of a program whose proxies, keys and base URLs are only those given here."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OPENAI_", "FEVAL_"))
    }
    words = [str(word) for word in command]
    given = kept | {"NO_PROXY": "127.0.0.1"} | environment
    done = subprocess.run(
        words, cwd=cwd, env=given, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def from_environment(name):
    if not os.environ.get(name):
        pytest.skip(f"{name} is not set")
    return os.environ[name]


def drawn(llm, question, *, in_order=False):
    """The answers that the texts of a draw end with, read without feval."""
    texts = llm.texts(llm.question_ids.index(question))
    samples = range(VOTES) if in_order else llm(question, VOTES).samples
    result = (re.findall(r"answer is\s+(-?\d+)", texts[sample] or "") for sample in samples)
    return [each[-1] if each else None for each in result]


def leaders(answers):
    """The most frequent answers, the first seen first."""
    counts = Counter(answer for answer in answers if answer is not None)
    return [answer for answer, count in counts.items() if count == max(counts.values())]


def votes_right(llm, *, in_order=False):
    return sum(
        leaders(drawn(llm, name, in_order=in_order))[:1] == [gold] for name, gold in GOLDS.items()
    )


def said(right):
    return f"{right} of {len(QUESTIONS)} right with {VOTES} votes of {MODEL}"


def test_the_questions_are_the_first_of_the_bundled_recording():
    first = load_questions("tiny_sums")[: len(QUESTIONS)]
    assert [
        {"id": each.id, "question": each.text, "answer": each.answer} for each in first
    ] == QUESTIONS


def test_the_vote_is_worth_a_test(llm):
    """Draws in recorded order and seeded ones must differ somewhere, or the tests below would not
    tell them apart.
    """
    assert any(drawn(llm, name) != drawn(llm, name, in_order=True) for name in GOLDS)
    assert 0 < votes_right(llm) < len(QUESTIONS)


OPENAI = [sys.executable, "-W", "error", "examples/self_consistency_openai.py"]


def test_openai_replayed_in_process(llm, tmp_path):
    answers = tmp_path / "answers.json"
    result = run(*OPENAI, "--recording", RECORDING, "--answers", answers, PYTHONPATH=str(ROOT))
    assert result.strip() == said(votes_right(llm))
    expected = {row["question"]: leaders(drawn(llm, row["id"]))[0] for row in QUESTIONS}
    assert json.loads(answers.read_text()) == expected


def test_openai_against_the_server_then_graded(server, llm, tmp_path):
    answers = tmp_path / "answers.json"
    result = run(*OPENAI, "--answers", answers, OPENAI_BASE_URL=server.url, OPENAI_API_KEY="mine")
    assert result.strip() == said(votes_right(llm))
    ledger = tmp_path / "ledger.json"
    ledger.write_text(json.dumps(server.application.ledger("mine", detail=True)))
    options = ["--ledger", ledger, "--answers", answers, "--recording", RECORDING, "--json"]
    graded = json.loads(run(sys.executable, "-m", "feval", "grade", *options, PYTHONPATH=str(ROOT)))
    assert (graded["correct"], graded["questions"], graded["samples"]) == (
        votes_right(llm),
        20,
        400,
    )
    assert graded["usd"] == pytest.approx(server.application.ledger("mine")["usd"])


@pytest.mark.slow  # the two tests before it run the same example live and replayed
def test_openai_live_and_replayed_agree(llm, tmp_path):
    """The tiny server draws sample number seed + i for choice i; the recording was made with seed
    0, in this order.
    """
    live, replayed = tmp_path / "live.json", tmp_path / "replayed.json"
    with tiny_server([MODEL]) as tiny:
        result = run(*OPENAI, "--answers", live, OPENAI_BASE_URL=tiny.url, OPENAI_API_KEY="none")
    recorded = ["--recording", RECORDING, "--run", "mine@recorded"]
    again = run(*OPENAI, *recorded, "--answers", replayed, PYTHONPATH=str(ROOT))
    assert result == again
    assert result.strip() == said(votes_right(llm, in_order=True))
    assert live.read_text() == replayed.read_text()


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def section(page, title):
    return (ROOT / page).read_text("utf-8").partition(f"\n## {title}")[2].partition("\n## ")[0]


@pytest.fixture
def feval_path(tmp_path):
    """A PATH on which `feval` and `python` are this checkout's."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, words in {"feval": "-m feval", "python": "-W error"}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (programs / name).chmod(0o755)
    return f"{programs}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.slow
def test_the_page_on_serving_runs(llm, feval_path, tmp_path):
    shutil.copytree(RECORDING, tmp_path / "my-recording")
    for code in blocks(section("docs/serving.md", "In process"), "python"):
        run(sys.executable, "-W", "error", "-c", code, cwd=tmp_path, PYTHONPATH=str(ROOT))
    grading = section("docs/serving.md", "Grading")
    [code] = blocks(grading, "python")
    accuracy, usd = run(
        sys.executable, "-W", "error", "-c", code, cwd=tmp_path, PYTHONPATH=str(ROOT)
    ).split()
    assert (accuracy, float(usd)) == (
        "1.0",
        pytest.approx(llm("tiny_sums/1", 5).dollar_cost, rel=1e-12),
    )
    posted, graded = blocks(grading, "sh")
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    (tmp_path / "answers.json").write_text('{"tiny_sums/1": "48"}')
    with serve(RECORDING, port=0, ledger=tmp_path / "ledger.jsonl") as server:
        own = {"model": MODEL, "n": 5, "run": "mine"}
        asked = reply_to(server.application, QUESTIONS[1]["question"], **own)
        assert asked.status == 200
        result = run("sh", "-eu", "-c", posted.replace(":8000", f":{server.port}"), cwd=tmp_path)
        assert json.loads(result)["grade"]["accuracy"] == 1
    said = run("sh", "-eu", "-c", graded, cwd=tmp_path, PATH=feval_path, PYTHONPATH=str(ROOT))
    assert "tiny_sums, 1 question" in said
    assert "values of a grade computed again, all equal" in said


@pytest.mark.slow
def test_the_page_on_examples_runs(llm, feval_path, tmp_path):
    """The blocks that need feval alone; those that bring a world of their own have tests of their
    own.
    """
    in_process, started, graded, *others = blocks(section("examples/README.md", "Serving"), "sh")
    assert (len(others), started.strip().startswith("feval serve recorders/tiny/recording")) == (
        4,
        True,
    )
    for name in ("examples", "recorders"):
        (tmp_path / name).symlink_to(ROOT / name, target_is_directory=True)
    given = {"cwd": tmp_path, "PATH": feval_path, "PYTHONPATH": str(ROOT)}
    assert run("sh", "-eu", "-c", in_process, **given).strip() == said(votes_right(llm))
    with serve(RECORDING, port=0, ledger=tmp_path / "ledger.jsonl") as server:
        result = run("sh", "-eu", "-c", graded.replace(":8000", f":{server.port}"), **given)
    assert result.startswith(said(votes_right(llm)))
    assert "values of a grade computed again, all equal" in result


def test_litellm(server, llm):
    python = from_environment("FEVAL_LITELLM_PYTHON")
    result = run(python, EXAMPLES / "self_consistency_litellm.py", server.url)
    assert result.strip().splitlines()[-1] == said(votes_right(llm))
    assert server.application.ledger("litellm")["requests"] == len(QUESTIONS)


def test_javascript(server, llm, tmp_path):
    modules = Path(from_environment("FEVAL_NODE_MODULES"))
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")
    for name in ("self_consistency.mjs", "questions.jsonl"):
        shutil.copy(EXAMPLES / name, tmp_path / name)
    (tmp_path / "node_modules").symlink_to(modules, target_is_directory=True)
    url = server.url_of("javascript")
    first, second = run(
        node, "self_consistency.mjs", cwd=tmp_path, OPENAI_BASE_URL=url, OPENAI_API_KEY="none"
    ).splitlines()
    right = votes_right(llm)
    assert first == said(right)
    assert second.startswith(f"accuracy {right / 20:.3f} (")
    assert f", {server.application.ledger('javascript')['usd']} USD" in second


def test_lm_evaluation_harness(server, llm, tmp_path):
    command = from_environment("FEVAL_LM_EVAL_COMMAND")
    folder = shutil.copytree(EXAMPLES, tmp_path / "examples") / "lm_eval"
    url = f"{server.url_of('lm-eval')}/chat/completions"
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub"), "OPENAI_API_KEY": "none"}
    task = ["--tasks", "tiny_sums_vote", "--include_path", ".", "--output_path", tmp_path / "out"]
    model = ["--apply_chat_template", "--model", "local-chat-completions", "--model_args"]
    model.append(f"model={MODEL},base_url={url}")
    run(command, "run", *model, *task, cwd=folder, **offline)
    [results] = (tmp_path / "out").rglob("results_*.json")
    result = json.loads(results.read_text())["results"]["tiny_sums_vote"]["exact_match,vote"]
    assert result == pytest.approx(votes_right(llm) / len(QUESTIONS))
    ledger = server.application.ledger("lm-eval")
    assert (ledger["requests"], ledger["cots"], ledger["questions"]) == (400, 400, 20)


def test_inspect_ai(server, llm, tmp_path):
    """Epochs are asked at once, so that which of several leaders came first is a matter of
    chance.
    """
    command = from_environment("FEVAL_INSPECT_COMMAND")
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    options = ["--model", f"openai-api/feval/{MODEL}"]
    options += ["--display", "none", "--log-format", "json", "--log-dir", "logs"]
    key = {"FEVAL_BASE_URL": server.url_of("inspect"), "FEVAL_API_KEY": "none"}
    run(command, "eval", "examples/inspect_task.py", *options, cwd=tmp_path, **key)
    [log] = (tmp_path / "logs").glob("*.json")
    result = json.loads(log.read_text())
    assert result["status"] == "success"
    best = {name: leaders(drawn(llm, name)) for name in GOLDS}
    certain = sum(winners == [GOLDS[name]] for name, winners in best.items())
    possible = sum(GOLDS[name] in winners for name, winners in best.items())
    [score] = result["results"]["scores"]
    assert certain / 20 <= score["metrics"]["accuracy"]["value"] <= possible / 20
    assert (score["reducer"], server.application.ledger("inspect")["cots"]) == ("plurality", 400)
