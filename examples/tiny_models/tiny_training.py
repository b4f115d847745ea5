"""Train the tiny models; needs PyTorch (`pip install torch`), which using them does not.

    python examples/tiny_models/tiny_training.py feval/tiny-42k --out checkpoints

One thread, no GPU. Every problem is new; the loss covers only the answer's tokens. Weights are
saved as float16, and that file is the model: precision beyond float16 is dropped on purpose, so
that there is one reference.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import torch
from tiny_recipes import RECIPES, Recipe, arrays
from torch.nn import functional

from recorders.tiny.model import PAD, Shape, tokenizer
from recorders.tiny.problems import Problem, problem

Weights = dict[str, torch.Tensor]

log = logging.getLogger(__name__)

_POOL = 8  # batches cut from one pool of problems, sorted by length: hardly any padding


def initial_weights(shape: Shape, seed: int) -> Weights:
    """Return random weights under the names of Hugging Face's Llama, so that it can load them."""
    source = torch.Generator().manual_seed(seed)
    return {name: _initial(shape, name, size, source) for name, size in arrays(shape).items()}


def _initial(
    shape: Shape, name: str, size: tuple[int, ...], source: torch.Generator
) -> torch.Tensor:
    if len(size) == 1:
        return torch.ones(size)
    deviation = shape.width**-0.5
    if "embed_tokens" in name:
        deviation = 0.02
    # additions to the residual stream start small, as in GPT-2
    elif "o_proj" in name or "down_proj" in name:
        deviation = 0.02 / (2 * shape.layers) ** 0.5
    return torch.randn(*size, generator=source) * deviation


def logits(weights: Weights, shape: Shape, tokens: torch.Tensor) -> torch.Tensor:
    """Return the logits [batch, length, vocabulary] of every next token, for tokens [batch,
    length].
    """
    embedding = weights["model.embed_tokens.weight"]
    rotation = _rotation(shape, tokens.shape[1])
    x = embedding[tokens]
    for layer in range(shape.layers):
        arrays = {
            name.split(".", 3)[3]: value
            for name, value in weights.items()
            if name.startswith(f"model.layers.{layer}.")
        }
        x = x + _attention(
            _normed(x, arrays["input_layernorm.weight"], shape), arrays, shape, rotation
        )
        x = x + _feed_forward(_normed(x, arrays["post_attention_layernorm.weight"], shape), arrays)
    return _normed(x, weights["model.norm.weight"], shape) @ embedding.T


def _normed(x: torch.Tensor, scale: torch.Tensor, shape: Shape) -> torch.Tensor:
    return functional.rms_norm(x, (shape.width,), scale, shape.epsilon)


