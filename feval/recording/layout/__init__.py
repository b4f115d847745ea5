"""File names, manifest and limits of a recording folder."""
