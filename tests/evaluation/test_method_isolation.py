"""What the process of a user's method holds, and what becomes of one that misbehaves: six tricks,
its pipe, its sandbox.
"""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from places import ROOT
from small import letters, write_toy

from feval import evaluate, load
from feval.errors import DamagedRecordingError, MethodError, UsageError
from feval.evaluation.method_names import make_method
from feval.evaluation.user_methods.calling import encoded
from feval.evaluation.user_methods.host import BlindDataset, python_environment, sandboxed

POOLS = letters("aaba", "xy-y", "bbbb", "qaar")
# no CoT has them, so that whoever names one has found it
GOLDS = ["gold-zero", "gold-one", "gold-two", "gold-three"]

TRICKS = '''
import gc, glob, os, re, sys, types

WANTED = re.compile(r"gold-(zero|one|two|three)|toy/[0-9]|its-own-place")
SEEN = set()


def attribute(value, name):
    try:
        return getattr(value, name)
    except Exception:
        return None


def texts(value, depth=6):
    """Texts that can be reached from a value by attributes, items and closures."""
    if id(value) in SEEN or depth < 0 or isinstance(value, (types.ModuleType, type)):
        return
    SEEN.add(id(value))
    if isinstance(value, (str, bytes)):
        yield value if isinstance(value, str) else value.decode("latin-1")
        return
    if isinstance(value, dict):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = [*value]
    else:
        parts = [attribute(value, name) for name in dir(value) if not name.startswith("__")]
        parts += [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
    for part in parts:
        yield from texts(part, depth - 1)


def frames(question, llm):
    frame = sys._getframe(1)
    while frame is not None:
        yield from texts({**frame.f_locals})
        frame = frame.f_back


def attributes(question, llm):
    yield from texts(llm, 8)
    yield from texts(llm.sample(2).cots, 8)


def garbage(question, llm):
    for value in gc.get_objects():
        if isinstance(value, (dict, list, tuple)):
            yield from (part for part in (value.values() if isinstance(value, dict) else value) if isinstance(part, str))


def mentioned(question, llm):
    yield from [*sys.argv, *os.environ.values(), os.getcwd()]
    for name in os.listdir("/proc/self/fd"):
        yield os.readlink(f"/proc/self/fd/{name}") if os.path.islink(f"/proc/self/fd/{name}") else ""
    for name in ("cmdline", "environ", "maps"):
        yield open(f"/proc/self/{name}").read()


def patched(question, llm):
    import feval.evaluation.replicates as judge
    from feval.replay import Dataset

    Dataset.answer_key = lambda *_: "anything"
    judge._code = lambda *_: 0
    return []


def asked(question, llm):
    parent = llm._source.llm._call
    for name in ("gold", "questions", "__class__", "pool"):
        try:
            yield repr(parent(name, 0))
        except Exception as error:
            yield str(error)
    try:
        llm.sample(99)
    except Exception as error:
        yield str(error)


def tricks(question, llm):
    found = {}
    for trick in (frames, attributes, garbage, mentioned, patched, asked):
        SEEN.clear()
        found[trick.__name__] = sorted({match[0] for text in trick(question, llm) for match in WANTED.finditer(text)})
    found = {name: values for name, values in found.items() if values}
    return str(found) if found else "nothing found"
'''  # noqa: E501


@pytest.fixture(scope="module")
def replay(tmp_path_factory):
    folder = tmp_path_factory.mktemp("isolation")
    return load("toy", recording=write_toy(folder / "its-own-place", {"gpt-4o-mini": POOLS}, GOLDS))


def written(folder, source):
    (folder / "mine.py").write_text(source)
    return folder / "mine.py"


def first_answer(folder, source, name, replay, *, sandbox=False):
    """What a method of a file answers to the first question; its process is ended."""
    method = make_method(f"{written(folder, source)}:{name}", sandbox=sandbox)
    [given] = method.host.answers(*replay, np.arange(1), 0, 60)
    method.host._channel.end()
    return given.answer or ""


def test_six_tricks_find_neither_gold_nor_id(tmp_path, replay, monkeypatch):
    dataset, [llm] = replay
    monkeypatch.setenv("FEVAL_RECORDING", str(dataset.recording_paths[0]))
    monkeypatch.setenv("PWD", str(dataset.recording_paths[0]))
    monkeypatch.chdir(dataset.recording_paths[0])
    source = (
        TRICKS.replace("gold-", "gol[d]-")
        .replace("toy/", "to[y]/")
        .replace("|its-own-place", "|its-own-plac[e]")
    )
    method = make_method(f"{written(tmp_path, source)}:tricks")
    answers = [each.answer for each in method.host.answers(dataset, [llm], np.arange(4), 0, 60)]
    assert answers == ["nothing found"] * 4
    assert evaluate(method, dataset, llm, order="recorded").accuracy == 0