def _rotation(shape: Shape, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of the rotary positions, [length, head width]; the two halves of a head
    rotate together.
    """
    half = torch.arange(0, shape.head_width, 2, dtype=torch.float64) / shape.head_width
    angles = torch.arange(length, dtype=torch.float64)[:, None] * shape.rotary_base**-half
    both = torch.cat([angles, angles], dim=-1)
    return both.cos().float(), both.sin().float()


def _attention(
    x: torch.Tensor, arrays: Weights, shape: Shape, rotation: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    batch, length, width = x.shape
    cosines, sines = rotation

    def heads(part: str) -> torch.Tensor:
        projected = x @ arrays[f"self_attn.{part}_proj.weight"].T
        return projected.view(batch, length, shape.heads, shape.head_width).transpose(1, 2)

    def rotated(y: torch.Tensor) -> torch.Tensor:
        low, high = y.chunk(2, dim=-1)
        return y * cosines + torch.cat([-high, low], dim=-1) * sines

    mixed = functional.scaled_dot_product_attention(
        rotated(heads("q")), rotated(heads("k")), heads("v"), is_causal=True
    )
    return mixed.transpose(1, 2).reshape(batch, length, width) @ arrays["self_attn.o_proj.weight"].T


def _feed_forward(x: torch.Tensor, arrays: Weights) -> torch.Tensor:
    gate = functional.silu(x @ arrays["mlp.gate_proj.weight"].T)
    return (gate * (x @ arrays["mlp.up_proj.weight"].T)) @ arrays["mlp.down_proj.weight"].T


def train(recipe: Recipe, out: Path, every: int = 500, resume: Path | None = None) -> Weights:
    """Train a model, and return its weights after the last update.

    Checkpoints, `00500.npz` and so on, are saved at regular intervals and at the end of every
    stage, from which training can resume.
    """
    out.mkdir(parents=True, exist_ok=True)
    weights = read(resume) if resume else initial_weights(recipe.shape, recipe.seed)
    done = int(resume.stem) if resume else 0
    for updates in recipe.stages():
        if updates.start >= done:
            _stage(recipe, weights, updates, out, every)
            weights = read(out / f"{updates.stop:05d}.npz")
    return weights


def _stage(recipe: Recipe, weights: Weights, updates: range, out: Path, every: int) -> None:
    """Train on the batches of these updates with a fresh AdamW; always save the last update."""
    for value in weights.values():
        value.requires_grad_(True)
    matrices = [value for value in weights.values() if value.ndim == 2]
    scales = [value for value in weights.values() if value.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": scales, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98))
    rates = recipe.rates()
    started, losses = time.monotonic(), []
    for update, (tokens, answer) in zip(updates, _batches(recipe, updates.start), strict=False):
        for group in optimizer.param_groups:
            group["lr"] = rates[update]
        loss = _loss(weights, recipe.shape, tokens, answer)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if (update + 1) % every == 0 or update + 1 == updates.stop:
            log.info(
                "%6d updates, %7.1f s, loss %.4f",
                update + 1,
                time.monotonic() - started,
                sum(losses) / len(losses),
            )
            losses.clear()
            save(weights, out / f"{update + 1:05d}.npz")


def read(path: Path) -> Weights:
    """Return the weights of a checkpoint, widened to float32."""
    with np.load(path, allow_pickle=False) as file:
        return {name: torch.from_numpy(file[name].astype(np.float32)) for name in file.files}


def save(weights: Weights, path: Path) -> None:
    """Write weights as float16 to an `.npz` file."""
    arrays = {name: value.detach().numpy().astype(np.float16) for name, value in weights.items()}
    np.savez_compressed(path, allow_pickle=False, **arrays)


def _loss(
    weights: Weights, shape: Shape, tokens: torch.Tensor, answer: torch.Tensor
) -> torch.Tensor:
    scores = logits(weights, shape, tokens[:, :-1])[answer[:, 1:]]
    return functional.cross_entropy(scores, tokens[:, 1:][answer[:, 1:]])


def _batches(recipe: Recipe, start: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield tokens [batch, length] and which of them belong to the answer, endlessly, from a batch
    number on.
    """
    first, skipped = divmod(start, _POOL)
    source = torch.Generator().manual_seed(recipe.seed)
    for number in count():
        order = torch.randperm(_POOL, generator=source).tolist()
        if number < first:
            continue
        size = _POOL * recipe.batch
        told = (problem(recipe.seed, "training", number * size + place) for place in range(size))
        pool = sorted(map(_row, told), key=lambda row: len(row[0]))
        for part in order[skipped:]:
            yield _padded(pool[part * recipe.batch : (part + 1) * recipe.batch])
        skipped = 0


def _row(problem: Problem) -> tuple[list[int], int]:
    prompt = tokenizer().prompt(problem.question)
    return prompt + tokenizer().completion(problem.chain), len(prompt)


def _padded(rows: list[tuple[list[int], int]]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(len(tokens) for tokens, _ in rows)
    tokens = torch.tensor([row + [PAD] * (longest - len(row)) for row, _ in rows])
    begins = torch.tensor([[prompt] for _, prompt in rows])
    return tokens, (torch.arange(longest) >= begins) & (tokens != PAD)


def main() -> None:
    """Train one model of the family."""
    parser = argparse.ArgumentParser(description="Train a tiny model.")
    parser.add_argument("name", choices=RECIPES)
    parser.add_argument("--out", type=Path, default=Path("checkpoints"))
    parser.add_argument("--every", type=int, default=500, help="updates between two checkpoints")
    parser.add_argument(
        "--resume",
        type=Path,
        help="the checkpoint at the end of a stage, to continue with the next one",
    )
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    train(
        RECIPES[options.name],
        options.out / options.name.rpartition("/")[2],
        options.every,
        options.resume,
    )


if __name__ == "__main__":
    main()
