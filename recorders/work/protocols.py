r"""Protocols of turns: what the user says after each reply, from a Markdown file with front matter.

    ---
    name: revise
    ---
    Look at each step of your solution again, correct what is wrong, and end with the answer.

The text is said before every turn from the second on; with headings ("# Turn 2", "# Turn 3", ...)
each turn has its own. In it, "{question}" stands for what was asked first and "{answer}" for the
answer in the last reply; where that has none, for the front matter's `no_answer`. Without front
matter a protocol is called as its file is.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from feval.cards.front_matter import read_body, read_card_text, read_front_matter
from feval.cards.validation import sentence
from feval.errors import CardError
from recorders.asking.turns import Protocol

_HEADING = re.compile(r"^#+ Turn ([0-9]{1,5})[ \t]*$", re.MULTILINE)


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]
    title: str = ""
    no_answer: Annotated[str, StringConstraints(pattern=r"\S")] = "no answer"


def read_protocol(path: Path, template: str | None = None) -> Protocol:
    """Return the protocol in a file; `template` is as in `Protocol`.

    Raises:
        CardError: the file cannot be read or lacks something; the message says where.
    """
    text = read_card_text(path)
    named = text.startswith("---")
    try:
        facts = _Facts.model_validate(read_front_matter(path) if named else {"name": path.stem})
    except ValidationError as error:
        raise CardError(
            f"The protocol {path} {sentence(error)}. It has name (a file of text only has its own),"
            " and may have title and no_answer."
        ) from error
    before, *sections = _HEADING.split(read_body(path) if named else text)
    numbers, texts = sections[::2], [text.strip() for text in sections[1::2] or [before]]
    if numbers and (
        before.strip() or numbers != [str(turn) for turn in range(2, len(numbers) + 2)]
    ):
        raise CardError(
            f"The protocol {path} should begin with the heading '# Turn 2' and go on with '# Turn"
            " 3' and so on, or have no such heading; the first turn answers the question."
        )
    if not all(texts):
        empty = f"turn {texts.index('') + 2}" if numbers else "the turns"
        raise CardError(f"The protocol {path} has no text for {empty}; write what is said.")
    return Protocol(facts.name, tuple(texts), facts.no_answer, template)
