"""Exact expectations of methods that stop early."""
