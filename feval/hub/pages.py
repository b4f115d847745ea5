"""The page of a dataset repository: its README.md, at one commit, for those who write it again."""

from __future__ import annotations

import tempfile
from pathlib import Path

from feval.errors import HubError, StorageError
from feval.hub.client import Client, TransientError
from feval.hub.commits import RepoState

__all__ = ["read_page"]

_PAGE = "README.md"
_MOST_BYTES = 8 << 20


def read_page(seen: RepoState, *, token: str | None = None, endpoint: str | None = None) -> str | None:
    """The README.md of a repository as it was seen.

    Args:
        seen: from `feval.hub.commits.state`.
        token: `None` takes the one huggingface_hub finds.
        endpoint: of another Hub; `None` takes HF_ENDPOINT, or else the public one.

    Returns:
        The text; `None` where there is none.

    Raises:
        HubError: it is larger than 8 MB or no UTF-8 text, or the Hub does not give it.
    """
    listed = seen.files.get(_PAGE)
    if listed is None:
        return None
    if listed.size > _MOST_BYTES:
        raise HubError(
            f"The README.md of {seen.repo_id} has {listed.size:,} bytes, more than the {_MOST_BYTES:,} that are read. Shorten it."
        )

    def failed(reason: str, advice: str) -> HubError:
        return HubError(
            f"The README.md of {seen.repo_id} could not be read from the Hub ({client.host}): {reason}. {advice}."
        )

    def disk_failed(said: str) -> StorageError:
        return StorageError(
            f"The README.md of {seen.repo_id} could not be kept while it was read: {said}. Make room for it."
        )

    client = Client(seen.repo_id, failed, disk_failed, "Check the name", token=token, endpoint=endpoint)

    def fetch() -> bytes:
        with tempfile.TemporaryDirectory() as scratch, client.errors(client_retries=True):
            path = client.api().hf_hub_download(
                seen.repo_id, _PAGE, repo_type="dataset", revision=seen.commit, cache_dir=scratch
            )
            data = Path(path).read_bytes()
        if not listed.holds(data):
            raise TransientError("it came with other bytes than the Hub says it has", broken=True)
        return data

    try:
        return client.attempts(fetch).decode()
    except UnicodeDecodeError as error:
        raise HubError(f"The README.md of {seen.repo_id} is not UTF-8 text; correct it there.") from error
