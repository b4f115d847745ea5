"""`feval figure`: pictures of what recorded answers say about voting."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from feval.cli.options import DatasetName, OnlyLLMs, RecordingFolders, Unlabelled, only_name, recording_folders
from feval.cli.output import Output, quiet_matplotlib
from feval.errors import UnknownNameError
from feval.forecast.figures import FIGURES, Figure, FigureOptions, make_figure
from feval.hub.places import open_place
from feval.replay import load
from feval.report import pictures
from feval.report.files import encoded, save_files
from feval.report.tables.forecasts import figure_csv, figure_tables
from feval.report.tables.tables import Table, columns


def figure(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Leave it out to list the figures.", show_default=False)
    ] = None,
    recordings: RecordingFolders = None,
    dataset: DatasetName = None,
    llms: OnlyLLMs = None,
    calls: Annotated[int, typer.Option(metavar="G", help="Calls that approximation-error estimates from.", min=1)] = 5,
    votes: Annotated[
        int | None, typer.Option(metavar="M", help="Most votes, an odd number. Default: the figure's own.")
    ] = None,
    confidence: Annotated[float, typer.Option(metavar="SHARE", help="Of intervals and certificates.")] = 0.95,
    unlabelled: Unlabelled = "refuse",
    short_pools: Annotated[
        str, typer.Option(metavar="refuse|drop", help="Questions with too few CoTs of an LLM.")
    ] = "refuse",
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write NAME.csv, .json, .png and .svg there.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files in --out.")] = False,
    *,
    show: Output,
) -> None:
    """Draw what recorded answers say about voting.

    Without a name it lists the figures. Prints the numbers; --out writes the picture with every drawn point beside it.

    Example: feval figure two-call-plane --recording my-recording --out figures
    """
    if name is None:
        rows = tuple((each, kind.about) for each, kind in FIGURES.items())
        show.result({each: kind.about for each, kind in FIGURES.items()}, Table("", columns("figure", "shows"), rows))
        return
    if name not in FIGURES:
        raise UnknownNameError.of("figure", name, FIGURES)
    options = FigureOptions(calls, votes, confidence, unlabelled, short_pools)
    opened = [open_place(folder) for folder in recording_folders(recordings)]
    dataset = only_name("dataset", dataset, (each for recording in opened for each in recording.dataset_ids()))
    questions, replayed = load(dataset, llms, opened, prices="none")
    result = make_figure(name, questions, replayed, options)
    written = [] if out is None else save_files(out, _files(result), replace=force)
    show.result(result.to_dict(), *figure_tables(result), *result.lines, *(f"wrote {path}" for path in written))


def _files(result: Figure) -> dict[str, bytes]:
    quiet_matplotlib()
    return {
        f"{result.name}.csv": figure_csv(result).encode(),
        f"{result.name}.json": encoded(result.to_dict()),
        f"{result.name}.png": pictures.figure_png(result),
        f"{result.name}.svg": pictures.figure_svg(result),
    }
