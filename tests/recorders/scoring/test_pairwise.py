"""Pairwise verdicts of a judge on loopback: how they are asked for, read and kept, and what
rankings they give.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from command_line import feval
from loopback import Server
from places import read_data
from scoring_doubles import chat, command
from settings_files import settings_file
from small import pool, question, write_rows

from feval.errors import (
    ConflictError,
    NotRecordedError,
    OutOfRangeError,
    StorageError,
    UnknownNameError,
    UsageError,
)
from feval.estimators.winrates import preference_cycle
from feval.forecast.coupled import couple
from feval.recording import LLMInfo, ScorerInfo, ScoreRows, open_recording, verify_recording
from feval.recording.arrays import verdicts_name
from feval.recording.derived.rewriting import add_scorers
from feval.replay import load
from feval.report import pictures
from feval.report.tables.forecasts import coupling_tables
from recorders.asking.pace import Limits
from recorders.journal import journal_folder
from recorders.scoring import scorers
from recorders.scoring.pairwise import PairwiseComparison
from recorders.scoring.scorers import make_scorer
from recorders.scoring.scores import Item, ScoreJournal
from recorders.scoring.scoring import run_scoring

SHARED = {"scheme": "gumbel-v1", "seed": 7}
FAST = Limits(concurrency=4, retries=2, backoff_s=0.001, longest_backoff_s=0.002, timeout_s=20)
JUDGE = "pairwise:some/model"
# Quality of each call: [questions][calls].
QUALITIES = {"a/one": [[3, 1], [2, 2]], "a/two": [[2, 2], [2, 0]], "a/three": [[1, 3], [3, 1]]}

Reply = Callable[[int, int, str], str]


def texts(name, rows):
    for index, own in enumerate(rows):
        plain = pool(index, ["1"] * len(own))
        yield replace(
            plain, texts=[f"{name}, call {call}: quality {level}" for call, level in enumerate(own)]
        )


def written(out, qualities, noise=SHARED, gold="1"):
    """A recording in which every CoT states its quality; LLMs named @apart have noise of their
    own.
    """
    llms = []
    for name, rows in qualities.items():
        decoding = {} if noise is None or name.endswith("@apart") else {"noise": noise}
        llms.append((LLMInfo(name, temperature=1.0, decoding=decoding), texts(name, rows)))
    return write_rows(out, [gold] * len(next(iter(qualities.values()))), *llms, prices="none")


@pytest.fixture
def three(tmp_path):
    return written(tmp_path / "three", QUALITIES)


def fair(a, b, _):
    return "A" if a > b else "B" if b > a else "tie"


def serving(reply):
    """A judge: `reply(quality of A, quality of B, question)` ends its verdict, or refuses."""

    def answer(_, body):
        shown = body["messages"][-1]["content"]
        a, b = map(int, re.findall(r"quality (\d+)", shown))
        asked = re.search(r"What is (question \d+)", shown)
        try:
            return 200, chat(f"I compared them.\nVerdict: {reply(a, b, asked[1])}")
        except ValueError as error:
            return 400, {"error": {"message": str(error)}}

    return Server(answer)


@pytest.fixture(autouse=True)
def _client():
    pytest.importorskip("openai", reason="the official client (extra `record`) is not installed")


def judged(recording, out, server=None, *, says=fair, limits=FAST, **options):
    if server is None:
        with serving(says) as server:
            return judged(recording, out, server, limits=limits, **options)
    made = make_scorer("judge:some/model", base_url=f"{server.url}/v1", pairwise=True)
    work = PairwiseComparison.from_recording(recording, made, **options)
    return run_scoring(work, out, limits=limits)


def doubts(coupling):
    """What is said beside that two questions are few."""
    return tuple(
        sentence
        for sentence in coupling.warnings
        if not sentence.startswith("Intervals over fewer")
    )


def coupled(folder, judge="some/model", apart=False):
    dataset, llms = load("toy", None, folder, prices="none")
    own = [llm for llm in llms if not llm.name.endswith("@apart")]
    others = [llm for llm in llms if llm.name.endswith("@apart")] if apart else []
    return couple(dataset, own, others, judge=judge, resamples=400)


RATES = [0.5, 0.25, 0.625, 0.375, 0.375, 0.375]
"""Of the three LLMs in the same calls, and in others."""


def told(coupling, name="winrate"):
    return [getattr(entry, name) for entry in coupling.ranking]


def assert_alike(coupling):
    """No LLM is better than another."""
    assert told(coupling, "strength") == pytest.approx([0.0] * 6)
    assert told(coupling, "rank") == [1] * 6


@pytest.mark.parametrize(("text", "expected"), read_data("replies.json")["verdicts"])
def test_a_verdict_is_the_last_line_and_the_only_one(text, expected):
    assert scorers._preference(text, {}) == expected


def test_none_is_an_abstention_and_no_tie():
    found = scorers._preference("I cannot say.\nVerdict: none", {})
    assert found is not None
    assert math.isnan(found)


def test_the_judge_sees_question_and_both_texts_and_no_names(three, tmp_path):
    [message, shown] = scorers._comparing(
        Item(question(3, "SECRETGOLD"), "the first", None, other="the second")
    )
    assert message["role"] == "system"
    assert re.search("(?s)question 3.*the first.*the second", shown["content"])
    assert "SECRETGOLD" not in str(shown)
    with serving(fair) as server:
        judged(three, tmp_path / "out", server)
        bodies = [body for _, _, body in server.seen]
    assert {(body["model"], body["temperature"]) for body in bodies} == {("some/model", 0.0)}


def test_every_comparison_is_asked_in_both_orders_and_kept(three, tmp_path):
    with serving(fair) as server:
        done = judged(three, tmp_path / "out", server)
        assert len(server.seen) == len({json.dumps(body) for _, _, body in server.seen}) == 48
    counts = (
        done.counts["comparisons"],
        done.counts["verdicts"],
        done.new,
        done.counts["contradicted"],
    )
    assert (*counts, done.notes) == (24, 24, 48, 0, ())
    recording = open_recording(tmp_path / "out")
    assert recording.scorers("toy", "a/three") == []
    assert sorted(recording.scorers("toy", "a/one")) == sorted(
        verdicts_name(JUDGE, against, shift) for against in ("a/two", "a/three") for shift in (0, 1)
    )
    same = recording.scores("toy", "a/one", f"{JUDGE}:vs=a/two")
    assert same.values.tolist() == [[1.0, 0.0], [0.5, 1.0]]
    assert same.prompt_tokens.tolist() == [[22, 22], [22, 22]]  # of both orders
    assert same.scorer.kind == "pairwise"
    asked = {"prompt": "pairwise-1", "against": "a/two", "shift": 0, "orders": "both"}
    assert asked.items() <= same.scorer.parameters.items()
    other = recording.scores("toy", "a/one", f"{JUDGE}:vs=a/three:shift=1")
    assert other.values.tolist() == [[0.5, 0.5], [1.0, 0.0]]
    assert verify_recording(tmp_path / "out").ok
    assert not journal_folder(tmp_path / "out").exists()


def test_killed_at_its_very_end_the_same_command_finds_the_verdicts(three, tmp_path, monkeypatch):
    def killed(_):
        raise KeyboardInterrupt

    with serving(fair) as server:
        monkeypatch.setattr(ScoreJournal, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            judged(three, tmp_path / "out", server)
        monkeypatch.undo()
        asked = len(server.seen)
        result = judged(three, tmp_path / "out", server)
        assert len(server.seen) == asked
    assert result.new == 0
    assert result.counts["verdicts"] == result.counts["comparisons"] > 0
    assert not journal_folder(tmp_path / "out").exists()


def test_win_rates_by_hand(three, tmp_path):
    judged(three, tmp_path / "out")
    coupling = coupled(tmp_path / "out")
    assert told(coupling) == pytest.approx(RATES)
    assert told(coupling, "ties") == pytest.approx([1 / 8, 1 / 8, 0, 3 / 8, 1 / 8, 1 / 4])
    assert (coupling.compared_by, coupling.ranked_questions, doubts(coupling)) == (JUDGE, 2, ())
    assert coupled(tmp_path / "out", judge=JUDGE).ranking == coupling.ranking
    # Bradley-Terry strengths satisfy the likelihood equations: expected wins are the wins, ties as
    # halves.
    half = np.array([[0, 5 / 8, 1 / 2], [3 / 8, 0, 1 / 4], [1 / 2, 3 / 4, 0]])
    strength = np.array([entry.strength for entry in coupling.ranking[:3]])
    chance = 1 / (1 + np.exp(strength[None, :] - strength[:, None]))
    np.fill_diagonal(chance, 0.0)
    assert chance.sum(axis=1) == pytest.approx(half.sum(axis=1), abs=1e-7)


def test_a_judge_that_favours_a_place_gives_ties(three, tmp_path):
    done = judged(three, tmp_path / "out", says=lambda *_: "A")
    assert (done.counts["verdicts"], done.counts["ties"], done.counts["contradicted"]) == (
        24,
        24,
        24,
    )
    assert done.notes == (
        f"In 24 of 24 comparisons {JUDGE} preferred the same place in both orders; they are ties.",
    )
    coupling = coupled(tmp_path / "out")
    assert told(coupling, "ties") == [1.0] * 6
    assert_alike(coupling)
    assert doubts(coupling) == tuple(
        f"All {scheme} comparisons are ties, so they do not rank the LLMs."
        for scheme in ("coupled", "independent")
    )
    done = judged(three, tmp_path / "tie", says=lambda a, b, _: "A" if a > b else "tie")
    assert (done.counts["ties"], done.counts["contradicted"]) == (24, 0)  # a win in one order alone


def test_one_order_by_a_keyed_hash(three, tmp_path):
    qualities = {name: rows * 8 for name, rows in QUALITIES.items()}
    many = written(tmp_path / "many", qualities)
    for folder in ("first", "again"):
        judged(many, tmp_path / folder, says=lambda *_: "A", orders="random", calls="same")
    names = [verdicts_name(JUDGE, against) for against in ("a/two", "a/three")]
    tables = [
        [open_recording(tmp_path / folder).scores("toy", "a/one", name).values for name in names]
        for folder in ("first", "again")
    ]
    np.testing.assert_array_equal(tables[0], tables[1])
    shares = Counter(np.concatenate(tables[0]).ravel().tolist())
    assert set(shares) == {0.0, 1.0}
    assert min(shares.values()) > 15  # of 64, each order half of the time
    with serving(fair) as server:
        done = judged(three, tmp_path / "fair", server, orders="random")
        assert len(server.seen) == done.counts["comparisons"] == 24
    assert told(coupled(tmp_path / "fair")) == pytest.approx(RATES)


@pytest.mark.parametrize(
    ("said", "field", "why"),
    [
        ("none", "abstained", f"{JUDGE} said that it cannot judge"),
        ("A, or B?", "unreadable", f"what {JUDGE} said holds none that can be read"),
    ],
)
def test_a_missing_verdict_is_no_tie(three, tmp_path, said, field, why):
    with serving(
        lambda a, b, asked: said if asked == "question 1" and a == 0 else fair(a, b, asked)
    ) as server:
        done = judged(three, tmp_path / "out", server)
        assert len(server.seen) == 48  # what cannot be read is not asked for again
    # The CoT of quality 0 is in one comparison of each pair of a/two and both ways of pairing
    # calls.
    assert (done.counts["verdicts"], done.counts[field]) == (20, 4)
    assert done.notes == (f"4 of 24 comparisons have no verdict: {why}.",)
    assert done.notes[0] in open_recording(tmp_path / "out").manifest.raw["notes"]
    coupling = coupled(tmp_path / "out")
    assert coupling.ranking[0].winrate == pytest.approx(np.mean([[0.5, 0.5], [0.0, 0.5]]))
    assert coupling.ranked_questions == 2
    assert doubts(coupling) == tuple(
        f"2 of 12 {scheme} comparisons have no verdict by {JUDGE} and were left out."
        for scheme in ("coupled", "independent")
    )


def test_questions_without_any_verdict_are_left_out_and_said(three, tmp_path):
    judged(
        three,
        tmp_path / "out",
        says=lambda a, b, asked: "none" if asked == "question 1" else fair(a, b, asked),
    )
    coupling = coupled(tmp_path / "out")
    assert coupling.ranked_questions == 1
    assert told(coupling) == pytest.approx([0.5, 0.5, 0.5, 0.25, 0.5, 0.25])
    assert coupling.warnings[-1].startswith("1 of 2 questions were left out of win-rates and ranks")
    judged(three, tmp_path / "silent", says=lambda *_: "none")
    with pytest.raises(
        NotRecordedError, match="no question on which every two LLMs have a verdict"
    ):
        coupled(tmp_path / "silent")


def test_equal_texts_are_ties_that_nobody_is_asked_about(tmp_path):
    path = tmp_path / "r"
    infos = (LLMInfo(name, temperature=1.0, decoding={"noise": SHARED}) for name in ("a/x", "a/y"))
    write_rows(path, ["1"], *((info, [pool(0, ["1", "2"])]) for info in infos), prices="none")
    with Server(lambda *_: (200, chat("Verdict: tie"))) as server:
        done = judged(path, tmp_path / "out", server)
        # call 0 against call 1 and call 1 against call 0, in both orders
        assert len(server.seen) == 4
    assert (done.counts["comparisons"], done.counts["ties"], done.counts["same_text"]) == (4, 4, 2)


def test_independent_recordings_are_compared_call_by_call(tmp_path):
    qualities = {**QUALITIES, **{f"{name}@apart": rows for name, rows in QUALITIES.items()}}
    path = written(tmp_path / "r", qualities)
    with serving(fair) as server:
        done = judged(path, tmp_path / "out", server, calls="same")
        assert (len(server.seen), done.counts["comparisons"]) == (48, 24)
    coupling = coupled(tmp_path / "out", apart=True)
    assert told(coupling) == pytest.approx(RATES[:3] * 2)
    both = f"--recording {tmp_path}/out --independent {tmp_path}/out --scorer pairwise:some/model"
    account = json.loads(feval(f"couple {both} --json").stdout)
    assert account["independent_from"] == "recordings"
    assert [entry["winrate"] for entry in account["ranking"]] == told(coupling)
    with pytest.raises(NotRecordedError, match="calls with other noise"):
        coupled(tmp_path / "out")


def test_refused_comparisons_have_no_verdict(three, tmp_path):
    def refusing(a, b, question):
        if a == 0:
            raise ValueError("too long")
        return fair(a, b, question)

    done = judged(three, tmp_path / "out", says=refusing)
    assert (done.counts["refused"], done.counts["verdicts"]) == (4, 20)
    assert f"4 of 24 comparisons have no verdict: {JUDGE} refused them." in done.notes


def test_the_command_with_a_limit_a_dry_run_and_an_end(three, tmp_path, prices, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    out = tmp_path / "out"
    with serving(fair) as server:
        judge = f"--scorer judge:some/model --pairwise --base-url {server.url}/v1"
        asked = f"{three} {judge} --out {out}"
        dry = json.loads(command(asked, f"--dry-run --json --set prices={prices}").stdout)
        assert (dry["calls"], dry["output_tokens"]) == (48, 48 * 1024)
        assert "To come: 48 requests in 48 calls" in command(asked, "--dry-run").stdout
        assert server.seen == []
        stopped = command(asked, f"--set prices={prices} --cost-limit 0.0027")
        assert stopped.exit_code == 1
        assert "could pass the cost limit" in stopped.stderr
        assert 0 < len(server.seen) < 48
        done = command(asked, f"--set prices={prices} --cost-limit 1")
        assert done.exit_code == 0, done.stderr
        assert len(server.seen) == 48
    assert "24 of 24 comparisons have a verdict by pairwise:some/model" in done.stdout
    shown = feval(f"couple --recording {out} --scorer pairwise:some/model")
    assert "Average win-rates by pairwise:some/model" in shown.stdout


def test_an_llm_that_comes_later_is_compared_with_the_others(three, tmp_path):
    with serving(fair) as server:
        judged(three, tmp_path / "two", server, llms=["a/one", "a/two"])
        assert len(server.seen) == 16
        done = judged(tmp_path / "two", tmp_path / "out", server)
        assert len(server.seen) == 48
        assert done.notes == ("2 comparisons of LLMs had verdicts already and stay as they are.",)
        with pytest.raises(StorageError, match="already"):
            judged(tmp_path / "out", tmp_path / "more", server)
        partly = tmp_path / "partly"
        judged(three, partly, server, llms=["a/two", "a/three"], orders="random")
        with pytest.raises(StorageError, match="asked for in another way"):
            judged(partly, tmp_path / "most", server)
    assert told(coupled(tmp_path / "out")) == pytest.approx(RATES)


def test_what_cannot_be_compared_is_refused(three, tmp_path):
    made = make_scorer("judge:some/model", asks=False, pairwise=True)

    def refused(recording, error, message, **options):
        with pytest.raises(error, match=message):
            PairwiseComparison.from_recording(recording, made, **options)

    refused(three, UsageError, "no two LLMs to compare", llms=["a/one"])
    refused(three, NotRecordedError, "no CoTs of 'a/four'", llms=["a/four"])
    refused(three, UnknownNameError, "some", calls="some")
    refused(three, UnknownNameError, "none", orders="none")
    uneven = written(tmp_path / "uneven", {"a/x": [[1, 2]], "a/y": [[1]]})
    refused(uneven, ConflictError, "a/x has 2 and a/y 1")
    single = written(tmp_path / "single", {"a/x": [[1]], "a/y": [[2]]})
    refused(single, ConflictError, "no other call to compare with")
    assert PairwiseComparison.from_recording(single, made, calls="same").total == 2
    mixed = written(tmp_path / "mixed", {"a/x": [[1, 2]], "a/y@apart": [[1, 3]]})
    assert (
        PairwiseComparison.from_recording(mixed, made).total == 4
    )  # neither shares noise: call by call
    with pytest.raises(UsageError, match="by a judge"):
        make_scorer("verbal:some/model", asks=False, pairwise=True)
    for line in ('orders = "random"', 'calls = "same"'):
        file = settings_file(tmp_path, line)
        done = command(f"{three} --scorer judge:m --out {tmp_path}/o --dry-run", *file)
        assert "for --pairwise" in " ".join(done.stderr.split())
    with pytest.raises(
        NotRecordedError, match="no verdicts by pairwise:some/model on a/one and a/two"
    ):
        coupled(three)
    dataset, llms = load("toy", None, three, prices="none")
    with pytest.raises(UsageError, match="both were given"):
        couple(dataset, llms, judge="m", scorer="n")


def margins(questions, *wins, llms=3):
    table = np.zeros((questions, llms, llms))
    for winner, loser in wins:
        table[:, winner, loser], table[:, loser, winner] = 1.0, -1.0
    return table


def test_cycles_beyond_doubt_are_found():
    circle = (0, 1), (1, 2), (2, 0)
    assert preference_cycle(margins(12, *circle)) == (0, 1, 2)
    assert preference_cycle(margins(12, *((two, one) for one, two in circle))) == (0, 2, 1)
    assert preference_cycle(margins(3, *circle)) == ()  # three questions prove nothing
    assert preference_cycle(margins(12, (0, 1), (1, 2), (0, 2))) == ()
    assert preference_cycle(margins(12, (0, 1), (1, 2))) == ()
    assert preference_cycle(margins(12)) == ()
    assert preference_cycle(margins(12, (0, 1), (1, 2), (2, 3), (3, 0), llms=4)) == (0, 1, 2, 3)
    assert preference_cycle(margins(12, (0, 1), (1, 2), (2, 3), (3, 1), llms=4)) == (1, 2, 3)
    doubtful = margins(12, *circle)
    doubtful[::2, 2, 0], doubtful[::2, 0, 2] = -1.0, 1.0
    assert preference_cycle(doubtful) == ()
    with pytest.raises(OutOfRangeError, match="pairs of LLMs"):
        preference_cycle(np.zeros((3, 2)))


def with_verdicts(path, out, verdicts, questions):
    """Each pair's verdicts are all the same, for equal and for other calls."""
    found = {}
    for (first, second), score in verdicts.items():
        for shift in (0, 1):
            rows = [ScoreRows(f"toy/{index}", [0, 1], [score] * 2) for index in range(questions)]
            found.setdefault(verdicts_name(JUDGE, second, shift), {})["toy", first] = rows
    infos = [(ScorerInfo(name, "pairwise"), rows) for name, rows in found.items()]
    return add_scorers(path, out, infos, operation={"kind": "pairwise"})


