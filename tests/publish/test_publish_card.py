"""The page of a recording: front matter that the Hub and `datasets` read, prose that people read,
words that stay.
"""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from unittest.mock import Mock

import pytest
import yaml
from huggingface_hub import DatasetCard
from markdown_it import MarkdownIt
from published import write
from recorded_probes import ALPHA, write_probed
from recorded_trees import write_trees
from recorded_turns import write_turns
from small import import_rows, pool, write_rows

from feval.cards.prices import PriceList
from feval.errors import CardError
from feval.hub import RepoState
from feval.importers import import_recording
from feval.publish import figures
from feval.publish.card import PICTURE, SURFACES
from feval.publish.figures import figures_of, picture
from feval.publish.front_matter import configs_of, split_names
from feval.publish.markdown import BEGIN, END
from feval.publish.release import RepositorySnapshot, prepare
from feval.recording import open_recording
from recorders.demo import bundled_recording

pytestmark = pytest.mark.usefixtures("blank_pictures")

REPO = "somebody/recording"
EVIL = "<script>alert(1)</script>|[x](javascript:y)`*#\u202e\u200b"


def seen(page=None):
    state = None if page is None else RepoState(REPO, "0" * 40, True, {}, {})
    return RepositorySnapshot(REPO, state, page)


def page(release):
    return release.files["README.md"].decode()


def body(text):
    return text.split("\n---\n", 1)[1]


def matter(text):
    found = yaml.safe_load(text.removeprefix("---\n").split("\n---\n", 1)[0])
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def demo_page():
    with bundled_recording() as folder:
        return page(prepare(folder, seen(), tag="v1"))


def test_the_hubs_client_reads_the_front_matter(demo_page):
    data = DatasetCard(demo_page).data
    assert (data.license, data.pretty_name) == (
        "apache-2.0",
        "Tiny sums: recorded chains of thought",
    )
    assert data.size_categories == ["10K<n<100K"]
    assert data.task_categories == ["text-generation", "question-answering"]
    assert "feval" in (data.tags or ())
    assert (
        matter(demo_page)["license_details"]
        == "Collection: Apache License 2.0. Questions: tiny_sums Apache-2.0. Outputs: Apache-2.0."
    )


def test_every_configuration_has_its_files_and_counts(demo_page):
    import pyarrow.parquet as pq

    found = matter(demo_page)
    configs = {config["config_name"]: config for config in found["configs"]}
    infos = {info["config_name"]: info for info in found["dataset_info"]}
    assert (
        list(configs)
        == list(infos)
        == ["tiny_sums", "tiny_sums-questions", "tiny_sums-requests", "tiny_sums-texts"]
    )
    assert [name for name, config in configs.items() if config.get("default")] == ["tiny_sums"]
    with bundled_recording() as folder:
        for name, config in configs.items():
            for file, split in zip(config["data_files"], infos[name]["splits"], strict=True):
                table = pq.read_table(folder / file["path"])
                assert (file["split"], table.num_rows) == (split["name"], split["num_examples"])
                assert [
                    feature["name"] for feature in infos[name]["features"]
                ] == table.column_names
            sizes = [(folder / file["path"]).stat().st_size for file in config["data_files"]]
            assert infos[name]["download_size"] == sum(sizes)


@pytest.mark.skipif(find_spec("datasets") is None, reason="the library `datasets` is not installed")
def test_features_and_sizes_are_spelled_as_datasets_spells_them(tmp_path):
    recording = open_recording(write(tmp_path / "r"))
    expected = [
        (config.features, str(recording.path / config.splits[0].paths[0]))
        for config in configs_of(recording)
    ]
    code = (
        "import sys, json, pyarrow.parquet as pq\nfrom datasets import Features\n"
        "for features, path in json.loads(sys.argv[1]):\n"
        "    own = Features.from_arrow_schema(pq.read_schema(path))\n"
        "    assert own._to_yaml_list() == features, (own._to_yaml_list(), features)\n"
    )
    subprocess.run([sys.executable, "-c", code, json.dumps(expected)], check=True, timeout=120)


