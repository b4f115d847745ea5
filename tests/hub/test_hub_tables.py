"""Tables on the Hub: the files of one table are fetched, and imported as such."""

import json
from pathlib import Path

import pytest
from command_line import said
from huggingface_hub import constants

from feval.errors import HubError, UnpinnedWarning, UsageError
from feval.hub import fetch_table
from feval.importers.files import table_files
from feval.recording import open_recording

COMMIT = "c" * 40
COT = {"question": "1 + 1?", "gold": "2", "model": "m", "text": "The answer is 2.", "tokens": 5}


def imported(address, out):
    said("import table", address, "--dataset toy --answer-kind number --out", out)
    recording = open_recording(out)
    assert recording.votes("toy").llms["m"].sizes.tolist() == [2]
    return recording.manifest.raw["operation"]


@pytest.fixture
def answers(hub):
    shards = {
        f"data/train-0000{part}-of-00002.jsonl": json.dumps(COT | {"sample": part}).encode() + b"\n"
        for part in (0, 1)
    }
    other = {
        "README.md": b"# Answers\n",
        "data/test-00000-of-00001.jsonl": json.dumps(COT).encode(),
        "x.csv": b"a\n1\n",
    }
    hub.add_dataset("us/answers", shards | other, COMMIT)
    return hub


def test_the_files_of_a_split_are_one_table(answers, tmp_path):
    operation = imported(f"hf://datasets/us/answers@{COMMIT}/data/train", tmp_path / "out")
    assert operation["address"] == f"hf://us/answers@{COMMIT}/data/train"
    assert not answers.asked("resolve.*test-00000")
    count = len(answers.requests)
    assert fetch_table(f"hf://us/answers@{COMMIT}/data/train-00000-of-00002.jsonl")[0].is_file()
    assert len(answers.requests) == count, "what is in the cache is not asked for again"


def test_shards_that_were_fetched_before_are_not_of_another_table(hub):
    shards = [f"data/train-000{part}-of-00011.jsonl" for part in ("00", "01", "10")]
    hub.add_dataset("us/shards", {path: json.dumps(COT).encode() for path in shards}, COMMIT)
    assert len(table_files(fetch_table(f"hf://us/shards@{COMMIT}/data/train")[0])) == 3
    names = [
        path.name
        for path in table_files(fetch_table(f"hf://us/shards@{COMMIT}/data/train-0000")[0])
    ]
    assert names == [path.replace("/", "%2F") for path in shards[:2]]


README = """---
configs:
- config_name: main
  data_files:
  - {split: train, path: "runs/*.jsonl"}
  - {split: test, path: runs/b.jsonl}
- config_name: packed
  data_files: x.jsonl.xz
---
"""


@pytest.fixture
def named(hub, monkeypatch, tmp_path):
    """A repository whose README names its splits, for the library `datasets`, which is pointed to
    the double as well.
    """
    datasets = pytest.importorskip("datasets")
    # as HF_ENDPOINT would, which both libraries read when they are imported
    for module, name, value in (
        (constants, "ENDPOINT", hub.url),
        (
            constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            hub.url + "/{repo_id}/resolve/{revision}/{filename}",
        ),
        (datasets.config, "HF_ENDPOINT", hub.url),
    ):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    runs = {
        f"runs/{name}.jsonl": json.dumps(COT | {"sample": place}).encode()
        for place, name in enumerate("ab")
    }
    hub.add_dataset(
        "us/named",
        {"README.md": README.encode(), **runs, "x.jsonl.xz": b"x", "z.jsonl": b"{}"},
        COMMIT,
    )
    return f"hf://datasets/us/named@{COMMIT}"