def test_cyclic_preferences_work_and_are_said(tmp_path):
    qualities = {name: [[1, 1]] * 12 for name in ("a/rock", "a/scissors", "a/paper")}
    circle = dict(zip(combinations(qualities, 2), (1.0, 0.0, 1.0), strict=True))
    for gold in ("1", None):
        folder = tmp_path / str(gold)
        path = written(folder / "r", qualities, gold=gold)
        coupling = coupled(with_verdicts(path, folder / "out", circle, 12))
        assert told(coupling) == [0.5] * 6
        assert_alike(coupling)
        cyclic = [sentence for sentence in coupling.warnings if "cyclic" in sentence]
        assert len(cyclic) == 2
        assert "(a/rock over a/scissors over a/paper over a/rock)" in cyclic[0]
        assert len(coupling_tables(coupling)) == (3 if gold else 1)
        assert pictures.coupling(coupling).png()[:4] == b"\x89PNG"
        json.dumps(coupling.to_dict(), allow_nan=False)
        assert bool(coupling.pairs) == bool(gold)
    assert (
        coupling.warnings[0]
        == "No question of toy has a gold answer, so there are no figures of correctness."
    )


def test_verdicts_are_found_whichever_llm_comes_first(tmp_path):
    path = written(tmp_path / "r", {"a/x": [[1, 1]] * 3, "a/y": [[1, 1]] * 3})
    with_verdicts(path, tmp_path / "out", {("a/y", "a/x"): 1.0}, 3)
    coupling = coupled(tmp_path / "out")
    assert (told(coupling, "llm")[:2], told(coupling)[:2]) == (["a/x", "a/y"], [0.0, 1.0])
