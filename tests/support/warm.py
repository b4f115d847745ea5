"""Programs that start with feval imported already: a server forks itself for each, in a tenth of
the time.

    python warm.py serve SOCKET               imports, prints "ready", serves until its input ends
    python warm.py SOCKET feval ARGUMENTS...  `feval` in a fork of the server
    python warm.py SOCKET -c CODE             code in a fork of the server, with warnings as errors

A fork has the arguments, folder, environment and standard streams of its caller, which ends as the
fork does, passes signals on, and takes the fork with it when it is killed. A library that the
server imports has read the environment of the server.
"""

import json
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LIBRARIES = ("feval.report.pictures.drawing", "matplotlib.backends.backend_svg", "pandas")


def call(address, words):
    """Run a program in a fork of the server and return its exit code."""
    request = json.dumps([words, os.getcwd(), {**os.environ}]).encode()  # noqa: PTH109  without pathlib, which takes time
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
        server.sendall(request)
        for number in PASSED_ON:
            signal.signal(number, lambda number, _: server.sendall(bytes([number])))
        code = int(server.makefile("rb").read())
    if code < 0:  # a signal ended it
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def serve(address):
    """Fork for each caller; return, in the fork, the words of the program that it is to be."""
    import select
    import warnings

    warm()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        os.write(1, b"ready")
        helpers = []
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            caller, _ = listener.accept()
            # newer Pythons mention the threads that NumPy has started
            with warnings.catch_warnings(action="ignore"):
                helper = os.fork()
            if helper == 0:
                listener.close()
                return become(caller)
            caller.close()
            helpers = [
                each for each in [*helpers, helper] if os.waitpid(each, os.WNOHANG) == (0, 0)
            ]
    sys.exit()


def warm():
    """Import what the commands import."""
    import gc
    from importlib import import_module, util

    from feval.cli.commands import COMMANDS

    commands = {f"feval.cli.{home.partition(':')[0]}" for _, home in COMMANDS.values()}
    for name in [*commands, *LIBRARIES]:
        if util.find_spec(name.partition(".")[0]):
            import_module(name)
    gc.freeze()  # a fork shares what its own collections do not look at
    assert "huggingface_hub" not in sys.modules, "it reads the Hub's address while it is imported"


def become(caller):
    """Be the program in a second fork, while the first tells it of signals and the caller of its
    end.
    """
    import threading
    from contextlib import suppress

    size, streams, _, _ = socket.recv_fds(caller, 8, 3)
    words, folder, environment = json.loads(
        caller.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
    )
    program = os.fork()
    if program == 0:
        caller.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        return list(words)

    def pass_on():
        while number := caller.recv(1):
            os.kill(program, number[0])
        os.kill(program, signal.SIGKILL)

    for each in (*range(3), *streams):
        os.close(each)
    threading.Thread(target=pass_on, daemon=True).start()
    code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    with suppress(OSError):  # the caller was killed
        caller.sendall(str(code).encode())
    os._exit(0)


def run(words):
    """Be the program, and return its exit code."""
    import traceback
    import warnings

    sys.argv = words
    sys.path[0] = ""
    try:
        if words[0] == "feval":
            from feval.cli import main

            main()
        else:
            from feval.errors import SourceWarning

            warnings.simplefilter("error")
            warnings.simplefilter("ignore", SourceWarning)
            exec(words.pop(1), {"__name__": "__main__"})  # noqa: S102  what a test hands over
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001  as an interpreter does
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1] != "serve":
        sys.exit(call(sys.argv[1], sys.argv[2:]))
    import atexit
    import threading

    exit_code = run(serve(sys.argv[2]))
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(exit_code)  # to take down all that was imported takes half a second
