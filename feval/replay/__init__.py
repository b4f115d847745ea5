"""Load recordings and replay them: LLMs, datasets, pools, draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.replay.loading import LLM as LLM
    from feval.replay.loading import Dataset as Dataset
    from feval.replay.loading import MeteredLLM as MeteredLLM
    from feval.replay.loading import load as load
    from feval.replay.loading import open_recordings as open_recordings
    from feval.replay.pools import Pool as Pool

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "loading": (
            "LLM",
            "Dataset",
            "MeteredLLM",
            "load",
            "open_recordings",
        ),
        "pools": ("Pool",),
    },
)
