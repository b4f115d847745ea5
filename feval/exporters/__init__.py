"""Recordings as tables, one row per CoT or step of a tree, and as records of Every Eval Ever."""

from feval.exporters.arrow import Export
from feval.exporters.tables import FORMATS, export_recording

__all__ = ["FORMATS", "Export", "export_recording"]
