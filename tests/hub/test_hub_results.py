"""Results beside a recording on the Hub: pushed, fetched with the recording that they rest on, and
computed again.
"""

import json
import shlex
import shutil

import pytest
import yaml
from command_line import failed, feval, said, told
from places import ROOT
from published import write
from recorded_probes import ALPHA, write_probed
from small import import_rows

from feval import evaluate
from feval.errors import ConflictError, ReleaseError
from feval.hub import pull
from feval.methods import SingleCall
from feval.publish.release import result_files, with_results
from feval.recording import open_recording, verify_recording

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("blank_pictures")]

REPO = "somebody/recording"
CURVE = "results/my-curve/"


@pytest.fixture
def toy(tmp_path):
    return write(tmp_path / "toy", prices="none")


@pytest.fixture
def curve(tmp_path, toy):
    """What `feval curve` writes, three folders away from its recording."""
    return computed(tmp_path / "far" / "away" / "my-curve", toy)


def computed(out, recording):
    options = "--dataset toy --llm alpha --n 1,3 --out"
    said("curve self-consistency --recording", recording, options, out)
    return out


def receipt(hub, path=f"{CURVE}receipt.json"):
    return json.loads(hub.files(REPO)[path])


def test_results_travel_with_the_recording_in_one_commit(hub, toy, curve):
    pushed = told("push", toy, REPO, "--results", curve)
    files = hub.files(REPO)
    own = {path for path in files if path.startswith("results/")}
    assert own == {CURVE + path.name for path in curve.iterdir()}
    assert CURVE + "receipt.json" in own
    assert len(hub.asked("^POST .*/commit/")) == 1
    assert pushed["recording_hash"] == open_recording(toy).hash
    assert json.loads(files["manifest.json"])["recording_hash"] == pushed["recording_hash"]
    assert not any(
        path.startswith("results/") for path in json.loads(files["manifest.json"])["files"]
    )
    assert files[CURVE + "curve.csv"] == (curve / "curve.csv").read_bytes()


def test_a_receipt_names_the_recording_beside_it_and_keeps_its_numbers(hub, toy, curve):
    told("push", toy, REPO, "--results", curve)
    before = json.loads((curve / "receipt.json").read_bytes())
    after = receipt(hub)
    assert "toy" in before["recordings"][0]["path"]
    assert after["recordings"] == [before["recordings"][0] | {"path": "../.."}]
    assert after | {"recordings": 0} == before | {"recordings": 0}


