"""What a method asks live becomes a recording, through a journal, and the recording replays the
method as it ran.
"""

import inspect
import os
import subprocess
import sys
import threading
from hashlib import sha256

import pytest
from command_line import told
from killed import run
from places import ROOT
from recording_doubles import FakeBackend
from small import import_rows

from feval import evaluate, load, plurality
from feval.errors import ConflictError, OutOfRangeError, StorageError, UsageError
from feval.recording import Question, open_recording, verify_recording
from recorders.errors import Fatal, JournalError, RecorderError
from recorders.live import record_method
from recorders.request import Completion
from recorders.work.settings import RecordingSettings, make_task

NAMES = ("alpha@debate", "beta@debate")
QUESTIONS = [
    Question(f"sums/{number}", f"{number} + 1?", str(number + 1), str(number + 1))
    for number in range(6)
]
AGREED = 3
"""Questions from here on are answered alike by both LLMs from the start."""


def answer(request, sample):
    """A reply that depends on the question, the LLM, the seed and all that was said."""
    number = int(request.question_id.split("/")[1])
    said = sum(map(ord, "".join(message.content for message in request.conversation)))
    value = number + 1 if number >= AGREED else (number + sample + said + len(request.model)) % 5
    text = f"<think>\nWell</think>\n\n{request.model} says {sample}. The answer is {value}."
    return Completion(
        text,
        "stop",
        output_tokens=10 + value,
        prompt_tokens=20 + said % 7 + 9 * len(request.conversation),
    )


def debate(question, *llms):
    """Two rounds, the second with two replies of each LLM."""
    cots = [llm.sample(1).cots[0] for llm in llms]
    for k in (1, 2):
        if len({cot.answer for cot in cots}) == 1:
            break
        texts = [cot.text for cot in cots]
        replies = [
            llm.reply(cot, f"Others: {text}", k)
            for llm, cot, text in zip(llms, cots, texts[::-1], strict=True)
        ]
        cots = [reply.cots[-1] for reply in replies]
    return plurality([cot.answer for cot in cots])


class Stopping(FakeBackend):
    """Notes what is asked; after `most` requests none works any more."""

    def __init__(self, most=float("inf")):
        super().__init__(answer=answer)
        self.most, self.seen = most, list[tuple[str, tuple[str, ...], int]]()
        self._lock = threading.Lock()

    async def complete(self, request, samples):
        with self._lock:
            if len(self.seen) >= self.most:
                raise Fatal("the server is gone")
            said = tuple(message.content for message in request.conversation)
            self.seen += [(request.question_id, said, sample) for sample in samples]
        return await super().complete(request, samples)


def tasks(questions=QUESTIONS):
    return [
        make_task(RecordingSettings("sums", name, prompt="none", answer_kind="number"), questions)
        for name in NAMES
    ]


def recorded(out, backends, **options):
    options = {"prices": "none", "now": lambda: "2026-11-23T00:00:00Z", **options}
    return open_recording(
        record_method(options.pop("method", debate), tasks(), backends, out, **options)
    )


@pytest.fixture(scope="module")
def debated(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("debates") / "r", [Stopping(), Stopping()])


def test_a_recorded_debate_replays_as_it_ran(debated):
    assert verify_recording(debated.path).ok
    dataset, llms = load("sums", list(NAMES), debated.path, prices="none")
    lived = []

    def noted(question, *asked):
        lived.append(debate(question, *asked))
        return lived[-1]

    out = debated.path.parent / "noted"
    recorded(out, [Stopping(), Stopping()], method=noted, at_once=1)
    asked = [[llm.ask(question.id, replicate=None) for llm in llms] for question in QUESTIONS]
    assert [
        debate(question.text, *own) for question, own in zip(QUESTIONS, asked, strict=True)
    ] == lived
    assert [own[0].cots for own in asked] == [4] * AGREED + [1] * (len(QUESTIONS) - AGREED)
    for llm, name in zip(llms, NAMES, strict=True):
        pools = list(debated.pools("sums", name))
        assert sum(len(pool.texts) for pool in pools) == sum(
            own[NAMES.index(name)].cots for own in asked
        )
        assert pools[0].parents == [None, 0, 1, 1]
        source = inspect.getsource(debate).encode()
        policy = {"name": "debate", "sha256": sha256(source).hexdigest()}
        assert debated.llm_info(name).decoding["protocol"] == {"policy": policy}
        assert llm.pool.smallest == 1
    result = evaluate(debate, dataset, llms, replicates=2)
    assert result.accuracy >= (len(QUESTIONS) - AGREED) / len(QUESTIONS)


def test_a_method_asked_live_leaves_the_verdicts_of_a_recording_behind(tmp_path):
    """What was graded is the recorded CoT, and not what an LLM says to the same request."""
    rows = [
        {"id": each.id, "question": each.text, "llm": name, "text": "so", "answer": "1"}
        | {"tokens": 1, "verdict": int(name == NAMES[0])}
        for name in NAMES
        for each in QUESTIONS
    ]
    graded = import_rows(tmp_path / "graded", rows, dataset="sums", answer_kind="number")

    def copied(question, *llms):
        answers = [llm.sample(1).answers[0] for llm in llms]
        return answers[0]

    dataset, llms = load("sums", list(NAMES), graded)
    assert evaluate(copied, dataset, llms).accuracy == 1
    assert evaluate(copied, dataset, llms[::-1]).accuracy == 0
    live = recorded(tmp_path / "live", [Stopping(), Stopping()], method=copied)
    assert live.graders("sums", NAMES[0]) == []


