"""How the tiny models were trained: a recipe for each of the family."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import cos, pi, prod

from recorders.tiny.model import FAMILY, Shape

_WARM_UP = 200
_LAST_RATE = 0.05  # of the highest


def arrays(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Return the names of a model's weights, as in Hugging Face's Llama, and their shapes."""
    square, up = (shape.width, shape.width), (shape.hidden, shape.width)
    sizes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (shape.tokens, shape.width)}
    for layer in range(shape.layers):
        parts = {
            "input_layernorm": (shape.width,),
            **{f"self_attn.{part}_proj": square for part in "qkvo"},
            "post_attention_layernorm": (shape.width,),
            "mlp.gate_proj": up,
            "mlp.up_proj": up,
            "mlp.down_proj": up[::-1],
        }
        sizes |= {f"model.layers.{layer}.{part}.weight": size for part, size in parts.items()}
    return sizes | {"model.norm.weight": (shape.width,)}


def parameters(shape: Shape) -> int:
    """Return the number of parameters of a model."""
    return sum(prod(size) for size in arrays(shape).values())


@dataclass(frozen=True)
class CoolDown:
    """A later stage of training: a fresh AdamW, the learning rate lowered linearly."""

    updates: int
    rate: float


@dataclass(frozen=True)
class Recipe:
    """How a model is trained: AdamW on always new problems, in one or more stages.

    In the first stage the learning rate is warmed up and lowered along a cosine, which ends at
    update `cosine` and may be cut short. Each later stage starts from the float16 weights of the
    previous one, and lowers the rate to the same final value.
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


RECIPES: dict[str, Recipe] = {
    "feval/tiny-30k": Recipe(FAMILY["feval/tiny-30k"], seed=1, updates=8_000, cosine=8_000),
    "feval/tiny-42k": Recipe(
        FAMILY["feval/tiny-42k"], seed=2, updates=8_000, cosine=8_000, batch=16
    ),
    "feval/tiny-90k": Recipe(
        FAMILY["feval/tiny-90k"],
        seed=3,
        updates=6_000,
        cosine=6_000,
        later=(CoolDown(4_000, 2.5e-3),),
        batch=16,
    ),
    "feval/tiny-160k": Recipe(
        FAMILY["feval/tiny-160k"],
        seed=4,
        updates=4_000,
        cosine=15_000,
        later=(CoolDown(2_500, 2.5285e-3), CoolDown(3_500, 1.5e-3), CoolDown(5_000, 2.5e-3)),
    ),
}
"""The recipes of the models that come with feval, by name."""
