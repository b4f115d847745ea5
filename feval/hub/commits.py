"""Publish: the files of a release as one commit of a dataset repository on the Hugging Face Hub, all of them or none.

What lies there already is not sent again: neither a file with the same hash, nor a large file that an interrupted push had
uploaded before its commit was made. A commit says from which one it starts; where somebody else committed in between, nothing is
changed. A repository is made private unless it is asked to be public, and one that exists keeps its visibility.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from feval.errors import ConflictError, HubError, StorageError, UsageError
from feval.hub.client import Client, ExistsError, StaleParentError, public_endpoint
from feval.recording.layout.format import is_safe_path, open_regular

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi

__all__ = ["Pushed", "RepoFile", "RepoState", "push_files", "state"]

_REPO_ID = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?/[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
)
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class RepoFile:
    """A file as the Hub states it: its SHA-256 where it is stored as a large one, git's blob hash otherwise.

    Attributes:
        size: bytes.
        sha256: `None` where the Hub does not say it.
        blob_id: git's hash, of the file or, where `sha256` is known, of the pointer to it.
    """

    size: int
    sha256: str | None
    blob_id: str | None

    def holds(self, content: Path | bytes) -> bool:
        """Whether the file has exactly these bytes."""
        if _size(content) != self.size:
            return False
        if self.sha256 is not None:
            return _digest(content, "sha256") == self.sha256
        return self.blob_id is not None and _digest(content, "sha1", b"blob %d\0" % self.size) == self.blob_id


@dataclass(frozen=True, slots=True)
class RepoState:
    """A dataset repository at one commit.

    Attributes:
        repo_id: "namespace/name".
        commit: 40 hex digits.
        private: whether only its owners see it.
        files: path -> what the Hub says of it.
        tags: name -> commit.
    """

    repo_id: str
    commit: str
    private: bool
    files: Mapping[str, RepoFile] = field(repr=False)
    tags: Mapping[str, str] = field(repr=False)

    def require_free(self, tag: str | None) -> None:
        """Refuse a tag that is there already.

        Raises:
            ConflictError: it names a commit.
        """
        if tag is not None and tag in self.tags:
            raise ConflictError(
                f"{self.repo_id} has the tag {tag!r} already, at commit {self.tags[tag][:12]}. A release is never changed; "
                "choose another tag."
            )


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push did.

    Attributes:
        repo_id: "namespace/name".
        commit: the commit that now holds the files; the one that was there where nothing had to be changed.
        url: where people see it.
        tag: the tag that points to the commit, if one was asked for.
        pull_request: address of the pull request, if one was made.
        uploaded: paths that were sent.
        unchanged: paths that were there already, with the same bytes.
    """

    repo_id: str
    commit: str
    url: str
    tag: str | None
    pull_request: str | None
    uploaded: tuple[str, ...]
    unchanged: tuple[str, ...]


def state(
    repo_id: str, *, revision: str | None = None, token: str | None = None, endpoint: str | None = None
) -> RepoState | None:
    """Look at a dataset repository.

    Args:
        repo_id: "namespace/name".
        revision: a branch, tag or commit; `None` is the branch `main`.
        token: `None` takes the one huggingface_hub finds.
        endpoint: of another Hub; `None` takes HF_ENDPOINT, or else the public one.

    Returns:
        Commit, visibility and files; `None` where the repository does not exist, or is hidden from whoever asks.

    Raises:
        UsageError: no repository can have that name.
        HubError: no such revision, or the Hub does not answer.
    """
    _check_repo_id(repo_id)
    client = _client(repo_id, "looked at on", token, endpoint)
    return client.attempts(lambda: _look(client, repo_id, revision))


def push_files(
    repo_id: str,
    files: Mapping[str, Path | bytes],
    *,
    message: str,
    parent: str | None,
    delete: Sequence[str] = (),
    tag: str | None = None,
    public: bool = False,
    create_pr: bool = False,
    token: str | None = None,
    endpoint: str | None = None,
) -> Pushed:
    """Put files into a dataset repository as one commit, or change nothing.

    The same call made again after a failure goes on where it ended: large files that had arrived are not sent again, and where
    only the tag was missing, only the tag is made.

    Args:
        repo_id: "namespace/name"; made if it does not exist.
        files: path in the repository -> a file, or bytes.
        message: of the commit.
        parent: the commit that the caller has seen there (`state(...).commit`); `None` where there was no repository.
        delete: paths to take away; those that are not there are passed over.
        tag: a name for the commit, such as "v1.0"; one that exists is never moved.
        public: whether the repository may be seen by everybody. What exists keeps its visibility: where that is another one,
            nothing is sent.
        create_pr: offer the commit as a pull request instead; for repositories of other people.
        token: `None` takes the one huggingface_hub finds.
        endpoint: of another Hub; `None` takes HF_ENDPOINT, or else the public one.

    Raises:
        UsageError: a path, tag, message or name of a repository that cannot be, or a tag for a pull request.
        ConflictError: somebody else committed after `parent`, the tag exists, or the visibility is another one.
        HubError: the Hub does not take it.
        StorageError: a file cannot be read.
    """
    _check_repo_id(repo_id)
    _check_request(files, delete, message, tag, create_pr=create_pr)
    client = _client(repo_id, "pushed to", token, endpoint)
    push = _Push(client, repo_id, files, delete, message, parent, tag, create_pr=create_pr)
    return push.run(public=public)


