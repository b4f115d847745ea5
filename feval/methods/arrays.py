"""Types of arrays by what they hold; comments and docstrings give the shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.integer[Any]]
Rows = npt.NDArray[np.intp]
