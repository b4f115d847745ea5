"""From a live LLM to a recording: prompts, requests, backends, journals, sealing and scoring.

`recorders` imports `feval`; `feval` imports `recorders` in commands only. Public names are loaded
on first use.
"""

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from recorders import live
    from recorders.request import Backend, Completion, Decoding, Message, Request
    from recorders.work.record import RecordingTask, estimate_dataset, record_dataset

__all__ = [
    "Backend",
    "Completion",
    "Decoding",
    "Message",
    "RecordingTask",
    "Request",
    "estimate_dataset",
    "live",
    "record_dataset",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "live": "",
        "request": "Backend Completion Decoding Message Request",
        "work.record": "RecordingTask estimate_dataset record_dataset",
    },
)
