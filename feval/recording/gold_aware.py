"""Recordings of an earlier feval whose voting keys depend on the gold."""

from __future__ import annotations

import string

from feval.recording.reader import Recording

_GOLD_AWARE = "feval-answers-1"
"""The version of the extraction whose keys could depend on the gold."""


def is_gold_aware(recording: Recording, dataset: str) -> bool:
    """Return whether an answer could get the gold's key while equal wrong answers stayed apart (until format 2)."""
    info = recording.dataset_info(dataset)
    if info.extractor == _GOLD_AWARE and info.answer_kind == "choice":
        return any(
            question.answer_key is not None
            and question.answer_key not in ([label for label, _ in question.choices] or string.ascii_uppercase)
            for question in recording.scan_questions(dataset)
        )
    return info.extractor.startswith(f"{_GOLD_AWARE}+math-verify")


def gold_aware_remark(recording: Recording, dataset: str) -> str:
    """Return the warning about a dataset with such keys."""
    place = recording.address or recording.path
    return (
        f"The voting keys of {dataset} depend on the gold: correct answers vote together while equal wrong answers stay "
        f"apart, so votes are correct too often. `feval extract {place} --out NEW` makes keys that do not."
    )
