"""Releases: what is pushed, what is refused, and that others load what was pushed, with the same
numbers.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from importlib.util import find_spec
from unittest.mock import Mock

import pytest
import yaml
from command_line import failed, feval, said, succeeded, told
from hub_settings import TOKEN
from places import ROOT, read_data
from published import write

from feval.errors import ConflictError, DamagedRecordingError, HubError, UsageError
from feval.evaluation.curves import self_consistency_curve
from feval.hub import RepoState
from feval.publish import Licence
from feval.publish.release import RepositorySnapshot, changes, known_licence, look, prepare, push
from feval.recording import open_recording, verify_recording
from feval.recording.layout.manifest import manifest_bytes
from feval.replay import load
from recorders.demo import COUNTS, DATASET, LLMS, bundled_recording

pytestmark = pytest.mark.usefixtures("blank_pictures")

REPO = "somebody/recording"
HASH = "b07065b2e24c0280aed35a85aed507c0435e3bd7ee67fd35ccb5266dec1d774c"
MARK = "feval:words-begin"


@pytest.fixture
def toy(tmp_path):
    return write(tmp_path / "toy")


def send(folder, **options):
    return push(prepare(folder, look(REPO), **options))


def matter(page):
    return yaml.safe_load(page.decode().split("---\n")[1])


def run_python(tmp_path, code, *arguments):
    """What a program prints that loads from the Hub as anybody does."""
    process = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "HF_HOME": str(tmp_path / "home"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return process.stdout


def published(hub, revision="main"):
    return {
        path: data for path, data in hub.files(REPO, revision).items() if path != ".gitattributes"
    }


def test_the_demo_goes_to_the_hub_and_comes_back_with_the_same_curve(hub, tmp_path):
    with bundled_recording() as folder:
        account = told("push", folder, REPO, "--tag", "v1")
        before = [self_consistency_curve(*pair, COUNTS).points for pair in _pairs(folder)]
    assert account["recording_hash"] == HASH
    assert account["address"] == f"hf://{REPO}@{account['commit']}"
    for address in (account["address"], f"hf://{REPO}@v1"):
        assert [self_consistency_curve(*pair, COUNTS).points for pair in _pairs(address)] == before
    pulled = tmp_path / "pulled"
    said("pull", f"{REPO}@v1", "--out", pulled)
    assert verify_recording(pulled).problems == ()
    assert open_recording(pulled).hash == HASH
    assert told("push", pulled, REPO, "--dry-run")["new"] == []


def _pairs(place):
    dataset, llms = load(DATASET, LLMS, place)
    return [(dataset, llm) for llm in llms]


def test_what_the_page_says_of_feval_runs(hub, tmp_path, monkeypatch):
    with bundled_recording() as folder:
        said("push", folder, REPO, "--tag", "v1")
        dataset, [llm] = load(DATASET, LLMS[:1], folder)
        answers = llm(dataset.question_ids[0], n=1).answers
    page = published(hub)["README.md"].decode()
    code = page.split("```python\n")[1].split("```")[0]
    command = page.split("```sh\n")[1].split("```")[0].split()
    assert run_python(tmp_path, code) == f"{answers}\n"
    assert (command[0], command[-2:]) == ("feval", ["--out", "my-curve"])
    monkeypatch.chdir(tmp_path)
    said(*command[1:])
    assert (tmp_path / "my-curve" / "curve.csv").is_file()


def test_a_recording_on_the_hub_can_be_published_elsewhere(hub, toy):
    commit = send(toy).commit
    result = told("push", f"hf://{REPO}@{commit}", "somebody/else")
    assert result["recording_hash"] == open_recording(toy).hash
    assert {*hub.files("somebody/else")} == {*hub.files(REPO)}


_LOAD_ALL = """
import json, sys, yaml
from datasets import get_dataset_config_names, get_dataset_split_names, load_dataset
repo, revision, expected = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
assert sorted(get_dataset_config_names(repo)) == sorted(expected), expected
for config, rows in expected.items():
    loaded = load_dataset(repo, config, revision=revision)
    assert {name: split.num_rows for name, split in loaded.items()} == rows, loaded
    for name in rows:
        streamed = load_dataset(repo, config, revision=revision, split=name, streaming=True)
        assert next(iter(streamed)) == loaded[name][0]
