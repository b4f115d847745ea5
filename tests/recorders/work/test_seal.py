"""From questions to a verified recording, through every way in which it can be interrupted on the
way.
"""

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import pytest
from places import SUPPORT, read_data
from recording_doubles import FakeBackend, reply, reply_to

from feval.errors import (
    ConflictError,
    FevalError,
    NotRecordedError,
    OutOfRangeError,
    PriceNotFoundError,
    StorageError,
    TokenCounterError,
    UnknownNameError,
    UsageError,
)
from feval.recording import Question, open_recording, select, verify_recording
from recorders.asking.pace import Limits
from recorders.errors import CostLimitError, Fatal, MissingError, RefusalError
from recorders.journal import Journal, journal_folder
from recorders.request import Completion, Decoding, Message
from recorders.work.record import RecordingTask, estimate_dataset, record_dataset

QUESTIONS = [Question(f"toy/{i}", f"What is question {i}?", str(i % 3)) for i in range(4)]
NOW = "2026-01-01T00:00:00Z"


def messages(question):
    return [Message("system", "Think."), Message("user", question.text)]


WORK = RecordingTask(
    QUESTIONS,
    "toy",
    "gpt-4o-mini@t=0.7",
    messages,
    "toy@1",
    Decoding(seed=7),
    samples=5,
    answer_kind="number",
)
SMALL = WORK.llm_name


def go(out, backend=None, work=WORK, **options):
    return record_dataset(work, backend or FakeBackend(), out, now=lambda: NOW, **options)


def test_a_recording_holds_what_came(tmp_path):
    recording = open_recording(go(tmp_path / "r", FakeBackend(takes_seed=True)))
    assert verify_recording(tmp_path / "r").ok
    assert [q.answer_key for q in recording.questions("toy")] == ["0", "1", "2", "0"]
    pools = list(recording.pools("toy", SMALL))
    assert pools[1].texts == [reply(1, s).text for s in range(5)]
    assert pools[1].answers == ["0", "1", "2", "0", "1"]
    assert pools[1].output_tokens == [10] * 5
    assert pools[1].prompt_tokens == 20
    assert json.loads(pools[1].prompt or "") == [
        {"role": "system", "content": "Think."},
        {"role": "user", "content": "What is question 1?"},
    ]
    assert pools[1].extra == {"seed": [7, 8, 9, 10, 11], "recorded_at": [NOW] * 5}
    assert recording.dataset_info("toy").system_prompt == "Think."
    llm = recording.llm_info(SMALL)
    assert (llm.temperature, llm.max_tokens) == (0.7, 2048)
    assert llm.decoding == {"model": "gpt-4o-mini", "prompt": "toy@1", "seed": 7}
    assert recording.manifest.pairs["toy", SMALL]["counter"] == "usage"
    assert recording.channels("toy", SMALL) == []
    assert not journal_folder(tmp_path / "r").exists()


def test_the_same_command_again_does_nothing(tmp_path):
    out = go(tmp_path / "r")
    backend = FakeBackend()
    assert go(out, backend) == out
    assert backend.calls == []
    assert go(out, backend, replace(WORK, samples=3)) == out
    with pytest.raises(StorageError, match="sealed with 5 CoTs per question, and 6 were asked for"):
        go(out, backend, replace(WORK, samples=6))
    with pytest.raises(StorageError, match="is another recording"):
        go(out, backend, replace(WORK, prompt_version="toy@2"))
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "x").write_text("mine")
    with pytest.raises(StorageError, match="is not a recording"):
        go(tmp_path / "file")


def test_a_fatal_error_then_the_same_command(tmp_path):
    with pytest.raises(Fatal, match="10 of 20 CoTs"):
        go(tmp_path / "r", FakeBackend([None, None, Fatal("no money")]), limits=Limits(1))
    assert not (tmp_path / "r").exists()
    backend = FakeBackend()
    go(tmp_path / "r", backend)
    assert len(backend.calls) == 2
    assert open_recording(tmp_path / "r").hash == open_recording(go(tmp_path / "other")).hash


def test_a_kept_journal_tops_up_another_recording(tmp_path):
    go(tmp_path / "five", journal=tmp_path / "j", keep_journal=True)
    backend = FakeBackend()
    go(tmp_path / "eight", backend, replace(WORK, samples=8), journal=tmp_path / "j")
    assert backend.calls == [(f"toy/{i}", (5, 6, 7)) for i in range(4)]
    assert open_recording(tmp_path / "eight").manifest.pairs["toy", SMALL]["smallest_pool"] == 8
    assert not (tmp_path / "j").exists()


