"""Shapes of the tiny models."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class Shape:
    """A Llama-style decoder: RMSNorm, rotary positions, SwiGLU, no biases, one matrix for reading
    and writing tokens.
    """

    width: int
    layers: int
    heads: int
    hidden: int
    tokens: int = 143
    context: int = 256
    rotary_base: float = 10_000.0
    epsilon: float = 1e-5

    @property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads

    @property
    def arrays(self) -> dict[str, tuple[int, ...]]:
        """Names of the weights, as in Hugging Face's Llama, and their shapes."""
        square, up, down = (
            (self.width, self.width),
            (self.hidden, self.width),
            (self.width, self.hidden),
        )
        arrays: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (self.tokens, self.width)
        }
        for layer in range(self.layers):
            parts = {
                "input_layernorm": (self.width,),
                **{f"self_attn.{part}_proj": square for part in "qkvo"},
                "post_attention_layernorm": (self.width,),
                "mlp.gate_proj": up,
                "mlp.up_proj": up,
                "mlp.down_proj": down,
            }
            arrays |= {f"model.layers.{layer}.{part}.weight": size for part, size in parts.items()}
        return arrays | {"model.norm.weight": (self.width,)}

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(prod(size) for size in self.arrays.values())


FAMILY: dict[str, Shape] = {
    "feval/tiny-30k": Shape(32, 2, 4, 88),
    "feval/tiny-42k": Shape(32, 3, 4, 88),
    "feval/tiny-90k": Shape(48, 3, 4, 128),
    "feval/tiny-160k": Shape(64, 3, 4, 176),
}
"""The models that come with feval, smallest first."""
