"""Reports: tables, CSV, pictures and the files they are written to."""

import csv
import io
import math
import os
import re
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from matplotlib.figure import Figure
from places import read_data
from small import write_toy

from feval import AdaptiveConsistency, evaluate, load
from feval.cli.output import print_table
from feval.errors import StorageError
from feval.evaluation.curves import Curve, CurvePoint
from feval.recording import verify_recording
from feval.report import palette, pictures
from feval.report.files import save_files
from feval.report.pictures.drawing import Contents, RoundTicks, own_style
from feval.report.tables.rich_tables import rich_table
from feval.report.tables.tables import (
    POINT_COLUMNS,
    Table,
    TableColumn,
    columns as columns_of,
    csv_text,
    curves_csv,
    curves_table,
    evaluation_tables,
    plain,
    subtitles,
    text_of_cell,
)
from feval.report.text import fixed, percent, plain_number, signed_points, usd_per_1000, visible


def point(n, accuracy=0.6, *, half=0.05, usd=None, **fields):
    ends = {"accuracy_low": accuracy - half, "accuracy_high": accuracy + half}
    costs = {"usd_per_question": usd, "tokens_per_question": 30.0 * n + 12}
    own = {"n": n, "accuracy": accuracy, "pass_at_n": accuracy + half, "kind": "exact"}
    return CurvePoint(own | ends | costs | {"calls_per_question": None} | fields)


def curve(*points, llm="gpt-3.5-turbo", **fields):
    result = Curve(
        method="self-consistency",
        dataset="bigbench_date",
        llms=(llm,),
        recording_hash="ab" * 32,
        recording_hashes=("ab" * 32,),
        prices="2025-06-02",
        billing="once",
        counters=("words",),
        questions=1369,
        seed=0,
        replicates=None,
        confidence=0.95,
        points=points,
    )
    return replace(result, **fields)


def line(budgets, *accuracy, **fields):
    return curve(*(point(n, *accuracy, **fields) for n in budgets))


PRICED = curve(*(point(n, 0.6 + 0.001 * n, usd=1.2345e-5 * n) for n in range(1, 41)))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, é 中文 ✓", "plain, é 中文 ✓"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("two\nlines\r\t", "two\\nlines\\r\\t"),
        ("\x9b2J", "\\x9b2J"),
        ("a\u202eb\u2028c\ufeff", "a\\u202eb\\u2028c\\ufeff"),
        ("\ud800", "\\ud800"),
        ("", ""),
    ],
)
def test_what_could_steer_a_terminal_is_spelled_out(text, shown):
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"), (1.5e-7, "0.00000015"), (0.1, "0.1"), (20, "20"), (2e6, "2,000,000"),
        (0.999, "0.999"),
    ],
)  # fmt: skip
def test_axis_numbers_are_plain(value, shown):
    assert plain_number(value) == shown


@pytest.mark.parametrize(
    ("low", "high", "whole", "ticks"),
    [
        (0.94, 4.4, True, [1, 2, 3, 4]),
        (0.9, 120, True, [1, 10, 100]),
        (265, 415, False, [280, 320, 360, 400]),
    ],
)
def test_a_narrow_axis_has_ticks_too(low, high, whole, ticks):
    axes = Figure().subplots()
    axes.set(xscale="log", xlim=(low, high))
    axes.xaxis.set_major_locator(RoundTicks(whole=whole))
    shown = axes.xaxis.get_major_locator()()
    assert set(ticks) <= set(shown)
    assert len(shown) > 2


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (3e-10, "0.0000003"), (1e-5, "0.01"), (0.1199692, "120"), (2.5, "2,500")],
)
def test_costs_of_1000_questions_have_three_digits(value, shown):
    assert usd_per_1000(value) == shown


def _linear(colour):
    """Linear sRGB of "#rrggbb", from its definition."""
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return np.array([c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares])


