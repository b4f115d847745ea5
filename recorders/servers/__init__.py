"""Servers of our own: the recording proxy and the server of the tiny models."""
