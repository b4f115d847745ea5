"""Serving profiles: how fast LLMs are served, for seconds that are modelled and not recorded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError

from feval.cards.cards import Card, Day, Text
from feval.cards.front_matter import card_folder, check_card, known_card
from feval.cards.names import base_of
from feval.cards.prices import base_name
from feval.cards.reading import read_toml, sentence
from feval.errors import NotRecordedError, UsageError


class ServingSpeed(Card):
    """How fast one LLM is served.

    Attributes:
        seconds_to_first_token: from sending a request to its first output token.
        tokens_per_second: of one reply, as it is generated beside the others of its request.
    """

    seconds_to_first_token: Annotated[float, Field(ge=0, le=1e6)]
    tokens_per_second: Annotated[float, Field(ge=1e-6, le=1e12)]


class ServingProfile(Card):
    """How fast some LLMs are served.

    Attributes:
        id: such as "vllm-h100-2026-11"; every result names it.
        date: the day it was measured, YYYY-MM-DD.
        source: who measured what, and how; or that it is an example.
        llms: base names of LLMs with their speeds.
        title: for people.
    """

    id: Text
    date: Day
    source: Text
    llms: Annotated[
        dict[Annotated[str, AfterValidator(base_name)], ServingSpeed], Field(min_length=1)
    ]
    title: Text = "serving profile"

    def speed(self, llm: str) -> ServingSpeed:
        """The speed of an LLM, or of the base of a variant ("gpt-3.5-turbo@t=0.8").

        Raises:
            NotRecordedError: the profile has none.
        """
        speed = self.llms.get(base_of(llm))
        if speed is None:
            raise NotRecordedError(
                f"The serving profile {self.id!r} says nothing about the LLM {llm!r}; it has:"
                f" {', '.join(sorted(self.llms))}. Add a line for it in a profile of your own."
            )
        return speed


def serving_profile(given: str | Path | ServingProfile | Mapping[str, Any]) -> ServingProfile:
    """Return a serving profile.

    Args:
        given: the name of a card; the path of a file, a card (`.md`) or TOML (`.toml`); its fields;
            or the profile itself.

    Raises:
        UnknownNameError: no card has this name.
        CardError: the file cannot be read, or is no serving profile.
        UsageError: a field is wrong or missing.
    """
    if isinstance(given, ServingProfile):
        return given
    if isinstance(given, Mapping):
        try:
            return ServingProfile.model_validate(dict(given))
        except ValidationError as error:
            raise UsageError(f"The serving profile {sentence(error)}.") from error
    path = Path(given).expanduser()
    if path.suffix not in {".md", ".toml"}:
        advice = "A path to a .md card or a .toml file works as well."
        path = known_card("serving", str(given), advice)
    advice = f"{card_folder() / 'README.md'} lists the fields."
    facts = read_toml(path, "The serving profile", advice) if path.suffix == ".toml" else None
    return check_card("serving", path, ServingProfile.model_validate, facts)