@dataclass(frozen=True)
class _Push:
    """One release, on its way to the Hub."""

    client: Client
    repo_id: str
    files: Mapping[str, Path | bytes]
    delete: Sequence[str]
    message: str
    parent: str | None
    tag: str | None
    create_pr: bool = field(kw_only=True)

    def run(self, *, public: bool) -> Pushed:
        found = self.client.attempts(lambda: _look(self.client, self.repo_id, None))
        if found is None:
            found = self._made(public=public)
        else:
            self._check_visibility(found, public=public)
        changed, gone = self._changes(found)
        same_tag = self.tag is not None and found.tags.get(self.tag) == found.commit and not (changed or gone)
        if not same_tag:
            found.require_free(self.tag)
        # A push whose answer was lost has moved the branch by itself: then there is nothing left to do, and no conflict.
        if (changed or gone) and self.parent is not None and found.commit != self.parent:
            raise self._stale(found.commit)
        commit, request = found.commit, None
        if changed or gone:
            commit, request = self._committed(found, changed, gone)
        if self.tag is not None and not same_tag:
            self._tag(commit)
        unchanged = tuple(path for path in self.files if path not in changed)
        url = f"{public_endpoint(self.client.endpoint)}/datasets/{self.repo_id}/tree/{commit}"
        return Pushed(self.repo_id, commit, url, self.tag, request, tuple(changed), unchanged)

    def _made(self, *, public: bool) -> RepoState:
        if self.parent is not None or self.create_pr:
            raise HubError(
                f"The Hub ({self.client.host}) shows no dataset repository {self.repo_id}, or not to you. Check its name, and "
                "log in with `hf auth login` if it is private."
            )

        def make() -> RepoState | None:
            with self.client.errors():
                self.client.api().create_repo(self.repo_id, repo_type="dataset", private=not public)
            return None

        try:
            self.client.attempts(make)
        except ExistsError as error:
            # Ours, if an answer was lost on the way; somebody else's otherwise, and then it is not to be seen.
            if self.client.attempts(lambda: _look(self.client, self.repo_id, None)) is None:
                raise ConflictError(
                    f"{self.repo_id} exists, and is not yours to see. Choose another name, or log in with `hf auth login`."
                ) from error
        found = self.client.attempts(lambda: _look(self.client, self.repo_id, None))
        if found is None:
            raise HubError(f"The Hub ({self.client.host}) made {self.repo_id} and does not show it. Try again.")
        self._check_visibility(found, public=public)
        return found

    def _check_visibility(self, found: RepoState, *, public: bool) -> None:
        if self.create_pr or found.private != public:
            return
        if public:
            raise ConflictError(
                f"{self.repo_id} is private, and a push was asked for that everybody can see. Make it public in its settings on "
                f"{self.client.host}, or push without asking for a public one; a push never changes who may see a repository."
            )
        raise ConflictError(
            f"{self.repo_id} is public: everybody would see what is pushed. Ask for a public push (--public), or choose another "
            "repository; a push never changes who may see a repository."
        )

    def _changes(self, found: RepoState) -> tuple[dict[str, Path | bytes], list[str]]:
        with _readable():
            for content in self.files.values():
                if isinstance(content, Path):
                    open_regular(content).close()
            changed = {
                path: content
                for path, content in self.files.items()
                if path not in found.files or not found.files[path].holds(content)
            }
        return changed, [path for path in self.delete if path in found.files]

    def _committed(
        self, found: RepoState, changed: Mapping[str, Path | bytes], gone: Sequence[str]
    ) -> tuple[str, str | None]:
        def commit() -> CommitInfo | None:
            from huggingface_hub import CommitOperationAdd, CommitOperationDelete

            # Made anew for every attempt: the client writes into them what it has sent.
            operations: list[CommitOperationAdd | CommitOperationDelete] = []
            with _readable():
                operations += [
                    CommitOperationAdd(path, content if isinstance(content, bytes) else str(content))
                    for path, content in changed.items()
                ]
            operations += [CommitOperationDelete(path, is_folder=False) for path in gone]
            try:
                with self.client.errors():
                    return self._sent(self.client.api(), operations, found.commit)
            except StaleParentError:
                return None

        made = self._offered(commit) if self.create_pr else self.client.attempts(commit)
        if made is not None:
            return str(made.oid), made.pr_url
        now = self.client.attempts(lambda: _look(self.client, self.repo_id, None))
        if now is not None and self._changes(now) == ({}, []):
            return now.commit, None  # the answer to an earlier attempt was lost
        raise self._stale("another one" if now is None else now.commit)

    def _offered(self, commit: Callable[[], CommitInfo | None]) -> CommitInfo | None:
        """One attempt only: a second one might make a second pull request."""
        try:
            return self.client.attempts(commit, most=1)
        except HubError as error:
            raise HubError(
                f"{error} Before you push again, look there whether the pull request was made all the same."
            ) from error

    def _sent(
        self, api: HfApi, operations: Iterable[CommitOperationAdd | CommitOperationDelete], parent: str
    ) -> CommitInfo:
        try:
            return api.create_commit(
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
                f"The Hub does not accept the front matter of README.md: {str(error)[:600]} Mend it and push again."
            ) from error

    def _stale(self, now: str) -> ConflictError:
        return ConflictError(
            f"{self.repo_id} has changed since it was looked at: it was at commit {(self.parent or 'none')[:12]}, and is now at "
            f"{now[:12]}. Nothing was changed there. Pull what is new, and push again."
        )

    def _tag(self, commit: str) -> None:
        tag = str(self.tag)

        def make() -> None:
            with self.client.errors():
                self.client.api().create_tag(self.repo_id, tag=tag, revision=commit, repo_type="dataset")

        try:
            self.client.attempts(make)
        except ExistsError as error:
            now = self.client.attempts(lambda: _look(self.client, self.repo_id, None))
            if now is None or now.tags.get(tag) != commit:
                raise ConflictError(
                    f"The files are in {self.repo_id} as commit {commit}, but somebody else has taken the tag {tag!r} in "
                    "between. Push again with another tag: only the tag will be made."
                ) from error
        except HubError as error:
            raise HubError(
                f"The files are in {self.repo_id} as commit {commit}, but the tag {tag!r} could not be made. Push again: only "
                f"the tag will be made. {error}"
            ) from error


