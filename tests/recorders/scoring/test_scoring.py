"""Costs, refused CoTs, and the command."""

import json

import pytest
from loopback import Server
from scoring_doubles import chat, command, judged, needs_client, rewards, run, score
from settings_files import settings_file

from feval.errors import StorageError
from feval.recording import open_recording, verify_recording
from recorders.asking.pace import Limits
from recorders.errors import Fatal
from recorders.journal import journal_folder
from recorders.scoring.scorers import make_scorer
from recorders.scoring.scores import CoTKey, Score, ScoreJournal
from recorders.scoring.scoring import CoTScoring


def test_a_dry_run_asks_nothing_and_needs_no_key(toy, tmp_path, prices):
    before = sorted(tmp_path.iterdir())
    result = command(
        f"{toy} --scorer judge:some/model --out {tmp_path}/o --dry-run --set prices={prices} --json"
    )
    account = json.loads(result.stdout)
    assert (account["cots"], account["calls"], account["output_tokens"], account["at_most"]) == (
        7,
        7,
        7 * 1024,
        True,
    )
    assert account["usd"] == pytest.approx((account["prompt_tokens"] + 2 * 7 * 1024) / 1e6)
    shown = command(f"{toy} --scorer judge:some/model --out {tmp_path}/o --dry-run").stdout
    assert "To come: 7 CoTs in 7 calls of judge:some/model" in shown
    assert "no price known" in shown
    assert "an upper bound: 1024 output tokens for every reply. Nothing was asked." in shown
    assert sorted(tmp_path.iterdir()) == before


def test_a_dry_run_of_what_costs_nothing_or_an_unknown_price(toy, tmp_path, functions):
    own = command(f"{toy} --scorer python:{functions}:length --out {tmp_path}/o --dry-run").stdout
    assert (
        f"7 CoTs in 7 calls of python:{functions}:length, on this machine: no tokens, no dollars."
        in own
    )
    http = command(f"{toy} --scorer http://127.0.0.1:9/x --out {tmp_path}/o --dry-run").stdout
    assert "7 CoTs in 4 calls of http:http://127.0.0.1:9/x; tokens and price are not known." in http