def test_answer_codes_and_order_of_questions_do_not_tell_the_gold(tmp_path):
    """Questions sorted by their golds, which the recording numbers first or last, are handed over
    in another order.
    """
    golds = ["a"] * 8 + ["b"] * 8
    recording = write_toy(tmp_path / "sorted", {"gpt-4o-mini": [["c", "b", "a"]] * 16}, golds)
    dataset, [llm] = load("toy", recording=recording)
    handed = BlindDataset().questions(dataset, [llm], np.arange(16))
    assert handed["llms"][0]["answers"] == [["c", "b", "a"]] * 16
    assert handed["llms"][0]["codes"].tolist() == [[0, 1, 2]] * 16
    source = (
        "N = [0]\ndef counts(question, llm):\n    N[0] += 1\n    return 'a' if N[0] <= 8 else 'b'\n"
    )
    method = make_method(f"{written(tmp_path, source)}:counts")
    assert evaluate(method, dataset, llm, order="recorded").accuracy < 1


linux = pytest.mark.skipif(
    sys.platform != "linux", reason="signals for real time have other numbers, or none"
)

HOSTILE = """
import os, struct, sys, time

def write(text):
    return os.write(REPLIES[0], struct.pack("<I", len(text)) + text)

def garbage(question, llm):
    write(b"{")

def nested(question, llm):
    write(b'{"value": ' + b"[" * 200 + b"]" * 200 + b"}")

def too_nested(question, llm):
    write(b'{"value": ' + b"[" * 100000 + b"]" * 100000 + b"}")

def huge(question, llm):
    return "a" * (1 << 21)

def lies(question, llm):
    write(b'{"value": ["a", [[1, 99, 0, 0, 0, 0]], []]}')

def overflows(question, llm):
    llm.charge(output_tokens=10**30)

def unhashable(question, llm):
    write(b'{"error": [], "message": "is odd"}')

def real_time(question, llm):
    os.kill(os.getpid(), 40)

def asks_for_ever(question, llm):
    import threading
    parent = llm._source.llm._call.__self__
    threading.Thread(target=lambda: [None for _ in iter(lambda: os.read(parent.requests.fileno(), 1 << 20), b"")]).start()
    ask = b'{"call": ["scorers", 0]}'
    while True:
        os.write(REPLIES[0], (struct.pack("<I", len(ask)) + ask) * 1000)

def odd(question, llm):
    write(b'{"call": [["texts"], {"a": 1}]}')
    time.sleep(0.1)
    write(b'{"error": "annotations", "message": 7}')
"""  # noqa: E501


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("garbage", "that is not a message"),
        ("nested", "that is not a message .it nests deeper than 100 levels"),
        ("too_nested", "that is not a message"),
        ("huge", "gave a reply of 2,097,.* bytes; 1,048,576 is the most"),
        ("lies", "not an answer with what it took"),
        ("overflows", "not an answer with what it took"),
        ("odd", "on question 'toy/[0-3]' 7"),
        ("unhashable", "on question 'toy/[0-3]' is odd"),
        pytest.param("real_time", r"ended its process \(signal 40\)", marks=linux),
        ("asks_for_ever", r"did not come to an end in 2 s"),
    ],
)
def test_a_worker_that_lies_on_its_pipe_ends_in_a_sentence(name, words, tmp_path, replay):
    source = (
        f"REPLIES = [2]\n{HOSTILE}\ndef method(question, llm):\n    REPLIES[0] ="
        " llm._source.llm._call.__self__._replies.fileno()\n"
    )
    source += f"    return {name}(question, llm)\n"
    method = make_method(f"{written(tmp_path, source)}:method")
    with pytest.raises(MethodError, match=words):
        evaluate(method, replay[0], replay[1][0], order="recorded", time_limit=2)


SWALLOWS = """
def seen(question, llm):
    try:
        return llm._source.pool.channels.logprobs() and "logprobs"
    except Exception as error:
        return str(error)

def swallows(question, llm):
    try:
        return llm.sample(1).cots[0].raw_text
    except Exception as error:
        return str(error)
"""