def _lab(linear):
    """CIELAB of linear sRGB, from its definition."""
    red, green, blue = linear
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def _contrast(*colours):
    """Contrast of two colours, as WCAG 2 defines it."""
    dark, light = sorted(
        float(np.dot([0.2126, 0.7152, 0.0722], _linear(colour))) + 0.05 for colour in colours
    )
    return light / dark


# Machado, Oliveira and Fernandes (2009), table 1, severity 1: what protanopes, deuteranopes and
# tritanopes see.
MACHADO = read_data("reports.json")["colour blindness"]


@pytest.mark.parametrize(
    ("colours", "paper"),
    [(palette.COLOURS, "#ffffff"), (palette.COLOURS_ON_DARK, "#14171b")],
    ids=["light", "dark"],
)
def test_colours_differ_to_every_eye_and_from_the_paper(colours, paper):
    assert f"--paper: {paper}" in (Path(palette.__file__).parent / "page" / "page.css").read_text(
        "utf-8"
    )
    for eye, matrix in MACHADO.items():
        seen = [np.clip(np.array(matrix) @ _linear(colour), 0, 1) for colour in colours]
        nearest = min(math.dist(one, other) for one, other in combinations(map(_lab, seen), 2))
        assert nearest > (20 if eye == "normal" else 11), eye  # 2.3 is a just noticeable difference
    assert min(_contrast(colour, paper) for colour in colours) >= 3  # WCAG 1.4.11


@pytest.mark.parametrize("dark", [False, True])
def test_what_is_written_on_pages_can_be_read(*, dark):
    css = (Path(palette.__file__).parent / "page" / "page.css").read_text("utf-8")
    light_names, dark_names = (
        dict(re.findall("--([a-z-]+): (#[0-9a-f]{6})", part)) for part in css.split("@media")[:2]
    )
    colours = light_names | (dark_names if dark else {})
    written = [
        *product(("ink", "soft", "right", "wrong", "accent"), ("paper", "raised")),
        *product(("paper",), ("accent", "ink")),
        *((name, f"{name}-fill") for name in ("right", "wrong")),
        ("soft", "none-fill"),
    ]
    for ink, paper in written:
        assert _contrast(colours[ink], colours[paper]) >= 4.5, (ink, paper)  # WCAG 1.4.3, level AA
    for edge in ("strong", "grey"):  # edges of fields, and lines
        assert _contrast(colours[edge], colours["paper"]) >= 3, edge  # WCAG 1.4.11


def test_no_two_of_72_lines_look_alike():
    looks = [palette.places(i) for i in range(144)]
    assert len(set(looks)) == 144
    assert all(len(set(of_twelve)) == 12 for of_twelve in [*zip(*looks[:12], strict=True)][:2])
    for kinds in (palette.MARKERS.values(), palette.DASHES, palette.COLOURS):
        assert len(set(kinds)) == 12
    shared = [
        sum(a == b for a, b in zip(one, other, strict=True))
        for one, other in combinations(looks[:72], 2)
    ]
    assert max(shared) == 1  # of colour, marker and dashes


def test_a_legend_of_many_lines_hides_no_data_on_a_callers_axes():
    axes = Figure((6, 12)).subplots()

    def draw(axes, _):
        return Contents({f"line {i}": axes.plot([0, 1], [i, i])[0] for i in range(45)})

    pictures.Picture(draw, (6, 5)).plot(axes)
    [legend] = axes.figure.legends
    axes.figure.draw_without_rendering()
    assert len(legend.get_texts()) == 45
    assert not legend.get_window_extent().overlaps(axes.get_window_extent())


@pytest.mark.parametrize(
    ("difference", "shown"),
    [
        (0.077, "+7.70"),
        (-0.00005, "-0.01"),
        (0.0, "+0.00"),
        (-1e-14, "+0.00"),
        (9.4e-6, "+0.0009"),
        (-3e-8, "-0.000003"),
    ],
)
def test_a_small_difference_does_not_look_like_none(difference, shown):
    assert signed_points(difference) == shown


