"""The width x depth surface, against enumeration of all subsets, published stores, and the exact
curve of self-consistency.
"""

import csv
import gzip
import json
from collections import Counter
from fractions import Fraction
from itertools import combinations
from random import Random
from typing import Any

import pytest
from command_line import feval, told
from small import pool, question, write_rows

from feval import evaluate, load, self_consistency_curve
from feval.errors import NotRecordedError, OutOfRangeError, ShortPoolError
from feval.evaluation.surfaces import coarse_surface, surface
from feval.methods import METHODS
from feval.receipts.verifying import verify_receipt
from feval.recording import ProbeRows
from feval.recording.arrays import Probes

STORES = ("Qwen3-0.6B.aime24", "Qwen3-4B.aime24")


def traces(random, size):
    """Ragged traces of up to ten tokens with probes at some offsets, a few of them beyond the end,
    ties and no answers.
    """
    answers = ["a", "b", "c", None]
    offsets = [offset for offset in range(1, 12) if random.random() < 0.4]
    return [
        (
            random.randint(1, 10),
            random.choice(answers),
            {o: random.choice(answers) for o in offsets if random.random() < 0.9},
        )
        for _ in range(size)
    ]


def probe_rows(asked, own):
    probes = [
        (i, offset, given) for i, (_, _, at) in enumerate(own) for offset, given in at.items()
    ]
    if not probes:
        return None
    samples, offsets, answers = (list(column) for column in zip(*probes, strict=True))
    return ProbeRows(asked.id, samples, offsets, answers, answers, output_tokens=[3] * len(probes))


def recorded(out, questions):
    rows = (
        pool(number, [answer for _, answer, _ in own], tokens=[tokens for tokens, _, _ in own])
        for number, own in enumerate(questions)
    )
    probes = filter(None, (probe_rows(question(i, "a"), own) for i, own in enumerate(questions)))
    return write_rows(
        out, ["a"] * len(questions), ("gpt-4o-mini", rows), probes={"gpt-4o-mini": probes}
    )


def expected(own, n, limit):
    """Accuracy, output tokens and probe tokens, over all subsets of n traces; leaders that tie
    share the vote.
    """
    right = tokens = probing = Fraction(0)
    subsets = list(combinations(own, n))
    for subset in subsets:
        votes = []
        for length, final, probes in subset:
            passed = [offset for offset in probes if limit is not None and offset <= limit]
            cut = limit is not None and length > limit
            answer = (probes[max(passed)] if passed else None) if cut else final
            votes += [] if answer is None else [answer]
            tokens += min(length, length if limit is None else limit)
            probing += 3 * (cut and bool(passed))
        counts = Counter(votes)
        leaders = [answer for answer, count in counts.items() if count == max(counts.values())]
        right += Fraction("a" in leaders, max(len(leaders), 1))
    return right / len(subsets), tokens / len(subsets), probing / len(subsets)


@pytest.mark.parametrize("seed", range(4))
def test_the_surface_is_the_mean_over_all_subsets(seed, tmp_path):
    random = Random(seed)  # noqa: S311  no secrets
    questions = [traces(random, random.randint(4, 6)) for _ in range(6)]
    dataset, [llm] = load("toy", recording=recorded(tmp_path / "toy", questions))
    limits = [1, 2, 3, 5, 8, 10, 11, None]
    result = surface(dataset, llm, n=[1, 2, 3, 4], tokens=limits)
    assert result.widths == [1, 2, 3, 4]
    assert result.depths == limits
    for point in result.points:
        means = [expected(own, point.n, point.tokens) for own in questions]
        right, tokens, probing = (
            float(sum(column) / len(questions)) for column in zip(*means, strict=True)
        )
        assert (point.accuracy, point.output_tokens, point.probe_tokens) == pytest.approx(
            (right, tokens, probing), abs=1e-12
        )
        assert point.accuracy_low <= point.accuracy <= point.accuracy_high
        same = evaluate(METHODS["token-budget"](n=point.n, tokens=point.tokens or 99), dataset, llm)
        assert (same.accuracy, same.usd_per_question, same.tokens_per_question) == pytest.approx(
            (point.accuracy, point.usd_per_question, point.tokens_per_question)
        )


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    random = Random(7)  # noqa: S311  no secrets
    own = recorded(
        tmp_path_factory.mktemp("surface") / "toy", [traces(random, 5) for _ in range(5)]
    )
    dataset, [llm] = load("toy", recording=own)
    return dataset, llm