assert list(load_dataset(repo)) == list(expected[next(iter(expected))])
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("datasets") is None, reason="the library `datasets` is not installed")
def test_datasets_loads_and_streams_every_configuration(hub, tmp_path):
    folder = write(tmp_path / "r", ["toy", "a/b c"], ["alpha", "beta@t=0.8", "org/gamma-1.5"])
    said("push", folder, REPO, "--tag", "v1")
    front = matter(published(hub)["README.md"])
    expected = {
        info["config_name"]: {split["name"]: split["num_examples"] for split in info["splits"]}
        for info in front["dataset_info"]
    }
    assert len(expected) == 2 * 4
    assert expected["toy"] == {"alpha": 12, "beta_t_0.8": 12, "org_gamma_1.5": 12}
    run_python(tmp_path, _LOAD_ALL, REPO, "v1", json.dumps(expected))


def test_a_release_is_the_recording_with_its_page(hub, toy):
    send(toy)
    files = published(hub)
    recording = open_recording(toy)
    own = {path for path in recording.manifest.files if path != "README.md"}
    assert set(files) - own == {
        "README.md", "LICENSE", "manifest.json", "figures/cost-accuracy.png",
    }  # fmt: skip
    assert all(files[path] == (toy / path).read_bytes() for path in own)
    manifest = json.loads(files["manifest.json"])
    assert set(manifest["files"]) == own
    assert files["manifest.json"] == manifest_bytes(
        recording.manifest.raw | {"files": manifest["files"]}
    )
    assert MARK in files["README.md"].decode()
    assert "made available under this licence: CC BY 4.0 (https://" in files["LICENSE"].decode()
    assert hub.datasets[REPO].private


def test_the_same_again_makes_no_commit(hub, toy):
    first = send(toy)
    hub.forget()
    again = send(toy)
    assert (again.commit, again.uploaded) == (first.commit, ())
    assert hub.asked("^POST .*/commit/") == []


def test_one_more_llm_sends_what_is_new(hub, toy, tmp_path):
    send(toy)
    more = write(tmp_path / "more", llms=["alpha", "beta@t=0.8", "gamma"])
    release = prepare(more, look(REPO))
    todo = changes(release)
    parts = ("requests", "samples", "texts")
    assert set(todo.new) == {f"{part}/toy/gamma.parquet" for part in parts}
    votes = {"votes/toy.votes", "votes/toy.details"}
    assert set(todo.changed) == {"README.md", "manifest.json", "figures/cost-accuracy.png", *votes}
    assert todo.removed == ()
    assert set(push(release).uploaded) == set(todo.sent)


def test_what_others_have_put_beside_it_stays(hub, toy):
    send(toy)
    hub.add_dataset(REPO, {**hub.files(REPO), "results/receipt.json": b"{}", "notes.md": b"mine"})
    send(toy, title="Another title")
    assert {"results/receipt.json", "notes.md"} <= set(published(hub))


def test_nothing_is_sent_where_something_was_found(hub, tmp_path):
    folder = write(tmp_path / "r", text="Ask joe@firm.com:")
    result = feval("push", folder, REPO)
    assert result.exit_code == 1
    found = "texts/toy/alpha.parquet, row 0, column text: an e-mail address, ***@***.com"
    assert found in result.stderr
    assert "joe" not in result.output
    assert feval("push", folder, REPO, "--dry-run").exit_code == 1
    assert REPO not in hub.datasets
    allowed = succeeded("push", folder, REPO, "--allow", "emails")
    assert "note: allowed: texts/toy/alpha.parquet, row 0" in allowed.stderr
    assert "more findings; --json lists them" in allowed.stderr


def test_a_damaged_recording_is_not_published(hub, toy):
    (toy / "texts/toy/alpha.parquet").write_bytes(b"changed")
    with pytest.raises(DamagedRecordingError):
        prepare(toy, look(REPO))


def test_an_older_release_does_not_take_away_what_it_lacks(hub, toy, tmp_path):
    push(prepare(write(tmp_path / "more", llms=["alpha", "beta@t=0.8", "gamma"]), look(REPO)))
    with pytest.raises(
        ConflictError, match=r"has 3 files that this recording lacks: .*gamma\.parquet"
    ):
        send(toy)
    push(prepare(toy, look(REPO)), remove=True)
    assert not any("gamma" in path for path in published(hub))


def test_a_release_that_is_not_up_to_date_is_refused(hub, toy):
    send(toy)
    release = prepare(toy, look(REPO), title="Mine")
    send(toy, title="Theirs")
    with pytest.raises(ConflictError, match="has changed since it was looked at"):
        push(release)


