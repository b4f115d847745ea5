"""Parquet files of a local folder made by hand, which the manifest lists as they are."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bombs import KINDS, bomb
from places import read_data
from small import letters, parquet, restate, write_toy

from feval.errors import DamagedRecordingError, FevalError
from feval.recording import open_recording, verify_recording
from feval.recording.parquet.bounds import SizeBounds

TEXTS, SAMPLES, REQUESTS = (
    f"{part}/toy/alpha.parquet" for part in ("texts", "samples", "requests")
)
QUESTIONS = "questions/toy.parquet"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_toy(
        tmp_path_factory.mktemp("parquet") / "toy", {"alpha": letters("4-", "75")}, ["4", "5"]
    )


@pytest.fixture
def toy(source, tmp_path):
    return Path(shutil.copytree(source, tmp_path / "toy"))


def replace(toy, path, data, **facts):
    """Put another file in the place of one, and let the manifest agree with it."""
    (toy / path).unlink()  # other recordings may share it
    (toy / path).write_bytes(data)
    restate(toy, path, **facts)
    return open_recording(toy)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_in_a_local_folder_is_refused_before_it_is_decoded(toy, kind):
    data, rows = bomb(kind)
    assert len(data) < 1 << 19
    recording = replace(toy, TEXTS, data, rows=rows)
    pool = pa.default_memory_pool()
    before = pool.max_memory()
    with pytest.raises(DamagedRecordingError, match="no recording compresses so well"):
        list(recording.scan("texts", "toy", "alpha"))
    assert not verify_recording(toy).ok
    assert pool.max_memory() - before < 64 << 20


def test_texts_are_not_read_from_a_bomb(toy):
    """The file of the issue: 1,148 bytes that stand for 8 GB."""
    data, rows = bomb("dictionary", "text")
    recording = replace(toy, TEXTS, data, rows=rows)
    with pytest.raises(
        DamagedRecordingError, match=r"has [0-9,]+ bytes and would expand to 8,\d+,\d+,\d+ bytes"
    ):
        list(recording.scan_texts("toy", "alpha"))
    assert any("would expand to" in problem for problem in verify_recording(toy).problems)
    with pytest.raises(DamagedRecordingError, match="has 8000 texts, and the votes have 4 CoTs"):
        recording.texts("toy", "alpha", 0)


def varint(value, size=0):
    """A number of Thrift's compact protocol, drawn out to a size."""
    digits = []
    value <<= 1
    while value > 127 or len(digits) + 1 < size:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])


def test_a_footer_that_states_less_than_its_pages_hold_is_not_believed(toy):
    data, rows = bomb("plain")
    group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    changed = data[footer:]
    for size in {group.total_byte_size, group.column(2).total_uncompressed_size}:
        assert varint(size) in changed
        changed = changed.replace(varint(size), varint(5, len(varint(size))))
    data = data[:footer] + changed
    assert pq.read_metadata(pa.BufferReader(data)).row_group(0).total_byte_size == 5
    with pytest.raises(DamagedRecordingError, match="no recording compresses so well"):
        list(replace(toy, TEXTS, data, rows=rows).scan("texts", "toy", "alpha"))


def test_every_page_of_a_sound_file_is_found():
    """Pages of both versions, with and without dictionaries, statistics and checksums, of several
    row groups.
    """
    texts = ["one", None, "two" * 50, ""] * 500
    table = pa.table(
        {"text": texts, "number": range(2000), "list": [[], None, ["a", "b"], ["c"]] * 500}
    )
    for version in ("1.0", "2.0"):
        for options in (
            {"use_dictionary": False},
            {"write_statistics": False},
            {"write_page_checksum": True},
        ):
            data = parquet(
                table, data_page_version=version, data_page_size=300, row_group_size=700, **options
            )
            metadata = pq.read_metadata(pa.BufferReader(data))
            bounds = SizeBounds("it", data, metadata)
            bounds.check()
            for group in range(metadata.num_row_groups):
                for leaf in range(metadata.num_columns):
                    column = metadata.row_group(group).column(leaf)
                    stated = column.total_uncompressed_size  # with the headers of the pages
                    pages = list(bounds._pages(column))
                    assert sum(page.values for page in pages if page.kind != 2) == column.num_values
                    assert 0 <= stated - sum(page.bytes for page in pages) < 600 * len(pages)