def test_no_message_to_a_method_names_the_place_of_the_recording(tmp_path, replay):
    assert first_answer(tmp_path, SWALLOWS, "seen", replay).startswith(
        "The recording holds no log-probabilities of gpt-4o-mini"
    )


def test_a_method_cannot_pass_over_a_damaged_recording(tmp_path):
    recording = write_toy(tmp_path / "damaged", {"gpt-4o-mini": POOLS}, GOLDS)
    texts = recording / "texts" / "toy" / "gpt-4o-mini.parquet"
    texts.write_bytes(b"PAR1" + bytes(texts.stat().st_size - 4))
    with pytest.raises(DamagedRecordingError, match=r"gpt-4o-mini\.parquet"):
        evaluate(
            make_method(f"{written(tmp_path, SWALLOWS)}:swallows"),
            *load("toy", recording=recording),
            order="recorded",
        )


def test_the_worker_imports_little():
    heavy = "{'pydantic', 'yaml', 'orjson', 'pyarrow', 'scipy', 'typer', 'huggingface_hub'}"
    code = (
        f"import sys, feval.evaluation.user_methods.worker; assert not {heavy} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_worker_whose_parent_was_killed_ends_without_a_traceback():
    command = [sys.executable, "-P", "-m", "feval.evaluation.user_methods.worker"]
    surroundings = {"env": os.environ | {"PYTHONPATH": str(ROOT)}, "start_new_session": True}
    surroundings |= dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, **surroundings) as worker:
        # before the pipe of requests, as it may happen when a process is killed
        worker.stdout.close()
        worker.stdin.write(encoded({"command": "ready"}))
        worker.stdin.flush()
        assert worker.stderr.read() == b""
    assert worker.returncode == -signal.SIGKILL


def test_a_file_that_loops_at_import_is_ended(tmp_path, replay):
    method = make_method(f"{written(tmp_path, 'while True: pass')}:method")
    with pytest.raises(
        MethodError,
        match=r"The file .*mine.py did not come to an end in 0\.2 s.*time_limit=SECONDS",
    ):
        evaluate(method, *replay, time_limit=0.02)


