"""Intervals, tests, bootstrap and rankings of accuracies."""
