"""Tables with a row for each CoT, in files or in memory: what their columns mean, and how they
become rows of a recording.
"""
