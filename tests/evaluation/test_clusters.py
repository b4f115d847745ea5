"""Clusters: questions that are one piece of evidence, in every command, in receipts, and in what is
resampled.
"""

import json

import numpy as np
import pytest
from command_line import feval
from scipy import stats
from small import TOY, letters, pool

from feval import compare, evaluate, load, self_consistency_curve
from feval.comparison.plan import Plan
from feval.errors import NotRecordedError, UsageError
from feval.estimators.intervals import accuracy_interval
from feval.evaluation.questions import ClusterSizes, question_clusters, read_clusters
from feval.methods import SelfConsistency
from feval.receipts.verifying import verify_receipt
from feval.recording import LLMInfo, Question, RecordingWriter
from feval.report.tables.comparisons import comparison_tables

ANSWERS = letters("aab", "bab", "abc", "aaa", "cba", "abb")
TEXTS = ["Who?", "Who?", "Which is right?", "Which is right?", "", ""]
CHOICES = [(), (), (("A", "x"), ("B", "y")), (("A", "x"), ("B", "z")), (), ()]


def recording(folder, texts=TEXTS, order=range(6)):
    """Six questions whose first two have one text, the next two one text and other choices, and the
    last two no text.
    """
    with RecordingWriter(folder / "rec", operation={"name": "test"}) as writer:
        writer.add_dataset(
            TOY, [Question(f"toy/{i}", texts[i], "a", "a", CHOICES[i]) for i in order]
        )
        for llm, shift in (("x", 0), ("y", 4)):
            answers = ANSWERS[shift:] + ANSWERS[:shift]
            writer.add_pools("toy", LLMInfo(llm), "words", (pool(i, answers[i]) for i in order))
    return folder / "rec"


def test_questions_with_one_text_and_the_same_choices_are_one_cluster(tmp_path):
    dataset, [llm] = load("toy", ["x"], recording(tmp_path))
    codes = question_clusters(dataset, np.arange(6))
    assert [codes.tolist().index(code) for code in codes] == [0, 0, 2, 3, 4, 5]
    assert question_clusters(dataset, np.arange(1, 6)) is None
    result = evaluate(SelfConsistency(1), dataset, llm)
    expected = accuracy_interval(result.right[:, None], clusters=np.array([0, 0, 1, 2, 3, 4]))
    assert (result.accuracy_low, result.accuracy_high) == (expected.low[0], expected.high[0])
    assert result.to_dict()["clusters"] == {"number": 5, "largest": 2}
    assert result.warnings[0].startswith("Intervals and tests count 5 clusters, not 6 questions:")
    assert result.warnings[1].startswith("One cluster holds 2 of the 6 questions")
    assert result.warnings[2].startswith("Only 5 clusters: below 10")
    curve = self_consistency_curve(dataset, llm, [1])
    assert (curve.points[0].accuracy_low, curve.clusters) == (result.accuracy_low, result.clusters)


def test_a_file_names_clusters_and_joins_those_of_equal_texts(tmp_path):
    dataset, [llm] = load("toy", ["x"], recording(tmp_path))
    (tmp_path / "c.csv").write_text("question,cluster\ntoy/1,p\ntoy/4, p\ntoy/2,q\ntoy/3,q\n")
    codes = question_clusters(dataset, np.arange(6), tmp_path / "c.csv")
    assert [codes.tolist().index(code) for code in codes] == [0, 0, 2, 2, 0, 5]
    everyone = dict.fromkeys(dataset.question_ids, "one")
    named, alone, one = (
        evaluate(SelfConsistency(1), dataset, llm, clusters=clusters)
        for clusters in (tmp_path / "c.csv", {"toy/5": "alone"}, everyone)
    )
    assert (named.clusters, alone.clusters) == (ClusterSizes(3, 3), ClusterSizes(5, 2))
    warned = one.warnings
    assert warned[0].startswith("Intervals and tests count 1 cluster, not 6 questions")
    assert warned[2].startswith("Only 1 cluster: below 10")


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("toy/0,a\ntoy/0,b\n", UsageError, "into two clusters, 'a' and 'b'"),
        ("toy/0,a\ntoy/1, \n", UsageError, "names no cluster for the question 'toy/1'"),
        ("question,cluster\n", UsageError, "names no question"),
        ("toy/0\n", UsageError, "a question id, a comma and a cluster"),
        ("toy/77,a\n", NotRecordedError, "such as 'toy/77'"),
    ],
)
def test_a_bad_file_of_clusters_is_refused(tmp_path, text, kind, words):
    dataset, _ = load("toy", ["x"], recording(tmp_path))
    (tmp_path / "c.csv").write_text(text)
    with pytest.raises(kind, match=words):
        question_clusters(dataset, np.arange(6), read_clusters(tmp_path / "c.csv"))


