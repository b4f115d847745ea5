"""The built-in tiny language models: real ones that need nothing but NumPy.

    from recorders.tiny import Decoding, load_model, sample

    model = load_model("feval/tiny-42k")
    for completion in sample(model, "Tom has 49 apples. Tom sells 22. How many apples does Tom have now?", range(5)):
        completion.text, completion.logprobs.sum(), completion.output_tokens, completion.finish_reason

`problems` makes the questions, `tokenizer` splits text, `shapes` lists the models, `model` computes logits, `sampling` draws
answers; `train` is the script that made the weights, the only module that needs PyTorch. See `docs/tiny-models.md`.
"""

from __future__ import annotations

from recorders.tiny.model import TinyModel, load_model, read_model
from recorders.tiny.problems import DATASET_ID, Problem, test_questions
from recorders.tiny.sampling import Completion, Decoding, sample, stopped
from recorders.tiny.shapes import FAMILY
from recorders.tiny.tokenizer import Tokenizer, tokenizer

__all__ = [
    "DATASET_ID",
    "FAMILY",
    "Completion",
    "Decoding",
    "Problem",
    "TinyModel",
    "Tokenizer",
    "load_model",
    "read_model",
    "sample",
    "stopped",
    "test_questions",
    "tokenizer",
]
