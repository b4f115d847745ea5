"""A first comparison file for what a recording holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from feval.comparison.plan import Plan
from feval.methods import METHODS

_BUDGETS = (1, 2, 3, 5, 10, 15, 20, 30, 40, 60, 80, 100)


def suggested_plan(dataset: str, recordings: Sequence[str], most: Mapping[str, int], *, axis: str = "usd") -> Plan:
    """A comparison to start from: the methods that every recording supports, over budgets that the pools can serve.

    Args:
        dataset: id.
        recordings: folders, relative to the comparison file.
        most: LLM -> CoTs of its smallest pool, in the order cascades are to ask them: the cheap ones first.
        axis: what a budget is counted in; one that every LLM has.
    """
    entries = [entry for llm, pool in most.items() for entry in _of_one(llm, pool)]
    if len(most) > 1:
        entries.extend(_of_several(tuple(most), min(most.values())))
    known = [entry for entry in entries if entry["name"] in METHODS]
    for entry in known:
        if len(most) > 1 and len(entry["llms"]) == 1:
            entry["label"] = f"{entry['name']} ({entry['llms'][0]})"
    plan = {"dataset": dataset, "recordings": list(recordings), "axis": axis, "method": known}
    return Plan.from_dict(plan)


def _of_one(llm: str, pool: int) -> list[dict[str, Any]]:
    counts = [n for n in _BUDGETS if n <= pool]
    tables: list[dict[str, Any]] = [{"name": "self-consistency", "llms": [llm], "budgets": {"n": counts}}]
    most = min(40, pool)
    # The window's answer, as in ESC's own code: its expectation over all draws takes milliseconds, the other answer's seconds.
    if windows := [n for n in (3, 4, 5, 8, 10) if 2 * n <= most]:
        fields = {"budget": most, "answer": "window"}
        tables.append({"name": "early-stopping", "llms": [llm], "fields": fields, "budgets": {"window": windows}})
    if most >= 5:
        fields, shares = {"budget": most}, ["0.6", "0.7", "0.8", "0.9", "0.95", "0.99"]
        tables.append(
            {"name": "adaptive-consistency", "llms": [llm], "fields": fields, "budgets": {"threshold": shares}}
        )
    return tables


def _of_several(llms: tuple[str, ...], pool: int) -> list[dict[str, Any]]:
    counts = [n for n in _BUDGETS if n <= pool]
    thresholds = ["0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1"]
    return [
        {"name": "model-switch", "llms": list(llms), "budgets": {"samples": counts}},
        {
            "name": "mixture-of-thoughts",
            "llms": list(llms[:1] + llms[-1:]),
            "fields": {"samples": min(20, pool), "strong_samples": min(3, pool)},
            "budgets": {"threshold": thresholds},
        },
    ]
