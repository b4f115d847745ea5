"""Recordings changed at random: each is refused in a sentence, or gives numbers, and none ends the
process that reads it.
"""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest
from places import ROOT, SUPPORT
from small import letters, write_scored_toy

CASES = 500


@pytest.mark.slow
def test_a_recording_changed_at_random_is_a_sentence_or_numbers(tmp_path):
    source = write_scored_toy(
        tmp_path / "toy", {"alpha": letters("44-", "757"), "beta": [["4"], ["9", None]]}, ["4", "5"]
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (SUPPORT, ROOT)))}
    script = [sys.executable, "-B", str(SUPPORT / "recording_fuzz.py"), str(source)]
    blocks = [(0, CASES // 2), (CASES // 2, CASES // 2)]
    workers = []
    for number, (first, count) in enumerate(blocks):
        (tmp_path / str(number)).mkdir()
        command = [*script, str(tmp_path / str(number)), str(first), str(count)]
        workers.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        )
    cases = []
    for worker, (first, count) in zip(workers, blocks, strict=True):
        lines = worker.communicate()[0].splitlines()
        cases += [json.loads(line) for line in lines]
        assert worker.returncode == 0, (
            f"case {first + len(lines)} ended the process with {worker.returncode}"
        )
        assert len(lines) == count
    outcomes = Counter(outcome for _, _, outcome in cases)
    odd = [case for case in cases if "Traceback" in case[2]]
    assert not odd, "\n".join(f"case {number}: {what}\n{error}" for number, what, error in odd[:5])
    silent = [case for case in cases if case[2] == "other" and not case[1].endswith("stated")]
    assert [case for case in silent if "manifest.json" not in case[1]] == []
    assert outcomes["DamagedRecordingError"] > CASES // 2
    assert outcomes["same"] > CASES // 20
