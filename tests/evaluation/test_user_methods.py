"""A user's method from a file: the same numbers as in process, and whatever it does ends in a
sentence.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import pytest
from small import letters, pool, write_rows, write_scored_toy, write_toy

from feval import evaluate, load
from feval.errors import MethodError, UsageError
from feval.evaluation.method_names import make_method

POOLS = letters("aaba", "xy-y", "bbbb", "----")
OTHERS = letters("babb", "yxxx", "abaa", "q-qp")
GOLDS = ["a", "y", "b", "z"]

METHODS = '''
import ctypes, faulthandler, os, re, signal, subprocess, sys, threading, time

STATE = {"questions": 0}


def looks_at_everything(question, first, second):
    responses = [first.sample(2), second.sample(1), first.sample(1)]
    if question.endswith("1?"):
        second.truncate(0, 3)
        first.charge(calls=2, prompt_tokens=50, output_tokens=4)
    texts = [cot.raw_text for response in responses for cot in response.cots]
    scores = [score or 0 for response in responses for score in response.scores()]
    dollars = first.dollar_cost + second.dollar_cost
    if first.uniform() < 0.3:
        return None
    place = (len(texts[0]) + int(8 * sum(scores)) + int(dollars * 1e9)) % 4
    return [answer for response in responses for answer in response.answers][place]


def sleeps(question, llm):
    time.sleep(100)


def waits_in_c(question, llm):
    threading.Event().wait()


def holds_the_interpreter(question, llm):
    re.match(r"(a+)+$", "a" * 60 + "b")


def swallows(question, llm):
    while True:
        try:
            llm.sample(100)
        except BaseException:
            time.sleep(0.01)


def ignores_signals(question, llm):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, signal.SIG_IGN)
    while True:
        pass


def exits(question, llm):
    sys.exit(3)


def interrupts(question, llm):
    raise KeyboardInterrupt


def vanishes(question, llm):
    os._exit(3)


def crashes(question, llm):
    faulthandler.disable()
    ctypes.string_at(0)


def closes_everything(question, llm):
    os.closerange(0, 256)
    return "a"


def recurses(question, llm):
    return recurses(question, llm)


def fills_memory(question, llm):
    return "a" * (1 << 60)


def raises_nonsense(question, llm):
    class Odd(Exception):
        def __str__(self):
            raise ValueError("no words")
    raise Odd


def stays_behind(question, llm):
    threading.Thread(target=lambda: [time.sleep(0.1) for _ in range(10**9)]).start()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    with open(__file__ + ".children", "a") as file:
        print(os.getpid(), child.pid, file=file)
    STATE["questions"] += 1
    return llm.sample(1).answers[0]


def names_its_parent(question, llm):
    raise RuntimeError(f"child of {os.getppid()}")


def forks(question, llm):
    os.fork()
    return llm.sample(1).answers[0]


def prints(question, llm):
    print("to the user")
    os.write(1, b"to the user, too\\n")
    return "a"


class Popular:
    """Learns the number of questions that it was given, and how they were answered."""

    fitted = False

    def fit(self, train):
        print("learning")
        learnt, gold, [pool] = Popular(), train.gold, train.pools
        learnt.fitted = f"{len(gold)} {sorted(gold.tolist())} {pool.codes.tolist()}"
        return learnt

    def __call__(self, question, llm):
        raise RuntimeError(f"knows {self.fitted}")


class Slow:
    def fit(self, train):
        os._exit(7)

    def __call__(self, question, llm):
        return None
'''


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("mine") / "mine.py"
    path.write_text(METHODS)
    return path


@pytest.fixture(scope="module")
def replay(tmp_path_factory):
    out = tmp_path_factory.mktemp("methods") / "toy"
    return load(
        "toy",
        recording=write_scored_toy(out, {"gpt-3.5-turbo": POOLS, "gpt-4o-mini": OTHERS}, GOLDS),
        seed=3,
    )


def run(file, name, replay, **options):
    """Evaluate a method of the file on the first LLM, in recorded order."""
    options = {"order": "recorded"} | options
    method, (dataset, [llm, _]) = make_method(f"{file}:{name}"), replay
    return evaluate(method, dataset, llm, **options)


def in_process(file, name):
    """The callable itself, as a Python program passes it."""
    names = {"__name__": "mine", "__file__": str(file)}
    exec(file.read_text(), names)  # noqa: S102  the test's own text
    return names[name]


@pytest.mark.parametrize(
    ("order", "billing", "workers"),
    [("seeded", "per_round", 1), ("seeded", "once", 2), ("recorded", "once", 1)],
)
def test_numbers_are_those_in_process(order, billing, workers, file, replay):
    loaded = load("toy", recording=replay[0].recording_paths[0], seed=5, billing=billing)
    mine = evaluate(in_process(file, "looks_at_everything"), *loaded, order=order, replicates=9)
    theirs = evaluate(
        make_method(f"{file}:looks_at_everything"),
        *loaded,
        order=order,
        replicates=9,
        workers=workers,
    )
    assert len(set(mine.usd.tolist())) > 1
    assert theirs.to_dict() == mine.to_dict()
    for name in ("right", "no_answer", "calls", "samples", "tokens", "usd", "tokens_per_round"):
        assert getattr(theirs, name).tolist() == getattr(mine, name).tolist(), name


def test_questions_stay_themselves_where_other_recordings_order_them_otherwise(tmp_path, file):
    """Rows are those of all LLMs that were loaded together, though only some of them are asked."""
    one = write_toy(tmp_path / "one", {"one": POOLS}, GOLDS)
    backwards = [3, 2, 1, 0]
    write_rows(
        tmp_path / "two",
        {i: GOLDS[i] for i in backwards},
        ("two", [pool(i, OTHERS[i]) for i in backwards]),
    )
    dataset, [_, two] = load("toy", ["one", "two"], [one, tmp_path / "two"], prices="none")
    (tmp_path / "first.py").write_text(
        "def first(question, llm):\n    return llm.sample(1).answers[0]\n"
    )
    expected = evaluate(
        lambda _, llm: llm.sample(1).answers[0], dataset, two, order="recorded"
    ).right.tolist()
    assert expected == [0, 1, 0, 0]
    for workers in (1, 2):
        method = make_method(f"{tmp_path / 'first.py'}:first")
        assert (
            evaluate(method, dataset, two, order="recorded", workers=workers).right.tolist()
            == expected
        )


@pytest.mark.parametrize(
    "name", ["waits_in_c", "holds_the_interpreter", "swallows", "ignores_signals"]
)
def test_a_method_that_does_not_come_to_an_end_is_ended(name, file, replay):
    sentence = (
        rf"The method {name} on question 'toy/0' did not come to an end in 0.3 s"
        ".*time_limit=SECONDS"
    )
    with pytest.raises(MethodError, match=sentence):
        run(file, name, replay, time_limit=0.3)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("exits", r"raised SystemExit: 3 \(mine.py, line \d+\)"),
        ("interrupts", "raised KeyboardInterrupt"),
        ("vanishes", r"on question 'toy/0' ended its process \(exit status 3\)"),
        ("crashes", r"on question 'toy/0' ended its process \(signal SIG(SEGV|BUS)\)"),
        ("closes_everything", "on question 'toy/0' ended its process"),
        ("recurses", r"on question 'toy/0' raised RecursionError: .* \(mine.py, line \d+\)"),
        ("fills_memory", r"on question 'toy/0' raised (MemoryError|OverflowError)"),
        ("raises_nonsense", "raised ValueError: no words"),
    ],
)
def test_a_method_that_fails_ends_in_a_sentence(name, words, file, replay):
    with pytest.raises(MethodError, match=words):
        run(file, name, replay, time_limit=20)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until_dead(pids):
    end = time.monotonic() + 20
    while any(map(is_alive, pids)):
        assert time.monotonic() < end, "processes are left"
        time.sleep(0.05)


def test_nothing_is_left_of_the_process_and_what_it_started(file, replay):
    method = make_method(f"{file}:stays_behind")
    assert evaluate(method, replay[0], replay[1][0], order="recorded").samples.tolist() == [1] * 4
    del method
    rows = Path(f"{file}.children").read_text().split("\n")[:-1]
    assert len({row.split()[0] for row in rows}) == 1, "one process asks all questions"
    wait_until_dead([int(pid) for row in rows for pid in row.split()])


def test_workers_of_a_file_are_its_processes_and_no_more(file, replay):
    with pytest.raises(MethodError, match=f"child of {os.getpid()}"):
        run(file, "names_its_parent", replay, workers=2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_that_a_method_forks_says_nothing(file, replay):
    result = run(file, "forks", replay)
    assert result.samples.tolist() == [1] * 4


PARENT = """
import sys
from feval import evaluate, load
from feval.evaluation.method_names import make_method

