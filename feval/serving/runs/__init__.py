"""Runs of a client: draws handed out, ledgers, accounts."""
