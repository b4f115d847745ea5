"""Licences of collections: what is stated, the usual names, where their texts are, and the notice
that a release carries.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from feval.cards.cards import find_llm_card
from feval.errors import UsageError
from feval.recording import Recording

OTHER = "other"
USUAL = {
    "cc-by-4.0": ("CC BY 4.0", "https://creativecommons.org/licenses/by/4.0/",
    "any use that names you"),
    "cc-by-sa-4.0": ("CC BY-SA 4.0", "https://creativecommons.org/licenses/by-sa/4.0/",
    "so, and under the same licence"),
    "cc-by-nc-4.0": ("CC BY-NC 4.0", "https://creativecommons.org/licenses/by-nc/4.0/",
    "so, and not for money"),
    "cc0-1.0": ("CC0 1.0", "https://creativecommons.org/publicdomain/zero/1.0/",
    "any use, as if nobody owned it"),
    "odc-by": (
        "Open Data Commons Attribution License 1.0", "https://opendatacommons.org/licenses/by/1-0/",
        "for databases: any use that names you",
    ),
    "odbl": (
        "Open Database License (ODbL) 1.0", "https://opendatacommons.org/licenses/odbl/1-0/",
        "for databases: so, and under the same licence",
    ),
    "pddl": (
        "Public Domain Dedication and License 1.0",
        "https://opendatacommons.org/licenses/pddl/1-0/",
        "for databases: any use, as if nobody owned it",
    ),
    "apache-2.0": ("Apache License 2.0", "https://www.apache.org/licenses/LICENSE-2.0",
    "any use that keeps the notices"),
    "mit": ("MIT License", "https://opensource.org/license/mit", "any use that keeps the notice"),
}  # fmt: skip
"""The usual licences in the Hub's spelling: name, address of the text, what it allows."""

_HUB_ID = re.compile(r"[a-z0-9][a-z0-9.-]{1,40}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_LINK = re.compile(r"https?://[\w.~:/?#@!$&'*+,;=%\[\]-]{1,2000}|LICENSE\.md")
_OWN = "feval/"


@dataclass(frozen=True, slots=True)
class Licence:
    """A licence as the Hub spells it; `other` has a name, such as my-licence-1.0, and a link to its
    text, which the Hub asks for.

    `link` is an address, or LICENSE.md: a file that the owner has put into the repository.
    """

    id: str
    name: str | None = None
    link: str | None = None

    @property
    def title(self) -> str:
        """The licence's name for people."""
        return USUAL[self.id][0] if self.id in USUAL else self.name or self.id

    @property
    def url(self) -> str | None:
        """Where its text is; `None` where feval does not know."""
        return USUAL[self.id][1] if self.id in USUAL else self.link

    @property
    def fields(self) -> dict[str, str]:
        """The fields of the front matter, as far as they are stated."""
        fields = {"license": self.id, "license_name": self.name, "license_link": self.link}
        return {name: value for name, value in fields.items() if value is not None}


def is_licence(text: str) -> bool:
    """Return whether a text has the form of the Hub's licence identifiers."""
    return _HUB_ID.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a licence that the Hub does not know."""
    return _NAME.fullmatch(text) is not None


def is_link(text: str) -> bool:
    """Return whether a text can be the link to a licence's text."""
    return _LINK.fullmatch(text) is not None


def check_licence(licence: Licence | None) -> Licence:
    """Return a licence; raise a `UsageError` where none is stated, or the Hub would not take it."""
    if licence is None:
        raise UsageError(
            "A push needs the licence of the collection; neither the recording nor an earlier page"
            " states one. Write a file with three lines, `---`, `license: cc-by-4.0` (or another,"
            " as the Hub spells it; `other` for one of your own) and `---`, and push with --words"
            " FILE; in Python, prepare(..., licence=...)."
        )
    if not is_licence(licence.id):
        raise UsageError(
            f"The Hub spells licences as in cc-by-4.0, mit or other; {licence.id!r:.60} does not"
            " look like one."
        )
    if licence.id != OTHER and licence != Licence(licence.id):
        raise UsageError(
            f"license_name and license_link belong to the licence `other`, and not to {licence.id}."
        )
    if licence.id == OTHER and not (is_name(licence.name or "") and is_link(licence.link or "")):
        raise UsageError(
            "The Hub wants the name and the text of another licence. Beside `license: other`,"
            f" write `license_name`, such as my-licence-1.0 (found {licence.name!r:.60}), and"
            " `license_link`, an address with https://, or LICENSE.md for a file in the repository"
            f" (found {licence.link!r:.60}), into the front matter of --words FILE; in Python,"
            ' prepare(..., licence=Licence("other", name, link)).'
        )
    return licence


def outputs_licence(recording: Recording) -> str | None:
    """Return the licence of what the LLMs wrote, in words: from the manifest, or the cards of LLMs
    that come with feval.
    """
    stated = recording.manifest.raw["licences"].get("outputs")
    if stated and "not stated" not in stated:  # a merge of recordings may state it of some
        return str(stated)
    bases = [str(record.get("base")) for record in recording.manifest.llms.values()]
    cards = [find_llm_card(base) if base.startswith(_OWN) else None for base in bases]
    licences = {None if card is None else card.licence for card in cards}
    return licences.pop() if len(licences) == 1 else None


def stated_licence(recording: Recording) -> Licence | None:
    """Return the licence of the outputs, `None` without any; what is none of the usual ones is
    `other` and lacks its link.
    """
    outputs = outputs_licence(recording)
    if outputs is None:
        return None
    spelled = re.sub(r"[^a-z0-9.-]+", "-", outputs.strip().lower()).strip("-")
    return (
        Licence(spelled)
        if spelled in USUAL
        else Licence(OTHER, spelled if is_name(spelled) else None)
    )


def notice(title: str, licence: Licence) -> str:
    """Return the file LICENSE of a release: the notice that section 4.2 of the ODbL asks for, and
    that of another licence.
    """
    where = f" ({licence.url})" if licence.url else ""
    return (
        f"{title}\n\nThis collection is made available under this licence:"
        f" {licence.title}{where}.\n\nIt covers the collection as a database. The individual"
        " contents (questions, and what language models wrote) are under\nlicences of their own,"
        " which README.md states; this one gives no rights in them.\n"
    )
