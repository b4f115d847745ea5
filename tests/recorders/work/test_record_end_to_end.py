"""`feval record` as people run it, against a server whose answers are known: killed twice, resumed,
sealed, and right.

The server answers question i from an urn of 40 answers, of which it draws the next one each time it
is asked: what it says is a function of the question and of how often it has answered it. So 40
answers to a question are its whole urn, and the curve of self-consistency is known in fractions; a
CoT that was sent and lost by a kill makes the next one come from a second urn.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from fractions import Fraction
from math import comb

import pytest
from faulty_server import FaultyServer, Reply, error
from places import ROOT
from settings_files import settings_file
from small import write_lines
from typer.testing import CliRunner

import feval
from feval.cli import app
from feval.recording import open_recording, select, verify_recording

pytest.importorskip("openai", reason="the official client (extra `record`) is not installed")

SAMPLES, AT_ONCE, CONCURRENCY = 40, 8, 16
BUDGETS = (1, 2, 3, 5, 10, 20, 40)
DATASET, LLM = "urns", "some/model"
# CoTs of 40 with the right answer, with each wrong one; the rest have no answer. Ties, hopeless and
# certain questions among them.
LAWS = (
    (40, ()), (30, (5, 3)), (22, (10, 4, 2)), (18, (18,)), (15, (12, 8, 3, 1)), (12, (13, 13)), (10,
    (20, 6)),
    (6, (5, 5, 4, 4)), (3, (1, 1)), (1, (30,)), (0, (25, 5)), (0, ()),
)  # fmt: skip


def law_of(question):
    return LAWS[question % len(LAWS)]


def gold_of(question):
    return 1000 + 7 * question


def urn_of(question):
    """The 40 answers of a question, shuffled; "" for none."""
    right, wrong = law_of(question)
    answers = [str(gold_of(question))] * right
    for place, count in enumerate(wrong):
        answers += [str(gold_of(question) + place + 1)] * count
    answers += [""] * (SAMPLES - len(answers))
    return [answers[(7 * place + question) % SAMPLES] for place in range(SAMPLES)]


def text_of(urn, number):
    """The CoT with a running number, which it states in letters so that it is taken for no
    answer.
    """
    letters = "".join("abcdefghij"[int(digit)] for digit in str(number))
    answer = urn[number % SAMPLES]
    return f"Try <{letters}>: I add and \U0001f9ee carry. " + (
        f"The answer is {answer}." if answer else "I cannot tell."
    )


def number_told(text):
    found = re.match(r"Try <([a-j]+)>", text)
    assert found
    return int("".join(str("abcdefghij".index(letter)) for letter in found[1]))


def curve_of(right, wrong, budgets):
    """Probability that the right answer wins the vote of n CoTs from an urn, ties broken evenly; by
    counting draws.

    It is written without feval's estimators, to hold against them. `ways[t][m]`: draws of m CoTs
    that do not have the right answer, in which t wrong answers have k votes and none has more.
    """
    silent = SAMPLES - right - sum(wrong)
    won = [Fraction()] * (SAMPLES + 1)
    for k in range(1, right + 1):
        ways = [[comb(silent, m) for m in range(SAMPLES + 1)]]
        for count in wrong:
            longer = [[0] * (SAMPLES + 1) for _ in range(len(ways) + 1)]
            for tied, row in enumerate(ways):
                for m, number in enumerate(row):
                    for votes in range(min(count, k, SAMPLES - m) + 1 if number else 0):
                        longer[tied + (votes == k)][m + votes] += number * comb(count, votes)
            ways = longer
        for tied, row in enumerate(ways):
            for m, number in enumerate(row[: SAMPLES + 1 - k]):
                won[m + k] += Fraction(comb(right, k) * number, tied + 1)
    return [won[n] / comb(SAMPLES, n) for n in budgets]


def known_curve(questions):
    """The mean over some of the questions."""
    curves = [curve_of(*law, BUDGETS) for law in LAWS]
    often = Counter(question % len(LAWS) for question in questions)
    return [
        float(sum(often[law] * curves[law][place] for law in often) / len(questions))
        for place in range(len(BUDGETS))
    ]


class Urns(FaultyServer):
    """The server. It kills the recorder itself, in the moment in which so many replies have been
    sent.
    """

    def __init__(self, questions):
        super().__init__()
        self.urns = [urn_of(question) for question in range(questions)]
        self.drawn = [0] * questions
        self.replies = 0
        self.kill_at = 0
        self.recorder = None

    def _reply(self, seen):
        question = int(seen.question.split()[2])
        first, count = self.drawn[question], seen.body.get("n", 1)
        self.drawn[question] += count
        texts = [text_of(self.urns[question], number) for number in range(first, first + count)]
        choices = [
            {"index": place, "message": {"content": text}, "finish_reason": "stop"}
            for place, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": 9, "completion_tokens": 12 * count}
        reply = {"id": f"urn-{question}-{first}", "choices": choices, "usage": usage}
        return Reply(body=json.dumps(reply).encode())

    def settle(self):
        """Wait until all that a dead recorder had sent has been read."""
        until = time.monotonic() + 20
        while self._tasks and time.monotonic() < until:
            time.sleep(0.01)

    async def _write(self, writer, reply):
        kept = await super()._write(writer, reply)
        self.replies += 1
        if self.recorder is not None and self.replies == self.kill_at:
            os.kill(self.recorder.pid, signal.SIGKILL)
        return kept


def record_through_kills(folder, questions, kills):
    """Record into `folder / "r"`; the recorder is killed at shares of the replies, and the same
    command goes on each time. Return the CoTs that the server was asked for, by question, and those
    that the journal did not have at each kill.
    """
    told = {f"urns/{n}": (f"What is {n} ?", str(gold_of(n))) for n in range(questions)}
    lines = [{"id": name, "question": q, "answer": gold} for name, (q, gold) in told.items()]
    source = write_lines(folder / "questions.jsonl", lines)
    lost = []
    with Urns(questions) as server:
        options = (
            f"--dataset {DATASET} --llm {LLM} --questions {source} --answer-kind number --backend"
            f" openai --base-url {server.url} --set prompt=none --set prices=none --set"
            f" concurrency={CONCURRENCY} --out {folder}/r --quiet"
        )
        pace = settings_file(folder, f"samples_per_request = {AT_ONCE}")
        command = [sys.executable, "-m", "feval", "record", *options.split(), *pace]
        for kill in (*kills, None):
            server.kill_at = 0 if kill is None else int(kill * questions * SAMPLES / AT_ONCE)
            code, said = run(command, server)
            assert code == (0 if kill is None else -signal.SIGKILL), said
            assert (folder / "r").exists() == (kill is None)
            if kill is not None:
                server.settle()
                lost.append(sum(server.drawn) - sum(lost) - held(folder / "r.journal"))
    return server.drawn, lost


def run(command, server):
    """Run a recorder that the server knows, to its end."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")
    }
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as recorder:
        server.recorder = recorder
        try:
            said, _ = recorder.communicate(timeout=500)
        finally:
            recorder.kill()
            server.recorder = None
    return recorder.returncode, said.decode()


