"""Messages between feval and the worker process of a user's method: a length (four bytes,
little-endian) and a JSON text.
"""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

LENGTH = struct.Struct("<I")
"""The length before a message."""


def encoded(message: Mapping[str, Any]) -> bytes:
    """Return a message as it goes through a pipe. Text that is no valid Unicode (lone surrogates)
    survives.
    """
    text = json.dumps(message, default=_json_value).encode("ascii")
    return LENGTH.pack(len(text)) + text


def decoded(text: bytes) -> dict[str, Any]:
    """Return a message from its JSON text; `ValueError` for anything else."""
    try:
        message = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(message, dict):
        raise ValueError("it is not an object")  # noqa: TRY004  as for text that is not JSON
    return message


def array_from(value: Mapping[str, Any]) -> npt.NDArray[Any]:
    """Return the array of a message."""
    return np.frombuffer(bytearray(b64decode(value["base64"])), value["dtype"]).reshape(
        value["shape"]
    )


def _json_value(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        data = np.ascontiguousarray(value)
        return {
            "dtype": data.dtype.str,
            "shape": data.shape,
            "base64": b64encode(data.tobytes()).decode(),
        }
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r:.80} cannot be sent to another process")