@pytest.mark.parametrize("share", [0.38225, 0.61125, 0.725])
def test_equal_shares_look_equal_whatever_their_last_bits(share):
    below, above = math.nextafter(share, 0.0), math.nextafter(share, 1.0)
    assert percent(below) == percent(share) == percent(above)
    assert fixed(100 * below, 2) == fixed(100 * above, 2)


def test_unknown_numbers_are_a_dash():
    assert fixed(None, 3) == "-"
    assert fixed(1234.5678, 1) == "1,234.6"


@pytest.mark.parametrize(
    ("title", "columns", "rows", "notes", "shown"),
    read_data("reports.json")["plain tables"],
)  # fmt: skip
def test_a_plain_table_lines_up_and_is_safe(title, columns, rows, notes, shown):
    assert plain(Table(title, columns_of(*columns), rows, notes)) == shown


def test_rich_cells_keep_markup_as_text():
    from rich.console import Console

    out = io.StringIO()
    table = Table("", (TableColumn("m\u202e"),), (("[red]x[/red] :smile: \x1b[31m",),))
    Console(file=out, width=80).print(rich_table(table, narrow=True))
    assert "[red]x[/red] :smile: \\x1b[31m" in out.getvalue()
    assert "m\\u202e" in out.getvalue()


@pytest.mark.parametrize("width", [40, 76, 80, 100, 200])
def test_no_number_of_a_curve_is_cut_on_a_narrow_terminal(width, monkeypatch, terminal):
    table = curves_table([PRICED])
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "dumb")
    out = terminal()
    print_table(table, apart=False)
    output = out.getvalue()
    assert "…" not in output
    for row in table.rows:
        assert any(all(cell in line for cell in row) for line in output.splitlines()), row


def test_costs_of_a_column_have_three_digits_and_their_points_under_one_another():
    dear = [point(n + 1, usd=usd) for n, usd in enumerate((1e-5, 0.0031, 0.12))]
    rows = plain(curves_table([curve(*dear)])).splitlines()[2:5]
    assert [row.split()[-3] for row in rows] == ["0.0100", "3.10", "120"]
    assert [row.find(cost) for row, cost in zip(rows, (".01", ".10"), strict=False)] == [
        rows[2].index("120") + 3
    ] * 2


def test_curve_table_shows_every_point_in_per_cent():
    lines = plain(curves_table([PRICED])).splitlines()
    assert lines[0] == "self-consistency on bigbench_date, gpt-3.5-turbo"
    assert lines[1].split("  ")[-1] == "pass@n %"
    assert lines[2].split() == ["1", "60.10", "55.10", "to", "65.10", "0.0123", "42.0", "65.10"]
    assert lines[42].startswith("Best is n = 40: ")
    assert ("less than a point below it: " in lines[42], len(lines)) == (True, 2 + 40 + 3)
    rows = plain(curves_table([PRICED, curve(point(1), llm="gpt-4")])).splitlines()
    assert (rows[2].split()[0], rows[-3].split()[0]) == ("gpt-3.5-turbo", "gpt-4")


def test_curve_table_shows_a_dash_without_tokens_or_interval_and_nothing_without_prices():
    bare = point(1, accuracy_low=None, accuracy_high=None, tokens_per_question=None)
    head, row, *notes = plain(
        curves_table([curve(bare, confidence=None, prices=None)])
    ).splitlines()[1:]
    assert row.split() == ["1", "60.00", "-", "-", "65.00"]
    assert ("USD" in head, sum("no prices" in note for note in notes)) == (False, 1)


def test_subtitles_say_kind_billing_prices_and_counter():
    assert subtitles(PRICED) == (
        "exact: expectation over all subsets of the recorded CoTs; 1,369 questions",
        "billing once; prices 2025-06-02; token counter words",
    )
    seeded = curve(point(1, kind="seeded"), replicates=7, seed=3, prices=None)
    assert subtitles(seeded) == (
        "seeded: mean over 7 seeded draws of each question, seed 3; 1,369 questions",
        "billing once; no prices; token counter words",
    )
    assert subtitles(curve(point(1, kind="recorded")))[0].startswith(
        "recorded: the first n CoTs in recorded order"
    )


