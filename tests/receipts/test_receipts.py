"""Receipts: written by run and curve, verified, and what happens when something is not as it
was.
"""

import json
import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import failed, feval, said, told
from places import forge, read_data, read_json
from small import content, full_disk, letters, pool, write_rows, write_toy

from feval.cards.prices import PriceList, _snapshot
from feval.errors import ConflictError, MethodError, UnknownNameError, UsageError
from feval.publish.front_matter import Licence
from feval.publish.release import RepositorySnapshot, prepare
from feval.receipts.document import SCHEME
from feval.receipts.verifying import ChangedValue, verify_receipt
from feval.recording import LLMInfo, open_recording
from feval.report.page.questions import view_page

POOLS = letters("aaba", "xy-y", "bbbb", "cdc-")
GOLDS = ["a", "y", "b", "d"]
MINE = "def first(question, llm):\n    return llm.sample(1).answers[0]\n"
RUNS = {
    "exact": "run self-consistency --set n=3",
    "seeded": "run self-consistency --set n=2 --order seeded --replicates 7 --seed 5",
    "recorded": "run self-consistency --set n=2 --order recorded --billing per_sample",
    "split": "run self-consistency --set n=2 --train-fraction 0.5",
    "unpriced": "run self-consistency --set n=2 --prices none",
    "oracle": "run oracle --set n=2",
    "estimate": "estimate --g 3 --m 1..4 --method plug-in,monte-carlo,two-call,unbiased",
    "curve": "curve self-consistency --n 1..4",
    "curve-method": "curve self-consistency --n 1..4 --set no_answer=vote",
    "curve-seeded": "curve self-consistency --n 1,3 --order seeded --replicates 9",
}


@pytest.mark.parametrize(
    "command",
    [
        "run self-consistency --set n=2 --order seeded",
        "curve self-consistency --n 1,2 --order seeded",
        "curve self-consistency --n 1,2 --order seeded --set no_answer=vote",
        "compare plan.toml --order seeded",
    ],
    ids=["run", "curve", "curve-method", "compare"],
)
def test_a_receipt_keeps_the_number_of_replicates_that_was_used(command, tmp_path, monkeypatch):
    """Nobody says how many, and a version that takes another number by default computes the
    same.
    """
    monkeypatch.chdir(tmp_path)
    write_toy(Path("toy"), {"gpt-4o-mini": POOLS}, GOLDS)
    method = '[[method]]\nname = "self-consistency"\nllms = ["gpt-4o-mini"]\nbudgets = {n = [2]}\n'
    Path("plan.toml").write_text(f'dataset = "toy"\nrecordings = ["toy"]\nresamples = 20\n{method}')
    monkeypatch.setattr("feval.evaluation.replicates._DRAWS", 60)
    place = "" if command.startswith("compare") else "--recording toy"
    said(command, place, "--json --out result")
    content = read_json(Path("result/receipt.json"))
    pinned, numbers = content["request"].get("plan", content["request"]), content["numbers"]
    assert (pinned["replicates"], numbers.get("replicates", 15)) == (15, 15)
    monkeypatch.setattr("feval.evaluation.replicates._DRAWS", 2_000_000)
    assert verify_receipt(Path("result/receipt.json")).equal


@pytest.fixture
def state(tmp_path, monkeypatch):
    """Where receipts go that nobody named a place for, FEVAL_RECEIPTS being unset."""
    monkeypatch.delenv("FEVAL_RECEIPTS")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "feval" / "receipts"


@pytest.fixture
def toy(tmp_path):
    return write_toy(tmp_path / "toy", {"gpt-3.5-turbo": POOLS}, GOLDS)


WRITTEN = {}
"""Command -> the files it wrote beside `toy`, which are the same beside every copy of it."""


def write_receipt(toy, name="seeded"):
    out = toy.parent / name
    said(RUNS[name], "--recording", toy, "--out", out)
    return out / "receipt.json"


def receipt(toy, name="seeded"):
    """The receipt of a command, with the files beside it; the command runs once for all tests."""
    out = toy.parent / name
    if name not in WRITTEN:
        write_receipt(toy, name)
        WRITTEN[name] = content(out)
    out.mkdir(exist_ok=True)
    for path, data in WRITTEN[name].items():
        (out / path).write_bytes(data)
    return out / "receipt.json"


def changed(path, **parts):
    path.write_text(json.dumps(read_json(path) | parts))
    return path


@pytest.mark.parametrize("name", RUNS)
def test_what_was_written_is_computed_again(name, toy):
    done = feval("verify", receipt(toy, name))
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    what = "an estimate" if name == "estimate" else f"a {RUNS[name].split()[0]}"
    numbers = re.search(rf"(\d+) values of {what} computed again, all equal", done.stdout)
    assert int(numbers[1]) > 10


