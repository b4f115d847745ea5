"""Benchmarks: `python -m benchmarks` runs them all and compares each with its goal; `README.md`
says what the numbers mean.
"""
