"""How results look in Python: sentences, tables for notebooks, DataFrames, axes."""

import csv
import html
import io
import math
import re
import sys
from collections import Counter
from dataclasses import fields, replace
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from small import letters, write_toy

from feval import (
    EarlyStopping,
    SelfConsistency,
    compare,
    evaluate,
    forecast,
    load,
    method_curve,
    open_recording,
    self_consistency_curve,
)
from feval.comparison.plan import Plan
from feval.comparison.statistics import Statistics
from feval.errors import NotRecordedError, UnknownNameError, UsageError
from feval.report.page.page import comparison_page
from feval.report.tables.comparisons import comparison_tables, results_csv
from feval.report.tables.recordings import info_tables
from feval.report.tables.tables import plain

NAME = "<script>alert(1)</script>&"
HOSTILE = NAME + "\x1b[31m"
ANSWERS = [["a", "b", "a", None], ["x", HOSTILE, HOSTILE], ["c", "c", "c", "c"], [None, None, "e"]]
GOLDS = ["a", HOSTILE, "d", None]
NOT_OF_POINTS = {"llms", "token_counter", "frontier"}
KINDS = [
    "recording",
    "dataset",
    "llm",
    "evaluation",
    "curve",
    "comparison",
    "plan",
    "forecast",
    "budget",
]


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """One value of every class that is shown."""
    folder = write_toy(
        tmp_path_factory.mktemp("views") / "rec", {"gpt-4o-mini": ANSWERS, NAME: ANSWERS}, GOLDS
    )
    recording = open_recording(folder)
    dataset, llms = load("toy", None, recording)
    sc = {"name": "self-consistency", "llms": ["gpt-4o-mini"], "budgets": {"n": [1, 3]}}
    few = {"unlabelled": "drop", "resamples": 50}
    plan = Plan.from_dict(few | {"dataset": "toy", "recordings": [str(folder)], "method": [sc]})
    return {
        "recording": recording,
        "dataset": dataset,
        "llm": llms[0],
        "evaluation": evaluate(SelfConsistency(3), dataset, llms[0], unlabelled="drop"),
        "curve": self_consistency_curve(dataset, llms[0], [1, 3], unlabelled="drop"),
        "comparison": compare(plan),
        "plan": plan,
        "forecast": forecast.estimate(dataset, llms[0], g=2, m=[1, 3], methods=["plug-in"], **few),
        "budget": forecast.plan(dataset, llms[0], budget_tokens=500, most_votes=3, **few),
    }


@pytest.fixture
def frames(monkeypatch):
    """A library of DataFrames that are dicts."""
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=dict))


@pytest.mark.parametrize("kind", KINDS)
def test_a_repr_is_one_short_line(shown, kind):
    text = repr(shown[kind])
    assert text.startswith(type(shown[kind]).__name__)
    assert len(text) < 400
    assert text.isprintable()


def test_reprs_have_the_numbers_that_matter(shown):
    evaluation, curve = shown["evaluation"], shown["curve"]
    assert (
        f"self-consistency(n=3) on toy, gpt-4o-mini: {100 * evaluation.accuracy:.2f} % right"
        in repr(evaluation)
    )
    assert "3 questions, exact" in repr(evaluation)
    top = max(curve.points, key=lambda point: point.accuracy)
    assert f"Best is n = {top.n}: {100 * top.accuracy:.2f} % right" in repr(curve)
    best = max(shown["comparison"].curves[0].points, key=lambda point: point.accuracy)
    assert f": self-consistency, n={best.fields['n']}, {100 * best.accuracy:.2f} % right" in repr(
        shown["comparison"]
    )
    assert "28 CoTs, 2 LLMs, 1 dataset" in repr(shown["recording"])
    dataset, [llm, _] = load("toy", None, shown["recording"])
    result = evaluate(EarlyStopping(2, budget=3), dataset, llm, unlabelled="drop")
    assert repr(result).startswith("Evaluation(early-stopping(window=2, budget=3) on toy")


@pytest.mark.parametrize("kind", KINDS)
def test_html_is_escaped_and_small(shown, kind):
    page = shown[kind]._repr_html_()
    tags, texts = Counter(re.findall(r"<(/?\w+)", page)), html.unescape(page)
    own = {"table", "thead", "tbody", "tr", "th", "td", "div", "p", "strong", "small"}
    assert {tag.strip("/") for tag in tags} <= own | {"br"}
    assert all(tags[tag] == tags[f"/{tag}"] for tag in own)  # what is opened is closed
    assert {*re.findall(r"<\w+ (\w+)=", page)} <= {"class", "style"}
    assert not re.search("color|background", page)  # dark themes have their own
    assert tags["table"] >= 1
    assert len(page) < 20_000
    assert "\x1b" not in page
    assert (NAME in texts) == (kind in {"recording", "dataset"})  # they name the other LLM
    assert (f"{NAME}\\x1b[31m" in texts) == (kind == "dataset")