@pytest.mark.parametrize("name", ["exact", "estimate", "curve-seeded", "compare"])
def test_a_receipt_nobody_named_a_place_for_goes_to_the_state_folder(name, toy, state, monkeypatch):
    (toy.parent / "here").mkdir()
    monkeypatch.chdir(toy.parent / "here")
    command = [RUNS.get(name, ""), "--recording", toy]
    if name == "compare":
        said("compare ../plan.toml --init --recording", toy)
        command = ["compare ../plan.toml"]
    done = said(*command)
    [kept] = state.glob("*/receipt.json")
    assert done.splitlines()[-1] == f"wrote {kept}"
    assert kept.parent.name.startswith(command[0].split()[0])
    said("verify", kept)
    assert verify_receipt(kept).equal
    before = kept.read_bytes()
    assert told(*command)["receipt"] == str(kept)
    assert ([kept], before) == (list(state.glob("*/receipt.json")), kept.read_bytes())
    assert list(Path().iterdir()) == []


def test_the_newest_receipt_is_verified_by_its_age(toy, state):
    failed(feval("verify --last"), 2, "No receipt was named")
    for seed in (1, 2, 1):  # the third adds nothing, and the first is the newest again
        printed = told(RUNS["seeded"], "--seed", seed, "--recording", toy)
        for old in state.glob("*/receipt.json"):
            if str(old) != printed["receipt"]:
                os.utime(old, ns=(0, old.stat().st_mtime_ns - 10**9))
        assert told("verify --last")["path"] == printed["receipt"]
        assert read_json(Path(printed["receipt"]))["request"]["seed"] == seed
    assert len(list(state.glob("*/receipt.json"))) == 2
    assert feval("verify --last", toy).exit_code == 2
    assert feval("verify").exit_code == 2


def test_json_says_where_the_receipt_is(toy, state):
    def place(*options):
        return told(RUNS["exact"], "--recording", toy, *options)["receipt"]

    out = toy.parent / "out"
    assert place("--out", out) == str(out / "receipt.json")
    assert "receipt" not in read_json(out / "result.json")
    state.parent.mkdir(parents=True)
    state.write_bytes(b"in the way")
    assert place() is None


@pytest.mark.parametrize("name", ["exact", "compare"])
def test_links_on_the_way_to_a_receipt_or_a_recording(name, toy, monkeypatch):
    base = toy.parent
    (base / "far" / "away").mkdir(parents=True)
    for link, there in {
        "kept": "far",
        "plans": "far/away",
        "recordings": ".",
        "latest": "toy",
    }.items():
        (base / link).symlink_to(base / there)
    monkeypatch.setenv("FEVAL_RECEIPTS", "kept/receipts")
    monkeypatch.chdir(base)
    for number, place in enumerate(
        ("toy", base / "recordings" / "toy", "latest", "plans/../../toy"), 1
    ):
        if name == "compare":
            said("compare plans/plan.toml --init --recording", place, "--force")
            shown = said("compare plans/plan.toml")
        else:
            shown = said(RUNS[name], "--recording", place)
        kept = Path(shown.splitlines()[-1].removeprefix("wrote "))
        for path in (kept, base / kept, (base / kept).resolve()):
            assert verify_receipt(path).equal, (number, path)
        named = read_json(kept)["recordings"][0]["path"]
        assert named == f"../../../{'latest' if place == 'latest' else 'toy'}"


