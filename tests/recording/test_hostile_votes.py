"""Votes files made by hand, whose bytes agree with the manifest: what they say of themselves is
checked before it is used.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from small import letters, restate, write_toy

from feval.errors import DamagedRecordingError
from feval.recording import open_recording

POOLS = {"alpha": letters("44-", "757"), "beta": [["4"], ["9", None]]}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_toy(tmp_path_factory.mktemp("votes") / "toy", POOLS, ["4", "5"])


@pytest.fixture
def toy(source, tmp_path):
    """The recording again, its manifest and votes to be overwritten."""
    return Path(shutil.copytree(source, tmp_path / "toy"))


def rewrite(toy, part, change):
    """Change bytes and header of a votes file, and let the manifest agree with it."""
    path = f"votes/toy.{part}"
    data = bytearray((toy / path).read_bytes())
    end = 16 + int.from_bytes(data[8:16], "little")
    header = json.loads(data[16:end])
    change(data, header["arrays"])
    data[16:end] = json.dumps(header, separators=(",", ":")).encode().ljust(end - 16)
    (toy / path).write_bytes(data)
    restate(toy, path)


def read(toy):
    """Read all arrays of the votes."""
    votes = open_recording(toy).votes("toy")
    for row in range(len(votes)):
        votes.candidates(row)
    for llm in votes.llms.values():
        assert llm.finish.shape == llm.codes.shape


def place(name, number, value):
    def change(_, arrays):
        arrays[name][number] = value

    return change


def values(name, *replaced):
    def change(data, arrays):
        dtype, _, offset = arrays[name]
        content = np.array(replaced, dtype).tobytes()
        data[offset : offset + len(content)] = content

    return change


def extra(name, form):
    def change(_, arrays):
        arrays[name] = form

    return change


def test_what_is_not_changed_is_read(toy):
    rewrite(toy, "votes", lambda *_: None)
    rewrite(toy, "details", lambda *_: None)
    read(toy)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        # Offsets and shapes.
        *(
            ("votes", place("codes.0", 2, offset))
            for offset in (-64, -(2**40), 2**62, 2**63, 2**64, 0, 64, True, 64.0)
        ),
        *(("votes", place("codes.0", 2, offset)) for offset in (None, "64", [64])),
        *(
            ("votes", place("gold", 1, shape))
            for shape in ([2**61], [2**64 + 2], [-2], [2.0], [], [2, 1], "2", 2, None)
        ),
        *(
            ("votes", place("codes.0", 1, shape))
            for shape in ([-2, -3], [2, 2**62], [2**32, 2**32], [True, 3], [6])
        ),
        ("details", place("candidates", 2, -64)),
        ("details", place("candidates", 1, [2**40])),
        # A type or name of another array.
        ("votes", place("codes.0", 0, "uint8")),
        ("votes", place("gold", 0, "int64")),
        ("votes", place("sizes.0", 0, "int32")),
        ("votes", place("gold", 0, "O")),
        ("votes", place("gold", 0, ["int8"])),
        ("votes", extra("more", ["int8", [1], 4096])),
        ("votes", extra("codes.2", ["int8", [0, 0], 1 << 20])),
        ("details", place("finish.0", 0, "int8")),
        # Indices of what is not there.
        ("votes", values("codes.0", 1)),
        ("votes", values("codes.0", 127)),
        ("votes", values("codes.0", -3)),
        ("votes", values("codes.0", -2)),
        ("votes", values("codes.1", 0, 0)),
        ("votes", values("gold", 5)),
        ("votes", values("gold", -2)),
        ("votes", values("sizes.0", 4)),
        ("votes", values("sizes.1", 2**32 - 1)),
        ("votes", values("candidate_starts", 0, 2**32 - 1)),
        ("votes", values("candidate_starts", 1)),
        ("votes", values("candidate_starts", 0, 1, 2**32 - 1)),
        ("details", values("candidate_offsets", 0, 2**31)),
        ("details", values("question_id_offsets", 7)),
        ("details", values("finish.0", 7)),
    ],
)
def test_a_header_or_an_index_that_leads_elsewhere_is_refused(toy, part, change):
    rewrite(toy, part, change)
    with pytest.raises(
        DamagedRecordingError, match=r"toy\.\w+ is not a votes file of this format: "
    ):
        read(toy)


def test_a_header_that_goes_on_behind_the_file_is_refused(toy):
    path = toy / "votes/toy.votes"
    data = path.read_bytes()
    path.write_bytes(data[:8] + (2**63).to_bytes(8, "little") + data[16:])
    restate(toy, "votes/toy.votes")
    with pytest.raises(
        DamagedRecordingError, match="its header should end at byte 9223372036854775824"
    ):
        read(toy)