def test_a_wide_table_scrolls_inside_its_notebook_cell(shown, browser, tmp_path):
    cells = "".join(shown[kind]._repr_html_() for kind in KINDS)
    ready = "<script>document.documentElement.dataset.ready = 'yes'</script>"
    (tmp_path / "cells.html").write_text(f"<meta charset=utf-8>{cells}{ready}", "utf-8")
    wide = "[...document.querySelectorAll('.feval')].some((c) => c.scrollWidth > c.clientWidth)"
    for width, scrolls in ((900, False), (400, True)):
        with browser.visit(tmp_path / "cells.html", width):
            assert browser.value(f"[{wide}, document.documentElement.scrollWidth]") == [
                scrolls,
                width,
            ]


def test_without_any_price_no_table_has_dollars(tmp_path):
    answers = {"my-own": letters("aba", "bba")}
    recording = open_recording(write_toy(tmp_path / "rec", answers, ["a", "b"]))
    dataset, llms = load("toy", None, recording)
    comparison = compare(recording, [SelfConsistency(1), SelfConsistency(3)], resamples=50)
    evaluation = evaluate(SelfConsistency(3), dataset, llms[0])
    values = [evaluation, self_consistency_curve(dataset, llms[0], [1, 3]), comparison]
    tables = "".join(map(plain, [*comparison_tables(comparison), *info_tables(recording)]))
    texts = [value._repr_html_() for value in values]
    assert not any("USD" in text for text in (*texts, tables))
    assert [text.count("no price by 2025-06-02") for text in texts] == [1, 1, 1]
    assert "no price: 2025-06-02 has none of these LLMs" in tables
    assert "USD / " not in comparison_page(comparison, dataset, llms)
    assert comparison.to_dict()["curves"][0]["points"][0]["usd_per_question"] is None


def test_long_tables_are_cut_and_say_so(shown):
    curve = shown["curve"]
    page = replace(curve, points=curve.points * 20)._repr_html_()
    assert page.count("<tr>") == 21
    assert "20 more rows: to_frame()" in page


@pytest.mark.usefixtures("frames")
def test_a_comparison_has_the_rows_of_its_csv(shown):
    comparison = shown["comparison"]
    [header, *rows] = csv.reader(io.StringIO(results_csv(comparison)))
    frame = comparison.to_frame()
    assert list(frame) == header
    assert frame["label"] == [row[header.index("label")].removeprefix("'") for row in rows]
    place = header.index("accuracy")
    assert frame["accuracy"] == [float(row[place]) for row in rows]
    assert set(comparison.to_frame("questions")) == set(comparison.per_question())
    assert comparison.to_frame("points", "pandas") == comparison.to_frame("pandas") == frame
    with pytest.raises(UnknownNameError, match="kind of rows 'pionts'"):
        comparison.to_frame(rows="pionts")


@pytest.mark.usefixtures("frames")
@pytest.mark.parametrize("rows", [each.name for each in fields(Statistics)])
def test_every_statistic_has_a_frame(shown, rows):
    frame = shown["comparison"].to_frame(rows)
    records = getattr(shown["comparison"], rows)
    assert all(len(values) == len(records) for values in frame.values())
    for place, record in enumerate(records):
        assert {name: values[place] for name, values in frame.items()} == vars(record)
    may_be_none = {"areas", "ranking", "differences", "savings", "unequal_costs", "flips"}
    assert rows in may_be_none or records
    assert {"accuracy", "budget", "difference", "area", "price"} & {*frame}


def test_points_have_what_their_evaluations_have(shown):
    [point, *_] = shown["comparison"].points
    [row, *_] = shown["comparison"].records()
    assert (point.label, point.budget, point.role) == ("self-consistency", "n=1", "method")
    assert {name: getattr(point, name) for name in row if name not in NOT_OF_POINTS} == {
        name: value for name, value in row.items() if name not in NOT_OF_POINTS
    }
    with pytest.raises(AttributeError, match="acuracy"):
        point.acuracy  # noqa: B018  it raises


def test_a_comparison_prints_its_headline(shown):
    text = str(shown["comparison"])
    assert text.startswith("toy, 3 questions")
    assert "Best at three budgets\n" in text
    assert "Pareto frontier\n" in text
    assert "to_frame()" in text


@pytest.mark.parametrize("kind", KINDS)
def test_notebooks_name_no_options_and_glue_nothing(shown, kind):
    page = shown[kind]._repr_html_()
    words = html.unescape(re.sub("<[^>]+>", "", page))
    assert "--" not in words
    assert "more rows" not in words
    for table in re.findall("<table>.*?</table>", page, re.DOTALL):
        assert not re.search("</t[dh]><t|</tr><tr", table)
    assert not re.search("</(table|p)><(table|p|strong|small)", page)


