"""What killed processes leave beside a target is removed when it is written again; what a living
one uses is not.
"""

import errno
import fcntl
import subprocess
import sys

import pytest
from small import full_disk, write_toy

from feval.errors import StorageError
from feval.recording import verify_recording
from feval.recording.layout.files import NewFolder
from feval.report.files import save_files


def left(target, *names):
    """Folders with a file, as a process leaves them that is killed while it writes."""
    for name in names:
        (target.parent / name).mkdir(parents=True)
        (target.parent / name / "votes.bin").write_bytes(b"half")
    return [target.parent / name for name in names]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def toy(out):
    return write_toy(out, {"alpha": [["1", "2"]]}, ["1"])


def test_folders_of_dead_writers_are_removed_when_the_recording_is_written_again(tmp_path):
    left(
        tmp_path / "r[1]",
        ".r[1].partial-0123abcd",
        ".r[1].partial-ffffffff",
        ".r1.partial-0123abcd",
        ".r.partial-1",
    )
    assert verify_recording(toy(tmp_path / "r[1]")).ok
    assert names(tmp_path) == [".r.partial-1", ".r1.partial-0123abcd", "r[1]"]


def test_the_folder_of_a_living_writer_stays(tmp_path):
    other = NewFolder(tmp_path / "r")
    (other.path / "file").write_text("half")
    toy(tmp_path / "r")
    assert names(tmp_path) == [other.path.name, "r"]
    with pytest.raises(OSError, match="not empty"):
        other.publish()
    other.remove()
    assert names(tmp_path) == ["r"]


def test_a_link_and_a_disk_without_locks_are_left_alone(tmp_path, monkeypatch):
    elsewhere, *_ = left(tmp_path / "elsewhere" / "x", "mine")
    (tmp_path / ".r.partial-1").symlink_to(elsewhere)
    NewFolder(tmp_path / "r").remove()
    assert names(elsewhere) == ["votes.bin"]

    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    left(tmp_path / "r", ".r.partial-2")
    toy(tmp_path / "r")
    assert names(tmp_path) == [".r.partial-1", ".r.partial-2", "elsewhere", "r"]


def test_files_of_dead_writers_are_removed_when_the_report_is_written_again(tmp_path):
    for name in (".curve.csv.4711.part", ".curve.csv.1.part", ".other.csv.1.part"):
        (tmp_path / name).write_text("half")
    with (tmp_path / ".curve.csv.2.part").open("w") as living:
        fcntl.flock(living, fcntl.LOCK_EX)
        save_files(tmp_path, {"curve.csv": b"whole"})
    assert names(tmp_path) == [".curve.csv.2.part", ".other.csv.1.part", "curve.csv"]
    assert (tmp_path / "curve.csv").read_bytes() == b"whole"


def test_a_report_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(StorageError, match="No space left"):
        save_files(tmp_path, {"a.csv": b"1", "b.csv": b"2"})
    assert names(tmp_path) == []


@pytest.mark.slow
def test_twenty_killed_writers_leave_one_folder_until_the_next_one_writes(tmp_path):
    program = """
import os, sys
from pathlib import Path
from feval.recording.layout.files import NewFolder
new = NewFolder(Path(sys.argv[1]))
(new.path / "file").write_text("half")
os.kill(os.getpid(), 9)
"""
    for _ in range(20):
        assert (
            subprocess.run([sys.executable, "-c", program, tmp_path / "r"], check=False).returncode
            == -9
        )
        assert len(names(tmp_path)) == 1
    toy(tmp_path / "r")
    assert names(tmp_path) == ["r"]