def test_split_names_are_what_datasets_accepts_and_differ(tmp_path):
    llms = ["a/b-1", "a/b_1", "All", "..x..y", "-", "Ω", "gpt-3.5@t=0.8"]
    names = split_names(open_recording(write(tmp_path / "r", llms=llms)))
    assert list(names) == llms
    assert all(re.fullmatch(r"\w+(\.\w+)*", name, re.ASCII) for name in names.values())
    assert len({name.casefold() for name in names.values()}) == len(llms)
    assert names["gpt-3.5@t=0.8"] == "gpt_3.5_t_0.8"
    assert "all" not in {name.casefold() for name in names.values()}


def test_probes_are_counted_and_have_a_configuration(tmp_path):
    release = prepare(write_probed(tmp_path / "r", {"alpha": ALPHA}), seen(), licence="mit")
    own = page(release)
    assert (
        "4 CoTs can also be cut short: 7 probes (every 5 tokens) say what the LLM would have"
        " answered." in own
    )
    configs = {config["config_name"]: config for config in matter(own)["configs"]}
    assert [file["path"] for file in configs["toy-probes"]["data_files"]] == [
        "probes/toy/alpha.parquet"
    ]
    assert "| `toy-probes` | `probes/*/*.parquet` |" in own
    surface = "figures/width-depth-1.png"
    said = r"cut: votes of alpha on toy, from [0-9.]+ % to [0-9.]+ %\]\(" + surface
    assert re.search(said, own)
    assert [path for path in release.files if path.startswith(SURFACES)] == [surface]
    # so that one of an earlier recording goes
    assert "figures/width-depth-2.png".startswith(release.owns)


def test_files_without_rows_are_no_splits(tmp_path):
    folder = write(tmp_path / "r", sizes={"q1": 0, "q2": 0, "q3": 0})
    assert {config.part for config in configs_of(open_recording(folder))} == {
        "questions",
        "requests",
    }
    assert "## Load it" not in page(prepare(folder, seen()))


def test_a_prompt_of_brackets_alone_is_shown_as_it_is(tmp_path):
    write_rows(tmp_path / "deep", ["4"], ("gpt-4o-mini", [pool(0, ["4"], prompt="[" * 100_000)]))
    assert "[" * 100 in page(prepare(tmp_path / "deep", seen(), licence="mit"))


def test_figures_are_of_questions_that_were_asked_and_shares_of_all_cots(tmp_path):
    alpha, _ = figures_of(open_recording(write(tmp_path / "s", sizes={"q1": 3, "q3": 0})))
    assert (alpha.asked, alpha.questions, alpha.smallest, alpha.largest) == (2, 3, 3, 4)
    alpha, _ = figures_of(open_recording(write(tmp_path / "r")))
    assert (alpha.no_answer, alpha.truncated, alpha.withheld) == (1 / 12, 1 / 12, 0.0)
    unknown, _ = figures_of(
        open_recording(write(tmp_path / "u", finish="unknown", sizes={"q1": 3}))
    )
    assert (unknown.truncated, unknown.withheld) == (None, None)


def test_without_golds_nothing_is_drawn(tmp_path):
    release = prepare(write(tmp_path / "r", golds={}), seen())
    assert PICTURE not in release.files
    assert PICTURE not in page(release)


def test_questions_without_a_gold_are_left_out_of_the_picture_and_that_is_said(tmp_path):
    folder = write(tmp_path / "r", golds={"q1": "1"})
    drawn = picture(open_recording(folder), None)
    assert "alpha 50.0 % with one" in drawn[0]  # q1: 1 1 2 2, the others have no gold
    assert "Questions without a gold answer are left out" in page(prepare(folder, seen()))
    assert "left out" not in page(prepare(write(tmp_path / "all"), seen()))


