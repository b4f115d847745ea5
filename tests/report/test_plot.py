"""What `plot()` takes, and figures that are printed as they are."""

import io
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.text import Text

import feval
from feval.comparison.runner import FailedMethod
from feval.errors import UnknownNameError, UsageError

RECORDING = Path(feval.__file__).parents[1] / "recorders" / "tiny" / "recording"
SMALL, LARGE = "feval/tiny-42k", "feval/tiny-160k"


@pytest.fixture(scope="module")
def comparison():
    return feval.compare(RECORDING, ["self-consistency", "early-stopping"], llms=[SMALL, LARGE])


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def shown_texts(figure):
    """Every text of a figure that is drawn, with its box."""
    figure.draw_without_rendering()
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    edges = {id(label) for axes in figure.axes for label in hidden_ticks(axes)}
    return [(text.get_text(), text.get_window_extent()) for text in texts if id(text) not in edges]


def hidden_ticks(axes):
    """Labels of ticks that are not drawn: beyond the ends of an axis, or an inner panel's."""
    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        for tick in (*axis.majorTicks, *axis.minorTicks):
            if not low <= tick.get_loc() <= high or tick not in axis.get_major_ticks():
                yield from (tick.label1, tick.label2)


@pytest.mark.parametrize("legend", ["auto", "outside"])
@pytest.mark.parametrize("columns", [1, 2])
def test_no_texts_of_a_papers_two_panels_overlap(comparison, columns, legend):
    with feval.style("paper", columns=columns):
        figure, axes = plt.subplots(1, 2, sharey=True)
        for ax, llm in zip(axes, [SMALL, LARGE], strict=True):
            comparison.plot(ax, llms=[llm], title=llm, legend=legend)
        width = figure.get_size_inches()[0]
        assert width == {1: 3.3, 2: 6.8}[columns]
        texts = shown_texts(figure)
        assert {"USD per 1,000 questions", SMALL, LARGE} <= {
            " ".join(text.split()) for text, _ in texts
        }
        for (one, box), (other, its_box) in combinations(texts, 2):
            assert not box.overlaps(its_box), (one, other)
        for text, box in texts:
            assert 0 <= box.x0 <= box.x1 <= figure.bbox.width, text
        out = io.BytesIO()
        figure.savefig(out, format="pdf")
    assert b"/FontFile2" in out.getvalue()  # TrueType, embedded
    assert len(figure.legends) == 1
    assert all(
        not figure.legends[0].get_window_extent().overlaps(ax.get_window_extent()) for ax in axes
    )


def test_colour_is_the_llm_and_marker_the_method_where_both_vary(comparison):
    axes = comparison.plot(frontier=False, ceilings=False, annotate=False, intervals=False)
    lines = [line for line in axes.lines if line.get_color() != "#222222"]
    joined = [line for line in lines if line.get_linestyle() != "None"]
    assert len(joined) == 4
    assert len({line.get_color() for line in joined}) == 2
    assert len({(line.get_color(), line.get_marker()) for line in joined}) == 4
    assert all(sorted(line.get_xdata()) == list(line.get_xdata()) for line in joined)
    names = [text.get_text() for text in axes.figure.legends[0].get_texts()]
    assert names[:4] == [SMALL, LARGE, "self-consistency", "early-stopping"]
    alone = comparison.plot(methods=["self-consistency"], legend="outside")
    names = [text.get_text() for text in alone.figure.legends[0].get_texts()]
    assert names[:2] == [SMALL, LARGE]


@pytest.mark.parametrize("size", [(3.3, 6.0), (6.4, 4.8)])
@pytest.mark.parametrize("panels", [1, 2])
def test_no_name_lies_on_a_line_or_the_axes_ends_where_many_crowd(comparison, size, panels):
    labels = iter(f"mini-{place}" for place in range(20))
    curves = tuple(
        replace(curve, label=label, entry=curve.entry.changed(label=label), points=points)
        for curve in comparison.curves
        for label, points in ((next(labels), curve.points[place % 3 :]) for place in range(5))
    )
    few, many = (replace(comparison, curves=own) for own in (curves[:1], curves))
    for shown in (few, many):
        with feval.style("paper"):
            figure, axes = plt.subplots(1, panels, figsize=size, squeeze=False)
            for ax in axes[0]:
                shown.plot(ax, title=False)
        figure.draw_without_rendering()
        for ax in axes[0]:
            lines = [
                line.get_path().transformed(line.get_transform())
                for line in ax.lines
                if line.get_linestyle() != "None"
            ]
            for text in filter(Text.get_text, ax.texts):
                box = text.get_window_extent()
                assert not any(path.intersects_bbox(box, filled=False) for path in lines)
                assert ax.get_window_extent().count_contains(box.corners()) == 4
    keys = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {curve.label for curve in curves} <= {*keys}


