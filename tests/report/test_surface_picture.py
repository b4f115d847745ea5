"""The picture and the page of a surface of width and depth."""

from base64 import b64decode
from dataclasses import replace
from itertools import pairwise

import pytest
from chromium import first_data
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from matplotlib.image import imread

from feval.evaluation.surfaces import Surface, SurfacePoint
from feval.report import pictures
from feval.report.page.page import surface_page
from feval.report.pictures.drawing import heading, own_style


def point(n, tokens, accuracy, **numbers):
    unknown = dict.fromkeys(("accuracy_low", "accuracy_high", "tokens_per_question"))
    own = {"n": n, "tokens": tokens, "accuracy": accuracy, "usd_per_question": None}
    return SurfacePoint(unknown | own | {"probe_tokens": 0.0, "frontier": True} | numbers)


def surface(widths, depths, accuracy, name="sums"):
    points = tuple(
        point(n, depth, accuracy, output_tokens=n * (depth or 2000.0), frontier=n == widths[0])
        for depth in depths
        for n in widths
    )
    return Surface(
        dataset=name,
        llms=(name,),
        counters=("usage",),
        recording_hashes=("ab" * 32,),
        prices=None,
        billing="once",
        seed=0,
        questions=2,
        interval=None,
        points=points,
    )


def drawn(shown):
    with own_style():
        figure = pictures.surface(shown).figure()
        figure.draw_without_rendering()
    return figure


@pytest.mark.parametrize("accuracy", [0.0, 0.5, 1.0])
def test_accuracies_that_are_all_equal_have_a_scale_from_0_to_100_percent(accuracy):
    bar = drawn(surface([1, 2], [10, 20, None], accuracy)).axes[-1]
    low, high = bar.get_ylim()
    assert 0 <= low <= 100 * accuracy <= high <= 100
    assert high - low >= 1


def test_a_long_line_below_the_title_goes_on_and_is_not_cut_off():
    axes = Figure().subplots()
    said = (
        "seconds: replayed from recorded durations, all CoTs of a round at once, cut ones in"
        " proportion to their tokens"
    )
    heading(axes, "title", ["short", said])
    lines = axes.texts[0].get_text().split("\n")
    assert (lines[0], " ".join(lines[1:]), max(map(len, lines)) <= 100) == ("short", said, True)


def test_names_on_the_axis_do_not_touch():
    figure = drawn(surface([1, 2, 3], [5, 7, 8, 17, 33, 40, 1000, None], 0.5))
    boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    assert len(boxes) > 4
    assert all(left.x1 + 5 < right.x0 for left, right in pairwise(boxes))


def test_lines_of_equal_cost_are_drawn_as_in_the_legend_and_hold_their_names():
    shown = surface([1, 2, 3, 7, 20], [12, 30, 50, 1000], 0.5)
    cheap = [
        SurfacePoint(each, usd_per_question=1e-6 * each.output_tokens) for each in shown.points
    ]
    figure = drawn(replace(shown, points=tuple(cheap)))
    [axes, *_], [legend] = figure.axes, figure.legends
    [lines] = [each for each in axes.collections if isinstance(each, QuadContourSet)]
    assert set(lines.get_linestyle()) == {(0.0, None)}
    assert legend.get_lines()[0].get_linestyle() == "-"
    names = ["0.03", "0.1", "0.3", "1", "3", "10"]
    assert [label.get_text() for label in axes.texts[:6]] == names
    for cost, label in zip((30, 100, 300, 1e3, 3e3, 1e4), axes.texts, strict=False):
        tokens, n = label.get_position()
        assert tokens * n == pytest.approx(cost)  # a trace costs 0.001 USD per 1,000 of its tokens


def test_the_frontier_begins_with_the_cheapest_by_dollars():
    """One long trace is cheaper than two short ones that are probed."""
    many = point(2, 10, 0.5, output_tokens=20.0, probe_tokens=20.0, usd_per_question=4.0)
    long = point(1, None, 0.4, output_tokens=30.0, usd_per_question=3.0)
    assert replace(surface([1], [10], 0.0), points=(many, long)).frontier == [long, many]


@pytest.mark.parametrize(("widths", "depths"), [([3], [None]), ([1], [40]), ([1, 2], [10, None])])
def test_small_surfaces_with_odd_names_are_drawn(widths, depths):
    assert pictures.surface(surface(widths, depths, 0.0, "$x_{größe}/模型" * 9)).png(50)


@pytest.mark.parametrize(("dark", "paper"), [(False, (255, 255, 255)), (True, (20, 23, 27))])
def test_the_picture_fits_a_phone_and_has_the_colours_of_the_page(browser, tmp_path, dark, paper):
    shown = surface([1, 2], [10, None], 0.5)
    (tmp_path / "page.html").write_text(surface_page(shown), "utf-8")
    browser.view(400, 900, dark=dark)
    browser.open(tmp_path / "page.html")
    left, top, right = browser.value(
        "(() => { const b = document.querySelector('.picture').getBoundingClientRect();"
        " return [b.left, b.top, b.right].map(Math.round); })()"
    )
    assert right <= 400
    browser.screenshot(tmp_path / "page.png")
    pixels = (255 * imread(tmp_path / "page.png")[top + 2, left + 2, :3]).round()
    assert tuple(pixels) == paper


def test_the_page_has_picture_and_frontier_and_strangers_names_stay_text():
    evil = "</script><img src=x onerror=alert(1)>"
    page = surface_page(surface([1, 2], [10, None], 0.5, evil))
    assert "<img" not in page
    assert page.count("</script>") == 2
    data = first_data(page)
    src = data["pictures"][0]["src"]
    assert b"<svg" in b64decode(src.removeprefix("data:image/svg+xml;base64,"), validate=True)
    [table] = data["tables"]
    assert [[cell["t"] for cell in row] for row in table["rows"]] == [
        ["1", "10", "50.00", "-", "10.0"],
        ["1", "no limit", "50.00", "-", "2,000.0"],
    ]
    assert len(table["columns"]) == 5  # without dollars
    assert dict(data["facts"])["LLM"] == evil
