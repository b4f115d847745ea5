"""The one door of feval to the Hugging Face Hub.

`questions` fetches what a dataset card names, `snapshots` the files of recordings, `commits` publishes; `client` is the one place
that talks to huggingface_hub. Names are loaded on first use: whoever opens a folder needs none of it.

Tokens are huggingface_hub's business (`hf auth login`, HF_TOKEN): feval neither reads nor shows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.hub.questions import MAX_BYTES, QuestionFile, cache_folder, question_files, split_files


__all__ = ["MAX_BYTES", "QuestionFile", "cache_folder", "question_files", "split_files"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "questions": (
            "MAX_BYTES",
            "QuestionFile",
            "cache_folder",
            "question_files",
            "split_files",
        ),
    },
)
