"""What must not be published is found anywhere, reported by its place, and never shown."""

import base64
import json
import struct
import zlib

import pyarrow as pa
import pytest
import small
from hypothesis import given, strategies as st

from feval.errors import DamagedRecordingError, ReleaseError, UsageError
from feval.publish.scan import scan
from feval.publish.secrets import KEYS
from feval.recording import open_recording
from recorders.demo import bundled_recording

# Made of pieces, so that no search for keys in this repository finds any.
BODY = "aB3dE6gH9jK2mN5pQ8sT1vW4xY7zA0cD3fG6hJ9kL2nP5qR8tU1w"
LENGTHS = {
    "sk-": 24, "sk-proj-": 40, "sk-ant-api03-": 40, "sk-or-v1-": 40, "hf_": 34, "api_org_": 34,
    "AIza": 35, "ya29.": 40, "ghp_": 36, "github_pat_": 40, "glpat-": 20, "xoxb-": 24, "gsk_": 40,
    "xai-": 40, "r8_": 37, "pplx-": 40, "nvapi-": 40, "fw_": 24, "tgp_v1_": 40, "csk-": 40,
    "npm_": 36, "pypi-AgE": 45, "sk_live_": 24, "Bearer ": 30, '-H "authorization: bearer ': 30,
    "x-api-key: ": 32,
}  # fmt: skip
SECRETS = {begin: begin + BODY[:length] for begin, length in LENGTHS.items()} | {
    "AWS": "AKIA" + BODY[:16].upper(),
    "AWS session": "ASIA" + BODY[:16].upper(),
    "Databricks": "dapi" + "0123456789abcdef" * 2,
    "JWT": "eyJ" + BODY[:20] + ".eyJ" + BODY[:30] + "." + BODY[:30],
    "private key": "-----BEGIN RSA PRIVATE KEY-----",
    "OpenSSH": "-----BEGIN OPENSSH PRIVATE KEY-----",
    "password": "https://joe:" + BODY[:12] + "@host.org/x",
    "named": 'api_key = "' + BODY[:32] + '"',
    "named, in JSON": json.dumps(json.dumps({"apiKey": BODY[:32]})),
}
DISGUISES = {
    "upper case": str.upper,
    "backwards": lambda key: key[::-1],
    "hex": lambda key: "0x" + key.encode().hex(),
    "hex in capitals, behind a digit": lambda key: "7" + key.encode().hex().upper(),
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64, with a word before": (
        lambda key: base64.urlsafe_b64encode(f"my key {key}!".encode()).decode()
    ),
    "base64, with another": lambda key: base64.b64encode(f"a key {key}!".encode()).decode(),
    "characters that are not seen": lambda key: "\u200b".join(key),
    "those in JSON": lambda key: "\\u2060".join(key),
}
PATHS = (
    "/" + "home/joe/runs",
    "see /Users/joe",
    "C:\\Users\\joe\\x",
    "C:\\\\Users\\\\joe",
    '"/home/joe"',
    "file:///home/joe",
)
EMAILS = ("joe.doe@cs.uni.edu", "a+b@mail.co.uk", "<joe@firm.com>", "x_y%z@sub.domain.org")
HARMLESS = (
    "6 km/h, 15/2 = 7.5, 3/4/5 and/or /2",
    "the risk-adjusted task-based desk-bound sk-learn-like disk-",
    "sk-" + "so-many-words-and-no-digit-at-all-in-here",
    "https://example.org/home/joe and www.site.com/Users/joe",
    "@property x@y 5@1.50 each, a @ b, foo@bar, user@localhost",
    "mail joe@example.com or amy@mail.example.org, root@box.test, git@github.com:org/repo.git",
    "the bearer of bad news carried 12345678901234567890",
    "open('/tmp/a.py') then /usr/bin/python and /data/x.csv",
    "hf_hub_download and ghp_short and AKIAshort and eyJhbGci",
    "12:30:45@home, mailto:, http://host:8080/@x",
    (
        "My password: swordfish. The API key is missing."
        " api_key=os.environ['KEY_OF_THE_SERVICE_WE_USE']"
    ),
)


