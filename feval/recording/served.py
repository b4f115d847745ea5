"""Which model answered, as its replies say, beside the one that was asked: routers and names that
move swap models unseen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feval.recording.layout.manifest import Manifest

_TIER = re.compile(r":(free|nitro|floor)$")  # OpenRouter's: who serves it, not what
_DATED = re.compile(r"[-@](latest|\d{3,4}|\d{6}|\d{8}|\d{2}-\d{2,4}|\d{4}-\d{2}-\d{2})$")
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Served:
    """The models that answered as one LLM on one dataset.

    Attributes:
        llm, dataset: whose CoTs.
        asked: the model's name in the requests; of imported CoTs that of the LLM.
        names: each name that replies state, and how many CoTs have it.
    """

    llm: str
    dataset: str
    asked: str
    names: Mapping[str, int]

    @property
    def is_other(self) -> bool:
        """Whether several models answered, or another one than was asked; a dated name of the same
        is neither.
        """
        answered = {_bare(name) for name in self.names}
        return len(answered) > 1 or {_undated(name) for name in answered} != {
            _undated(_bare(self.asked))
        }

    @property
    def sentence(self) -> str:
        """What a reader should know."""
        most = sorted(self.names.items(), key=lambda item: (-item[1], item[0]))
        shown = ", ".join(
            f"{name:.60} ({count:,} CoT{'s' * (count != 1)})" for name, count in most[:_SHOWN]
        )
        more = f" and {len(most) - _SHOWN} more" if len(most) > _SHOWN else ""
        who = f"{self.llm} on {self.dataset}"
        if not self.is_other:
            return f"{who} was served as {most[0][0]:.60}."
        other = "another model" if len(most) == 1 else "more than one model"
        asked = "" if self.asked == self.llm else f" was asked as {self.asked:.60}, and"
        return f"{who}{asked or ':'} {other} answered, as the replies say: {shown}{more}."


def served_models(manifest: Manifest) -> Iterator[Served]:
    """Yield the pairs whose replies state another name than was asked."""
    for (dataset, llm), pair in manifest.pairs.items():
        names: Mapping[str, int] = pair.get("served", {})
        asked = manifest.llms[llm]["decoding"].get("model")
        asked = asked if isinstance(asked, str) else llm.split("@", maxsplit=1)[0]
        if names.keys() - {asked}:
            yield Served(llm, dataset, asked, names)


def _bare(name: str) -> str:
    """A model's name without who provides it, in small letters."""
    return _TIER.sub("", name.rsplit("/", maxsplit=1)[-1].casefold())


def _undated(name: str) -> str:
    return _DATED.sub("", name)
