import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from places import read_data

from feval.answers import equality, keys
from feval.answers.equality import MathWorker
from feval.errors import AnswerError

CASES = read_data("answers.json")

pytestmark = pytest.mark.skipif(
    equality.version() is None, reason="math-verify is not installed (the extra `math`)"
)

HOPELESS = "9^{9^{9^9}}"


@pytest.mark.parametrize(("gold", "answer"), CASES["equal mathematics"])
def test_answers_equal_as_mathematics_are_equal(gold, answer):
    assert equality.equal(gold, answer)
    result = keys("latex", [answer], gold)
    assert result.answers == [answer] == [result.gold]


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("x", "y"),
        ("2k+2", "2k+1"),
        ("\\pi", "3.14"),
        ("(2,3)", "[2,3]"),
        ("p-q", "q-p"),
        ("\\frac{", "}"),
        ("", ""),
    ],
)
def test_other_answers_are_not(gold, answer):
    assert not equality.equal(gold, answer)


def test_a_pair_that_takes_too_long_has_no_verdict_and_the_next_one_is_answered():
    with closing(MathWorker(seconds=1)) as worker:
        assert worker.equal(HOPELESS, "1") is None
        assert worker.equal("2k+2", "2(k+1)")
        assert worker.starts == 2


def test_a_worker_that_was_killed_is_replaced():
    with closing(MathWorker(seconds=20)) as worker:
        assert worker.equal("2k+2", "2(k+1)")
        worker._process.kill()
        worker._process.wait()
        assert worker.equal("2k+2", "2(k+1)")
        assert worker.starts == 2


def test_threads_take_turns():
    with closing(MathWorker(seconds=60)) as worker:
        with ThreadPoolExecutor(4) as pool:
            verdicts = list(pool.map(worker.equal, ["2k+2", "x"] * 4, ["2(k+1)", "y"] * 4))
        assert verdicts == [True, False] * 4
        assert worker.starts == 1


def test_a_closed_worker_is_gone_and_starts_again_when_asked():
    worker = MathWorker(seconds=60)
    worker.close()
    assert worker.equal("x+1", "1+x")
    process = worker._process
    worker.close()
    assert process.poll() is not None
    worker.close()


def test_a_worker_that_does_not_start_is_an_error_that_says_what_to_do():
    with pytest.raises(AnswerError, match="did not start"):
        MathWorker(1, (sys.executable, "-c", "raise SystemExit(3)")).equal("x", "y")
    with pytest.raises(AnswerError, match="could not be started"):
        MathWorker(1, ("/nonexistent/python",)).equal("x", "y")


@pytest.mark.parametrize("reply", ["nonsense", "[]", "{}", '{"equal": 1}', ""])
def test_a_worker_that_breaks_the_rules_says_not_equal(reply):
    program = f"print('{{}}', flush=True); input(); print({reply!r}, flush=True)"
    with closing(MathWorker(5, (sys.executable, "-c", program))) as worker:
        assert not worker.equal("x", "x")


def run(program):
    """What a program prints in a process of its own, which must end well and say nothing else."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_program_that_ends_ends_its_worker():
    pid = run(
        "from feval.answers import equality\nassert equality.equal('x+1',"
        " '1+x')\nprint(equality._worker()._process.pid)"
    )
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_asks_a_worker_of_its_own():
    program = """
import os
from feval.answers import equality
assert equality.equal("x+1", "1+x")
child = os.fork()
if child == 0:
    os._exit(0 if equality.equal("y+1", "1+y") and equality._worker().starts == 2 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(equality.equal("z+1", "1+z"), equality._worker().starts)
"""
    assert run(program).split() == ["True", "1"]


@pytest.mark.skipif(
    not hasattr(os, "pidfd_open"),
    reason="this system has no pidfd to wait for a process that is not a child",
)
def test_a_worker_outlives_no_parent_that_was_killed():
    import select

    program = """
from feval.answers import equality
equality.equal("x+1", "1+x")
print(equality._worker()._process.pid, flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
    ) as parent:
        worker = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    ended, _, _ = select.select([worker], [], [], 60)
    os.close(worker)
    assert ended


def test_no_answer_is_evaluated_as_a_program(tmp_path):
    target = tmp_path / "written"
    for answer in (
        f"__import__('pathlib').Path('{target}').touch()",
        f"\\text{{open('{target}','w')}}",
        f"1+open('{target}','w')",
    ):
        assert not equality.equal("2", answer)
    assert not target.exists()
