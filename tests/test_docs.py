"""The pages of the documentation run as they stand, lead somewhere, and are on the site."""

import re
import shutil
import sys

import pytest
from pages import READ, blocks, check, environment_in, page, run_page
from places import ROOT

import feval
from recorders.demo import bundled_recording

DOCS = ROOT / "docs"
PAGES = sorted(path.stem for path in DOCS.glob("*.md"))
RUN = [name for name in PAGES if any(block.is_run_here for block in blocks(page(name)))]
IN_THIS_PROCESS = {"estimators", "estimators-two-call"}
"""Pages that `tests/estimators/test_docs_estimators.py` runs, in a tenth of the time."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RUN if name not in IN_THIS_PROCESS])
def test_a_page_runs_beside_the_demo(name, tmp_path):
    with bundled_recording() as recording:
        shutil.copytree(recording, tmp_path / "feval-demo" / "recording")
    with environment_in(tmp_path) as environment:
        run_page(page(name), tmp_path, environment)


@pytest.mark.parametrize("name", PAGES)
def test_blocks_that_are_not_run_could_be(name):
    for block in blocks(page(name)):
        assert block.language in READ, (
            f"a block of {name}.md has the language {block.language!r}: {block.text[:60]}"
        )
        if not block.is_run_here:
            check(block)


@pytest.mark.parametrize("name", ["README", *(f"docs/{name}" for name in PAGES)])
def test_links_and_pictures_lead_somewhere(name):
    path = ROOT / f"{name}.md"
    prose = re.sub(
        r"^```.*?^```$|`[^`\n]+`", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", prose)
    here = [target for target in targets if "://" not in target]
    assert [target for target in here if not (path.parent / target).exists()] == []


def entries():
    """Yield the pages in the navigation of the site."""
    for name in ("index", "api/index"):
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```", page(name), re.MULTILINE | re.DOTALL):
            folder = name.rpartition("index")[0]
            lines = (line for line in tree.splitlines() if line and not line.startswith(":"))
            yield from (folder + line.rpartition("<")[2].rstrip(">") for line in lines)


def test_every_page_is_on_the_site_once():
    api = [f"api/{path.stem}" for path in (DOCS / "api").glob("*.md")]
    here = [entry for entry in entries() if not entry.startswith(("commands/", "project/"))]
    notebooks = [f"notebooks/{path.stem}" for path in (DOCS / "notebooks").glob("*.ipynb")]
    assert sorted(["index", *here]) == sorted([*PAGES, *api, *notebooks])


def test_every_public_name_is_in_the_reference_once():
    described = []
    for path in (DOCS / "api").glob("*.md"):
        module = ""
        for line in path.read_text("utf-8").splitlines():
            if found := re.match(r"\.\. (\w+):: (\S+)", line):
                module = found[2] if found[1] == "currentmodule" else module
                described += (
                    [f"{module}.{found[2]}"] if module and found[1] != "currentmodule" else []
                )
    assert len(described) == len(set(described))
    assert {f"feval.{name}" for name in feval.__all__} - set(described) == {
        "feval.__version__",
        "feval.FevalError",
    }


def test_docstrings_become_restructured_text(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "extensions"))
    from docstrings import as_rst

    lines = [
        "Sums |d| of *all* `a*b`s, q_ and:",
        "- one",
        "So",
        "",
        "    x = a * b",
        "",
        "| a | b |",
        "| --- | --- |",
        "| `c` | d |",
    ]
    assert as_rst(lines) == [
        "Sums \\|d\\| of *all* `a*b`\\ s, q\\_ and:", "", "- one", "So", "", "::", "",
        "    x = a * b", "",
        ".. list-table::", "   :header-rows: 1", "", "   * - a", "     - b", "   * - `c`",
        "     - d", "",
    ]  # fmt: skip


@pytest.mark.slow
def test_notebooks_become_pages(monkeypatch):
    pytest.importorskip("myst_parser", reason="the extra `docs` is not installed")
    monkeypatch.syspath_prepend(str(DOCS / "extensions"))
    from notebook_pages import as_markdown

    figure = {"data": {"image/png": "iVBO\nRw==\n", "text/plain": ["<Figure>"]}}
    table = {"data": {"text/html": ["<table>", "</table>"], "text/plain": "a"}}
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "Text"]},
        {
            "cell_type": "code",
            "source": "print(1)",
            "outputs": [{"name": "stdout", "text": ["1\n"]}, figure, table],
        },
        {"cell_type": "code", "source": [], "outputs": []},
    ]
    assert as_markdown({"cells": cells}).replace("``````", "```").split("\n\n") == [
        "# Title\nText",
        "```python\nprint(1)\n```",
        "```text\n1\n```",
        "![Output of the cell above](data:image/png;base64,iVBORw==)",
        '```{raw} html\n<div class="output"><table></table></div>\n```',
    ]


def test_commands_become_pages(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "extensions"))
    from commands import command_page, index_page

    assert "- [feval record](record.md): " in index_page()
    text = command_page("record")
    assert (
        "```{option} --probe-every N\n\nProbe each CoT after N, 2N, ... output tokens.\n```" in text
    )
    assert "[recording](../recording.md)" in text
    for module in ("commands", "made"):
        sys.modules.pop(module, None)