def test_more_questions_than_were_sealed_are_not_taken_for_done(tmp_path):
    out = go(tmp_path / "r", work=replace(WORK, questions=QUESTIONS[:2]))
    backend = FakeBackend()
    with pytest.raises(
        StorageError, match=r"2 questions, and 2 others were asked for, such as 'toy/2'.*start='"
    ):
        go(out, backend)
    reworded = [replace(QUESTIONS[0], text="What is it?"), QUESTIONS[1]]
    with pytest.raises(StorageError, match="its question 'toy/0' has another text"):
        go(out, backend, replace(WORK, questions=reworded))
    with pytest.raises(StorageError, match="the mode 'all' records everything again"):
        go(out, backend, replace(WORK, questions=QUESTIONS[:2]), mode="all")
    with pytest.raises(StorageError, match="inside the recording"):
        go(out / "deeper", backend)
    assert backend.calls == []
    assert go(out, backend, replace(WORK, questions=QUESTIONS[:1])) == out
    assert estimate_dataset(replace(WORK, questions=QUESTIONS[:2]), out).cots == 0


@pytest.mark.parametrize("seed", [None, 7])
def test_a_sealed_recording_without_journal_is_gone_on_from(tmp_path, seed):
    kept = {"reasoning": "Hm.", "response_id": "r", "token_confidences": (0.5, 1.0, 2.0)}
    kept["token_logprobs"] = -0.1, -1e-9, -3.3333333333333335

    def whole(completions):
        return [replace(completion, **kept) for completion in completions]

    work = replace(WORK, decoding=Decoding(seed=seed, logprobs=2))
    some, backend = (FakeBackend(faults, takes_seed=True) for faults in ([whole] * 9, ()))
    sealed = go(tmp_path / "five", some, replace(work, questions=QUESTIONS[1:3]))
    more = replace(work, samples=8)
    assert estimate_dataset(more, tmp_path / "eight", start=sealed).cots == 2 * 3 + 2 * 8
    out = go(tmp_path / "eight", backend, more, start=sealed)
    new = {0: range(8), 1: range(5, 8), 2: range(5, 8), 3: range(8)}
    assert backend.asked == Counter((f"toy/{i}", s) for i, samples in new.items() for s in samples)
    assert verify_recording(out).ok
    old = {pool.question_id: pool for pool in open_recording(sealed).pools("toy", SMALL)}
    assert len(old) == 2
    for pool in open_recording(out).pools("toy", SMALL):
        assert len(pool.texts) == 8
        if pool.question_id in old:
            assert first(pool, 5) == first(old[pool.question_id], 5)
            assert (pool.prompt, pool.prompt_tokens) == (old[pool.question_id].prompt, 20)
    assert f"begins with the CoTs of the recording {open_recording(sealed).hash}" in " ".join(
        open_recording(out).manifest.raw["notes"]
    )


def first(pool, count):
    """The first CoTs of a pool, every column."""
    columns = {f.name: getattr(pool, f.name) for f in fields(pool)}
    columns |= columns.pop("extra")
    return {n: list(v)[:count] for n, v in columns.items() if isinstance(v, list | tuple)}


def test_what_cannot_be_gone_on_from_is_said(tmp_path):
    sealed = go(tmp_path / "r")
    backend = FakeBackend()
    for change, words in (
        ({"decoding": Decoding(temperature=0.2, seed=7)}, "its temperature is 0.7, not 0.2"),
        ({"messages": lambda q: [Message("user", q.text)]}, "'toy/0' with other messages"),
    ):
        with pytest.raises(ConflictError, match=words):
            go(tmp_path / "next", backend, replace(WORK, **change), start=sealed)
    assert backend.calls == []
    with pytest.raises(NotRecordedError, match="other"):
        go(tmp_path / "next", backend, replace(WORK, llm_name="other"), start=sealed)
    selected = select(sealed, tmp_path / "selected", samples=2)
    grown = open_recording(go(tmp_path / "grown", start=selected))
    before = open_recording(selected)
    for pool, begun in zip(grown.pools("toy", SMALL), before.pools("toy", SMALL), strict=True):
        assert first(pool, 2) == first(begun, 2)


