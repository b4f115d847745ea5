"""Parquet files, read and written. Its modules import pyarrow, so they are loaded on first use."""

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.recording.parquet import reading as reading

__getattr__, __dir__ = lazy_names(__name__, {"reading": ""})