def test_the_name_of_a_kept_receipt_is_one_that_file_systems_take(tmp_path, state, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "mine.py"
    name = "\u0444" * 120
    mine.write_text(MINE.replace("first", name))
    write_toy(tmp_path / "toy", {"gpt-3.5-turbo": POOLS}, GOLDS)
    said("run", f"mine.py:{name}", "--recording toy --replicates 2")
    [kept] = state.iterdir()
    assert kept.name.startswith("run-\u0444\u0444")
    assert len(kept.name.encode()) < 128
    assert verify_receipt(kept / "receipt.json", methods=[f"mine.py:{name}"]).equal


@pytest.mark.parametrize("place", ["", "  ", "~/kept", "~nobody-of-this-name/kept"])
def test_where_receipts_are_kept(place, toy, monkeypatch):
    monkeypatch.setenv("FEVAL_RECEIPTS", place)
    monkeypatch.setenv("HOME", str(toy.parent / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(toy.parent / "state"))
    monkeypatch.setenv("USERPROFILE", str(toy.parent / "home"))
    monkeypatch.chdir(toy.parent)
    said(RUNS["exact"], "--recording toy")
    where = {"": "state/feval/receipts", "~/kept": "home/kept"}.get(place.strip(), place)
    assert [path.parent.parent for path in toy.parent.rglob("receipt.json")] == [toy.parent / where]


@pytest.mark.parametrize("json_too", [[], ["--json"]])
def test_numbers_are_not_lost_with_a_disk_that_is_full(json_too, toy, monkeypatch):
    monkeypatch.chdir(toy.parent)
    monkeypatch.setattr("feval.report.files.os.fsync", full_disk)
    done = feval(RUNS["exact"], "--recording toy --out out", *json_too)
    assert done.exit_code == 1
    assert "No space left on device" in done.stderr
    assert "wrote" not in done.stdout
    result = feval(RUNS["exact"], "--recording toy", *json_too)
    assert (result.exit_code, result.stdout) == (0, done.stdout)
    assert not [path for path in toy.parent.rglob("*") if "receipt.json" in path.name]


def test_a_receipt_that_cannot_be_kept_is_a_remark(toy, state, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("feval.report.files.os.fsync", full_disk)
        done = feval(RUNS["exact"], "--recording", toy)
        assert (done.exit_code, "wrote" in done.stdout) == (0, False)
        assert done.stderr.startswith("note: No receipt was kept: ")
        assert "No space left on device" in done.stderr
    with monkeypatch.context() as patch:
        patch.setenv("FEVAL_RECEIPTS", "none")
        without = feval(RUNS["exact"], "--recording", toy)
    assert (without.stdout, without.stderr) == (done.stdout, "")
    shutil.rmtree(state.parent)
    state.parent.write_bytes(b"in the way")
    done = feval(RUNS["exact"], "--recording", toy)
    assert (done.exit_code, done.stdout) == (0, without.stdout)
    assert f"No receipt was kept: {state.parent} is a file" in done.stderr
    monkeypatch.setenv("FEVAL_RECEIPTS", str(toy / "receipts"))
    before = sorted(toy.rglob("*"))
    done = feval(RUNS["exact"], "--recording", toy)
    assert (done.exit_code, sorted(toy.rglob("*"))) == (0, before)
    assert "lies inside the recording" in done.stderr


def test_a_kept_receipt_that_was_changed_is_replaced_only_when_asked(toy, state):
    said(RUNS["exact"], "--recording", toy)
    [path] = state.glob("*/receipt.json")
    path.write_text("mine")
    refused = feval(RUNS["exact"], "--recording", toy)
    assert (refused.exit_code, path.read_text()) == (0, "mine")
    assert "note: No receipt was kept" in refused.stderr
    assert "--force" in refused.stderr
    said(RUNS["exact"], "--recording", toy, "--force")
    assert verify_receipt(path).equal


def test_a_named_place_that_takes_no_receipt_is_said_before_the_work(toy, state, monkeypatch):
    monkeypatch.chdir(toy)  # a recording never changes
    before = sorted(toy.rglob("*"))
    failed(
        feval(RUNS["exact"], "--recording . --out out"),
        1,
        f"inside the recording {toy}, which never changes",
    )
    said(RUNS["exact"], "--recording .")
    assert sorted(toy.rglob("*")) == before


def test_another_model_that_answered_is_in_the_receipt_and_on_the_page(tmp_path):
    row = replace(pool(0, ["a", "b", "a"]), extra={"served_model": ["gpt-4o-mini", "gpt-4o", None]})
    toy = write_rows(tmp_path / "toy", ["a"], (LLMInfo("gpt-4o"), [row]))
    pinned_by = read_json(write_receipt(toy, "exact"))
    assert pinned_by["served"] == {"gpt-4o": {"gpt-4o-mini": 1, "gpt-4o": 1}}
    [sentence] = [
        each for each in pinned_by["numbers"]["warnings"] if "more than one model answered" in each
    ]
    assert sentence in told("info", toy)["served"]
    with_card = prepare(
        toy, RepositorySnapshot("a/b", None, None), tag="v1", licence=Licence("cc0-1.0")
    ).files["README.md"]
    assert isinstance(with_card, bytes)
    assert "more than one model answered, as the replies say: gpt-4o (1 CoT)" in with_card.decode()
    assert sentence in view_page(open_recording(toy), {"toy": ["gpt-4o"]}).html


def test_a_receipt_pins_what_it_rests_on_and_no_absolute_path(toy):
    pinned_by = read_json(receipt(toy))
    pinned = {"feval", "draws", "recordings", "prices", "counters"}
    assert set(pinned_by) == {"feval_receipt", "kind", *pinned, "request", "numbers", "files"}
    assert pinned_by["counters"] == {"gpt-3.5-turbo": "words"}
    assert pinned_by["draws"] == "draws-v1"
    assert pinned_by["recordings"] == [
        {"hash": read_json(toy / "manifest.json")["recording_hash"], "path": "../toy"}
    ]
    assert pinned_by["prices"]["id"] == "2025-06-02"
    assert len(pinned_by["prices"]["digest"]) == 64
    assert str(toy.parent) not in json.dumps(pinned_by)


def test_a_number_that_differs_is_named_with_the_difference(toy):
    path = receipt(toy)
    numbers = read_json(path)["numbers"]
    changed(path, numbers=numbers | {"accuracy": numbers["accuracy"] + 1e-9, "questions": 5})
    found = verify_receipt(path)
    assert [d.where for d in found.differences] == ["questions", "accuracy"]
    done = feval("verify", path)
    assert done.exit_code == 1
    assert "accuracy: the receipt says" in done.stderr
    assert "-1e-09" in done.stderr
    assert "questions: the receipt says 5, now 4, -1" in done.stderr
    result = json.loads(feval("verify", path, "--json").stdout)
    assert (result["ok"], result["differences"][0]["now"]) == (False, 4)


@pytest.mark.parametrize("name", ["exact", "curve"])
def test_who_counted_the_tokens_is_compared(name, toy):
    path = receipt(toy, name)
    counters = read_json(path)["counters"]
    assert set(counters.values()) == {"words"}
    changed(path, counters=dict.fromkeys(counters, "usage"))
    assert [str(d) for d in verify_receipt(path).differences] == [
        f"counters.{llm}: the receipt says 'usage', now 'words'" for llm in counters
    ]
    changed(path, counters={"gpt-4": "words"})
    assert [d.now for d in verify_receipt(path).differences] == [None]
    changed(path, counters=["words"])
    with pytest.raises(UsageError, match=r"damaged receipt.*'counters'"):
        verify_receipt(path)


@pytest.mark.parametrize(
    ("name", "change", "is_same"),
    [
        ("accuracy", lambda value: value * (1 + 1e-13), True),
        ("accuracy", lambda value: value * (1 + 1e-11), False),
        ("questions", float, True),
        ("questions", bool, False),
    ],
)
def test_which_numbers_are_the_same(name, change, is_same, toy):
    path = receipt(toy)
    forge(path, f"numbers.{name}", change(read_json(path)["numbers"][name]))
    assert verify_receipt(path).equal == is_same


def test_a_receipt_travels_with_its_recording_or_without_it(toy, tmp_path):
    path = receipt(toy)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    shutil.copytree(toy, moved / "toy")
    shutil.copytree(path.parent, moved / "seeded")
    assert verify_receipt(moved / "seeded" / "receipt.json").equal
    alone = shutil.copy(path, tmp_path / "alone.json")
    assert verify_receipt(Path(alone), [toy]).equal
    said("verify", alone, "--recording", toy)


def test_another_recording_is_refused(toy, tmp_path):
    path = receipt(toy)
    other = write_toy(tmp_path / "other", {"gpt-3.5-turbo": POOLS[::-1]}, GOLDS)
    with pytest.raises(ConflictError, match="Give the right one: recordings="):
        verify_receipt(path, [other])


def test_another_price_list_is_refused(toy):
    path = receipt(toy)
    changed(path, prices={"id": "2025-06-02", "digest": "0" * 64})
    with pytest.raises(ConflictError, match="Give the right one: prices="):
        verify_receipt(path)


def test_a_receipt_holds_the_numbers_of_prices_that_are_no_card(toy, tmp_path, monkeypatch):
    (mine := tmp_path / "mine.json").write_text(
        json.dumps({"id": "mine", "date": "2026-01-31", "source": "an invoice",
                    "prices": {"gpt-3.5-turbo": [3, 4]}})
    )  # fmt: skip
    other = PriceList("other", "2026-01-31", "a guess", {"gpt-3.5-turbo": (1, 9)})
    for prices in (mine, "genai-prices@2026-11-01 --tier batch"):
        command = ["run self-consistency --set n=2 --recording", toy, "--force --prices", prices]
        said(*command, "--out", toy.parent / "priced")
        path = toy.parent / "priced" / "receipt.json"
        held = read_json(path)["prices"]
        assert set(held) == {"id", "digest", "date", "source", "prices"}
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, "genai_prices.data", None)
            _snapshot.cache_clear()
            mine.unlink(missing_ok=True)
            check = verify_receipt(path)
            assert check.equal
            assert ["pip install" in note for note in check.notes] == [True] * (prices != mine)
            patched.setattr("feval.receipts.verifying.price_list", lambda *_: other)
            check = verify_receipt(path, prices="other")
            assert check.equal
            assert any(" and holds; now it is 1 in, 9 out." in note for note in check.notes)
    changed(path, prices=held | {"prices": {"gpt-3.5-turbo": [0, 0]}})
    assert not verify_receipt(path).equal


def test_a_users_method_runs_only_when_it_is_given_again(toy, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(MINE)
    out = tmp_path / "mine"
    said("run", f"{mine}:first", "--recording", toy, "--out", out)
    path = out / "receipt.json"
    with pytest.raises(
        MethodError, match=r"never runs code by itself: pass methods=\['FILE\.py:first'\]\."
    ):
        verify_receipt(path)
    assert verify_receipt(path, methods=[f"{mine}:first"]).equal
    mine.write_text(MINE + "\nraise SystemExit('must not run')\n")
    with pytest.raises(MethodError, match=r"mine\.py:first has"):
        verify_receipt(path, methods=[f"{mine}:first"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "not a receipt"),
        (
            '{"feval_receipt": 1, "draws": "draws-v1"}',
            r"scheme 1 with 'draws-v1'.*: compute its numbers again\.$",
        ),
        (
            f'{{"feval_receipt": {SCHEME}, "draws": "draws-v2"}}',
            r"'draws-v2', and .* with 'draws-v1': compute",
        ),
        (f'{{"feval_receipt": {SCHEME}}}', "damaged receipt.*lacks the field 'kind'"),
    ],
)
def test_what_is_no_receipt(text, words, tmp_path):
    path = tmp_path / "receipt.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        verify_receipt(path)
    assert feval("verify", path).exit_code == 2


def test_a_kind_nobody_knows(toy):
    with pytest.raises(UnknownNameError, match="walk"):
        verify_receipt(changed(receipt(toy), kind="walk"))


def test_another_version_is_a_note(toy):
    found = verify_receipt(changed(receipt(toy), feval="0.0.1"))
    assert found.equal
    assert found.notes[0].startswith("The receipt was written by feval 0.0.1")


def test_options_of_receipts_are_not_for_recordings(toy):
    failed(feval("verify", toy, "--recording", toy), 2, "belong to receipts")


def test_differences_of_words():
    assert str(ChangedValue("kind", "exact", None)) == "kind: the receipt says 'exact', now None"


@pytest.mark.parametrize(
    ("name", "part", "value"), read_data("receipts.json")["malformed requests"]
)
def test_a_malformed_request_is_named(name, part, value, toy):
    path = receipt(toy, name)
    forge(path, f"request.{part}", value)
    with pytest.raises(UsageError, match=f"damaged receipt.*in the field '{part}"):
        verify_receipt(path)


def test_another_request_gives_other_numbers(toy):
    path = receipt(toy, "curve-method")
    forge(path, "request.confidence", None)
    assert not verify_receipt(path).equal  # an interval was written, and none was asked for


def test_a_receipt_never_chooses_code_or_files(toy, tmp_path):
    (evil := tmp_path / "evil.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w')\ndef method(q, llm): return None\n"
    )
    path = receipt(toy)
    whole = read_json(path)
    changed(path, request=whole["request"] | {"method": f"{evil}:method", "settings": {}})
    with pytest.raises(UsageError, match="without the hash of its source"):
        verify_receipt(path)
    assert not (tmp_path / "ran").exists()
    changed(path, request=whole["request"], prices={"id": str(evil), "digest": "0" * 64})
    with pytest.raises(UsageError, match="not among the cards"):
        verify_receipt(path)


def test_a_receipt_that_is_not_there(tmp_path):
    failed(feval("verify", tmp_path / "receipt.json"), 2, "cannot be read: No such file")


def test_the_wording_of_warnings_is_no_number_of_a_receipt(toy):
    path = receipt(toy, "curve-method")
    assert read_json(path)["numbers"]["warnings"]
    forge(path, "numbers.warnings", ["worded otherwise"])
    assert verify_receipt(path).equal


def test_the_wording_of_a_reason_is_no_number_of_a_receipt_but_that_there_is_one(toy):
    path = receipt(toy, "estimate")
    numbers = read_json(path)["numbers"]
    point = next(
        point for each in numbers["estimates"] for point in each["points"] if point["reason"]
    )
    point["reason"] = "worded otherwise"
    assert verify_receipt(changed(path, numbers=numbers)).equal
    point["reason"] = None
    assert not verify_receipt(changed(path, numbers=numbers)).equal
