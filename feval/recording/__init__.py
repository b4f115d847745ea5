"""Recordings on disk: the only code that knows the bytes. Opening one to vote needs no pyarrow."""

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.recording.arrays import Probes, Scores, Steps
    from feval.recording.content import (
        DatasetInfo,
        LLMInfo,
        PoolRows,
        ProbeRows,
        Question,
        ScorerInfo,
        ScoreRows,
    )
    from feval.recording.derived.extraction import Extraction, extract
    from feval.recording.derived.rewriting import add_scores, aggregate_scores, merge, select
    from feval.recording.layout.files import NewFolder, scratch_beside, storage_errors, sync_folder
    from feval.recording.layout.format import recording_around
    from feval.recording.reader import Recording, open_recording
    from feval.recording.verify import Verification, verify_recording
    from feval.recording.votes import ABSENT, NO_ANSWER
    from feval.recording.writer import RecordingWriter


__all__ = [
    "ABSENT",
    "NO_ANSWER",
    "DatasetInfo",
    "Extraction",
    "LLMInfo",
    "NewFolder",
    "PoolRows",
    "ProbeRows",
    "Probes",
    "Question",
    "Recording",
    "RecordingWriter",
    "ScoreRows",
    "ScorerInfo",
    "Scores",
    "Steps",
    "Verification",
    "add_scores",
    "aggregate_scores",
    "extract",
    "merge",
    "open_recording",
    "recording_around",
    "scratch_beside",
    "select",
    "storage_errors",
    "sync_folder",
    "verify_recording",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "layout.files": "NewFolder scratch_beside storage_errors sync_folder",
        "arrays": "Probes Scores Steps",
        "content": "DatasetInfo LLMInfo PoolRows ProbeRows Question ScorerInfo ScoreRows",
        "derived.extraction": "Extraction extract",
        "derived.rewriting": "add_scores aggregate_scores merge select",
        "layout.format": "recording_around",
        "reader": "Recording open_recording",
        "verify": "Verification verify_recording",
        "votes": "ABSENT NO_ANSWER",
        "writer": "RecordingWriter",
    },
)
