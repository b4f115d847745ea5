"""Results come in the order of the tasks, and the same ones whoever ran them."""

import os
import signal
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from pathlib import Path

import pytest
from parcels import Parcels

from feval import __version__
from feval.errors import ConflictError, FevalError, UsageError
from feval.executors import opened, results
from feval.executors.tasks import run_task


def squared(number):
    return number * number


def refused(number):
    if number % 3 == 2:
        raise ConflictError(f"{number} is refused.")
    return number


def dies_once(number, folder):
    """End the process in the middle of task 3, the first time."""
    mark = Path(folder) / "died"
    if number == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    (Path(folder) / f"{number}-{os.getpid()}").touch()
    return squared(number)


def dies(_):
    os.kill(os.getpid(), signal.SIGKILL)


class Backwards(Executor):
    """Runs tasks when as many are under way as it has room for, the last one first."""

    workers = 1

    def __init__(self):
        self.waiting = []
        self.most = self.ran = 0

    def submit(self, fn, /, *args, **_):
        future = Future()
        self.waiting.append((future, fn, args))
        self.most = max(self.most, len(self.waiting))
        if len(self.waiting) == 3:
            self.run()
        return future

    def run(self):
        while self.waiting:
            future, fn, args = self.waiting.pop()
            if future.set_running_or_notify_cancel():
                self.ran += 1
                try:
                    future.set_result(fn(*args))
                except ConflictError as error:
                    future.set_exception(error)


class Fails(Executor):
    """Has processes that die, or a cluster that gives tasks up: each ends with an error, or is
    cancelled.
    """

    workers = 2

    def __init__(self, error):
        self.error, self.submitted = error, 0

    def submit(self, *_, **__):
        self.submitted += 1
        future = Future()
        if self.error is None:
            future.cancel()
        else:
            future.set_exception(self.error)
        return future


def test_results_come_in_the_order_of_the_tasks_whichever_ends_first():
    executor, seen = Backwards(), []
    tasks = [(n,) for n in range(12)]
    assert [*results(squared, tasks, executor, lambda *done: seen.append(done))] == [
        n * n for n in range(12)
    ]
    assert executor.most == 3
    assert seen == [(n, 12) for n in range(1, 13)]


@pytest.mark.parametrize("make", [lambda: None, lambda: ThreadPoolExecutor(3)])
def test_tasks_are_taken_as_there_is_room(make):
    taken = []

    def tasks():
        for n in range(1000):
            taken.append(n)
            yield (n,)

    executor = make()
    given = results(squared, tasks(), executor)
    assert [next(given) for _ in range(3)] == [0, 1, 4]
    assert len(taken) <= 27
    given.close()
    assert [*results(squared, [], executor)] == []
    if executor is not None:
        executor.shutdown()


def test_the_first_failure_in_order_is_the_one_raised_and_ends_the_work():
    executor = Backwards()
    tasks = iter([(n,) for n in [0, 1, 5, 2, *range(100)]])
    given = results(refused, tasks, executor)
    assert [next(given), next(given)] == [0, 1]
    with pytest.raises(ConflictError, match="5 is refused"):
        next(given)
    assert len([*tasks]) >= 98


def test_a_failure_of_the_tasks_themselves_comes_behind_the_results_before_it():
    def tasks():
        yield (1,)
        yield (2,)
        raise ConflictError("There is no third.")

    given, executor = results(squared, tasks(), Parcels()), Parcels()
    assert [next(given), next(given)] == [1, 4]
    with pytest.raises(ConflictError, match="no third"):
        next(given)
    given = results(squared, ((n,) for n in range(9)), executor, ahead=2)
    assert next(given) == 0
    assert executor.tasks == 2 * executor.workers
    assert [*given] == [n * n for n in range(1, 9)]


