"""The append-only journal of a recording in progress."""