def test_what_was_left_out_is_said_whole_in_the_picture_that_it_concerns(comparison):
    long = tuple(f"{name} ({LARGE})" for name in ("best-of-n", "weighted-vote", "debate"))
    entry = comparison.plan.entries[0]
    entries = tuple(entry.changed(label=label, llms=(LARGE,)) for label in long)
    missing = replace(
        comparison,
        plan=comparison.plan.changed(entries=(*comparison.plan.entries, *entries)),
        missing=tuple(FailedMethod(label, "no scores") for label in long),
    )
    with feval.style("paper"):
        figure, axes = plt.subplots(1, 2)
        for ax, llm in zip(axes, [SMALL, LARGE], strict=True):
            missing.plot(ax, llms=[llm])
        texts = shown_texts(figure)
    [(caption, box)] = [each for each in texts if "left out" in each[0]]
    assert " ".join(caption.split()) == f"left out: {', '.join(long)}"
    assert axes[1].get_window_extent().x0 <= box.x0
    assert box.x1 <= figure.bbox.width


def test_a_method_of_several_llms_stays_and_says_its_questions():
    compared = feval.compare(RECORDING, ["self-consistency", "cascade"], llms=[SMALL, LARGE])
    for llm in (SMALL, LARGE):
        axes = compared.plot(llms=[llm], legend="outside")
        keys = [text.get_text() for text in axes.figure.legends[0].get_texts()]
        assert keys[:3] == ["self-consistency", "cascade", "pass@n ceiling"]
        said = [" ".join(each.get_text().split()) for each in axes.texts]
        assert any("cascade, frontier: 100 questions, 100 to learn" in each for each in said)
    without = compared.plot(methods=["self-consistency"], llms=[SMALL])
    assert not any("cascade" in each.get_text() for each in without.texts)


def test_a_picture_and_its_table_have_one_frontier():
    compared = feval.compare(RECORDING, ["self-consistency", "cascade"], llms=[SMALL, LARGE])
    [steps] = [line for line in compared.plot().lines if line.get_drawstyle() == "steps-post"]
    of_table = [(1000 * point.cost, 100 * point.accuracy) for point in compared.frontier]
    assert np.allclose(steps.get_xydata()[:-1], of_table)
    assert str(compared).count("on the 100 questions that all are judged on") == 1
    # what was judged on other questions is said without a title, too
    untitled = compared.plot(title=False)
    assert any("cascade, frontier: 100" in each.get_text() for each in untitled.texts)


def test_fonts_are_those_of_matplotlibs_settings(comparison):
    with mpl.rc_context({"font.family": "serif", "font.size": 7, "legend.fontsize": 5}):
        axes = comparison.plot()
        texts = [axes.title, axes.xaxis.label, *axes.get_xticklabels(), *axes.texts]
        legend = axes.figure.legends[0].get_texts()
        assert {text.get_fontfamily()[0] for text in (*texts, *legend)} == {"serif"}
        assert {text.get_fontsize() for text in legend} == {5}


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"legend": "below"}, UsageError, "legend='below' was asked for; it is one of 'auto'"),
        ({"intervals": True}, UsageError, "intervals=True"),
        ({"cost": "euros"}, UnknownNameError, "no cost 'euros'"),
        ({"methods": ["self-consistent"]}, UnknownNameError, "Did you mean 'self-consistency'"),
        ({"llms": ["gpt"]}, UnknownNameError, "no LLM of the comparison 'gpt'"),
    ],
)
def test_what_a_comparison_cannot_show_is_refused(comparison, options, error, words):
    with pytest.raises(error, match=words):
        comparison.plot(**options)


def test_pgf_wants_a_latex_and_says_so(comparison, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with feval.style("paper"):
        figure = comparison.plot().figure
        with pytest.raises(RuntimeError, match="'xelatex' not found; install it"):
            figure.savefig(tmp_path / "figure.pgf")
    monkeypatch.setattr("shutil.which", lambda name: name if name == "pdflatex" else None)
    with feval.style("paper"):
        assert mpl.rcParams["pgf.texsystem"] == "pdflatex"


def test_an_argument_without_meaning_is_refused():
    dataset, [llm] = feval.load("tiny_sums", [SMALL], recording=RECORDING)
    with pytest.raises(UsageError, match=r"cost='usd' means nothing for LLM\.plot"):
        llm.plot(cost="usd")
    curve = feval.self_consistency_curve(dataset, llm, [1, 5])
    with pytest.raises(UsageError, match=r"frontier=False means nothing for Curve\.plot"):
        curve.plot(frontier=False)
    assert curve.plot(cost="tokens", log=False).get_xscale() == "linear"


@pytest.mark.parametrize(
    ("name", "columns", "words"),
    [("poster", 1, "no style 'poster'"), ("paper", 3, "3 columns"), ("slides", 2, "slides over 2")],
)
def test_styles_that_do_not_exist_are_refused(name, columns, words):
    with pytest.raises(UsageError, match=words), feval.style(name, columns=columns):
        pass
