"""Results as pages: `report.html` of a comparison, with the files beside it, and `surface.html`."""

from __future__ import annotations

import shlex
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, cast
from warnings import warn

from feval import __version__
from feval.cards.billing import billing_rule
from feval.comparison import MethodCurve
from feval.comparison.comparison import Comparison, Traces, load_compared, traces
from feval.errors import FevalWarning
from feval.evaluation import TIME_LIMIT, Evaluation, Surface
from feval.evaluation.measures import COSTS
from feval.evaluation.surfaces import coarse_surface
from feval.receipts.document import comparison_receipt
from feval.replay import LLM, Dataset
from feval.replay.draws import SCHEME
from feval.report import pictures, tables
from feval.report.files import Content, check_folder, encoded, save_files, save_sealed
from feval.report.page.document import UNVERIFIED, html_page, table_data, verification
from feval.report.page.questions import REPORT, Caps, question_book
from feval.report.palette import ceiling_looks, curve_looks, page_dashes, page_shapes
from feval.report.tables.comparisons import (
    comparison_tables,
    cost_text,
    named_point,
    questions_text,
    results_csv,
)
from feval.report.tables.tables import (
    cost_mark,
    cost_unit,
    cost_words,
    surface_notes,
    surface_table,
)
from feval.report.text import counted, percent
from feval.values import Record

IN_MEMORY = 1 << 26
"""Bytes of `questions.parquet`; a larger one waits in the temporary folder."""

_KINDS = {
    "exact": "expectation over all draws",
    "recorded": "recorded order",
    "seeded": "mean over {:,} seeded draws",
}
_SURFACE = (
    "{}: accuracy of votes over n traces that are each cut after so many tokens; feval surface"
    " --out has all points."
)
_ON_DARK = b"""
@media (prefers-color-scheme: dark) {
  svg { fill: #e7eaee }
  [id^=patch] > [style*="fill: #ffffff"] { fill: none !important }
  [style*="fill: #444444"] { fill: #a3acb8 !important }
  [style*="stroke: #444444"] { stroke: #697482 !important }
}
"""
"""Matplotlib writes no colour for black."""
_BILLINGS = {
    "once": "once per LLM and question",
    "per_round": "with each request",
    "per_sample": "with each CoT",
}


def comparison_page(
    comparison: Comparison,
    dataset: Dataset,
    llms: Sequence[LLM],
    *,
    traces: Traces | None = None,
    surfaces: Sequence[Surface] = (),
    caps: Caps = REPORT,
    verify: Sequence[str] = (),
) -> str:
    """Return a comparison as an HTML page, to be written as UTF-8.

    The dataset and all LLMs that it names are from the same `load`. Without `traces`, the questions
    are left out. Sentences in `verify` say how to check the receipt; one that begins with "$ " is
    shown as a command.
    """
    data = _data(comparison)
    data["facts"] = _facts(comparison, llms)
    data["verify"] = list(verify) or UNVERIFIED
    data["pictures"] = [
        _surface_picture(surface) | {"note": _SURFACE.format(surface.llm)} for surface in surfaces
    ]
    if (vary := comparison.plan.vary) is not None:
        drawn = pictures.price_map(comparison, pictures.PlotOptions(title=False))
        words = f"The most accurate method within a budget as {vary} varies."
        data["pictures"].append(_held(drawn, words) | {"note": words})
    if traces is not None:
        data["explorer"] = question_book(dataset, llms, traces, comparison.plan.seed, caps)
    title = f"Methods compared on {comparison.plan.dataset}"
    return html_page(title, _lede(comparison), data, result=_result(comparison))


def _evaluations(comparison: Comparison) -> list[Evaluation]:
    return [each.evaluation for each in comparison.points if each.role != "ceiling"]


def _result(comparison: Comparison) -> list[str]:
    """The result in two sentences, methods in every second piece: the best at three budgets, and
    whether methods differ.
    """
    pieces, before = ["Most accurate "], None
    for best in comparison.best:
        most = cost_text(comparison, best.budget)
        # the unit is said once
        pieces[-1] += f"; within {most.partition(' ')[0]}: " if before else f"within {most}: "
        if best.chosen is None:
            pieces[-1] += "none"
        elif before and best.chosen == before.chosen:
            pieces[-1] += "the same"
        else:
            label = named_point(comparison, best.chosen)[1]
            right = f"{percent(best.accuracy or 0.0)}\N{NO-BREAK SPACE}% right"
            pieces += [best.chosen[0], f"{label and ', '}{label}, {right}"]
        before = best
        if others := max(best.settings - 1, 0):
            close = f"{len(best.close) or 'none'} of {counted(others, 'other setting')}"
            pieces[-1] += f" ({close} within noise of it)"
        elif best.chosen:
            pieces[-1] += " (the only setting)"
    pieces[-1] += "."
    if comparison.tests:
        level = 1 - comparison.plan.confidence
        clear = len(comparison.significant(comparison.differences))
        pieces[-1] += (
            f" {clear or 'None'} of {counted(comparison.tests, 'difference')} at equal cost"
            f" {'is' if clear < 2 else 'are'} significant (p (Holm) up to {level:.2g})."
        )
    return pieces


