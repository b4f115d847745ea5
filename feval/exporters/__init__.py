"""Recordings as tables for other tools: one row per CoT, or per step of a tree."""

from feval.exporters.tables import FORMATS, Export, export_recording

__all__ = ["FORMATS", "Export", "export_recording"]
