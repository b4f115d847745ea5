"""The page of a recording: what it holds and leaves out, and a click through a real browser with
hostile texts.
"""

import json
import re
from dataclasses import replace

import pytest
from chromium import page_data
from command_line import failed, feval, said
from recorded_trees import tree, write_trees
from recorded_turns import write_turns
from small import TOY, pool, question, write_rows

from feval.recording import LLMInfo, ProbeRows, RecordingWriter, open_recording
from feval.report.page.questions import LIMITS, view_page
from feval.report.text import visible

EVIL = "</script><img src=x onerror=\"document.title='owned'\">'&amp;<!--\u2028\u202e\x1b[31m"
ANSWERS = {
    "org/one": [["1", "1", "2", None], ["3", "3", "3", "3"], ["7", EVIL, "7", "7"]],
    "two": [["1", "1"], ["3", "9"], [EVIL, None]],
}
GOLDS = ["1", "9", EVIL]
PAIRS = {"toy": ["org/one", "two"], "other": ["two"]}
PROBES = ProbeRows("toy/0", [0, 0, 1], [2, 4, 3], ["2", "1", "1"], ["2", "1", "1"])


def _rows(llm, row):
    own = pool(row, ANSWERS[llm][row])
    texts = [f"\N{ROCKET} {EVIL} sample {i}: {text}" for i, text in enumerate(own.texts)]
    thoughts = [f"secret {i} {EVIL}" if i == 1 else None for i in range(len(texts))]
    return replace(own, texts=texts, reasoning=thoughts if llm == "two" else None)


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    out = tmp_path_factory.mktemp("view") / "recording"
    with RecordingWriter(out, operation={"name": "test"}) as writer:
        for dataset, llms in (PAIRS | {"bare": []}).items():
            asked = [
                replace(question(i, gold, f"Question {i}? {EVIL}"), choices=(("A", EVIL),))
                for i, gold in enumerate(GOLDS)
            ]
            writer.add_dataset(replace(TOY, id=dataset), asked)
            for llm in llms:
                writer.add_pools(
                    dataset, LLMInfo(llm), "words", (_rows(llm, row) for row in range(3))
                )
        writer.add_rows("toy", "org/one", None, [PROBES])
    return open_recording(out)


@pytest.fixture(scope="module")
def page(recording):
    return view_page(recording, PAIRS)


