"""The journal: what was committed is there for ever, what was torn is cut off, what is damaged is
named.
"""

import math
import os
import resource
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from places import SUPPORT
from recording_doubles import records, reply, request

from feval.appendlog import line
from feval.errors import FevalError, StorageError, UnknownNameError
from feval.values import without_none
from recorders.errors import JournalError, LockedJournalError
from recorders.journal import JOURNAL, Journal, journal_folder
from recorders.request import Completion

IDENTITY = {"dataset": "toy", "llm": "alpha", "decoding": {"temperature": 0.7}}
NOW = "2026-01-01T00:00:00Z"


def add(journal, index, *samples, **fields):
    sent = request(index)
    journal.add(
        sent, sent.key(), samples, [reply(index, s, **fields) for s in samples], recorded_at=NOW
    )


def test_new_folders_are_synced_where_they_are_listed(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("feval.appendlog.sync_folder", synced.append)
    opened(tmp_path / "a" / "r.journal").close()
    assert sorted(synced) == [tmp_path, tmp_path / "a", tmp_path / "a" / "r.journal"]
    opened(tmp_path / "a" / "r.journal").close()
    assert len(synced) == 3


def opened(folder, mode="new_episodes"):
    return Journal.open(folder, IDENTITY, mode=mode)


def contents(journal):
    return [(record["question_id"], record["sample"]) for record in records(journal)]


def add_one(journal, completion, sample=0, **options):
    sent = request(0)
    journal.add(sent, sent.key(), [sample], [completion], recorded_at=NOW, **options)
    journal.commit()
    return records(journal)[-1]


@pytest.fixture
def folder(tmp_path):
    with opened(tmp_path / "j") as journal:
        add(journal, 0, 0, 1)
        add(journal, 1, 0)
        journal.commit()
    return tmp_path / "j"


def test_what_was_committed_is_there_after_reopening(folder):
    with opened(folder) as journal:
        assert contents(journal) == [("toy/0", 0), ("toy/0", 1), ("toy/1", 0)]
        assert journal.missing(request(0).key(), 4) == [2, 3]
        assert journal.missing(request(2).key(), 2) == [0, 1]
        assert journal.next_sample(request(0).key()) == 2
        assert (journal.totals.cots, journal.totals.output_tokens) == (3, 30)
        assert (journal.totals.replies, journal.totals.prompt_tokens) == (2, 40)


def test_nothing_counts_before_the_commit(tmp_path):
    with opened(tmp_path) as journal:
        add(journal, 0, 0)
        assert not journal.has(request(0).key(), 0)
        assert journal.commit() == [(request(0).key(), 0)]
        assert journal.has(request(0).key(), 0)
        assert journal.commit() == []
        add(journal, 0, 1)
    with opened(tmp_path) as journal:
        assert contents(journal) == [("toy/0", 0)]


def test_every_field_of_a_completion_comes_back(tmp_path):
    whole = Completion(
        "text", "stop", "why", "[]", 5, 3, 7, 2, "id-1", "served", "fp", (-0.5, -1.25), (0.5, 2.0)
    )
    with opened(tmp_path) as journal:
        record = add_one(journal, whole, 4, seeds=[11])
        assert journal.cots(request(0).key()) == [record]
    stated = without_none(asdict(whole))
    stated |= {name: list(stated[name]) for name in ("token_logprobs", "token_confidences")}
    assert stated.items() <= record.items()
    assert (record["seed"], record["recorded_at"]) == (11, NOW)


def test_messages_are_written_once_for_each_request(folder):
    with opened(folder) as journal:
        add(journal, 0, 2)
        journal.commit()
        written = records(journal, "request")
    assert [r["request"] for r in written] == [request(0).key(), request(1).key()]
    assert written[1]["messages"][1] == {"role": "user", "content": "What is question 1?"}


def test_a_line_is_one_line_whatever_the_text(tmp_path):
    texts = ["a\nb\r\u2028\u0085\x00", "\ud800 half", "\U0001f600\u202e", "x" * 1_000_000, ""]
    with opened(tmp_path) as journal:
        for sample, text in enumerate(texts):
            add_one(journal, Completion(text, "stop"), sample)
    with opened(tmp_path) as journal:
        recorded = [record["text"] for record in records(journal)]
    assert recorded == [texts[0], "\ufffd half", *texts[2:]]


def test_numbers_that_json_cannot_hold_do_not_stop_a_recording(tmp_path):
    odd = Completion("t", "odd words", token_logprobs=(-1.0, -math.inf))
    with opened(tmp_path) as journal:
        record = add_one(journal, replace(odd, token_confidences=(math.nan, 1.0)))
    assert record["token_logprobs"] == [-1.0, -9999.0]
    assert "token_confidences" not in record
    assert record["finish_reason"] == "unknown"


EVERY_BYTE = pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)])


