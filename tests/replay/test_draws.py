"""Draws are a pure function of (seed, dataset, question, LLM, replicate), nested, uniform, and
written down.
"""

import hashlib
import itertools
import json
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from places import ROOT
from scipy.stats import chisquare

from feval.errors import OutOfRangeError
from feval.recording.layout.format import name_key
from feval.replay.draws import ABSENT_SAMPLE, orders, pool_key

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def first_eight(text):
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def order_by_the_book(seed, dataset, llm, question, replicate, size):
    """`docs/numbers.md`, in plain integers."""
    key = first_eight(f"feval/draws-v1\n{seed}\n{dataset}\n{llm}")
    stream = mix(
        (
            mix(key ^ first_eight(f"feval/question\n{dataset}\n{question}"))
            + (replicate + 1) * GOLDEN
        )
        & MASK
    )
    keys = [mix((stream + (i + 1) * GOLDEN) & MASK) for i in range(size)]
    return sorted(range(size), key=lambda i: (keys[i] >> 16, i))


def order(seed, dataset, llm, question, replicate, size):
    keys = np.array([name_key("feval/question", dataset, question)], np.uint64)
    return orders(pool_key(seed, dataset, llm), keys, np.array([size]), [replicate], size)[
        0, 0
    ].tolist()


@given(
    st.tuples(
        st.integers(-(2**70), 2**70),
        st.sampled_from(["gsm8k", "ünïcode"]),
        st.sampled_from(["a/b@t=0.8", "x"]),
        st.text("abc/0123", min_size=1, max_size=8),
        st.integers(0, 10**9),
        st.integers(1, 60),
    )
)
def test_orders_are_those_of_the_written_scheme(names):
    assert order(*names) == order_by_the_book(*names)


def test_the_documented_vectors_hold():
    text = (ROOT / "docs" / "numbers.md").read_text()
    vectors = json.loads(re.search(r"```json\n(.*?)```", text, re.DOTALL)[1])
    assert len(vectors) >= 3
    for vector in vectors:
        names = [vector[k] for k in ("seed", "dataset", "llm", "question", "replicate")]
        names.append(len(vector["order"]))
        assert order(*names) == order_by_the_book(*names) == vector["order"]


def test_draws_nest_and_ragged_pools_end_with_absent_places():
    keys = np.arange(3, dtype=np.uint64)
    whole = orders(1, keys, np.array([5, 2, 0]), [0, 1], 5)
    assert np.array_equal(orders(1, keys, np.array([5, 2, 0]), [0, 1], 3), whole[..., :3])
    assert sorted(whole[0, 0].tolist()) == [0, 1, 2, 3, 4]
    assert sorted(whole[1, 1, :2].tolist()) == [0, 1]
    assert whole[1, 1, 2:].tolist() == [ABSENT_SAMPLE] * 3
    assert set(whole[:, 2].ravel().tolist()) == {ABSENT_SAMPLE}


def test_all_orders_are_equally_likely():
    keys = np.array([name_key("feval/question", "d", str(i)) for i in range(120)], np.uint64)
    drawn = orders(pool_key(7, "d", "m"), keys, np.full(120, 4), range(200), 4).reshape(-1, 4)
    counts = Counter(map(tuple, drawn.tolist()))
    assert set(counts) == set(itertools.permutations(range(4)))
    assert chisquare(list(counts.values())).pvalue > 1e-4


def test_seeds_llms_questions_and_replicates_draw_independently():
    names = [0, "d", "m", "q", 0]
    base = order(*names, 30)
    for place, value in enumerate((1, "e", "n", "r", 1)):
        other = order(*names[:place], value, *names[place + 1 :], 30)
        assert sum(a == b for a, b in zip(base, other, strict=True)) <= 6, value


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 9))
def test_blocks_change_nothing(questions, replicates):
    keys = np.arange(questions, dtype=np.uint64) * np.uint64(GOLDEN)
    whole = orders(5, keys, np.full(questions, 40), np.arange(replicates), 40)
    row = questions // 2
    assert np.array_equal(
        whole[:, row : row + 1],
        orders(5, keys[row : row + 1], np.array([40]), range(replicates), 40),
    )


@pytest.mark.parametrize(
    ("size", "replicate", "words"), [(3, -1, "numbered from 0"), (70_000, 0, "per question")]
)
def test_out_of_range_is_refused(size, replicate, words):
    with pytest.raises(OutOfRangeError, match=words):
        orders(1, np.zeros(1, np.uint64), np.array([size]), [replicate], 3)