def _lede(comparison: Comparison) -> list[str]:
    evaluations = _evaluations(comparison)
    names = dict.fromkeys(name for one in evaluations for name in one.llms)
    kinds = dict.fromkeys(map(_kind, evaluations))
    whose = ", ".join(names) if len(names) < 5 else f"{len(names)} LLMs"
    about = (
        f"{counted(len(comparison.curves), 'method')} on {questions_text(comparison)}, with the"
        f" same recorded CoTs of {whose}. Numbers: {'; '.join(kinds)}."
    )
    return [about, *comparison.on_fewer]


def _kind(evaluation: Evaluation) -> str:
    return _KINDS[evaluation.kind].format(evaluation.replicates)


def _facts(comparison: Comparison, llms: Sequence[LLM]) -> list[tuple[str, str]]:
    """Name and value of everything the numbers rest on."""
    plan = comparison.plan
    prices = llms[0].prices if llms else None
    unpriced = (
        ""
        if any(llm.price is not None or llm.states_usd for llm in llms)
        else "; it has no price of these LLMs"
    )
    kinds = " and ".join(_KINDS[kind].format(plan.replicates) for kind in comparison.kinds)
    facts = [
        ("dataset", plan.dataset),
        ("questions", questions_text(comparison)),
        ("recordings", ", ".join(comparison.widest.recording_hashes)),
        ("LLMs", ", ".join(llm.name for llm in llms)),
        ("price list", f"{prices.id}, digest {prices.digest}{unpriced}" if prices else "none"),
        (
            "billing",
            f"prompts are charged {_BILLINGS[billing_rule(plan.billing).prompts]} ({plan.billing})",
        ),
        ("token counter", ", ".join(dict.fromkeys(llm.counter for llm in llms))),
        ("draws", f"{SCHEME}, seed {plan.seed}; {kinds}"),
        (
            "intervals",
            (
                f"{100 * plan.confidence:g} % over questions; for costs, ratios and areas from"
                f" {plan.resamples:,} resamples"
            ),
        ),
        ("feval", __version__),
    ]
    if comparison.timing is not None:
        facts.insert(-1, ("seconds", str(comparison.timing)))
    if (split := plan.split_text()) is not None:
        facts.insert(2, ("learnt from", split))
    return facts


def _data(comparison: Comparison) -> Record:
    evaluations = _evaluations(comparison)
    looks = curve_looks(comparison.curves, comparison.curves)
    known = [name for name in COSTS if any(one.mean_cost(name) for one in evaluations)]
    return {
        "axes": [_axis(comparison, name) for name in known],
        "axis": comparison.plan.cost,
        "band": f"{100 * comparison.plan.confidence:g} % interval",
        "curves": [
            {
                "label": curve.label,
                "llms": curve.entry.llms,
                "points": _points(curve),
                "look": own.look,
            }
            for curve, own in zip(comparison.curves, looks, strict=True)
        ],
        "shapes": page_shapes(),
        "baselines": [
            {**_point(one, ""), "label": ", ".join(one.llms)} for one in comparison.baselines
        ],
        "ceilings": [
            {"label": curve.label, "points": _points(curve), "look": (colour, page_dashes(dashes))}
            for curve, (colour, dashes) in zip(
                comparison.ceilings, ceiling_looks(comparison.ceilings, looks), strict=True
            )
        ],
        "frontier": {name: comparison.frontier_of(comparison.curves, name) for name in known},
        "tables": [table_data(each) for each in comparison_tables(comparison, page=True)],
    }


def _axis(comparison: Comparison, name: str) -> Record:
    label, short = cost_words(name, comparison.timing)
    mark = cost_mark(short, comparison.counters)
    return {
        "key": name,
        "label": label + mark,
        "short": short + mark,
        "unit": cost_unit(name, comparison.timing) + mark,
        "scale": 1000 if name == "usd" else 1,  # USD per 1,000 questions
    }


def _points(curve: MethodCurve) -> list[Record]:
    return [_point(one, curve.budget_text(i)) for i, one in enumerate(curve.points)]


def _point(evaluation: Evaluation, budget: str) -> Record:
    return {
        "b": budget,
        "x": {name: evaluation.mean_cost(name) for name in COSTS},
        "y": evaluation.accuracy,
        "low": evaluation.accuracy_low,
        "high": evaluation.accuracy_high,
        "kind": _kind(evaluation),
    }


