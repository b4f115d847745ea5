"""Recordings on the Hub: fetched in part, checked, kept, opened offline. The real client against a
Hub on loopback.
"""

import json
import logging
import re
import shlex
import shutil

import command_line
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bombs import KINDS, bomb
from hub_double import Failure
from hub_settings import TOKEN, full_text
from huggingface_hub import constants
from places import ROOT
from recorded_probes import ALPHA, as_words, probe_words, write_probed
from recorded_turns import write_full_turns
from small import content, in_parts, parquet, record_of, restate, stated, write_scored_toy

import feval
from feval.errors import (
    DamagedRecordingError,
    FevalError,
    HubError,
    NotFetchedError,
    NotRecordedError,
    StorageError,
    UnpinnedWarning,
    UsageError,
)
from feval.hub import local_folder, open_place, pull
from feval.methods import SequentialRevision
from feval.recording import merge, open_recording, select, verify_recording
from feval.recording.layout.format import Part, recording_hash
from feval.recording.layout.manifest import Manifest, manifest_bytes

REPO = "somebody/recording"
PRICES = "tiny-2026-11"
GOLDS = ("1", "2", "x", None)
POOLS = {
    "a": [("1", "1", None), ("2", "1", "2"), (), ("y", "y", "z")],
    "b": [("1", "2", "1"), ("2", "2", "2"), ("x",), ("y", "y", "z")],
    "us/c": [("3", "3", "1"), ("1", "1", "2"), ("x", "x"), ("z", "y", "z")],
}


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The first questions and CoTs of the bundled recording."""
    whole = ROOT / "recorders" / "tiny" / "recording"
    first = [question.id for question in open_recording(whole).questions("tiny_sums")[:12]]
    return select(whole, tmp_path_factory.mktemp("recordings") / "demo", questions=first, samples=6)


@pytest.fixture(scope="module")
def folder(demo):
    """A recording of two datasets: one with scores, log-probabilities and an empty pool, and the
    bundled one.
    """
    return merge(
        [write_scored_toy(demo.with_name("toy"), POOLS, GOLDS, PRICES), demo],
        demo.with_name("both"),
    )


def load(place, *llms, **options):
    return feval.load("toy", llms, recording=place, **options)


def put(hub, folder, **changes):
    """Publish a recording; gives its address at its commit."""
    files = {**content(folder), ".gitattributes": b"*.parquet filter=lfs\n", **changes}
    return f"hf://{REPO}@{hub.add_dataset(REPO, files)}"


@pytest.fixture
def address(hub, folder):
    return put(hub, folder)


def sent_paths(hub):
    return {path for path, size in hub.sent_bytes.items() if size}


def cached(tmp_path, address, path):
    snapshots = tmp_path / "hf-home/hub/datasets--somebody--recording/snapshots"
    return snapshots / address.rpartition("@")[2] / path


def spoil(path):
    """Change one byte of a file in the cache."""
    real = path.resolve()
    data = bytearray(real.read_bytes())
    data[len(data) // 2] ^= 1
    real.write_bytes(bytes(data))


def answers(dataset, llms):
    return [
        (llm.name, question, llm(question, n=1).answers, llm(question, n=1).dollar_cost)
        for llm in llms
        for question in dataset.question_ids[:2]
    ]


def test_loading_fetches_what_voting_needs_and_nothing_else(hub, folder, address):
    there = load(address, "a", "us/c", prices="none")
    here = load(folder, "a", "us/c", prices="none")
    assert came(hub, folder, {"manifest.json", *needed("toy", ["a", "us/c"])})
    assert [llm.pool.codes.tolist() for llm in there[1]] == [
        llm.pool.codes.tolist() for llm in here[1]
    ]
    assert there[0].recording_hashes == here[0].recording_hashes


def came(hub, folder, paths):
    """Whether the server sent exactly the contents of some files, each once: the cache keeps equal
    files as one.
    """
    sizes = sorted(map(len, {(folder / path).read_bytes() for path in paths}))
    return sorted(hub.sent_bytes.values()) == sizes and sent_paths(hub) <= paths


def needed(dataset, llms):
    own = {Part(name, dataset, llm).path for name in ("requests", "samples") for llm in llms}
    return {Part(name, dataset).path for name in ("questions", "votes", "details")} | own


def test_every_byte_is_sent_once(hub, folder, address):
    load(address, "a")
    load(address, "a")
    pull(address)
    assert came(hub, folder, content(folder).keys() - {"README.md"})


def test_a_pinned_commit_in_the_cache_asks_for_nothing(hub, address):
    load(address, "a")
    hub.forget()
    load(address, "a")
    assert hub.requests == []


def test_texts_prompts_and_channels_are_fetched_when_they_are_asked_for(hub, folder, address):
    dataset, [llm] = load(address, "b", prices="none")
    _, [own] = load(folder, "b", prices="none")
    hub.forget()
    row = dataset.question_ids[0]
    assert [cot.raw_text for cot in llm(row).cots] == [cot.raw_text for cot in own(row).cots]
    assert sent_paths(hub) == {"texts/toy/b.parquet"}
    hub.forget()
    assert llm(row).scores() == own(row).scores()
    assert sent_paths(hub) == {path for path in content(folder) if path.startswith("scores/toy/b/")}
    hub.forget()
    assert llm(row).sequence_logprobs == own(row).sequence_logprobs
    assert sent_paths(hub) == {"logprobs/toy/b.parquet"}
    assert llm(row).request.raw_text == own(row).request.raw_text


def test_turns_are_fetched_with_their_llm(hub, tmp_path):
    local = write_full_turns(tmp_path / "turns", ["a", "b"], first=2)
    dataset, [llm] = feval.load("toy", recording=put(hub, local))
    assert "turns/toy/gpt-3.5-turbo@revise.parquet" in sent_paths(hub)
    method = SequentialRevision(4, 2)
    here, there = (
        feval.evaluate(method, *loaded, order="recorded").right.tolist()
        for loaded in (feval.load("toy", recording=local), (dataset, llm))
    )
    assert here == there
    metered = llm.ask("toy/0", None)
    assert metered.reply(metered.sample(1), "Revise.").request.tokens is not None
    assert "texts/toy/gpt-3.5-turbo@revise.parquet" in sent_paths(hub)


def test_probes_are_fetched_when_they_are_asked_for(hub, tmp_path):
    folder = write_probed(tmp_path / "probed")
    address = put(hub, folder)
    _, [llm] = load(address, "alpha")
    assert came(hub, folder, {"manifest.json", *needed("toy", ["alpha"])})
    hub.forget()
    own = open_recording(folder).probes("toy", "alpha")
    assert llm.pool.probes().codes.tolist() == own.codes.tolist()
    # the second checks the first
    assert sent_paths(hub) == {"votes/toy/alpha.probes", "probes/toy/alpha.parquet"}
    pulled = pull(address, tmp_path / "pulled")
    assert verify_recording(pulled.folder).problems == ()
    assert probe_words(open_recording(pulled.folder), "alpha") == as_words(ALPHA)


def test_probes_that_contradict_what_the_hash_pins_are_refused(hub, tmp_path):
    folder = write_probed(tmp_path / "probed")
    path = "votes/toy/alpha.probes"
    data = bytearray((folder / path).read_bytes())
    header = json.loads(data[16 : 16 + int.from_bytes(data[8:16], "little")])
    data[header["arrays"]["codes"][2]] = 0
    (folder / path).write_bytes(data)
    restate(folder, path)
    _, [llm] = load(put(hub, folder), "alpha")
    with pytest.raises(
        DamagedRecordingError, match=r"contradicts the Parquet files .*codes of probes"
    ):
        llm.pool.probes()


def test_the_address_alone_opens_a_recording_of_one_dataset(hub, demo):
    address = put(hub, demo)
    dataset, llms = feval.load(address)
    assert (dataset.id, len(llms)) == ("tiny_sums", 3)
    assert answers(dataset, llms) == answers(*feval.load("tiny_sums", recording=demo))


def test_the_address_alone_of_several_datasets_says_how_to_name_one(hub, address):
    with pytest.raises(
        UsageError, match=r"holds 2 datasets \(toy, tiny_sums\).*load\('toy', recording='hf://"
    ):
        feval.load(address)


def test_a_part_can_be_pulled(hub, folder, address, tmp_path):
    pulled = pull(address, datasets=["toy"], llms=["a"], texts=False)
    expected = {
        path for path in content(folder) if "/toy" in path and ("/toy/" not in path or "/a" in path)
    }
    expected -= {"texts/toy/a.parquet"}
    assert came(hub, folder, {"manifest.json", *expected})
    assert pulled.files == len(expected) + 1
    assert pulled.left_out == len(content(folder)) - 2 - len(expected)


def test_a_pulled_recording_is_sound_and_has_the_same_hash(hub, folder, address, tmp_path):
    pulled = pull(address, tmp_path / "mine")
    assert pulled.recording_hash == open_recording(folder).hash
    assert verify_recording(tmp_path / "mine").problems == ()
    assert verify_recording(local_folder(address)).problems == ()
    pulled_files = content(tmp_path / "mine")
    assert json.loads(pulled_files.pop(".feval-pulled.json")) == {"address": address}
    assert pulled_files == {
        path: data for path, data in content(folder).items() if path != "README.md"
    }


def test_a_part_in_a_folder_of_its_own_says_what_is_missing(hub, address, tmp_path):
    pull(address, tmp_path / "part", datasets=["toy"], llms=["a"], texts=False)
    _, [llm] = load(tmp_path / "part", "a", prices="none")
    with pytest.raises(
        NotFetchedError,
        match=f"texts/toy/a.parquet of {address} was not fetched. `feval pull {address}`",
    ):
        _ = llm("toy/0").cots[0].raw_text
    problems = verify_recording(tmp_path / "part").problems
    assert (
        f"texts/toy/a.parquet: it was not fetched; `feval pull {address}` fetches all." in problems
    )


def test_what_is_not_recorded_is_said_before_anything_is_fetched(hub, address):
    with pytest.raises(NotRecordedError, match="holds no dataset 'none'"):
        pull(address, datasets=["none"])
    with pytest.raises(NotRecordedError, match="holds no CoTs of 'none'"):
        pull(address, llms=["a", "none"])
    assert sent_paths(hub) == {"manifest.json"}


def test_an_existing_folder_is_never_written_into(hub, address, tmp_path):
    with pytest.raises(StorageError, match="exists already"):
        pull(address, tmp_path)
    assert hub.requests == []


def test_several_places_can_stand_in_the_environment(hub, folder, address, monkeypatch):
    monkeypatch.setenv("FEVAL_RECORDING", f"{address}:{folder}")
    dataset, _ = feval.load("toy", ["a"])
    assert dataset.recording_hashes == (open_recording(folder).hash,)
    assert sent_paths(hub) >= {"votes/toy.votes"}


def test_a_recording_may_lie_in_a_folder_of_the_repository(hub, demo):
    files = {f"recordings/demo/{path}": data for path, data in content(demo).items()}
    address = f"hf://datasets/{REPO}@{hub.add_dataset(REPO, files)}/recordings/demo"
    dataset, _ = feval.load(address)
    assert dataset.recording_hashes == (open_recording(demo).hash,)
    assert verify_recording(local_folder(address)).ok


def test_a_branch_warns_with_the_commit_to_pin(hub, address):
    with pytest.warns(UnpinnedWarning, match=f"is a branch.*Pin today's commit: {address}"):
        open_place(f"hf://{REPO}")
    hub.datasets[REPO].refs["next/one"] = address.rpartition("@")[2]
    with pytest.warns(UnpinnedWarning, match="next%2Fone is a branch"):
        open_place(f"hf://{REPO}@next%2Fone")


def test_a_branch_that_moved_is_followed(hub, demo, folder, address):
    with pytest.warns(UnpinnedWarning):
        assert open_place(f"hf://{REPO}@main").hash == open_recording(folder).hash
    put(hub, demo)
    with pytest.warns(UnpinnedWarning):
        assert open_place(f"hf://{REPO}@main").hash == open_recording(demo).hash


def test_tags_and_beginnings_of_commits_do_not_warn(hub, folder, address):
    commit = address.rpartition("@")[2]
    hub.datasets[REPO].tags["v1.0"] = commit
    assert open_place(f"hf://{REPO}@v1.0").address == address


def test_what_was_fetched_opens_offline(hub, folder, address, monkeypatch):
    hub.datasets[REPO].tags["v1.0"] = address.rpartition("@")[2]
    load(f"hf://{REPO}@v1.0", "a")
    with pytest.warns(UnpinnedWarning):
        open_place(f"hf://{REPO}")
    hub.forget()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for place in (address, f"hf://{REPO}@v1.0"):
        _, [llm] = load(place, "a", prices="none")
    with pytest.warns(UnpinnedWarning):
        open_place(f"hf://{REPO}")
    with pytest.raises(HubError, match=r"the network is off \(HF_HUB_OFFLINE\).*not in the cache"):
        _ = llm("toy/0").cots[0].raw_text
    with pytest.raises(HubError, match=r"the network is off \(HF_HUB_OFFLINE\)"):
        open_place(f"hf://{REPO}@v2.0")
    assert hub.requests == []


@pytest.mark.parametrize(
    "path", ["manifest.json", "votes/toy.votes", "samples/toy/a.parquet", "texts/toy/a.parquet"]
)
def test_a_damaged_cache_is_fetched_again_once(hub, address, tmp_path, path):
    def read():
        _, [llm] = load(address, "a", prices="none")
        return llm.pool.codes.tolist(), llm("toy/0").cots[0].raw_text

    before = read()
    spoil(cached(tmp_path, address, path))
    hub.forget()
    assert read() == before
    assert sent_paths(hub) == {path}


@pytest.mark.parametrize("path", ["manifest.json", "votes/toy.votes", "samples/toy/a.parquet"])
@pytest.mark.parametrize("redirect", [False, True])
def test_wrong_bytes_are_fetched_again_once_and_then_refused(hub, address, path, redirect):
    hub.redirect = redirect
    hub.wrong_bytes[path] = 1
    load(address, "a")
    shutil.rmtree(constants.HF_HUB_CACHE)
    hub.wrong_bytes[path] = 9
    hub.forget()
    with pytest.raises(HubError, match=f"{path} of .* came twice .* with other bytes than"):
        load(address, "a")
    assert hub.wrong_bytes[path] == 7


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (f"hf://{REPO}@{'0' * 40}", "no such commit"),
        ("hf://nobody/nothing@v1", "no such repository"),
        (
            f"hf://{REPO}@v9",
            (
                "no such commit, tag or branch; it has no tags, its branches are main, and what is"
                " needed"
            ),
        ),
    ],
)
def test_what_is_not_there_is_a_sentence(hub, address, place, words):
    with pytest.raises(HubError, match=words):
        open_place(place)


def test_a_repository_without_a_recording_is_a_sentence(hub):
    commit = hub.add_dataset(REPO, {"README.md": b"# Nothing\n"})
    with pytest.raises(HubError, match=r"has no manifest\.json, so it is not a recording"):
        open_place(f"hf://{REPO}@{commit}")


def test_a_full_disk_is_said_before_anything_comes(hub, address, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 50_000_000))
    with pytest.raises(StorageError, match=r"has room for 50,000,000\. Fetch a part of it"):
        pull(address)
    assert sent_paths(hub) == {"manifest.json"}


def test_all_files_of_a_part_are_fetched_with_the_first_that_is_read(hub, folder, tmp_path):
    """The leaf is over all of them, so none is used before it is checked."""
    parts = in_parts(folder, tmp_path / "parts", {"samples": 2, "texts": 2})
    address = put(hub, parts)
    there = load(address, "a", prices="none")[1][0]
    samples, texts = (
        {path for path in content(parts) if path.startswith(f"{part}/toy/a/")}
        for part in ("samples", "texts")
    )
    assert len(samples) == len(texts) == 2
    assert samples <= sent_paths(hub)
    assert texts.isdisjoint(sent_paths(hub))
    assert there.texts(0) == load(folder, "a", prices="none")[1][0].texts(0)
    assert sent_paths(hub) & {path for path in content(parts) if path.startswith("texts/")} == texts
    assert pull(address, tmp_path / "pulled").recording_hash == open_recording(folder).hash
    assert verify_recording(tmp_path / "pulled").ok


def publish_changed(hub, folder, change, **files):
    manifest = stated(folder)
    change(manifest)
    return put(hub, folder, **{"manifest.json": manifest_bytes(manifest), **files})


def publish_files(hub, folder, files, rows):
    """Publish a recording with other files, which its manifest states."""

    def restate(manifest):
        stating = {path: record_of(data) | {"rows": rows} for path, data in files.items()}
        manifest["files"].update(stating)

    return publish_changed(hub, folder, restate, **files)


@pytest.mark.parametrize(
    "path",
    [
        "../../evil",
        "/etc/passwd",
        "a/../../evil",
        "..\\evil",
        "C:evil",
        "texts/./x",
        "evil.sh",
        "texts/toy/evil.parquet",
    ],
)
def test_a_manifest_that_names_other_files_is_refused(hub, folder, path, tmp_path):
    address = publish_files(hub, folder, {path: b"evil"}, 1)
    for ask in (
        lambda: pull(address),
        lambda: pull(address, tmp_path / "out"),
        lambda: feval.load("toy", recording=address),
    ):
        with pytest.raises(
            DamagedRecordingError, match=r"lies outside the recording|which no recording .* has"
        ):
            ask()
    assert sent_paths(hub) - {"questions/toy.parquet", *needed("toy", list(POOLS))} == {
        "manifest.json"
    }
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.rglob("*evil*"))


def test_names_that_differ_in_case_only_are_refused():
    from feval.recording.verify import check_names

    with pytest.raises(DamagedRecordingError, match="the same file on many disks"):
        check_names(["texts/A.parquet", "texts/a.parquet"])
    with pytest.raises(DamagedRecordingError, match="as a file and as a folder"):
        check_names(["texts/a", "texts/a/b"])


def test_datasets_that_differ_in_case_only_are_refused(hub, folder):
    def add(manifest):
        manifest["datasets"].append({**manifest["datasets"][0], "id": "TOY"})
        manifest["files"]["questions/TOY.parquet"] = manifest["files"]["questions/toy.parquet"]

    with pytest.raises(DamagedRecordingError, match="the same file on many disks"):
        pull(publish_changed(hub, folder, add))


def test_a_file_larger_than_its_manifest_says_is_not_fetched(hub, folder):
    address = put(hub, folder, **{"votes/toy.votes": bytes(1 << 20)})
    with pytest.raises(DamagedRecordingError, match="has 1,048,576 bytes on the Hub"):
        load(address, "a")
    assert "votes/toy.votes" not in sent_paths(hub)


def test_an_enormous_manifest_is_not_fetched(hub, folder, monkeypatch):
    monkeypatch.setattr("feval.hub.recordings.MOST_BYTES", 100)
    with pytest.raises(HubError, match="at most 100 are fetched"):
        open_place(put(hub, folder))
    assert sent_paths(hub) == set()


def test_a_manifest_that_states_terabytes_is_a_sentence(hub, folder):
    def grow(manifest):
        manifest["files"]["votes/toy.votes"]["bytes"] = 1 << 60

    with pytest.raises(
        DamagedRecordingError, match="is not the file of 1,152,921,504,606,846,976 bytes"
    ):
        load(publish_changed(hub, folder, grow), "a")


@pytest.mark.parametrize(
    "data", [b"[" * 100_000, b'{"a":' * 100_000, b"{", b"\xff", b"null", b'{"format": 1}', b""]
)
def test_a_manifest_that_is_none_is_a_sentence(hub, folder, data):
    with pytest.raises(FevalError, match=r"not valid JSON|is not the manifest of a recording"):
        open_place(put(hub, folder, **{"manifest.json": data}))


@pytest.mark.parametrize("kind", KINDS)
def test_a_parquet_bomb_is_refused_unread(hub, folder, kind):
    data, rows = bomb(kind)
    assert len(data) < 1 << 19
    path = "texts/toy/a.parquet"
    address = publish_files(hub, folder, {path: data}, rows)
    pool = pa.default_memory_pool()
    before = pool.max_memory()
    with pytest.raises(DamagedRecordingError, match="no recording compresses so well"):
        pull(address)
    assert pool.max_memory() - before < 64 << 20


def test_another_content_than_the_recording_hash_pins_is_refused(hub, folder):
    path = "samples/toy/a.parquet"
    table = pq.read_table(folder / path)
    name = "output_tokens"
    tokens = pa.array([tokens + 1 for tokens in table.column(name).to_pylist()], pa.int32())
    data = parquet(table.set_column(table.schema.get_field_index(name), name, tokens))
    address = publish_files(hub, folder, {path: data}, len(table))
    with pytest.raises(DamagedRecordingError, match="the leaf toy / a / samples should be"):
        load(address, "a")
    load(address, "b")


@pytest.mark.parametrize("llms", [["a"], ["b"]])
def test_votes_that_say_something_else_are_refused(hub, folder, llms, tmp_path):
    """The recording hash does not pin the votes; they are held against what it pins."""
    other = write_scored_toy(
        tmp_path / "other", {**POOLS, "a": [("2", "2", "2"), *POOLS["a"][1:]]}, GOLDS, PRICES
    )
    votes = {path: (other / path).read_bytes() for path in ("votes/toy.votes", "votes/toy.details")}
    address = publish_files(hub, folder, votes, len(GOLDS))
    assert open_place(address).hash == open_recording(folder).hash
    if llms == ["a"]:
        with pytest.raises(DamagedRecordingError, match=r"contradicts the Parquet files"):
            feval.load("toy", llms, recording=address)
        with pytest.raises(DamagedRecordingError, match=r"contradicts the Parquet files"):
            pull(address)
    else:
        feval.load("toy", llms, recording=address)


def test_a_leaf_that_is_missing_is_refused(hub, folder):
    def change(manifest):
        manifest["leaves"] = [
            leaf for leaf in manifest["leaves"] if (leaf["llm"], leaf["part"]) != ("a", "samples")
        ]
        manifest["recording_hash"] = recording_hash(Manifest(manifest).leaves)

    with pytest.raises(DamagedRecordingError, match="the leaf toy / a / samples should be None"):
        load(publish_changed(hub, folder, change), "a")


def test_an_edited_card_does_no_harm(hub, folder, tmp_path):
    address = put(
        hub,
        folder,
        **{"README.md": b"<script>alert(1)</script>", "curve.png": b"PNG", "run.py": b"evil()"},
    )
    pull(address, tmp_path / "mine")
    assert verify_recording(tmp_path / "mine").ok
    assert not (tmp_path / "mine" / "run.py").exists()
    assert not (tmp_path / "mine" / "README.md").exists()


@pytest.mark.parametrize(
    "place",
    [
        "hf://", "hf://a", "hf://a/..", "hf://../b", "hf://a/b@", "hf://a/b@../c", "hf://a/b@-x",
        "hf://a/b@v/../x", "hf://a/b@v/x\\y",
        "hf://a/b--c", "hf://models/a/b", "hf://a/b@v/.hidden", "hf://a/b@v//x", "hf://a b/c",
        "hf://a/b@v\n",
    ],
)  # fmt: skip
def test_addresses_that_cannot_be_are_refused(hub, place):
    with pytest.raises(
        UsageError, match=r"looks like hf://namespace/name@revision|is not a dataset repository"
    ):
        open_place(place)
    assert hub.requests == []


def test_the_token_is_shown_nowhere(hub, folder, tmp_path, monkeypatch, caplog):
    caplog.set_level("DEBUG")
    monkeypatch.setenv("HF_ENDPOINT", f"http://user:{TOKEN}@127.0.0.1:{hub.port}")
    address = put(hub, folder)
    for failure in (Failure(401), Failure(403), Failure(500, headers=(("Retry-After", "0"),))):
        hub.failures[:] = [failure] * 20
        with pytest.raises(HubError) as raised:
            open_place(f"hf://{REPO}@v1")
        assert TOKEN not in full_text(raised.value)
    hub.failures.clear()
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    hub.forget()
    recording = open_place(address)
    pull(address, tmp_path / "mine")
    assert TOKEN not in repr(recording)
    assert TOKEN not in repr(vars(recording))
    assert TOKEN not in caplog.text
    assert not [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and TOKEN.encode() in path.read_bytes()
    ]
    assert {request.token for request in hub.requests} == {f"Bearer {TOKEN}"}


def test_the_token_is_not_sent_to_where_the_hub_redirects(hub, address):
    hub.redirect = True
    pull(address)
    elsewhere = [request for request in hub.requests if request.host == "localhost"]
    assert elsewhere
    assert {request.token for request in elsewhere} == {None}


def test_the_client_speaks_again_when_the_last_thread_is_done(hub, address):
    from huggingface_hub.utils import are_progress_bars_disabled
    from huggingface_hub.utils.logging import get_verbosity

    before = get_verbosity(), are_progress_bars_disabled(), logging.getLogger("httpx2").level
    pull(address)
    assert (
        get_verbosity(),
        are_progress_bars_disabled(),
        logging.getLogger("httpx2").level,
    ) == before


def test_commands_take_an_address_where_they_take_a_folder(
    hub, folder, address, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    own = "--dataset tiny_sums --llm feval/tiny-42k --recording"
    curve = f"curve self-consistency --n 1,5 --json {own}"
    there = command_line.feval(curve, address)
    assert (there.exit_code, there.stderr) == (0, "")
    here = command_line.feval(curve, folder)
    remote, local = (
        json.loads(result.stdout) | {"receipt": None} for result in (there, here)
    )  # receipts name the recording
    assert remote == local
    for line in (
        f"info {address}",
        f"verify {address}",
        f"select {address} --dataset toy --out small",
        f"extract {address} --answers stored --out again",
        f"run self-consistency --set n=2 {own} {address} --out report",
        "verify report",
        f"compare plan.toml --init --dataset tiny_sums --recording {address}",
    ):
        result = command_line.feval(line, "--quiet")
        assert (result.exit_code, result.stderr) == (0, ""), line
    receipt = json.loads((tmp_path / "report" / "receipt.json").read_bytes())
    assert [entry["path"] for entry in receipt["recordings"]] == [address]
    assert address in (tmp_path / "plan.toml").read_text("utf-8")


def test_a_branch_is_a_note_of_the_command(hub, address):
    result = command_line.feval("info", f"hf://{REPO}")
    assert result.exit_code == 0
    assert (
        result.stderr
        == f"note: hf://{REPO} is a branch, which may hold something else tomorrow. Pin today's"
        f" commit: {address}\n"
    )
    assert command_line.feval("info", f"hf://{REPO}", "--quiet").stderr == ""


def test_the_plan_of_a_comparison_may_name_an_address(hub, address, tmp_path):
    plan = f"""dataset = "tiny_sums"
