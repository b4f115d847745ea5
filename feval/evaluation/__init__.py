"""Evaluate a method on a recording: exactly, on recorded draws or on seeded ones; curves over
budgets.
"""