@EVERY_BYTE
def test_a_torn_end_is_cut_off_at_every_byte(folder, step):
    data = (folder / JOURNAL).read_bytes()
    ends = [i + 1 for i, byte in enumerate(data) if byte == 10]
    for size in sorted({*range(0, len(data), step), *ends[:-1], *(end - 1 for end in ends)}):
        (folder / JOURNAL).write_bytes(data[:size])
        with opened(folder) as journal:
            whole = sum(end <= size for end in ends)
            assert (journal.recovered is None) == (size == 0 or size in ends), size
            assert journal.existed == (whole > 0)
            assert journal.totals.cots == max(0, [0, 0, 0, 1, 2, 2, 3][whole]), size
            if size % (16 * step):
                continue  # going on is the same everywhere, and syncing takes its time
            add(journal, 7, 0)
            journal.commit()
        with opened(folder) as journal:
            assert journal.recovered is None
            assert contents(journal)[-1] == ("toy/7", 0)


@EVERY_BYTE
def test_damage_in_the_middle_names_the_line(folder, step):
    data = (folder / JOURNAL).read_bytes()
    for place in range(0, len(data) - 1, step):
        if data[place] == 10:
            continue
        line = data[:place].count(10) + 1
        (folder / JOURNAL).write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(JournalError, match=rf"Line {line} of .* does not match its checksum"):
            opened(folder)


def test_a_line_that_was_deleted_by_hand_is_asked_for_again(folder):
    lines = (folder / JOURNAL).read_bytes().splitlines(keepends=True)
    (folder / JOURNAL).write_bytes(b"".join(lines[:2] + lines[3:]))
    with opened(folder) as journal:
        assert journal.missing(request(0).key(), 2) == [0]


def test_a_line_that_comes_twice_is_named(folder):
    lines = (folder / JOURNAL).read_bytes().splitlines(keepends=True)
    (folder / JOURNAL).write_bytes(b"".join([*lines, lines[2]]))
    with pytest.raises(JournalError, match=r"Line 7 of .* repeats sample 0"):
        opened(folder)


def test_a_second_recorder_on_one_folder_refuses(folder):
    with opened(folder):
        with pytest.raises(LockedJournalError, match="Another recorder is working"):
            opened(folder)
        other = (
            f"from recorders.journal import Journal; Journal.open({str(folder)!r}, {IDENTITY!r})"
        )
        done = subprocess.run(
            [sys.executable, "-c", other], capture_output=True, text=True, check=False
        )
        assert "LockedJournalError" in done.stderr
    opened(folder).close()


def test_a_journal_of_something_else_is_refused(folder):
    with pytest.raises(JournalError, match="its llm is 'alpha', not 'beta'"):
        Journal.open(folder, IDENTITY | {"llm": "beta"})
    (folder / JOURNAL).write_bytes(b'{"hello": 1}\n')
    with pytest.raises(JournalError, match="Line 1"):
        opened(folder)


def test_modes_mean_what_vcrpy_means(folder, tmp_path):
    with opened(folder, "once") as journal:
        assert not journal.may_ask
    with opened(folder, "none") as journal:
        assert not journal.may_ask
    with opened(tmp_path / "fresh", "once") as journal:
        assert journal.may_ask
    with opened(folder) as journal:
        assert journal.may_ask
    with pytest.raises(JournalError, match="mode 'none'"):
        opened(tmp_path / "nothing", "none")
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(UnknownNameError, match="record mode 'alll'"):
        opened(folder, "alll")


def test_all_sets_the_old_journal_aside(folder):
    old = (folder / JOURNAL).read_bytes()
    for number in (1, 2):
        with opened(folder, "all") as journal:
            assert journal.may_ask
            assert contents(journal) == []
        assert (folder / "journal-1.jsonl").read_bytes() == old
        assert (folder / f"journal-{number}.jsonl").exists()


def test_notes_are_written_once(tmp_path):
    for _ in range(2):
        with opened(tmp_path) as journal:
            journal.note("The server ignores n.")
            journal.note("The server ignores n.")
            journal.commit()
            assert len(records(journal, "note")) == 1
            assert journal.notes == ["The server ignores n."]


def test_removing_leaves_what_was_set_aside(folder):
    with opened(folder, "all") as journal:
        journal.remove()
    assert [p.name for p in folder.iterdir()] == ["journal-1.jsonl"]
    with opened(folder) as journal:
        journal.remove()
    with opened(folder.parent / "other") as journal:
        journal.remove()
    assert not (folder.parent / "other").exists()


