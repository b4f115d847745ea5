"""Publish the files of a release as one commit of a dataset repository: all of them, or none."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from huggingface_hub import (
    CommitInfo,
    CommitOperationAdd,
    CommitOperationDelete,
    DatasetCard,
    DatasetCardData,
    HfApi,
    RepoFile as ListedFile,
)
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

from feval.cards.reading import open_regular
from feval.errors import ConflictError, HubError, StorageError, UsageError
from feval.hub.client import Client, RepoFile, StaleParentError, public_endpoint
from feval.hub.snapshots import fetch_file
from feval.recording.layout.format import is_safe_path
from feval.values import RecordLike, frozen

_REPO_ID = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?/[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
)
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

Files = Mapping[str, Path | bytes]
"""Path in a repository -> a file, or bytes."""


@frozen
class RepoState:
    """A dataset repository at one commit, with its files by path and the commits of its tags."""

    repo_id: str
    commit: str
    private: bool
    files: Mapping[str, RepoFile] = field(repr=False)
    tags: Mapping[str, str] = field(repr=False)

    def unchanged(self, files: Files) -> tuple[str, ...]:
        """Return the paths that the repository has with exactly these bytes."""
        # `create_commit` drops unchanged files too, but after uploading, and without saying which.
        with _readable():
            for content in files.values():
                if isinstance(content, Path):
                    open_regular(content).close()
            return tuple(
                path
                for path, content in files.items()
                if path in self.files and self.files[path].holds(content)
            )

    def require_free(self, tag: str | None) -> None:
        """Raise a `ConflictError` if a tag is in use."""
        if tag is not None and tag in self.tags:
            raise ConflictError(
                f"{self.repo_id} already has the tag {tag!r}, at commit {self.tags[tag][:12]}. A"
                " release is never changed; choose another tag."
            )


@frozen
class PushResult:
    """What a push did: the commit that now holds the files, its page, and the paths sent and not
    sent.
    """

    repo_id: str
    commit: str
    url: str
    tag: str | None
    pull_request: str | None
    uploaded: tuple[str, ...]
    unchanged: tuple[str, ...]


def state(repo_id: str) -> RepoState | None:
    """Return the state of a repository's branch `main`; `None` where there is none, or it is hidden
    from the caller.

    Raises:
        UsageError: no repository can have that name.
        HubError: the Hub does not answer.
    """
    _check_repo_id(repo_id)
    return _look(_client(repo_id, "read from"), repo_id)


def push_files(
    repo_id: str,
    files: Files,
    *,
    message: str,
    parent: str | None,
    delete: Sequence[str] = (),
    tag: str | None = None,
    public: bool = False,
    create_pr: bool = False,
) -> PushResult:
    """Put files into a dataset repository as one commit, or change nothing.

    Repeating the call after a failure continues it: large files that had arrived are not sent
    again, and where only the tag was missing, only the tag is made.

    Args:
        repo_id: "namespace/name"; made if it does not exist.
        files: path in the repository -> a file, or bytes.
        message: of the commit.
        parent: the commit that the caller has seen (`state(...).commit`); `None` where there was no
            repository. If somebody else committed since, nothing changes.
        delete: paths to remove; those that are not there are ignored.
        tag: a name for the commit, such as "v1.0"; an existing tag is never moved.
        public: whether everybody may see the repository. An existing one keeps its visibility: if
            that differs, nothing is sent.
        create_pr: open a pull request instead; for repositories of other people.

    Raises:
        UsageError: an impossible path, tag, message or repository name, or a tag for a pull
            request.
        ConflictError: somebody else committed after `parent`, the tag exists, or the visibility
            differs.
        HubError: the Hub refuses it.
        StorageError: a file cannot be read.
    """
    _check_repo_id(repo_id)
    if not files and not delete:
        raise UsageError("There is nothing to push: no file was named.")
    for path in (*files, *delete):
        if not is_safe_path(path):
            raise UsageError(
                f"A file cannot be pushed to the path {path!r:.120}; paths are relative, with '/'"
                " between names."
            )
    if both := sorted(set(files) & set(delete)):
        raise UsageError(f"{both[0]} is both pushed and deleted; name it once.")
    if not message.strip():
        raise UsageError("A commit needs a message; say what the release contains.")
    if tag is not None and not _TAG.fullmatch(tag):
        raise UsageError(
            "A tag is a short name such as v1.0, of letters, digits, '.', '_' and '-'; found"
            f" {tag!r:.120}."
        )
    if tag is not None and create_pr:
        raise UsageError(
            "A pull request cannot be tagged; whoever merges it can tag the result. Leave the tag"
            " out."
        )
    client = _client(repo_id, "pushed to")
    return _Push(client, repo_id, files, delete, message, parent, tag, create_pr=create_pr).run(
        public=public
    )


@frozen
class _Push:
    """One call of `push_files`."""

    client: Client
    repo_id: str
    files: Files
    delete: Sequence[str]
    message: str
    parent: str | None
    tag: str | None
    create_pr: bool = field(kw_only=True)

    def run(self, *, public: bool) -> PushResult:
        now = _look(self.client, self.repo_id) or self._create_repository(public=public)
        if not self.create_pr and now.private == public:
            if public:
                raise ConflictError(
                    f"{self.repo_id} is private, and a public push was asked for. Make it public in"
                    f" its settings on {self.client.host}, or leave --public out; a push never"
                    " changes who may see a repository."
                )
            raise ConflictError(
                f"{self.repo_id} is public: everybody would see what is pushed. Ask for a public"
                " push (--public), or choose another repository; a push never changes who may see a"
                " repository."
            )
        unchanged = now.unchanged(self.files)
        same = set(unchanged)
        uploads = [path for path in self.files if path not in same]
        deletions = [path for path in self.delete if path in now.files]
        is_new = bool(uploads or deletions)
        is_tagged = not is_new and self.tag is not None and now.tags.get(self.tag) == now.commit
        if not is_tagged:
            now.require_free(self.tag)
        # A push whose answer was lost has moved the branch itself: then there is nothing left to
        # do, and no conflict.
        if is_new and self.parent is not None and now.commit != self.parent:
            raise self._stale(now.commit)
        commit, request = (
            self._commit(now.commit, uploads, deletions) if is_new else (now.commit, None)
        )
        if self.tag is not None and not is_tagged:
            self._make_tag(self.tag, commit)
        url = f"{public_endpoint()}/datasets/{self.repo_id}/tree/{commit}"
        return PushResult(self.repo_id, commit, url, self.tag, request, tuple(uploads), unchanged)

    def _create_repository(self, *, public: bool) -> RepoState:
        if self.parent is not None or self.create_pr:
            raise HubError(
                f"The Hub ({self.client.host}) shows no dataset repository {self.repo_id}, or not"
                " to you. Check its name, and log in with `hf auth login` if it is private."
            )

        def create() -> None:
            with self.client.errors():
                # It may exist: ours, if an answer was lost on the way, or somebody else's that is
                # not to be seen.
                self.client.api().create_repo(
                    self.repo_id, repo_type="dataset", private=not public, exist_ok=True
                )

        self.client.attempts(create)
        now = _look(self.client, self.repo_id)
        if now is None:
            raise ConflictError(
                f"{self.repo_id} exists and is not visible to you. Choose another name, or log in"
                " with `hf auth login`."
            )
        return now

    def _commit(
        self, parent: str, uploads: Sequence[str], deletions: Sequence[str]
    ) -> tuple[str, str | None]:
        """Return the new commit, and the pull request where one was asked for."""
        operations: list[CommitOperationAdd | CommitOperationDelete] = []
        with _readable():
            operations += [CommitOperationAdd(path, self.files[path]) for path in uploads]
        operations += [CommitOperationDelete(path, is_folder=False) for path in deletions]
        try:
            # The operations remember what was uploaded, so another attempt sends the rest. Pull
            # requests have one attempt only: a second one might open a second pull request.
            commit = self.client.attempts(
                lambda: self._send(operations, parent), most=1 if self.create_pr else 3
            )
        except StaleParentError:
            now = _look(self.client, self.repo_id)
            if (
                now is None
                or len(now.unchanged(self.files)) < len(self.files)
                or not now.files.keys().isdisjoint(self.delete)
            ):
                raise self._stale("another one" if now is None else now.commit) from None
            return now.commit, None  # the answer to an earlier attempt was lost
        except HubError as error:
            if not self.create_pr:
                raise
            raise HubError(
                f"{error} Before you push again, check there whether the pull request was opened"
                " all the same."
            ) from error
        return str(commit.oid), commit.pr_url

    def _send(
        self, operations: Sequence[CommitOperationAdd | CommitOperationDelete], parent: str
    ) -> CommitInfo:
        with self.client.errors():
            try:
                return self.client.api().create_commit(
                    self.repo_id,
                    operations,
                    commit_message=self.message,
                    repo_type="dataset",
                    parent_commit=parent,
                    create_pr=self.create_pr,
                )
            except ValueError as error:
                if "README.md" not in str(error):
                    raise
                raise HubError(
                    f"The Hub does not accept the front matter of README.md: {str(error)[:600]}"
                    " Correct it and push again."
                ) from error

    def _stale(self, commit: str) -> ConflictError:
        return ConflictError(
            f"{self.repo_id} has changed since it was looked at: it was at commit"
            f" {(self.parent or 'none')[:12]}, and is now at {commit[:12]}. Nothing was changed"
            " there. Pull what is new, and push again."
        )

    def _make_tag(self, tag: str, commit: str) -> None:
        def create() -> Mapping[str, str]:
            api = self.client.api()
            with self.client.errors():
                api.create_tag(
                    self.repo_id, tag=tag, revision=commit, repo_type="dataset", exist_ok=True
                )
                return _tags(api, self.repo_id)

        try:
            tags = self.client.attempts(create)
        except HubError as error:
            raise HubError(
                f"The files are in {self.repo_id} as commit {commit}, but the tag {tag!r} could not"
                f" be made. Push again: only the tag will be made. {error}"
            ) from error
        if tags.get(tag) != commit:
            raise ConflictError(
                f"The files are in {self.repo_id} as commit {commit}, but somebody else has taken"
                f" the tag {tag!r} in between. Push again with another tag: only the tag will be"
                " made."
            )


def _tags(api: HfApi, repo_id: str) -> dict[str, str]:
    return {
        ref.name: ref.target_commit for ref in api.list_repo_refs(repo_id, repo_type="dataset").tags
    }


def _look(client: Client, repo_id: str) -> RepoState | None:
    def look() -> RepoState | None:
        api = client.api()
        with client.errors():
            try:
                info = api.dataset_info(repo_id)
            except GatedRepoError:
                raise
            except RepositoryNotFoundError:
                return None
            at = str(info.sha)
            listed = api.list_repo_tree(repo_id, recursive=True, revision=at, repo_type="dataset")
            files = {
                item.path: RepoFile(item.size, item.lfs.sha256 if item.lfs else None, item.blob_id)
                for item in listed
                if isinstance(item, ListedFile)
            }
            return RepoState(repo_id, at, bool(info.private), files, _tags(api, repo_id))

    return client.attempts(look)


def _client(repo_id: str, verb: str) -> Client:
    disk = f"A file for {repo_id} could not be read", "Check its permissions"
    return Client(repo_id, f"{repo_id} could not be {verb}", disk, "Check the name")


def _check_repo_id(repo_id: str) -> None:
    if (
        not _REPO_ID.fullmatch(repo_id)
        or "--" in repo_id
        or ".." in repo_id
        or repo_id.endswith(".git")
    ):
        raise UsageError(
            "A dataset repository has a name such as somebody/my-recording, of letters, digits,"
            f" '-', '_' and '.'; found {repo_id!r:.120}."
        )


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """Turn errors of reading a file to push into a `StorageError`."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{error.filename or 'A file'} cannot be pushed, because it cannot be read:"
            f" {error.strerror or error}."
        ) from error


_PAGE = "README.md"
_MOST_BYTES = 8 << 20


def read_page(state: RepoState) -> str | None:
    """Return a repository's README.md; `None` where it has none.

    Raises:
        HubError: it is larger than 8 MiB or not UTF-8 text, or the Hub does not send it.
    """
    if _PAGE not in state.files:
        return None
    path = fetch_file(f"hf://{state.repo_id}@{state.commit}/{_PAGE}", most_bytes=_MOST_BYTES)
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise HubError(
            f"The README.md of {state.repo_id} is not UTF-8 text; correct it there."
        ) from error


def render_page(template: str, fields: RecordLike, facts: RecordLike) -> str:
    """Return a dataset card: YAML front matter from `fields`, Markdown from a Jinja template and
    `facts`.
    """
    # `from_template` hands its fields to the template as variables; names from a stranger's page
    # must not become those.
    page = DatasetCard.from_template(DatasetCardData(), template_str=template, **facts)
    for name, value in fields.items():
        page.data["train_eval_index" if name == "train-eval-index" else name] = value
    return str(page)
