"""The HTML page and the picture of a comparison: what they say, that they say it safely, and a
click through a real browser.

The recorded answers are written out in `POOLS` and taken in recorded order, so that what every
method answers can be read off.
"""

import csv
import html
import io
import json
import re
import struct
from dataclasses import replace

import pytest
from chromium import first_data, outside_data
from small import TOY, letters, pool, question

from feval.comparison.comparison import compare, traces
from feval.comparison.plan import ComparedMethod, Plan
from feval.recording import LLMInfo, RecordingWriter
from feval.replay.loading import load
from feval.report import pictures
from feval.report.page.document import escaped_json, table_data
from feval.report.page.page import comparison_files, comparison_page
from feval.report.page.questions import Caps
from feval.report.pictures.drawing import own_style
from feval.report.tables.comparisons import comparison_tables
from feval.report.text import percent, visible

EVIL = (
    "</script><img src=x onerror=\"document.title='owned'\">'&amp;<!--\u2028\u2029\u202egnp.\u200f"
)
CHEAP, STRONG = "gpt-4o-mini", "gpt-3.5-turbo"
GOLDS = ["1", "2", "3", EVIL]
POOLS = {
    CHEAP: letters("112-", "9229", "4444", "----"),
    STRONG: [
        ["1", "1", "1", "1"],
        ["9", "9", "9", "9"],
        ["5", None, "5", "5"],
        [EVIL, EVIL, EVIL, "7"],
    ],
}
# In recorded order, at the smallest and the largest budget: answers, and CoTs drawn of each.
ANSWERS = {
    "cheap": [(["1", "9", "4", None], [[1]] * 4), (["1", "2", "4", None], [[3]] * 4)],
    "strong": [(["1", "9", "5", EVIL], [[drawn]] * 4) for drawn in (1, 3)],
    "patient": [(["1", "9", "4", EVIL], [[1, 0]] * 3 + [[1, 2]])] * 2,
}
PATIENT = """
def patient(question, cheap, strong):
    return cheap.sample(1).answers[0] or strong.sample(2).answers[0]
"""
LONG = "first words " + "x" * 5000 + " last words"

pytestmark = pytest.mark.filterwarnings("ignore:Glyph")


