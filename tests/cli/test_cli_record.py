"""`feval record` from the command line: real samples of the built-in models, and sentences where it
cannot work.
"""

import json
import socket
from dataclasses import replace

import pytest
from command_line import failed, feval, said, succeeded, told
from places import read_data
from settings_files import settings_file
from small import write_lines

from feval.cards.front_matter import card_folder
from feval.cli.output import Output
from feval.cli.record import RunDisplay
from feval.recording import open_recording, verify_recording
from recorders.asking.engine import Progress
from recorders.errors import Fatal
from recorders.work.settings import RecordingSettings, load_questions, make_task

SAID = read_data("commands.json")

TINY = "--dataset tiny_sums --llm feval/tiny-30k --temperature 1 --max-tokens 100"
RECORD = f"record {TINY} --first 4 --samples 3 --out"


def record(out, *more):
    return feval(RECORD, out, *more)


def test_a_recording_is_made_and_made_once(tmp_path):
    out = tmp_path / "r"
    assert told(RECORD, out)["pairs"][0]["cots"] == 12
    assert verify_recording(out).ok
    assert not (tmp_path / "r.journal").exists()
    before = open_recording(out).hash
    said(RECORD, out, "--quiet")  # nothing is asked again
    assert open_recording(out).hash == before


def test_the_same_seed_gives_the_same_recording(tmp_path):
    for name, seed in (("a", "3"), ("b", "3"), ("c", "400")):
        said(RECORD, tmp_path / name, "--seed", seed, "--quiet")
    answers = [
        [p.texts for p in open_recording(tmp_path / n).pools("tiny_sums", "feval/tiny-30k")]
        for n in "abc"
    ]
    assert answers[0] == answers[1] != answers[2]


def test_what_shaped_the_cots_is_in_the_recording(tmp_path):
    said(RECORD, tmp_path / "r", "--logprobs 2 --quiet", *settings_file(tmp_path, "top_p = 0.9"))
    recording = open_recording(tmp_path / "r")
    info = recording.llm_info("feval/tiny-30k")
    assert (info.temperature, info.max_tokens, info.decoding["top_p"]) == (1.0, 100, 0.9)
    assert info.decoding["prompt"] == "none"
    pool = next(recording.pools("tiny_sums", "feval/tiny-30k"))
    assert pool.prompt is not None
    assert json.loads(pool.prompt)[0]["role"] == "user"
    assert recording.manifest.prices == "tiny-2026-11"


def test_questions_of_one_s_own_need_no_card(tmp_path):
    source = tmp_path / "mine.jsonl"
    source.write_text('{"id": "mine/0", "question": "What is 2 + 3?", "answer": "5"}\n')
    named = ("--dataset mine --questions", source, "--llm feval/tiny-30k")
    own = ("record", *named, "--samples 2 --set prompt=none")
    assert "--answer-kind" in feval(*own, "--out", tmp_path / "r").stderr
    said(*own, "--answer-kind number --out", tmp_path / "r", "--quiet")
    assert open_recording(tmp_path / "r").questions("mine")[0].answer_key == "5"


def test_a_dry_run_asks_nothing(tmp_path):
    result = told(RECORD, tmp_path / "r", "--dry-run")
    assert (result["cots"], result["calls"], result["at_most"]) == (12, 4, True)
    assert result["usd"] > 0
    assert list(tmp_path.iterdir()) == []


def test_a_cost_limit_stops_and_the_same_command_goes_on(tmp_path):
    out = tmp_path / "r"
    stopped = record(out, "--cost-limit 0.00002")
    assert stopped.exit_code == 1
    assert "cost limit" in stopped.stderr
    assert not out.exists()
    assert (tmp_path / "r.journal").is_dir()
    said(RECORD, out, "--quiet")
    assert verify_recording(out).ok


@pytest.mark.parametrize(("options", "code", "words"), SAID["record"])
def test_what_cannot_work_is_said(tmp_path, options, code, words):
    failed(record(tmp_path / "r", options), code, words)
    assert list(tmp_path.iterdir()) == []


GSM8K = "--dataset gsm8k --llm feval/tiny-30k --first 1 --samples 1 --max-tokens 8"


ROWS = 'train_rows = "train.jsonl"'


def train_file(folder):
    rows = [
        {
            "question": f"Ann has {i} jars and buys {i} more. How many?",
            "answer": f"{i}+{i}=<<{i}+{i}={2 * i}>>{2 * i}\n#### {2 * i}",
        }
        for i in range(2, 12)
    ]
    return write_lines(folder / "train.jsonl", rows)


def gsm8k_file(shared):
    return "--questions", shared / "real" / "questions" / "gsm8k.jsonl"


