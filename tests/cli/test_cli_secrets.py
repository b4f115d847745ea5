"""Keys at the doors of the commands: where they may not be, what is said about it, and that it does
not show them.
"""

import json

import command_line
import pytest
from command_line import failed
from settings_files import settings_file
from small import write_toy

from feval.cli.output import say

KEY = "zq81-marked/0123456789+abcdef"
ODD = "uv52-marked/9876543210+fedcba"
PROXY = "proxy --upstream http://127.0.0.1:9/v1 --record"
SHAPED = "sk-proj-" + "marked0123456789abcdef"


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("NEBIUS_API_KEY", KEY)
    monkeypatch.setenv("ODD_NAME", ODD)


def feval(*arguments):
    result = command_line.feval(*arguments)
    for secret in (KEY, ODD, SHAPED):
        assert secret not in result.output
    return result


def record(folder, lines, *more):
    named = () if any(line.startswith("llm") for line in lines) else ["--llm feval/tiny-30k"]
    run = ("record --dataset tiny_sums --first 1 --samples 1 --out", folder / "r")
    return feval(*run, *named, *settings_file(folder, *lines), *more)


@pytest.mark.parametrize("more", [(), ["--dry-run --json"]], ids=["run", "dry run"])
@pytest.mark.parametrize(
    ("line", "place"),
    [
        (f'extra_body = {{ a = [{{ b = "x{KEY}" }}] }}', "extra_body"),
        (f'extra_body = {{ "{KEY}" = 1 }}', "extra_body"),
        (f'stop = ["{KEY}"]', "stop"),
        (f'model = "{KEY}"', "model"),
        (f'llm = "{KEY}"', "llm"),
        (f'base_url = "http://u:{KEY.replace("/", "%2F")}@127.0.0.1:9/v1"', "base_url"),
    ],
)
def test_a_known_key_is_refused_in_what_is_stored(tmp_path, line, place, more):
    result = record(tmp_path, [line], *more)
    failed(result, 2, "environment variable NEBIUS_API_KEY is in", place)
    assert [path.name for path in tmp_path.iterdir()] == ["settings.toml"]


def test_the_variable_that_a_command_names_is_known_whatever_its_name(tmp_path):
    lines = ['api_key_env = "ODD_NAME"', 'backend = "openai"', f'stop = ["{ODD}"]']
    assert "environment variable ODD_NAME is in the setting stop" in record(tmp_path, lines).stderr


@pytest.mark.parametrize("named", [[], ['api_key_env = "ODD_NAME"']], ids=["by its name", "named"])
def test_a_known_key_is_refused_in_questions(tmp_path, named):
    source = tmp_path / "mine.jsonl"
    secret = ODD if named else KEY
    source.write_text(
        json.dumps({"id": "mine/0", "question": f"Is {secret} a key?", "answer": "5"})
    )
    own = settings_file(tmp_path, 'answer_kind = "number"', 'prompt = "none"', *named)
    run = ("record --dataset mine --questions", source, "--llm feval/tiny-30k --out")
    result = feval(*run, tmp_path / "r", *own, "--dry-run")
    failed(result, 2, "is in the questions")


def test_a_field_that_is_named_like_a_key_is_refused_unless_it_is_allowed(tmp_path):
    body = 'extra_body = { extra_headers = { "X-Api-Key" = "shorter" } }'
    result = record(tmp_path, [body], "--dry-run")
    failed(result, 2, "name it in allow_fields = ['X-Api-Key']")
    assert record(tmp_path, [body, "allow_fields = ['X-Api-Key']"], "--dry-run").exit_code == 0


@pytest.mark.parametrize("way", ["option", "file", "proxy", "score"])
def test_a_key_in_place_of_its_variable_is_an_error_that_does_not_show_it(tmp_path, way):
    given = "A3F9" * 8  # which a shell would take as a name
    dry, named = ["--dry-run --json"], ("--set", f"api_key_env={given}")
    if way == "option":
        result = record(tmp_path, [], *named, *dry)
    elif way == "file":
        result = record(tmp_path, [f'api_key_env = "{given}"'], *dry)
    elif way == "proxy":
        result = feval(
            "proxy --upstream http://127.0.0.1:9/v1 --record",
            tmp_path / "o",
            "--api-key-env",
            given,
        )
    else:
        toy = write_toy(tmp_path / "toy", {"m": [["4"]]}, ["4"])
        result = feval("score", toy, "--scorer judge:m --out", tmp_path / "o", *named, *dry)
    assert given not in failed(result, 2, "--api-key-env wants the name of an environment variable")


def test_a_proxy_stores_no_known_key(tmp_path):
    result = feval(PROXY, tmp_path / "r", "--dataset", KEY)
    failed(result, 2, "NEBIUS_API_KEY is in --dataset")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("cost_limit = -1", "greater than 0"),
        ('counter = "tiktoken:abacus"', "abacus"),
        ('base_url = "nowhere"', "names no server"),
        (f'base_url = "http://127.0.0.1/v1?key={SHAPED}"', "has a query"),
    ],
)
def test_a_dry_run_says_what_cannot_work(tmp_path, line, words):
    result = record(tmp_path, [line], "--dry-run")
    failed(result, 2, words)


def test_the_password_of_a_url_in_the_settings_is_not_printed(tmp_path):
    lines = ['base_url = "http://joe:opensesame@127.0.0.1:9/v1"', 'backend = "openai"']
    for more in ((), ("--json",)):
        result = record(tmp_path, lines, "--dry-run", *more)
        assert (result.exit_code, "opensesame" in result.output) == (0, False), result.output


@pytest.mark.parametrize(
    ("said", "printed"),
    [
        (f"HTTPError: 401 for {KEY}.", "HTTPError: 401 for [key]."),
        (
            f"https://joe:pass@host/x?token=abc&q=1 {SHAPED}",
            "https://[key]@host/x?token=[key]&q=1 sk-[key]",
        ),
        ("Authorization: Bearer abcdefgh1234567890123456", "Authorization: Bearer[key]"),
        ("max_tokens=2048, a task-based risk", "max_tokens=2048, a task-based risk"),
    ],
)
def test_what_is_printed_shows_no_key(capsys, said, printed):
    say(said)
    assert capsys.readouterr().err == f"{printed}\n"


def test_an_error_of_a_library_shows_no_key(tmp_path, monkeypatch):
    def fails(_):
        raise RuntimeError(
            f"401 for https://joe:pass@host/x?key=opensesame, with the header Bearer {KEY}"
        )

    monkeypatch.setattr("feval.cli.record.default_prices", fails)
    monkeypatch.setenv("FEVAL_DEBUG", "1")
    result = record(tmp_path, [], "--dry-run")
    assert (result.exit_code, "Traceback" in result.stderr) == (1, True)
    assert not [secret for secret in ("joe:pass", "opensesame") if secret in result.stderr]