def parquet(schema=None, **columns):
    return small.parquet(pa.table(columns, schema), row_group_size=2)


def texts(*values):
    return {"texts/toy/a.parquet": parquet(question_id=["q"] * len(values), text=list(values))}


def text_of(result):
    return repr(result) + "".join(map(str, result.refused))


@pytest.mark.parametrize("name", SECRETS)
def test_every_kind_of_secret_is_found_and_never_shown(name):
    result = scan(texts("fine", None, f"I said: {SECRETS[name]} and went on", "fine"))
    assert len(result.refused) == 1, result
    finding = result.refused[0]
    assert str(finding).startswith("texts/toy/a.parquet, row 2, column text: ")
    assert finding.kind == "secret"
    with pytest.raises(ReleaseError) as refusal:
        result.require_clean()
    for text_shown in (text_of(result), str(refusal.value)):
        assert not any(BODY[start : start + 8] in text_shown for start in range(len(BODY) - 8))
    assert str(finding) in str(refusal.value)


@pytest.mark.parametrize("disguise", DISGUISES)
@pytest.mark.parametrize("known", [False, True])
def test_a_key_in_disguise_is_found(disguise, monkeypatch, *, known):
    """Of a key in the environment, whatever it looks like, and of one that looks like a key."""
    keys = [key for key in SECRETS.values() if key.startswith(tuple(KEYS))]
    assert len(keys) == 27
    if known:
        keys = ["zq81-marked/0123456789+" + BODY[:20]]
        monkeypatch.setenv("MY_KEY", keys[0])
    for key in keys:
        written = DISGUISES[disguise](key)
        for content in (
            texts("x", f"so: {written} and on"),
            {"notes.md": f"x\nso: {written} and on".encode()},
        ):
            result = scan(content)
            assert {(finding.kind, finding.place) for finding in result.refused} <= {
                ("secret", "row 1, column text"), ("secret", "line 2"),
            }  # fmt: skip
            assert result.refused, key
            assert written not in text_of(result)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(("path", f"saved to {path}") for path in PATHS),
        *(("email", f"Write to {email}, she said.") for email in EMAILS),
    ],
)
def test_paths_and_addresses_of_people_are_found(kind, text):
    result = scan(texts(text))
    assert [finding.kind for finding in result.refused] == [kind]
    assert "joe" not in text_of(result)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_word_problems_and_code_say_is_harmless(text):
    assert scan(texts(text)).refused == ()


@given(
    st.text(max_size=30),
    st.sampled_from(sorted(SECRETS)),
    st.integers(0, 5),
    st.lists(st.text(max_size=20), max_size=5),
)
def test_a_secret_is_found_wherever_it_stands(before, name, place, others):
    if not SECRETS[name].startswith(tuple(KEYS)) or (before and before[-1].isascii()):
        before += " "
    rows = [*others[:place], before + SECRETS[name], *others[place:]]
    result = scan(texts(*(row.encode(errors="replace").decode() for row in rows)))
    assert f"row {min(place, len(others))}, column text" in {
        finding.place for finding in result.refused
    }


def test_values_that_stand_beside_each_other_are_not_read_as_one():
    assert scan(texts("/home", "/joe", "joe@", "firm.com", "sk-", BODY[:30])).refused == ()


def test_nested_and_repeating_columns_are_searched():
    choices = [
        [{"label": "A", "text": "x"}],
        [],
        [{"label": "A", "text": "y"}, {"label": "B", "text": EMAILS[0]}],
    ]
    data = parquet(
        id=["1", "2", "3"],
        choices=choices,
        answer=["x", "x", EMAILS[1]],
        step=[["a"], None, [EMAILS[3]]],
    )
    result = scan({"questions/toy.parquet": data})
    assert [finding.place for finding in result.refused] == [
        "row 2, column choices", "row 2, column answer", "row 2, column step",
    ]  # fmt: skip


def test_the_footer_of_a_parquet_file_is_searched():
    footer = {"pandas": "made in /scratch/joe/run", "plain": "fine"}
    result = scan({"x.parquet": parquet(pa.schema({"x": pa.int64()}, footer), x=[1])})
    assert {finding.place for finding in result.refused} == {"its metadata"}


