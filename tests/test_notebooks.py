"""The notebooks of the documentation run, and what is stored in them is small and of no machine."""

import base64
import re

import pytest
from places import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def outputs(notebook):
    """(type, text) of every output but pictures; what depends on versions of pandas or on times is
    left out.
    """
    found = [
        output
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output.get("name") != "stderr"
    ]
    texts = [
        (one.output_type, one.get("text") or one.get("data", {}).get("text/plain", ""))
        for one in found
    ]
    return [
        (kind, text)
        for kind, text in texts
        if text.startswith(("Recording(", "Evaluation(", "Comparison(", "feval/"))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_says_what_is_stored_in_it(path):
    pytest.importorskip("nbclient", reason="the extra `dev` is not installed")
    import nbformat
    from notebooks import executed

    stored = outputs(nbformat.read(path, as_version=4))
    assert len(stored) >= 3
    assert outputs(executed(path)) == stored


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_stored_in_a_notebook_is_small_and_complete(path):
    text = path.read_text("utf-8")
    pictures = re.findall(r'"image/png": "([^"]+)"', text)
    assert pictures
    assert all(len(base64.b64decode(picture)) < 60_000 for picture in pictures)
    assert '"execution_count": null' not in text
    assert '"output_type": "error"' not in text