def test_the_page_says_what_is_in_the_recording(demo_page):
    for words in (
        "# Tiny sums: recorded chains of thought",
        "24,000 chains of thought",
        "40 times each",
        f"]({PICTURE})",
        "b07065b2e24c0280aed35a85aed507c0435e3bd7ee67fd35ccb5266dec1d774c",
        "Price list `tiny-2026-11` of 2026-11-21",
        "@misc{recording,",
        "On 111 of 200 questions all CoTs are equal word for word",
        'load_dataset("somebody/recording", "tiny_sums", split="feval_tiny_30k", revision="v1")',
        "hf://somebody/recording@v1",
    ):
        assert words in demo_page
    assert re.findall("^## (.*)$", demo_page, re.MULTILINE) == [
        "Load it", "Questions", "LLMs and decoding", "Where it comes from", "Prices", "Known gaps",
        "What is in the files", "Licences", "Citation",
    ]  # fmt: skip


def imported(tmp_path, sample):
    question = {"id": "q1", "question": "1 + 1?", "answer": "2", "samples": [sample]}
    return import_rows(tmp_path / "x", [question], llm="m", answer_kind="number")


def claims(folder):
    """The first sentences of a page."""
    return page(prepare(folder, seen(), licence="mit")).split("\n**", 1)[1].split("\n", 1)[0]


def test_the_first_lines_claim_only_what_every_cot_and_request_has(demo_page, tmp_path):
    assert (
        "its tokens and why it ended; every question its gold answer and every request the prompt"
        in demo_page
    )
    # "test" made it: maybe other prompts were sent
    unknown = claims(write(tmp_path / "unknown", finish="unknown", golds={"q1": "1"}))
    assert "has its text, its answer as extracted and its tokens." in unknown
    folder = imported(tmp_path, {"text": None, "answer": "2", "tokens": 3})
    assert "has its answer as extracted and its tokens; every question its gold answer." in claims(
        folder
    )


def test_the_page_says_where_a_recording_comes_from(demo_page, tmp_path):
    assert (
        "Merged from 3 recordings on 2026-11-21 with feval 0.1.0:\n\n- Recorded `feval/tiny-30k` on"
        in demo_page
    )
    assert "Answers were extracted from the texts" in demo_page
    assert "Made by `test` on " in page(prepare(write(tmp_path / "r"), seen()))


def test_estimated_tokens_are_told(demo_page, tmp_path):
    assert "The tokens are those that the provider reported (`usage`)." in demo_page
    text = page(
        prepare(imported(tmp_path, {"text": "It is 2.", "answer": "2"}), seen(), licence="mit")
    )
    assert "The tokens are estimates, 1.365 for each word" in text
    assert "Imported from `x.jsonl` (format `jsonl`, SHA-256 `" in text
    assert "Answers were taken from the source" in text


def test_names_from_outside_are_no_markup(tmp_path):
    folder = write(
        tmp_path / "r",
        [f"d{EVIL}"],
        [f"llm{EVIL}"],
        title=EVIL,
        text=f"```\n</details>{EVIL}",
        system_prompt=f"````{EVIL}",
        notes=[EVIL],
    )
    text = page(prepare(folder, seen(), title=f"T {EVIL}"))
    html = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(body(text))
    assert "<script" not in html
    assert 'href="javascript' not in html
    assert html.count("<details>") == html.count("</details>") == 1
    for table in re.findall("<table>.*?</table>", html, re.DOTALL):
        rows = re.findall("<tr>.*?</tr>", table, re.DOTALL)
        assert len({len(re.findall("<t[hd]", row)) for row in rows}) == 1
    evil = EVIL.encode("ascii", "backslashreplace").decode()
    assert str(matter(text)["pretty_name"]) == f"T {evil}"
    assert "\u202e" not in body(text)
    assert "\u200b" not in body(text)


def test_many_llms_are_folded_away_by_dataset(tmp_path):
    folder = write(tmp_path / "r", [f"set{n}" for n in range(3)], [f"llm{n}" for n in range(12)])
    text = page(prepare(folder, seen()))
    assert text.count("<details>") == 3 + 1  # gaps of each dataset, and the example
    assert "<summary>set0: 12 LLMs, at most 8.33 % without an answer</summary>" in text


def test_the_picture_has_a_panel_for_each_dataset(tmp_path):
    folder = write(tmp_path / "two", ["toy", "toy2"])
    words, png = picture(open_recording(folder), None)
    assert ", a panel for each dataset: alpha on toy " in words
    assert png.startswith(b"\x89PNG")


