"""Shapes and training recipes of the tiny models."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import cos, pi, prod

_WARM_UP = 200
_LAST_RATE = 0.05  # of the highest


@dataclass(frozen=True)
class Shape:
    """A Llama-style decoder: RMSNorm, rotary positions, SwiGLU, no biases, one matrix for reading and writing tokens."""

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
        square, up, down = (self.width, self.width), (self.hidden, self.width), (self.width, self.hidden)
        arrays: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.tokens, self.width)}
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


@dataclass(frozen=True)
class CoolDown:
    """A later stage of training: a fresh AdamW, the learning rate lowered linearly."""

    updates: int
    rate: float


@dataclass(frozen=True)
class Recipe:
    """How a model is trained: AdamW on always new problems, in one or more stages.

    In the first stage the learning rate is warmed up and lowered along a cosine, which ends at update `cosine` and may be cut
    short. Each later stage starts from the float16 weights of the previous one, and lowers the rate to the same final value.
    """

    shape: Shape
    seed: int
    updates: int
    cosine: int
    later: tuple[CoolDown, ...] = ()
    batch: int = 32
    rate: float = 3e-3

    def stages(self) -> list[range]:
        """Return the updates of every stage, numbered across stages."""
        ends = list(accumulate([self.updates, *(stage.updates for stage in self.later)]))
        return [range(start, end) for start, end in pairwise([0, *ends])]

    def rates(self) -> list[float]:
        """Return the learning rate of every update of all stages."""
        rates = [self._along_the_cosine(update) for update in range(1, self.updates + 1)]
        for stage in self.later:
            fall = (stage.rate - self.rate * _LAST_RATE) / stage.updates
            rates += [stage.rate - fall * update for update in range(1, stage.updates + 1)]
        return rates

    def _along_the_cosine(self, update: int) -> float:
        height = (1 + cos(pi * update / self.cosine)) / 2
        return self.rate * min(1.0, update / _WARM_UP) * (_LAST_RATE + (1 - _LAST_RATE) * height)


FAMILY: dict[str, Recipe] = {
    "feval/tiny-30k": Recipe(Shape(32, 2, 4, 88), seed=1, updates=8_000, cosine=8_000),
    "feval/tiny-42k": Recipe(Shape(32, 3, 4, 88), seed=2, updates=8_000, cosine=8_000, batch=16),
    "feval/tiny-90k": Recipe(
        Shape(48, 3, 4, 128), seed=3, updates=6_000, cosine=6_000, later=(CoolDown(4_000, 2.5e-3),), batch=16
    ),
    "feval/tiny-160k": Recipe(
        Shape(64, 3, 4, 176),
        seed=4,
        updates=4_000,
        cosine=15_000,
        later=(CoolDown(2_500, 2.5285e-3), CoolDown(3_500, 1.5e-3), CoolDown(5_000, 2.5e-3)),
    ),
}
"""The models that come with feval, smallest first."""
