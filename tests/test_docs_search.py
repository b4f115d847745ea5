"""The site is built without a warning, and its search finds pages by the words that users have."""

import json
import subprocess
import sys

import pytest
from chromium import CHROMIUM, tab
from places import ROOT

QUESTIONS = {
    "model price": "own-prices",
    "lm-eval logs": "importing",
    "inspect ai": "importing",
    "import csv": "importing",
    "pandas dataframe": "python",
    "what does exact mean": "numbers",
    "confidence interval": "numbers",
    "random seed": "numbers",
    "is the difference significant": "comparing",
    "compare two methods": "comparing",
    "latency": "comparing",
    "how many samples do I need": "forecasting",
    "best of n with a reward model": "methods",
    "cascade of cheap and expensive models": "methods",
    "beam search": "depth",
    "my own method": "own-method",
    "llm as a judge": "scoring",
    "openai client": "serving",
    "vllm server": "recording",
    "continue after a crash": "recording",
    "upload to hugging face": "publishing",
    "figure for a paper": "notebooks/papers-figure",
    "out of memory": "scale",
    "extract the answer": "answers",
    "from_dataframe": "api/recordings",
}
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
