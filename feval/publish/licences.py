"""Licences of collections: their names, where their texts are, and the notice that a release carries."""

from __future__ import annotations

import re

from feval.errors import UsageError

_KNOWN = {
    "odbl": ("Open Database License (ODbL) 1.0", "https://opendatacommons.org/licenses/odbl/1-0/"),
    "odc-by": ("Open Data Commons Attribution License 1.0", "https://opendatacommons.org/licenses/by/1-0/"),
    "pddl": ("Public Domain Dedication and License 1.0", "https://opendatacommons.org/licenses/pddl/1-0/"),
    "cc0-1.0": ("CC0 1.0", "https://creativecommons.org/publicdomain/zero/1.0/"),
    "cc-by-4.0": ("CC BY 4.0", "https://creativecommons.org/licenses/by/4.0/"),
    "cc-by-sa-4.0": ("CC BY-SA 4.0", "https://creativecommons.org/licenses/by-sa/4.0/"),
    "cc-by-nc-4.0": ("CC BY-NC 4.0", "https://creativecommons.org/licenses/by-nc/4.0/"),
    "apache-2.0": ("Apache License 2.0", "https://www.apache.org/licenses/LICENSE-2.0"),
    "mit": ("MIT License", "https://opensource.org/license/mit"),
}
_HUB_ID = re.compile(r"[a-z0-9][a-z0-9.-]{1,40}")


def is_licence(text: str) -> bool:
    """Return whether a text has the form of the Hub's licence identifiers."""
    return _HUB_ID.fullmatch(text) is not None


def check_licence(licence: str) -> str:
    """Return a licence; raise a `UsageError` where it does not have the form of the Hub's identifiers."""
    if not is_licence(licence):
        raise UsageError(
            f"The Hub spells licences as in odbl, cc-by-4.0 or mit; {licence!r:.60} does not look like one."
        )
    return licence


def licence_name(licence: str) -> str:
    """Return a licence's name for people."""
    return _KNOWN[licence][0] if licence in _KNOWN else licence


def licence_url(licence: str) -> str | None:
    """Return where a licence's text is; `None` where feval does not know."""
    return _KNOWN[licence][1] if licence in _KNOWN else None


def notice(title: str, licence: str) -> str:
    """Return the file LICENSE of a release: the notice that section 4.2 of the ODbL asks for, or that of another licence."""
    url = licence_url(licence)
    where = f", whose text is at {url}" if url else ""
    contents = (
        "This covers the collection as a database. The individual contents (questions, and what language models wrote) are\n"
        "under licences of their own, which README.md and manifest.json state. The ODbL gives no rights in them.\n"
        if licence == "odbl"
        else "The questions, and what language models wrote, are under licences of their own, which README.md states.\n"
    )
    return f"{title}\n\nThis collection is made available under the {licence_name(licence)}{where}.\n\n{contents}"
