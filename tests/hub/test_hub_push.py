"""Releases as one commit: the real client against a Hub on loopback."""

import pytest
from hub_double import Failure
from hub_settings import TOKEN, full_text

from feval.errors import ConflictError, FevalError, HubError, StorageError, UsageError
from feval.hub import push_files, state

REPO = "somebody/recording"
FILES = {
    "README.md": b"---\nlicense: cc0-1.0\n---\n\n# Ours\n",
    "manifest.json": b"{}",
    "samples/sums/a.parquet": b"PAR1 a" * 100,
    "samples/sums/b.parquet": b"PAR1 b" * 100,
}
CHANGED = {**FILES, "manifest.json": b'{"two": 2}'}


def push(files, parent=None, **more):
    return push_files(REPO, files, message="Files", parent=parent, **more)


def first(files=FILES, **more):
    return push(files, **more).commit


def uploads(hub):
    return hub.asked("^PUT /upload/")


def commits(hub):
    return hub.asked("^POST /api/datasets/.*/commit/")


def test_a_new_repository_is_private_and_gets_one_commit_and_its_tag(hub):
    pushed = push(FILES, tag="v1.0")
    dataset = hub.datasets[REPO]
    assert dataset.private
    assert len(commits(hub)) == 1
    assert {path: hub.files(REPO)[path] for path in FILES} == FILES
    assert dataset.tags == {"v1.0": pushed.commit} == {"v1.0": dataset.refs["main"]}
    assert pushed.url == f"{hub.url}/datasets/{REPO}/tree/{pushed.commit}"
    assert (set(pushed.uploaded), pushed.unchanged, pushed.pull_request) == (set(FILES), (), None)


def test_a_public_repository_is_asked_for(hub):
    first(public=True)
    assert not hub.datasets[REPO].private


def test_the_state_is_what_the_hub_has(hub, tmp_path):
    assert state(REPO) is None
    commit = first(public=True, tag="v1.0")
    result = state(REPO)
    assert (result.commit, result.private, result.tags) == (commit, False, {"v1.0": commit})
    assert set(result.files) == {*FILES, ".gitattributes"}
    path = tmp_path / "x"
    for name, content in FILES.items():
        path.write_bytes(content)
        assert result.files[name].holds(path)
        assert not result.files[name].holds(content[:-1] + b"!")
        assert not result.files[name].holds(content + b"!")


def test_only_changed_files_are_sent(hub, tmp_path):
    parent = first()
    hub.forget()
    changed = tmp_path / "b.parquet"
    changed.write_bytes(b"PAR1 B" * 100)
    files = {**CHANGED, "samples/sums/b.parquet": changed}
    pushed = push(files, parent, delete=["gone.txt"])
    assert set(pushed.uploaded) == {"manifest.json", "samples/sums/b.parquet"}
    assert set(pushed.unchanged) == {"README.md", "samples/sums/a.parquet"}
    assert len(uploads(hub)) == 1
    assert hub.files(REPO)["samples/sums/b.parquet"] == changed.read_bytes()


def test_files_are_deleted_in_the_same_commit(hub):
    parent = first()
    remaining = {path: CHANGED[path] for path in CHANGED if path != "samples/sums/b.parquet"}
    hub.forget()
    push(remaining, parent, delete=["samples/sums/b.parquet", "never/was"])
    assert len(commits(hub)) == 1
    assert set(hub.files(REPO)) == {*remaining, ".gitattributes"}


def test_a_pull_request_leaves_the_branch_alone(hub):
    commit = hub.add_dataset("them/recording", {"README.md": b"# Theirs\n"})
    pushed = push_files("them/recording", FILES, message="More", parent=commit, create_pr=True)
    assert pushed.pull_request == f"{hub.url}/datasets/them/recording/discussions/1"
    assert hub.files("them/recording") == {"README.md": b"# Theirs\n"}
    assert set(hub.files("them/recording", "refs/pr/1")) == set(FILES)


def test_a_stale_parent_is_refused(hub):
    parent = first()
    other = hub.add_dataset(REPO, {"theirs": b"1"})
    with pytest.raises(
        ConflictError,
        match=f"was at commit {parent[:12]}, and is now at {other[:12]}.*Pull what is new",
    ):
        push(CHANGED, parent)
    assert hub.datasets[REPO].refs["main"] == other


def test_a_commit_in_the_last_moment_is_refused_by_the_hub(hub):
    parent = first()
    hub.before_commit = lambda: hub.add_dataset(REPO, {"theirs": b"1"})
    with pytest.raises(ConflictError, match="has changed since it was looked at"):
        push(CHANGED, parent)
    assert hub.files(REPO) == {"theirs": b"1"}


def test_a_broken_upload_is_resumed(hub, monkeypatch):
    hub.uploads_left = 1
    with pytest.raises(HubError, match="the connection to the Hub broke"):
        first()
    assert len(hub.objects) == 1
    assert set(hub.files(REPO)) == {".gitattributes"}
    result = state(REPO)
    hub.uploads_left = None
    hub.forget()
    push(FILES, result.commit)
    assert len(uploads(hub)) == 1, "the object that had arrived is not sent again"
    assert set(hub.files(REPO)) == {*FILES, ".gitattributes"}


def test_a_second_attempt_with_no_parent_goes_on_after_the_repository_was_made(hub):
    hub.failures += [Failure(503, "/commit/") for _ in range(3)]
    with pytest.raises(HubError, match="HTTP 503"):
        first()
    commit = first()
    assert hub.datasets[REPO].refs["main"] == commit
    assert hub.datasets[REPO].private