def test_nothing_is_left_where_nothing_came(tmp_path):
    with pytest.raises(
        Fatal, match=r"The key is wrong\. Recording stopped: nothing is recorded yet"
    ):
        go(tmp_path / "r", FakeBackend([Fatal("the key is wrong".capitalize())] * 9))
    assert list(tmp_path.iterdir()) == []
    go(tmp_path / "r", work=replace(WORK, model="another"))  # the corrected command


@pytest.mark.parametrize(
    ("change", "words"),
    [
        *(
            ({"decoding": Decoding(**fields)}, words)
            for fields, words in read_data("commands.json")["decodings that no LLM takes"]
        ),
        ({"llm_name": "a\x00b"}, "control characters"),
        ({"dataset": ""}, "Dataset names have 1 to"),
        ({"questions": [replace(QUESTIONS[0], id="a\nb")]}, "control characters"),
        ({"questions": [replace(QUESTIONS[0], text="half \ud800")]}, "valid Unicode"),
        ({"questions": [QUESTIONS[0], QUESTIONS[0]]}, "'toy/0' twice"),
    ],
)
def test_what_could_not_be_sealed_is_refused_before_it_is_paid(change, words):
    with pytest.raises(FevalError, match=words):
        replace(WORK, **change)


def test_a_cost_limit_that_cannot_be_kept_leaves_nothing(tmp_path):
    with pytest.raises(
        PriceNotFoundError, match=r"no price for nobody in the price list 2025-06-02"
    ):
        go(tmp_path / "r", work=replace(WORK, llm_name="nobody"), cost_limit_usd=1.0)
    with pytest.raises(OutOfRangeError, match="above 0; nan"):
        go(tmp_path / "r", cost_limit_usd=float("nan"))
    assert list(tmp_path.iterdir()) == []


def test_a_partial_recording_says_why_it_ended(tmp_path):
    options = {"cost_limit_usd": 0.0013, "limits": Limits(1, samples_per_request=1)}
    with pytest.raises(CostLimitError):
        go(tmp_path / "r", **options)
    with pytest.raises(MissingError, match="mode 'none' asks for nothing"):
        go(tmp_path / "r", mode="none")
    go(tmp_path / "r", mode="none", partial=True)
    recording = open_recording(tmp_path / "r")
    sizes = [len(pool.answers) for pool in recording.pools("toy", SMALL)]
    assert 0 < sum(sizes) < 20
    assert "asks for nothing" in " ".join(recording.manifest.raw["notes"])
    assert verify_recording(tmp_path / "r").ok


def test_what_a_kill_after_sealing_leaves_behind_is_removed(tmp_path):
    go(tmp_path / "r", keep_journal=True)
    for _ in range(2):
        assert journal_folder(tmp_path / "r").exists()
        go(tmp_path / "r")
        assert [path.name for path in tmp_path.iterdir()] == ["r"]
        journal_folder(tmp_path / "r").mkdir()  # or an empty folder


def test_the_journal_stays_until_the_recording_verifies(tmp_path, monkeypatch):
    from recorders.work import seal

    class Bad:
        ok = False
        problems = ("texts: one byte is wrong.",)

    monkeypatch.setattr(seal, "verify_recording", lambda _: Bad)
    with pytest.raises(
        Exception, match=r"does not verify after sealing: texts: one byte is wrong\. The journal"
    ):
        go(tmp_path / "r")
    monkeypatch.undo()
    shutil.rmtree(tmp_path / "r")
    backend = FakeBackend()
    go(tmp_path / "r", backend)
    assert backend.calls == []


def test_missing_usage_means_that_all_tokens_are_counted_alike(tmp_path):
    def some(request, sample):
        counts = {"output_tokens": 900, "reasoning_tokens": 890}
        fields = {"output_tokens": None} if sample == 3 else counts
        return reply_to(request, sample, **fields)

    recording = open_recording(go(tmp_path / "r", FakeBackend(answer=some)))
    assert recording.manifest.pairs["toy", SMALL]["counter"] == "words"
    pool = next(recording.pools("toy", SMALL))
    assert pool.output_tokens == [11] * 5
    assert pool.prompt_tokens == 6
    assert "reasoning_tokens" not in pool.extra  # not 890 of 11
    notes = recording.manifest.raw["notes"]
    assert "4 of 20 CoTs came without a count of their tokens." in notes
    assert (
        "All tokens were counted by 'words', because the provider gave no usable count of the"
        " output of 4 of 20 CoTs." in notes
    )
    assert (
        "The provider's counts of reasoning and cached tokens were left out, as 'words' counted all"
        " tokens." in notes
    )