def test_the_picture_is_drawn_at_the_pages_prices(tmp_path, monkeypatch):
    mine = PriceList("mine", "2026-01-31", "our contract", {"alpha": (1, 2)})
    curves = Mock()
    monkeypatch.setattr(figures.pictures, "curves", curves)
    picture(open_recording(write(tmp_path / "r", llms=["alpha"])), mine)
    [curve] = curves.call_args.args[0]
    # 20 prompt tokens at 1 USD, and 10 output tokens a CoT at 2 USD a million
    assert [point.usd_per_question for point in curve.points] == pytest.approx(
        [4e-5, 6e-5, 8e-5, 1e-4]
    )


@pytest.mark.parametrize(("library", "language"), [("duckdb", "sql"), ("polars", "python")])
def test_examples_in_other_libraries_run(library, language, demo_page):
    pytest.importorskip(library)
    blocks = re.findall(rf"```{language}\n(.*?)```", demo_page, re.DOTALL)
    code = next(block for block in blocks if "mean()" in block or "avg(" in block)
    if language == "sql":
        code = f"import duckdb\nprint(duckdb.sql({code!r}))"
    with bundled_recording() as folder:
        code = code.replace(f"hf://datasets/{REPO}@v1", str(folder))
        command = [sys.executable, "-c", code]
        told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert re.search(r"tiny-30k\W+0\.38225", told.stdout)  # the accuracy of one CoT


def test_the_owners_section_survives(tmp_path):
    folder = write(tmp_path / "r")
    first = page(prepare(folder, seen()))
    mine = "## Why\n\nBecause.  \n<!-- a comment -->\n```\n---\n```"
    edited = re.sub(
        f"{re.escape(BEGIN)}.*{re.escape(END)}",
        lambda _: f"{BEGIN}\n\n{mine}\n{END}",
        first,
        flags=re.DOTALL,
    )
    again = page(prepare(folder, seen(edited.replace("\n", "\r\n"))))
    assert mine in again
    assert page(prepare(folder, seen(again))) == again
    assert page(prepare(folder, seen(first))) == first


def test_words_with_marks_are_refused(tmp_path):
    with pytest.raises(CardError, match="Leave the marks out"):
        prepare(write(tmp_path / "r"), seen(), words=END)


@pytest.mark.parametrize(
    "broken",
    [
        BEGIN,
        END,
        f"{END}\n{BEGIN}",
        f"{BEGIN}\n{BEGIN}\n{END}",
        f"{BEGIN}\n<!-- feval:words-end",
        f"{BEGIN} x\n{END}",
        f"{BEGIN}\n{END}\n{END}",
        f"{BEGIN}\n<!-- FEVAL:WORDS-END -->",
    ],
)
def test_a_broken_mark_is_an_error_and_no_loss(tmp_path, broken):
    with pytest.raises(
        CardError, match=rf"The marks of your own section in README\.md of {REPO} are broken"
    ):
        prepare(write(tmp_path / "r"), seen(f"# Page\n\nmine\n{broken}\n"))


def test_a_page_that_somebody_wrote_is_not_replaced(tmp_path):
    folder = write(tmp_path / "r")
    with pytest.raises(CardError, match="was not written by feval, and a push would replace it"):
        prepare(folder, seen("---\nlicense: mit\n---\n\nMy own page.\n"))
    new = seen("---\nlicense: mit\n---\n")  # as the Hub makes it with a new repository
    assert matter(page(prepare(folder, new)))["license"] == "mit"


def test_a_folder_that_was_pulled_keeps_its_words(tmp_path):
    mine, theirs = (f"# Page\n\n{BEGIN}\n{words}\n{END}\n" for words in ("Mine.", "Theirs."))
    folder = write(tmp_path / "r")
    # as a release has it: no README.md in the manifest, and a page that may be edited
    (folder / "manifest.json").write_bytes(prepare(folder, seen()).files["manifest.json"])
    (folder / "README.md").write_text(mine)
    assert "Mine." in page(prepare(folder, seen()))
    assert "Mine." in page(prepare(folder, seen(mine)))
    with pytest.raises(CardError, match=r"differs between .* Say what to keep, with words=TEXT"):
        prepare(folder, seen(theirs))


