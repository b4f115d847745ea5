"""The one place that imports torch and transformers, which are optional."""

from __future__ import annotations

from typing import Any, NamedTuple

from feval.errors import UsageError


class TorchLibraries(NamedTuple):
    """The two packages, untyped."""

    torch: Any
    transformers: Any


def torch_libraries(purpose: str) -> TorchLibraries:
    """Import torch and transformers; the error names the purpose that needs them."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise UsageError(
            f"{purpose} needs torch and transformers ({error}): pip install 'feval[coupled]'."
        ) from error
    return TorchLibraries(torch, transformers)
