"""Recorders that are killed at random moments, in a process of their own: imports are paid once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from places import ROOT, SUPPORT


def through_kills(record, kills, longest_s=0.2):
    """Fork one recorder after the other and kill each; then record to the end."""
    moments = np.random.Generator(np.random.Philox(key=3))
    for _ in range(kills):
        child = os.fork()
        if child == 0:
            try:
                record()
            finally:
                os._exit(0)
        time.sleep(moments.uniform(longest_s / 10, longest_s))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    record()


def logging(backend, log):
    """A type of backend, made to write a line into a file for each sample that it is asked for:
    "cot", or "probe" where it continues a text.
    """
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    class Logged(backend):
        async def complete(self, request, samples):
            line = b"cot\n" if request.prefill is None else b"probe\n"
            os.write(descriptor, line * len(samples))
            return await super().complete(request, samples)

    return Logged


def run(program, *arguments, of=__file__):
    """Run a program that records through kills; it finds what tests share, and the test that it is
    of.
    """
    folders = [str(SUPPORT), str(Path(of).parent)]
    code = f"import sys\nsys.path[:0] = {folders!r}\n{program}"
    subprocess.run([sys.executable, "-c", code, *map(str, arguments)], check=True, cwd=ROOT)
