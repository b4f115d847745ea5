"""Small recordings for tests: written out, so that expected values can be read off."""

import errno
import hashlib
import io
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from feval.importers import import_recording
from feval.recording import (
    DatasetInfo,
    LLMInfo,
    PoolRows,
    Question,
    RecordingWriter,
    ScorerInfo,
    ScoreRows,
    add_scores,
)
from feval.recording.layout.manifest import manifest_bytes

TOY = DatasetInfo("toy", "Toy questions", "verbatim", "test-1")
SCORER = ScorerInfo("judge:toy", "judge")


def full_disk(*_, **__):
    """Stand for a function that writes."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def question(index, gold, text=None):
    return Question(f"toy/{index}", text or f"What is question {index}?", gold, gold)


def pool(index, answers, *, tokens=None, **fields):
    size = len(answers)
    return PoolRows(
        f"toy/{index}",
        [f"Thinking about {index}, sample {i}. The answer is {a}." for i, a in enumerate(answers)],
        [None if a is None else f"{a}." for a in answers],
        list(answers),
        list(tokens) if tokens is not None else [10 + i for i in range(size)],
        ["stop" if a is not None else "length" for a in answers],
        **(
            {
                "prompt": f'[{{"role":"user","content":"What is question {index}?"}}]',
                "prompt_tokens": 7,
            }
            | fields
        ),
    )


def numbers(evaluation):
    """What an evaluation says of each question, as lists; `None` for what is not known."""
    names = "right no_answer calls samples tokens usd output_tokens probe_calls probe_tokens"
    names += " longest_trace_tokens sequential_tokens"
    found = {name: getattr(evaluation, name) for name in names.split()}
    return {name: None if own is None else own.tolist() for name, own in found.items()}


def letters(*rows):
    """Answers of a letter each, as lists; "-" is none."""
    return [[None if each == "-" else each for each in row] for row in rows]


def write_toy(out, pools, golds, *, counter="words", prices="2025-06-02", dataset="toy"):
    """A recording of one dataset: per LLM one list of answers per question."""
    llms = (
        (
            LLMInfo(llm, temperature=0.7, max_tokens=64),
            (pool(i, own) for i, own in enumerate(answers)),
        )
        for llm, answers in pools.items()
    )
    info = DatasetInfo(dataset, "Toy questions", "verbatim", "test-1")
    return write_rows(out, golds, *llms, info=info, counter=counter, prices=prices)


def write_rows(
    out,
    golds,
    *llms,
    info=TOY,
    counter="words",
    probes=None,
    cue=None,
    scores=None,
    scorer=SCORER,
    **options,
):
    """A recording of one dataset from rows: golds in the order of the questions, then each LLM and
    its pools.
    """
    numbered = golds if isinstance(golds, Mapping) else dict(enumerate(golds))
    with RecordingWriter(out, operation={"name": "test"}, **options) as writer:
        writer.add_dataset(info, [question(i, gold) for i, gold in numbered.items()])
        for llm, rows in llms:
            writer.add_pools(info.id, LLMInfo(llm) if isinstance(llm, str) else llm, counter, rows)
        for name, probed in (probes or {}).items():
            writer.add_rows(info.id, name, cue, probed)
        for name, scored in (scores or {}).items():
            writer.add_rows(info.id, name, scorer, scored)
    return out


def write_lines(path, rows):
    """Write rows as JSON lines; return the path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def import_rows(out, rows, *, dataset="d", **options):
    """A recording of rows, which are written as JSON lines beside it."""
    source = write_lines(out.with_suffix(".jsonl"), rows)
    return import_recording("jsonl", source, out, dataset=dataset, **options)


def parquet(rows, **options):
    """The bytes of a Parquet file of a table, of rows, or of columns."""
    if not isinstance(rows, pa.Table):
        rows = pa.table(rows) if isinstance(rows, dict) else pa.Table.from_pylist(rows)
    file = io.BytesIO()
    pq.write_table(rows, file, **({"compression": "zstd"} | options))
    return file.getvalue()


