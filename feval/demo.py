"""A small synthetic recording, to show what feval does before there is anything to record with.

Nothing in it comes from an LLM: three made-up ones of different skill work out sums step by step, and slip. Everything is a
pure function of a keyed hash in integers, so the recording has the same hash on every machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from feval.errors import DamagedRecordingError, StorageError

if TYPE_CHECKING:
    from feval.curves import Curve
    from feval.recording import PoolRows, Question

__all__ = ["COUNTS", "DATASET", "LLMS", "Demo", "run_demo", "write_recording"]

DATASET = "synthetic_sums"
COUNTS = tuple(range(1, 41))
QUESTIONS = 100
COTS = 40
MAX_TOKENS = 2048

_KIND = "number"
_NOTE = (
    "Synthetic: made by `feval demo` from a hash. No LLM wrote these CoTs, and the prices are made up; the numbers say "
    "nothing about any real LLM."
)


@dataclass(frozen=True, slots=True)
class _Synthetic:
    """A made-up LLM.

    Attributes:
        ease: how many questions of a thousand are easy for it.
        slips: how often a step goes wrong by accident, per mille.
        lost: how often it gives up without an answer, per mille.
        price: made-up USD per million input and output tokens.
    """

    ease: int
    slips: int
    lost: int
    price: tuple[float, float]


LLMS: Mapping[str, _Synthetic] = {
    "synthetic-small": _Synthetic(ease=520, slips=38, lost=25, price=(0.02, 0.06)),
    "synthetic-medium": _Synthetic(ease=680, slips=22, lost=12, price=(0.15, 0.6)),
    "synthetic-large": _Synthetic(ease=820, slips=9, lost=5, price=(1.0, 3.0)),
}
"""The made-up LLMs, from cheap to dear."""

_MARK = "# A synthetic recording made by `feval demo`"
_README = f"""{_MARK}

{_NOTE}

- `recording/`: {QUESTIONS} questions, {COTS} CoTs each, by {len(LLMS)} made-up LLMs
- `prices.json`: their made-up prices
- `curve.csv`, `curve.png`: self-consistency on all of them
"""


@dataclass(frozen=True, slots=True)
class Demo:
    """What the demo made.

    Attributes:
        folder: everything lies in it.
        recording: the recording's folder.
        recording_hash: the same on every machine.
        prices: the price list's file.
        curves: the exact self-consistency curve of each LLM.
        files: the reports.
    """

    folder: Path
    recording: Path
    recording_hash: str
    prices: Path
    curves: tuple[Curve, ...]
    files: tuple[Path, ...]


def run_demo(folder: Path, progress: Callable[[int, int], None] | None = None) -> Demo:
    """Make the synthetic recording, verify it, compute every LLM's curve, write the reports.

    A folder that an earlier run made is used again; its recording is verified, never trusted.

    Args:
        folder: where to; must be new, empty, or made by an earlier run.
        progress: called with (steps done, steps in all).

    Raises:
        StorageError: the folder holds something else, or cannot be written.
        DamagedRecordingError: an earlier run's recording is no longer sound.
    """
    from feval.curves import self_consistency_curve
    from feval.replay import load
    from feval.report.csv import curves_csv
    from feval.report.files import save_files
    from feval.report.picture import curves_png

    step = _steps(3 + len(LLMS), progress)
    prices = _claim(folder)
    recording = folder / "recording"
    if not recording.exists():
        write_recording(recording)
    step()
    recording_hash = _verified(recording)
    step()
    dataset, llms = load(DATASET, list(LLMS), recording, prices=prices)
    curves = []
    for llm in llms:
        curves.append(self_consistency_curve(dataset, llm, COUNTS))
        step()
    reports = {"curve.csv": curves_csv(curves).encode(), "curve.png": curves_png(curves)}
    files = save_files(folder, reports, replace=True)
    step()
    return Demo(folder, recording, recording_hash, prices, tuple(curves), tuple(files))


def _steps(total: int, progress: Callable[[int, int], None] | None) -> Callable[[], None]:
    done = iter(range(1, total + 1))
    return lambda: None if progress is None else progress(next(done), total)


def _claim(folder: Path) -> Path:
    """Make the folder ours, or refuse it; return the price list's path."""
    from feval.report.files import save_files

    readme = folder / "README.md"
    try:
        taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
        if taken and not (readme.is_file() and readme.read_text("utf-8", errors="replace").startswith(_MARK)):
            raise StorageError(
                f"{folder} is there already and was not made by `feval demo`; it was left as it is. "
                "Name another folder with --out."
            )
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be looked at: {error.strerror or error}. Name another with --out."
        ) from error
    prices = {
        "id": "synthetic",
        "date": "2025-01-01",
        "source": "made up for the demo",
        "prices": {name: list(llm.price) for name, llm in LLMS.items()},
    }
    files = {"README.md": _README.encode(), "prices.json": (json.dumps(prices, indent=2) + "\n").encode()}
    return save_files(folder, files, replace=True)[1]


def _verified(recording: Path) -> str:
    from feval.recording import verify_recording

    found = verify_recording(recording)
    if not found.ok:
        raise DamagedRecordingError(
            f"{recording} is no longer what the demo wrote ({found.problems[0]}) Delete the folder and run the demo again."
        )
    return found.recording_hash


# --- the recording ------------------------------------------------------------------------------------------------------


