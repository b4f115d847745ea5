"""Accuracy of plurality votes, from recorded counts or answer probabilities."""
