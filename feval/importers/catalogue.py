"""All importers by name."""

from __future__ import annotations

from collections.abc import Mapping

from feval.importers import jsonl
from feval.importers.harnesses import inspect_ai, lighteval, lm_eval
from feval.importers.papers import (
    coupled_mmlu,
    esc,
    feval_ttc,
    game24,
    linc,
    modelswitch,
    mot_cascade,
    probed_traces,
)
from feval.importers.source import Importer
from feval.importers.tables import reading as tables
from feval.importers.tables.exported import facts_of
from feval.importers.tables.files import table_files

IMPORTERS: Mapping[str, Importer] = {
    importer.name: importer
    for importer in (
        Importer("feval-ttc", "the zip archive of the FEval-TTC reference package", feval_ttc.read),
        Importer("mot-cascade", "LLM Cascades with Mixture of Thoughts, JSON", mot_cascade.read),
        Importer(
            "esc", "Early-Stopping Self-Consistency, JSON Lines", esc.read, esc.upstream_answer
        ),
        Importer(
            "coupled-mmlu",
            "Coupled Token Generation on MMLU, CSV",
            coupled_mmlu.read,
            coupled_mmlu.upstream_answer,
        ),
        Importer("modelswitch", "ModelSwitch, JSON", modelswitch.read),
        Importer(
            "linc",
            "LINC, labels with references and texts beside them, JSON",
            linc.read,
            beside=linc.beside,
        ),
        Importer("game24", "Tree of Thoughts' naive samples on the Game of 24, JSON", game24.read),
        Importer(
            "probed-traces",
            "AutoTTS and Parallel-Probe, traces with probes, JSON",
            probed_traces.read,
        ),
        Importer(
            "lm-eval",
            "lm-evaluation-harness, samples_*.jsonl with results_*.json beside it",
            lm_eval.read,
            beside=lm_eval.beside,
        ),
        Importer("inspect-ai", "inspect-ai logs, .eval or .json; epochs are CoTs", inspect_ai.read),
        Importer(
            "lighteval",
            "lighteval details, Parquet with results_*.json beside it",
            lighteval.read,
            beside=lighteval.beside,
        ),
        Importer("jsonl", "feval's generic JSON Lines, described in docs/importing.md", jsonl.read),
        Importer(
            "table",
            "a table with a row for each CoT: CSV, Parquet, Arrow, JSON",
            tables.read,
            files=table_files,
            facts=facts_of,
        ),
    )
}
"""The formats `feval import` reads, by name."""