@pytest.mark.parametrize("end", [lambda first: first.set_result("first"), Future.cancel])
def test_a_failure_that_comes_before_its_turn_waits_for_it(end):
    first = Future()

    class Failed(Future[str]):
        def result(self, timeout=None):
            end(first)
            return super().result(timeout)

    failed = Failed()
    failed.set_exception(ValueError("second"))
    futures = iter([first, failed])

    class Given(Executor):
        def submit(self, *_, **__):  # type: ignore[override]  it has its futures already
            return next(futures)

    found = results(str, [("",), ("",)], Given())
    if end is Future.cancel:
        with pytest.raises(UsageError, match="gave a task up"):
            next(found)
        return
    assert next(found) == "first"
    with pytest.raises(ValueError, match="second"):
        next(found)


def test_processes_that_die_again_and_again_are_a_sentence():
    executor = Fails(BrokenProcessPool("died"))
    with pytest.raises(UsageError, match=r"could not start or were ended.*Or take one worker"):
        [*results(squared, [(1,)], executor)]
    assert executor.submitted == 3


class NeedsTwo(Exception):  # noqa: N818  as users name theirs
    """Cannot be made from its text alone, as unpickling makes it."""

    def __init__(self, place, reason):
        super().__init__(f"{reason} in {place}")


def fails(place):
    raise NeedsTwo(place, "no good")


@pytest.mark.parametrize("kind", ["parcels", pytest.param("processes", marks=pytest.mark.slow)])
def test_an_exception_that_cannot_travel_is_named(kind):
    sentence = (
        r"A task failed in a worker \(NeedsTwo: no good in here\)\. Run it again with one worker"
    )
    with nullcontext(Parcels()) if kind == "parcels" else opened(2) as executor:
        assert executor is not None
        with pytest.raises(FevalError, match=sentence):
            [*results(fails, [("here",)], executor)]


class KilledWorker(Exception):  # noqa: N818  Dask calls it so
    """As Dask's own is named."""


@pytest.mark.parametrize("error", [None, KilledWorker("question_block-1")])
def test_a_cluster_that_gives_a_task_up_is_a_sentence(error):
    with pytest.raises(
        UsageError,
        match=r"The cluster gave a task up \((KilledWorker|CancelledError)\): .* logs say more",
    ):
        [*results(squared, [(1,), (2,)], Fails(error))]


def test_another_version_on_a_worker_is_refused():
    with pytest.raises(
        ConflictError, match=r"This is feval 0\.0\.1, and a worker has feval .* Install the same"
    ):
        run_task("0.0.1", squared, (1,))


def test_a_worker_names_options_where_a_command_was_typed():
    task = (str, (UsageError("Give it with --prices FILE."),))
    assert run_task(__version__, *task, typed=True) == "Give it with --prices FILE."
    assert run_task(__version__, *task) == "Give it with prices='FILE'."


def test_one_worker_is_this_process_and_none_less():
    with opened() as executor:
        assert executor is None
    with pytest.raises(UsageError, match="0 workers"), opened(0):
        pass
    with pytest.raises(UsageError, match="a cluster has its own"), opened(2, "tcp://127.0.0.1:1"):
        pass
    with (
        pytest.raises(UsageError, match="tcp://HOST:PORT or tls://HOST:PORT; 'http://here'"),
        opened(1, "http://here"),
    ):
        pass


@pytest.mark.slow
def test_a_process_that_dies_is_replaced_and_little_is_repeated(tmp_path):
    with opened(2) as executor:
        assert [*results(dies_once, [(n, str(tmp_path)) for n in range(40)], executor)] == [
            n * n for n in range(40)
        ]
        runs = [path.name.partition("-")[0] for path in tmp_path.iterdir() if path.name != "died"]
        assert set(runs) == {str(n) for n in range(40)}
        assert len(runs) <= 48
        with pytest.raises(UsageError, match="were ended"):
            [*results(dies, [(0,)], executor)]
        assert [*results(squared, [(4,)], executor)] == [16]


@pytest.mark.slow
def test_where_the_work_raises_its_processes_end(tmp_path):
    with pytest.raises(KeyboardInterrupt), opened(2) as executor:
        pids = [*results(os.getpid, [()] * 4, executor)]
        raise KeyboardInterrupt
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
