"""What the Hub stores, and the shapes in which it tells of it."""

import hashlib
import json
import re
from dataclasses import dataclass, field

PULL_REQUEST = "refs/pr/"


class HubError(Exception):
    """What the Hub answers when it cannot: a status, its own code for it, and words."""

    def __init__(self, status, code, words):
        super().__init__(words)
        self.status, self.code = status, code


@dataclass
class Dataset:
    """A repository: its commits (path -> bytes), newest last, and what names point to."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    private: bool = False

    def commit_of(self, revision):
        commit = self.refs.get(revision) or self.tags.get(revision, revision)
        if commit not in self.commits:
            raise HubError(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit

    def add(self, name, files, commit, ref):
        """Add a commit with these files, and these alone, and point a name to it."""
        if commit is None:
            account = json.dumps(
                [name, len(self.commits), {path: sha256(data) for path, data in files.items()}]
            )
            commit = hashlib.sha1(account.encode(), usedforsecurity=False).hexdigest()
        self.commits[commit] = dict(files)
        self.refs[ref] = commit
        return commit


def is_lfs(path):
    """Whether the Hub would keep the file in LFS: by its name, as `.gitattributes` says for
    Parquet, or as it is binary.
    """
    return path.endswith((".parquet", ".npz", ".zst", ".votes", ".details", ".png"))


def git_blob(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def pointer(data):
    """The small file that git holds in place of one in LFS."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256(data)}\nsize {len(data)}\n".encode()  # noqa: E501


def info_of(name, dataset, commit, *, blobs):
    files = sorted(dataset.commits[commit].items())
    siblings = [_sibling(path, data) if blobs else {"rfilename": path} for path, data in files]
    own = {"id": name, "sha": commit, "private": dataset.private, "siblings": siblings}
    return own | {"gated": False, "disabled": False, "tags": [], "downloads": 0, "likes": 0}


def _sibling(path, data):
    item = _file_item(path, data)
    sibling = {"rfilename": path, "size": len(data), "blobId": item["oid"]}
    if lfs := item.get("lfs"):
        sibling["lfs"] = lfs | {"sha256": lfs["oid"]}
    return sibling


def items_at(files, paths):
    """What the Hub says of some paths; nothing of those that are not there."""
    for path in paths:
        if path in files:
            yield _file_item(path, files[path])
        elif any(other.startswith(f"{path}/") for other in files):
            yield {"type": "directory", "path": path, "size": 0, "oid": git_blob(path.encode())}


def tree_of(files, folder, *, recursive):
    prefix = f"{folder}/" if folder else ""
    inside = [path.removeprefix(prefix) for path in files if path.startswith(prefix)]
    if folder and not inside:
        raise HubError(404, "EntryNotFound", f"{folder} does not exist")
    folders = {path[: cut.start()] for path in inside for cut in re.finditer("/", path)}
    names = [*sorted(folders), *sorted(inside)]
    return items_at(files, [prefix + name for name in names if recursive or "/" not in name])


def _file_item(path, data):
    item = {"type": "file", "path": path, "size": len(data), "oid": git_blob(data)}
    if is_lfs(path):
        lfs = {"oid": sha256(data), "size": len(data), "pointerSize": len(pointer(data))}
        item |= {"oid": git_blob(pointer(data)), "lfs": lfs}
    return item