def held(journal):
    """The CoTs of a journal by its whole lines, read without the journal's own code."""
    lines = (journal / "journal.jsonl").read_bytes().split(b"\n")[:-1]
    return sum(b'"finish_reason":' in line for line in lines)


def check(folder, asked, lost):
    """Everything that is promised of a recording that was killed and resumed."""
    questions = len(asked)
    recording = folder / "r"
    assert verify_recording(recording).ok
    assert not (folder / "r.journal").exists()
    assert min(asked) >= SAMPLES
    assert all(0 <= each <= CONCURRENCY * AT_ONCE for each in lost)
    again = sum(asked) - SAMPLES * questions
    assert again == sum(lost), "more was asked for again than was in flight at the kills"
    check_texts(recording, asked)

    curve, low, high = measured(recording)
    assert all(
        a <= known <= b
        for a, known, b in zip(low, known_curve(range(questions)), high, strict=True)
    )
    once = [question for question in range(questions) if asked[question] == SAMPLES]
    assert len(once) >= questions - len(lost) * CONCURRENCY
    select(recording, folder / "once", questions=[f"urns/{question}" for question in once])
    curve, _, _ = measured(folder / "once")
    assert curve == pytest.approx(known_curve(once), abs=1e-12)


def check_texts(path, asked):
    """Every CoT is one the server sent, word for word, and none is there twice."""
    recording = open_recording(path)
    for question, pool in enumerate(recording.pools(DATASET, LLM)):
        urn = urn_of(question)
        numbers = [number_told(str(text)) for text in pool.texts]
        assert len(set(numbers)) == len(numbers) == SAMPLES
        assert max(numbers) < asked[question]
        assert list(pool.texts) == [text_of(urn, number) for number in numbers]
        assert list(pool.answers) == [urn[number % SAMPLES] or None for number in numbers]


def measured(recording):
    dataset, (llm,) = feval.load(DATASET, recording=recording, prices="none")
    points = feval.self_consistency_curve(dataset, llm, BUDGETS).points
    names = ("accuracy", "accuracy_low", "accuracy_high")
    return [[getattr(point, name) for point in points] for name in names]


@pytest.mark.parametrize(
    ("questions", "kills"), [(24, (0.5,)), pytest.param(60, (0.3, 0.7), marks=pytest.mark.slow)]
)
def test_killed_resumed_and_right(tmp_path, questions, kills):
    check(tmp_path, *record_through_kills(tmp_path, questions, kills))


