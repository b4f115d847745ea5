import json
import os
import time

import pytest
import yaml
from hypothesis import given, strategies as st
from json_values import json_values
from places import read_data

from feval.cards import front_matter
from feval.cards.front_matter import (
    MAX_CARD_BYTES,
    card_files,
    card_folder,
    card_folders,
    read_front_matter,
)
from feval.errors import CardError

CARDS = read_data("cards.json")


def write(folder, text):
    path = folder / "card.md"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.fixture(params=["with libyaml", "without libyaml"])
def either_loader(request, monkeypatch):
    front_matter._loader_class.cache_clear()
    if request.param == "without libyaml":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    yield None
    front_matter._loader_class.cache_clear()


def test_reads_the_facts_between_the_two_lines(tmp_path, either_loader):
    path = write(
        tmp_path,
        "---\nid: gsm8k\nquestions: 1319\nhub: {split: test, revision: null}\n---\n\n#"
        " GSM8K\n---\n",
    )
    assert read_front_matter(path) == {
        "id": "gsm8k",
        "questions": 1319,
        "hub": {"split": "test", "revision": None},
    }


def test_reads_json_values_and_leaves_all_other_words_as_text(tmp_path, either_loader):
    lines = CARDS["words"]
    text = "".join(f"k{number}: {word}\n" for number, word in enumerate(lines))
    read = read_front_matter(write(tmp_path, f"---\n{text}---\n"))
    assert list(read.values()) == list(lines.values())
    assert [type(value) for value in read.values()] == [type(value) for value in lines.values()]


def test_reads_a_file_with_a_byte_order_mark_and_foreign_line_ends(tmp_path):
    assert read_front_matter(
        write(tmp_path, b"\xef\xbb\xbf---\r\nid: a\r\nb: |-\r\n  x\r\n  y\r\n---\r\n")
    ) == {"id": "a", "b": "x\ny"}
    assert read_front_matter(write(tmp_path, b"---\rid: a\r---\r")) == {"id": "a"}


BROKEN = CARDS["front matter"] | {
    "very deep": ("---\na: " + "[" * 200_000 + "\n---\n", "deeper than 8 levels in line 2"),
    "digits": ("---\na: " + "9" * 10_000 + "\n---\n", "number"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_card_is_refused_with_file_and_line(name, tmp_path, either_loader):
    text, fragment = BROKEN[name]
    path = write(tmp_path, text)
    with pytest.raises(CardError) as caught:
        read_front_matter(path)
    assert str(path) in str(caught.value)
    assert fragment in str(caught.value)


def test_bytes_that_are_no_utf8_are_refused_with_their_line(tmp_path):
    path = write(tmp_path, b"---\nid: a\ntitle: caf\xe9\n---\n")
    with pytest.raises(CardError, match=r"not UTF-8.*line 3"):
        read_front_matter(path)


def test_the_largest_cards_are_read_in_bounded_time(tmp_path):
    for text in (
        "a: [" + "b," * (MAX_CARD_BYTES // 2 - 20) + "]",
        "\n".join(f"k{n}: v" for n in range(25_000)),
    ):
        started = time.process_time()
        assert read_front_matter(write(tmp_path, f"---\n{text}\n---\n"))
        assert time.process_time() - started < 30


def test_what_is_no_regular_file_is_refused(tmp_path):
    for name, fragment in (("absent.md", "There is no card"), ("a\0b", "cannot")):
        with pytest.raises(CardError, match=fragment):
            read_front_matter(tmp_path / name)


def test_a_file_that_may_not_be_read_is_refused(tmp_path, monkeypatch):
    def refuse(path, flags):
        raise PermissionError(13, "Permission denied", str(path))

    path = write(tmp_path, "---\nid: a\n---\n")
    # root, who runs many a container, may read any file
    monkeypatch.setattr("feval.cards.reading.os.open", refuse)
    with pytest.raises(CardError, match="cannot be read: Permission denied"):
        read_front_matter(path)


@given(
    st.one_of(
        st.binary(max_size=300),
        st.text(max_size=200).map(lambda text: f"---\n{text}\n---\n".encode("utf-8", "replace")),
    )
)
def test_whatever_a_file_holds_it_is_read_or_refused(tmp_path_factory, data):
    path = write(tmp_path_factory.getbasetemp(), data)
    try:
        read = read_front_matter(path)
    except CardError:
        return
    assert all(isinstance(key, str) for key in read)


TEXT = st.text(
    st.characters(
        codec="utf-8",
        exclude_categories=["Cc", "Cs", "Zl", "Zp"],
        exclude_characters="\ufeff\ufffe\uffff",
    ),
    max_size=20,
)


@given(st.dictionaries(TEXT, json_values(TEXT), min_size=1))
def test_json_in_the_front_matter_is_read_as_json(tmp_path_factory, value):
    path = write(
        tmp_path_factory.getbasetemp(), f"---\n{json.dumps(value, ensure_ascii=False)}\n---\n"
    )
    assert read_front_matter(path) == value


def test_folders_named_by_the_environment_come_first(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    monkeypatch.setenv(
        "FEVAL_CARDS", os.pathsep.join([str(tmp_path / "a"), "", str(tmp_path / "b")])
    )
    assert card_folders() == (tmp_path / "a", tmp_path / "b", card_folder())
    monkeypatch.setenv("FEVAL_CARDS", "")
    assert card_folders() == (card_folder(),)


@pytest.mark.parametrize("named", ["absent", "file.txt"])
def test_a_named_folder_that_is_none_is_an_error(named, tmp_path, monkeypatch):
    (tmp_path / "file.txt").touch()
    monkeypatch.setenv("FEVAL_CARDS", str(tmp_path / named))
    with pytest.raises(CardError, match=f"FEVAL_CARDS.*{named}.*not a folder"):
        card_folders()


def test_a_damaged_installation_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(
        front_matter, "__file__", str(tmp_path / "feval" / "cards" / "front_matter.py")
    )
    with pytest.raises(CardError, match="Install feval again"):
        card_folder()
    (tmp_path / "feval" / "data_cards").mkdir(parents=True)  # as in a wheel
    assert card_folder() == tmp_path / "feval" / "data_cards"


def test_only_markdown_files_are_cards(tmp_path, monkeypatch):
    (tmp_path / "llms").mkdir()
    for name in ("org--a.md", "README.md", ".hidden.md", "notes.txt", "b.md~"):
        (tmp_path / "llms" / name).touch()
    monkeypatch.setenv("FEVAL_CARDS", str(tmp_path))
    assert "org/a" in card_files("llms")
    assert not {"README", ".hidden", "notes", "b"} & set(card_files("llms"))
