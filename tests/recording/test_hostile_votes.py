"""Votes files made by hand, whose bytes agree with the manifest: what they say of themselves is
checked before it is used.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from places import read_data
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


def changed(array, item, value):
    """Change what the header says of an array (its type, shape or offset, or all of its form), or
    its first values.
    """

    def change(data, arrays):
        if item == "form":
            arrays[array] = value
        elif item == "values":
            dtype, _, offset = arrays[array]
            content = np.array(value, dtype).tobytes()
            data[offset : offset + len(content)] = content
        else:
            arrays[array][("type", "shape", "offset").index(item)] = value

    return change


def test_what_is_not_changed_is_read(toy):
    rewrite(toy, "votes", lambda *_: None)
    rewrite(toy, "details", lambda *_: None)
    read(toy)


@pytest.mark.parametrize(
    ("part", "array", "item", "value"),
    [
        (part, array, item, value)
        for part, array, item, values in read_data("recordings.json")["votes that lead elsewhere"]
        for value in values
    ],
)
def test_a_header_or_an_index_that_leads_elsewhere_is_refused(toy, part, array, item, value):
    rewrite(toy, part, changed(array, item, value))
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
