"""What every test of the importers may ask for: `save` writes a source, `imported` imports it."""

from importing import imported, save

__all__ = ["imported", "save"]
