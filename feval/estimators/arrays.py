"""Names of array types, for annotations."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Complex = npt.NDArray[np.complex128]
Floats = npt.NDArray[np.float64]
Int16 = npt.NDArray[np.int16]
Int64 = npt.NDArray[np.int64]
Integers = npt.NDArray[np.integer[Any]]
Rows = npt.NDArray[np.intp]
UInt64 = npt.NDArray[np.uint64]
