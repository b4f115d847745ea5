"""Files that may come from strangers: every reader refuses what is no file, is too large, or says
two things.
"""

import os
from pathlib import Path

import pytest
from command_line import failed, feval

from feval.cards.prices import price_list
from feval.cards.reading import MOST_DEPTH, parse_json, read_toml
from feval.comparison.plan import Plan
from feval.errors import FevalError
from feval.receipts.document import read_receipt
from feval.recording.layout.format import PULLED, origin
from feval.serving.grading import read_answers, read_ledger
from feval.serving.ledger import read_ledger as read_lines


def _areas(path):
    from feval.cli.forecast import _areas as areas

    areas(path, None)  # type: ignore[arg-type]


READERS = {
    "plan.toml": Plan.read,
    "settings.toml": lambda path: read_toml(path, "The settings file", ""),
    "receipt.json": read_receipt,
    "prices.json": price_list,
    "prices.md": price_list,
    "answers.csv": read_answers,
    "answers.jsonl": read_answers,
    "ledger.json": read_ledger,
    "ledger.jsonl": read_lines,
    "areas.csv": _areas,
}


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_regular_file_is_an_error_and_no_wait(name, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for place in (tmp_path / "pipe", tmp_path / "folder", Path("/dev/zero"), Path("/dev/null")):
        link = tmp_path / f"{place.name}-{name}"
        link.symlink_to(place)
        with pytest.raises(
            FevalError, match=r"cannot be read.*(it is no regular file|Is a directory)"
        ):
            READERS[name](link)


def test_a_pipe_as_the_note_of_an_address_is_passed_over(tmp_path):
    os.mkfifo(tmp_path / PULLED)
    assert origin(tmp_path) is None


@pytest.mark.parametrize(
    "name", [name for name in READERS if name != "ledger.jsonl"]
)  # of the server's own, which is not passed on
def test_a_file_beyond_its_bound_is_refused_with_the_bound(name, tmp_path):
    with (tmp_path / name).open("wb") as file:
        file.truncate(1 << 40)  # sparse
    with pytest.raises(FevalError, match=r"it is larger than [0-9,]+ bytes"):
        READERS[name](tmp_path / name)


DEEP = {
    "toml lists": ("plan.toml", "a = " + "[" * 300 + "]" * 300),
    "toml keys": ("plan.toml", ".".join("a" * 5000) + " = 1"),
    "toml fields": (
        "plan.toml",
        'dataset = "a"\nrecordings = "b"\n[[method]]\nname = "c"\nllms = "d"\nfields.a'
        + ".a" * 3000
        + " = 1",
    ),
    "json": ("receipt.json", "[" * 100_000),
    "json within Python's limit": (
        "receipt.json",
        '{"feval_receipt": ' + "[" * 300 + "]" * 300 + "}",
    ),
    "answers": ("answers.jsonl", '{"a":' * 300 + "1" + "}" * 300),
    "prices": ("prices.json", '{"prices":' * 300 + "1" + "}" * 300),
}


@pytest.mark.parametrize("name", DEEP)
def test_deep_nesting_is_a_sentence(name, tmp_path):
    file, text = DEEP[name]
    (tmp_path / file).write_text(text)
    with pytest.raises(FevalError, match=r"nests deeper than 100 levels|recursion"):
        READERS[file](tmp_path / file)


def test_json_says_one_thing_only():
    assert parse_json('{"a": 1, "a": 1, "b": [{}]}') == {"a": 1, "b": [{}]}
    for text, why in (
        ('{"seed": 1, "seed": 2}', "'seed' occurs twice in one object, with different values"),
        ("[NaN]", "NaN is not a JSON number"),
        ("[1.5, -1e999]", "-1e999 is larger than numbers can be"),
        ("[" * (MOST_DEPTH + 2) + "]" * (MOST_DEPTH + 2), "deeper than 100 levels"),
        (b"\xff", "utf-8"),
    ):
        with pytest.raises(ValueError, match=why):
            parse_json(text)


def test_a_receipt_that_says_two_things_is_refused(tmp_path):
    path = tmp_path / "receipt.json"
    path.write_text('{"feval_receipt": 1, "numbers": {"accuracy": 0.9, "accuracy": 0.1}}')
    failed(feval("verify", path), 2, "'accuracy' occurs twice")