def content(folder):
    """The bytes of all files in a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def stated(recording):
    """The manifest as its file has it."""
    return json.loads((recording / "manifest.json").read_bytes())


@contextmanager
def changed_manifest(recording):
    """The manifest, to be changed on purpose; it is written with the checksum it has then."""
    manifest = stated(recording)
    yield manifest
    (recording / "manifest.json").write_bytes(manifest_bytes(manifest))


def record_of(data):
    """What a manifest says of the bytes of a file."""
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def restate(recording, path, **facts):
    """Write into the manifest what a file that was changed on purpose has now."""
    with changed_manifest(recording) as manifest:
        record = record_of((recording / path).read_bytes()) | facts
        manifest["files"].setdefault(path, {}).update(record)


def change_column(recording, path, name, change):
    """Change the values of a column on purpose, and let the manifest agree with the file."""
    table = pq.read_table(recording / path)
    values = pa.array(change(table.column(name).to_pylist()))
    (recording / path).unlink()  # other recordings may share it
    pq.write_table(
        table.set_column(table.schema.get_field_index(name), name, values), recording / path
    )
    restate(recording, path)


def in_parts(recording, out, questions):
    """A copy of a recording whose LLMs have the parts named (such as "texts") in files of so many
    questions each.
    """
    shutil.copytree(recording, out)
    with changed_manifest(out) as manifest:
        files = manifest["files"]
        for path in [path for path in files if path.split("/")[0] in questions]:
            table = pq.read_table(out / path)
            ids = table.column("question_id").to_pylist()
            starts = [row for row, name in enumerate(ids) if row == 0 or ids[row - 1] != name]
            bounds = [*starts[:: questions[path.split("/")[0]]], len(ids)]
            (out / path).unlink()
            files.pop(path)
            for number, (start, stop) in enumerate(pairwise(bounds)):
                piece = f"{path.removesuffix('.parquet')}/part-{number:05d}.parquet"
                (out / piece).parent.mkdir(exist_ok=True)
                pq.write_table(table.slice(start, stop - start), out / piece, write_page_index=True)
                files[piece] = record_of((out / piece).read_bytes()) | {"rows": stop - start}
        manifest["features"] = sorted({*manifest["features"], "several-files"})
    return out


def scored_pool(llm, index, answers):
    """A pool with log-probabilities and scores, a few of them missing; coarse numbers, so that some
    are equal.
    """
    draw = Random(f"{llm} {index}")  # noqa: S311  values of a test
    plain = pool(index, answers)
    confidences = [
        [draw.randrange(16) / 4 for _ in range(tokens)] for tokens in plain.output_tokens
    ]
    logprobs = [[-draw.randrange(8) / 8 for _ in range(tokens)] for tokens in plain.output_tokens]
    lost = {i for i in range(len(answers)) if draw.random() < 0.15}
    rich = replace(
        plain,
        sequence_logprobs=[None if i in lost else sum(values) for i, values in enumerate(logprobs)],
        token_logprobs=[None if i in lost else values for i, values in enumerate(logprobs)],
        token_confidences=[None if i in lost else values for i, values in enumerate(confidences)],
    )
    given = [i for i in range(len(answers)) if draw.random() < 0.9]
    scores = [None if draw.random() < 0.1 else draw.randrange(5) / 4 for _ in given]
    steps = [[draw.randrange(1, 9) / 8 for _ in range(draw.randrange(4))] or None for _ in given]
    tokens = [40 + draw.randrange(9) for _ in given]
    return rich, ScoreRows(
        f"toy/{index}", given, scores, steps, prompt_tokens=tokens, output_tokens=[1 for _ in given]
    )


def write_scored_toy(out, pools, golds, prices="2025-06-02"):
    """The recording of `write_toy` with log-probabilities, and with scores and step scores by
    `SCORER`.
    """
    made = {
        llm: [scored_pool(llm, i, own) for i, own in enumerate(answers)]
        for llm, answers in pools.items()
    }
    llms = (
        (LLMInfo(llm, temperature=0.7, max_tokens=64), [rich for rich, _ in own])
        for llm, own in made.items()
    )
    plain = write_rows(out.with_name(f"{out.name}-plain"), golds, *llms, prices=prices)
    return add_scores(
        plain,
        out,
        SCORER,
        {("toy", llm): [scored for _, scored in own] for llm, own in made.items()},
    )
