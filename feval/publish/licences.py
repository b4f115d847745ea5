"""Licences of collections: what is stated, the usual names, where their texts are, and the notice that a release carries."""

from __future__ import annotations

import re

from feval.cards.cards import find_llm_card
from feval.errors import UsageError
from feval.recording import Recording

OTHER = "other"
USUAL = {
    "cc-by-4.0": ("CC BY 4.0", "https://creativecommons.org/licenses/by/4.0/", "any use that names you"),
    "cc-by-sa-4.0": ("CC BY-SA 4.0", "https://creativecommons.org/licenses/by-sa/4.0/", "so, and under the same licence"),
    "cc-by-nc-4.0": ("CC BY-NC 4.0", "https://creativecommons.org/licenses/by-nc/4.0/", "so, and not for money"),
    "cc0-1.0": ("CC0 1.0", "https://creativecommons.org/publicdomain/zero/1.0/", "any use, as if nobody owned it"),
    "odc-by": (
        "Open Data Commons Attribution License 1.0", "https://opendatacommons.org/licenses/by/1-0/",
        "for databases: any use that names you",
    ),
    "odbl": (
        "Open Database License (ODbL) 1.0", "https://opendatacommons.org/licenses/odbl/1-0/",
        "for databases: so, and under the same licence",
    ),
    "pddl": (
        "Public Domain Dedication and License 1.0", "https://opendatacommons.org/licenses/pddl/1-0/",
        "for databases: any use, as if nobody owned it",
    ),
    "apache-2.0": ("Apache License 2.0", "https://www.apache.org/licenses/LICENSE-2.0", "any use that keeps the notices"),
    "mit": ("MIT License", "https://opensource.org/license/mit", "any use that keeps the notice"),
    OTHER: ("another licence, which the page states", None, "of your own; say which in the text of --words"),
}  # fmt: skip
"""The usual licences in the Hub's spelling: name, address of the text, what it allows."""

_HUB_ID = re.compile(r"[a-z0-9][a-z0-9.-]{1,40}")
_OWN = "feval/"


def is_licence(text: str) -> bool:
    """Return whether a text has the form of the Hub's licence identifiers."""
    return _HUB_ID.fullmatch(text) is not None


def check_licence(licence: str | None) -> str:
    """Return a licence; raise a `UsageError` where none is stated, or it does not have the form of the Hub's identifiers."""
    if licence is None:
        raise UsageError(
            "A push needs the licence of the collection; neither the recording nor an earlier page states one. Write a file with "
            "three lines, `---`, `license: cc-by-4.0` (or another, as the Hub spells it; `other` for one of your own) and `---`, "
            "and push with --words FILE; in Python, prepare(..., licence=...)."
        )
    if not is_licence(licence):
        raise UsageError(
            f"The Hub spells licences as in cc-by-4.0, mit or other; {licence!r:.60} does not look like one."
        )
    return licence


def outputs_licence(recording: Recording) -> str | None:
    """Return the licence of what the LLMs wrote, in words: from the manifest, or the cards of LLMs that come with feval."""
    stated = (recording.manifest.raw.get("licences") or {}).get("outputs")
    if stated and "not stated" not in stated:  # a merge of recordings may state it of some
        return str(stated)
    bases = [str(record.get("base")) for record in recording.manifest.llms.values()]
    cards = [find_llm_card(base) if base.startswith(_OWN) else None for base in bases]
    licences = {None if card is None else card.licence for card in cards}
    return licences.pop() if len(licences) == 1 else None


def stated_licence(recording: Recording) -> str | None:
    """Return the licence of the outputs as the Hub spells it: `other` for what is none of the usual ones, `None` without any."""
    outputs = outputs_licence(recording)
    if outputs is None:
        return None
    spelled = outputs.strip().lower().replace(" ", "-")
    return spelled if spelled in USUAL else OTHER


def licence_name(licence: str) -> str:
    """Return a licence's name for people."""
    return USUAL[licence][0] if licence in USUAL else licence


def licence_url(licence: str) -> str | None:
    """Return where a licence's text is; `None` where feval does not know."""
    return USUAL[licence][1] if licence in USUAL else None


def notice(title: str, licence: str) -> str:
    """Return the file LICENSE of a release: the notice that section 4.2 of the ODbL asks for, and that of another licence."""
    url = licence_url(licence)
    where = f" ({url})" if url else ""
    return (
        f"{title}\n\nThis collection is made available under this licence: {licence_name(licence)}{where}.\n\n"
        "It covers the collection as a database. The individual contents (questions, and what language models wrote) are under\n"
        "licences of their own, which README.md states; this one gives no rights in them.\n"
    )