def write_recording(out: Path) -> None:
    """Write the synthetic recording.

    Raises:
        StorageError: `out` is there already, or cannot be written.
    """
    from feval.answers import extractor_version
    from feval.recording import DatasetInfo, LLMInfo, RecordingWriter

    sums = [_make_sum(row) for row in range(QUESTIONS)]
    info = DatasetInfo(DATASET, "Synthetic sums (made up)", _KIND, extractor_version(_KIND), licence="CC0-1.0")
    with RecordingWriter(
        out,
        operation={"name": "synthetic", "made_by": "feval demo"},
        prices="none",  # the made-up prices lie beside the recording; no list of real prices has these names
        notes=[_NOTE],
        licences={"questions": "CC0-1.0", "outputs": "CC0-1.0"},
    ) as writer:
        writer.add_dataset(info, [_question(each) for each in sums])
        for name, llm in LLMS.items():
            about = LLMInfo(name, max_tokens=MAX_TOKENS, decoding={"synthetic": True})
            writer.add_pools(DATASET, about, "words", _pools(sums, name, llm))


@dataclass(frozen=True, slots=True)
class _Sum:
    """A question: a start, and steps that each add, take away or multiply.

    Attributes:
        row: of the question.
        start: first number.
        steps: (operator, number) of each step.
        trap: the step that is easily misread.
    """

    row: int
    start: int
    steps: tuple[tuple[str, int], ...]
    trap: int

    @property
    def id(self) -> str:
        return f"sum-{self.row:03d}"

    @property
    def text(self) -> str:
        told = {"+": "add {}", "-": "take away {}", "*": "multiply by {}"}
        steps = ", then ".join(told[sign].format(number) for sign, number in self.steps)
        return f"Start with {self.start}, {steps}. What is the result?"


def _hash(*key: str | int) -> int:
    """A number between 0 and 2**64 - 1 that depends on the key alone: no generator whose stream may change."""
    digest = hashlib.blake2b("\x1f".join(map(str, key)).encode(), digest_size=8, person=b"feval-demo").digest()
    return int.from_bytes(digest, "little")


def _make_sum(row: int) -> _Sum:
    steps = tuple(_make_step(row, place) for place in range(2 + _hash("length", row) % 6))
    return _Sum(row, 10 + _hash("start", row) % 90, steps, _hash("trap", row) % len(steps))


def _make_step(row: int, place: int) -> tuple[str, int]:
    sign = "+-+-*"[_hash("sign", row, place) % 5]
    number = _hash("number", row, place)
    return sign, 2 + number % 8 if sign == "*" else 3 + number % 95


def _question(each: _Sum) -> Question:
    from feval.answers import canonical_gold
    from feval.recording import Question

    gold = str(_worked(each, {})[1])
    return Question(each.id, each.text, gold, canonical_gold(_KIND, gold))


def _worked(each: _Sum, slips: Mapping[int, int]) -> tuple[list[str], int]:
    """Work the sum out step by step; return the lines, and the result.

    Args:
        each: the question.
        slips: step -> by how much it goes wrong there. What follows goes on from the wrong number.
    """
    lines, value = [], each.start
    for place, (sign, number) in enumerate(each.steps):
        right = {"+": value + number, "-": value - number, "*": value * number}[sign]
        found = right + slips.get(place, 0)
        lines.append(f"{value} {sign} {number} = {found}.")
        value = found
    return lines, value


def _pools(sums: list[_Sum], name: str, llm: _Synthetic) -> Iterator[PoolRows]:
    from feval.answers import canonical, extract
    from feval.recording import PoolRows
    from feval.tokens import count_words

    for each in sums:
        texts = [_cot(each, name, llm, sample) for sample in range(COTS)]
        raw = [extract(_KIND, text) for text in texts]
        yield PoolRows(
            each.id,
            texts,
            raw,
            [canonical(_KIND, answer) for answer in raw],
            [count_words(text) for text in texts],
            ["stop"] * COTS,
            prompt=json.dumps([{"role": "user", "content": each.text}]),
            prompt_tokens=count_words(each.text),
        )


def _cot(each: _Sum, name: str, llm: _Synthetic, sample: int) -> str:
    """Write one CoT."""
    key = (name, each.row, sample)
    opening = ("Let us go step by step.", "Step by step:", "I will work it out.")[_hash("opening", *key) % 3]
    if _hash("lost", *key) % 1000 < llm.lost:
        return f"{opening} I have lost track of the steps and cannot give a result."
    lines, value = _worked(each, _slips(each, name, llm, sample))
    return " ".join([opening, *lines, f"The answer is {value}."])


def _slips(each: _Sum, name: str, llm: _Synthetic, sample: int) -> dict[int, int]:
    """Return where a CoT goes wrong, and by how much.

    A trap is the same mistake each time (a sign misread), so that a majority can be confidently wrong; an accident is small
    and different each time, so that voting mends it.
    """
    key = (name, each.row, sample)
    slips = {}
    for place in range(len(each.steps)):
        if _hash("slip", *key, place) % 1000 < llm.slips:
            slips[place] = (-10, -2, -1, 1, 1, 2, 10)[_hash("by", *key, place) % 7]
    if _hash("trapped", *key) % 1000 < _trap_rate(each, name, llm):
        sign, number = each.steps[each.trap]
        slips[each.trap] = {"+": -2 * number, "-": 2 * number, "*": number}[sign]
    return slips


def _trap_rate(each: _Sum, name: str, llm: _Synthetic) -> int:
    """How often the trap of a question catches an LLM, per mille: hardly ever on easy questions, nearly always on the hardest.

    What is hard for one is mostly hard for the others.
    """
    hardness = (4 * (_hash("hard", each.row) % 1000) + _hash("hard", name, each.row) % 1000) // 5
    return min(10 + max(0, hardness - llm.ease) * 2000 // (1000 - llm.ease), 995)
