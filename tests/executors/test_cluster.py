"""A Dask cluster, of processes of their own, computes what one process computes, also where a
worker dies.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from command_line import said, told, words
from places import ROOT
from small import write_lines, write_toy

import feval
from feval.errors import UsageError
from feval.evaluation.method_names import make_method
from feval.executors import opened
from feval.recording import open_recording

METHOD = """
import os

def agree(question, llm):
    first, second = llm.sample(2).answers
    return first if first == second else llm.sample(1).answers[0]
"""
ANSWERS = [
    ["abc-"[(7 * i * i + 3 * i * k + k * k) % 11 % 4].replace("-", "") or None for i in range(40)]
    for k in range(40)
]
ROLES = ("scheduler", "worker", "client")
SEEDED = "run adaptive-consistency --order seeded --seed 1 --json --recording"


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """Forty questions with 40 CoTs each."""
    return write_toy(
        tmp_path_factory.mktemp("large") / "recording", {"gpt-4o-mini": ANSWERS}, ["a"] * 40
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A client of a scheduler with two workers that are started anew when they die."""
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    file = tmp_path_factory.mktemp("cluster") / "scheduler.json"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    files = {
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
        "cwd": file.parent,
        "env": environment,
    }
    dask = [sys.executable, "-m", "distributed.cli.dask_"]
    options = ["--no-dashboard", "--scheduler-file", str(file)]

    def start(name, *more):
        return subprocess.Popen([*dask[:2], dask[2] + name, *options, *more], **files)

    started = [start("scheduler", "--host", "127.0.0.1", "--port", "0")]
    try:
        started += [start("worker", "--nworkers", "2", "--nthreads", "1", "--host", "127.0.0.1")]
        wait_until(lambda: file.exists() and file.stat().st_size > 0)
        with distributed.Client(scheduler_file=str(file), set_as_default=False) as client:
            client.wait_for_workers(2, timeout=120)
            yield client
    finally:
        started[0].kill()
        for process in started[1:]:
            process.terminate()
        for process in started:
            process.wait()


def wait_until(condition):
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.1)
    pytest.fail("it did not come about in two minutes")


@pytest.fixture
def small_tasks(monkeypatch):
    """One question is tried here, and every other one is a task."""
    monkeypatch.setattr("feval.evaluation.replicates._TRIAL_SECONDS", 1e-9)
    monkeypatch.setattr("feval.evaluation.replicates._TASK_SECONDS", 1e-9)


@pytest.mark.slow
@pytest.mark.usefixtures("small_tasks")
def test_a_worker_that_is_killed_at_work_changes_no_figure(cluster, recording):
    command = SEEDED, recording, "--replicates 200"
    alone = said(*command)
    [(victim, pid), _] = cluster.run(os.getpid).items()
    os.kill(pid, signal.SIGSTOP)  # it will be handed tasks and never end one
    handed = []

    def kill():
        try:
            wait_until(lambda: cluster.processing()[victim])
            handed.extend(cluster.processing()[victim])
        finally:
            os.kill(pid, signal.SIGKILL)

    killing = threading.Thread(target=kill)
    killing.start()
    shared = said(*command, "--workers", cluster.scheduler.address)
    killing.join()
    assert handed
    assert handed[0].startswith("question_block-")
    assert shared == alone
    assert json.loads(alone)["replicates"] == 200
    wait_until(lambda: len(cluster.run(os.getpid)) == 2)
    assert pid not in cluster.run(os.getpid).values()


