"""The README.md of a recording."""

from __future__ import annotations

import re

from feval.recording.layout.format import Record


def readme_text(manifest: Record) -> str:
    """Return a Markdown page made from the manifest: what was recorded, under which licences, how
    to check it.
    """
    datasets = {record["id"]: record for record in manifest["datasets"]}
    rows = []
    for pair in manifest["pairs"]:
        record, low, high = (datasets[pair["dataset"]], pair["smallest_pool"], pair["largest_pool"])
        size = low if low == high else f"{low} to {high}"
        share = f"{pair['no_answer'] / pair['cots']:.2%}" if pair["cots"] else "-"
        rows.append(
            f"| {plain(record['title'])} | {code(pair['llm'])} | {record['questions']} |"
            f" {pair['cots']} | {size} | {share} | {plain(pair['counter'])} |"
        )
    licences = manifest["licences"]
    lines = [
        "# Recorded chains of thought",
        "",
        (
            "A feval recording: every chain of thought (CoT) with its extracted answer, tokens and"
            " finish reason."
        ),
        "",
        *_table(
            "dataset | LLM | questions | CoTs | per question | without answer | tokens counted by",
            rows,
        ),
        *_scores(manifest),
        *_probes(manifest),
        "",
        f"- Recording hash: `{manifest['recording_hash']}`",
        f"- Price list: {code(manifest['prices'])}",
        f"- Created: {manifest['created']} by feval {manifest['feval_version']}",
        f"- Licence of the questions: {plain(licences['questions'] or 'not stated')}",
        f"- Licence of the outputs: {plain(licences['outputs'] or 'not stated')}",
        *[f"- Note: {plain(note)}" for note in manifest["notes"]],
        "",
        (
            "`feval info .` describes this folder, `feval verify .` checks every byte and every"
            " hash of it."
        ),
        "",
    ]
    return "\n".join(lines)


def _scores(manifest: Record) -> list[str]:
    kinds = {record["name"]: record["kind"] for record in manifest["scorers"]}
    rows = [
        f"| {plain(record['dataset'])} | {code(record['llm'])} | {code(record['scorer'])} |"
        f" {plain(kinds[record['scorer']])} | {record['cots']} | {record['with_score']} |"
        f" {record['with_steps']} |"
        for record in manifest["scores"]
    ]
    header = "dataset | LLM | scorer | kind | CoTs | with a score | with step scores"
    return ["", *_table(header, rows)] if rows else []


def _probes(manifest: Record) -> list[str]:
    rows = [
        f"| {plain(record['dataset'])} | {code(record['llm'])} | {record['traces']} |"
        f" {record['probes']} | {record['interval'] or 'irregular'} |"
        f" {code(record['cue']) if record['cue'] else 'not stated'} |"
        for record in manifest["probes"]
    ]
    header = "dataset | LLM | CoTs with probes | probes | tokens between them | cue"
    return ["", *_table(header, rows)] if rows else []


def _table(header: str, rows: list[str]) -> list[str]:
    return [f"| {header} |", f"|{' --- |' * len(header.split(' | '))}", *rows]


def code(text: str) -> str:
    """Return a name as a code span, fenced by one backtick more than the name has in a row: they
    cannot be escaped.
    """
    name = _visible(text).replace("|", r"\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", name)), default=0))
    blank = " " if len(fence) > 1 else ""
    return f"{fence}{blank}{name}{blank}{fence}"


def plain(text: str) -> str:
    """Return text from outside without markup, line breaks and table cells."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", _visible(text))


def _visible(text: str) -> str:
    """Return text on one line, with characters that could steer a terminal spelled out."""
    line = " ".join(text.split())
    return (
        line
        if line.isprintable()
        else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
    )