def test_exemplars_can_come_from_the_train_split(tmp_path, shared):
    rows = train_file(tmp_path)
    train = settings_file(
        tmp_path, 'exemplars = "train"', f'train_rows = "{rows.name}"', "exemplar_count = 3"
    )
    output = told(
        "record", GSM8K, *gsm8k_file(shared), *train, "--out", tmp_path / "r", "--dry-run"
    )
    assert output["prompt"].startswith("gsm8k/1/train#")
    asked = load_questions("gsm8k", gsm8k_file(shared)[1], 1)
    made = make_task(
        RecordingSettings(
            "gsm8k", "gpt-4o-mini", exemplars="train", train_rows=rows, exemplar_count=3
        ),
        asked,
    )
    assert made.prompt_version == output["prompt"]
    exemplars = [turn.content for turn in made.messages(asked[0]) if turn.role == "assistant"]
    assert len(exemplars) == 3
    assert all("The answer is" in text and "<<" not in text for text in exemplars)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (['exemplars = "tests"'], "There is no source of exemplars 'tests'"),
        (["exemplar_count = 3", ROWS], 'not exemplars = "train"'),
        (['exemplars = "train"', "exemplar_count = 0", ROWS], "at least 1"),
        (['exemplars = "train"', 'prompt = "none"', ROWS], "no exemplars"),
        (['exemplars = "train"', 'prompt = "bbh_snarks"', ROWS], "no split"),
    ],
)
def test_exemplars_that_cannot_be_had_are_said(tmp_path, shared, lines, words):
    train_file(tmp_path)
    result = feval(
        "record",
        GSM8K,
        *gsm8k_file(shared),
        *settings_file(tmp_path, *lines),
        "--out",
        tmp_path / "r",
    )
    failed(result, 2, words)
    assert not (tmp_path / "r").exists()


def test_what_is_odd_about_questions_is_said_and_kept(tmp_path):
    source = tmp_path / "mine.jsonl"
    source.write_text(
        '{"id": "a", "question": "What is 2 + 3?"}\n{"id": "b", "question": "And 2 + 2?", "answer":'
        ' "four"}\n'
    )
    own = ("--dataset mine --answer-kind number --questions", str(source), "--samples 1")
    for more in ([], ["--dry-run"]):
        result = succeeded(
            "record", *own, "--llm feval/tiny-30k --set prompt=none --out", tmp_path / "r", *more
        )
        assert result.stderr.count("no gold answer, which accuracies need: 1 (a).") == 1
    notes = open_recording(tmp_path / "r").manifest.raw["notes"]
    assert "Questions with no gold answer, which accuracies need: 1 (a)." in notes
    source.write_text('{"id": "a", "question": " \\n "}\n')
    result = feval("record", *own, "--llm feval/tiny-30k --set prompt=none --out", tmp_path / "r2")
    assert "has no text for the question 'a'" in result.stderr


def test_a_sealed_recording_is_topped_up_into_another(tmp_path):
    said(RECORD, tmp_path / "three", "--quiet")
    more = "--samples 5 --first 6"
    failed(record(tmp_path / "three", more), 1, f"--out NEW --from {tmp_path / 'three'}")
    start = (more, "--from", tmp_path / "three")
    estimate = told(RECORD, tmp_path / "five", *start, "--dry-run")
    assert estimate["cots"] == 6 * 5 - 4 * 3
    assert not (tmp_path / "five.journal").exists()
    said(RECORD, tmp_path / "five", *start, "--quiet")
    texts = [
        [p.texts for p in open_recording(tmp_path / n).pools("tiny_sums", "feval/tiny-30k")]
        for n in ("three", "five")
    ]
    assert [pool[:3] for pool in texts[1][:4]] == texts[0]
    assert [len(pool) for pool in texts[1]] == [5] * 6


