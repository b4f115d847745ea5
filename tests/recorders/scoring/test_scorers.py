"""Scorers against a real server on loopback: what is sent, how replies are read, and that a run goes on where it stopped."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from small import pool, question, write_toy
from typer.testing import CliRunner, Result

from feval.cli import app
from feval.errors import DamagedRecordingError, FevalError, NotRecordedError, StorageError, UnknownNameError, UsageError
from feval.recording import DatasetInfo, LLMInfo, Question, RecordingWriter, open_recording, verify_recording
from recorders.asking.pace import Limits
from recorders.errors import Fatal, JournalError, LockedJournalError, RecorderError, StoppedError, Transient
from recorders.journal.journal import journal_folder
from recorders.scoring import judge
from recorders.scoring.missing_scores import run_scoring
from recorders.scoring.score_journal import CoTKey, Score, ScoreJournal
from recorders.scoring.scorer import Item, Scorer, read_score
from recorders.scoring.scorers import make_scorer
from recorders.scoring.scoring import CoTScoring, ScoringResult

POOLS = {"alpha": [["4", "4", None], ["7"]], "org/beta": [["4"], ["9", "5"]]}
GOLDS = ["SECRETGOLD", "5"]
KEY = "sk-marked-0123456789abcdef"
FAST = Limits(concurrency=4, retries=3, backoff_s=0.001, longest_backoff_s=0.002, timeout_s=20)


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    return write_toy(tmp_path / "toy", POOLS, GOLDS)


# --- a server that answers as it is told ------------------------------------------------------------------------------------


class Server:
    """An HTTP server on loopback: `answer(path, body)` gives (status, JSON value or bytes) for each request."""

    def __init__(self, answer: Callable[[str, Any], tuple[int, Any]]) -> None:
        self.seen: list[tuple[str, dict[str, str], Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.seen.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                status, value = answer(self.path, body)
                data = value if isinstance(value, bytes) else json.dumps(value).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                if 300 <= status < 400:
                    self.send_header("location", "http://127.0.0.1:9/elsewhere")
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def chat(text: str, *, logprobs: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
        "logprobs": None if logprobs is None else {"content": logprobs},
    }
    usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
    return {"id": "x", "object": "chat.completion", "model": "m", "created": 1, "choices": [choice], "usage": usage}


def token(text: str, **alternatives: float) -> dict[str, Any]:
    top = [{"token": word, "logprob": math.log(p)} for word, p in alternatives.items()]
    return {"token": text, "logprob": -0.5, "top_logprobs": top}


def rewards(_: str, body: Any) -> tuple[int, Any]:
    return 200, {"scores": [len(item["text"]) for item in body]}


# --- functions --------------------------------------------------------------------------------------------------------------


FUNCTIONS = """
import os
calls = []

def length(question, text, answer):
    calls.append((question, text, answer))
    return len(text)

def steps(question, text, answer):
    return None if answer is None else [0.5, 0.25, float("nan") if answer == "7" else 1]

def fails(question, text, answer):
    raise ValueError("no good")

def wrong(question, text, answer):
    return "high"

def leaves(question, text, answer):
    raise SystemExit(3)

def stumbles(question, text, answer):
    yield 1.0
    yield 1 / 0

def one_argument(question):
    return 1

def mixed(question, text, answer):
    return [0.5, None]

def named(question, text, answer):
    return {"score": 1}

async def later(question, text, answer):
    return 1.0

def stuck(question, text, answer):
    import time
    open(os.environ["COUNTS"], "a").close()
    time.sleep(50)