recordings = ["{address}"]
resamples = 100

[[method]]
name = "self-consistency"
llms = ["feval/tiny-42k"]
budgets = {{ n = [1, 3] }}
"""
    (tmp_path / "plan.toml").write_text(plan, "utf-8")
    for line in (f"compare {tmp_path}/plan.toml --out {tmp_path}/out", f"verify {tmp_path}/out"):
        result = command_line.feval(line, "--quiet")
        assert (result.exit_code, result.stderr) == (0, ""), result.stderr
    assert address in (tmp_path / "out" / "comparison.toml").read_text("utf-8")


def test_the_examples_of_the_page_run(hub, demo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    address = put(hub, demo)
    hub.datasets[REPO].tags["v1.0"] = address.rpartition("@")[2]
    page = (ROOT / "docs" / "loading.md").read_text("utf-8")
    for word, ours in (
        ("org/my-recording", REPO),
        ("<commit>", address.rpartition("@")[2]),
        ("gsm8k", "tiny_sums"),
        ("gpt-4o-mini", "feval/tiny-42k"),
    ):
        page = page.replace(word, ours)
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(code, "loading.md", "exec"), {})  # noqa: S102  our own page
    [lines] = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    for line in lines.splitlines():
        program, *arguments = shlex.split(line, comments=True)
        assert program == "feval"
        result = command_line.feval(*arguments)
        assert (result.exit_code, result.stderr) == (0, ""), line
    assert verify_recording(tmp_path / "my-recording").ok
