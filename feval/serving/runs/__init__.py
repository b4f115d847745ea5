"""Runs: who asks. Each has its own place in every pool and its own ledger."""