def _look(client: Client, repo_id: str, revision: str | None) -> RepoState | None:
    from huggingface_hub import RepoFile as ListedFile
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    api = client.api()
    with client.errors():
        try:
            info = api.dataset_info(repo_id, revision=revision)
        except GatedRepoError:
            raise
        except RepositoryNotFoundError:
            return None
        commit = str(info.sha)
        listed = api.list_repo_tree(repo_id, recursive=True, revision=commit, repo_type="dataset")
        files = {
            item.path: RepoFile(int(item.size), item.lfs.sha256 if item.lfs else None, item.blob_id)
            for item in listed
            if isinstance(item, ListedFile)
        }
        refs = api.list_repo_refs(repo_id, repo_type="dataset")
    return RepoState(repo_id, commit, bool(info.private), files, {ref.name: ref.target_commit for ref in refs.tags})


def _client(repo_id: str, done: str, token: str | None, endpoint: str | None) -> Client:
    def failed(reason: str, advice: str) -> HubError:
        return HubError(f"{repo_id} could not be {done} the Hub ({client.host}): {reason}. {advice}.")

    def disk_failed(said: str) -> StorageError:
        return StorageError(f"A file for {repo_id} could not be read: {said}. Check its permissions.")

    client = Client(repo_id, failed, disk_failed, "Check the name", token=token, endpoint=endpoint)
    return client


def _check_repo_id(repo_id: str) -> None:
    if not _REPO_ID.fullmatch(repo_id) or "--" in repo_id or ".." in repo_id or repo_id.endswith(".git"):
        raise UsageError(
            f"A dataset repository is named as in somebody/my-recording, of letters, digits, '-', '_' and '.'; "
            f"found {repo_id!r:.120}."
        )


def _check_request(
    files: Mapping[str, Path | bytes], delete: Sequence[str], message: str, tag: str | None, *, create_pr: bool
) -> None:
    if not files and not delete:
        raise UsageError("There is nothing to push: no file was named.")
    for path in (*files, *delete):
        if not is_safe_path(path):
            raise UsageError(
                f"A file cannot be pushed to the path {path!r:.120}; paths are relative, with '/' between names."
            )
    if both := sorted(set(files) & set(delete)):
        raise UsageError(f"{both[0]} should be pushed and deleted at once; name it once.")
    if not message.strip():
        raise UsageError("A commit needs a message; say what the release holds.")
    if tag is not None and not _TAG.fullmatch(tag):
        raise UsageError(
            f"A tag is a short name such as v1.0, of letters, digits, '.', '_' and '-'; found {tag!r:.120}."
        )
    if tag is not None and create_pr:
        raise UsageError("A pull request cannot be tagged; its release is, by whoever accepts it. Leave the tag out.")


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """A file that cannot be read is a sentence."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{error.filename or 'A file'} cannot be pushed, because it cannot be read: {error.strerror or error}."
        ) from error


def _size(content: Path | bytes) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def _digest(content: Path | bytes, algorithm: str, before: bytes = b"") -> str:
    digest = hashlib.new(algorithm, before, usedforsecurity=algorithm != "sha1")
    if isinstance(content, bytes):
        digest.update(content)
        return digest.hexdigest()
    with open_regular(content) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
