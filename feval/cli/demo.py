"""`feval demo`: see it work on real samples, offline."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from feval.cli.output import Output, quiet_matplotlib
from feval.report.tables.results import curves_table, surface_table
from recorders.demo import Demo, only_at, run_demo

_DEMO_COUNTS = (1, 5, 10, 20, 40)


def demo(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder to make, or an earlier demo's to use again.")
    ] = Path("feval-demo"),
    *,
    show: Output,
) -> None:
    """See it work on real samples, offline, in seconds.

    Verifies the bundled recording of three small language models that come with feval, records some
    more of one of them live, votes, prices the votes and draws the curves; a surface shows votes
    over chains that are cut short.
    """
    quiet_matplotlib()
    result = run_demo(out)
    live = result.live
    summary = {
        "recording": str(result.recording),
        "recording_hash": result.recording_hash,
        "live": {
            "recording": str(live.recording),
            "llm": live.llm,
            "cots": live.cots,
            "seconds": live.seconds,
        },
        "files": [str(path) for path in result.files],
        "depth": {
            "recording": str(result.depth),
            "frontier": [dict(point) for point in result.surface.frontier],
        },
        "curves": {curve.llm: curve.to_dict() for curve in result.curves},
    }
    took = "before" if live.seconds is None else f"just now, in {live.seconds:.1f} s"
    show.result(
        summary,
        "Three small language models that come with feval, asked 200 word problems 40 times each."
        " They are real; their prices are made up.",
        f"{result.recording} is sound, hash {result.recording_hash}",
        f"{live.recording} holds {live.cots} more CoTs of {live.llm}, recorded {took}",
        "",
        curves_table([only_at(curve, _DEMO_COUNTS) for curve in result.curves]),
        "",
        surface_table(result.surface),
        "",
        *(f"wrote {path}" for path in result.files),
        "",
        "Try next:",
        *(f"  {command}" for command in _next_commands(result)),
    )


def _next_commands(result: Demo) -> list[str]:
    recording = shlex.quote(str(result.recording))
    curve = f"feval curve self-consistency --recording {recording} --llm feval/tiny-42k"
    return [
        f"feval info {recording}",
        f"feval show {recording} --html recording.html",
        f"{curve} --n 1..40 --out my-curve",
        f"feval surface --recording {shlex.quote(str(result.depth))} --out my-surface",
        f"{curve} --n 1,5,20 --order seeded --seed 1 --json",
        (
            "feval record --dataset tiny_sums --llm feval/tiny-30k --first 10 --samples 5 --out"
            " my-recording"
        ),
        f"feval select {recording} --llm feval/tiny-160k --samples 10 --out smaller",
        "feval import --help",
    ]