def test_the_sandbox_shows_python_and_no_more(tmp_path, monkeypatch):
    """With a `bwrap` that starts nothing: a venv and a user's package are bound; checkout, home and
    working folder are not.
    """
    fake = tmp_path / "bin" / "bwrap"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\nexit 0\n")
    fake.chmod(0o755)
    for folder in ("package", "work", "home", "venv"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    places = [
        str(tmp_path / "package"),
        str(tmp_path / "work"),
        str(tmp_path / "home"),
        str(ROOT),
        "",
    ]
    monkeypatch.setattr(sys, "path", places)
    command = sandboxed(["python", "-c", "0"])
    bound = {command[i + 2] for i, part in enumerate(command) if part.startswith("--ro-bind")}
    assert {str(tmp_path / "package"), str(tmp_path / "venv"), str(ROOT / "feval"), "/usr"} <= bound
    assert not bound & {str(tmp_path / "work"), str(tmp_path / "home"), str(ROOT), "/"}
    assert {"--unshare-all", "--die-with-parent", "--new-session"} <= {*command}
    assert "--bind" not in command
    assert command[-3:] == ["python", "-c", "0"]
    assert set(python_environment(sandbox=True)) == {"PATH", "HOME", "LANG", "PYTHONPATH"}


@pytest.mark.parametrize(
    ("script", "words"),
    [(None, "no `bwrap` on the PATH"), ("echo no; echo uid >&2; exit 1", "here .uid")],
)
def test_a_sandbox_that_cannot_be_is_refused(script, words, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    if script is not None:
        (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bwrap").chmod(0o755)
    with pytest.raises(UsageError, match=f"`sandbox`.*{words}"):
        sandboxed(["python"])


def makes_sandboxes():
    try:
        sandboxed(["true"])
    except UsageError:
        return False
    return True


sandboxes = pytest.mark.skipif(
    not makes_sandboxes(),
    reason="bubblewrap is not installed, is older than 0.8, or cannot make namespaces here",
)

LOOKS = """
import os, socket

def looks(question, llm):
    found = [place for place in PLACES if os.path.exists(place)]
    for place in ("/usr/x", os.path.dirname(os.__file__) + "/x"):
        try:
            open(place, "w")
            found.append(place)
        except OSError:
            pass
    try:
        socket.create_connection(("127.0.0.1", PORT), 1)
        found.append("network")
    except OSError:
        pass
    open("/tmp/mine", "w").close()
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    return f"{found} {len(pids) < 6} {sorted(os.environ)}"
"""


@sandboxes
def test_a_sandbox_has_no_network_no_home_and_no_other_files(tmp_path, replay):
    dataset, _ = replay
    with socket.create_server(("127.0.0.1", 0)) as server:
        places = [
            str(dataset.recording_paths[0]),
            str(tmp_path),
            str(Path.home() / ".bashrc"),
            str(ROOT / "docs"),
        ]
        source = f"PLACES, PORT = {places}, {server.getsockname()[1]}\n{LOOKS}"
        answer = first_answer(tmp_path, source, "looks", replay, sandbox=True)
    found, _, names = answer.partition(" True ")
    assert found == "[]"
    assert (
        {"HOME", "PATH"}
        <= set(re.findall(r"\w+", names))
        <= {"HOME", "LANG", "PATH", "PWD", "PYTHONPATH", "LC_CTYPE"}
    )


@sandboxes
def test_a_sandbox_prints_but_cannot_open_the_file_that_it_prints_to(tmp_path, replay, capfd):
    source = "import os, sys\ndef reads(question, llm):\n    print('to the user')\n"
    source += "    return str(sorted({os.readlink(f'/proc/self/fd/{n}')[:5] for n in (0, 1, 2)}))\n"
    answer = first_answer(tmp_path, source, "reads", replay, sandbox=True)
    assert answer == "['/dev/', 'pipe:']"
    assert "to the user" in capfd.readouterr().err


REACHES = """
import ctypes, os, signal, socket, stat

def kernel(question, llm):
    "Files of the kernel that can be opened to write, none of which is written but one, with what it holds."
    found = []
    for root in ("/proc", "/sys"):
        for folder, folders, files in os.walk(root):
            folders[:] = [name for name in folders if not name.isdigit()]
            for name in files:
                try:
                    os.close(os.open(f"{folder}/{name}", os.O_WRONLY))
                except OSError:
                    continue
                found.append(f"{folder}/{name}")
    try:
        value = open("/proc/sys/vm/swappiness").read()
        open("/proc/sys/vm/swappiness", "w").write(value)
        found.append("swappiness")
    except OSError as error:
        found.append(error.strerror)
    return str(found)

def outside(question, llm):
    "What can be done to feval, to devices and to mounts."
    libc = ctypes.CDLL(None, use_errno=True)
    def asks(path):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
    tries = {
        "signal": lambda: os.kill(PARENT, 0),
        "trace": lambda: libc.ptrace(16, PARENT, 0, 0) and os.kill(PARENT, 0),
        "memory": lambda: open(f"/proc/{PARENT}/mem"),
        "socket": lambda: asks(chr(0) + SOCKET),
        "device": lambda: os.mknod("/tmp/mem", stat.S_IFCHR | 0o600, os.makedev(1, 1)),
        "/dev": lambda: [open(f"/dev/{name}") for name in ("mem", "kmsg", "kvm", "vda", "sda", "fuse")
                         if os.path.exists(f"/dev/{name}")][0],
    }
    def namespace():
        if child := os.fork():  # the worker has threads, and then no namespace can be made
            return -os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os._exit(libc.unshare(0x10000000) != 0)
    calls = {
        "namespace": namespace,
        "groups": lambda: libc.mount(b"none", b"/tmp", b"cgroup2", 0, None),
        "mount": lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, None),
        "unmount": lambda: libc.umount2(b"/proc/sys", 2),
        "capability": lambda: libc.prctl(24, 21, 0, 0, 0) - 1,
    }
    done = [name for name, call in calls.items() if call() >= 0]
    for name, attempt in tries.items():
        try:
            attempt()
            done.append(name)
        except (OSError, IndexError):
            pass
    return str(done)
"""  # noqa: E501


@sandboxes
@pytest.mark.skipif(
    os.geteuid() != 0, reason="who is not root may not write the kernel's files anyway"
)
def test_root_in_a_sandbox_cannot_write_the_kernels_files(tmp_path, replay):
    assert (
        first_answer(tmp_path, REACHES, "kernel", replay, sandbox=True)
        == "['Read-only file system']"
    )


@sandboxes
def test_a_sandbox_reaches_neither_feval_nor_devices_nor_mounts(tmp_path, replay):
    name = f"feval-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        source = f"PARENT, SOCKET = {os.getpid()}, {name!r}\n" + REACHES
        assert first_answer(tmp_path, source, "outside", replay, sandbox=True) == "[]"