def test_commands_take_clusters_and_receipts_hold_them(tmp_path):
    place = recording(tmp_path)
    (tmp_path / "c.csv").write_text("toy/2,q\ntoy/3,q\n")
    (tmp_path / "s.toml").write_text("clusters = 'c.csv'\n")
    shared = "--prices none --llm x --recording", place, "--settings", tmp_path / "s.toml"
    for number, command in enumerate(
        (
            "run self-consistency --set n=3",
            "curve self-consistency --n 1,3",
            "curve adaptive-consistency --sweep budget=1,3",
        )
    ):
        out = tmp_path / str(number)
        shown = feval(command, *shared, "--out", out).output
        assert "Intervals and tests count 4 clusters, not 6 questions" in shown
        receipt = json.loads((out / "receipt.json").read_text())
        assert receipt["request"]["clusters"] == {"toy/2": "q", "toy/3": "q"}
        assert not verify_receipt(out / "receipt.json").differences


def test_comparisons_test_and_resample_clusters(tmp_path):
    place = recording(tmp_path, [f"Question {i}" for i in range(6)])
    methods = [("one", "self-consistency", "x", [1, 3]), ("two", "self-consistency", "y", [1, 3])]
    everyone = {f"toy/{i}": "abc"[i % 3] for i in range(6)}
    settings = {"prices": "none", "cost": "samples", "resamples": 200}
    plain = compare(place, methods, **settings)
    grouped = compare(place, methods, clusters=everyone, **settings)
    assert grouped.curves[0].points[0].clusters == ClusterSizes(3, 2)
    assert grouped.least_p(1) > plain.least_p(1)
    assert "on 3 clusters it cannot be less than" in str(comparison_tables(grouped))
    one, other = (curve.points[0].right for curve in grouped.curves)
    assert grouped.differences[0].skewness == pytest.approx(
        stats.skew((one - other).reshape(2, 3).sum(axis=0)) / 3**0.5
    )
    assert [row.difference for row in grouped.differences] == [
        row.difference for row in plain.differences
    ]
    assert [row.high for row in grouped.differences] != [row.high for row in plain.differences]
    assert [rank.low for rank in grouped.ranking] != [rank.low for rank in plain.ranking]
    alone = compare(place, methods, clusters={name: name for name in everyone}, **settings)
    assert [row.low for row in alone.differences] == [row.low for row in plain.differences]
    other = recording(tmp_path / "other", [f"Question {i}" for i in range(6)], [3, 5, 0, 1, 4, 2])
    renamed = {name: str("cba".index(cluster)) for name, cluster in everyone.items()}
    elsewhere = compare(other, methods, clusters=renamed, **settings)
    assert (elsewhere.savings, elsewhere.ranking) == (grouped.savings, grouped.ranking)
    (tmp_path / "c.csv").write_text(
        "".join(f"{name},{cluster}\n" for name, cluster in everyone.items())
    )
    (tmp_path / "plan.toml").write_text(
        'clusters = "c.csv"\n' + grouped.plan.changed(clusters=None).to_toml()
    )
    assert Plan.read(tmp_path / "plan.toml").clusters == everyone
    assert Plan.from_dict(grouped.plan.to_dict()) == grouped.plan
