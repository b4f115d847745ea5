"""Why a value is missing: every result of the estimators that can hold NaN has `reasons`, sentences beside its values.

An entry's reason is "" where all of its values are known, otherwise one sentence for each cause.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Texts", "reasons_of"]

Texts = npt.NDArray[np.str_]


def reasons_of(*causes: tuple[Any, str]) -> Texts:
    """The sentences that hold for each entry, one after another.

    Feval's own. Arithmetic; assumes nothing of the calls.

    Args:
        causes: for each cause [...] where it holds, and the sentence.

    Returns:
        [...] sentences, "" where no cause holds.
    """
    told: npt.NDArray[Any] = np.array("", dtype=np.str_)
    for where, sentence in causes:
        own = np.where(where, sentence, "")
        gap = np.where((np.char.str_len(told) > 0) & np.asarray(where), " ", "")
        told = np.char.add(np.char.add(told, gap), own)
    return np.asarray(told, np.str_)
