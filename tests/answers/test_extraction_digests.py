"""Answers do not change while `EXTRACTOR_VERSION` does not: digests of what an older commit read in
fuzzed texts.
"""

import json

import pytest
from extraction_texts import BLOCKS, DIGESTS, digest, fuzzed

from feval.answers import EXTRACTOR_VERSION

REFERENCE = json.loads(DIGESTS.read_text("utf-8"))


def test_the_digests_are_of_the_current_version():
    assert REFERENCE["version"] == EXTRACTOR_VERSION
    assert len(REFERENCE["fuzzed"]) == BLOCKS


@pytest.mark.slow
@pytest.mark.parametrize("block", range(0, BLOCKS, 16))
def test_fuzzed_texts_are_read_as_before(block):
    assert digest(fuzzed(block)) == REFERENCE["fuzzed"][block]