def test_other_files_are_searched_by_lines_and_strictly():
    manifest = b'{\n "operation": {\n  "source": "/scratch/joe/a.jsonl"\n }\n}'
    votes = b"\0\0key sk-" + BODY[:30].encode()
    result = scan(
        {"manifest.json": manifest, "README.md": b"ran in /tmp/x\n", "votes/toy.votes": votes}
    )
    places = [(finding.file, finding.place) for finding in result.refused]
    assert places == [("manifest.json", "line 3"), ("votes/toy.votes", "byte 6")]


def test_the_pixels_of_a_picture_are_no_text():
    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    text_shown = EMAILS[0].encode()
    picture = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", b"\0" * 13) + chunk(b"IDAT", text_shown)
    assert scan({"a.png": picture}).refused == ()
    assert len(scan({"a.png": picture + chunk(b"tEXt", b"Author\0" + text_shown)}).refused) == 1


def test_an_exception_says_what_it_lets_through():
    files = texts(EMAILS[0], PATHS[0], SECRETS["sk-"])
    result = scan(files, allow=["emails", "paths"])
    assert {finding.kind for finding in result.allowed} == {"email", "path"}
    assert [finding.kind for finding in result.refused] == ["secret"]
    again = scan(files, allow=["emails", "paths", result.refused[0].mark])
    assert (len(again.allowed), again.refused) == (3, ())
    again.require_clean()
    for wrong in ("secrets", "everything", "abc"):
        with pytest.raises(UsageError, match="cannot be allowed"):
            scan(files, allow=[wrong])


def test_values_of_the_users_own_keys_are_found(monkeypatch):
    monkeypatch.setenv("TOGETHER_API_KEY", value := "0123456789abcdef" * 2)
    monkeypatch.setenv("SHORT_KEY", "abc")
    result = scan(texts(f"the key {value}, and abc"))
    [finding] = result.refused
    assert finding.what == "the value of the environment variable TOGETHER_API_KEY"
    assert "0123456789" not in text_of(result)


def test_names_of_llms_are_no_addresses():
    files = texts("asked gpt-4o@v1.beta", "gpt-4o@v1.betas")
    assert [finding.place for finding in scan(files, names=["gpt-4o@v1.beta"]).refused] == [
        "row 1, column text"
    ]


def test_of_many_findings_a_thousand_are_kept_and_all_counted():
    result = scan(texts(*[f"joe{number}@firm.com" for number in range(1500)]))
    assert (len(result.refused), result.more) == (1000, 500)
    with pytest.raises(ReleaseError, match=r"1,500 findings: .* And 1,490 more"):
        result.require_clean()


def test_a_broken_parquet_file_is_a_sentence():
    with pytest.raises(DamagedRecordingError, match="run `feval verify`"):
        scan({"a.parquet": b"PAR1 nothing"})


def test_the_bundled_recording_is_clean_and_counted():
    with bundled_recording() as folder:
        recording = open_recording(folder)
        files = {path: folder / path for path in recording.manifest.files}
        steps = []
        result = scan(files, progress=lambda *step: steps.append(step))
    assert (result.refused, result.allowed) == ((), ())
    assert result.bytes_searched > 1_000_000
    assert steps[-1] == (len(files), len(files))


@pytest.mark.parametrize("binary", [False, True])
def test_a_file_is_searched_in_blocks_as_it_is_in_one(tmp_path, monkeypatch, *, binary):
    lines = [f"{'x' * (37 * row % 91)} joe.{row}@firm{row}.com said so\n" for row in range(300)]
    file = tmp_path / "notes.md"
    file.write_bytes(b"\0" * binary + "".join(lines).encode())
    whole = scan({"notes.md": file})
    assert len(whole.refused) == 300
    monkeypatch.setattr("feval.publish.scan._BLOCK_BYTES", 1000)
    monkeypatch.setattr("feval.publish.scan._OVERLAP_BYTES", 200)
    assert scan({"notes.md": file}).refused == whole.refused
