"""The built-in tiny language models: real ones that need nothing but NumPy. See
`docs/tiny-models.md`.
"""

from recorders.tiny.model import (
    FAMILY,
    TinyCompletion,
    TinyDecoding,
    TinyModel,
    load_model,
    sample,
    stopped,
    tokenizer,
)
from recorders.tiny.problems import DATASET_ID, test_questions

__all__ = [
    "DATASET_ID",
    "FAMILY",
    "TinyCompletion",
    "TinyDecoding",
    "TinyModel",
    "load_model",
    "sample",
    "stopped",
    "test_questions",
    "tokenizer",
]
