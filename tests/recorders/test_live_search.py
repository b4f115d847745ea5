"""A search replayed on a full recorded tree, in recorded order, does what it did live on the same
model.
"""

import pytest
import watched
from recording_doubles import ledger
from watched import DECODING

from feval import load
from feval.errors import NotRecordedError
from feval.methods.beam_search import DVTS, BeamSearch
from feval.methods.particle_filtering import ParticleFiltering
from recorders.backends.local import Tiny
from recorders.errors import Fatal
from recorders.live import live
from recorders.request import Completion
from recorders.scoring.scorers import FunctionScorer
from recorders.scoring.scoring import CoTScoring, run_scoring

DATASET, MODEL, DEPTH = "tiny_sums", "feval/tiny-42k", 4


def likes(question, text, answer):
    """A number from 0 to 1 that all three decide about."""
    return (sum(map(ord, question + text)) + len(answer or "")) % 97 / 97


class Noted:
    """An LLM that notes the steps it hands out."""

    def __init__(self, llm):
        self.llm, self.steps, self.uniform = llm, [], llm.uniform

    def expand(self, nodes=None, k=1):
        steps = self.llm.expand(nodes, k)
        flat = [step for own in steps for step in own] if isinstance(nodes, list) else steps
        for step in flat:
            self.steps.append(
                (
                    step.text,
                    step.tokens,
                    step.ends,
                    step.depth,
                    step.score("likes"),
                    step.score(None, "min"),
                )
            )
        return steps


def scorer():
    return FunctionScorer("test_live_search:likes", "likes")


@pytest.mark.slow
def test_a_full_recorded_tree_replays_a_search_as_the_live_run_did(tmp_path):
    work = watched.tiny_task(3, tree=True, samples=4, branch=4, depth=DEPTH)
    watched.recorded(tmp_path / "r", work)
    run_scoring(CoTScoring.from_recording(tmp_path / "r", scorer()), tmp_path / "scored")
    _, [recorded] = load(DATASET, f"{MODEL}@steps", tmp_path / "scored")
    methods = [
        BeamSearch(4, 2, rounds=DEPTH, aggregate="min"),
        DVTS(4, 2, rounds=DEPTH),
        ParticleFiltering(4, rounds=DEPTH),
        ParticleFiltering(3, rounds=DEPTH, answer="sampled", seed=7),
    ]
    with live(
        Tiny(),
        f"{MODEL}@steps",
        answer_kind="number",
        decoding=DECODING,
        step_depth=DEPTH,
        scorer=scorer(),
    ) as llm:
        for question in work.questions:
            for method in methods:
                replayed = Noted(recorded.ask(question.id, replicate=None))
                lived = Noted(llm.ask(question.text, dataset=DATASET, question_id=question.id))
                assert method(question.text, lived) == method(question.text, replayed)
                assert lived.steps == replayed.steps
                assert ledger(lived.llm) == ledger(replayed.llm)


def test_live_steps_are_nodes():
    with live(Tiny(), MODEL, answer_kind="number", decoding=DECODING, step_depth=2) as llm:
        metered = llm.ask("Tom has 49 apples. Tom sells 22. How many apples does Tom have now?")
        [first] = metered.expand()
        with pytest.raises(
            NotRecordedError, match="steps of the live feval/tiny-42k, and it has none"
        ):
            first.score()
        assert metered.expand([]) == []
        [(second,), (third,)] = metered.expand([first, first])
        assert second.path == [first, second]
        assert (third.index, third.depth, third.ends, metered.rounds, metered.cots) == (
            2,
            2,
            True,
            2,
            3,
        )
        assert metered.longest_trace_tokens == max(second.path_tokens, third.path_tokens)


def test_a_live_server_that_does_not_say_why_a_step_ended_is_refused():
    class Silent(Tiny):
        async def complete(self, request, samples):
            return [Completion("2 * 3 = 6", "stop", output_tokens=8) for _ in samples]

    with live(Silent(), MODEL, answer_kind="number") as llm:
        metered = llm.ask("2 * 3?")
        with pytest.raises(Fatal, match="does not say whether a step ended"):
            metered.expand()
        assert (metered.rounds, metered.cots) == (0, 0)
