"""A method written for the replay runs on a live LLM unchanged, with the same ledger."""

import asyncio

import pytest
import watched
from recording_doubles import ledger

import recorders
from feval import SelfConsistency, load
from feval.answers import equality
from feval.cards.billing import usd
from feval.cards.prices import price_list
from feval.errors import AnswerError, PriceNotFoundError, UnknownNameError, UsageError
from recorders.backends.local import Tiny
from recorders.backends.openai_compatible import Endpoint, OpenAICompatible
from recorders.errors import Fatal, RateLimitError, StoppedError, Transient
from recorders.live import live
from recorders.request import Completion, Decoding

TEXTS = ["It is 4. The answer is 4.", "The answer is 5.", "The answer is 4.0.", "I do not know."]


class Scripted:
    """Gives the texts in turn, `at_once` at a time; raises what stands in `faults` first."""

    name, takes_seed = "scripted", True

    def __init__(self, at_once=10, faults=(), usage=True):
        self.at_once, self.faults, self.usage = at_once, list(faults), usage
        self.asked = []
        self.closed = False

    async def complete(self, request, samples):
        self.asked.append(list(samples))
        if self.faults:
            raise self.faults.pop(0)
        counts = {"output_tokens": 10, "prompt_tokens": 7} if self.usage else {}
        return [
            Completion(TEXTS[i % len(TEXTS)], "stop", **counts) for i in samples[: self.at_once]
        ]

    async def aclose(self):
        self.closed = True


waits = []


async def no_wait(seconds):
    waits.append(seconds)


def asked(backend=None, name="gpt-3.5-turbo", **options):
    options = {"answer_kind": "number", "wait": no_wait, **options}
    return live(backend or Scripted(), name, **options)


def test_live_of_recorders_is_the_package_however_it_is_loaded(monkeypatch):
    monkeypatch.delattr(recorders, "live")  # as before anything imports it
    for _ in range(2):
        assert (recorders.live.__name__, recorders.live.live) == ("recorders.live", live)


def test_answers_are_extracted_and_made_canonical():
    with asked() as llm:
        response = llm.ask("2 + 2?").sample(4)
    assert response.answers == ["4", "5", "4", None]
    assert [cot.raw_text for cot in response.cots] == TEXTS
    assert (len(response), response.num_cots, response.tokens) == (4, 4, 40)
    assert response.cots[0].dollar_cost == pytest.approx(1.5e-5)


def test_a_server_that_ignores_n_is_asked_again():
    backend = Scripted(at_once=1)
    with asked(backend) as llm:
        metered = llm.ask("2 + 2?")
        assert len(metered.sample(3)) == 3
        metered.sample(1)
    assert backend.asked == [[0, 1, 2], [1, 2], [2], [3]]
    assert metered.rounds == 2
    assert backend.closed


def test_what_may_work_next_time_is_tried_again_and_retry_after_is_honoured():
    waits.clear()
    backend = Scripted(faults=[RateLimitError("busy", 12.5), Transient("reset")])
    with asked(backend) as llm:
        assert len(llm.ask("2 + 2?").sample(2)) == 2
    assert waits[0] == 12.5
    assert 0 <= waits[1] <= 2


def test_a_retry_after_beyond_ten_minutes_is_not_waited_for():
    waits.clear()
    with asked(Scripted(faults=[RateLimitError("busy", 7200.0)])) as llm:
        metered = llm.ask("2 + 2?")
        with pytest.raises(
            StoppedError, match="it asks to wait 2 h, and feval waits 10 min at most"
        ):
            metered.sample(2)
    assert waits == []


def test_what_fails_too_often_or_for_ever_is_said():
    backend = Scripted(faults=[Transient("reset")] * 3)
    with asked(backend, retries=2) as llm:
        metered = llm.ask("2 + 2?")
        with pytest.raises(StoppedError, match=r"failed 3 times in a row \(reset\)"):
            metered.sample()
    backend = Scripted(faults=[Fatal("The key is wrong.")])
    with asked(backend) as llm:
        metered = llm.ask("2 + 2?")
        with pytest.raises(Fatal, match="key is wrong"):
            metered.sample()
        assert (metered.rounds, metered.cots) == (0, 0)


def test_without_usage_words_are_counted():
    with asked(Scripted(usage=False)) as llm:
        metered = llm.ask("one two three four")
        response = metered.sample(1)
        assert (response.tokens, response.request.tokens) == (10, 5)  # seven words, and four


def test_wrong_use_is_refused():
    with pytest.raises(UnknownNameError):
        asked(name="x", answer_kind="riddle")
    with pytest.raises(UnknownNameError):
        asked(billing="hourly")
    with pytest.raises(UsageError, match="name another answer kind"):
        asked(name="x", answer_kind="verbatim")
    with asked(name="no-price") as llm:
        metered = llm.ask("2 + 2?")
        assert metered.sample(1).cots[0].dollar_cost is None
        with pytest.raises(PriceNotFoundError, match="no-price"):
            _ = metered.dollar_cost


def test_a_closed_llm_says_so_and_can_be_closed_again():
    llm = asked()
    metered = llm.ask("2 + 2?")
    llm.close()
    llm.close()
    with pytest.raises(UsageError, match="was closed"):
        metered.sample()


def test_a_method_can_be_called_where_an_event_loop_runs():
    """As in a notebook, whose cells run inside one; and in several threads at once."""

    async def cell():
        with asked() as llm:
            here = [SelfConsistency(3)("2 + 2?", llm.ask("2 + 2?"))]
            others = [
                asyncio.to_thread(SelfConsistency(3), "2 + 2?", llm.ask("2 + 2?")) for _ in range(4)
            ]
            return here + await asyncio.gather(*others)

    assert asyncio.run(cell()) == ["4"] * 5