def test_an_llm_that_nobody_replied_to_has_cots_like_any_other(tmp_path):
    def voting(question, *llms):
        return plurality([*llms[0].sample(2).answers, *llms[1].sample(1).answers])

    recording = recorded(tmp_path / "r", [Stopping(), Stopping()], method=voting)
    assert "depth" not in recording.manifest.pairs["sums", NAMES[0]]
    _, [first, _] = load("sums", list(NAMES), recording.path, prices="none")
    assert [len(first(question.id)) for question in QUESTIONS] == [2] * len(QUESTIONS)


@pytest.mark.parametrize("at_once", [1, 4])
def test_a_recording_that_stops_goes_on_without_asking_anything_twice(debated, at_once, tmp_path):
    first, second = [Stopping(7), Stopping()], [Stopping(), Stopping()]
    with pytest.raises(Fatal, match="the server is gone"):
        recorded(tmp_path / "r", first, at_once=at_once)
    journal = tmp_path / "r.journal/0/journal.jsonl"
    journal.write_bytes(journal.read_bytes() + b'{"v":1,"key":"torn')  # what a kill leaves
    assert recorded(tmp_path / "r", second).hash == debated.hash
    for before, after in zip(first, second, strict=True):
        assert not {*before.seen} & {*after.seen}
    assert not (tmp_path / "r.journal").exists()


def test_what_cannot_be_recorded_is_refused(debated, tmp_path):
    def other(question, *llms):
        """Another method."""

    def failing(question, *llms):
        llms[0].sample(1)
        raise ValueError("no")

    def tracing(question, *llms):
        llms[0].start(1)

    backends, r = [Stopping(), Stopping()], tmp_path / "r"
    failed = r"failed on the question 'sums/0' \(ValueError: no\)"
    traced = "asks alpha@debate for CoTs and replies alone; traces were asked for"
    for out, error, message, options in (
        (debated.path, StorageError, "exists already; name another folder", {}),
        (tmp_path / "t", UsageError, traced, {"method": tracing}),
        (r, RecorderError, failed, {"method": failing, "at_once": 1}),
        (r, JournalError, "policy name is 'failing', not 'other'", {"method": other}),
        (tmp_path / "s", OutOfRangeError, "1 question or more at once; 0 were", {"at_once": 0}),
    ):
        with pytest.raises(error, match=message):
            recorded(out, backends, **options)
    with pytest.raises(ConflictError, match="Two questions of sums ask alpha@debate the same"):
        again = tasks([*QUESTIONS, Question("again", "0 + 1?", "1", "1")])
        record_method(debate, again, backends, tmp_path / "s")
    with pytest.raises(ConflictError, match="need names of their own"):
        record_method(debate, tasks()[:1] * 2, backends, tmp_path / "s")
    with pytest.raises(UsageError, match="2 LLMs and 1 backends were given"):
        record_method(debate, tasks(), backends[:1], tmp_path / "s")


@pytest.mark.slow
def test_the_examples_record_and_run(tmp_path):
    examples, refined, debated = ROOT / "examples", tmp_path / "refined", tmp_path / "debated"
    asked = "--dataset tiny_sums --llm feval/tiny-42k --first 4 --samples 2"
    told(f"record {asked} --protocol {examples}/self_refine.md --out {refined}")
    refine = f"{examples}/self_refine.py:self_refine"
    result = told(f"run {refine} --recording {refined} --replicates 2")
    # a solution, and feedback and refinement once or twice
    assert 3 <= result["samples_per_question"] <= 5
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, examples / "debate.py", debated]
    subprocess.run(command, check=True, env=environment)
    llms = "--llm=feval/tiny-42k@debate --llm=feval/tiny-160k@debate"
    result = told(f"run {examples}/debate.py:debate --recording {debated} {llms} --replicates 2")
    assert 2 < result["samples_per_question"] <= 2 * 3


KILLED = """
from pathlib import Path
from killed import logging, through_kills
from test_live_recording import Stopping, recorded

out, logged = Path(sys.argv[1]), logging(Stopping, sys.argv[2])
through_kills(lambda: out.exists() or recorded(out, [logged(), logged()], at_once=2), 10, 0.1)
"""


@pytest.mark.slow
def test_kills_lose_nothing_that_a_method_was_given(debated, tmp_path):
    run(KILLED, tmp_path / "r", tmp_path / "asked", of=__file__)
    assert open_recording(tmp_path / "r").hash == debated.hash
    turns = sum(pair["cots"] for pair in debated.manifest.pairs.values())
    assert turns <= len((tmp_path / "asked").read_text().split()) <= turns + 10 * 2 * 2 * 2
