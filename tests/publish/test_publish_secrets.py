"""What is known as a secret, what looks like one, and what masks them."""

import base64
import os
import stat
from pathlib import Path
from urllib.parse import quote

import pytest
from places import read_data

from feval.errors import UsageError
from feval.publish.secrets import (
    Mask,
    check_variable,
    known_secrets,
    open_private,
    refuse_key_fields,
    refuse_secrets,
)

KEY = 'zq81-marked/0123456789+"abc\\def'


def test_known_are_long_values_of_variables_named_like_keys_or_by_the_command(monkeypatch):
    environment = {
        "A_API_KEY": f" {KEY}\n", "HF_TOKEN": "t" * 16, "SHORT_KEY": "t" * 15, "MONKEYS": "m" * 20,
        "ODD": "o" * 20,
        "SSH_KEY": str(Path(__file__)),
    }  # fmt: skip
    monkeypatch.setattr(os, "environ", environment)
    assert known_secrets() == {"A_API_KEY": KEY, "HF_TOKEN": "t" * 16}
    assert known_secrets("ODD").keys() == {"A_API_KEY", "HF_TOKEN", "ODD"}


def test_every_form_of_a_secret_is_masked_at_any_depth():
    forms = [
        KEY,
        quote(KEY, safe=""),
        base64.b64encode(KEY.encode()).decode(),
        KEY.replace("/", "\\/"),
    ]
    masked = Mask([KEY, "shorter"]).value(
        {"a": [f"x{form}y" for form in forms], KEY: (1, None, {"b": "shorter"})}
    )
    assert masked == {"a": ["x[key]y"] * 4, "[key]": [1, None, {"b": "shorter"}]}


@pytest.mark.parametrize(
    "text", [KEY, f"a {quote(KEY, safe='')}", f"http://u:{quote(KEY, safe='/')}@h"]
)
def test_a_known_secret_is_refused_by_its_variable_and_not_shown(text):
    for value in (text, [{"b": text}], {text: 1}):
        with pytest.raises(UsageError, match="variable MY_KEY is in the stop texts") as caught:
            refuse_secrets({"the model": "m", "the stop texts": value}, {"MY_KEY": KEY})
        assert KEY not in str(caught.value)
    refuse_secrets({"the model": text[:9]}, {"MY_KEY": KEY})


@pytest.mark.parametrize(
    ("value", "field"),
    read_data("publishing.json")["fields with the name of a key"],
)  # fmt: skip
def test_fields_with_the_name_of_a_key_are_refused_unless_allowed(value, field):
    if field is None:
        refuse_key_fields(value, (), "{}")
        return
    with pytest.raises(UsageError, match=f"a field '{field}', .*, allow {field}"):
        refuse_key_fields(value, ["other"], "allow {}")
    refuse_key_fields(value, [field], "allow {}")


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "NEBIUS_KEY_2", "KEY", "hf_mine"])
def test_the_name_of_a_variable_is_one(name):
    assert check_variable(name, {"hf_mine": "x"}) == name


@pytest.mark.parametrize(
    "key",
    [
        "sk-proj-abc",
        "hf_" + "a1B2" * 9,
        "AKIAIOSFODNN7EXAMPLE",
        "a3f9" * 8,
        "A3F9" * 8,
        "two words",
        "",
    ],
)
def test_a_key_is_no_name_of_a_variable_and_is_not_shown(key):
    with pytest.raises(UsageError, match="wants the name") as caught:
        check_variable(key, {})
    assert not key or key not in str(caught.value)


def test_a_private_file_is_its_owners_alone(tmp_path):
    path = tmp_path / "file"
    path.write_text("there already")
    path.chmod(0o664)
    os.close(open_private(path))
    assert (stat.S_IMODE(path.stat().st_mode), path.read_text()) == (0o600, "there already")
