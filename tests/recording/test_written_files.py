"""What the files of a recording look like as they are written: row groups that grow, files that
continue as parts.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from small import pool, stated, write_rows

from feval.recording import DatasetInfo, ScorerInfo, ScoreRows, open_recording, verify_recording
from feval.recording.layout.format import Part
from feval.recording.parquet import writing

PARTS = ("requests", "samples", "texts", "reasoning", "scores/judge")
LLM = "org/alpha"


def write(out, questions=5):
    """A recording of pools with 0 to 3 CoTs, thoughts, scores and answers that are nearly the gold;
    return its manifest.
    """
    info = DatasetInfo("toy", "Toy", "number", "test-1", equality="tolerance-0.5")
    answers = [[str(i)] * (i % 4) for i in range(questions)]
    pools = [pool(i, own, reasoning=["Hm."] * len(own)) for i, own in enumerate(answers)]
    scores = [
        ScoreRows(f"toy/{i}", range(len(own)), [0.5] * len(own)) for i, own in enumerate(answers)
    ]
    judge = ScorerInfo("judge", "python")
    write_rows(out, ["1"] * questions, (LLM, pools), info=info, scores={LLM: scores}, scorer=judge)
    return stated(out)


def groups(path):
    file = pq.ParquetFile(path)
    return [file.read_row_group(number) for number in range(file.num_row_groups)]


def test_a_part_that_grows_too_large_continues_in_another_file(tmp_path, monkeypatch):
    whole = write(tmp_path / "whole")
    monkeypatch.setattr(writing, "FILE_BYTES", 100)
    monkeypatch.setattr(writing, "NARROW_GROUP_ROWS", 2)
    cut = write(tmp_path / "cut")
    assert cut["leaves"] == whole["leaves"]
    assert verify_recording(tmp_path / "cut").ok
    assert list(open_recording(tmp_path / "cut").pools("toy", LLM)) == list(
        open_recording(tmp_path / "whole").pools("toy", LLM)
    )
    for part in PARTS:
        [single] = Part(part, "toy", LLM).paths(whole["files"])
        paths = Part(part, "toy", LLM).paths(cut["files"])
        assert [Path(path).name for path in paths] == [
            f"part-0000{i}.parquet" for i in range(len(paths))
        ]
        assert len(paths) > 1
        assert not (tmp_path / "cut" / single).exists()
        tables = [pq.read_table(tmp_path / "cut" / path) for path in paths]
        table = pq.read_table(tmp_path / "whole" / single)
        assert pa.concat_tables(tables).equals(table)
        # 1 and 2 are equal
        assert part != "samples" or table.column("correct").to_pylist() == [True] * 3 + [False] * 3
        ids = [set(table.column("question_id").to_pylist()) for table in tables]
        assert sum(map(len, ids)) == len(set().union(*ids))
        assert [cut["files"][path]["rows"] for path in paths] == [
            table.num_rows for table in tables
        ]
    listed = {*cut["files"], "manifest.json"}
    assert listed == {
        p.relative_to(tmp_path / "cut").as_posix()
        for p in (tmp_path / "cut").rglob("*")
        if p.is_file()
    }


def test_row_groups_of_texts_grow_with_their_file_and_hold_whole_questions(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "_SMALLEST_TEXT_GROUP_BYTES", 200)
    monkeypatch.setattr(writing, "_LARGEST_TEXT_GROUP_BYTES", 800)
    monkeypatch.setattr(writing, "_TEXT_GROUPS", 8)
    manifest = write(tmp_path / "r", questions=200)
    [path] = Part("texts", "toy", LLM).paths(manifest["files"])
    sizes = []
    seen = set()
    for table in groups(tmp_path / "r" / path):
        ids = set(table.column("question_id").to_pylist())
        assert not ids & seen
        seen |= ids
        sizes.append(sum(map(len, table.column("text").to_pylist())))
    written = [sum(sizes[:i]) for i in range(len(sizes))]
    limits = [max(200, min(800, before // 8)) for before in written]
    assert all(
        limit <= size < limit + 3 * 60 for limit, size in zip(limits[:-1], sizes[:-1], strict=True)
    )
    assert sizes[0] < 400
    assert max(sizes) > 800