def test_without_a_limit_it_is_the_curve_of_self_consistency(toy):
    fields = (
        "n",
        "accuracy",
        "accuracy_low",
        "accuracy_high",
        "usd_per_question",
        "tokens_per_question",
    )
    for clusters in (None, {f"toy/{i}": str(i // 2) for i in range(5)}):
        curve = self_consistency_curve(*toy, range(1, 6), clusters=clusters)
        edge = surface(*toy, tokens=[None], clusters=clusters)
        assert (
            edge.warnings[: 1 + (clusters is not None)]
            == curve.warnings[: 1 + (clusters is not None)]
        )
        for point, other in zip(edge.points, curve.points, strict=True):
            assert [getattr(point, name) for name in fields] == pytest.approx(
                [getattr(other, name) for name in fields]
            )


def test_probes_of_unknown_length_are_warned_of_where_traces_are_cut(toy, monkeypatch):
    monkeypatch.setattr(Probes, "counted", False)
    assert "were not recorded" in " ".join(surface(*toy).cautions)
    assert not surface(*toy, tokens=[None]).cautions
    assert not surface(*toy, tokens=[1000, None]).cautions  # no trace is cut, none is probed


def test_by_default_it_has_every_width_and_every_probed_depth(toy):
    result = surface(*toy)
    offsets = sorted(set(toy[1].pool.probes().offsets.tolist()))
    assert result.widths == [1, 2, 3, 4, 5]
    assert result.depths == [*offsets, None]
    frontier = result.frontier
    assert frontier
    assert all(point.frontier for point in frontier)
    for point in result.points:  # brute force: somebody on the frontier is as cheap and as good
        assert any(
            best.usd_per_question <= point.usd_per_question + 1e-12
            and best.accuracy >= point.accuracy - 1e-9
            for best in frontier
            if best.usd_per_question is not None and point.usd_per_question is not None
        )


def test_a_coarse_surface_has_doublings_and_the_last_of_each(toy):
    whole, coarse = surface(*toy), coarse_surface(*toy)
    limits = whole.depths[:-1]
    assert coarse.widths == [1, 2, 4, 5]
    assert coarse.depths == [
        limit for i, limit in enumerate(limits, 1) if i in {1, 2, 4, 8, len(limits)}
    ] + [None]
    accuracy = {(point.n, point.tokens): point.accuracy for point in whole.points}
    own = {(point.n, point.tokens): point.accuracy for point in coarse.points}
    assert own == pytest.approx({place: accuracy[place] for place in own})


def test_what_cannot_be_asked_for_is_refused(toy, tmp_path):
    wrong: dict[str, Any]
    for wrong in (
        {"n": []},
        {"n": [0]},
        {"n": [2, 2]},
        {"tokens": []},
        {"tokens": [0]},
        {"tokens": [None, None]},
    ):
        with pytest.raises(OutOfRangeError, match="A surface needs distinct"):
            surface(*toy, **wrong)
    with pytest.raises(OutOfRangeError, match="600,000 points"):
        surface(*toy, n=range(1, 6), tokens=range(1, 120_001))
    with pytest.raises(ShortPoolError, match="6 were asked for"):
        surface(*toy, n=[6])
    with pytest.raises(OutOfRangeError, match="name the widths"):
        surface(*toy, short_pools="drop")
    dataset, [flat] = load(
        "toy", recording=write_rows(tmp_path / "flat", ["a"], ("gpt-4o-mini", [pool(0, ["a"])]))
    )
    with pytest.raises(NotRecordedError, match="probe"):
        surface(dataset, flat)


def test_the_command_writes_files_and_a_receipt_that_can_be_computed_again(tmp_path):
    random = Random(3)  # noqa: S311  no secrets
    own = recorded(tmp_path / "toy", [traces(random, 4) for _ in range(4)])
    out = tmp_path / "out"
    numbers = told("surface --n 1..3 --tokens 2,8,none --recording", own, "--out", out)
    assert [(point["n"], point["tokens"]) for point in numbers["points"]] == [
        (n, limit) for limit in (2, 8, None) for n in (1, 2, 3)
    ]
    assert {path.name for path in out.iterdir()} == {
        "receipt.json",
        *(f"surface.{kind}" for kind in ("csv", "parquet", "json", "png", "svg", "html")),
    }
    assert "feval verify receipt.json" in (out / "surface.html").read_text("utf-8")
    with (out / "surface.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["accuracy"]) for row in rows] == [
        point["accuracy"] for point in numbers["points"]
    ]
    assert [row["tokens"] for row in rows[-3:]] == ["", "", ""]
    check = verify_receipt(out / "receipt.json")
    assert check.equal
    assert check.kind == "surface"
    refused = feval("surface --tokens many --recording", own)
    assert refused.exit_code != 0
    assert "--tokens takes numbers of tokens such as 20, 1,5,10" in refused.stderr


@pytest.fixture(scope="module", params=STORES)
def store(request, shared, tmp_path_factory):
    path = shared / "real" / "probed" / f"{request.param}.json.gz"
    content = json.loads(gzip.decompress(path.read_bytes()))
    questions = [
        [
            (tokens, final, {500 * (j + 1): given for j, given in enumerate(probes)})
            for probes, tokens, final in own["each_branch"]
        ]
        for own in content
    ]
    golds = [own["gold_answer"] for own in content]
    renamed = [
        [
            (
                tokens,
                _renamed(final, gold),
                {o: _renamed(given, gold) for o, given in probes.items()},
            )
            for tokens, final, probes in own
        ]
        for own, gold in zip(questions, golds, strict=True)
    ]
    recording = recorded(tmp_path_factory.mktemp("stores") / "store", renamed)
    dataset, [llm] = load("toy", recording=recording)
    return request.param, surface(
        dataset, llm, n=[1, 2, 3, 128], tokens=[500, 1000, 2000, 4000, 8000, 16000, None]
    )


def _renamed(answer, gold):
    """The answer, or "a" for the gold, which no other answer may be."""
    return "a" if answer == gold else f"not {answer}"


def test_published_stores_have_the_golden_surface(shared, store):
    name, result = store
    golden = list(json.loads((shared / "golden" / "probed_surface.json").read_text())["points"])
    found = {(point.n, point.tokens): point.accuracy for point in result.points}
    own = [point for point in golden if point["store"] == name]
    assert len(own) == 28
    for point in own:
        assert found[point["n"], point["tokens"]] == pytest.approx(point["accuracy"], abs=1e-9)
    assert result.interval == 500
    assert result.questions == 30