@pytest.mark.slow
def test_a_split_that_the_library_datasets_knows_is_a_table(named, hub, tmp_path):
    operation = imported(f"{named}/main/train", tmp_path / "out")
    assert operation["address"] == f"hf://us/named@{COMMIT}/main/train"
    assert [file["file"] for file in operation["source"]] == ["runs%2Fa.jsonl", "runs%2Fb.jsonl"]
    assert not hub.asked("GET.*z.jsonl")
    assert fetch_table(f"{named}/main/test")[0].name == "b.jsonl"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("", "its configurations are main, packed. Name one of them, hf://us/named@c+/main"),
        ("/main", "its splits are train, test. Name one of them, hf://us/named@c+/main/train"),
        ("/main/dev", "its splits are train, test"),
        ("/packed", "has files that are not read, such as x.jsonl.xz. Read them with `datasets`"),
    ],
)
def test_what_the_library_datasets_does_not_find_to_be_one_table_is_said(named, path, sentence):
    with pytest.raises(UsageError, match=sentence):
        fetch_table(named + path)


@pytest.mark.parametrize(
    "place",
    [
        "/etc/pass*",
        "~/x",
        "../x",
        "a/../../x",
        "hf://datasets/us/other/x.jsonl",
        "zip://x::http://a",
    ],
)
@pytest.mark.parametrize("name", ["README.md", ".huggingface.yaml"])
def test_a_repository_leads_the_library_nowhere_else(place, name, hub, monkeypatch):
    monkeypatch.setattr("feval.hub.snapshots.version", lambda _: "4.0.0")
    monkeypatch.setattr(
        "feval.hub.snapshots._found", lambda *_: pytest.fail("the library was asked")
    )
    configs = (
        f"configs:\n- config_name: a\n  data_files: [{{split: b, path: ['{place}', x.jsonl]}}]\n"
    )
    # The library's YAML ends at the last of these lines, since a return alone ends no line for it,
    # though it does in YAML.
    page = f"---\n#\r---\r{configs}---\n" if name == "README.md" else configs
    hub.add_dataset("us/named", {name: page.encode(), "x.jsonl": b"{}", "y.jsonl": b"{}"}, COMMIT)
    with pytest.raises(
        UsageError, match=f"{name} of .* names files that are not in it, such as"
    ) as raised:
        fetch_table(f"hf://us/named@{COMMIT}/a")
    assert repr(place) in str(raised.value)
    bomb = "a: &a [x, x]\nconfigs: [{config_name: a, data_files: *a}]"
    for number, (text, words) in enumerate(
        [("configs: [", "It is not read"), (bomb, r"uses a YAML alias in line \d")]
    ):
        commit = f"{number}" * 40
        hub.add_dataset(
            "us/named",
            {name: f"---\n{text}\n---\n".encode(), "x.jsonl": b"{}", "y.jsonl": b"{}"},
            commit,
        )
        with pytest.raises(UsageError, match=f"{name} cannot be used. .*{words}"):
            fetch_table(f"hf://us/named@{commit}/a")


def test_what_is_not_one_table_is_said(answers, monkeypatch, tmp_path):
    monkeypatch.setattr(
        "feval.hub.snapshots.version", lambda _: "3.6.0"
    )  # of `datasets`, which may run a repository's code
    with pytest.raises(
        UsageError,
        match=r"it has several: data/test-\*-of-00001.jsonl, data/train-\*-of-00002.jsonl\.",
    ):
        fetch_table(f"hf://us/answers@{COMMIT}")
    with (
        monkeypatch.context() as patch,
        pytest.raises(UsageError, match="would read the folder us/answers here in place"),
    ):
        patch.setattr("feval.hub.snapshots.version", lambda _: "4.0.0")
        patch.chdir(tmp_path)
        Path("us/answers").mkdir(parents=True)
        fetch_table(f"hf://us/answers@{COMMIT}/main/train")
    with pytest.raises(UsageError, match="there is none"):
        fetch_table(f"hf://us/answers@{COMMIT}/nothing")
    with pytest.raises(HubError, match="no such repository"):
        fetch_table("hf://us/nothing/data")
    with pytest.warns(UnpinnedWarning, match=COMMIT):
        path, address = fetch_table("hf://us/answers/data/test")
    assert (path.name, str(address)) == (
        "test-00000-of-00001.jsonl",
        f"hf://us/answers@{COMMIT}/data/test",
    )
