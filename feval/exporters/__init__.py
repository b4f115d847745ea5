"""Recordings as tables, one row per CoT or step of a tree, and in the layouts of other tools."""

from feval.exporters.parts import Export
from feval.exporters.tables import FORMATS, export_recording

__all__ = ["FORMATS", "Export", "export_recording"]
