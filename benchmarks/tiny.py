"""CoTs per second of the tiny models in NumPy, and in PyTorch where it is installed. One thread,
CPU time.

Forty CoTs of one question at a time, as a recorder asks for them. PyTorch runs `generate` of
Hugging Face's Llama on the exported model; its numbers are only reported.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from benchmarks.measure import Goal, Workspace

QUESTIONS = 12
COTS = 40
EXPORT = Path(__file__).parents[1] / "examples" / "tiny_models" / "tiny_export.py"
# CoTs per second of any model: the demo's live batch must not be what a user waits for
LEAST = 100.0


def goals(workspace: Workspace) -> list[Goal]:
    """Measure every model of the family.

    Args:
        workspace: where exported models are put.
    """
    from recorders.tiny import FAMILY

    goals = []
    for name in FAMILY:
        cots, tokens = rate(numpy_cots(name))
        note = f"{tokens:,.0f} tokens/s"
        goals.append(
            Goal(f"{name}: CoTs per second, NumPy", cots, LEAST, "/s", at_least=True, note=note)
        )
        if find_spec("torch") and find_spec("transformers"):
            cots, tokens = rate(torch_cots(name, workspace))
            goals.append(
                Goal(
                    f"{name}: CoTs per second, PyTorch",
                    cots,
                    None,
                    "/s",
                    note=f"{tokens:,.0f} tokens/s",
                )
            )
    return goals


def rate(draw: Callable[[str], int]) -> tuple[float, float]:
    """CoTs and output tokens per CPU second; `draw` takes a question and returns how many tokens
    its CoTs have.
    """
    from recorders.tiny import problems

    questions = [problem.question for problem in problems.test_questions()[: QUESTIONS + 1]]
    draw(questions[0])
    started = time.process_time()
    tokens = sum(draw(question) for question in questions[1:])
    seconds = time.process_time() - started
    return QUESTIONS * COTS / seconds, tokens / seconds


def numpy_cots(name: str) -> Callable[[str], int]:
    """Draw with the project's own sampler."""
    from recorders.tiny import load_model, sample

    model = load_model(name)
    return lambda question: sum(
        completion.output_tokens for completion in sample(model, question, range(COTS))
    )


def torch_cots(name: str, workspace: Workspace) -> Callable[[str], int]:
    """Draw with `transformers`."""
    import torch
    from transformers import AutoModelForCausalLM

    from recorders.tiny import tokenizer
    from recorders.tiny.model import END, PAD

    torch.set_num_threads(1)
    folder = workspace.folder / name.rpartition("/")[2]
    subprocess.run([sys.executable, EXPORT, name, "--out", folder], check=True)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def draw(question: str) -> int:
        prompt = torch.tensor([tokenizer().prompt(question)] * COTS)
        with torch.no_grad():
            completions = model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                do_sample=True,
                top_k=0,
                max_new_tokens=128,
                eos_token_id=END,
            )
        return int((completions[:, prompt.shape[1] :] != PAD).sum())

    return draw
