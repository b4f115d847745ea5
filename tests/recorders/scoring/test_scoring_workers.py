"""A function scores in several workers: the same scores, and sentences where a worker cannot."""

from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import pytest
from scoring_doubles import FAST, command, run, score

from feval.recording import open_recording
from recorders.errors import RecorderError
from recorders.scoring.scorers import make_scorer


@pytest.mark.parametrize("function", ["length", "steps"])
def test_workers_give_the_same_scores(toy, tmp_path, functions, function):
    alone = run(toy, tmp_path / "alone", f"python:{functions}:{function}")
    with ThreadPoolExecutor(2) as executor:
        scorer = make_scorer(f"python:{functions}:{function}", executor=executor)
        together = score(toy, tmp_path / "together", scorer, limits=FAST)
    assert together.recording_hash == alone.recording_hash
    assert (together.counts["cots"], together.counts["with_score"]) == (
        alone.counts["cots"],
        alone.counts["with_score"],
    )


def test_threads_of_one_worker_import_a_function_once(toy, tmp_path, functions):
    file = tmp_path / f"{functions}.py"
    file.write_text("import time\ntime.sleep(0.05)\n" + file.read_text("utf-8"), "utf-8")
    alone = run(toy, tmp_path / "alone", f"python:{functions}:length")
    with ThreadPoolExecutor(8) as executor:
        scorer = make_scorer(f"python:{functions}:length", executor=executor)
        assert (
            score(toy, tmp_path / "out", scorer, limits=FAST).recording_hash == alone.recording_hash
        )


@pytest.mark.slow
def test_the_command_line_takes_workers(toy, tmp_path, functions):
    alone = run(toy, tmp_path / "alone", f"python:{functions}:length")
    done = command(f"{toy} --scorer python:{functions}:length --out {tmp_path}/two --workers 2")
    assert done.exit_code == 0, done.output
    assert open_recording(tmp_path / "two").hash == alone.recording_hash


def test_a_function_that_fails_in_a_worker_is_named(toy, tmp_path, functions):
    with ThreadPoolExecutor(1) as executor:
        scorer = make_scorer(f"python:{functions}:fails", executor=executor)
        with pytest.raises(
            RecorderError,
            match=r"The function .*:fails failed on a CoT .* \(ValueError: no good; .*line",
        ):
            score(toy, tmp_path / "out", scorer, limits=FAST)


def test_a_worker_with_another_file_is_refused(toy, tmp_path, functions):
    with ThreadPoolExecutor(1) as executor:
        scorer = make_scorer(f"python:{functions}:length", executor=executor)
        file = tmp_path / f"{functions}.py"
        file.write_text(file.read_text("utf-8") + "\n", "utf-8")
        with pytest.raises(RecorderError, match="another file for the function"):
            score(toy, tmp_path / "out", scorer, limits=FAST)


def test_processes_that_always_die_end_the_run(toy, tmp_path, functions):
    class Dying(Executor):
        def submit(self, *_, **__):
            future = Future()
            future.set_exception(BrokenProcessPool("a process died"))
            return future

    scorer = make_scorer(f"python:{functions}:length", executor=Dying())
    with pytest.raises(RecorderError, match="ended again and again, on a CoT of question"):
        score(toy, tmp_path / "out", scorer, limits=FAST)


def test_workers_are_for_functions(toy, tmp_path):
    done = command(f"{toy} --scorer judge:some/model --out {tmp_path}/o --workers 2")
    assert done.exit_code
    assert (
        "Workers call functions, python:MODULE:FUNCTION; 'judge:some/model' is asked" in done.output
    )
    assert not (tmp_path / "o").exists()