def test_a_graded_recording_comes_back_with_verdicts_usd_and_features(hub, tmp_path):
    rows = [
        {"id": f"q{place // 2}", "question": f"t{place // 2}", "llm": "m", "text": f"so: {place}"}
        | {"answer": None, "tokens": 3, "verdict": verdict, "usd": place / 4}
        | {"features": {"level": str(place // 2)}}
        for place, verdict in enumerate([1, 0, 0.5, 0.25])
    ]
    made = import_rows(tmp_path / "graded", rows, answer_kind="text", prices="recorded")
    (tmp_path / "words.md").write_text("---\nlicense: mit\n---\n")
    pushed = told("push", made, REPO, "--words", tmp_path / "words.md")
    pulled = pull(f"hf://{REPO}@{pushed['commit']}", tmp_path / "pulled")
    assert pulled.recording_hash == open_recording(made).hash
    for place in (made, tmp_path / "pulled"):
        result = evaluate(SingleCall(), "d", "m", recording=place)
        assert result.right.tolist() == [0.5, 0.375]
        assert result.usd.tolist() == [0.125, 0.625]
        features = [dict(question.features) for question in open_recording(place).questions("d")]
        assert features == [{"level": "0"}, {"level": "1"}]


def test_results_join_a_recording_that_is_there(hub, toy, curve):
    first = told("push", toy, REPO)
    before = hub.files(REPO)
    pushed = told("push", REPO, "--results", curve)
    after = hub.files(REPO)
    assert pushed["recording_hash"] == first["recording_hash"]
    shown, own = after.pop("README.md").decode(), before.pop("README.md").decode()
    assert {path: data for path, data in after.items() if not path.startswith("results/")} == before
    assert set(pushed["uploaded"]) == {
        "README.md",
        *(CURVE + path.name for path in curve.iterdir()),
    }
    assert f"]({CURVE}curve.png)" in shown
    assert f"]({CURVE}receipt.json)" in shown
    assert with_results(shown, {}) == own
    assert told("push", REPO, "--results", curve)["commit"] == pushed["commit"]


def test_results_beside_a_page_of_somebody_else_are_shown_at_its_end(hub, toy, curve):
    told("push", toy, REPO)
    theirs = b"# Their page\n\nWords.\n"
    hub.add_dataset(REPO, {**hub.files(REPO), "README.md": theirs})
    pushed = feval("push", REPO, "--results", curve)
    assert (
        "no page that feval wrote: the results are shown at the end of its README.md"
        in pushed.stderr
    )
    page = hub.files(REPO)["README.md"]
    assert page.startswith(theirs + b"\n<!-- feval:results-begin")
    assert f"({CURVE}receipt.json)".encode() in page
    hub.add_dataset(
        REPO, {path: data for path, data in hub.files(REPO).items() if path != "README.md"}
    )
    assert (
        "the results are shown nowhere on it; a push of the recording writes a page"
        in feval("push", REPO, "--results", curve, "--dry-run").stderr
    )


def test_files_of_earlier_results_are_taken_away_only_on_request(hub, toy, curve):
    told("push", toy, REPO, "--results", curve)
    (curve / "curve.png").unlink()
    refused = feval("push", REPO, "--results", curve)
    failed(refused, 1, f"{CURVE}curve.png")
    told("push", REPO, "--results", curve, "--remove")
    assert f"{CURVE}curve.png" not in hub.files(REPO)


def test_a_push_of_the_recording_leaves_results_alone(hub, toy, curve, tmp_path):
    told("push", toy, REPO, "--results", curve)
    held = receipt(hub)
    (tmp_path / "words.md").write_text("---\ntitle: Another title\n---\n")
    told("push", toy, REPO, "--words", tmp_path / "words.md")
    assert receipt(hub) == held
    assert f"]({CURVE}curve.png)" in hub.files(REPO)["README.md"].decode()


def test_the_page_and_the_reader_pass_results_over(hub, toy, curve, tmp_path):
    told("push", toy, REPO, "--results", curve)
    files = hub.files(REPO)
    front = yaml.safe_load(files["README.md"].decode().split("---\n")[1])
    named = [str(entry["path"]) for config in front["configs"] for entry in config["data_files"]]
    assert named
    assert not any("results" in path or "*" in path for path in named)
    copy = tmp_path / "copy"
    for path, data in files.items():
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_bytes(data)
    assert verify_recording(copy).problems == ()
    assert told("verify", copy / CURVE / "receipt.json")["ok"]


def test_a_comparison_travels_whole(hub, toy, tmp_path):
    plan, out = tmp_path / "plan.toml", tmp_path / "far" / "compared"
    told("compare", plan, "--init --recording", toy, "--dataset toy --llm alpha")
    told("compare", plan, "--out", out)
    told("push", toy, REPO, "--results", out)
    files = {
        path: data for path, data in hub.files(REPO).items() if path.startswith("results/compared/")
    }
    assert {f"results/compared/{path.name}" for path in out.iterdir()} == set(files)
    for name in ("receipt.json", "comparison.json", "comparison.toml"):
        assert b"../../toy" not in files[f"results/compared/{name}"]
    commit = hub.datasets[REPO].refs["main"]
    assert (
        told("verify", f"hf://{REPO}@{commit}/results/compared/receipt.json")["kind"] == "compare"
    )


@pytest.mark.usefixtures("licence_stated")
def test_a_surface_travels_with_its_page_and_is_computed_again(hub, tmp_path):
    probed, out = (
        write_probed(tmp_path / "probed", {"alpha": ALPHA}, golds=["4", "5", "1", "2"]),
        tmp_path / "my-surface",
    )
    cut = "--dataset toy --llm alpha --n 1 --tokens 5,10,none --drop short-pools --out"
    said("surface --recording", probed, cut, out)
    told("push", probed, REPO, "--results", out)
    files = hub.files(REPO)
    assert {f"results/my-surface/{path.name}" for path in out.iterdir()} <= files.keys()
    assert "results/my-surface/surface.html" in files
    assert files["figures/width-depth-1.png"].startswith(b"\x89PNG")
    assert b"](figures/width-depth-1.png)" in files["README.md"]
    commit = hub.datasets[REPO].refs["main"]
    assert (
        told("verify", f"hf://{REPO}@{commit}/results/my-surface/receipt.json")["kind"] == "surface"
    )


def test_a_receipt_on_the_hub_is_computed_again_from_its_own_commit(hub, toy, curve):
    commit = told("push", toy, REPO, "--results", curve)["commit"]
    shutil.rmtree(toy)
    shutil.rmtree(curve)
    address = f"hf://{REPO}@{commit}/{CURVE}receipt.json"
    hub.forget()
    result = told("verify", address)
    assert (result["ok"], result["path"]) == (True, address)
    assert result["numbers"] > 10
    assert not hub.asked(r"texts/|samples/toy/beta|curve\.csv")


def test_a_receipt_on_the_hub_may_be_computed_again_from_another_copy(hub, toy, curve):
    commit = told("push", toy, REPO, "--results", curve)["commit"]
    address = f"hf://{REPO}@{commit}/{CURVE}receipt.json"
    assert told("verify", address, "--recording", toy)["ok"]
    other = write(toy.parent / "other", text="Others said")
    refused = feval("verify", address, "--recording", other)
    failed(refused, 1, "Give the right one: --recording DIR")


def test_a_receipt_stays_right_when_the_recording_grows(hub, toy, curve):
    first = told("push", toy, REPO, "--results", curve)["commit"]
    told("push", write(toy.parent / "more", llms=["alpha", "beta@t=0.8", "gamma"]), REPO)
    assert told("verify", f"hf://{REPO}@{first}/{CURVE}receipt.json")["ok"]
    now = hub.datasets[REPO].refs["main"]
    grown = feval("verify", f"hf://{REPO}@{now}/{CURVE}receipt.json")
    failed(grown, 1, "The receipt was made from a recording with hash")


def test_results_of_an_earlier_commit_keep_their_address(hub, toy, tmp_path):
    first = told("push", toy, REPO)["commit"]
    out = computed(tmp_path / "my-curve", f"hf://{REPO}@{first}")
    told("push", write(tmp_path / "more", llms=["alpha", "beta@t=0.8", "gamma"]), REPO)
    told("push", REPO, "--results", out)
    assert receipt(hub)["recordings"][0]["path"] == f"hf://{REPO}@{first}"
    now = hub.datasets[REPO].refs["main"]
    assert told("verify", f"hf://{REPO}@{now}/{CURVE}receipt.json")["ok"]


@pytest.mark.parametrize("place", ["/etc", "../../../../../toy", "../../.."])
def test_a_receipt_from_the_hub_opens_no_folder_of_this_machine(hub, toy, curve, place):
    told("push", toy, REPO, "--results", curve)
    changed = receipt(hub)
    changed["recordings"][0]["path"] = place
    hub.add_dataset(REPO, {**hub.files(REPO), f"{CURVE}receipt.json": json.dumps(changed).encode()})
    result = feval("verify", f"hf://{REPO}@{hub.datasets[REPO].refs['main']}/{CURVE}receipt.json")
    failed(result, 2, "outside of the repository")


def test_a_receipt_that_is_not_there_is_a_sentence(hub, toy):
    commit = told("push", toy, REPO)["commit"]
    result = feval("verify", f"hf://{REPO}@{commit}/{CURVE}receipt.json")
    failed(result, 1, "has no receipt.json, or not at that revision")


def test_results_of_another_recording_are_refused(hub, toy, tmp_path):
    other = write(tmp_path / "other", text="Others said")
    out = computed(tmp_path / "other-curve", other)
    refused = feval("push", toy, REPO, "--results", out)
    failed(refused, 1, f"rests on the recording {open_recording(other).hash[:16]}")
    assert REPO not in hub.datasets


def test_what_is_no_result_is_refused(toy, curve, tmp_path):
    own = open_recording(toy).hash
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", tmp_path / "nowhere"):
        with pytest.raises(ReleaseError, match="There are no results in"):
            result_files([place], own)
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "curve.csv").write_text("n\n1\n")
    with pytest.raises(ReleaseError, match=r"has no receipt\.json"):
        result_files([bare], own)
    (curve / "notes.pkl").write_bytes(b"")
    with pytest.raises(ReleaseError, match="is not a file that feval writes as a result"):
        result_files([curve], own)
    (curve / "notes.pkl").unlink()
    (curve / "more.csv").symlink_to("/etc/hostname")
    with pytest.raises(ReleaseError, match="is not a file that feval writes as a result"):
        result_files([curve], own)
    (curve / "more.csv").unlink()
    shutil.copytree(curve, tmp_path / "my-curve")
    with pytest.raises(ConflictError, match="would both be results/my-curve"):
        result_files([curve, tmp_path / "my-curve"], own)
    with pytest.raises(ReleaseError, match="Rename the folder"):
        result_files([curve.rename(tmp_path / "my curve!")], own)


def test_results_are_searched_like_everything_else(hub, toy, curve):
    (curve / "curve.csv").write_text("n,mail\n1,joe@firm.com\n")
    told("push", toy, REPO)
    refused = feval("push", REPO, "--results", curve)
    failed(refused, 1, f"{CURVE}curve.csv, line 2")
    assert "joe" not in refused.output


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("org/alone", 2, "A push takes a recording and a repository"),
        ("somebody/nothing --results .", 1, "no recording to add results to"),
        ("org/alone --results . --words w.md", 2, "Results alone do not change the page"),
    ],
)
def test_a_push_that_cannot_be_is_a_sentence(hub, arguments, code, words):
    failed(feval("push", arguments), code, words)


def commands(heading):
    page = (ROOT / "docs" / "publishing.md").read_text("utf-8")
    block = page.split(f"## {heading}\n")[1].split("```sh\n")[1].split("```")[0]
    return [shlex.split(line, comments=True)[1:] for line in block.splitlines()]


def test_the_examples_of_results_run(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "my-recording", llms=["alpha"])
    for command in commands("Results beside a recording"):
        commit = (
            hub.datasets["org/my-recording"].refs["main"]
            if "org/my-recording" in hub.datasets
            else ""
        )
        said(*(word.replace("<commit>", commit) for word in command))


def test_the_example_of_a_top_up_runs(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = "--dataset tiny_sums --llm feval/tiny-30k --first 4 --samples 2"
    said("record", own, "--out my-recording")
    said("push my-recording org/my-recording")
    for command in commands("Topping up"):
        said(*command)
    grown, offered = (
        open_recording(tmp_path / "grown"),
        json.loads(hub.files("org/my-recording", "refs/pr/1")["manifest.json"]),
    )
    assert [len(pool.answers) for pool in grown.pools("tiny_sums", "feval/tiny-30k")] == [6] * 4
    assert offered["recording_hash"] == grown.hash
