"""feval's extraction against the answers that upstreams recorded beside their texts: agreement may
only rise.
"""

from collections import Counter

import pytest
from upstream_answers import reason, reasons, sources

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.name)
def test_a_files_answers_agree_with_upstreams_as_the_ledger_says(source, shared):
    texts, differences = source.differences(shared / "real")
    assert (texts, texts - len(differences)) == (source.texts, source.agreement)
    assert Counter(reason(source, difference) for difference in differences) == Counter(
        source.reasons
    )
    assert source.agreement >= source.before


def test_every_difference_has_a_reason_in_words():
    assert {name for source in sources() for name in source.reasons} == set(reasons())
    assert all(
        sum(source.reasons.values()) == source.texts - source.agreement for source in sources()
    )
