"""The one door of feval to the Hugging Face Hub.

`questions` fetches what a dataset card names, `snapshots` the files of recordings, `commits` publishes; `client` is the one place
that talks to huggingface_hub. Names are loaded on first use: whoever opens a folder needs none of it.

Tokens are huggingface_hub's business (`hf auth login`, HF_TOKEN): feval neither reads nor shows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feval.hub.questions import MAX_BYTES, QuestionFile, cache_folder, question_files, split_files

__all__ = ["MAX_BYTES", "QuestionFile", "cache_folder", "question_files", "split_files"]


def __getattr__(name: str) -> object:
    """Load a public name from its module on first use."""
    if name not in __all__:
        raise AttributeError(f"module 'feval.hub' has no attribute {name!r}")
    from feval.hub import questions

    return getattr(questions, name)