def surface_page(surface: Surface, verify: Sequence[str] = ()) -> str:
    """Return a surface with its picture as an HTML page, to be written as UTF-8; `verify` says how
    to check its receipt.
    """
    lede = (
        f"Accuracy of votes of {surface.llm} over n traces that are each cut after so many tokens,"
        " for all n and tokens. It is exact: an expectation over all draws."
    )
    kind, grid = surface_notes(surface)
    data: Record = {name: [] for name in ("axes", "curves", "baselines", "ceilings")} | {
        "frontier": {},
        "pictures": [_surface_picture(surface)],
        "tables": [table_data(surface_table(surface, page=True))],
        "facts": [
            ("dataset", surface.dataset),
            ("LLM", surface.llm),
            ("recordings", ", ".join(surface.recording_hashes)),
            ("numbers", kind),
            ("points", grid),
            ("feval", __version__),
        ],
        "verify": list(verify) or UNVERIFIED,
    }
    return html_page(f"Width and depth on {surface.dataset}", [lede], data)


def _surface_picture(surface: Surface) -> dict[str, str]:
    words = (
        f"Accuracy of votes of {surface.llm} on {surface.dataset} over traces per question and"
        " tokens of each"
    )
    return _held(pictures.surface(surface, pictures.PlotOptions(title=False)), words)


def _held(drawn: pictures.Picture, words: str) -> dict[str, str]:
    """A picture as an address that holds all of it, and what it shows in words."""
    # narrow, so that its letters can be read on a phone
    svg = replace(drawn, size=(5.0, 4.0)).svg()
    svg = svg.replace(b"</style>", _ON_DARK + b"</style>", 1)
    return {"src": f"data:image/svg+xml;base64,{b64encode(svg).decode()}", "alt": words}


def save_comparison(comparison: Comparison, folder: Path, *, overwrite: bool = False) -> list[Path]:
    """Write what `feval compare --out` writes; a function that stands in no file leaves the receipt
    out, with a warning.
    """
    check_folder(folder, "another folder")
    unnamed = [name.partition(":")[2] for name in comparison.methods if name.startswith("python:")]
    with SpooledTemporaryFile(IN_MEMORY) as questions:
        files = result_files(comparison, folder, cast("BinaryIO", questions), sealed=not unnamed)
        if not unnamed:
            return save_sealed(
                folder,
                files,
                comparison_receipt(comparison, comparison.base, folder),
                replace=overwrite,
            )
        warn(
            f"No receipt was written: {', '.join(unnamed)} stands in no file, so that nobody can"
            " run it again. Write it to a file and name it FILE.py:FUNCTION.",
            FevalWarning,
            stacklevel=3,
        )
        return save_files(folder, files, replace=overwrite)


def result_files(
    comparison: Comparison,
    out: Path,
    questions: BinaryIO,
    *,
    time_limit: float | None = TIME_LIMIT,
    sealed: bool = True,
) -> dict[str, Content]:
    """Return all files of a comparison for the folder `out`, by name, but for the receipt beside
    them where it is `sealed`.

    `questions` is an open file that `questions.parquet` is written to.
    """
    receipt = "receipt.json" if sealed else None
    tables.questions_parquet(comparison, questions)
    return {
        "comparison.json": encoded(comparison.to_dict()),
        "comparison.toml": comparison.plan.moved(comparison.base, out).to_toml().encode(),
        "results.csv": results_csv(comparison).encode(),
        "results.parquet": tables.records_parquet(comparison.records()),
        "questions.parquet": questions,
        **comparison_files(
            comparison, base=comparison.base, receipt=receipt, time_limit=time_limit
        ),
    }


def comparison_files(
    comparison: Comparison,
    *,
    base: Path = Path(),
    receipt: str | None = None,
    time_limit: float | None = TIME_LIMIT,
    caps: Caps = REPORT,
) -> dict[str, bytes]:
    """Return `comparison.png`, `comparison.svg` and `report.html` by name.

    The plan's paths are relative to `base`; `receipt` is the file name of the receipt beside the
    page; a user's method may take `time_limit` seconds on a question while it is traced for the
    page.
    """
    dataset, llms = load_compared(comparison, base)
    followed = traces(
        comparison,
        dataset,
        llms,
        questions=caps.questions,
        closely=caps.deep,
        time_limit=time_limit,
    )
    named = (curve.entry.method for curve in comparison.curves if ":" in curve.entry.method)
    users = "".join(f" --method {shlex.quote(method)}" for method in dict.fromkeys(named))
    page = comparison_page(
        comparison,
        dataset,
        llms,
        traces=followed,
        surfaces=[surface for llm in llms if (surface := coarse_surface(dataset, llm)) is not None],
        caps=caps,
        verify=() if receipt is None else verification(receipt, users),
    )
    drawn = {"comparison": pictures.comparison(comparison)}
    if comparison.plan.vary is not None:
        drawn["price-map"] = pictures.price_map(comparison)
    made = {f"{name}.png": each.png() for name, each in drawn.items()}
    made |= {f"{name}.svg": each.svg() for name, each in drawn.items()}
    return made | {"report.html": page.encode()}