def _text(row, sample):
    return {0: f"A thought {EVIL} on {row}, {sample}.", 3: LONG}.get(
        sample, f"Thought {sample} about question {row}."
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the recording, the user's method and the page are."""
    base = tmp_path_factory.mktemp("page")
    (base / "mine.py").write_text(PATIENT)
    choices = (("A", EVIL), ("B", "two"))
    with RecordingWriter(
        base / "recording", operation={"name": "test"}, prices="2025-06-02"
    ) as writer:
        asked = (question(i, gold, f"What is {i}? {EVIL}") for i, gold in enumerate(GOLDS))
        writer.add_dataset(TOY, [replace(each, choices=choices) for each in asked])
        for llm, answers in POOLS.items():
            rows = (
                replace(
                    pool(row, own, tokens=range(10 + 7 * row, 14 + 7 * row)),
                    texts=[_text(row, sample) for sample in range(4)],
                )
                for row, own in enumerate(answers)
            )
            writer.add_pools("toy", LLMInfo(llm), "words", rows)
    return base


def _plan(*entries, order="recorded", resamples=9):
    return Plan(
        dataset="toy", recordings=("recording",), entries=entries, order=order, resamples=resamples
    )


def _entries():
    sweep = ("n", (1, 3))
    return (
        ComparedMethod(label="cheap", method="self-consistency", llms=(CHEAP,), sweep=sweep),
        ComparedMethod(label="strong", method="self-consistency", llms=(STRONG,), sweep=sweep),
        ComparedMethod(label="patient", method="mine.py:patient", llms=(CHEAP, STRONG)),
        ComparedMethod(label=EVIL, method="self-consistency", fields={"n": 99}, llms=(CHEAP,)),
    )


@pytest.fixture(scope="module")
def comparison(folder):
    return compare(
        _plan(*_entries(), resamples=200), base=folder, methods=[f"{folder}/mine.py:patient"]
    )


@pytest.fixture(scope="module")
def loaded(folder):
    return load("toy", [CHEAP, STRONG], folder / "recording")


@pytest.fixture(scope="module")
def page(comparison, folder):
    return page_of(comparison, folder, receipt="receipt.json")


def page_of(comparison, folder, **options):
    return comparison_files(comparison, base=folder, **options)["report.html"].decode()


def explorer(page):
    return first_data(page)["explorer"]


def all_points(comparison):
    points = (point for curve in comparison.curves for point in curve.points)
    return [*points, *comparison.baselines]


def page_tables(comparison):
    return [table_data(table) for table in comparison_tables(comparison, page=True)]


def test_every_method_is_followed_to_where_it_stopped(comparison, folder, loaded):
    dataset, llms = loaded
    followed = traces(comparison, dataset, llms)
    assert followed.order == "recorded"
    assert not followed.missing
    for curve, expected in zip(followed.curves, ANSWERS.values(), strict=True):
        for trace, (answers, cots) in zip((curve[0], curve[-1]), expected, strict=True):
            codes = enumerate(trace.answer.tolist())
            assert [dataset.candidates(row)[c] if c >= 0 else None for row, c in codes] == answers
            assert trace.cots.T.tolist() == cots


@pytest.mark.parametrize("order", ["recorded", "seeded"])
def test_following_the_first_questions_is_the_beginning_of_following_all(folder, loaded, order):
    dataset, llms = loaded
    settings = {"budget": 4, "window": 2, "ranking": "prompt-length"}
    whole = ComparedMethod(
        label="by difficulty", method="difficulty-adaptive", fields=settings, llms=(CHEAP,)
    )
    compared = compare(_plan(_entries()[1], whole, order=order), base=folder)
    assert not compared.missing
    followed, first = traces(compared, dataset, llms), traces(compared, dataset, llms, questions=2)
    assert (first.missing, first.judged, first.rows.tolist()) == ((), 4, [0, 1])
    for curve, begun in zip(followed.curves, first.curves, strict=True):
        for trace, beginning in zip(curve, begun, strict=True):
            assert beginning.answer.tolist() == trace.answer[:2].tolist()
            assert beginning.cots.tolist() == trace.cots[:, :2].tolist()


def test_a_method_that_fails_later_is_said_and_the_others_are_followed(comparison, folder, loaded):
    dataset, llms = loaded
    entry = _entries()[2].changed(method="gone.py:patient")
    curves = (*comparison.curves[:2], replace(comparison.curves[2], entry=entry))
    followed = traces(replace(comparison, curves=curves), dataset, llms)
    assert [len(curve) for curve in followed.curves] == [2, 2, 0]
    ((label, reason),) = followed.missing
    assert label == "patient"
    assert "gone.py" in reason
    page = comparison_page(replace(comparison, curves=curves), dataset, llms, traces=followed)
    assert any("patient is not followed here" in note for note in explorer(page)["notes"])


def test_seeded_draws_show_the_cots_in_the_order_of_replicate_0(comparison, folder, loaded):
    dataset, llms = loaded
    seeded = replace(comparison, plan=comparison.plan.changed(order="seeded", seed=5))
    followed = traces(seeded, dataset, llms)
    book = explorer(comparison_page(seeded, dataset, llms, traces=followed))
    for place, llm in enumerate(llms):
        for row, asked in enumerate(book["questions"]):
            codes, tokens, _, _ = asked["d"][place]
            drawn, words = llm.seeded(5)(row, 4).cots, dataset.candidates(row)
            assert [None if code < 0 else words[code] for code in codes] == [
                cot.answer for cot in drawn
            ]
            assert tokens == [cot.tokens for cot in drawn]
    assert "seed 5, replicate 0" in book["lede"]


def test_the_page_holds_the_numbers_of_the_comparison(comparison, page):
    data = first_data(page)
    for curve, output in zip(comparison.curves, data["curves"], strict=True):
        for point, shown in zip(curve.points, output["points"], strict=True):
            assert (shown["y"], shown["x"]["usd"]) == (point.accuracy, point.usd_per_question)
    frontier = [[p.label, p.cost, p.accuracy] for p in comparison.frontier]
    assert data["frontier"][comparison.plan.cost] == frontier
    assert [curve["look"] for curve in data["curves"]] == [[i, i, 0] for i in range(3)]
    assert [curve["look"] for curve in data["ceilings"]] == [[None, "10 4"], [None, "2 3.2"]]
    tables = {table["id"]: table for table in data["tables"]}
    usd = [point.usd_per_question for point in all_points(comparison)]
    assert [row[4]["s"] for row in tables["results"]["rows"]] == usd
    errors = [point.errors().values() for curve in comparison.curves for point in curve.points]
    known = [[*shares] for shares in errors if None not in shares]
    assert [[cell["s"] for cell in row[2:]] for row in tables["errors"]["rows"]] == known
    assert known
    assert len(tables["differences"]["rows"]) == len(comparison.differences)
    assert [row[0] for row in tables["missing"]["rows"]] == [EVIL]
    assert "99" in tables["missing"]["rows"][0][1]
    facts = dict(data["facts"])
    assert facts["recordings"] == comparison.curves[0].points[0].recording_hashes[0]
    assert "2025-06-02" in facts["price list"]
    assert facts["draws"] == "draws-v1, seed 0; recorded order"
    assert data["verify"][-1] == "$ feval verify receipt.json --method mine.py:patient"


def test_where_both_vary_colours_are_llms_and_markers_methods(folder, opened):
    entry = _entries()[0]
    entries = [
        entry.changed(label=f"{method} ({llm})", llms=(llm,))
        for llm in (CHEAP, STRONG)
        for method in ("one", "two")
    ]
    crossed = compare(_plan(*entries), base=folder)
    curves = first_data(page_of(crossed, folder))["curves"]
    assert [each["look"] for each in curves] == [[0, 0, 0], [0, 1, 1], [1, 0, 0], [1, 1, 1]]
    browser = opened(crossed)
    assert browser.texts("#curve .legend button")[:4] == [CHEAP, STRONG, "one", "two"]
    for key, left in ((STRONG, 2), ("one", 1)):
        browser.press(key, "document.querySelector('.legend')")
        lines = browser.value(
            "document.querySelectorAll('.plot path[stroke-width=\"2.3\"]').length"
        )
        assert lines == left


def test_the_same_comparison_gives_the_same_bytes_without_a_date(comparison, folder):
    first, second = (comparison_files(comparison, base=folder) for _ in range(2))
    assert first == second
    assert first["comparison.png"].startswith(b"\x89PNG")
    drawn = first["comparison.svg"]
    assert b"<svg" in drawn
    assert b"date>" not in drawn
    assert not re.search(rb"(href|src)=\"(?!#)", drawn)  # and refers to nothing outside


def test_costs_are_usd_per_1000_questions(page):
    data, unit = first_data(page), "USD per 1,000 questions"
    assert unit in [column["name"] for column in data["tables"][1]["columns"]]
    (usd,) = (axis for axis in data["axes"] if axis["key"] == "usd")
    assert usd | {"scale": 1000, "unit": unit, "label": unit} == usd
    assert re.search(rf"Most accurate within 0\.0[0-9]+ {unit}: .+; within 0\.", page)


def test_numbers_of_a_column_but_dollars_have_equally_many_decimals(comparison):
    first = replace(comparison.differences[0], difference=0.2, low=0.0000123, high=0.31)
    for table in page_tables(replace(comparison, differences=(first, *comparison.differences))):
        for place, column in enumerate(table["columns"]):
            if "USD" in column["name"] or table["id"] == "reaches":
                continue
            cells = [row[place]["t"] for row in table["rows"] if isinstance(row[place], dict)]
            digits = (len(each) for cell in cells for each in re.findall(r"\.([0-9]+)", cell))
            assert len({*digits}) <= 1, table["id"]


def test_a_saving_is_a_percentage_and_more_than_the_double_is_said_as_times_the_cost(comparison):
    first = comparison.savings[0]
    ratios = {
        ("+40.0 %", "-100.0 % to +50.0 %"): (0.6, 0.5, 2.0),
        ("63.2 times the cost", "unbounded to -50.0 %"): (63.2, 1.5, None),
    }
    rows = tuple(
        replace(first, ratio=x, ratio_low=low, ratio_high=high) for x, low, high in ratios.values()
    )
    tables = {table["id"]: table for table in page_tables(replace(comparison, savings=rows))}
    assert [(row[5]["t"], row[6]["t"]) for row in tables["savings"]["rows"]] == [*ratios]


def test_the_first_sentences_say_the_best_at_three_budgets(comparison, page):
    (result,) = re.findall('<p class="result">(.*?)</p>', page)
    assert set(re.findall("<b>(.*?)</b>", result)) <= {curve.label for curve in comparison.curves}
    plain = html.unescape(re.sub("</?b>", "", result)).replace("\N{NO-BREAK SPACE}", " ")
    best, differences = re.split(r"\. (?=\w+ of )", plain)
    points = [(p, curve.label) for curve in comparison.curves for p in curve.points]
    said = best.removeprefix("Most accurate ").split("; ")
    budgets = re.findall(r"within ([0-9.]+)", best)
    for budget, words in zip(budgets, said, strict=True):
        most = 1.003 * float(budget) / 1000
        within = [(p.accuracy, label) for p, label in points if p.usd_per_question <= most]
        accuracy, label = max(within)
        noise = rf"\((none|\d+) of {len(within) - 1} other settings? within noise of it\)"
        assert re.search(noise if within[1:] else r"\(the only setting\)", words)
        assert ": the same" in words or re.search(f"{label}.*{percent(accuracy)} % right", words)
    clear = sum(row.p_holm is not None and row.p_holm <= 0.05 for row in comparison.differences)
    assert f"{clear or 'None'} of {comparison.tests} differences" in differences


@pytest.mark.parametrize(
    "nasty", [EVIL, "\ud800 alone", "]]>", "\x00\x1b[31m", "𝔘 עברית", "`${1}`", "</SCRIPT >"]
)
def test_json_in_a_script_block_comes_back_as_it_was_and_cannot_end_the_block(nasty):
    text = escaped_json({nasty: [nasty, None, 0.1]})
    assert json.loads(text) == {nasty: [nasty, None, 0.1]}
    assert not re.search("[<>&\u2028\u2029]", text)
    text.encode()  # no lone surrogate is left


def test_nothing_of_strangers_stands_outside_the_data(comparison, loaded):
    dataset, llms = loaded
    plan = comparison.plan.model_copy(update={"dataset": EVIL + "\ud800"})
    page = comparison_page(replace(comparison, plan=plan), dataset, llms)
    outside = outside_data(page)
    assert "<img" not in outside
    assert page.count("</script>") == 2
    assert f"<h1>Methods compared on {html.escape(EVIL[:9])}" in outside
    assert "\u202e" not in page.replace("\\u202e", "").partition('id="data"')[0]
    page.encode()


def test_the_page_names_nothing_to_fetch(page):
    outside = outside_data(page)
    # a name, not an address
    assert re.findall(r"https?://[^\s\"']+", outside) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"\b(src|href)=\"(?!data:|#)", outside)
    assert "default-src 'none'" in outside
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", outside
    )


