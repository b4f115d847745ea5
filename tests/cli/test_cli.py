"""The command line: what is printed where, exit codes, and every error as a sentence."""

import csv
import errno
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from command_line import failed, feval, said, told, words
from places import ROOT, read_data, read_json
from small import changed_manifest, content, letters, pool, write_rows
from typer.testing import CliRunner

from feval import __version__
from feval.cli import app
from feval.cli.commands import COMMANDS
from feval.cli.options import parse_counts
from feval.cli.output import ProgressBar, announce_long_run
from feval.errors import OutOfRangeError, UsageError
from feval.recording import LLMInfo

EVIL = "evil\x1b]0;owned\x07[red]\u202e"


MAIN = "from feval.cli import main; main()"


def spawn(*arguments, code=MAIN, **options):
    """Run the command line, or other code, as a program."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    command = [sys.executable, "-W", "error", "-c", code, *words(arguments)]
    return subprocess.run(command, text=True, timeout=120, check=False, env=environment, **pipes)


def write(out, *, llms, prices="2025-06-02", prompt_tokens=10, notes=()):
    """Write a recording: `llms` gives, per LLM, the answers of each question; every gold is "1",
    every CoT has 20 tokens.
    """
    own = [
        (
            LLMInfo(name, temperature=0.0),
            [
                pool(row, answers, tokens=[20] * len(answers), prompt_tokens=prompt_tokens)
                for row, answers in enumerate(pools)
            ],
        )
        for name, pools in llms.items()
    ]
    golds = ["1"] * len(own[0][1])
    return write_rows(out, golds, *own, prices=prices, notes=notes)


TOY = letters("112-", "2123", "1111")


@pytest.fixture
def toy(tmp_path):
    """Three questions, four CoTs each, of an LLM that has a price."""
    return write(tmp_path / "toy", llms={"gpt-3.5-turbo": TOY})


@pytest.fixture
def two(tmp_path):
    """Two LLMs on one dataset; gpt-4 has no price."""
    return write(tmp_path / "two", llms={"gpt-3.5-turbo": TOY, "gpt-4": TOY})


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nsys.argv = ['feval', *sys.argv[1:]]\nfrom feval.cli import main\ntry:\n   "
        " main()\nexcept SystemExit as end:\n    assert end.code == 0, end.code\nheavy = 'numpy"
        " scipy pyarrow matplotlib rich tiktoken yaml huggingface_hub orjson"
        " math_verify'.split()\nfound = [name for name in heavy if name in sys.modules]\nassert not"
        " found, found\n"
    )
    for arguments in (["--help"], ["--version"]):
        done = spawn(*arguments, code=code)
        assert (done.returncode, done.stderr) == (0, "")


def test_commands_load_the_client_of_the_hub_on_use():
    modules = "compare, evaluating, known, record, recordings, servers"
    done = spawn(
        code=(
            f"import sys\nfrom feval.cli import {modules}\nassert 'huggingface_hub' not in"
            " sys.modules"
        )
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_json_and_quiet(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"], terminal_width=80)
    assert result.exit_code == 0
    assert "--json" in result.stdout
    assert len(result.stdout.splitlines()) <= 80  # two screens


def test_help_lists_the_commands():
    result = said("--help")
    assert all(f"\n  {command}" in result for command in COMMANDS)
    assert "..." not in result.partition("Start here")[2]  # no summary is cut off
    assert len(result.splitlines()) <= 40


def test_help_of_servers_does_not_need_the_extra():
    arguments = {
        "serve": ["."],
        "proxy": ["--upstream", "http://127.0.0.1:9/v1", "--record", "x"],
        "tiny-server": [],
    }
    lines = [line for name, own in arguments.items() for line in ([name, "--help"], [name, *own])]
    without = f"""
import json, sys
sys.modules.update(uvicorn=None, starlette=None)
from typer.testing import CliRunner
from feval.cli import app
for line in {lines}:
    result = CliRunner().invoke(app, line, prog_name="feval")
    print(json.dumps([result.exit_code, result.stdout, result.stderr]))
