"""The page of a dataset repository: its README.md read at one commit, and written from a
template.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from huggingface_hub import DatasetCard, DatasetCardData

from feval.errors import HubError
from feval.hub.commits import RepoState
from feval.hub.snapshots import fetch_file

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


def render_page(template: str, fields: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """Return a dataset card: YAML front matter from `fields`, Markdown from a Jinja template and
    `facts`.
    """
    # `from_template` hands its fields to the template as variables; names from a stranger's page
    # must not become those.
    page = DatasetCard.from_template(DatasetCardData(), template_str=template, **facts)
    for name, value in fields.items():
        page.data["train_eval_index" if name == "train-eval-index" else name] = value
    return str(page)
