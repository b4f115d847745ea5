"""feval's extraction against the answers that upstreams recorded beside their texts: agreement may
only rise.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from places import ROOT
from upstream_answers import Source, reason, reasons, sources

pytestmark = pytest.mark.slow

DOCS = ROOT / "docs" / "answers.md"


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.name)
def test_a_files_answers_agree_with_upstreams_as_the_ledger_says(
    source: Source, shared: Path
) -> None:
    texts, differences = source.differences(shared / "real")
    assert (texts, texts - len(differences)) == (source.texts, source.agreement)
    assert Counter(reason(source, difference) for difference in differences) == Counter(
        source.reasons
    )
    assert source.agreement >= source.before


def test_every_difference_has_a_reason_in_words() -> None:
    assert {name for source in sources() for name in source.reasons} == set(reasons())
    assert all(
        sum(source.reasons.values()) == source.texts - source.agreement for source in sources()
    )


def test_the_documented_table_is_the_ledger() -> None:
    page = DOCS.read_text("utf-8")
    for source in sources():
        row = (
            f"| `{source.name}` | {source.kind} | {source.texts:,} | {source.before:,} |"
            f" {source.agreement:,} |"
        )
        assert row in page, row
        assert all(f"{count:,} {name}" in page for name, count in source.reasons.items())
    assert all(f"| {name} | {sentence} |" in page for name, sentence in reasons().items())