def test_a_counter_can_be_chosen(tmp_path):
    assert (
        open_recording(go(tmp_path / "r", counter="words")).manifest.pairs["toy", SMALL]["counter"]
        == "words"
    )
    with pytest.raises(UnknownNameError):
        go(tmp_path / "x", counter="wrods")
    with pytest.raises(TokenCounterError):
        go(tmp_path / "x", other_counter="usage")


def test_refused_and_filtered_replies_have_no_answer(tmp_path):
    def odd(request, sample):
        if request.question_id == "toy/2":
            raise RefusalError("policy", "content_filter")
        finish = ("content_filter", "error", "length", "stop", "stop")[sample]
        return replace(reply_to(request, sample), finish_reason=finish)

    recording = open_recording(go(tmp_path / "r", FakeBackend(answer=odd)))
    pools = list(recording.pools("toy", SMALL))
    assert pools[0].answers == [None, None, "2", "0", "1"]
    assert pools[0].finish_reasons == ["content_filter", "error", "length", "stop", "stop"]
    assert pools[2].answers == [None] * 5
    assert (pools[2].output_tokens, pools[2].prompt_tokens) == ([0] * 5, 0)
    assert recording.manifest.pairs["toy", SMALL]["counter"] == "usage"
    assert (
        "5 CoTs have no text because the server refused the request, which counts as no answer."
        in (recording.manifest.raw["notes"])
    )


def test_reasoning_and_logprobs_are_kept_where_they_came(tmp_path):
    def rich(request, sample):
        fields = {"response_id": f"id-{sample % 2}", "served_model": "m"}
        if request.question_id == "toy/1" and sample < 4:
            fields |= {"reasoning": f"Hm {sample}", "token_confidences": (1.0, 2.5)}
            fields["token_logprobs"] = -0.1, -0.2 * sample
        return reply_to(request, sample, **fields)

    limits = Limits(samples_per_request=1)
    work = replace(WORK, decoding=Decoding(logprobs=5))
    recording = open_recording(go(tmp_path / "r", FakeBackend(answer=rich), work, limits=limits))
    assert verify_recording(tmp_path / "r").ok
    assert recording.channels("toy", SMALL) == ["reasoning", "logprobs"]
    pools = list(recording.pools("toy", SMALL))
    assert pools[0].reasoning is None
    assert pools[1].reasoning == ["Hm 0", "Hm 1", "Hm 2", "Hm 3", None]
    assert pools[1].sequence_logprobs[:4] == pytest.approx([-0.1, -0.3, -0.5, -0.7], abs=1e-12)
    assert pools[1].sequence_logprobs[4] is None
    assert pools[1].token_confidences == [[1.0, 2.5]] * 4 + [None]
    assert pools[1].token_logprobs[2] == pytest.approx([-0.1, -0.4], abs=1e-7)
    assert recording.llm_info(SMALL).decoding["logprobs"] == 5
    notes = recording.manifest.raw["notes"]
    assert "16 of 20 CoTs came without the log-probabilities that were asked for." in notes
    assert any(
        "that an earlier reply to the same question had: 12; a cache" in note for note in notes
    )


def test_what_a_server_ignores_is_noted(tmp_path):
    def same(request, _sample):
        return Completion("4", "length" if request.question_id == "toy/1" else "stop")

    for name, decoding in (("warm", Decoding(logprobs=5)), ("cold", Decoding(temperature=0))):
        out = go(tmp_path / name, FakeBackend(answer=same), replace(WORK, decoding=decoding))
        notes = open_recording(out).manifest.raw["notes"]
        assert "5 of 20 CoTs were cut off at the limit on output tokens." in notes
        equal = [note for note in notes if "equal word for word" in note]
        assert len(equal) == (name == "warm")
        assert (
            "20 of 20 CoTs came without the log-probabilities that were asked for." in notes
        ) == (name == "warm")


def test_equal_questions_share_cots(tmp_path):
    twins = [*QUESTIONS, Question("toy/again", QUESTIONS[0].text, "0")]
    backend = FakeBackend()
    recording = open_recording(go(tmp_path / "r", backend, replace(WORK, questions=twins)))
    pools = list(recording.pools("toy", SMALL))
    assert pools[4].texts == pools[0].texts
    assert len(backend.calls) == 4
    assert (
        "Questions with the same request as an earlier one, whose CoTs they share: 1."
        in recording.manifest.raw["notes"]
    )


