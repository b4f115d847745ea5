"""The reference figures of self-consistency come out of an `openai` script that knows nothing of
feval, over HTTP.
"""

import gzip
import json
import os
import random
import subprocess
import sys
from collections import Counter

import pytest
from places import ROOT
from real_files import golden
from serving_doubles import reply_to, texts_of

from feval import import_recording
from feval.serving import grade
from feval.serving.server import serve

pytest.importorskip("openai", reason="the official client (extra `record`) is not installed")
pytest.importorskip("uvicorn", reason="the server (extra `serve`) is not installed")

SCRIPT = ROOT / "tests" / "clients" / "plain_openai.py"
SOURCE = "real/mot_cascade/GPT3_result/date_cot1_40.json.gz"
MODEL = "mistralai/Mixtral-8x7B-Instruct-v0.1"  # the reference values are priced as this one


@pytest.fixture(scope="module")
def goldens(shared):
    return {name: entry["expected"] for name, entry in golden(shared).items()}


@pytest.fixture(scope="module")
def server(shared, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dates") / "recording"
    import_recording("mot-cascade", shared / SOURCE, folder, dataset="bigbench_date", llm=MODEL)
    with serve(folder, port=0) as running:
        yield running


@pytest.fixture(scope="module")
def questions(shared, tmp_path_factory):
    """Questions and golds, straight from the authors' file."""
    entries = json.loads(gzip.decompress((shared / SOURCE).read_bytes()))
    path = tmp_path_factory.mktemp("dates") / "questions.json"
    path.write_text(
        json.dumps([{"question": e["question"], "answer": e["answer"]} for e in entries])
    )
    return path


def run(server, questions, count, key):
    """Run the script with nothing but a base URL and a key, and no way to import feval."""
    passed = {
        name: value for name, value in os.environ.items() if name in {"PATH", "SYSTEMROOT", "HOME"}
    }
    environment = passed | {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": key}
    command = [sys.executable, "-I", "-W", "error", str(SCRIPT), str(questions), str(count)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 10, 40])
def test_correct_votes(count, server, questions, goldens):
    result = run(server, questions, count, f"votes-{count}@recorded")
    expected = goldens[f"sc.prefix.date_cot1_40.N{count}"]
    assert (result["right"], result["questions"]) == (expected["correct"], expected["questions"])
    if count == 40:  # of all 40 replies the script draws 20, as the reference's own example does
        assert result["drawn"] == goldens["feval.replay.sc20.seed0"]["correct"]


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 20])
def test_correct_votes_and_what_they_cost(count, server, questions, goldens):
    result = run(server, questions, count, f"costs-{count}@recorded")
    expected = goldens[f"cost.first_n.date_cot1_40.N{count}"]
    ledger = server.application.ledger(f"costs-{count}@recorded")
    assert result["right"] == expected["correct"]
    assert ledger["prompt_tokens"] + ledger["output_tokens"] == expected["tokens"]
    assert ledger["usd"] == pytest.approx(expected["usd"], abs=1e-9)
    assert (ledger["requests"], ledger["cots"]) == (369, 369 * count)


def test_the_reference_example_to_the_cent(shared, goldens, server):
    """Its draws (`random.sample` from one seed) are chosen one by one; accuracy and dollars are
    what it prints.
    """
    entries = json.loads(gzip.decompress((shared / SOURCE).read_bytes()))
    random.seed(0)
    voted = {}
    for entry in entries:
        answers = [
            chosen(server, entry["question"], place) for place in random.sample(range(40), 20)
        ]
        voted[entry["question"]] = Counter(answers).most_common(1)[0][0]
    expected = goldens["feval.replay.sc20.seed0"]
    assert (
        sum(voted[entry["question"]] == entry["answer"] for entry in entries) == expected["correct"]
    )
    assert server.application.ledger("example")["usd"] == pytest.approx(expected["usd"], abs=1e-9)
    graded = grade(server.application, "example", voted).grade
    assert graded.to_dict()["usd"] == pytest.approx(expected["usd"], abs=1e-9)
    assert not graded.as_drawn


def chosen(server, question, place):
    """The answer in the CoT at a recorded place; without a client, since thousands are asked
    for.
    """
    own = {"model": MODEL, "feval": {"sample": place}, "run": "example"}
    [text] = texts_of(reply_to(server.application, question, **own))
    return text.split("A:")[-1].strip()