def test_the_known_curve_is_right_where_it_can_be_counted():
    assert curve_of(18, (18,), (1, 2, 40)) == [Fraction(18, 40), Fraction(387, 780), Fraction(1, 2)]


class OfOpenAI(FaultyServer):
    """Answers o3-mini as OpenAI does: it takes neither `max_tokens` nor a temperature."""

    def _answer_or_fail(self, seen):
        if seen.body["model"] != "o3-mini":
            return super()._answer_or_fail(seen)
        for name in ("temperature", "top_p", "logprobs", "max_tokens"):
            if name in seen.body:
                other = " Use 'max_completion_tokens' instead." if name == "max_tokens" else ""
                said = f"Unsupported parameter: '{name}' is not supported with this model.{other}"
                return error(400, said, {}, {"param": name})
        return super()._answer_or_fail(seen)


@pytest.fixture
def server():
    with OfOpenAI() as running:
        yield running


def recorded(server, shared, out, llm, *more):
    """Record two questions of gsm8k with everything left to the cards; the requests that came."""
    options = (
        f"--dataset gsm8k --llm {llm} --questions {shared}/real/questions/gsm8k.jsonl --first 2"
        f" --out {out} --backend openai --base-url {server.url} --set concurrency=1 --quiet"
    )
    result = CliRunner().invoke(app, ["record", *options.split(), *more])
    assert result.exit_code == 0, result.output
    return [dict(seen.body) for seen in server.seen]


def test_by_default_the_card_s_prompt_is_sent_as_in_the_paper(server, shared, tmp_path):
    from recorders.work.prompts import prompt_card

    card = prompt_card("gsm8k")
    bodies = recorded(server, shared, tmp_path / "r", "gpt-4o-mini")
    asked = [
        json.loads(line)
        for line in (shared / "real/questions/gsm8k.jsonl").read_text("utf-8").splitlines()[:2]
    ]
    assert [body["n"] for body in bodies] == [40, 40]
    for body, question in zip(bodies, asked, strict=True):
        sent = body["model"], body["temperature"], body["max_tokens"]
        assert sent == ("gpt-4o-mini", 0.7, 2048)
        roles = [message["role"] for message in body["messages"]]
        assert roles == ["system", *["user", "assistant"] * len(card.exemplars), "user"]
        assert question["question"] in body["messages"][-1]["content"]
    recording = open_recording(tmp_path / "r")
    pool = next(recording.pools("gsm8k", "gpt-4o-mini"))
    assert json.loads(str(pool.prompt)) == bodies[0]["messages"]
    assert recording.llm_info("gpt-4o-mini").decoding["prompt"].startswith("gsm8k/1#")


def test_a_reasoning_model_is_asked_as_it_can_be_asked(server, shared, tmp_path):
    bodies = recorded(server, shared, tmp_path / "r", "o3-mini")
    refused, *answered = bodies
    assert "max_tokens" in refused
    assert [body["n"] for body in answered] == [3, 3]
    for body in answered:
        assert set(body) == {"model", "messages", "n", "max_completion_tokens"}
        assert body["max_completion_tokens"] == 2048
        assert [message["role"] for message in body["messages"]] == ["user"]
    info = open_recording(tmp_path / "r").llm_info("o3-mini")
    assert (info.temperature, info.max_tokens) == (None, 2048)


def test_a_temperature_that_is_named_is_sent_to_a_reasoning_model_too(shared, tmp_path):
    with FaultyServer() as server:
        more = ["--set", "reasoning=true", "--temperature", "0.6"]
        bodies = recorded(server, shared, tmp_path / "r", "my/thinker", *more)
    assert [(body["n"], body["temperature"]) for body in bodies] == [(3, 0.6)] * 2


def test_a_card_of_one_s_own_says_how_its_llm_is_asked(server, shared, tmp_path, monkeypatch):
    folder = ROOT / "data_cards" / "llms"
    text = (folder / "gpt-4o-mini.md").read_text("utf-8")
    text = text.replace("temperature: 0.7", "temperature: 1.5").replace(
        "max_tokens: 2048", "max_tokens: 99"
    )
    (tmp_path / "cards" / "llms").mkdir(parents=True)
    (tmp_path / "cards" / "llms" / "gpt-4o-mini.md").write_text(text, "utf-8")
    monkeypatch.setenv("FEVAL_CARDS", str(tmp_path / "cards"))
    bodies = recorded(server, shared, tmp_path / "r", "gpt-4o-mini", "--samples", "2")
    assert {(body["temperature"], body["max_tokens"]) for body in bodies} == {(1.5, 99)}