def test_csv_keeps_every_digit_and_leaves_unknown_numbers_empty():
    first, second = point(3, 1 / 3, usd=1e-05 / 3), point(2, np.float64(0.5))
    text = curves_csv([curve(first, llm="a,b"), curve(second, llm="c")])
    assert "\r" not in text
    third, half = csv.DictReader(io.StringIO(text))
    assert tuple(third) == ("dataset", "llm", *POINT_COLUMNS)
    assert float(third["accuracy"]) == 1 / 3
    assert float(third["usd_per_question"]) == 1e-05 / 3
    assert [(row["llm"], row["n"]) for row in (third, half)] == [("a,b", "3"), ("c", "2")]
    assert (half["accuracy"], half["usd_per_question"]) == ("0.5", "")


def test_picture_is_the_same_bytes_whatever_the_users_style_and_carries_no_date():
    import matplotlib as mpl

    png = pictures.curves([PRICED]).png()
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "black", "savefig.dpi": 30}):
        assert pictures.curves([PRICED]).png() == png
        assert mpl.rcParams["font.size"] == 30
    assert not re.search(b"tEXt|tIME|iTXt|zTXt", png)


@pytest.mark.parametrize(
    "curves",
    [
        [line([1], usd=1e-4)],
        [line([20], usd=1e-4)],
        [line([1, 2, 3])],
        [line([1, 40], 1.0, half=0.0, usd=1e-4, accuracy_low=0.99)],
        [line([1, 40], 0.0, half=0.0, usd=1e-4, accuracy_high=0.01)],
        [line([1, 5], usd=0.0, tokens_per_question=0.0)],
        [line([1, 2], accuracy_low=None, accuracy_high=None, tokens_per_question=None)],
        [PRICED, curve(point(1), llm="unpriced")],
        [curve(point(n, usd=1e-6 * 10**n), llm=f"llm-{n}" + "x" * 60) for n in range(1, 10)],
        [curve(*(point(n, usd=1e-4 + 1e-12 * n) for n in (1, 2)))],
    ],
)
def test_every_shape_of_curve_can_be_drawn(curves):
    assert pictures.curves(curves).png(50).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "name", ["$x_{", "_hidden", "\x1b[31m", "模型", "a" * 300, "\\frac{1}{2}$", "%s {0}"]
)
def test_names_are_drawn_as_they_are(name):
    assert pictures.curves([replace(PRICED, llms=(name,), dataset=name)]).png(50)


def figure_of(*curves):
    with own_style():
        figure = pictures.curves(curves).figure()
        figure.draw_without_rendering()
    return figure


def test_a_picture_says_what_it_shows_and_its_legend_hides_none_of_it():
    figure = figure_of(PRICED)
    [axes], [legend] = figure.axes, figure.legends
    assert axes.get_xscale() == "log"
    ticks = [label.get_text() for label in axes.get_xticklabels()]
    assert [tick for tick in ticks if tick] == ["0.01", "0.03", "0.1", "0.3"]
    assert not axes.get_window_extent().overlaps(legend.get_window_extent())
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == ["95 % interval", "pass@n ceiling", "single call"]
    assert "gpt-3.5-turbo" in [text.get_text() for text in axes.texts]  # at the line's end
    assert axes.get_title(loc="left") == "self-consistency on bigbench_date, gpt-3.5-turbo"
    assert "\n".join(subtitles(PRICED)) in [text.get_text() for text in axes.texts]


