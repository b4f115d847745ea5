"""Live turns are those that a protocol records, and replay as they were."""

import pytest
import watched
from recording_doubles import FakeBackend, ledger
from watched import DECODING

from feval import load
from feval.errors import UsageError
from recorders.backends.local import Tiny
from recorders.live import live
from recorders.request import Completion

DATASET, MODEL, TURNS = "tiny_sums", "feval/tiny-42k", 3
SAY = "You said {answer}. Look again."


def chains(llm, width):
    """Ask for chains as the protocol has them, some of them one by one; return what was seen."""
    seen = []
    response = llm.sample(width - 1)
    responses = [response, llm.sample(1)]
    for _ in range(TURNS - 1):
        for place, response in enumerate(responses):
            seen += [
                (cot.raw_text, cot.answer, cot.tokens, cot.finish_reason) for cot in response.cots
            ]
            said = [SAY.format(answer=cot.answer) for cot in response.cots]
            responses[place] = llm.reply(response, said if place == 0 else said[0])
            seen.append((response.tokens, response.request.tokens, response.dollar_cost))
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("billing", ["once", "per_sample"])
def test_recorded_turns_replay_as_the_live_run_did(billing, tmp_path):
    protocol = tmp_path / "revise.md"
    protocol.write_text(f"---\nname: revise\n---\n{SAY}\n")
    width = 3
    work = watched.tiny_task(3, samples=width, protocol=protocol, turns=TURNS)
    watched.recorded(tmp_path / "r", work)
    _, [recorded] = load(DATASET, f"{MODEL}@revise", tmp_path / "r", billing=billing)
    with live(
        Tiny(), f"{MODEL}@revise", answer_kind="number", decoding=DECODING, billing=billing
    ) as llm:
        for question in work.questions:
            replayed, lived = recorded.ask(question.id, replicate=None), llm.ask(question.text)
            assert chains(lived, width) == chains(replayed, width)
            assert ledger(lived) == ledger(replayed)


class Noted(FakeBackend):
    """Answers 4, and notes what was said and with which seeds."""

    def __init__(self):
        super().__init__(answer=self._reply)
        self.seen = []

    def _reply(self, request, sample):
        self.seen.append(([message.content for message in request.sent], sample))
        return Completion(
            "<think>\nso</think>\n\nIt is 4.",
            "stop",
            output_tokens=9,
            prompt_tokens=len(self.seen[-1][0]),
        )


def test_a_reply_has_the_whole_conversation_before_it_without_thoughts():
    backend = Noted()
    with live(backend, "gpt-4o-mini", answer_kind="number") as llm:
        metered = llm.ask("2 + 2?")
        first = metered.sample(2)
        second = metered.reply(first.cots[1], "Sure?", 2)
        [third] = metered.reply(
            [second.cots[0]],
            [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "?"}]],
        ).cots
        again = metered.reply([first.cots[0], first.cots[0]], ["a", "b"])
        said = [texts for texts, _ in backend.seen]
        assert said[2:5] == [["2 + 2?", "It is 4.", "Sure?"]] * 2 + [
            ["2 + 2?", "It is 4.", "Sure?", "It is 4.", "Be brief.", "?"]
        ]
        assert len({seed for _, seed in backend.seen}) == len(backend.seen) == 7
        assert (third.answer, third.reasoning, again.answers) == ("4", "so", ["4", "4"])
        assert (metered.rounds, metered.cots, metered.output_tokens) == (5, 7, 63)
        assert metered.reply([], "?").cots == []
        assert (metered.sequential_tokens, metered.longest_trace_tokens) == (36, 27)
        assert metered.auxiliary_prompt_tokens == 2 + 5 + 2 * 2


def test_a_reply_says_something_in_texts():
    with live(Noted(), "gpt-4o-mini", answer_kind="number") as llm:
        metered = llm.ask("2 + 2?")
        [cot] = metered.sample().cots
        with pytest.raises(UsageError, match="with a text or messages; none were given"):
            metered.reply(cot)
        with pytest.raises(UsageError, match="with messages of text"):
            metered.reply(cot, [{"role": "user", "content": 4}])
        assert (metered.rounds, metered.cots) == (1, 1)