def test_no_licence_is_assumed(hub, tmp_path):
    bare = write(tmp_path / "bare", licence=None)
    with pytest.raises(
        UsageError,
        match=r"neither the recording nor an earlier page states one.*words=TEXT, or licence=ID\.",
    ):
        prepare(bare, look(REPO))


@contextmanager
def at_a_terminal(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("feval.cli.hub.sys", Mock(**{"stdin.isatty.return_value": True}))
        yield


def test_a_terminal_is_asked_for_the_licence_once(hub, tmp_path, monkeypatch):
    bare = write(tmp_path / "bare", licence=None)
    with at_a_terminal(monkeypatch):
        asked = feval("push", bare, REPO, input="My own licence\nCC-BY-SA-4.0\n")
    assert asked.exit_code == 0, asked.output
    assert "cc-by-nc-4.0  CC BY-NC 4.0: so, and not for money" in asked.stderr
    assert "'my own licence' does not look like one" in asked.stderr
    assert "license: cc-by-sa-4.0\n" in published(hub)["README.md"].decode()
    again = feval("push", bare, REPO)  # the page has it from now on
    assert (again.exit_code, "Under which licence" in again.output) == (0, False)


@pytest.mark.parametrize(
    ("outputs", "llm", "licence"), read_data("publishing.json")["licences of recordings"]
)
def test_a_recording_states_its_licence(tmp_path, outputs, llm, licence):
    stated = licence and Licence(*licence)
    assert (
        known_licence(write(tmp_path / "r", llms=[llm], licence=outputs), RepositorySnapshot(REPO))
        == stated
    )


OWN = Licence("other", "my-licence-1.0", "https://example.com/licence")


@pytest.mark.parametrize(
    ("licence", "words"), read_data("publishing.json")["licences without a name or text"]
)
def test_another_licence_has_a_name_and_a_text(tmp_path, licence, words):
    own = Licence(*licence) if isinstance(licence, list) else licence
    with pytest.raises(UsageError, match=words):
        prepare(tmp_path, RepositorySnapshot(REPO), licence=own)


def test_another_licence_is_in_the_front_matter_and_stays(tmp_path):
    folder = write(tmp_path / "bare", licence=None)
    release = prepare(folder, RepositorySnapshot(REPO), licence=OWN)
    first = release.files["README.md"]
    front = matter(first)
    assert front | OWN.fields == front
    assert front["license_details"].startswith("Collection: my-licence-1.0. ")
    assert f"| [my-licence-1.0]({OWN.link}) |" in first.decode()
    assert f"this licence: my-licence-1.0 ({OWN.link})." in str(release.files["LICENSE"])
    again = RepositorySnapshot(REPO, RepoState(REPO, "0" * 40, True, {}, {}), first.decode())
    assert prepare(folder, again).files["README.md"] == first
    changed = prepare(folder, again, licence="mit").files["README.md"]
    assert b"license_name" not in changed


def test_what_another_licence_lacks_is_asked_for(tmp_path, monkeypatch):
    folder = write(tmp_path / "r", licence="Our own terms")
    monkeypatch.setattr("feval.publish.look", RepositorySnapshot)
    page, words = tmp_path / "page" / "README.md", tmp_path / "words.md"
    push = ("push", folder, REPO, "--dry-run", "--page", page.parent)
    failed(feval(*push), 2, "found 'our-own-terms'")
    with at_a_terminal(monkeypatch):
        asked = feval(*push, input="our terms\nhttps://Example.com/Terms\n")
    assert asked.exit_code == 0, asked.output
    assert "Address of the text of our-own-terms" in asked.stderr
    assert "license_link: https://Example.com/Terms\n" in page.read_text()
    own = "license_name: mine\nlicense_link: LICENSE.md\n"
    words.write_text(f"---\n{own}---\n")
    said(*push, "--words", words)
    assert own in page.read_text()


@pytest.mark.slow
def test_sixteen_datasets_and_fourteen_llms_stay_within_the_hubs_limits(hub, tmp_path):
    folder = write(
        tmp_path / "r",
        [f"dataset_{n}" for n in range(16)],
        [f"org/model-{n}@t=0.{n}" for n in range(14)],
    )
    release = prepare(folder, look(REPO))
    folders = Counter(path.rpartition("/")[0] for path in release.files)
    assert len(release.files) == 16 * (1 + 2 + 3 * 14) + 4
    assert max(folders.values()) <= 32
    assert release.notes == ()
    page = release.files["README.md"]
    front = matter(page)
    assert len(front["configs"]) == 16 * 4
    assert max(len(config["data_files"]) for config in front["configs"]) == 14
    assert len(page) < 400_000
    assert len(push(release).uploaded) == len(release.files)
    assert len(hub.asked("^POST .*/commit/")) == 1


def test_more_splits_than_the_viewer_shows_are_told(hub, tmp_path, monkeypatch):
    monkeypatch.setattr("feval.publish.release.picture", lambda *_: None)
    release = prepare(write(tmp_path / "r", llms=[f"llm{n}" for n in range(31)]), look(REPO))
    assert release.notes == (
        "The Hub's viewer shows at most 30 splits; toy has more, and loads all the same.",
    )


def test_a_dry_run_sends_nothing_and_lists_what_it_would(hub, toy, tmp_path):
    result = said("push", toy, REPO, "--dry-run", "--page", tmp_path / "page")
    lines = result.splitlines()
    assert lines[0].startswith(f"Nothing was sent. A push to {REPO} would send 13 files")
    [samples] = (line.split()[:5] for line in lines if line.startswith("samples/"))
    assert samples == ["samples/", "2", "0", "0", "0"]
    assert REPO not in hub.datasets
    assert all(line.startswith("GET ") for line in hub.asked())
    assert MARK in (tmp_path / "page" / "README.md").read_text()
    assert (tmp_path / "page" / "figures" / "cost-accuracy.png").is_file()
    account = told("push", toy, REPO, "--dry-run")
    assert account["dry_run"] is True
    assert len(account["new"]) == 13
    assert account["changed"] == account["unchanged"] == account["removed"] == []


def test_a_dry_run_says_that_a_tag_is_taken(hub, toy, tmp_path):
    push = ("push", toy, REPO, "--tag", "v1")
    said(*push)
    said(*push, "--dry-run")  # nothing is new, so the tag is right
    (tmp_path / "words.md").write_text("---\ntitle: Another\n---\n")
    for more in (["--dry-run"], []):
        failed(feval(*push, "--words", tmp_path / "words.md", *more), 1, "already has the tag 'v1'")


def test_a_push_says_where_it_is_and_how_to_cite_it(hub, toy):
    result = succeeded("push", toy, REPO, "--public", "--tag", "v1.0")
    commit = hub.datasets[REPO].refs["main"]
    assert f"{hub.url}/datasets/{REPO}/tree/{commit}: 13 files sent" in result.stdout
    assert f"To load and to cite: hf://{REPO}@{commit}" in result.stdout
    assert open_recording(toy).hash in result.stdout
    assert not hub.datasets[REPO].private
    assert hub.datasets[REPO].tags == {"v1.0": commit}
    assert 'revision="v1.0"' in published(hub)["README.md"].decode()
    assert TOKEN not in result.output


def test_words_come_from_a_file(hub, toy, tmp_path):
    words = tmp_path / "words.md"
    words.write_text(
        "---\ntitle: Mine\nlanguage: en\nlicense: cc-by-4.0\n---\nRecorded for the **exam**."
    )
    said("push", toy, REPO, "--words", words)
    text = published(hub)["README.md"].decode()
    assert "Recorded for the **exam**." in text
    front = matter(text.encode())
    stated = {"pretty_name": "Mine", "language": ["en"], "license": "cc-by-4.0"}
    assert front | stated == front
    words.write_text("No front matter.")
    said("push", toy, REPO, "--words", words)
    text = published(hub)["README.md"].decode()
    assert "No front matter." in text
    assert yaml.safe_load(text.split("---\n")[1])["pretty_name"] == "Mine"
    words.write_text("---\nlicence: cc-by-4.0\n---\n")
    assert "Did you mean 'license'?" in feval("push", toy, REPO, "--words", words).stderr
    failed(feval("push", toy, REPO, "--words", tmp_path / "none.md"), 1, "Check --words")


def test_the_page_can_be_looked_at_without_the_hub(toy, tmp_path, monkeypatch):
    def gone(repository):
        raise HubError(f"The Hub cannot be reached for {repository}.")

    monkeypatch.setattr("feval.publish.look", gone)
    result = feval("push", toy, REPO, "--dry-run", "--page", tmp_path / "page")
    assert (result.exit_code, (tmp_path / "page" / "README.md").is_file()) == (0, True)
    new = "The page is that of a new repository, since the Hub does not answer: The Hub cannot"
    assert new in result.stderr
    assert "cannot be reached" in feval("push", toy, REPO, "--dry-run").stderr