def test_a_header_of_a_page_with_a_number_for_its_sizes_is_a_sentence():
    """Found by the fuzzer, as a `TypeError`."""
    data = bytearray(parquet(pa.table({"number": [1, 2]}), use_dictionary=False))
    metadata = pq.read_metadata(pa.BufferReader(bytes(data)))
    page = data.index(b"\x2c\x15\x04", metadata.row_group(0).column(0).data_page_offset)
    data[page : page + 3] = b"\x25\x02\x00"  # field 5 is an integer, no struct
    with pytest.raises(DamagedRecordingError, match="contradicts its pages"):
        SizeBounds("it", bytes(data), metadata).check()


def retyped(path, column, change):
    table = pq.read_table(path)
    return parquet(table.set_column(table.schema.get_field_index(column), column, change(table)))


@pytest.mark.parametrize(
    ("path", "column", "values", "words"),
    [
        *read_data("recordings.json")["columns of wrong types"],
        (TEXTS, "text", [b"a", b"b", b"c", b"d"], "should hold text, found binary"),
    ],
)
def test_a_column_of_a_wrong_type_is_a_sentence(toy, path, column, values, words):
    recording = replace(toy, path, retyped(toy / path, column, lambda _: pa.array(values)))
    with pytest.raises(DamagedRecordingError, match=words):
        (
            recording.questions("toy")
            if path.startswith("questions")
            else list(recording.pools("toy", "alpha"))
        )
    assert not verify_recording(toy).ok


def test_files_of_other_questions_are_a_sentence(toy):
    """Found by the fuzzer: each ended `feval verify` with a traceback."""
    ids = {
        name: retyped(toy / name, "question_id", lambda table: pa.array(["x"] * len(table)))
        for name in (REQUESTS, QUESTIONS)
    }
    good = {name: (toy / name).read_bytes() for name in (REQUESTS, QUESTIONS)}
    replace(toy, REQUESTS, ids[REQUESTS])
    assert not verify_recording(toy).ok
    replace(toy, REQUESTS, parquet(pq.read_table(toy / REQUESTS).slice(0, 1)), rows=1)
    assert "alpha was asked 'x', which is no question of toy." in verify_recording(toy).problems
    replace(toy, REQUESTS, good[REQUESTS], rows=2)
    replace(toy, QUESTIONS, ids[QUESTIONS])
    assert "a question id comes twice" in verify_recording(toy).problems[0]
    replace(toy, QUESTIONS, good[QUESTIONS])
    assert verify_recording(toy).ok
    replace(toy, SAMPLES, parquet(pq.read_table(toy / SAMPLES).drop_columns("answer")))
    assert "cannot be read ('answer')" in verify_recording(toy).problems[0]


@pytest.mark.parametrize(
    "type_", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_how_another_writer_holds_texts_is_its_own_affair(toy, type_):
    before = list(open_recording(toy).pools("toy", "alpha"))
    recording = replace(
        toy, TEXTS, retyped(toy / TEXTS, "text", lambda table: table.column("text").cast(type_))
    )
    assert list(recording.pools("toy", "alpha")) == before


def test_fewer_or_more_rows_than_the_manifest_or_the_votes_have_are_a_sentence(toy):
    table = pq.read_table(toy / TEXTS)
    with pytest.raises(DamagedRecordingError, match="should have 4 rows, found 3"):
        replace(toy, TEXTS, parquet(table.slice(0, 3))).texts("toy", "alpha", 0)
    for texts in (table.slice(0, 3), pa.concat_tables([table, table])):
        recording = replace(toy, TEXTS, parquet(texts), rows=len(texts))
        with pytest.raises(FevalError, match="4"):
            recording.texts("toy", "alpha", 0)
