"""What a card is made of, beside the recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from feval.publish.configs import Config
from feval.publish.figures import PairFigures

__all__ = ["PICTURE", "Page"]

PICTURE = "figures/cost-accuracy.png"


@dataclass(frozen=True, slots=True)
class Page:
    """What a card is made of, beside the recording.

    Attributes:
        repo_id: "namespace/name".
        title: for people.
        figures: of every LLM on every dataset.
        configs: what `datasets` loads.
        licence: of the collection, as the Hub spells it.
        revision: the tag that examples name; `None`: none.
        words: the owner's section; "" for none.
        languages: of questions and outputs, such as "en".
        kept: front matter of an earlier card.
        has_picture: whether `PICTURE` is part of the release.
    """

    repo_id: str
    title: str
    figures: Sequence[PairFigures]
    configs: Sequence[Config]
    licence: str
    revision: str | None = None
    words: str = ""
    languages: Sequence[str] = ()
    kept: Mapping[str, Any] = field(default_factory=dict)
    has_picture: bool = True

    def config_name(self, dataset: str, part: str) -> str | None:
        """The configuration that holds a part of a dataset; `None` where it has no row."""
        found = (config.name for config in self.configs if (config.dataset, config.part) == (dataset, part))
        return next(found, None)

    @property
    def pinned(self) -> str:
        """The repository with its tag, where there is one."""
        return f"{self.repo_id}@{self.revision}" if self.revision else self.repo_id