def test_the_page_has_every_cot_with_its_answer(page):
    data, *blocks = page_data(page.html)
    assert (page.questions, len(data["questions"]), len(blocks), page.left_out) == (6, 6, 6, [])
    for place, (entry, block) in enumerate(zip(data["questions"], blocks, strict=True)):
        row, dataset = place % 3, [*PAIRS][place // 3]
        assert entry["g"] == entry["a"][entry["k"]] == GOLDS[row]
        held = {name: own for name, own in zip(data["llms"], entry["d"], strict=True) if own}
        assert [*held] == PAIRS[dataset]
        for name, (codes, tokens, finish, right) in held.items():
            assert right == []  # the gold's party says it
            own, answers = block[name], ANSWERS[name][row]
            assert [None if code < 0 else entry["a"][code] for code in codes] == answers
            assert tokens == [10 + i for i in range(len(codes))]
            ends = ["length" if answer is None else "stop" for answer in answers]
            assert [data["finish"][i] for i in finish] == ends
            for text, span, answer in zip(own["x"], own["s"], answers, strict=True):
                start, end = (2 * place for place in span or (0, 0))
                said = text.encode("utf-16-le")[start:end].decode("utf-16-le")
                assert said == answer or (answer in {None, EVIL} and not span)
    first, answers = blocks[0], data["questions"][0]["a"]
    assert first["two"]["r"] == [None, f"secret 1 {EVIL}"]
    traces = [[(tokens, answers[c]) for tokens, c in own] for own in first["org/one"]["t"]]
    assert traces[:2] == [[(2, "2"), (4, "1")], [(3, "1")]]


def test_the_table_of_llms_is_over_all_questions(recording):
    data, *_ = page_data(view_page(recording, PAIRS, first=1).html)
    rows = {(row[0], row[1]): [cell["t"] for cell in row[2:]] for row in data["tables"][0]["rows"]}
    # One in three of 2/4 + 0 + 1/4, and below of 1 + 1/2 + 1/2.
    assert rows["toy", "org/one"] == ["3", "12", "25.00", "8.33", "8.33", "11.5"]
    assert rows["other", "two"] == ["3", "6", "66.67", "16.67", "16.67", "10.5"]


def test_what_is_left_out_is_said(recording):
    first = view_page(recording, PAIRS, first=2)
    assert first.questions == 4
    for line in first.left_out:
        assert line.startswith("The first 2 of 3 questions of")
    small = view_page(recording, PAIRS, limits=replace(LIMITS, texts=1))
    assert small.questions == 2  # one of each dataset
    assert "would make the page larger than 1 bytes" in small.left_out[0]
    short = view_page(recording, PAIRS, limits=replace(LIMITS, cot=40))
    (line,) = short.left_out
    assert line.endswith("the middle is left out.")
    texts = [own["x"] for block in page_data(short.html)[1:] for own in block.values()]
    assert max(len(text) for own in texts for text in own) == 40


def test_trees_have_their_steps(tmp_path):
    folder = write_trees(tmp_path / "trees")
    data, first, *_ = page_data(view_page(open_recording(folder), {"toy": ["tree"]}).html)
    assert (first["tree"]["scorers"], first["tree"]["kind"]) == (["prm"], "tree of steps")
    codes = data["questions"][0]["d"][0][0]
    assert [place for place, code in enumerate(codes) if code > -2] == [2, 4, 5, 6]  # which end
    names = [column["name"] for column in data["tables"][0]["columns"]]
    assert names[3::4] == ["steps", "tokens each"]


def test_turns_have_what_was_sent(tmp_path):
    page = view_page(open_recording(write_turns(tmp_path / "turns")), {"toy": ["m@revise"]})
    own = page_data(page.html)[1]["m@revise"]
    assert own["kind"] == "CoTs and turns"
    assert own["x"][0].startswith("Thinking about 0")
    sent = "── user ──\nWhy?\n\n── assistant ──\n"
    assert own["x"][3].startswith(f"{sent}Thinking about 0")


def test_what_tools_say_is_folded_and_unfolds_to_all_of_it(browser, tmp_path):
    call, reply = {"function": {"name": "find", "arguments": "a" * 300}}, "so long " * 99 + "2"
    messages = [
        {"role": "assistant", "content": [{"type": "text", "text": "Wait."}], "tool_calls": [call]},
        {"role": "tool", "content": reply},
        {"role": "assistant", "content": "The answer is 2."},
    ]
    said = json.dumps(messages)
    rows = replace(pool(0, ["2"]), texts=[said])
    steps = replace(tree(0, [(None, "2", True)]), texts=[said])
    folder = write_rows(tmp_path / "r", ["2"], ("whole", [rows]), ("tree", [steps]))
    (tmp_path / "view.html").write_text(
        view_page(open_recording(folder), {"toy": ["whole", "tree"]}).html, "utf-8"
    )
    whole = [reply.strip(), json.dumps(call)]
    with browser.visit(tmp_path / "view.html"):
        browser.click("document.querySelector('.questions > li > button')")
        browser.click("document.querySelector('.cell')")
        for box in (".cot", ".tree"):
            assert browser.value(f"document.querySelectorAll('{box} details[open]').length") == 0
            heads = browser.texts(f"{box} summary")
            assert [head.split(" (")[1] for head in heads] == ["347 characters)", "793 characters)"]
            assert heads[0].startswith("calls find ")
            for place, text in enumerate(whole[::-1]):
                browser.click(f"document.querySelectorAll('{box} summary')[{place}]")
                shown = f"document.querySelectorAll('{box} details > .text')[{place}]"
                assert browser.value(f"{shown}.offsetHeight > 0")
                assert browser.value(f"{shown}.textContent").strip() == text
        assert browser.texts("mark") == ["2"]
        told = browser.value("document.querySelector('.cot > .text').innerText")
    assert "── assistant ──\nWait.\n" in told
    assert told.endswith("── assistant ──\nThe answer is 2.")
    shown = said("show", folder, "toy/0")
    cut = f"── tool ──\n{reply[:159]}… (793 characters)\n\n── assistant ──\nThe answer is 2.\n"
    assert cut in shown
    assert f"  ── tool ──\n  {reply[:159]}… (793 characters)\n" in shown


def test_the_command_writes_the_page(recording, tmp_path):
    path = tmp_path / "recording.html"
    command = ["show", recording.path, "--dataset", "toy", "--html", path, "--json"]
    written = {"path": str(path), "questions": 3, "left_out": []}
    assert json.loads(said(*command)) == written
    path.write_text("mine")
    failed(feval(*command), 1, "--force")
    for wrong, words in (
        (["--html", "x", "toy/0"], "leave QUESTION"),
        (["--force"], "name it with --html"),
        (["--html", f"{recording.path}/v.html"], "never changes"),
    ):
        result = feval("show", recording.path, *wrong)
        assert (result.exit_code != 0, words in result.stderr) == (True, True)


def test_an_llm_that_one_dataset_lacks_is_left_out_there(recording):
    def shown(*arguments):
        return feval("show", recording.path, *arguments)

    assert json.loads(shown("--llm", "org/one", "--json").stdout)["recorded"] == {"toy": 3}
    assert json.loads(shown("--json").stdout)["recorded"] == {"toy": 3, "other": 3}
    assert "no CoTs" in shown("--dataset", "bare").stderr
    assert "3 datasets" in shown("toy/0").stderr


@pytest.fixture
def clean(browser, page, tmp_path):
    """The page, freshly opened; afterwards nobody complained and nothing was fetched."""
    (tmp_path / "view.html").write_text(page.html, "utf-8")
    with browser.visit(tmp_path / "view.html", 1400):
        yield browser


def _ids(browser):
    return browser.texts(".questions .id")


def _choose(browser, number, option):
    browser.value(
        f"(() => {{ const m = document.querySelectorAll('select')[{number}]; m.selectedIndex ="
        f" [...m.options].findIndex((o) => o.text === {option!r}); m.dispatchEvent(new"
        " Event('change')); })()"
    )


def test_hostile_texts_stay_text(clean):
    for number in range(6):
        clean.click(f"document.querySelectorAll('.questions > li > button')[{number}]")
    for _ in range(clean.value("document.querySelectorAll('h3 .plainly').length")):
        clean.click(
            "[...document.querySelectorAll('h3 .plainly')].find((b) =>"
            " b.textContent.startsWith('Read'))"
        )
    assert clean.value("[document.images.length, document.title]") == [0, "Recording of toy, other"]
    spelled = visible(EVIL).replace("\\x1b", "\\u001b")
    for selector in (".cot .text", ".open > .text", ".choices li", ".histogram th", ".cell"):
        assert any(spelled in text for text in clean.texts(selector)), selector
    assert not re.search("[\u2028\u202e\x1b]", clean.value("document.body.innerText"))


def test_questions_are_ordered_filtered_and_searched(clean):
    _choose(clean, 0, "toy")
    assert _ids(clean) == ["toy/1", "toy/2", "toy/0"]  # 0 and 1/2, 1/4 and 1/2, 1/2 and 1
    clean.press("As recorded")
    assert _ids(clean) == ["toy/0", "toy/1", "toy/2"]
    _choose(clean, 1, "two")
    for label, row in (("No answer", 2), ("Wrong", 1)):
        clean.press(label)
        assert _ids(clean) == [f"toy/{row}"]
    clean.press("All CoTs")
    _choose(clean, 2, "length")
    assert _ids(clean) == ["toy/2"]
    _choose(clean, 2, "any")
    clean.click("document.querySelector('input[type=search]')")
    clean.type("SECRET 1 </SCRIPT>")
    clean.wait("document.querySelectorAll('.questions .id').length === 3")
    clean.value("document.querySelector('input[type=search]').select()")
    clean.type("about 1, sample 1. the answer is 9")
    clean.wait("document.querySelectorAll('.questions .id').length === 1")
    clean.click("document.querySelector('.questions > li > button')")
    assert clean.value(
        "[...document.querySelectorAll('.cell')].map((c) => c.classList.contains('unread'))"
    ) == [True, False]


def test_a_question_without_cots_is_listed_unless_a_filter_wants_some(browser, tmp_path):
    page = view_page(open_recording(write_trees(tmp_path / "trees")), {"toy": ["tree"]})
    (tmp_path / "trees.html").write_text(page.html, "utf-8")
    browser.open(tmp_path / "trees.html")
    assert _ids(browser) == ["toy/0", "toy/1", "toy/2"]
    assert browser.texts(".lede")[0] == "3 questions of toy, 5 CoTs of 1 LLM."
    browser.press("Wrong")
    assert _ids(browser) == ["toy/0"]
    browser.click("document.querySelector('.questions > li > button')")
    assert len(browser.texts(".tree li")) == 7


def test_a_cot_has_its_answer_marked_and_its_thoughts_folded(clean):
    _choose(clean, 0, "toy")
    clean.click("document.querySelectorAll('.questions > li > button')[2]")
    assert clean.texts(".histogram tbody tr:first-child :is(th, td)") == ["✓ 1", "2", "2"]
    clean.click("[...document.querySelectorAll('.cell')].at(-1)")
    assert clean.texts("mark") == ["1"]
    assert clean.value("document.querySelector('details').open") is False
    assert clean.texts(".cot .mark-answer") == ["✓ 1"]
    assert len(clean.texts(".traces .told")) == 4
    clean.click("document.querySelectorAll('.cell')[0]")
    heads = [text.split(",")[0] for text in clean.texts(".cot .id")]
    assert heads == ["CoT 0 of org/one", "CoT 1 of two"]


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_a_phone(clean, dark):
    clean.view(400, 850, dark=dark)
    clean.click("document.querySelector('.questions > li > button')")
    clean.click("document.querySelector('.cell')")
    assert clean.value("document.documentElement.scrollWidth") == 400
    assert clean.value("getComputedStyle(document.body).backgroundColor") == (
        "rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)"
    )