def test_what_feval_does_not_write_stays_in_the_front_matter(tmp_path):
    folder = write(tmp_path / "r")
    first = page(prepare(folder, seen(), title="My title", licence="cc-by-4.0", languages=["en"]))
    edited = first.replace("tags:\n", "viewer: false\ntags:\n- mine\n", 1)
    again = matter(page(prepare(folder, seen(edited))))
    fields = {"viewer": False, "pretty_name": "My title", "license": "cc-by-4.0"}
    assert again | fields | {"language": ["en"]} == again
    assert "mine" in again["tags"]
    assert matter(page(prepare(folder, seen(edited), title="New")))["pretty_name"] == "New"


@pytest.mark.parametrize(
    "front", ["a: &x [1]\nb: *x", "a: [", "a: " + "[" * 30 + "]" * 30, "a: !!python/name:os.system"]
)
def test_front_matter_that_is_no_plain_yaml_is_an_error(tmp_path, front):
    with pytest.raises(CardError, match=r"front matter of README\.md"):
        prepare(write(tmp_path / "r"), seen(f"---\n{front}\n---\n{BEGIN}\n{END}\n"))


def test_the_picture_is_described_with_its_ends(tmp_path):
    # of q1 2 of 4 CoTs are right, of q2 2 of 4, of q3 none; the vote is right on q1 and, half of
    # the time, on q2
    text = page(prepare(write(tmp_path / "r"), seen()))
    alt = re.findall(r"!\[(.*)\]\(figures/cost-accuracy\.png\)", text)
    ends = "33.3 % with one and 50.0 % with 4"
    said = (
        "Accuracy of the vote of 1 to 4 CoTs against mean tokens per question, prompt + output, a"
        " line for each LLM"
    )
    assert alt == [f"{said}: alpha {ends}; beta@t=0.8 {ends}"]


def test_trees_and_turns_have_their_own_example(tmp_path):
    turns = page(prepare(write_turns(tmp_path / "turns"), seen(), licence="mit"))
    assert "6 CoTs of these reply to another, with the whole conversation before." in turns
    assert "print(llms[0].ask(dataset.question_ids[0]).sample(1).answers)" in turns
    assert "feval run sequential-revision --recording hf://somebody/recording" in turns
    assert "`messages` (sent behind the conversation so far), `prompt_tokens`" in turns
    trees = page(prepare(write_trees(tmp_path / "trees"), seen(), licence="mit"))
    assert "feval run beam-search --recording hf://somebody/recording" in trees
    assert "reply to another" not in trees


@pytest.mark.parametrize("usd", [0.5, ""], ids=["paid", "partly paid"])
def test_a_graded_recording_says_what_it_has(tmp_path, usd):
    rows = f"id,sample,verdict,usd\nq,0,1,0.25\nq,1,0,{usd}\n"
    (tmp_path / "t.csv").write_text(rows)
    out = tmp_path / "graded"
    import_recording("table", tmp_path / "t.csv", out, dataset="d", llm="m", answer_kind="text")
    text = body(page(prepare(out, seen(), licence="mit")))
    has = "a verdict on it" + " and its cost in USD" * bool(usd)
    assert f"Every chain of thought (CoT) has {has}." in text
    assert "Verdicts from 0 to 1 say how right CoTs are, by `verdict`" in text
    assert "feval run single-call --recording" in text
    assert f"avg(score) AS accuracy FROM 'hf://datasets/{REPO}/scores/d/*/verdict.parquet'" in text
    assert ("cost in USD; dollars here are by that." if usd else "recorded`), but for 1.") in text
    assert "The tokens are not recorded." in text
    for wrong in ("as extracted", "curve self", "correct::INT", "`none`", "Extractor"):
        assert wrong not in text
    assert (out / "scores/d/m/verdict.parquet").is_file()
