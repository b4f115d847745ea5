"""Coupled and independent LLMs: covariances, win-rates."""