def test_unencrypted_connections_are_said_before_anything_is_sent(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise Fatal("nothing was sent")

    monkeypatch.setattr("feval.cli.record.record_dataset", refuse)
    backend = "--backend openai --base-url http://user:a-long-password@server.example/v1"
    result = record(tmp_path / "r", backend)
    assert result.exit_code == 1
    assert "travel unencrypted to server.example" in result.stderr
    assert "a-long-password" not in result.output


def progress(done, total, new, in_flight=0, waiting_s=0.0):
    return Progress(done, total, new, 16, in_flight, 2.0, None, waiting_s, False, None, None)


def display():
    show = Output(as_json=False, quiet=False)
    return RunDisplay(show.progress("recording"), show)


def test_the_first_ctrl_c_says_what_is_waited_for(capsys):
    shown, state = display(), progress(1, 9, 1, 3)
    for each in (state, replace(state, stopping=True), replace(state, stopping=True, in_flight=1)):
        shown(each)
    assert (
        capsys.readouterr().err
        == "note: Stopping: waiting for 3 requests in flight. Ctrl-C stops at once.\n"
    )


def test_what_was_there_before_is_said_once(capsys):
    for new in (0, 3):  # with no reply yet, and with some; a run from the start says nothing
        shown = display()
        for more in (0, 1):
            shown(progress(640 + new + more, 8000, new + more))
    display()(progress(5, 9, 5))
    kept = "note: 640 of 8,000 were there before and are kept; only the others are asked for.\n"
    assert capsys.readouterr().err == 2 * kept


def test_a_long_wait_is_said_once(capsys):
    shown = display()
    for seconds in (0.0, 7.0, 300.0, 299.0, 0.0, 90.0):
        shown(progress(1, 9, 1, waiting_s=seconds))
    assert (
        capsys.readouterr().err
        == "note: The server asks to wait 5 min; nothing is sent until then.\n"
        "note: The server asks to wait 90 s; nothing is sent until then.\n"
    )


def test_the_first_failure_is_said_while_it_is_tried_again(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: every connection is refused
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        result = record(
            tmp_path / "r",
            "--backend openai --base-url",
            address,
            *settings_file(tmp_path, "retries = 1"),
        )
    assert result.exit_code == 1
    assert (
        result.stderr.count(
            "note: A request failed and is sent again: the connection to 127.0.0.1:"
        )
        == 1
    )
    assert "nothing is recorded yet" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["settings.toml"]


def test_a_file_says_what_the_command_line_leaves_open(tmp_path):
    lines = ['dataset = "tiny_sums"', 'llm = "feval/tiny-30k"', "first = 2", "samples = 2"]
    lines += ["retries = 3", "seed = 5"]
    command = ("record", *settings_file(tmp_path, *lines), "--samples 3 --out", tmp_path / "r")
    shown = feval(*command, "--dry-run --json")
    assert json.loads(shown.stdout)["cots"] == 6
    assert json.loads(shown.stdout)["settings"] == {
        "dataset": "tiny_sums", "llm": "feval/tiny-30k", "first": 2, "retries": 3, "seed": 5,
    }  # fmt: skip
    assert "first = 2, retries = 3, seed = 5" in shown.stderr
    said(*command, "--quiet")
    named = "--dataset tiny_sums --llm feval/tiny-30k --first 2 --samples 3 --seed 5"
    said("record", named, "--out", tmp_path / "s", "--quiet")
    assert (
        open_recording(tmp_path / "r").manifest.raw["operation"]
        == open_recording(tmp_path / "s").manifest.raw["operation"]
    )


def test_paths_in_a_file_start_from_its_folder(tmp_path):
    said(RECORD, tmp_path / "three", "--quiet")
    estimate = told(RECORD, tmp_path / "r", "--dry-run", *settings_file(tmp_path, 'from = "three"'))
    assert estimate["cots"] == 0


@pytest.mark.parametrize(("line", "code", "words"), SAID["settings of record"])
def test_a_file_that_cannot_be_used_is_said(tmp_path, line, code, words):
    failed(record(tmp_path / "r", *settings_file(tmp_path, line)), code, words)
    assert [path.name for path in tmp_path.iterdir()] == ["settings.toml"]


def test_a_file_that_is_not_there_and_a_dataset_that_is_not_named_are_said(tmp_path):
    failed(record(tmp_path / "r", "--settings", tmp_path / "none.toml"), 2, "No such file")
    failed(feval("record --llm feval/tiny-30k --out", tmp_path / "r"), 2, "--dataset is missing")


def test_a_settings_file_with_a_byte_order_mark_is_read(tmp_path):
    path = tmp_path / "s.toml"
    path.write_bytes(b"\xef\xbb\xbftop_p = 0.5\n")
    result = record(tmp_path / "r", "--settings", path, "--dry-run --json")
    assert json.loads(result.stdout)["settings"] == {"top_p": 0.5}


def test_a_settings_file_with_a_number_beyond_all_is_refused(tmp_path):
    result = record(tmp_path / "r", *settings_file(tmp_path, f"seed = {'9' * 5000}"), "--dry-run")
    failed(result, 2, "is not valid TOML: Exceeds the limit")


def test_a_price_list_in_a_settings_file_starts_from_its_folder(tmp_path):
    (tmp_path / "own.md").write_text((card_folder() / "prices" / "tiny-2026-11.md").read_text())
    own = settings_file(tmp_path, 'prices = "own.md"')
    shown = said(RECORD, tmp_path / "r", *own, "--dry-run")
    assert f"by price list {tmp_path / 'own.md'}" in shown