@pytest.mark.slow
@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.parametrize(
    "where", ["GET /api/datasets", "/preupload/", "/objects/batch", "/commit/", "/tag/", "/create"]
)
def test_a_failure_that_passes_is_met_by_another_attempt(hub, where, status):
    hub.failures.append(Failure(status, where, (("Retry-After", "0"),)))
    pushed = push(FILES, tag="v1.0")
    assert hub.datasets[REPO].tags == {"v1.0": pushed.commit}
    assert len(hub.datasets[REPO].commits) == 2
    assert hub.failures == []


@pytest.mark.parametrize("where", ["/commit/", "/tag/", "/create"])
def test_a_lost_answer_makes_nothing_twice(hub, where):
    hub.failures.append(Failure(502, where, late=True))
    pushed = push(FILES, tag="v1.0")
    assert hub.datasets[REPO].tags == {"v1.0": pushed.commit}
    assert len(hub.datasets[REPO].commits) == 2


def test_a_pull_request_is_asked_for_once(hub):
    commit = hub.add_dataset("them/recording", {"README.md": b"# Theirs\n"})
    hub.failures.append(Failure(502, "/commit/", late=True))
    with pytest.raises(HubError, match="check there whether the pull request was opened"):
        push_files("them/recording", FILES, message="More", parent=commit, create_pr=True)
    assert list(hub.datasets["them/recording"].refs) == ["main", "refs/pr/1"]


def test_a_release_is_never_moved(hub):
    parent = first(tag="v1.0")
    with pytest.raises(ConflictError, match=r"already has the tag 'v1.0'.*choose another tag"):
        push(CHANGED, parent, tag="v1.0")
    assert hub.datasets[REPO].refs["main"] == parent


def test_a_missing_tag_is_made_by_the_same_push(hub):
    hub.failures += [Failure(503, "/tag/") for _ in range(3)]
    with pytest.raises(HubError, match="only the tag will be made"):
        first(tag="v1.0")
    hub.forget()
    commit = first(tag="v1.0")
    assert hub.datasets[REPO].tags == {"v1.0": commit}
    assert commits(hub) == uploads(hub) == []


@pytest.mark.parametrize("public", [True, False])
def test_who_may_see_a_repository_is_never_changed(hub, public):
    commit = hub.add_dataset(REPO, {"README.md": b"# Ours\n"}, private=public)
    with pytest.raises(ConflictError, match="never changes who may see a repository"):
        push(FILES, commit, public=public)
    assert hub.datasets[REPO].refs["main"] == commit
    assert hub.datasets[REPO].private is public


def test_a_broken_front_matter_is_refused_before_anything_is_sent(hub):
    with pytest.raises(HubError, match=r"README\.md"):
        first({**FILES, "README.md": b"---\nlicense: [\n---\n"})
    assert uploads(hub) == commits(hub) == []


def test_without_a_token_the_sentence_says_to_log_in(hub, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(HubError, match="hf auth login"):
        first()


def test_a_pull_request_to_nowhere_is_refused(hub):
    with pytest.raises(HubError, match="shows no dataset repository somebody/recording"):
        first(create_pr=True)
    assert hub.datasets == {}


def test_a_missing_file_is_a_sentence(hub, tmp_path):
    commit = first()
    for name in ("README.md", "new.md"):
        with pytest.raises(StorageError, match="cannot be pushed"):
            push({name: tmp_path / "gone"}, commit)


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "a/../b", "a\\b", "c:x", "", "a//b", "./a"]
)
def test_paths_that_lead_elsewhere_are_refused(hub, path):
    with pytest.raises(UsageError, match="cannot be pushed to the path"):
        push({path: b"1"})
    assert hub.requests == []


@pytest.mark.parametrize(
    "name", ["recording", "a/b/c", "../b", "a/..", "a/b--c", "a b/c", "", "a/b.git", "-a/b"]
)
def test_names_that_no_repository_can_have_are_refused(hub, name):
    with pytest.raises(UsageError, match="has a name such as"):
        state(name)
    with pytest.raises(UsageError, match="has a name such as"):
        push_files(name, FILES, message="First", parent=None)
    assert hub.requests == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"files": {}}, "nothing to push"),
        ({"delete": ["README.md"]}, "both pushed and deleted"),
        ({"message": " "}, "needs a message"),
        ({"tag": "../v1"}, "A tag is a short name"),
        ({"tag": "v1", "create_pr": True}, "cannot be tagged"),
    ],
)
def test_other_requests_that_cannot_work_are_refused(hub, changes, words):
    with pytest.raises(UsageError, match=words):
        push_files(REPO, **{"files": FILES, "message": "First", "parent": None, **changes})
    assert hub.requests == []


@pytest.mark.parametrize(
    "failure", [Failure(401), Failure(403), Failure(500), Failure(404), Failure(400)]
)
def test_no_error_shows_the_token(hub, failure, monkeypatch, caplog):
    caplog.set_level("DEBUG")
    monkeypatch.setenv("HF_ENDPOINT", f"http://user:{TOKEN}@127.0.0.1:{hub.port}")
    for where in ("GET /api", "/create", "/preupload/", "/objects/batch", "/commit/", "/tag/"):
        hub.failures[:] = [failure._replace(where=where)] * 3
        hub.datasets.clear()
        hub.objects.clear()
        with pytest.raises(FevalError) as raised:
            push(FILES, tag="v1")
        assert TOKEN not in full_text(raised.value)
    hub.failures.clear()
    assert TOKEN not in caplog.text
