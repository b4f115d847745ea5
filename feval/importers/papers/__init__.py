"""Samples published with papers, each in its own format."""
