"""Recordings changed at random, read in a process with little memory: `python recording_fuzz.py
SOURCE FOLDER FIRST COUNT`.

Every case is a function of its number. A line of JSON says for each: [number, what was changed,
outcome]. The outcome is "same" where all numbers are those of the sound recording, "other", the
name of a `FevalError`, or a traceback. A process that dies says nothing of the case that killed it.
"""

import json
import resource
import shutil
import sys
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
from readings import readings
from small import parquet, restate

from feval.errors import FevalError
from feval.evaluation.curves import self_consistency_curve
from feval.recording import open_recording, verify_recording
from feval.replay import load
from feval.report.tables.recordings import info_dict

MOST_MEMORY = 3 << 30


def numbers(folder):
    """Everything that commands read of a recording, and what a curve makes of it."""
    dataset, llms = load("toy", None, folder, prices="none")
    curves = [repr(self_consistency_curve(dataset, llm, [1]).to_dict()) for llm in llms]
    return [*curves, repr(info_dict(open_recording(folder))), *map(repr, readings(folder))]


def spoil(data, others, rng):
    """Change the bytes of a file, most often where it says what it holds."""
    how = rng.choice(
        ("bytes", "bytes", "header", "footer", "number", "cut", "insert", "double", "swap", "empty")
    )
    size = len(data)
    at = rng.randrange(size)
    if how == "header":
        at = rng.randrange(min(size, 600))
    elif how == "footer":
        at = size - 1 - rng.randrange(min(size, 2500))
    if how in {"bytes", "header", "footer"}:
        new = bytes(
            rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
            for _ in range(rng.choice((1, 1, 2, 8)))
        )
        return f"{how} at {at}", data[:at] + new + data[at + len(new) :]
    if how == "number":
        digits = [i for i in range(size) if data[i : i + 1].isdigit()] or [at]
        at = rng.choice(digits)
        return (
            f"number at {at}",
            data[:at]
            + rng.choice((b"-1", b"9" * 19, b"0", b"1e9", b"null", b"[]"))
            + data[at + 1 :],
        )
    if how == "insert":
        return f"insert at {at}", data[:at] + rng.randbytes(rng.choice((1, 4, 64))) + data[at:]
    changed = {"cut": data[:at], "double": data + data, "swap": rng.choice(others), "empty": b""}[
        how
    ]
    return f"{how} at {at}", changed


def refill(path, data, rng):
    """Write a well-formed file that says something else: another form of an array, another
    column.
    """
    if path.endswith(".parquet"):
        table = pq.read_table(pa.BufferReader(data))
        name, rows = rng.choice(table.column_names), len(table)
        number = rng.choice((0, -1, 1, 2**31, -(2**63), 2**63 - 1))
        fills = (
            number,
            None,
            0.5,
            float("nan"),
            b"\xff",
            "x",
            "4",
            True,
            ["x"],
            [number],
            {"label": "x"},
        )
        fill = rng.choice(fills)
        table = table.set_column(table.schema.get_field_index(name), name, pa.array([fill] * rows))
        return f"{name} = {fill!r}", parquet(table)
    end = 16 + int.from_bytes(data[8:16], "little")
    header = json.loads(data[16:end])
    name = rng.choice(list(header["arrays"]))
    form = header["arrays"][name]
    number = rng.choice(
        (-64, -1, 0, 1, 2, 64, 2**31, 2**40, 2**62, 2**63, 2**64, True, 1.0, None, "1")
    )
    if rng.random() < 0.3:
        form[0] = rng.choice(
            ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "float64", "O", None)
        )
    elif rng.random() < 0.5 and form[1]:
        form[1][rng.randrange(len(form[1]))] = number
    else:
        form[2] = form[2] + number if type(number) is int and rng.random() < 0.5 else number
    text = json.dumps(header).encode().ljust(end - 16)
    return f"{name} = {form}", data[:8] + len(text).to_bytes(8, "little") + text + data[end:]


def outcome(folder, expected):
    with suppress(FevalError):
        verify_recording(folder)
    try:
        return "same" if numbers(folder) == expected else "other"
    except FevalError as error:
        return type(error).__name__


def main(source, scratch, first, count):
    warnings.simplefilter("ignore")
    paths = sorted(str(path.relative_to(source)) for path in source.rglob("*") if path.is_file())
    contents = {path: (source / path).read_bytes() for path in paths}
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    folder = Path(shutil.copytree(source, scratch / "fuzz"))
    expected = numbers(folder)
    for number in range(first, first + count):
        rng = Random(number)  # noqa: S311  cases of a test
        path = rng.choice([*paths, "votes/toy.votes", "votes/toy.details"])
        if path.startswith(("manifest", "README")) or rng.random() < 0.6:
            what, data = spoil(contents[path], list(contents.values()), rng)
        else:
            what, data = refill(path, contents[path], rng)
        (folder / path).write_bytes(data)
        stated = path in json.loads(contents["manifest.json"])["files"] and rng.random() < 0.8
        if stated:
            restate(folder, path)
        try:
            result = outcome(folder, expected)
        except Exception:  # noqa: BLE001  whatever it is, it is reported
            result = traceback.format_exc()[-1500:]
        sys.stdout.write(
            json.dumps([number, f"{path}, {what}{', stated' * stated}", result]) + "\n"
        )
        sys.stdout.flush()
        for name in {path, "manifest.json"}:
            (folder / name).write_bytes(contents[name])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