def counted(question, text, answer):
    with open(os.environ["COUNTS"], "a") as file:
        file.write(text.replace("\\n", " ") + "\\n")
        file.flush()
    if os.environ.get("SLOW"):
        import time
        time.sleep(0.01)
    return len(text)
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module of scorers in the working folder."""
    name = "scorers_of_mine"
    (tmp_path / f"{name}.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    yield name
    sys.modules.pop(name, None)


def score(recording: Path, out: Path, scorer: Scorer, *, limits: Limits | None = None, **which: Any) -> ScoringResult:
    return run_scoring(CoTScoring.of(recording, scorer, **which), out, limits=limits)


def run(recording: Path, out: Path, spec: str, **options: Any) -> ScoringResult:
    return score(recording, out, make_scorer(spec, **options), limits=FAST)


def test_a_function_scores_every_cot(toy: Path, tmp_path: Path, functions: str) -> None:
    done = run(toy, tmp_path / "out", f"python:{functions}:length")
    assert (done.cots, done.new, done.with_score, done.unreadable, done.notes) == (7, 7, 7, 0, ())
    recording = open_recording(tmp_path / "out")
    assert recording.hash == done.recording_hash
    values = recording.scores("toy", "alpha", done.scorer).values
    texts = [recording.texts("toy", "alpha", row) for row in range(2)]
    assert values[0].tolist() == [len(text or "") for text in texts[0]]
    assert values[1, 0] == len(texts[1][0] or "")
    assert np.isnan(values[1, 1:]).all()
    assert verify_recording(tmp_path / "out").problems == ()
    assert not journal_folder(tmp_path / "out").exists()
    info = recording.scorer_info(done.scorer)
    assert info.parameters["function"] == f"{functions}:length"
    assert len(info.parameters["source_sha256"]) == 64
    assert recording.manifest.raw["operation"] == {"name": "score", "kind": "python", "scorer": done.scorer}


def test_a_scorer_never_sees_the_gold(toy: Path, tmp_path: Path, functions: str) -> None:
    run(toy, tmp_path / "out", f"python:{functions}:length", name="len")
    calls = sys.modules[functions].calls  # type: ignore[attr-defined]
    assert ("What is question 0?", "Thinking about 0, sample 2. The answer is None.", None) in calls
    assert GOLDS[0] not in repr(calls)


def test_step_scores_none_and_what_is_not_finite(toy: Path, tmp_path: Path, functions: str) -> None:
    done = run(toy, tmp_path / "out", f"python:{functions}:steps", name="steps")
    assert (done.with_score, done.unreadable) == (5, 1)
    assert done.notes == (
        "1 of 7 CoTs has no score: what steps said holds none that can be read.",
        "1 of 7 CoTs has no score: steps gave none.",
    )
    scores = open_recording(tmp_path / "out").scores("toy", "alpha", "steps")
    assert scores.steps(0, 0).tolist() == [0.5, 0.25, 1.0]
    assert scores.scored.tolist() == [[True] * 3, [True, False, False]]
    assert scores.aggregated("min")[0].tolist()[:2] == [0.25, 0.25]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fails", r"ValueError: no good; scorers_of_mine.py, line 13\)\. Correct it"),
        ("wrong", "returned 'high'"),
        ("leaves", r"SystemExit: 3; scorers_of_mine.py, line \d+\)"),
        ("stumbles", r"ZeroDivisionError: .*; scorers_of_mine.py, line \d+\)"),
        ("one_argument", "takes 1 positional argument but 3 were given"),
        ("mixed", r"returned \[0.5, None\]"),
        ("named", r"returned \{'score': 1\}"),
    ],
)
def test_a_function_that_fails_is_named(toy: Path, tmp_path: Path, functions: str, name: str, message: str) -> None:
    with pytest.raises(RecorderError, match=message):
        run(toy, tmp_path / "out", f"python:{functions}:{name}")
    assert not (tmp_path / "out").exists()


def test_values_of_any_kind_of_number_are_scores() -> None:
    read = read_score
    assert read(np.float32(0.5)) == read(np.array(0.5)) == read(Decimal("0.5")) == Score(0.5)
    assert read(True) == Score(1.0)
    assert read(-3) == Score(-3.0)
    assert read(np.array([-1.0, 0.25])) == read(iter([-1, 0.25])) == Score(step_scores=(-1.0, 0.25))
    assert read([]) == read(None) == Score()
    unreadable = [10**400, math.inf, math.nan, [0.5, math.nan], [10**400], np.array(math.nan), Decimal("NaN")]
    assert [read(value) for value in unreadable] == [Score(problem="unreadable")] * len(unreadable)
    for value in ("0.5", b"1", 1j, {"a": 1}, [[1.0]], ["1"], object()):
        assert read(value) is None


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = (", r"SyntaxError: .*broken_scorer.py, line 1\)\)\. Correct it"),
        ("1 / 0", r"ZeroDivisionError: division by zero; broken_scorer.py, line 1\)\. Correct it"),
        ("raise SystemExit(4)", r"SystemExit: 4; broken_scorer.py, line 1\)"),
        (
            "import no_such_thing",
            r"No module named 'no_such_thing'; broken_scorer.py, line 1\)\. Correct it, or install",
        ),
    ],
)
def test_a_module_that_fails_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    (tmp_path / "broken_scorer.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        make_scorer("python:broken_scorer:f")


def test_only_some_pairs(toy: Path, tmp_path: Path, functions: str) -> None:
    made = make_scorer(f"python:{functions}:length", name="len")
    score(toy, tmp_path / "out", made, llms=["org/beta"], datasets=["toy"])
    recording = open_recording(tmp_path / "out")
    assert (recording.scorers("toy", "alpha"), recording.scorers("toy", "org/beta")) == ([], ["len"])
    with pytest.raises(StorageError, match="by 'len' already"):
        score(tmp_path / "out", tmp_path / "again", made)
    for names in ({"llms": ["x"]}, {"datasets": ["x"]}):
        with pytest.raises(NotRecordedError, match="x"):
            score(toy, tmp_path / "again", made, **names)
    with pytest.raises(StorageError, match="exists already"):
        score(toy, tmp_path / "out", made)


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("jugde:x", UnknownNameError, "Did you mean 'judge'"),
        ("judge", UsageError, "write judge:MODEL"),
        ("judge:", UsageError, "write judge:MODEL"),
        ("python:math", UsageError, "names no function"),
        ("python:no_such_module_here:f", UsageError, r"could not be imported \(.*'\)\. Run feval in the folder"),
        ("python:mine.py:f", UsageError, "'mine.py', which cannot be imported by that name"),
        ("python:./mine:f", UsageError, "Write it as after `import`"),
        ("python:.mine:f", UsageError, "Write it as after `import`"),
        ("python:asyncio:sleep", UsageError, "is asynchronous"),
        ("python:math:nothing", UsageError, "has no function 'nothing'"),
        ("python:math:pi", UsageError, "has no function 'pi'"),
        ("http:ftp://x/y", UsageError, "names no server"),
        ("transformers:nowhere", UsageError, "holds no config.json"),
    ],
)
def test_a_spec_that_cannot_work_is_refused(spec: str, error: type[FevalError], message: str) -> None:
    with pytest.raises(error, match=message):
        make_scorer(spec)


def test_a_damaged_recording_is_refused_before_anything_is_asked(toy: Path, tmp_path: Path) -> None:
    path = next((toy / "texts").rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-1])
    with Server(rewards) as server:
        with pytest.raises(DamagedRecordingError, match=r"does not verify: texts/toy/.* Nothing was scored"):
            run(toy, tmp_path / "out", f"http:{server.url}")
        assert server.seen == []


def test_nothing_is_written_into_a_recording(toy: Path, functions: str) -> None:
    for spec in (toy / "inside", toy / "deep" / "inside"):
        with pytest.raises(StorageError, match="would lie inside the recording"):
            run(toy, spec, f"python:{functions}:length")
    assert sys.modules[functions].calls == []  # type: ignore[attr-defined]
    assert verify_recording(toy).problems == ()


# --- the journal ------------------------------------------------------------------------------------------------------------


def test_a_run_goes_on_where_it_stopped(
    toy: Path, tmp_path: Path, functions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, asked = tmp_path / "out", []

    def answer(_: str, body: Any) -> tuple[int, Any]:
        asked.extend(item["text"] for item in body)
        return (200, {"scores": [1.0] * len(body)}) if len(asked) <= 3 else (503, {"error": "busy"})

    with Server(answer) as server:
        one_by_one = Limits(concurrency=1, retries=1, backoff_s=0.001)
        made = make_scorer(f"http:{server.url}/score", name="rm")
        with pytest.raises(Transient, match=r"failed 2 times each.*503.*3 of 7 CoTs are scored"):
            score(toy, out, made, limits=one_by_one)
        assert not out.exists()
        first = list(asked)
        asked.clear()
        asked.append("again")  # one answer less until it is busy
        made = make_scorer(f"http:{server.url}/score", name="rm")
        with pytest.raises(StoppedError, match="1 request failed 2 times each"):
            score(toy, out, made, limits=one_by_one)
        assert not set(first[:3]) & set(asked[1:2])
    with Server(rewards) as server:
        made = make_scorer(f"http:{server.url}/score", name="rm")
        with pytest.raises(JournalError, match="its parameters url is"):  # another server is another scorer
            score(toy, out, made, limits=FAST)


def test_a_torn_line_is_cut_off_and_scored_again(tmp_path: Path) -> None:
    keys = [CoTKey("d", "m", f"q{i}", 0) for i in range(3)]
    scored = Score(0.1, (0.5, 0.25), "Fine \u2028.", 3, 4)
    with ScoreJournal.open(tmp_path / "j", {"a": 1.5}) as journal:
        journal.add([(keys[0], scored), (keys[1], Score(problem="refused"))])
        journal.commit()
        journal.add([(keys[2], Score(1.0))])
        journal.commit()
        whole = journal.path.read_bytes()
    for cut in range(1, len(whole.splitlines(keepends=True)[-1])):
        journal.path.write_bytes(whole[:-cut])
        with ScoreJournal.open(tmp_path / "j", {"a": 1.5}) as again:
            assert "Line 4" in (again.recovered or "")
            assert [key in again for key in keys] == [True, True, False]
            assert list(again.entries()) == [(keys[0], scored), (keys[1], Score(problem="refused"))]
            again.add([(keys[2], Score(1.0))])
            again.commit()
        assert journal.path.read_bytes() == whole


def test_damage_another_identity_and_a_second_process_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "j"
    with ScoreJournal.open(folder, {"a": 1}) as journal:
        journal.add([(CoTKey("d", "m", "q", 0), Score(1.0))])
        journal.commit()
        with pytest.raises(LockedJournalError, match="Another process"):
            ScoreJournal.open(folder, {"a": 1})
    with pytest.raises(JournalError, match="its a is 1, not 2"):
        ScoreJournal.open(folder, {"a": 2})
    data = journal.path.read_bytes()
    journal.path.write_bytes(data.replace(b'"sample":0', b'"sample":1'))
    with pytest.raises(JournalError, match=r"Line 2 .* checksum"):
        ScoreJournal.open(folder, {"a": 1})
    journal.path.write_bytes(data + data.splitlines(keepends=True)[1])
    with pytest.raises(JournalError, match=r"Line 3 .* repeats a CoT"):
        ScoreJournal.open(folder, {"a": 1})


def test_a_full_disk_keeps_what_was_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    with ScoreJournal.open(tmp_path / "j", {}) as journal:
        journal.add([(CoTKey("d", "m", "q", 0), Score(1.0))])
        journal.commit()
        before = journal.path.read_bytes()

        def full(descriptor: int, data: Any) -> int:
            if len(data) > 50:
                return real(descriptor, data[:50])
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(StorageError, match="the disk is full"):
            journal.add([(CoTKey("d", "m", "q", 1), Score(1.0))])
            journal.commit()
        monkeypatch.undo()
        assert journal.path.read_bytes() == before
        with pytest.raises(JournalError, match="earlier write"):
            journal.add([(CoTKey("d", "m", "q", 1), Score(1.0))])
            journal.commit()


def spawn(
    toy: Path, out: Path, functions: str, counts: Path, *, slow: bool, function: str = "counted"
) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "COUNTS": str(counts), "PYTHONPATH": os.pathsep.join(sys.path)}
    code = "from feval.cli import main; main()"
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            code,
            "score",
            str(toy),
            "--scorer",
            f"python:{functions}:{function}",
            "--out",
            str(out),
            "-q",
        ],
        env=environment | ({"SLOW": "1"} if slow else {}),
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)]
)
def test_a_killed_run_loses_nothing_and_asks_little_twice(
    tmp_path: Path, functions: str, number: signal.Signals
) -> None:
    big = write_toy(tmp_path / "big", {"alpha": [[str(i)] * 8 for i in range(20)]}, ["1"] * 20)
    out, counts = tmp_path / "out", tmp_path / "counts"
    kills = 0
    for asked in (10, 60):
        process = spawn(big, out, functions, counts, slow=True)
        while process.poll() is None and (not counts.exists() or counts.read_text().count("\n") < asked):
            time.sleep(0.005)
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
        kills += 1
        if number != signal.SIGKILL:
            assert process.returncode == 128 + number
            assert b"the same command continues from there" in told
    process = spawn(big, out, functions, counts, slow=False)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (0, b"")
    calls = counts.read_text().splitlines()
    assert len(set(calls)) == 160
    assert len(calls) - 160 <= (0 if number == signal.SIGINT else kills * 16)  # at most what was in hand
    assert not np.isnan(open_recording(out).scores("toy", "alpha", f"python:{functions}:counted").values).any()


def test_ctrl_c_twice_ends_a_function_that_does_not_return(tmp_path: Path, toy: Path, functions: str) -> None:
    out, counts = tmp_path / "out", tmp_path / "counts"
    process = spawn(toy, out, functions, counts, slow=True, function="stuck")
    for _ in range(1000):
        if counts.exists():
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert told.decode() == (
        f"error: Scoring was interrupted inside the function {functions}:stuck. What was scored before is in the journal, and "
        "the same command continues from there.\n"
    )


def test_a_recording_without_texts_has_nothing_to_score(toy: Path, tmp_path: Path, functions: str) -> None:
    pools = [replace(pool(0, ["4", "5"]), texts=[None, None]), replace(pool(1, ["4"]), texts=[None])]
    with RecordingWriter(tmp_path / "bare", operation={"name": "test"}) as writer:
        writer.add_dataset(DatasetInfo("toy", "Toy", "verbatim", "test-1"), [question(i, "4") for i in range(2)])
        writer.add_pools("toy", LLMInfo("alpha"), "words", pools)
    with pytest.raises(NotRecordedError, match="bare holds no text of the 3 CoTs that were named"):
        run(tmp_path / "bare", tmp_path / "out", f"python:{functions}:length")
    assert not (tmp_path / "out").exists()
    assert not journal_folder(tmp_path / "out").exists()


# --- reward models behind HTTP ----------------------------------------------------------------------------------------------


def test_a_reward_model_gets_all_cots_of_a_question(toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with Server(rewards) as server:
        done = run(toy, tmp_path / "out", f"http:{server.url}/reward", key_variable="MY_KEY")
        assert len(server.seen) == 4
        path, headers, body = next(seen for seen in server.seen if len(seen[2]) == 3)
        assert (path, headers["authorization"]) == ("/reward", f"Bearer {KEY}")
        assert body[2] == {
            "question": "What is question 0?",
            "text": "Thinking about 0, sample 2. The answer is None.",
            "answer": None,
        }
        assert done.scorer == f"http:{server.url}/reward"
    assert open_recording(tmp_path / "out").scores("toy", "alpha", done.scorer).values[0, 0] == 44.0
    for file in (tmp_path / "out").rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes()


def test_a_url_alone_will_do(toy: Path, tmp_path: Path) -> None:
    with Server(rewards) as server:
        assert run(toy, tmp_path / "out", f"{server.url}/reward").with_score == 7


def test_rewards_may_be_steps_null_or_nonsense(toy: Path, tmp_path: Path) -> None:
    answers = {"4": [1, 0.5], "9": None, "5": "high", "7": True}

    def answer(_: str, body: Any) -> tuple[int, Any]:
        return 200, {"scores": [answers.get(item["answer"], 0.25) for item in body]}

    with Server(answer) as server:
        done = run(toy, tmp_path / "out", f"http:{server.url}", name="rm")
    assert (done.with_score, done.unreadable) == (5, 1)
    recording = open_recording(tmp_path / "out")
    assert recording.scores("toy", "alpha", "rm").steps(0, 1).tolist() == [1.0, 0.5]
    assert recording.scores("toy", "alpha", "rm").values[0, 2] == 0.25


@pytest.mark.parametrize(
    ("status", "value", "error", "message"),
    [
        (
            200,
            {"scores": [1.0] * 99},
            Fatal,
            r"did not answer with one score for each CoT: .* received 99 for \d CoTs",
        ),
        (200, [1.0], Fatal, "expected a list `scores` in a JSON object, received none"),
        (404, {"detail": "Not Found"}, Fatal, r"404: Not Found\. Check the URL \(http"),
        (200, b"<html>", Transient, "no valid JSON"),
        (500, {"error": "oops"}, Transient, "500: oops"),
        (401, {"error": {"message": f"bad key {KEY}"}}, Fatal, r"bad key \[key\]"),
        (302, {}, Fatal, "302"),
        (
            400,
            {"error": "no"},
            Fatal,
            r"Every request was refused: 127.*400: no\. Scoring stopped: nothing is scored yet",
        ),
    ],
)
def test_what_a_reward_model_says_wrong_is_said(
    toy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    value: Any,
    error: type[FevalError],
    message: str,
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with Server(lambda *_: (status, value)) as server, pytest.raises(error, match=message) as caught:
        run(toy, tmp_path / "out", f"http:{server.url}", key_variable="MY_KEY")
    assert KEY not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_refused_cot_has_no_score_where_others_have(toy: Path, tmp_path: Path) -> None:
    def answer(_: str, body: Any) -> tuple[int, Any]:
        if "question 1" in body[0]["question"]:
            return 400, {"error": "too strange"}
        return rewards("", body)

    with Server(answer) as server:
        done = run(toy, tmp_path / "out", f"http:{server.url}", name="rm")
    assert (done.with_score, done.refused) == (4, 3)
    assert done.notes == ("3 of 7 CoTs have no score: rm refused them.",)
    [rows] = [r for r in open_recording(tmp_path / "out").score_rows("toy", "alpha", "rm") if r.question_id == "toy/1"]
    assert "too strange" in (rows.verdicts or [""])[0]  # type: ignore[operator]


def test_busy_servers_are_asked_again(toy: Path, tmp_path: Path) -> None:
    count = iter(range(1000))

    def answer(_: str, body: Any) -> tuple[int, Any]:
        return (429, {"error": "slow down"}) if next(count) % 2 == 0 else rewards("", body)

    with Server(answer) as server:
        assert run(toy, tmp_path / "out", f"http:{server.url}").with_score == 7


@pytest.mark.parametrize("wrapped", [False, True])
def test_vllm_scores_pairs(toy: Path, tmp_path: Path, wrapped: bool) -> None:
    def answer(path: str, body: Any) -> tuple[int, Any]:
        assert path == "/v1/score"
        assert (body["model"], body["text_1"][:7]) == ("rm/model", "What is")
        scores = [len(text) for text in body["text_2"]]
        data = [{"index": i, "score": [s] if wrapped else s} for i, s in enumerate(scores)]
        return 200, {"object": "list", "data": data[::-1]}

    with Server(answer) as server:
        done = run(toy, tmp_path / "out", "vllm-score:rm/model", base_url=f"{server.url}/v1")
    assert open_recording(tmp_path / "out").scores("toy", "alpha", done.scorer).values[0].tolist() == [44.0, 44.0, 47.0]


# --- judges and self-checks -------------------------------------------------------------------------------------------------


ITEM = Item(
    Question("q", "Which?", "gold", "gold", (("A", "one"), ("B", "two"))),
    "I take B.",
    "B",
    '[{"role": "system", "content": "Think."}, {"role": "user", "content": "Which?"}]',
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("All steps hold.\n\nScore: 10", 1.0),
        ("**Score:** 7", 0.7),
        ("score = 2.5/10", 0.25),
        ("Score: 3\nOn reflection,\nScore: 8", 0.8),
        ("Score: 11", None),
        ("I would say 8.", None),
        ("", None),
    ],
)
def test_grades_of_a_judge_are_read(text: str, expected: float | None) -> None:
    assert judge._grade(text, {}) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("85", 0.85),
        ("85%", 0.85),
        ("Confidence: 85/100", 0.85),
        ("I am 95 % confident in answer 7.", 0.95),
        ("0", 0.0),
        ("100.", 1.0),
        ("99.5", 0.995),
        ("85, or 90", None),
        ("1,000", None),
        ("120", None),
        ("-5", None),
        ("high", None),
    ],
)
def test_stated_confidence_is_read(text: str, expected: float | None) -> None:
    assert judge._confidence(text, {}) == expected


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([token("Yes", Yes=0.6, No=0.2, Maybe=0.2)], 0.75),
        ([token("No", No=0.5, yes=0.3, Yes=0.2)], 0.5),
        ([token("**"), token(" Yes", **{" Yes": 0.9, "\u2581no": 0.1})], 0.9),
        ([{"token": "No", "logprob": -0.1, "top_logprobs": []}], 0.0),
        ([token("Maybe", Maybe=1.0)], None),
        ([token("\n")], None),
    ],
)
def test_p_true_is_read_at_the_first_word(tokens: list[dict[str, Any]], expected: float | None) -> None:
    found = judge._p_true("", {"logprobs": {"content": tokens}})
    assert found == (None if expected is None else pytest.approx(expected))


def test_p_true_needs_log_probabilities() -> None:
    for choice in ({}, {"logprobs": None}, {"logprobs": {"content": []}}):
        with pytest.raises(Fatal, match="no log-probabilities"):
            judge._p_true("Yes", choice)


def test_judges_see_question_options_and_cot() -> None:
    system, user = judge._judging(ITEM)
    assert "Score: N" in system["content"]
    assert "Which?\n(A) one\n(B) two" in user["content"]
    assert "I take B." in user["content"]
    assert "gold" not in system["content"] + user["content"]


def test_what_a_judge_thinks_is_not_its_verdict(toy: Path, tmp_path: Path) -> None:
    with Server(lambda *_: (200, chat("<think>Score: 2? Yes.</think>\nI am done."))) as server:
        assert run(toy, tmp_path / "none", "judge:m", base_url=f"{server.url}/v1").with_score == 0
    with Server(lambda *_: (200, chat("Score: 2? No.</think>\nScore: 9"))) as server:
        run(toy, tmp_path / "scored", "judge:m", base_url=f"{server.url}/v1")
    rows = next(open_recording(tmp_path / "scored").score_rows("toy", "alpha", "judge:m"))
    assert set(rows.scores) == {0.9}


def test_self_checks_go_on_in_the_same_chat() -> None:
    messages = judge.CHECKS["verbal"].ask(ITEM)
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[2]["content"] == "I take B."
    without = judge.CHECKS["p-true"].ask(Item(ITEM.question, "t", None, None))
    assert without[0] == {"role": "user", "content": "Which?\n(A) one\n(B) two"}


@pytest.mark.parametrize("kind", ["judge", "verbal", "p-true"])
def test_an_endpoint_is_asked_through_the_official_client(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    pytest.importorskip("openai", reason="the official client (extra `record`) is not installed")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    replies = {
        "judge": chat(f"Fine; your key is {KEY}.\nScore: 5"),
        "verbal": chat("50%"),
        "p-true": chat("Yes", logprobs=[token("Yes", Yes=0.3, No=0.3)]),
    }

    def answer(path: str, body: Any) -> tuple[int, Any]:
        assert path == "/v1/chat/completions"
        last = body["messages"][-1]["content"]
        return 200, chat("no idea", logprobs=[token("Hm", Hm=1.0)]) if "sample 2" in str(body) else replies[kind] | {
            "x": last
        }

    with Server(answer) as server:
        done = run(toy, tmp_path / "out", f"{kind}:some/model", base_url=f"{server.url}/v1")
        assert server.seen[0][1]["authorization"] == f"Bearer {KEY}"
        assert (server.seen[0][2]["model"], server.seen[0][2]["temperature"]) == ("some/model", 0.0)
        assert ("top_logprobs" in server.seen[0][2]) == (kind == "p-true")
    assert (done.with_score, done.unreadable) == (6, 1)
    assert done.notes == (f"1 of 7 CoTs has no score: what {kind}:some/model said holds none that can be read.",)
    recording = open_recording(tmp_path / "out")
    scores = recording.scores("toy", "alpha", f"{kind}:some/model")
    np.testing.assert_allclose(scores.values[0], [0.5, 0.5, np.nan])
    assert scores.prompt_tokens[0].tolist() == [11, 11, 11]
    assert scores.output_tokens[0].tolist() == [3, 3, 3]
    [rows, _] = recording.score_rows("toy", "alpha", done.scorer)
    assert rows.verdicts is not None
    assert rows.verdicts[2] == "no idea"
    assert recording.manifest.raw["operation"]["base_url"] == f"{server.url}/v1"
    for file in (tmp_path / "out").rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes()
    assert KEY not in str(list(recording.score_rows("toy", "alpha", done.scorer)))


def test_a_model_that_wants_max_completion_tokens_gets_them(toy: Path, tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="the official client (extra `record`) is not installed")

    def answer(_: str, body: Any) -> tuple[int, Any]:
        if "max_tokens" in body:
            return 400, {"error": {"message": "Use 'max_completion_tokens' instead.", "param": "max_tokens"}}
        return 200, chat(f"Score: {body['max_completion_tokens'] // 1024}")

    with Server(answer) as server:
        assert run(toy, tmp_path / "out", "judge:o", base_url=f"{server.url}/v1").with_score == 7


@pytest.mark.parametrize("data", [[{"index": None, "score": 1}], [{"score": 1}, {"score": 2}], {"0": 1}, None])
def test_pairs_without_places_are_an_error(toy: Path, tmp_path: Path, data: object) -> None:
    with Server(lambda *_: (200, {"data": data})) as server, pytest.raises(Fatal, match="expected a list `data`"):
        run(toy, tmp_path / "out", "vllm-score:m", base_url=f"{server.url}/v1")


def test_a_filtered_reply_is_a_refusal(toy: Path, tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="the official client (extra `record`) is not installed")
    filtered = chat("")
    filtered["choices"][0]["finish_reason"] = "content_filter"

    def answer(_: str, body: Any) -> tuple[int, Any]:
        return 200, filtered if "question 1" in str(body) else chat("Score: 5")

    with Server(answer) as server:
        done = run(toy, tmp_path / "out", "judge:m", base_url=f"{server.url}/v1")
    assert (done.with_score, done.refused, done.unreadable) == (4, 3, 0)
    [_, rows] = open_recording(tmp_path / "out").score_rows("toy", "alpha", "judge:m")
    assert rows.verdicts == ["Refused: a content filter stopped the reply."]
    assert rows.prompt_tokens == [11]


def test_an_error_in_the_place_of_choices_is_understood(toy: Path, tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="the official client (extra `record`) is not installed")
    wrong = {"error": {"message": "no such model", "code": 404}}
    with Server(lambda *_: (200, wrong)) as server, pytest.raises(Fatal, match="no such model"):
        run(toy, tmp_path / "out", "judge:m", base_url=f"{server.url}/v1")


def test_lone_surrogates_in_a_verdict_are_kept_out(toy: Path, tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="the official client (extra `record`) is not installed")
    with Server(lambda *_: (200, chat("bad \ud800 text. Score: 5"))) as server:
        assert run(toy, tmp_path / "out", "judge:m", base_url=f"{server.url}/v1").with_score == 7


def test_a_server_without_logprobs_cannot_give_p_true(toy: Path, tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="the official client (extra `record`) is not installed")
    with Server(lambda *_: (200, chat("Yes"))) as server, pytest.raises(Fatal, match="Use verbal:MODEL"):
        run(toy, tmp_path / "out", "p-true:m", base_url=f"{server.url}/v1")


# --- local reward models ----------------------------------------------------------------------------------------------------


def test_local_reward_models(toy: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch (extra `coupled`) is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers (extra `coupled`) is not installed")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.BPE(vocab={bytes([b]).decode("latin-1"): b for b in range(128)}, merges=[]))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="\x00")  # noqa: S106  a token of text
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    for labels, kind in ((1, "LlamaForSequenceClassification"), (2, "LlamaForTokenClassification")):
        torch.manual_seed(0)
        config = transformers.LlamaConfig(vocab_size=128, num_labels=labels, pad_token_id=0, **sizes)
        getattr(transformers, kind)(config).save_pretrained(tmp_path / kind)
        tokenizer.save_pretrained(tmp_path / kind)
        done = run(toy, tmp_path / f"out-{labels}", f"transformers:{tmp_path / kind}", name="rm")
        assert done.with_score == 7
        scores = open_recording(done.path).scores("toy", "alpha", "rm")
        found = scores.values[0] if labels == 1 else scores.aggregated("last")[0]
        assert np.isfinite(found).all()
        assert len(scores.steps(0, 0)) == labels - 1


def test_a_local_model_without_its_packages_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=r"needs torch and transformers .*: pip install 'feval\[coupled\]'"):
        make_scorer(f"transformers:{tmp_path}")


def test_a_slow_reward_model_is_named_with_the_limit(toy: Path, tmp_path: Path) -> None:
    late = threading.Event()

    def answer(_: str, body: Any) -> tuple[int, Any]:
        late.wait(20)
        return rewards("", body)

    with Server(answer) as server:
        made = make_scorer(f"http:{server.url}", timeout_s=0.2)
        try:
            with pytest.raises(
                Transient, match=r"failed once each.* 127.* did not answer within 0.2 s. .* nothing is scored"
            ):
                score(toy, tmp_path / "out", made, limits=Limits(retries=0))
        finally:
            late.set()


def test_steps_are_paragraphs_or_lines() -> None:
    from recorders.scoring.local import steps_of

    assert steps_of("one\nline\n\ntwo\n\n\n three ") == ["one\nline", "two", "three"]
    assert steps_of("one\ntwo\n") == ["one", "two"]
    assert steps_of("one") == ["one"]
    assert steps_of(" ") == [""]


# --- money, and asking again -----------------------------------------------------------------------------------------------


PRICES = {"id": "test-1", "date": "2026-01-01", "source": "a test", "prices": {"some/model": [1.0, 2.0]}}


@pytest.fixture
def prices(tmp_path: Path) -> str:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(PRICES))
    return str(path)


def judged(server: Server, *more: str | Path) -> list[str | Path]:
    return ["--scorer", "judge:some/model", "--base-url", f"{server.url}/v1", *more]


def test_a_dry_run_asks_nothing_and_needs_no_key(toy: Path, tmp_path: Path, prices: str) -> None:
    before = sorted(tmp_path.iterdir())
    told = command(
        toy, "--scorer", "judge:some/model", "--out", tmp_path / "o", "--dry-run", "--prices", prices, "--json"
    )
    account = json.loads(told.stdout)
    assert (account["cots"], account["calls"], account["output_tokens"], account["at_most"]) == (7, 7, 7 * 1024, True)
    assert account["usd"] == pytest.approx((account["prompt_tokens"] + 2 * 7 * 1024) / 1e6)
    shown = command(toy, "--scorer", "judge:some/model", "--out", tmp_path / "o", "--dry-run").stdout
    assert "To come: 7 CoTs in 7 calls of judge:some/model" in shown
    assert "no price known" in shown
    assert "an upper bound: 1024 output tokens for every reply. Nothing was asked." in shown
    assert sorted(tmp_path.iterdir()) == before


def test_a_dry_run_of_what_costs_nothing_or_an_unknown_price(toy: Path, tmp_path: Path, functions: str) -> None:
    own = command(toy, "--scorer", f"python:{functions}:length", "--out", tmp_path / "o", "--dry-run").stdout
    assert f"7 CoTs in 7 calls of python:{functions}:length, on this machine: no tokens, no dollars." in own
    http = command(toy, "--scorer", "http://127.0.0.1:9/x", "--out", tmp_path / "o", "--dry-run").stdout
    assert "7 CoTs in 4 calls of http:http://127.0.0.1:9/x; tokens and price are not known." in http


@pytest.mark.parametrize("usage", [True, False])
def test_a_cost_limit_stops_and_the_same_command_goes_on(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prices: str, usage: bool
) -> None:
    pytest.importorskip("openai", reason="the official client (extra `record`) is not installed")
    out = tmp_path / "out"
    usages = {"usage": {"prompt_tokens": 100, "completion_tokens": 1000, "total_tokens": 1100}} if usage else {}
    reply = {name: value for name, value in chat("Score: 5").items() if name != "usage"} | usages
    with Server(lambda *_: (200, reply)) as server:
        limited = judged(server, "--prices", prices, "--out", out, "--cost-limit")
        for _ in range(2):
            stopped = command(toy, *limited, "0.005")  # 1024 output tokens are 0.002 dollars: only two can be afforded
            assert stopped.exit_code == 1
            assert "The next request could pass the cost limit (0.004" in stopped.stderr
            assert "2 of 7 CoTs are scored" in stopped.stderr
            assert "Raise the limit." in stopped.stderr
            assert not out.exists()
            assert len(server.seen) == 2  # what an earlier run took counts
        done = command(toy, *limited, "1")
        assert done.exit_code == 0, done.stderr
        assert len(server.seen) == 7  # nothing is paid twice
    assert verify_recording(out).ok


def test_a_cost_limit_needs_a_price(toy: Path, tmp_path: Path, functions: str, prices: str) -> None:
    for scorer in (f"python:{functions}:length", "http://127.0.0.1:9/x"):
        done = command(toy, "--scorer", scorer, "--out", tmp_path / "o", "--cost-limit", "1", "--prices", prices)
        assert done.exit_code != 0
        assert "there is no price for the scorer" in done.stderr
    assert not journal_folder(tmp_path / "o").exists()


def test_a_dry_run_knows_what_replies_in_the_journal_took(toy: Path, tmp_path: Path, prices: str) -> None:
    made = make_scorer("judge:some/model", asks=False)
    work = CoTScoring.of(toy, made)
    with ScoreJournal.open(journal_folder(tmp_path / "o"), work.identity) as journal:
        journal.add([(CoTKey("toy", "alpha", "toy/0", 0), Score(0.5, None, None, 100, 7))])
        journal.commit()
    told = command(
        toy, "--scorer", "judge:some/model", "--out", tmp_path / "o", "--dry-run", "--prices", prices, "--json"
    )
    account = json.loads(told.stdout)
    assert (account["cots"], account["prompt_tokens"], account["output_tokens"]) == (6, 600, 42)
    assert account["usd"] == pytest.approx((600 + 2 * 42) / 1e6)
    assert not account["at_most"]


def refusing(_: str, body: Any) -> tuple[int, Any]:
    return (400, {"error": "too strange"}) if "question 1" in body[0]["question"] else rewards("", body)


def test_refused_cots_of_a_recording_are_asked_again_and_other_scores_stay(toy: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    answers = [refusing]
    with Server(lambda *given: answers[0](*given)) as server:
        spec = ("--scorer", f"http:{server.url}", "--name", "rm")
        first = command(toy, *spec, "--out", one)
        assert "3 were refused: the same command on" in first.stdout
        assert "with --retry-refused and another --out" in first.stdout
        answers[0] = rewards
        server.seen.clear()
        to_come = command(one, *spec, "--out", two, "--retry-refused", "--dry-run", "--json")
        assert json.loads(to_come.stdout)["cots"] == 3
        again = command(one, *spec, "--out", two, "--retry-refused", "--json")
        assert again.exit_code == 0, again.stderr
        assert all("question 1" in item["question"] for _, _, body in server.seen for item in body)
        account = json.loads(again.stdout)
        assert [account[name] for name in ("cots", "new", "with_score", "refused")] == [7, 3, 7, 0]
        all_at_once = command(toy, *spec, "--out", tmp_path / "three")
        assert all_at_once.exit_code == 0
        nothing = command(two, *spec, "--out", tmp_path / "four", "--retry-refused")
        assert (nothing.exit_code, "holds no CoT that 'rm' refused" in nothing.stderr) == (2, True)
        other = command(
            one, "--scorer", f"http:{server.url}/b", "--name", "rm", "--out", tmp_path / "f", "--retry-refused"
        )
        assert "given by another scorer or with other parameters" in other.stderr
        held = command(one, *spec, "--out", tmp_path / "f")
        assert "take --retry-refused" in held.stderr
    assert verify_recording(two).problems == ()
    assert open_recording(two).hash == open_recording(tmp_path / "three").hash
    assert open_recording(two).manifest.raw["notes"] == []


def test_refused_cots_of_a_journal_are_asked_again_when_asked_to(toy: Path, tmp_path: Path) -> None:
    asked = []

    def answer(_: str, body: Any) -> tuple[int, Any]:
        asked.append(body[0]["question"])
        if len(asked) == 1:
            return rewards("", body)
        return (400, {"error": "strange"}) if len(asked) == 2 else (401, {"error": "no more"})

    answers = [answer]
    with Server(lambda *given: answers[0](*given)) as server:
        options: dict[str, Any] = {"limits": Limits(concurrency=1, retries=0)}
        with pytest.raises(Fatal, match="401"):
            score(toy, tmp_path / "out", make_scorer(f"http:{server.url}", name="rm"), **options)
        answers[0] = rewards
        made = make_scorer(f"http:{server.url}", name="rm")
        done = score(toy, tmp_path / "out", made, retry_refused=True, **options)
    assert (done.cots, done.new, done.with_score, done.refused) == (7, 4, 7, 0)


# --- the command ------------------------------------------------------------------------------------------------------------


def command(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["score", *map(str, arguments)])


def test_the_command(toy: Path, tmp_path: Path, functions: str) -> None:
    done = command(toy, "--scorer", f"python:{functions}:steps", "--name", "mine", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"{tmp_path / 'out'}: 7 CoTs, 2 LLMs, 1 dataset, hash ")
    assert done.stdout.endswith("5 of 7 CoTs have a score by mine\n")
    assert done.stderr.count("note: 1 of 7 CoTs has no score") == 2
    done = command(toy, "--scorer", f"python:{functions}:length", "--out", tmp_path / "b", "--llm", "alpha", "--json")
    account = json.loads(done.stdout)
    assert (account["cots"], account["with_score"]) == (4, 4)
    assert account["recording_hash"] == open_recording(tmp_path / "b").hash


def test_the_command_says_what_is_wrong(toy: Path, tmp_path: Path) -> None:
    done = command(toy, "--scorer", "judge", "--out", tmp_path / "out")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        "error: The scorer 'judge' is incomplete; write judge:MODEL, a grade from 0 to 10 by an OpenAI-compatible endpoint.\n"
    )
    done = command(toy, "--scorer", "judge:m", "--api-key-env", "NOT_SET_AT_ALL", "--out", tmp_path / "out")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "NOT_SET_AT_ALL" in done.stderr
