"""The journal of scores: a run continues where it stopped, whatever stopped it."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from scoring_doubles import run
from small import pool, write_rows, write_toy

from feval.errors import NotRecordedError
from feval.recording import open_recording
from recorders.errors import JournalError
from recorders.journal import journal_folder
from recorders.scoring.scores import CoTKey, Score, ScoreJournal


def test_replies_are_read_by_question_in_sample_order_and_the_later_of_a_refused_one_counts(
    tmp_path,
):
    one, other = CoTKey("d", "m", "q1", 0), CoTKey("d", "m", "q1", 0, "against")
    refused, whole = Score(problem="refused"), Score(0.1, (0.5, 0.25), "Fine \u2028.", 3, 4)
    with ScoreJournal.open(tmp_path / "j", {}) as journal:
        for entry in (
            (one._replace(sample=2), refused),
            (other, whole),
            (one, Score(0.5)),
            (one._replace(question_id="q0"), Score(0.75)),
            (one._replace(sample=2), Score(1.0)),
        ):
            journal.add([entry])
            journal.commit()
        assert journal.replies_with_usage == 1
    with ScoreJournal.open(tmp_path / "j", {}) as journal:
        read = journal.scores
        assert list(read(one).items()) == [(0, Score(0.5)), (2, Score(1.0))]
        assert read(other) == {0: whole}
        assert read(one._replace(question_id="none")) == {}
        assert len(journal) == 4


def test_another_identity_and_a_score_that_comes_twice_are_refused(tmp_path):
    folder = tmp_path / "j"
    with ScoreJournal.open(folder, {"a": 1}) as journal:
        journal.add([(CoTKey("d", "m", "q", 0), Score(1.0))])
        journal.commit()
    with pytest.raises(JournalError, match="its a is 1, not 2"):
        ScoreJournal.open(folder, {"a": 2})
    data = journal.path.read_bytes()
    journal.path.write_bytes(data + data.splitlines(keepends=True)[1])
    with pytest.raises(JournalError, match=r"Line 3 .* repeats a CoT"):
        ScoreJournal.open(folder, {"a": 1})


def spawn(toy, out, functions, counts, *, slow, function="counted"):
    environment = {**os.environ, "COUNTS": str(counts), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = f"score {toy} --scorer python:{functions}:{function} --out {out} -q"
    return subprocess.Popen(
        [sys.executable, "-m", "feval", *command.split()],
        env=environment | ({"SLOW": "1"} if slow else {}),
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        *(pytest.param(end, marks=pytest.mark.slow) for end in (signal.SIGTERM, signal.SIGKILL)),
    ],
)
def test_a_killed_run_loses_nothing_and_asks_little_twice(tmp_path, functions, number):
    big = write_toy(tmp_path / "big", {"alpha": [[str(i)] * 8 for i in range(20)]}, ["1"] * 20)
    out, counts = tmp_path / "out", tmp_path / "counts"
    kills = 0
    for asked in (10, 60):
        process = spawn(big, out, functions, counts, slow=True)
        while process.poll() is None and (
            not counts.exists() or counts.read_text().count("\n") < asked
        ):
            time.sleep(0.005)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
        kills += 1
        if number != signal.SIGKILL:
            assert process.returncode == 128 + number
            assert b"the same command continues from there" in stderr
    process = spawn(big, out, functions, counts, slow=False)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, b"")
    calls = counts.read_text().splitlines()
    assert len(set(calls)) == 160
    # at most what was in hand
    assert len(calls) - 160 <= (kills * 16 if number == signal.SIGKILL else 0)
    assert not np.isnan(
        open_recording(out).scores("toy", "alpha", f"python:{functions}:counted").values
    ).any()


def test_ctrl_c_twice_ends_a_function_that_does_not_return(tmp_path, toy, functions):
    out, counts = tmp_path / "out", tmp_path / "counts"
    process = spawn(toy, out, functions, counts, slow=True, function="stuck")
    for seen in (0, 1):  # the first has to arrive before the second is sent
        while process.poll() is None and (not counts.exists() or counts.stat().st_size < seen):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (
        stderr.decode()
        == f"error: Scoring was interrupted inside the function {functions}:stuck. What was scored"
        " before is in the journal, and the same command continues from there.\n"
    )


def test_a_recording_without_texts_has_nothing_to_score(toy, tmp_path, functions):
    pools = [
        replace(pool(0, ["4", "5"]), texts=[None, None]),
        replace(pool(1, ["4"]), texts=[None]),
    ]
    write_rows(tmp_path / "bare", ["4", "4"], ("alpha", pools))
    with pytest.raises(NotRecordedError, match="bare holds no text of the 3 CoTs that were named"):
        run(tmp_path / "bare", tmp_path / "out", f"python:{functions}:length")
    assert not (tmp_path / "out").exists()
    assert not journal_folder(tmp_path / "out").exists()
