"""`feval demo`: real samples, offline, in under a minute.

Three of the small language models that come with feval were recorded with `feval record`: 200 word
problems, 40 chains of thought each; one of them was recorded with probes, too. The demo copies both
recordings, verifies them, records another small batch live, and plots what voting gains, over the
number of CoTs and over their length.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

from feval.errors import DamagedRecordingError, FevalError, StorageError
from feval.evaluation import Surface, surface
from feval.evaluation.curves import Curve, self_consistency_curve
from feval.executors import Progress, reports
from feval.recording import NewFolder, storage_errors, verify_recording
from feval.recording.verify import StepCounter
from feval.replay import load
from feval.report import pictures
from feval.report.files import save_files
from feval.report.tables.tables import curves_csv, records_csv, surface_records
from feval.values import frozen
from recorders.journal import is_written
from recorders.request import Decoding
from recorders.work.record import record_dataset
from recorders.work.settings import (
    RecordingSettings,
    default_prices,
    load_questions,
    make_backend,
    make_task,
)

DATASET = "tiny_sums"
LLMS = ("feval/tiny-30k", "feval/tiny-42k", "feval/tiny-160k")
"""The recorded LLMs, from cheap to expensive."""

COUNTS = tuple(range(1, 41))
SURFACE_WIDTHS = (1, 2, 3, 5, 8, 12, 16, 20)
LIVE_LLM, LIVE_QUESTIONS, LIVE_SAMPLES, LIVE_SEED = LLMS[1], 20, 10, 10_000

_MARK = "# Made by `feval demo`"
_README = f"""{_MARK}

- `recording/`: 200 word problems, 40 chains of thought each, by {len(LLMS)} small language models that come with feval
- `depth/`: 100 of the problems, 20 chains each by one of the models, which had to answer after every 8 tokens of a chain
- `live/`: {LIVE_QUESTIONS} of the problems, {LIVE_SAMPLES} chains each, recorded when the demo ran
- `curve.csv`, `curve.png`: self-consistency on the recording
- `surface.csv`: votes over n chains that are cut after t tokens

The models are real and very small; their prices are made up. The numbers say nothing about any other LLM.
"""  # noqa: E501  a page as it is written


@frozen
class Demo:
    """The results of the demo: the copied recordings, the one made live, each LLM's exact curve,
    the surface, and the reports. `live_seconds` is `None` if an earlier run had recorded it.
    """

    folder: Path
    recording: Path
    recording_hash: str
    live: Path
    live_seconds: float | None
    curves: tuple[Curve, ...]
    depth: Path
    surface: Surface
    files: tuple[Path, ...]


@contextmanager
def bundled_recording(name: str = "recording") -> Iterator[Path]:
    """Yield the folder of a recording that comes with feval: "recording", or "depth" with
    probes.
    """
    with as_file(files("recorders.tiny") / name) as folder:
        yield folder


@reports("running the demo")
def run_demo(folder: Path, progress: Progress | None = None) -> Demo:
    """Copy and verify the bundled recordings, record a batch live, compute every LLM's curve and a
    surface, write the reports.

    A folder that an earlier run made is used again, after its recordings are verified; any other
    that is not empty is refused. `progress` is called with (steps done, steps in all).
    """
    step = StepCounter(5 + len(LLMS), progress).step
    _claim(folder)
    recording, depth = folder / "recording", folder / "depth"
    for copied in (recording, depth):
        _copy_bundled(copied)
    step()
    recording_hash, _ = _verified(recording), _verified(depth)
    step()
    live = folder / "live"
    seconds = _record_live(live)
    step()
    dataset, llms = load(DATASET, LLMS, recording)
    curves = []
    for llm in llms:
        curves.append(self_consistency_curve(dataset, llm, COUNTS))
        step()
    probed, [traces] = load(DATASET, LIVE_LLM, depth)
    cut = surface(probed, traces, n=SURFACE_WIDTHS)
    step()
    reports = {
        "curve.csv": curves_csv(curves).encode(),
        "curve.png": pictures.curves(curves).png(),
        "surface.csv": records_csv(surface_records(cut)).encode(),
    }
    written = save_files(folder, reports, replace=True)
    step()
    return Demo(
        folder, recording, recording_hash, live, seconds, tuple(curves), depth, cut, tuple(written)
    )


def _claim(folder: Path) -> None:
    """Mark the folder as the demo's, or refuse it."""
    readme = folder / "README.md"
    try:
        if is_written(folder) and not (
            readme.is_file() and readme.read_text("utf-8", errors="replace").startswith(_MARK)
        ):
            raise StorageError(
                f"{folder} exists already and was not made by `feval demo`; it was left as it is."
                " Name another folder with --out."
            )
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be read: {error.strerror or error}. Name another with --out."
        ) from error
    save_files(folder, {"README.md": _README.encode()}, replace=True)


def _copy_bundled(recording: Path) -> None:
    """Copy the bundled recording of that name in one step, so that an interrupted copy is never
    mistaken for it.
    """
    if recording.exists():
        return
    new = NewFolder(recording)
    try:
        with storage_errors(recording), bundled_recording(recording.name) as source:
            shutil.copytree(source, new.path, copy_function=shutil.copyfile, dirs_exist_ok=True)
            new.publish()
    finally:
        new.remove()


def _verified(recording: Path) -> str:
    """Verify a recording of the demo and return its hash."""
    try:
        verification = verify_recording(recording)
        problems = [*verification.problems]
    except FevalError as error:  # not even a manifest
        problems = [str(error)]
    if problems:
        raise DamagedRecordingError(
            f"{recording} is no longer what the demo wrote ({problems[0]}) Delete the folder and"
            " run the demo again."
        )
    return verification.recording_hash


def _record_live(out: Path) -> float | None:
    """Sample from one of the models now, as `feval record` does; return the seconds it took, `None`
    where it was done before.
    """
    decoding = Decoding(temperature=1.0, max_tokens=120, seed=LIVE_SEED)
    settings = RecordingSettings(DATASET, LIVE_LLM, samples=LIVE_SAMPLES, decoding=decoding)
    task = make_task(settings, load_questions(DATASET, first=LIVE_QUESTIONS))
    exists = out.exists()
    if exists:
        _verified(out)  # a damaged one gets the demo's own message
    start = time.perf_counter()
    record_dataset(task, make_backend("tiny"), out, prices=default_prices(LIVE_LLM))
    seconds = None if exists else time.perf_counter() - start
    _verified(out)
    return seconds
