"""Recorded questions and CoTs to be looked at: what there is, and how it is written for a
terminal.
"""
