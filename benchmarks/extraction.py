"""How often feval's extraction agrees with the answers that upstreams recorded beside their texts, and how fast it is."""

from __future__ import annotations

from itertools import islice

from benchmarks.measure import ROOT, Goal, Workspace, cpu_ms

REAL = ROOT.parent / "shared" / "real"
TEXTS = 2_000  # per kind, for the speed


def goals(workspace: Workspace) -> list[Goal]:  # noqa: ARG001  every benchmark is called alike
    """One line per file of `../shared/real`: the agreement that the ledger states is the least; then texts per CPU second."""
    from upstream_answers import sources

    if not REAL.is_dir():
        raise FileNotFoundError(f"The extraction benchmark reads recorded answers from {REAL}, which is not there.")
    goals = []
    for source in sources():
        texts, differences = source.differences(REAL)
        note = ", ".join(f"{count} {reason}" for reason, count in source.reasons.items())
        goals.append(
            Goal(
                source.name[-58:],
                texts - len(differences),
                source.agreement,
                "texts",
                at_least=True,
                note=f"of {texts}; {note}",
            )
        )
    return goals + _speed()


def _speed() -> list[Goal]:
    """Texts whose key is read per CPU second, by answer kind."""
    from upstream_answers import Source, sources

    from feval.answers import canonical, extract

    def read(source: Source, texts: list[str]) -> None:
        for text in texts:
            canonical(source.kind, extract(source.kind, text, source.choices), source.choices)

    by_kind = {source.kind: source for source in sources()}
    texts = {kind: [pair.text for pair in islice(source.pairs(REAL), TEXTS)] for kind, source in by_kind.items()}
    ms = cpu_ms({kind: lambda kind=kind: read(by_kind[kind], texts[kind]) for kind in by_kind}, pick=min)  # type: ignore[misc]
    return [
        Goal(
            f"extraction: {kind}",
            1e3 * len(texts[kind]) / ms[kind],
            None,
            "texts/s",
            note=f"{_mean(texts[kind])} characters",
        )
        for kind in by_kind
    ]


def _mean(texts: list[str]) -> int:
    return sum(map(len, texts)) // len(texts)