dataset, llms = load("toy", recording=sys.argv[1])
evaluate(make_method(sys.argv[2]), dataset, llms[0], time_limit=1000)
"""


def test_the_process_ends_with_its_parent(tmp_path, replay):
    file = tmp_path / "hangs.py"
    file.write_text(
        "import os, time\ndef hangs(*_):\n    print(os.getpid(), flush=True)\n   "
        " time.sleep(1000)\n"
    )
    recording = str(replay[0].recording_paths[0])
    parent = Popen(
        [sys.executable, "-c", PARENT, recording, f"{file}:hangs"],
        stdout=DEVNULL,
        stderr=PIPE,
        text=True,
    )
    pid = int(parent.stderr.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until_dead([pid])
    parent.stderr.close()


def evaluated(name, recording, results):
    dataset, llms = load("toy", recording=recording)
    try:
        evaluate(make_method(name), dataset, llms[0], time_limit=0.3)
    except Exception as error:  # noqa: BLE001  the other side waits for it
        results.put(str(error))


def test_it_works_in_a_daemonic_process_and_in_a_thread(file, replay):
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    arguments = (f"{file}:swallows", replay[0].recording_paths[0], results)
    process = context.Process(target=evaluated, args=arguments, daemon=True)
    for task in (process, threading.Thread(target=evaluated, args=arguments)):
        task.start()
        assert "did not come to an end in 0.3 s" in results.get()
        task.join()


def test_what_it_prints_goes_to_standard_error(file, replay, capfd):
    run(file, "prints", replay, rows=[0])
    printed = capfd.readouterr()
    assert (printed.out, printed.err.splitlines()) == ("", ["to the user", "to the user, too"])


def test_a_learner_learns_in_its_process(file, replay, capfd):
    dataset, llms = replay
    given = {"train_fraction": 0.5, "replicates": 2, "order": "seeded"}
    with pytest.raises(MethodError, match=r"RuntimeError: knows ") as mine:
        evaluate(in_process(file, "Popular")(), dataset, llms[0], **given)
    assert capfd.readouterr().out == "learning\n"
    with pytest.raises(MethodError, match=r"RuntimeError: knows ") as theirs:
        run(file, "Popular", replay, **given)
    known = str(mine.value).partition("knows ")[2].rstrip(".")
    assert known.startswith("2 [")
    assert known in str(theirs.value)
    assert capfd.readouterr().err == "learning\n"
    with pytest.raises(UsageError, match=r"^What Popular has learnt .*: take one worker\.$"):
        run(file, "Popular", replay, workers=2, train_fraction=0.4)
    with pytest.raises(
        MethodError, match=r"Slow, learning from 2 questions, ended its process \(exit status 7\)"
    ):
        run(file, "Slow", replay, **given)


def test_only_the_bytes_that_were_hashed_are_run(tmp_path, replay):
    file = tmp_path / "mine.py"
    file.write_text("def method(question, llm):\n    return 'a'\n")
    before, after = (make_method(f"{file}:method") for _ in range(2))
    assert before.source_sha256 == after.source_sha256
    assert len(before.source_sha256) == 64
    for method in (before, after):
        result = evaluate(method, replay[0], replay[1][0], order="recorded")
        assert result.right.tolist() == [1, 0, 0, 0]
        assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]
        file.write_text("def method(question, llm):\n    return 'b'\n")
