"""The site is built without a warning, and its search finds pages by the words that users have."""

import json
import subprocess
import sys

import pytest
from chromium import CHROMIUM, tab
from places import ROOT, read_data

QUESTIONS = read_data("commands.json")["searches of the docs"]
"""What a user types -> a page that must be among the first three."""


@pytest.mark.slow
def test_the_site_is_built_and_its_search_finds_pages_by_users_words(tmp_path):
    site = tmp_path / "site"
    strict = ["--quiet", "--fail-on-warning", "--keep-going", "--doctree-dir", tmp_path / "trees"]
    subprocess.run([sys.executable, "-m", "sphinx", *strict, ROOT / "docs", site], check=True)
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed: the search was not asked")
    with tab(tmp_path) as page:
        page.send("Page.navigate", url=(site / "search.html").as_uri() + "?q=model+price")
        page.wait("document.querySelector('p.context')?.textContent.includes('price')")
        found = page.value(
            f"Object.fromEntries({json.dumps([*QUESTIONS])}.map((asked) => [asked, Search"
            "._performSearch(...Search._parseQuery(asked)).slice(-3).map((each) => each[0])]))"
        )
    missed = {asked: own for asked, own in found.items() if QUESTIONS[asked] not in own}
    assert (len(found), missed) == (25, {})
