"""Published outcomes of two LLMs, by a reader that shares nothing with feval's importers."""

import csv
import gzip

import numpy as np


def gsm8k(shared):
    """Texts of RouteLLM's GSM8K, and [2, Q] how right the weak and the strong LLM are."""
    with gzip.open(shared / "real/routing/gsm8k.csv.gz", "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    right = [[int(row[name]) for row in rows] for name in ("weak", "strong")]
    return [row["prompt"] for row in rows], np.array(right)