def test_a_dry_run_asks_for_nothing_and_leaves_nothing(tmp_path):
    estimate = estimate_dataset(WORK, tmp_path / "r")
    assert (estimate.cots, estimate.calls, estimate.at_most) == (20, 4, True)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Fatal):
        go(tmp_path / "r", FakeBackend([None, Fatal("x")]), limits=Limits(1))
    estimate = estimate_dataset(WORK, tmp_path / "r")
    assert (estimate.cots, estimate.output_tokens, estimate.at_most) == (15, 150, False)
    assert estimate.usd == pytest.approx(1e-6 * (0.15 * 60 + 0.6 * 150))


def test_what_cannot_be_recorded_is_refused_before_anything_is_asked(tmp_path):
    with pytest.raises(UsageError, match="no card for the dataset 'toy'"):
        replace(WORK, answer_kind=None)
    with pytest.raises(UsageError, match="Verbatim answers"):
        replace(WORK, answer_kind="verbatim")
    with pytest.raises(UsageError, match="no question"):
        replace(WORK, questions=[])
    with pytest.raises(UnknownNameError, match="price list"):
        go(tmp_path / "r", prices="1999")
    assert list(tmp_path.iterdir()) == []


def test_a_changed_prompt_is_another_recording(tmp_path):
    with pytest.raises(Fatal):
        go(tmp_path / "r", FakeBackend([None, Fatal("x")]), limits=Limits(1))
    with pytest.raises(Exception, match="its prompt is 'toy@1', not 'toy@2'"):
        go(tmp_path / "r", work=replace(WORK, prompt_version="toy@2"))
    with pytest.raises(Exception, match="its decoding seed is 7, not 8"):
        go(tmp_path / "r", work=replace(WORK, decoding=Decoding(seed=8)))


def test_it_works_inside_a_running_loop(tmp_path):
    async def notebook():
        return go(tmp_path / "r")

    assert verify_recording(asyncio.run(notebook())).ok


def test_it_works_in_another_thread(tmp_path):
    thread = threading.Thread(target=go, args=(tmp_path / "r",))
    thread.start()
    thread.join()
    assert verify_recording(tmp_path / "r").ok


@pytest.mark.parametrize(
    ("presses", "number"),
    [
        (1, signal.SIGINT),
        (2, signal.SIGINT),
        (1, signal.SIGTERM),
        pytest.param(2, signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(1, signal.SIGHUP, marks=pytest.mark.slow),
    ],
)
def test_a_signal_to_a_real_process_loses_nothing(tmp_path, presses, number):
    """The first waits for the replies in flight (here 0.3 s away), the second does not; so do other
    signals.
    """
    program = f"""
import asyncio, sys, time
sys.path[:0] = [{str(SUPPORT)!r}, {str(Path(__file__).parent)!r}]
from test_seal import *
from recorders.asking.engine import Control
from recorders.errors import InterruptedByUser
def interrupt(self, *arguments, heard=Control.interrupt):
    heard(self, *arguments)
    print("interrupted", flush=True)
Control.interrupt = interrupt
async def slow(found):
    if len(backend.calls) >= 8:  # four replies have come, and four are in flight
        print("asked", flush=True)
    await asyncio.sleep(0.01 if len(backend.calls) <= 4 else 0.3 if {presses == 1} else 60)
    return found
backend = FakeBackend([slow] * 1000)
work = replace(WORK, questions=[Question(f"toy/{{i}}", f"What is question {{i}}?", "1") for i in range(40)])
try:
    go(Path({str(tmp_path / "r")!r}), backend, work, limits=Limits(4, timeout_s=1000))
except InterruptedByUser as error:
    print(error)
    raise SystemExit(error.exit_code)
"""  # noqa: E501
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "asked\n"
    process.send_signal(number)
    if presses == 2:
        # two signals at once may arrive as one
        assert "interrupted\n" in iter(process.stdout.readline, "")
        process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert err == ""
    assert process.returncode == 128 + number
    assert "Recording was interrupted" in out
    with Journal.open(journal_folder(tmp_path / "r"), WORK.identity()) as journal:
        assert f"{journal.totals.cots} of 200 CoTs" in out
        assert journal.totals.cots >= (40 if presses == 1 else 20)
    assert [path.name for path in tmp_path.iterdir()] == ["r.journal"]
