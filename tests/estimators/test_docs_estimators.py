"""The examples of the pages on estimators run as they stand, and print what the pages show."""

import re

import pytest
from places import ROOT

DOCS = ROOT / "docs"
PAGES = {
    name: (DOCS / name).read_text("utf-8")
    for name in ("estimators.md", "estimators-two-call.md", "coupling.md")
}
SHOWN = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = [(page, *example) for page, text in PAGES.items() for example in SHOWN.findall(text)]


@pytest.mark.parametrize(
    ("page", "code", "shown"),
    EXAMPLES,
    ids=[f"{page}-{i}" for i, (page, *_) in enumerate(EXAMPLES)],
)
def test_an_example_prints_what_the_page_shows(page, code, shown, capsys):
    exec(compile(code, page, "exec"), {})  # noqa: S102  our own page
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        line.rstrip() for line in shown.splitlines()
    ]


@pytest.mark.parametrize("page", PAGES)
def test_every_example_shows_what_it_prints(page):
    assert (
        len(SHOWN.findall(PAGES[page]))
        == len(re.findall(r"^```python$", PAGES[page], re.MULTILINE))
        > 0
    )