def test_a_response_has_its_request_and_its_costs():
    with asked() as llm:
        metered = llm.ask("2 + 2?")
        twin = metered.sample(2)
    assert (
        twin.dollar_cost
        == metered.dollar_cost
        == pytest.approx(1e-6 * (7 * 0.5 + 20 * 1.5), rel=1e-14)
    )
    assert twin.request.raw_text == '[{"role": "user", "content": "2 + 2?"}]'
    assert (twin.request.tokens, twin.request.dollar_cost) == (7, pytest.approx(3.5e-6))
    assert [(cot.sample, cot.metadata.tokens) for cot in twin.cots] == [(0, 10), (1, 10)]


def test_a_built_in_model_has_its_price_without_naming_the_list():
    with asked(name="feval/tiny-42k") as llm:
        metered = llm.ask("2 + 2?")
        metered.sample()
        listed = price_list("tiny-2026-11").find("feval/tiny-42k")
        assert listed is not None
        assert metered.dollar_cost == float(usd(listed, 7, 10)) > 0


def test_decoding_that_nobody_named_is_as_in_a_recording():
    class Seeing(Scripted):
        async def complete(self, request, samples):
            decodings.append((request.decoding.temperature, request.decoding.max_tokens))
            return await super().complete(request, samples)

    decodings = []
    for name in ("gpt-3.5-turbo", "o3-mini"):
        with live(Seeing(), name, answer_kind="number") as llm:
            llm.ask("2 + 2?").sample(1)
    assert decodings == [(0.7, 2048), (None, 2048)]


@pytest.mark.skipif(
    equality.version() is None, reason="math-verify is not installed (the extra `math`)"
)
def test_equal_answers_of_several_live_llms_vote_together(monkeypatch):
    monkeypatch.setattr(
        "test_live.TEXTS",
        ["It is $x+1$.", "It is $1+x$.", "It is $x+2$.", "It is $\\frac{2x+4}{2}$."],
    )
    with asked(name="a", answer_kind="latex") as one, asked(name="b", answer_kind="latex") as other:
        assert one.ask("What?").sample(4).answers == ["x+1", "x+1", "x+2", "x+2"]
        assert other.ask("What?").sample(2).answers == ["x+1", "x+1"]
    with asked(name="a", answer_kind="latex", equality="normal-form") as plain:
        assert plain.ask("What?").sample(2).answers == ["x+1", "1+x"]


def test_a_live_llm_for_latex_answers_needs_math_verify(monkeypatch):
    monkeypatch.setattr(equality, "version", lambda: None)
    with pytest.raises(AnswerError, match="not installed"):
        asked(name="a", answer_kind="latex")


CONTROLLER = '''
def converged(question, llm, width=3, interval=8):
    """Stop a trace once two of its answers in a row agree; vote."""
    traces = llm.start(width)
    latest, answers = {}, []
    while running := [trace for trace in traces if trace.running]:
        llm.advance(running, tokens=interval)
        for trace in running:
            answer = trace.probe()
            if not trace.finished and answer is not None and answer == latest.get(trace.index):
                trace.stop()
            latest[trace.index] = answer
    answers = [latest[trace.index] for trace in traces]
    return max(answers, key=answers.count)
'''


def test_a_controller_of_traces_runs_on_the_replay_and_on_a_server_alike(tmp_path):
    pytest.importorskip("openai", reason="the official client (extra `record`) is not installed")
    from recorders.servers.tiny_server import tiny_server

    name, decoding = "feval/tiny-42k", Decoding(temperature=1.0, max_tokens=60, seed=11)
    work = watched.tiny_task(4, samples=3, decoding=decoding, probe_every=8)
    watched.recorded(tmp_path / "r", work)
    _, [recorded] = load("tiny_sums", name, tmp_path / "r")
    controller = {}
    exec(CONTROLLER, controller)  # noqa: S102  the same code for both
    with tiny_server([name]) as server:
        backend = OpenAICompatible(Endpoint(server.url))
        with live(backend, name, answer_kind="number", decoding=decoding) as llm:
            for question in work.questions:
                replayed, metered = (
                    recorded.ask(question.id, replicate=None),
                    llm.ask(question.text),
                )
                answers = [
                    controller["converged"](question.text, each) for each in (replayed, metered)
                ]
                assert answers[0] == answers[1]
                assert ledger(metered) == ledger(replayed)


def test_a_trace_is_advanced_and_probed_where_it_can_be():
    with live(
        Tiny(), "feval/tiny-42k", answer_kind="number", decoding=Decoding(1.0, max_tokens=30)
    ) as llm:
        metered = llm.ask("Tom has 49 apples. Tom sells 22. How many apples does Tom have now?")
        first, second = metered.start(2, limit=9)
        with pytest.raises(UsageError, match="grows by a number of tokens; give it"):
            metered.advance(first)
        metered.advance([first, second], tokens=7)
        metered.advance(first, tokens=7)
        assert (first.tokens, first.running, first.finished) == (9, False, False)
        assert first.probe() == first.probe()
        assert (metered.probe_calls, metered.output_tokens, metered.sequential_tokens) == (1, 16, 9)
        assert 0 < (first.confidence or 0) <= 1
        [third] = metered.start()
        metered.advance(third, tokens=1000)
        assert third.finished
        assert third.probe() == "27"
        assert third.confidence is None
        assert metered.probe_calls == 1
