"""Why values are missing: every result that can hold NaN has `reasons`, sentences beside its
values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Texts = npt.NDArray[np.str_]

ONE_QUESTION = (
    "A single question shows no spread, so there is no standard error; label two or more."
)
"""Why a standard error is NaN."""


def missing_reasons(*causes: tuple[Any, str]) -> Texts:
    """Join the sentences that hold for each entry; a cause is ([...] where it holds, its sentence).
    "" where none holds.
    """
    texts: npt.NDArray[Any] = np.array("", dtype=np.str_)
    for where, sentence in causes:
        sentences = np.where(where, sentence, "")
        gap = np.where((np.char.str_len(texts) > 0) & np.asarray(where), " ", "")
        texts = np.char.add(np.char.add(texts, gap), sentences)
    return np.asarray(texts, np.str_)