def test_long_texts_are_cut_in_the_middle_and_it_is_said(page):
    book = explorer(page)
    text = book["questions"][0]["d"][0][2][3]
    assert len(text) == 600
    assert text.startswith("first words xxx")
    assert text.endswith("xxx last words")
    assert "[…]" in text
    assert any("600 characters are cut" in note for note in book["notes"])


def test_a_budget_of_text_keeps_the_first_cots_and_it_is_said(comparison, folder):
    whole = explorer(page_of(comparison, folder))
    lengths = [len(text) for q in whole["questions"] for pool in q["d"] for text in pool[2]]
    book = explorer(page_of(comparison, folder, caps=Caps(texts=sum(lengths) // 2 + 1)))
    remaining = [pool[2] for q in book["questions"] for pool in q["d"]]
    assert {len(texts) for texts in remaining} == {2}
    # answers are all there
    assert all(len(pool[0]) == 4 for q in book["questions"] for pool in q["d"])
    assert any("only the first 2 CoTs" in note for note in book["notes"])


def test_questions_beyond_the_cap_are_left_out_and_it_is_said(comparison, folder):
    caps = Caps(questions=3, question=20, answer=9)
    book = explorer(page_of(comparison, folder, caps=caps))
    assert [q["i"] for q in book["questions"]] == ["toy/0", "toy/1", "toy/2"]
    assert all(len(q["q"]) <= 20 for q in book["questions"])
    assert any("first 3 of 4 questions" in note for note in book["notes"])


def test_the_picture_shows_every_line_and_hides_none(comparison):
    with own_style():
        figure = pictures.comparison(comparison).figure()
        figure.draw_without_rendering()
    [axes], [legend] = figure.axes, figure.legends
    assert not legend.get_window_extent().overlaps(axes.get_window_extent())
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels[:3] == ["cheap", "strong", "patient"]
    assert {"single call", "Pareto frontier", "95 % interval"} <= set(labels)
    assert sum(label.startswith("pass@n ceiling of ") for label in labels) == 2
    (low, high), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    for point in (point for curve in comparison.curves for point in curve.points):
        assert low < 1000 * point.usd_per_question < high
        assert bottom <= 100 * point.accuracy <= top


def test_a_comparison_of_one_point_can_be_drawn(comparison, folder):
    alone = compare(
        comparison.plan.changed(entries=_entries()[2:3]), base=folder, methods=comparison.methods
    )
    files = comparison_files(alone, base=folder)
    tables = first_data(files["report.html"].decode())["tables"]
    assert "ranking" not in {table["id"] for table in tables}


@pytest.fixture
def clean(browser, page, folder):
    """The page, freshly opened; afterwards nobody complained and nothing was fetched."""
    (folder / "report.html").write_text(page, "utf-8")
    with browser.visit(folder / "report.html"):
        yield browser


@pytest.fixture
def opened(browser, folder):
    """Opens the page of another comparison."""

    def open_page(comparison):
        (folder / "other.html").write_text(page_of(comparison, folder), "utf-8")
        browser.open(folder / "other.html")
        return browser

    return open_page


def test_injected_markup_stays_text(clean):
    for number in range(4):
        clean.click(f"document.querySelectorAll('.questions > li > button')[{number}]")
    clean.click("document.querySelector('.cell')")
    assert clean.value("document.images.length") == 0
    assert clean.value("document.title") == "Methods compared on toy"
    for selector in (".open .text", ".cot .text", ".choices li", "#missing td"):
        assert any(visible(EVIL) in text for text in clean.texts(selector)), selector
    assert not re.search("[\u2028\u2029\u202e\u200f]", clean.value("document.body.innerText"))


def test_hovering_a_point_tells_its_numbers(clean, comparison):
    assert clean.value("document.querySelector('.tip').hidden")
    point = comparison.curves[1].points[1]
    # the second line's squares
    script = "document.querySelectorAll('.plot path[d^=\"M-4.2-4.2\"]')[1]"
    clean.move(*clean.place(script))
    clean.wait("!document.querySelector('.tip').hidden")
    tip = clean.value("document.querySelector('.tip').innerText")
    accuracy, low = percent(point.accuracy), percent(point.accuracy_low)
    for words in ("strong", "n=3", f"accuracy {accuracy} %", f"{low} to ", "3 CoTs/question"):
        assert words in tip


def test_the_arrow_keys_go_through_the_points(clean):
    clean.value("document.querySelector('.plot').focus()")
    said = []
    for _ in range(2):
        clean.key("ArrowRight")
        said += clean.texts("[role=status].said")
    assert "accuracy" in said[0]
    assert said[0] != said[1]
    clean.key("Escape")
    assert clean.value("document.querySelector('.tip').hidden")


def test_axes_can_be_changed_and_lines_hidden(clean):
    assert "USD" in clean.value("document.querySelector('.plot .axis-name').textContent")
    clean.press("CoTs")
    assert "CoTs" in clean.value("document.querySelector('.plot .axis-name').textContent")
    squares = "document.querySelectorAll('.plot path[d^=\"M-4.2-4.2\"]').length"
    assert clean.value(squares) == 2
    for left in (0, 2):
        clean.press("strong", "document.querySelector('.legend')")
        assert clean.value(squares) == left


def unfold(browser, name):
    browser.click(f"document.querySelector('nav a[href=\"#{name}\"]')")


def test_chart_and_differences_come_first_and_tables_are_folded(clean):
    names = clean.value("[...document.querySelectorAll('main > section')].map((s) => s.id)")
    assert names[:3] == ["curve", "differences", "best"]
    folded = "[...document.querySelectorAll('section > details:not([open])')].map((d) => d.parentNode.id)"  # noqa: E501
    tables = ["results", "errors", "frontier", "savings", "reaches", "ranking", "areas"]
    assert clean.value(folded) == tables
    unfold(clean, "savings")
    assert clean.value(folded) == [name for name in tables if name != "savings"]
    clean.value("dispatchEvent(new Event('beforeprint'))")
    assert clean.value(folded) == []
    clean.value("dispatchEvent(new Event('afterprint'))")
    assert len(clean.value(folded)) == 6
    clean.value("location.hash = '#ranking'")
    clean.wait("document.querySelector('#ranking details').open")


def test_marks_and_dots_have_a_key(clean):
    assert clean.texts("#questions > .legend .key") == [
        "✓right", "✗wrong", "–no answer", "7recorded, and not drawn",
    ]  # fmt: skip
    assert clean.texts("#ranking .legend") == clean.texts("#differences .legend")


def test_a_heading_sorts_its_table(clean, comparison):
    unfold(clean, "results")
    shares = sorted(point.accuracy for point in all_points(comparison))
    for direction, shown in (("descending", shares[::-1]), ("ascending", shares)):
        clean.press("accuracy %", "document.querySelector('#results')")
        assert clean.texts("#results td:nth-child(3)") == [percent(share) for share in shown]
        head = "document.querySelector('#results th:nth-child(3)').getAttribute('aria-sort')"
        assert clean.value(head) == direction


def test_a_long_table_of_pairs_starts_with_those_of_the_strongest(opened, comparison):
    wordy = replace(comparison.differences[0], a="a method with a long name " * 4)
    many = replace(comparison, differences=(*comparison.differences * 20, wordy))
    browser = opened(many)
    best = comparison.ranking[0].label
    own = sum(best in (row.a, row.b) for row in many.differences)
    assert 0 < own < len(many.differences)
    rows = "document.querySelectorAll('#differences tbody tr').length"
    for event, made in (("before", len(many.differences)), ("after", 10)):  # else the first
        browser.value(f"dispatchEvent(new Event('{event}print'))")
        assert browser.value(rows) == made
    browser.press(f"Show all {own} rows", "document.querySelector('#differences')")
    assert browser.value(rows) == own
    assert f"{own} of {len(many.differences)} rows" in browser.texts("#differences .controls")[0]
    browser.value("(() => { const m = document.querySelector('#differences select'); m.selectedIndex = 0;"  # noqa: E501
                  "m.dispatchEvent(new Event('change')); })()")  # fmt: skip
    assert browser.value(rows) == len(many.differences)
    browser.view(400, 800)
    browser.wait("document.documentElement.scrollWidth <= 400")


def test_a_cell_with_a_paragraph_is_folded(opened, comparison):
    [first, *_] = comparison.missing
    browser = opened(replace(comparison, missing=(replace(first, reason="word " * 99),)))
    [start], [whole] = (browser.texts(f"#missing td {kind}") for kind in ("summary", "details"))
    assert len(start) < 120
    assert whole.split() == ["word"] * 99


def test_a_difference_that_was_not_tested_has_an_open_dot(opened, comparison):
    row = replace(comparison.differences[0], difference=0.1, low=0.05, high=0.15)
    untested = replace(row, p_value=None, p_holm=None, untested="interpolation")
    fills = opened(replace(comparison, differences=(row, untested))).value(
        "[...document.querySelectorAll('#differences td circle')].map((dot) =>"
        " dot.getAttribute('fill'))"
    )
    assert fills == ["var(--accent)", "var(--paper)"]


def test_above_four_methods_the_frontier_has_bands_and_the_others_can_be_had(opened, comparison):
    points = tuple(replace(each, right=0 * each.right) for each in comparison.curves[1].points)
    wrong = [replace(comparison.curves[1], label=f"{i}", points=points) for i in range(9)]
    many = replace(comparison, curves=(*comparison.curves, *wrong))
    browser = opened(many)
    bands = "document.querySelectorAll('.plot path[opacity=\"0.13\"]').length"
    frontier = {point.label for point in many.frontier}
    shown = sum(len(c.points) > 1 and c.label in frontier for c in many.curves)
    assert browser.value(bands) == shown > 0
    browser.press("95 % interval, others", "document.querySelector('.legend')")
    assert browser.value(bands) == 11
    strokes = (
        "[...document.querySelectorAll('.legend path')].map((p) =>"
        " p.getAttribute('stroke')).filter((s) => /--c/.test(s))"
    )
    assert len(set(browser.value(strokes))) == 12
    assert browser.texts(".heads .marks span")[:2] == ["cheap", "strong"]


def test_figure_and_tables_can_be_saved(clean, comparison):
    clean.value(
        "(() => { window.saved = []; URL.createObjectURL = (blob) => { saved.push(blob); return"
        " '#'; };HTMLAnchorElement.prototype.click = () => {}; })()"
    )
    unfold(clean, "results")
    clean.press("CSV", "document.querySelector('#results')")
    clean.press("Points (CSV)")
    rows = list(csv.DictReader(io.StringIO(clean.value("saved[0].text()"))))
    points = all_points(comparison)
    assert [float(row["accuracy %"]) for row in rows] == [
        float(percent(point.accuracy)) for point in points
    ]
    exact = list(csv.DictReader(io.StringIO(clean.value("saved[1].text()"))))
    own = [float(row["usd_per_question"]) for row in exact if row["kind"] == "method"]
    assert own == [point.usd_per_question for point in points[: len(own)]]
    clean.press("Picture (PNG)")
    clean.wait("saved.length === 3")
    head = clean.value(
        "saved[2].arrayBuffer().then((bytes) => [...new Uint8Array(bytes.slice(0, 24))])"
    )
    assert bytes(head[:8]) == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", bytes(head[16:]))
    assert width > 1500
    assert height > 800
    clean.requests[:] = [url for url in clean.requests if not url.startswith("data:image/svg")]


def test_a_phone_shows_accuracies_and_keeps_the_first_column(clean):
    clean.view(400, 850)
    clean.wait("document.querySelectorAll('.plot .name').length === 2")
    unfold(clean, "results")
    for table in ("results", "differences"):  # behind the labels of both methods of a pair
        clean.wait(
            f"document.querySelector('#{table} td:nth-child(3)').getBoundingClientRect().right"
            " < 400"
        )
    left = "document.querySelector('#results td').getBoundingClientRect().left"
    before = clean.value(left)
    clean.value("document.querySelector('#results .scroll').scrollLeft = 300")
    assert clean.value("document.querySelector('#results .scroll').scrollLeft") > 100
    assert abs(clean.value(left) - before) < 2


@pytest.mark.parametrize(("budget", "rows"), [("largest", "123"), ("smallest", "23")])
def test_questions_on_which_methods_disagree(clean, budget, rows):
    clean.press(budget)
    clean.press("Methods disagree")
    assert clean.texts(".questions .id") == [f"toy/{row}" for row in rows]
    said = clean.value("document.querySelector('#questions').innerText")
    assert f"{len(rows)} of 4 questions" in said


def test_questions_are_chosen_by_what_methods_made_of_them_and_by_text(clean):
    for label, found in (("All wrong", "2"), ("All right", "0"), ("Some right, some wrong", "13")):
        clean.press(label)
        assert clean.texts(".questions .id") == [f"toy/{row}" for row in found]
    clean.press("All")
    for words, found in (("WHAT IS 2", "2"), ("onerror", "0123"), ("nowhere at all", "")):
        clean.value("document.querySelector('input[type=search]').select()")
        clean.type(words)
        assert clean.texts(".questions .id") == [f"toy/{row}" for row in found]


def test_an_opened_question_shows_what_was_drawn_and_where_a_method_stopped(clean):
    clean.click("document.querySelectorAll('.questions > li > button')[3]")
    chips = clean.texts(".open .chip")
    assert [chip.split()[0] for chip in chips] == ["–", "–", "✓", "✓", "✓"]
    assert chips[-1].endswith("(1 + 2)")
    assert chips[0] == "– n=1: no answer (1)"
    # patient: one CoT of the cheap LLM, two of the other
    clean.click("[...document.querySelectorAll('.chip')].at(-1)")
    assert clean.texts(".open .badge") == ["1 of 4 drawn by patient", "2 of 4 drawn by patient"]
    assert clean.texts(".open .stop") == ["stopped after 1", "stopped after 2"]
    unread = (
        "[...document.querySelectorAll('.strip')].map((s) => s.querySelectorAll('.unread').length)"
    )
    assert clean.value(unread) == [3, 2]
    clean.click("document.querySelectorAll('.strip')[1].querySelectorAll('.cell')[1]")
    said = clean.value("document.querySelector('.cot').innerText")
    assert "Thought 1 about question 3." in said
    assert "32 tokens" in said  # 10 + 7 * 3 + 1


def test_the_browser_refuses_to_fetch_for_the_page(clean):
    asked = "fetch('http://127.0.0.1:9/').then(() => 'fetched', (error) => 'refused')"
    assert clean.value(asked) == "refused"
    assert any("Content Security Policy" in error for error in clean.errors)
    clean.errors.clear()


def test_everything_can_be_reached_by_keyboard(clean):
    clean.value("document.querySelector('.questions > li > button').focus()")
    enter = {"key": "Enter", "text": "\r", "windowsVirtualKeyCode": 13}
    clean.send("Input.dispatchKeyEvent", type="keyDown", **enter)
    clean.wait("document.querySelector('.questions .open') !== null")
    button = "document.querySelector('.questions > li > button').getAttribute('aria-expanded')"
    assert clean.value(button) == "true"
    bare = (
        "[...document.querySelectorAll('[onclick], .cell, .chip, th button, nav a')].filter((e) =>"
        " e.tabIndex < 0).length"
    )
    assert clean.value(bare) == 0


@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_is_wider_than_the_screen_and_no_table_is_cut_on_a_wide_one(clean, width):
    clean.view(width, 800)
    clean.value("dispatchEvent(new Event('beforeprint'))")
    cut = (
        "[...document.querySelectorAll('.scroll')].filter((s) => s.scrollWidth > s.clientWidth)"
        ".length"
    )
    assert (clean.value(cut) == 0) == (width == 1400)
    clean.wait(f"{cut} === document.querySelectorAll('.scroll.more').length")  # which says so
    clean.click("document.querySelector('.questions > li > button')")
    clean.wait(f"document.querySelector('.plot').getBoundingClientRect().right <= {width}")
    assert clean.value("document.documentElement.scrollWidth") <= width