@pytest.mark.slow
@pytest.mark.usefixtures("small_tasks")
def test_every_command_computes_the_same_on_a_cluster(cluster, tmp_path):
    recording = write_toy(tmp_path / "recording", {"gpt-4o-mini": ANSWERS[:4]}, ["a"] * 4)
    plan, receipt = tmp_path / "plan.toml", tmp_path / "run" / "receipt.json"
    said("run self-consistency --seed 3 --set n=3 --recording", recording, "--out", receipt.parent)
    said("compare", plan, "--init --order seeded --replicates 4 --recording", recording)
    for command in (
        ("curve self-consistency --seed 3 --order seeded --n 1,5 --recording", recording),
        ("curve early-stopping --seed 3 --order seeded --sweep window=3,5 --recording", recording),
        ("estimate --recording", recording),
        ("compare", plan),
        ("verify", receipt),
        ("verify", recording),
    ):
        alone = told(*command)
        assert told(*command, "--workers", cluster.scheduler.address) == alone, command[0]


@pytest.mark.slow
def test_an_import_sends_the_texts_to_the_cluster(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("feval.importers.pools._BLOCK_COTS", 5)
    rows = (
        {"id": n % 9, "question": "Q?", "gold": "1", "text": f"The answer is {n % 4}."}
        for n in range(60)
    )
    source = write_lines(tmp_path / "x.jsonl", rows)
    command = "import jsonl", source, "--dataset toy --llm m --answer-kind number --out"
    said(*command, tmp_path / "a")
    said(*command, tmp_path / "b", "--workers", cluster.scheduler.address)
    alone, shared = (open_recording(tmp_path / name).manifest.leaves for name in "ab")
    assert shared == alone


@pytest.mark.slow
@pytest.mark.usefixtures("small_tasks")
def test_a_method_of_the_users_own_travels_as_its_file(cluster, recording, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(METHOD)
    dataset, llms = feval.load("toy", recording=recording, seed=2)
    method = make_method(f"{file}:agree")
    alone = feval.evaluate(method, dataset, llms, replicates=3)
    file.unlink()  # it was read when it was named
    shared = feval.evaluate(
        method, dataset, llms, replicates=3, executor=feval.distributed(cluster)
    )
    assert shared.to_dict() == alone.to_dict()
    assert shared.right.tolist() == alone.right.tolist()


@pytest.mark.slow
@pytest.mark.usefixtures("small_tasks")
def test_certificates_are_those_of_dasks_own_configuration(recording, tmp_path):
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    dask = pytest.importorskip("dask")
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("openssl, which makes certificates, is not installed")
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    new = openssl, "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -keyout", key
    subprocess.run(words([*new, "-out", certificate]), check=True, capture_output=True)
    files = {
        f"{who}.{name}": file
        for who in ROLES
        for name, file in (("cert", certificate), ("key", key))
    }
    tls = {f"distributed.comm.tls.{name}": file for name, file in files.items()}
    tls["distributed.comm.tls.ca-file"] = certificate
    local = {
        "n_workers": 1,
        "threads_per_worker": 1,
        "processes": False,
        "dashboard_address": "127.0.0.1:0",
    }
    with (
        dask.config.set(tls | {"distributed.comm.require-encryption": True}),
        distributed.LocalCluster(protocol="tls://", host="127.0.0.1", **local) as secured,
    ):
        address = secured.scheduler_address
        assert address.startswith("tls://127.0.0.1")
        command = SEEDED, recording, "--replicates 2"
        assert said(*command, "--workers", address) == said(*command)
        without = dask.config.set(dict.fromkeys(tls))
        with without, pytest.raises(UsageError, match="cannot be reached"), opened(1, address):
            pass


def test_without_dask_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    sentence = r"Dask is not installed: pip install 'feval\[dask\]'"
    with pytest.raises(UsageError, match=sentence), opened(1, "tcp://127.0.0.1:9"):
        pass


@pytest.mark.slow
def test_a_scheduler_that_is_not_there_is_a_sentence(monkeypatch):
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    monkeypatch.setattr("feval.executors.workers._SECONDS_TO_ANSWER", 0.2)
    sentence = r"The scheduler tcp://127\.0\.0\.1:9 cannot be reached"
    with pytest.raises(UsageError, match=sentence), opened(1, "tcp://127.0.0.1:9"):
        pass