def test_a_full_disk_leaves_whole_lines(tmp_path):
    """The limit strikes inside a group: what fits stays, because it was paid for; the rest is asked
    for again.
    """
    program = f"""
import resource
from recorders.journal import Journal
from feval.errors import FevalError
import sys; sys.path[:0] = [{str(SUPPORT)!r}, {str(Path(__file__).parent)!r}]
from test_journal import add, IDENTITY
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
journal = Journal.open({str(tmp_path)!r}, IDENTITY)
acknowledged = 0
try:
    for index in range(100):
        add(journal, index, *range(5))
        acknowledged += len(journal.commit())
except FevalError as error:
    print(acknowledged, type(error).__name__, error)
try:
    add(journal, 1000, 0)
except FevalError as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    first, second = done.stdout.splitlines()
    acknowledged = int(first.split()[0])
    assert "StorageError" in first
    assert "the disk is full. What was acknowledged is in it" in first
    assert second.startswith("JournalError An earlier write")
    with opened(tmp_path) as journal:
        assert journal.recovered is None
        assert acknowledged <= journal.totals.cots < acknowledged + 5
        add(journal, 999, 0)
        journal.commit()


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be opened"):
        opened(tmp_path / "file" / "j")

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StorageError, match="the folder is read-only"):
        opened(tmp_path / "j")


@pytest.mark.slow
def test_the_index_takes_little_memory(tmp_path):
    """A hundred thousand CoTs of 1 kB: the journal is 130 MB, the process grows by a small part of
    that.
    """
    text = "x" * 1000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with opened(tmp_path) as journal:
        for index in range(500):
            sent = request(index)
            for start in range(0, 200, 40):
                replies = [Completion(text, "stop")] * 40
                journal.add(sent, sent.key(), range(start, start + 40), replies, recorded_at=NOW)
            if index % 10 == 0:
                journal.commit()
        journal.commit()
        assert journal.totals.cots == 100_000
        assert (tmp_path / JOURNAL).stat().st_size > 100e6
    with opened(tmp_path) as journal:
        assert journal.totals.cots == 100_000
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 30, f"{grown:.0f} MiB"


def test_the_journal_lies_beside_its_recording(tmp_path):
    assert journal_folder(tmp_path / "my-recording") == tmp_path / "my-recording.journal"


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    groups=st.lists(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 70), st.text(max_size=8)), max_size=4),
        max_size=6,
    ),
    torn=st.integers(0, 400),
)
def test_whatever_was_acknowledged_survives(tmp_path, groups, torn):
    """Groups of replies, some of which commit; then an interrupted write of any length behind
    them.
    """
    path = tmp_path / JOURNAL
    path.unlink(missing_ok=True)
    wanted = {}
    with opened(tmp_path) as journal:
        for group in groups:
            added = dict(wanted)
            for index, sample, text in group:
                sent = request(index)
                if (sent.key(), sample) not in added:
                    journal.add(
                        sent, sent.key(), [sample], [Completion(text, "stop")], recorded_at=NOW
                    )
                    added[sent.key(), sample] = text
            assert set(journal.commit()) == added.keys() - wanted.keys()
            wanted = added
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(whole[: min(torn, whole.index(b"\n"))])
    with opened(tmp_path) as journal:
        recorded = {(each["key"], each["sample"]): each["text"] for each in records(journal)}
        assert recorded == wanted
        assert all(journal.has(*key) for key in wanted)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_fuzzed_journals_raise_nothing_but_our_errors(folder, data):
    good = (folder / JOURNAL).read_bytes()
    lines = good.splitlines(keepends=True)
    record = orjson.loads(lines[data.draw(st.integers(0, len(lines) - 1))])
    record.pop("crc")
    name = data.draw(st.sampled_from(sorted(record)))
    numbers = st.booleans() | st.integers(-(2**60), 2**60)
    record[name] = data.draw(numbers | st.text(max_size=3) | st.sampled_from([None, [], {}]))
    lines[data.draw(st.integers(0, len(lines) - 1))] = line(record)
    (folder / JOURNAL).write_bytes(b"".join(lines))
    try:
        with opened(folder) as journal:
            list(journal.entries())
    except FevalError:
        pass
    finally:
        (folder / JOURNAL).write_bytes(good)


def test_an_empty_journal_stays_empty_where_nothing_may_be_asked(tmp_path):
    (tmp_path / "j").mkdir()
    (tmp_path / "j" / JOURNAL).touch()
    with pytest.raises(JournalError, match="is empty, and the mode 'none' asks for nothing"):
        Journal.open(tmp_path / "j", IDENTITY, mode="none")
    assert (tmp_path / "j" / JOURNAL).read_bytes() == b""