"""
    results = [json.loads(line) for line in spawn(code=without).stdout.splitlines()]
    assert len(results) == len(lines)
    for (name, *_), (_, page, _), (code, _, error) in zip(
        lines[::2], results[::2], results[1::2], strict=True
    ):
        assert page.startswith(f"Usage: feval {name}")
        assert code == 2
        assert "pip install 'feval[serve]'" in error


def test_version():
    result = feval("--version")
    assert (result.exit_code, result.stdout) == (0, f"feval {__version__}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "nonsense",
        "curve",
        "curve self-consistency --nonsense",
        "curve self-consistency --seed x",
        "curve self-consistency --replicates 0",
        "import esc file",
        "merge a b",
        "info",
    ],
)
def test_wrong_usage_exits_with_2(arguments):
    result = feval(arguments)
    assert result.exit_code == 2
    assert "Usage: feval" in result.output


@pytest.mark.parametrize(("text", "counts"), read_data("commands.json")["lists of counts"])
def test_counts(text, counts):
    assert parse_counts(text) == counts


@pytest.mark.parametrize(
    ("texts", "error", "words"),
    [
        (
            ["", "x", "1-5", "1..", "..5", "1..2..3..4", "1,,2", "1.5", "-1", "٣", "1e3"],
            UsageError,
            "--n takes numbers of CoTs such as",
        ),
        (["0", "0..5", "5..1", "1..5..0"], OutOfRangeError, "counts up from 1 CoT"),
        (["1..1000000000", "9" * 5000], OutOfRangeError, r"up to 999,999,999; found .{1,100}\.$"),
        (["1..999999999"], OutOfRangeError, "asks for 999,999,999 points; 10,000 is the most"),
    ],
)
def test_what_is_no_count_is_refused(texts, error, words):
    for text in texts:
        with pytest.raises(error, match=words):
            parse_counts(text)


def test_info_shows_what_is_there(two):
    shown = said("info", two)
    for piece in (
        "toy",
        "gpt-3.5-turbo",
        "gpt-4",
        "words",
        "2025-06-02",
        "8.33",
        "Toy questions",
        "not stated",
        "made by",
    ):
        assert piece in shown
    assert feval("info", two, "--quiet").output == ""


def test_info_as_json(two):
    result = feval("info", two, "--json")
    output = json.loads(result.stdout)
    assert result.stderr == ""
    assert output["recording_hash"] in said("info", two)
    assert [pair["no_answer_rate"] for pair in output["pairs"]] == [1 / 12, 1 / 12]
    assert output["pairs"][0]["questions"] == 3


def test_info_of_something_else(tmp_path):
    failed(feval("info", tmp_path), 1, "No recording at", "has no manifest.json")
    failed(feval("info", tmp_path / "absent"), 1, "does not exist")
    (tmp_path / "half.journal").mkdir()
    for name in ("half", "half.journal"):
        out = tmp_path / "half"
        failed(
            feval("info", tmp_path / name),
            1,
            f"{out} is unfinished: its CoTs so far are in {out}.journal",
            "goes on",
        )


def test_the_folder_above_a_recording_is_told_from_it(two):
    failed(
        feval("info", two.parent),
        1,
        "has no manifest.json",
        f"There is one in {two}; name the folder itself.",
    )


def test_info_shows_ragged_pools_as_a_range(tmp_path):
    ragged = write(tmp_path / "ragged", llms={"gpt-4": letters("1", "121")})
    assert "1 to 3" in said("info", ragged)


def test_names_from_strangers_cannot_steer_the_terminal(tmp_path):
    evil = write(tmp_path / "evil", llms={"gpt-4": TOY}, notes=(EVIL,))
    with changed_manifest(evil) as manifest:
        manifest["datasets"][0]["title"] = manifest["pairs"][0]["counter"] = EVIL
        manifest["licences"]["questions"] = EVIL
    for result in (
        feval("info", evil),
        feval("curve self-consistency --recording", evil),
        feval("select", evil, "--first 1 --out", tmp_path / "chosen"),
        feval("info", tmp_path / EVIL),
    ):
        assert not {"\x1b", "\x07", "\u202e"} & {*result.output}
        assert "\\x1b]0;owned" in result.output
    assert "\x1b" not in said("info", evil, "--json")


def test_verify_says_sound(toy):
    result = said("verify", toy)
    assert "is sound" in result
    assert told("verify", toy)["ok"] is True
    assert feval("verify", toy, "-q").output == ""


def test_verify_names_what_is_damaged(toy):
    [sample] = (toy / "samples").rglob("*.parquet")
    data = bytearray(sample.read_bytes())
    data[len(data) // 2] ^= 1
    sample.write_bytes(data)
    result = feval("verify", toy, "--json")
    assert result.exit_code == 1
    output = json.loads(result.stdout)
    assert output["ok"] is False
    assert "SHA-256" in output["problems"][0]
    assert str(sample.relative_to(toy)) in result.stderr
    assert feval("verify", toy).stdout == ""


def test_merge_joins_llms(tmp_path, toy):
    other = write(tmp_path / "other", llms={"gpt-4": TOY})
    result = said("merge", toy, other, "--out", tmp_path / "both")
    assert "2 LLMs" in result
    output = told("info", tmp_path / "both")
    assert [pair["llm"] for pair in output["pairs"]] == ["gpt-3.5-turbo", "gpt-4"]
    assert len(output["parents"]) == 2


def test_merge_needs_two(toy, tmp_path):
    failed(feval("merge", toy, "--out", tmp_path / "x"), 2, "two or more recordings; 1 given")


def test_select_keeps_what_is_asked_for(two, tmp_path):
    out = tmp_path / "small"
    output = told("select", two, "--out", out, "--llm gpt-4 --first 2 --samples 3")
    assert [(pair["llm"], pair["cots"], pair["questions"]) for pair in output["pairs"]] == [
        ("gpt-4", 6, 2)
    ]


def test_select_by_a_file_of_ids(two, tmp_path):
    ids = tmp_path / "ids.txt"
    ids.write_text("toy/2\n\ntoy/0\n")
    said("select", two, "--out", tmp_path / "small", "--questions-file", ids)
    assert told("info", tmp_path / "small")["datasets"][0]["questions"] == 2


def test_select_refuses(two, tmp_path):
    out, ids = tmp_path / "x", tmp_path / "ids.txt"
    ids.write_bytes(b"q9\n")
    refused = [
        (2, "--first 0", "--first takes 1 or more"),
        (1, "--first 4", "toy has 3 questions; --first 4 asks for more"),
        (2, f"--first 1 --questions-file {ids}", "give one of them"),
        (1, f"--questions-file {ids}", "'q9'"),
        (
            1,
            f"--questions-file {tmp_path / 'absent'}",
            "one question id per line as UTF-8 text; it cannot be read: No such file",
        ),
        (1, f"--questions-file {tmp_path}", "it cannot be read: Is a directory"),
        (1, "--questions-file /dev/zero", "it cannot be read: it is no regular file"),
    ]
    for code, options, piece in refused:
        failed(feval("select", two, "--out", out, options), code, piece)
    for data, piece in (
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"\xff\xfe", "one question id per line as UTF-8"),
    ):
        ids.write_bytes(data)
        failed(feval("select", two, "--out", out, "--questions-file", ids), 1, piece)
    assert not out.exists()


def test_nothing_is_overwritten(two, toy, tmp_path):
    before = content(toy)
    for command in (["select", two], ["merge", two, toy]):
        failed(feval(*command, "--out", toy), 1, "exists already; a recording is never overwritten")
    assert content(toy) == before


@pytest.mark.parametrize(
    ("what", "known"),
    [
        ("datasets", "gsm8k"),
        ("llms", "gpt-3.5-turbo"),
        ("prices", "2025-06-02"),
        ("methods", "self-consistency"),
        ("formats", "mot-cascade"),
        ("answer-kinds", "verbatim"),
        ("sets", "best-of-infinity"),
    ],
)
def test_ls(what, known):
    assert known in said("ls", what)
    rows = told("ls", what)[what]
    assert any(known in row.values() for row in rows)
    assert all(
        all(value for key, value in row.items() if key not in {"fields", "verified", "licence"})
        for row in rows
        if "description" in row
    )
    assert feval("ls", what, "--quiet").output == ""


def test_sets_are_found_by_a_word():
    assert all(len(line) <= 120 for line in said("ls sets").splitlines())
    found = feval("ls sets gpqa")
    assert "https://github.com/jkomiyama/BoInf-code-publish" in found.stdout
    assert "tau-bench" not in found.stdout
    failed(feval("ls sets nowhere"), 2, "No set speaks of 'nowhere'")


def test_ls_of_something_else():
    failed(feval("ls dataset"), 2, "Did you mean 'datasets'?", "answer-kinds")
    failed(feval("ls questions"), 2, "Whose questions?")
    failed(feval("ls llms gsm8k"), 2, "belong to `feval ls questions DATASET`")
    failed(feval("ls prices gsm8k"), 2, "Nobody has a price of 'gsm8k'", "--price gsm8k=IN")


def test_ls_prices_of_an_llm_shows_what_it_cost_when():
    rows = told("ls prices o3")["prices"]
    of_openai = [row for row in rows if row["provider"] == "openai" and row["tier"] == "standard"]
    assert [(row["since"], row["usd_per_mtok"]) for row in of_openai] == [
        ("not known", "10 in, 40 out, 0.5 cached"),
        ("2025-06-10", "2 in, 8 out, 0.5 cached"),
    ]
    card, *_ = told("ls prices o3-mini")["prices"]
    assert (card["list"], card["price"]) == ("2025-06-02", [[1.1, 4.4]])
    hours = told("ls prices deepseek-chat")["prices"]
    assert [row["hours"] for row in hours] == ["", "00:30-16:30"]


KEYS = {"method", "recording_hash", "prices", "billing", "counter", "questions", "points"}
POINT_KEYS = {
    "n", "accuracy", "accuracy_low", "accuracy_high", "usd_per_question", "tokens_per_question",
    "pass_at_n", "kind", "samples_per_question", "billed",
    "calls_per_question", "usd_per_question_per_round", "tokens_per_question_per_round",
}  # fmt: skip


def curve(*arguments):
    return feval("curve self-consistency", *arguments)


def test_curve_as_json_is_one_object_and_nothing_else(toy):
    result = curve("--recording", toy, "--dataset toy --llm gpt-3.5-turbo --n 1..4 --json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.count("\n") == 1
    output = json.loads(result.stdout)
    assert output.keys() >= KEYS
    assert [point.keys() for point in output["points"]] == [POINT_KEYS] * 4
    assert [point["n"] for point in output["points"]] == [1, 2, 3, 4]
    assert {point["kind"] for point in output["points"]} == {"exact"}
    first = output["points"][0]
    assert first["accuracy"] == pytest.approx((2 / 4 + 1 / 4 + 1) / 3, abs=1e-12)
    assert first["tokens_per_question"] == 30
    assert first["usd_per_question"] == pytest.approx((10 * 0.5 + 20 * 1.5) * 1e-6, rel=1e-12)


def test_curve_table(toy):
    lines = curve("--recording", toy, "--n 1,4").stdout.splitlines()
    assert lines[0] == "self-consistency on toy, gpt-3.5-turbo"
    assert [line.split()[0] for line in lines[2:4]] == ["1", "4"]


def test_one_dataset_and_one_llm_need_no_name(toy, two):
    assert told("curve self-consistency", "--recording", toy)["points"][-1]["n"] == 4
    failed(
        curve("--recording", two),
        2,
        "2 LLMs are recorded; choose one with --llm: gpt-3.5-turbo, gpt-4",
    )


def test_recordings_can_be_named_by_the_environment(toy, monkeypatch):
    failed(curve(), 2, "No recording was named")
    monkeypatch.setenv("FEVAL_RECORDING", str(toy))
    assert curve().exit_code == 0


def test_several_recordings_together(toy, tmp_path):
    other = write(tmp_path / "other", llms={"gpt-4": TOY})
    both = ["--recording", toy, "--recording", other]
    failed(curve(*both), 2, "choose one with --llm: gpt-3.5-turbo, gpt-4")
    assert curve(*both, "--llm gpt-4").exit_code == 0


def test_orders_billings_and_seeds(toy):
    def points(options):
        return told("curve self-consistency", "--recording", toy, "--n 1,3", options)["points"]

    recorded = points("--order recorded")
    assert [(point["kind"], point["accuracy"]) for point in recorded] == [("recorded", 2 / 3)] * 2
    seeded, again, other = (points(f"--order seeded --replicates 50 --seed {n}") for n in (1, 1, 2))
    assert (seeded[0]["kind"], seeded) == ("seeded", again)
    assert seeded != other
    for billing, tokens in (("per_sample", 3 * 30), ("once", 10 + 3 * 20)):
        assert points(f"--billing {billing}")[1]["tokens_per_question"] == tokens


def test_without_a_price_dollars_are_null_and_a_note_says_why(two):
    result = curve("--recording", two, "--llm gpt-4 --json")
    assert result.exit_code == 0
    assert {point["usd_per_question"] for point in json.loads(result.stdout)["points"]} == {None}
    assert result.stderr.startswith(
        "note: No dollars: price list '2025-06-02' has no price for 'gpt-4'"
    )
    assert curve("--recording", two, "--llm gpt-4 --json --quiet").stderr == ""
    compared = feval("curve self-consistency single-call --recording", two, "--llm gpt-4 --json")
    assert "note: No dollars: price list '2025-06-02' has no price for 'gpt-4'" in compared.stderr


def test_prices_none_needs_no_note(two):
    result = curve("--recording", two, "--llm gpt-4 --prices none --json")
    assert result.stderr == ""
    assert json.loads(result.stdout)["prices"] is None


def test_a_recording_without_price_list_says_so(tmp_path):
    bare = write(tmp_path / "bare", llms={"gpt-4": TOY}, prices="none")
    assert "the recording names no price list" in curve("--recording", bare).stderr
    mute = write(tmp_path / "mute", llms={"gpt-3.5-turbo": TOY}, prompt_tokens=None)
    assert "does not say how many tokens the prompts" in curve("--recording", mute).stderr


def test_curve_refuses(toy, tmp_path):
    refused = [
        (1, "--n 1..5", "4 recorded CoTs", "5 were asked for"),
        (2, "--n 0", "--n counts up from 1"),
        (2, "--n some", "--n takes numbers"),
        (1, "--dataset gsm8k", "holds no dataset 'gsm8k'", "It holds toy: gpt-3.5-turbo"),
        (1, "--llm gpt-5", "'gpt-5'", "It holds toy: gpt-3.5-turbo"),
        (2, "--prices 2020-01-01", "no price list '2020-01-01'", "2025-06-02"),
        (2, f"--order seeded --replicates {'9' * 30}", "replicates", "100000"),
    ]
    for code, options, *pieces in refused:
        failed(curve("--recording", toy, options), code, *pieces)
    failed(feval("curve majority --recording", toy), 2, "no method 'majority'", "self-consistency")
    failed(curve("--recording", tmp_path / "absent"), 1, "does not exist")


def test_ragged_pools_are_asked_up_to_the_smallest(tmp_path):
    ragged = write(tmp_path / "ragged", llms={"gpt-4": letters("112", "12")})
    assert told("curve self-consistency", "--recording", ragged)["points"][-1]["n"] == 2
    failed(
        curve("--recording", ragged, "--n 3"),
        1,
        "2 recorded CoTs on question 'toy/1'",
        "3 were asked for",
    )


def test_nothing_is_written_without_out(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = content(tmp_path)
    assert curve("--recording", toy).exit_code == 0
    assert content(tmp_path) == before


CURVE_FILES = ["curve.csv", "curve.parquet", "curve.json", "curve.png", "curve.svg", "receipt.json"]


def test_curve_files(toy, tmp_path):
    out = tmp_path / "report"
    result = curve("--recording", toy, "--out", out)
    assert result.exit_code == 0, result.output
    assert sorted(content(out)) == sorted(CURVE_FILES)
    assert result.stdout.splitlines()[-6:] == [f"wrote {out / name}" for name in CURVE_FILES]
    printed = told("curve self-consistency", "--recording", toy)
    assert read_json(out / "curve.json") | {"receipt": printed["receipt"]} == printed
    rows = list(csv.DictReader(io.StringIO((out / "curve.csv").read_text())))
    table = pq.read_table(out / "curve.parquet")
    assert table.column_names == list(rows[0])
    assert [[str(value) for value in row.values()] for row in table.to_pylist()] == [
        list(row.values()) for row in rows
    ]
    assert (out / "curve.svg").read_text().startswith("<?xml")
    before = content(out)
    assert curve("--recording", toy, "--out", out, "--quiet").output == ""
    assert content(out) == before
    failed(
        curve("--recording", toy, "--out", out, "--n 1"),
        1,
        "already holds curve.csv, curve.parquet, curve.json",
    )
    assert content(out) == before
    assert curve("--recording", toy, "--out", out, "--n 1 --force").exit_code == 0


def test_out_that_cannot_be_written(toy, tmp_path):
    (tmp_path / "file").write_bytes(b"mine")
    failed(
        curve("--recording", toy, "--out", tmp_path / "file"),
        1,
        "is a file; reports are written to a folder",
    )
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_matplotlib_keeps_quiet(toy, tmp_path):
    """Without a place for its caches it has a lot to say."""
    out = tmp_path / "out"
    unusable = {"MPLCONFIGDIR": str(toy / "manifest.json"), "TMPDIR": str(tmp_path)}
    done = spawn("curve", "self-consistency", "--recording", toy, "--out", out, env=unusable)
    assert (done.returncode, done.stderr) == (0, "")


def line(row, **fields):
    """A line of the generic JSONL format: one question with three CoTs."""
    samples = [{"text": f"The answer is {answer}.", "answer": answer} for answer in ("1", "2", "1")]
    result = {
        "id": f"q{row}",
        "question": f"Question {row}?",
        "answer": "1",
        "llm": "gpt-4",
        "samples": samples,
    }
    return json.dumps(result | fields)


def imported(tmp_path, text, *options, name="source.jsonl"):
    source = tmp_path / name
    source.write_bytes(text if isinstance(text, bytes) else text.encode())
    kind = [] if "--answer-kind numbers" in options else ["--answer-kind verbatim"]
    return feval("import jsonl", source, "--dataset mine --out", tmp_path / "out", *kind, *options)


def whole(*rows):
    return "".join(line(row) + "\n" for row in rows)


def test_import_says_what_was_made(tmp_path):
    result = imported(tmp_path, whole(0, 1), "--llm gpt-4")
    assert result.exit_code == 0, result.output
    assert "6 CoTs, 1 LLM, 1 dataset" in result.stdout
    said("verify", tmp_path / "out")


def test_import_renames_the_only_llm_of_the_rows(tmp_path):
    result = imported(tmp_path, whole(0), "--llm gpt-5")
    assert result.exit_code == 0, result.output
    assert "calls the LLM 'gpt-4'; it was recorded as 'gpt-5', as requested" in " ".join(
        result.stderr.split()
    )


def test_import_as_json_and_quiet(tmp_path):
    (tmp_path / "a").mkdir()
    result = imported(tmp_path / "a", whole(0), "--llm gpt-4 --json")
    assert json.loads(result.stdout)["pairs"][0]["cots"] == 3
    (tmp_path / "b").mkdir()
    assert imported(tmp_path / "b", whole(0), "--llm gpt-4 --quiet").output == ""


def broken(error):
    def fail(*_, **__):
        raise error

    return fail


def test_a_bug_is_one_sentence(toy, monkeypatch):
    monkeypatch.setattr("feval.cli.recordings.open_place", broken(RuntimeError("oh \x1b[1m")))
    monkeypatch.delenv("FEVAL_DEBUG", raising=False)
    failed(
        feval("info", toy),
        1,
        "This is a bug in feval: please report it",
        "FEVAL_DEBUG=1",
        "RuntimeError: oh \\x1b",
    )
    monkeypatch.setenv("FEVAL_DEBUG", "1")
    assert "Traceback" in feval("info", toy).stderr


@pytest.mark.parametrize(
    ("error", "code", "piece"),
    [
        (KeyboardInterrupt(), 130, "Interrupted"),
        (MemoryError(), 1, "not enough memory"),
        (
            PermissionError(errno.EACCES, "Permission denied", "some/file"),
            1,
            "some/file could not be read or written: Permission denied. Check",
        ),
        (OSError("odd"), 1, "The output could not be read or written: odd. Check"),
    ],
)
def test_what_the_system_says_is_one_sentence(toy, monkeypatch, error, code, piece):
    monkeypatch.setattr("feval.cli.recordings.open_place", broken(error))
    failed(feval("info", toy), code, piece)


def test_a_reader_that_leaves_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = spawn("ls", "datasets", stdout=writer)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
@pytest.mark.parametrize(
    ("folder", "code"), [("toy", 0), pytest.param("absent", 1, marks=pytest.mark.slow)]
)
def test_closed_streams_are_no_error(toy, closed, folder, code):
    script = f"'{sys.executable}' -c '{MAIN}' info '{toy.parent / folder}' --json {closed}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert done.stdout == "" or json.loads(done.stdout)["path"] == str(toy)


def test_an_ascii_terminal_is_no_error(tmp_path):
    odd = write(tmp_path / "odd", llms={"gpt-4": TOY}, notes=("中文 ✓",))
    done = spawn("info", odd, env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"})
    assert done.returncode == 0, done.stderr
    assert "\\u4e2d" in done.stdout


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)]
)
def test_interrupting_leaves_nothing_half_done(tmp_path, number):
    (tmp_path / "source.jsonl").write_text(whole(0))
    code = (
        "import os, signal\n"
        # Who started the tests may ignore signals (nohup does), and children inherit that.
        f"signal.signal({int(number)},"
        f" {'signal.default_int_handler' if number == signal.SIGINT else 'signal.SIG_DFL'})\nfrom"
        " feval.cli import main\nfrom feval.recording.writer import"
        " RecordingWriter\nRecordingWriter._seal = lambda self: os.kill(os.getpid(),"
        f" {int(number)})\nmain()\n"
    )
    options = ["--dataset mine --answer-kind verbatim --out", tmp_path / "out"]
    done = spawn("import", "jsonl", tmp_path / "source.jsonl", *options, code=code)
    assert (done.returncode, done.stdout) == (128 + number, "")
    assert done.stderr == "error: Interrupted. Nothing half-done was left behind.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["source.jsonl"]


def on_a_terminal(*arguments):
    """Run the command line on a pseudo-terminal; return all it wrote."""
    controller, terminal = pty.openpty()
    code = (
        "from feval.executors.progress import ProgressBar as Bar\nfrom feval.cli import main\n"
        "Bar.DELAY_SECONDS, leave = 0.0, Bar.__exit__\n"
        "def patient(self, *error):\n"
        "    if self._timer: self._timer.join()\n"
        "    leave(self, *error)\n"
        "Bar.__exit__ = patient\n"
        "main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words(arguments)],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(terminal)
    data = b"".join(_until_closed(controller))
    os.close(controller)
    assert process.wait(timeout=60) == 0, data
    return data.decode()


def _until_closed(descriptor):
    while True:
        try:
            piece = os.read(descriptor, 1 << 16)
        except OSError:  # Linux says EIO when the other side is gone
            return
        if not piece:
            return
        yield piece


def test_a_terminal_gets_a_drawn_table_and_a_progress_bar(toy):
    shown = on_a_terminal("curve self-consistency --recording", toy)
    assert re.search(r"curve (\x1b\[\d+m)+━", shown)
    assert "─" in shown
    assert "\x1b[" in shown


@pytest.mark.parametrize(("questions", "said"), [(1_000_000, True), (20_000, False)])
def test_a_long_run_says_what_it_will_take(questions, said, monkeypatch, capsys):
    """From what the first second of work did; once; not where there is no terminal."""
    clock = iter([0.0, 0.5, 1.5, 3.0, 0.0, 9.0])
    monkeypatch.setattr("feval.cli.output.time", SimpleNamespace(monotonic=lambda: next(clock)))
    for shown in (True, False):
        bar = ProgressBar("a run")
        bar.shown = shown
        step = announce_long_run(bar, lambda total: f"{total:,} questions x 10 draws")
        for done in (1_000, 4_000, 8_000) if shown else (8_000,):
            step(done, questions)
    sentence = "1,000,000 questions x 10 draws will take about 6.2 min.\n"
    assert capsys.readouterr().err == (sentence if said else "")


def test_quiet_and_json_show_no_progress_on_a_terminal(toy):
    assert on_a_terminal("curve self-consistency --recording", toy, "--quiet") == ""
    assert json.loads(on_a_terminal("curve self-consistency --recording", toy, "--json"))


def test_a_pipe_gets_plain_text(toy):
    done = spawn("curve", "self-consistency", "--recording", toy)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert done.stdout.isascii()


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="only Linux has a disk that is always full"
)
@pytest.mark.parametrize("asked", ["--help", "--version", "ls methods"])
def test_output_onto_a_full_disk_is_one_sentence(asked):
    with Path("/dev/full").open("w") as full:
        done = spawn(asked, stdout=full)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_ctrl_c_while_modules_are_loaded_ends_with_a_sentence():
    code = (
        "import builtins, os, signal\n"
        "from feval.cli import main\n"
        "load = builtins.__import__\n"
        "def interrupted(name, *rest, **others):\n"
        "    if name == 'typer':\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return load(name, *rest, **others)\n"
        "builtins.__import__ = interrupted\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        130,
        "error: Interrupted. Nothing half-done was left behind.\n",
    )