@pytest.mark.usefixtures("frames")
def test_frames_have_points_or_questions(shown):
    curve, evaluation = shown["curve"].to_frame(), shown["evaluation"].to_frame()
    assert curve["accuracy"] == [point.accuracy for point in shown["curve"].points]
    assert set(curve["llm"]) == {"gpt-4o-mini"}
    assert evaluation["question"] == list(shown["evaluation"].question_ids)
    assert np.mean(evaluation["right"]) == shown["evaluation"].accuracy
    assert shown["forecast"].to_frame()["m"] == [1, 3]
    assert [*shown["budget"].to_frame()["votes"]] == [1, 3]
    assert shown["plan"].to_frame()["budgets"] == ["n = 1, 3"]
    assert shown["recording"].to_frame()["cots"] == [14, 14]


@pytest.mark.usefixtures("frames")
def test_questions_are_counted(shown):
    frame = shown["dataset"].to_frame()
    right = [own.count(gold) / len(own) for own, gold in zip(ANSWERS[:3], GOLDS, strict=False)]
    assert frame["gpt-4o-mini"].tolist()[:3] == frame[NAME].tolist()[:3] == right
    assert math.isnan(frame["gpt-4o-mini"][3])
    assert frame["answer"] == GOLDS
    columns = shown["llm"].to_frame()
    for row, own in enumerate(ANSWERS):
        votes = Counter(answer for answer in own if answer is not None)
        assert columns["cots"][row] == len(own)
        assert columns["no_answer"][row] == own.count(None) / len(own)
        assert columns["answers"][row] == len(votes)
        assert columns["agreement"][row] == max(votes.values()) / len(own)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "plan"])
def test_everything_has_a_picture(shown, kind):
    before = dict(mpl.rcParams)
    _, own = plt.subplots()
    axes = shown[kind].plot(own)
    assert axes is own
    assert axes.get_title(loc="left")
    assert axes.texts or axes.figure.legends
    assert shown[kind].plot(title="(a)", legend=False).get_title(loc="left") == "(a)"
    assert dict(mpl.rcParams) == before
    plt.close("all")


def line_of(axes, label):
    """The points of the line with a name, at its end or in the legend, found by its colour."""
    colours = {text.get_text(): text.get_color() for text in axes.texts}
    for legend in axes.figure.legends:
        names = [text.get_text() for text in legend.get_texts()]
        colours |= dict(zip(names, (line.get_color() for line in legend.get_lines()), strict=False))
    lines = [
        line
        for line in axes.lines
        if line.get_color() == colours[label] and line.get_linestyle() == "-"
    ]
    return np.asarray(max(lines, key=lambda line: len(line.get_xydata())).get_xydata()).tolist()


def test_curves_on_the_same_axes_are_told_apart(shown):
    dataset, [llm, _] = load("toy", None, shown["recording"])
    stopping = method_curve(
        dataset,
        [llm],
        "early-stopping",
        "budget",
        [2, 3],
        unlabelled="drop",
        settings={"window": 2},
    )
    axes = shown["curve"].plot()
    assert axes.get_title(loc="left") == "self-consistency on toy, gpt-4o-mini"
    assert stopping.plot(axes) is axes
    for curve in (shown["curve"], stopping):
        expected = [[1000 * point.usd_per_question, 100 * point.accuracy] for point in curve.points]
        assert line_of(axes, f"{curve.method}, gpt-4o-mini") == expected
    plt.close("all")


def test_questions_are_drawn_in_order(shown):
    axes = shown["evaluation"].plot()
    expected = [
        [i + 1, y] for i, y in enumerate(sorted(100 * shown["evaluation"].right, reverse=True))
    ]
    assert line_of(axes, "self-consistency(n=3)") == expected
    plt.close("all")


def test_a_picture_of_several_datasets_is_refused(shown, monkeypatch):
    monkeypatch.setattr(type(shown["recording"]), "dataset_ids", lambda _: ["a", "b"])
    with pytest.raises(UsageError, match=r"holds 2 datasets \(a, b\)"):
        shown["recording"].plot()


def test_a_question_is_printed(shown, capsys):
    recording = shown["recording"]
    recording.show(1, llm="gpt-4o-mini")
    assert "gpt-4o-mini, sample 2" in capsys.readouterr().out
    with pytest.raises(
        NotRecordedError, match="Question 9 of toy was asked for, by its row from 0, and it has 4"
    ):
        recording.show(9)
    with pytest.raises(NotRecordedError, match="no CoTs of 'nobody'"):
        recording.show(0, llm="nobody")
