"""Results on the page: their pictures and receipts, for as long as the repository has them."""

import json

import pytest
from command_line import said
from published import write

from feval.cards.prices import PriceList
from feval.errors import ConflictError, ReleaseError
from feval.hub import RepoState
from feval.publish.markdown import END
from feval.publish.release import (
    _BEGIN,
    _END,
    RepositorySnapshot,
    prepare,
    shown_results,
    with_results,
)

REPO = "somebody/recording"
MINE = PriceList("mine", "2026-01-31", "our contract", {"alpha": (1, 2)})
PAGE = f"# T\n\n{END}\n\n## Load it\n"


@pytest.fixture(autouse=True)
def no_picture(monkeypatch):
    monkeypatch.setattr("feval.publish.release.picture", lambda *_: None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("own") / "r", llms=["alpha"])


@pytest.fixture(scope="module")
def single(folder):
    """What `feval run` writes under a price list of the user's own."""
    prices = {"id": MINE.id, "date": MINE.date, "source": MINE.source, "prices": {"alpha": [1, 2]}}
    (folder.parent / "mine.json").write_text(json.dumps(prices))
    out = folder.parent / "single"
    priced = ("--prices", folder.parent / "mine.json", "--out", out)
    said("run", "single-call", "--recording", folder, *priced)
    (out / "drawn.png").write_bytes(b"\x89PNG")
    return out


def page(release):
    return release.files["README.md"].decode()


def test_results_are_shown_with_their_picture_and_receipt(folder, single):
    release = prepare(folder, RepositorySnapshot(REPO), results=[single])
    block = shown_results(page(release))["single"]
    assert block.startswith(
        "### single\n\n`feval run`: single-call with alpha on toy, 3 questions."
    )
    assert (
        "![Accuracy and cost: single-call with alpha on toy, 3 questions](results/single/drawn.png)"
        in block
    )
    assert "Priced by `mine`." in block
    assert "[receipt](results/single/receipt.json)" in block
    assert f"`feval verify hf://{REPO}/results/single/receipt.json`" in block
    assert "|" not in block
    other = PriceList("mine", "2026-01-31", "our contract", {"alpha": (1, 3)})
    with pytest.raises(ConflictError, match="priced by another version of the list 'mine'"):
        prepare(folder, RepositorySnapshot(REPO), results=[single], prices=other)


@pytest.mark.parametrize("named", ["none", "mine", "2025-06-02", "another"])
def test_own_prices_are_those_of_the_page(tmp_path, named):
    folder = write(tmp_path / "r", prices=named)
    release = prepare(folder, RepositorySnapshot(REPO), prices=MINE)
    section = page(release).split("## Prices\n")[1].split("\n## ")[0]
    assert "Price list `mine` of 2026-01-31" in section
    assert "| `alpha` | 1 | 2 |" in section
    names = (
        "It names one."
        if named == "mine"
        else f"It names {'none' if named == 'none' else f'`{named}`'}; dollars here"
    )
    assert names in section
    assert release.notes == (
        "The price list 'mine' has no beta@t=0.8: the page has no dollars there.",
    )


def test_results_stay_on_the_page_as_long_as_their_files(folder, single):
    first = page(prepare(folder, RepositorySnapshot(REPO), results=[single], prices=MINE))
    there = RepoState(REPO, "0" * 40, True, {"results/single/receipt.json": 1}, {})
    again = page(prepare(folder, RepositorySnapshot(REPO, there, first.replace("\n", "\r\n"))))
    assert shown_results(again) == shown_results(first)
    gone = RepoState(REPO, "0" * 40, True, {}, {})
    assert shown_results(page(prepare(folder, RepositorySnapshot(REPO, gone, first)))) == {}


def test_damaged_numbers_are_a_sentence(folder, single, tmp_path):
    receipt = json.loads((single / "receipt.json").read_bytes())
    (tmp_path / "receipt.json").write_text(json.dumps(receipt | {"numbers": {}}))
    with pytest.raises(ReleaseError, match="cannot be shown"):
        prepare(folder, RepositorySnapshot(REPO), results=[tmp_path / "receipt.json"], prices=MINE)


@pytest.mark.parametrize("blocks", [{}, {"a": "### a"}, {"a": "### a\n\n| 1 |", "b-1": "text"}])
def test_blocks_are_found_again_and_replaced(blocks):
    for earlier in ({}, {"a": "old"}, {"c": "gone"}):
        written = with_results(with_results(PAGE, earlier), blocks)
        assert shown_results(written) == blocks
        assert written.endswith("\n\n## Load it\n")
        assert with_results(written, {}) == PAGE


@pytest.mark.parametrize(
    "page",
    [
        "# By hand\n",
        "# By hand\r\n\r\nWords.\r\n",
        "---\nlicense: mit\n---\n",
        "No end of line",
        f"A mark alone:\n{_BEGIN}\nwords\n",
        f"The other:\n{_END}\n\n{_BEGIN}",
    ],
)
def test_a_page_that_feval_did_not_write_keeps_its_text(page):
    assert with_results(page, {}) == page
    first = with_results(page, {"a": "### a"})
    assert first.startswith(
        page.replace("\r\n", "\n").rstrip("\n") + "\n\n<!-- feval:results-begin"
    )
    assert first.endswith("### a\n\n<!-- feval:results-end -->\n")
    assert with_results(first.rstrip("\n"), {"a": "### a"}) == first, (
        "an editor took the last end of line"
    )
    edited = first + "\nMore words.\n"
    second = with_results(edited, {"b": "### b"})
    assert shown_results(second) == {"b": "### b"}
    assert second.endswith("<!-- feval:results-end -->\n\nMore words.\n")
    assert with_results(first, {}) == page.replace("\r\n", "\n").rstrip("\n") + "\n"
