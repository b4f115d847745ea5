"""Recordings on disk: the only code that knows the bytes.

`open_recording` reads, `RecordingWriter` writes, `verify_recording` checks everything, `merge`, `select`, `extract`
and `add_scores` derive new recordings. Names are loaded on first use: opening a recording to vote needs neither pydantic nor
pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feval.recording.content import DatasetInfo, LLMInfo, PoolRows, Question, ScorerInfo, ScoreRows
    from feval.recording.derive import add_scores, merge, select
    from feval.recording.extraction import Extraction, extract
    from feval.recording.manifest import recording_around
    from feval.recording.reader import Recording, open_recording
    from feval.recording.scores import Scores, aggregate_scores
    from feval.recording.verify import Verification, verify_recording
    from feval.recording.votes import ABSENT, NO_ANSWER
    from feval.recording.writer import RecordingWriter

__all__ = [
    "ABSENT",
    "NO_ANSWER",
    "DatasetInfo",
    "Extraction",
    "LLMInfo",
    "PoolRows",
    "Question",
    "Recording",
    "RecordingWriter",
    "ScoreRows",
    "ScorerInfo",
    "Scores",
    "Verification",
    "add_scores",
    "aggregate_scores",
    "extract",
    "merge",
    "open_recording",
    "recording_around",
    "select",
    "verify_recording",
]

_HOMES = {
    "ABSENT": "votes",
    "NO_ANSWER": "votes",
    "DatasetInfo": "content",
    "Extraction": "extraction",
    "LLMInfo": "content",
    "PoolRows": "content",
    "Question": "content",
    "Recording": "reader",
    "RecordingWriter": "writer",
    "ScoreRows": "content",
    "ScorerInfo": "content",
    "Scores": "scores",
    "add_scores": "derive",
    "aggregate_scores": "scores",
    "Verification": "verify",
    "extract": "extraction",
    "merge": "derive",
    "open_recording": "reader",
    "recording_around": "manifest",
    "select": "derive",
    "verify_recording": "verify",
}


def __getattr__(name: str) -> object:
    """Load a public name from its module on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'feval.recording' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"feval.recording.{_HOMES[name]}"), name)
