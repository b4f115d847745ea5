"""The Hugging Face Hub: recordings and questions fetched from it, releases pushed to it.

`addresses` and `places` are light, so opening a local folder loads no network code. Everything else
loads huggingface_hub, and is loaded when first used: `from feval import hub`, then `hub.pull(...)`.

Tokens are huggingface_hub's business (`hf auth login`, HF_TOKEN): feval neither reads nor shows
them.
"""

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.hub.addresses import Address, is_address, parse_address, split_places
    from feval.hub.commits import PushResult, RepoState, push_files, render_page, state
    from feval.hub.places import local_folder, open_place
    from feval.hub.recordings import PullResult, pull
    from feval.hub.snapshots import fetch_file, fetch_table, question_files


__all__ = [
    "Address",
    "PullResult",
    "PushResult",
    "RepoState",
    "fetch_file",
    "fetch_table",
    "is_address",
    "local_folder",
    "open_place",
    "parse_address",
    "pull",
    "push_files",
    "question_files",
    "render_page",
    "split_places",
    "state",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "addresses": "Address is_address parse_address split_places",
        "places": "local_folder open_place",
        "recordings": "PullResult pull",
        "snapshots": "fetch_file fetch_table question_files",
        "commits": "PushResult RepoState push_files render_page state",
    },
)