@pytest.mark.parametrize(
    ("curves", "label"),
    [
        ([PRICED], "USD per 1,000 questions"),
        (
            [PRICED, curve(point(1), llm="unpriced")],
            "mean tokens per question, prompt + output; USD not known",
        ),
        (
            [curve(point(1, tokens_per_question=None), point(4))],
            "CoTs per question, n; cost not known",
        ),
    ],
)
def test_cost_is_dollars_else_tokens_else_counts_and_says_so(curves, label):
    [axes] = figure_of(*curves).axes
    assert axes.get_xlabel() == label


def test_all_right_stays_inside_the_picture():
    [axes] = figure_of(line(range(1, 41), 1.0, half=0.0, accuracy_low=0.99)).axes
    assert 100 < axes.get_ylim()[1] <= 102
    assert "100 %" in [label.get_text() for label in axes.get_yticklabels()]


def test_files_are_written_whole_into_a_new_folder_and_again(tmp_path):
    folder, files = tmp_path / "a" / "b", {"x.csv": b"1\n", "y.png": b"2"}
    paths = save_files(folder, files)
    assert {path: path.read_bytes() for path in folder.iterdir()} == dict(
        zip(paths, files.values(), strict=True)
    )
    before = paths[0].stat()
    (tmp_path / "usual").write_bytes(b"")
    assert before.st_mode == (tmp_path / "usual").stat().st_mode
    save_files(folder, files)
    assert paths[0].stat().st_mtime_ns == before.st_mtime_ns


def test_other_content_is_refused_before_anything_is_written_unless_asked(tmp_path):
    (tmp_path / "b").write_bytes(b"mine")
    with pytest.raises(
        StorageError, match="already holds b with other content, and nothing was overwritten"
    ):
        save_files(tmp_path, {"a": b"1", "b": b"2"})
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
    assert (tmp_path / "b").read_bytes() == b"mine"
    save_files(tmp_path, {"b": b"2"}, replace=True)
    assert (tmp_path / "b").read_bytes() == b"2"


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, os.strerror(28))

    (tmp_path / "x").write_bytes(b"old")
    calls = iter([lambda _: None, full])  # the first file fits, the second does not
    monkeypatch.setattr("feval.report.files.os.fsync", lambda descriptor: next(calls)(descriptor))
    with pytest.raises(StorageError, match="No space left on device"):
        save_files(tmp_path, {"x": b"1", "y": b"2"}, replace=True)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() == b"old"


def test_no_report_is_written_into_a_recording(tmp_path):
    toy = write_toy(tmp_path / "toy", {"alpha": [["4"]]}, ["4"])
    for folder, where in (
        (toy, "is a"),
        (toy / "votes", "lies inside the"),
        (toy / "curves", "lies inside the"),
    ):
        with pytest.raises(StorageError, match=rf"{where} recording.*, which never changes"):
            save_files(folder, {"curve.csv": b"n\n"}, replace=True)
    assert verify_recording(toy).ok


def test_what_a_method_has_and_learnt_from_is_said_for_people(tmp_path):
    toy = write_toy(tmp_path / "toy", {"alpha": [["4"], ["4"]]}, ["4", "5"])
    dataset, [llm] = load("toy", recording=toy)
    method = AdaptiveConsistency(budget=1, threshold=0.9123456789012)
    evaluation = evaluate(method, dataset, llm, train_fraction=0.5, replicates=1)
    assert evaluation.fields["threshold"] == method.threshold
    [table, *_] = evaluation_tables([evaluation])
    assert any("threshold=0.912346" in note for note in table.notes)
    assert "1 other question was set aside for training and is not judged" in table.notes


@given(st.text(alphabet="'=+-@\t\r\n,\"a1 ", max_size=6) | st.text(max_size=20))
def test_text_in_a_csv_is_no_formula_and_comes_back(name):
    name = name.encode(errors="replace").decode()
    [_, [same, number]] = csv.reader(
        io.StringIO(csv_text(["name", "n"], [[name, -0.5]]), newline="")
    )
    assert not same.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    assert (text_of_cell(same), number) == (name, "-0.5")
