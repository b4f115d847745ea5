"""Makes `tiny_logits.npz`: logits of the tiny models from Hugging Face's `LlamaForCausalLM`, which
shares no code with ours.

    pip install torch transformers
    PYTHONPATH=examples/tiny_models python tests/support/tiny_logits.py

Run once for new weights. Tokens: three test questions with their answers; the logits of the last
eight positions, float32.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from places import DATA
from tiny_export import export
from transformers import AutoModelForCausalLM

from recorders.tiny import FAMILY, problems, tokenizer

LENGTH, KEPT = 60, 8


def main():
    told = [problem for problem in problems.test_questions() if len(problem.steps) >= 3][:3]
    rows = [
        (tokenizer().prompt(one.question) + tokenizer().completion(one.chain))[:LENGTH]
        for one in told
    ]
    arrays = {"tokens": np.array(rows)}
    for name in FAMILY:
        with tempfile.TemporaryDirectory() as folder:
            model = AutoModelForCausalLM.from_pretrained(
                export(name, Path(folder)), dtype=torch.float32
            )
            with torch.no_grad():
                arrays[name] = model(torch.tensor(rows)).logits[:, -KEPT:].numpy()
    np.savez_compressed((DATA / "tiny_logits.npz"), allow_pickle=False, **arrays)


if __name__ == "__main__":
    main()
