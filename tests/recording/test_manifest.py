"""A manifest that was changed is seen: by its checksum when it is opened, by its counts when it is
verified.
"""

import json
import shutil
from pathlib import Path

import orjson
import pytest
from small import changed_manifest, letters, pool, stated, write_rows, write_scored_toy

from feval import load
from feval.cards.billing import Price
from feval.cards.prices import PriceList
from feval.errors import ConflictError, DamagedRecordingError, FevalError, PriceNotFoundError
from feval.recording import extract, merge, open_recording, select
from feval.recording.layout.manifest import manifest_bytes, read_manifest
from feval.recording.verify import verify_recording

Place = tuple[str | int, ...]


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    out = tmp_path_factory.mktemp("manifest") / "scored"
    pools = {"alpha": letters("4-", "75"), "beta@t=0.8": [["4", "4"], []]}
    return write_scored_toy(out, pools, ["4", None])


@pytest.fixture
def changed(scored, tmp_path):
    """Makes a copy of the recording with another manifest, whose checksum is right."""

    def copied(change):
        folder = Path(shutil.copytree(scored, tmp_path / "changed", dirs_exist_ok=True))
        with changed_manifest(folder) as manifest:
            change(manifest)
        return folder

    return copied


def values(value, place=()):
    """The places of all values, and of empty lists and objects."""
    if isinstance(value, dict | list) and value:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from values(inner, (*place, key))
    else:
        yield place


def at(manifest, place):
    for key in place:
        manifest = manifest[key]
    return manifest


def another(value):
    if isinstance(value, str):
        return f"{value[:-1]}{'0' if value.endswith('1') else '1'}"
    return (
        [*value, "one"]
        if isinstance(value, list)
        else {"one": 1}
        if isinstance(value, dict)
        else (value or 0) + 1
    )


def test_every_changed_value_of_a_manifest_is_seen_when_it_is_opened(scored, tmp_path):
    manifest = stated(scored)
    places = list(values(manifest))
    assert len(places) > 150
    for *inside, name in places:
        record = at(manifest, inside)
        value, record[name] = record[name], another(record[name])
        (tmp_path / "manifest.json").write_bytes(orjson.dumps(manifest))
        with pytest.raises(FevalError, match=r"manifest\.json|format"):
            read_manifest(tmp_path)
        record[name] = value


def test_every_missing_field_of_a_manifest_is_seen(scored, tmp_path):
    manifest = stated(scored)
    for name in manifest.keys() - {"checksum"}:
        (tmp_path / "manifest.json").write_bytes(
            orjson.dumps({k: v for k, v in manifest.items() if k != name})
        )
        with pytest.raises(FevalError, match=r"manifest\.json"):
            read_manifest(tmp_path)


def test_how_a_manifest_is_laid_out_and_ordered_is_no_change(scored, tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps(stated(scored), indent=3, sort_keys=True))
    assert read_manifest(tmp_path).hash == open_recording(scored).hash


def test_a_changed_price_is_an_error_when_numbers_are_loaded(scored, tmp_path):
    folder = Path(shutil.copytree(scored, tmp_path / "changed"))
    manifest = stated(folder) | {"prices": "none"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(
        DamagedRecordingError, match=r"was changed after it was written.*checksum.*Fetch or make"
    ):
        load("toy", recording=folder)


COUNTS = [
    *(("datasets", 0, name) for name in ("questions", "with_gold")),
    *(("pairs", 1, name) for name in ("cots", "smallest_pool", "largest_pool", "no_answer")),
    *(
        ("scores", 0, name)
        for name in ("cots", "with_score", "with_steps", "prompt_tokens", "output_tokens")
    ),
]


@pytest.mark.parametrize("place", COUNTS)
def test_every_count_is_compared_with_the_data(changed, place):
    def one_more(manifest):
        at(manifest, place[:-1])[place[-1]] += 1

    problems = verify_recording(changed(one_more)).problems
    assert any(f"'{place[-1]}': " in problem and "manifest.json" in problem for problem in problems)


@pytest.mark.parametrize("name", ["unclosed_thoughts", "empty_replies"])
def test_counts_of_thoughts_and_empty_replies_are_compared_with_the_data(changed, name):
    [problem] = verify_recording(
        changed(lambda manifest: manifest["pairs"][0].update({name: 1}))
    ).problems
    assert problem.startswith("manifest.json: the counts of alpha on toy should be")


def test_every_writer_writes_a_checksum(scored, tmp_path):
    made = [
        merge([scored, scored], tmp_path / "merged"),
        select(scored, tmp_path / "selected", questions=["toy/0"]),
        extract(scored, tmp_path / "extracted", source="stored").path,
    ]
    for folder in (scored, *made):
        assert "checksum" in stated(folder)
        assert manifest_bytes(stated(folder)) == (folder / "manifest.json").read_bytes()


def test_a_recording_holds_the_numbers_of_prices_that_are_no_card(tmp_path):
    """It can be opened, selected and merged without the list that it was priced by."""
    held = PriceList("mine", "2026-01-31", "an invoice", {"a": (1, 2)})
    first = write_rows(tmp_path / "first", ["x"], ("a", [pool(0, ["x"])]), prices=held)
    other = PriceList("mine", "2026-01-31", "an invoice", {"b": (3, 4)})
    second = write_rows(tmp_path / "second", ["x"], ("b", [pool(0, ["x"])]), prices=other)
    plain = write_rows(tmp_path / "plain", ["x"], ("a", [pool(0, ["x"])]))
    assert open_recording(plain).hash == open_recording(first).hash
    assert "price_list" not in open_recording(plain).manifest.raw
    assert verify_recording(first).ok
    merged = merge([first, second], tmp_path / "merged")
    for places in (merged, [first, second]):
        _, llms = load("toy", ["a", "b"], places)
        assert [llm.price for llm in llms] == [Price(1, 2), Price(3, 4)]
    assert load("toy", "a", first, prices="with a=5,6")[1][0].price == Price(5, 6)
    with pytest.raises(PriceNotFoundError, match="no price of 'a' in a batch"):
        load("toy", "a", first, tier="batch")
    dearer = PriceList("mine", "2026-01-31", "an invoice", {"a": (1, 3)})
    third = write_rows(tmp_path / "third", ["y"], ("a", [pool(0, ["y"])]), prices=dearer)
    with pytest.raises(ConflictError, match="in which a costs"):
        merge([first, third], tmp_path / "never")