def test_killed_at_its_very_end_the_same_command_finds_the_scores(
    toy, tmp_path, functions, monkeypatch
):
    out, counts = tmp_path / "out", tmp_path / "counts"
    monkeypatch.setenv("COUNTS", str(counts))

    def killed(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(ScoreJournal, "remove", killed)
    with pytest.raises(KeyboardInterrupt):
        run(toy, out, f"python:{functions}:counted")
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    before = counts.read_bytes()
    with pytest.raises(StorageError, match="exists already"):
        run(toy, out, f"python:{functions}:length")
    result = run(toy, out, f"python:{functions}:counted")
    assert (result.new, result.counts["cots"], result.counts["with_score"]) == (0, 7, 7)
    assert result.recording_hash == open_recording(out).hash
    assert counts.read_bytes() == before
    assert not journal_folder(out).exists()
    with pytest.raises(StorageError, match="exists already"):
        run(toy, out, f"python:{functions}:counted")


@needs_client
@pytest.mark.parametrize("usage", [True, False])
def test_a_cost_limit_stops_and_the_same_command_goes_on(toy, tmp_path, monkeypatch, prices, usage):
    out = tmp_path / "out"
    usages = (
        {"usage": {"prompt_tokens": 100, "completion_tokens": 1000, "total_tokens": 1100}}
        if usage
        else {}
    )
    reply = {
        name: value for name, value in chat("Hm. " * 300 + "\nScore: 5").items() if name != "usage"
    } | usages
    with Server(lambda *_: (200, reply)) as server:
        limited = judged(server, f"--set prices={prices} --out {out} --cost-limit")
        for _ in range(2):
            # 1024 output tokens are 0.002 dollars: only two can be afforded
            stopped = command(toy, limited, "0.005")
            assert stopped.exit_code == 1
            assert "The next request could pass the cost limit (0.004" in stopped.stderr
            assert "2 of 7 CoTs are scored" in stopped.stderr
            assert "Raise the limit." in stopped.stderr
            assert not out.exists()
            assert len(server.seen) == 2  # what an earlier run took counts
        done = command(toy, limited, "1")
        assert done.exit_code == 0, done.stderr
        assert len(server.seen) == 7  # nothing is paid twice
    assert verify_recording(out).ok


def test_a_cost_limit_needs_a_price(toy, tmp_path, functions, prices):
    for scorer in (f"python:{functions}:length", "http://127.0.0.1:9/x"):
        done = command(
            f"{toy} --scorer {scorer} --out {tmp_path}/o --cost-limit 1 --set prices={prices}"
        )
        assert done.exit_code != 0
        assert "there is no price for the scorer" in done.stderr
    assert not journal_folder(tmp_path / "o").exists()


def test_a_dry_run_knows_what_replies_in_the_journal_took(toy, tmp_path, prices):
    made = make_scorer("judge:some/model", asks=False)
    work = CoTScoring.from_recording(toy, made)
    with ScoreJournal.open(journal_folder(tmp_path / "o"), work.identity) as journal:
        journal.add([(CoTKey("toy", "alpha", "toy/0", 0), Score(0.5, None, None, 100, 7))])
        journal.commit()
    result = command(
        f"{toy} --scorer judge:some/model --out {tmp_path}/o --dry-run --set prices={prices} --json"
    )
    account = json.loads(result.stdout)
    assert (account["cots"], account["prompt_tokens"], account["output_tokens"]) == (6, 600, 42)
    assert account["usd"] == pytest.approx((600 + 2 * 42) / 1e6)
    assert not account["at_most"]


def refusing(_, body):
    return (
        (400, {"error": "too strange"})
        if "question 1" in body[0]["question"]
        else rewards("", body)
    )


def test_refused_cots_of_a_recording_are_asked_again_and_other_scores_stay(toy, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    answers = [refusing]
    with Server(lambda *given: answers[0](*given)) as server:
        spec = f"--scorer http:{server.url} --set name=rm"
        first = command(f"{toy} {spec} --out {one}")
        assert "3 were refused: the same command on" in first.stdout
        assert "with --retry-refused and another --out" in first.stdout
        answers[0] = rewards
        server.seen.clear()
        to_come = command(f"{one} {spec} --out {two} --retry-refused --dry-run --json")
        assert json.loads(to_come.stdout)["cots"] == 3
        again = command(f"{one} {spec} --out {two} --retry-refused --json")
        assert again.exit_code == 0, again.stderr
        assert all("question 1" in item["question"] for _, _, body in server.seen for item in body)
        account = json.loads(again.stdout)
        assert [account[name] for name in ("cots", "new", "with_score", "refused")] == [7, 3, 7, 0]
        all_at_once = command(f"{toy} {spec} --out {tmp_path}/three")
        assert all_at_once.exit_code == 0
        nothing = command(f"{two} {spec} --out {tmp_path}/four --retry-refused")
        assert (nothing.exit_code, "holds no CoT that 'rm' refused" in nothing.stderr) == (2, True)
        other = command(
            f"{one} --scorer http:{server.url}/b --set name=rm --out {tmp_path}/f --retry-refused"
        )
        assert "given by another scorer or with other parameters" in other.stderr
        held = command(f"{one} {spec} --out {tmp_path}/f")
        assert "take --retry-refused" in held.stderr
    assert verify_recording(two).problems == ()
    assert open_recording(two).hash == open_recording(tmp_path / "three").hash
    assert open_recording(two).manifest.raw["notes"] == []


def test_refused_cots_of_a_journal_are_asked_again_when_asked_to(toy, tmp_path):
    asked = []

    def answer(_, body):
        asked.append(body[0]["question"])
        if len(asked) == 1:
            return rewards("", body)
        return (400, {"error": "strange"}) if len(asked) == 2 else (401, {"error": "no more"})

    answers = [answer]
    with Server(lambda *given: answers[0](*given)) as server:
        options = {"limits": Limits(concurrency=1, retries=0)}
        with pytest.raises(Fatal, match="401"):
            score(toy, tmp_path / "out", make_scorer(f"http:{server.url}", name="rm"), **options)
        answers[0] = rewards
        made = make_scorer(f"http:{server.url}", name="rm")
        done = score(toy, tmp_path / "out", made, retry_refused=True, **options)
    assert (done.counts["cots"], done.new, done.counts["with_score"], done.counts["refused"]) == (
        7,
        4,
        7,
        0,
    )


def test_the_command(toy, tmp_path, functions):
    done = command(f"{toy} --scorer python:{functions}:steps --set name=mine --out {tmp_path}/out")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"{tmp_path / 'out'}: 7 CoTs, 2 LLMs, 1 dataset, hash ")
    assert done.stdout.endswith("5 of 7 CoTs have a score by mine\n")
    assert done.stderr.count("note: 1 of 7 CoTs has no score") == 2
    done = command(
        f"{toy} --scorer python:{functions}:length --out {tmp_path}/b --llm alpha --json"
    )
    account = json.loads(done.stdout)
    assert (account["cots"], account["with_score"]) == (4, 4)
    assert account["recording_hash"] == open_recording(tmp_path / "b").hash


def test_options_may_stand_in_a_file(toy, tmp_path, functions):
    lines = (f'scorer = "python:{functions}:length"', 'llm = ["alpha"]', 'name = "file"')
    file = settings_file(tmp_path, *lines, "timeout = 9")
    given = toy, *file, "--set name=mine --out", tmp_path / "out"
    shown = command(*given, "--dry-run --json")
    assert 'note: From the settings file: scorer = "python:' in shown.stderr
    settings = {"scorer": f"python:{functions}:length", "llm": ["alpha"], "timeout": 9}
    assert json.loads(shown.stdout)["settings"] == settings
    assert command(*given).exit_code == 0
    recording = open_recording(tmp_path / "out")
    names = [recording.scorers("toy", llm) for llm in ("alpha", "org/beta")]
    assert names == [["mine"], []]
