"""The tiny model as a backend that notes what it is asked, and recordings by it that are the same
whenever they are made.
"""

import math

import pytest

from feval.recording import open_recording
from recorders.backends.local import Tiny
from recorders.errors import Fatal
from recorders.request import Decoding, Message
from recorders.work.record import record_dataset
from recorders.work.settings import RecordingSettings, load_questions, make_task

SEED = 5
DECODING = Decoding(temperature=1.0, max_tokens=100, seed=SEED)

Asked = tuple[str, tuple[Message, ...], str | None, int]
"""Question, conversation, beginning of the reply, sample."""


class Watched(Tiny):
    """Notes what is asked; after `most` samples no request works any more."""

    def __init__(self, most=math.inf):
        super().__init__()
        self.most = most
        self.asked = []

    async def complete(self, request, samples):
        if len(self.asked) >= self.most:
            raise Fatal("the server is gone")
        begun = request.prefill.text if request.prefill else None
        self.asked += [
            (request.question_id, request.conversation, begun, sample) for sample in samples
        ]
        return await super().complete(request, samples)

    @property
    def cots(self):
        return [each for each in self.asked if each[2] is None]

    @property
    def probes(self):
        return [each for each in self.asked if each[2] is not None]


def tiny_task(first, llm="feval/tiny-42k", **settings):
    """What the first questions of tiny_sums are asked; `settings` are those of a recording."""
    settings = {"decoding": DECODING} | settings
    questions = load_questions("tiny_sums", first=first)
    return make_task(RecordingSettings("tiny_sums", llm, **settings), questions)


def recorded(out, work, backend=None, **options):
    options = {"prices": "tiny-2026-11", "now": lambda: "2026-11-23T00:00:00Z", **options}
    return open_recording(record_dataset(work, backend or Tiny(), out, **options))


def gone_on(out, work, most, limits):
    """A recording that stopped after so many samples, with a torn line behind its journal; what was
    asked before and after.
    """
    before, after = Watched(most), Watched()
    with pytest.raises(Fatal):
        recorded(out, work, before, limits=limits)
    journal = out.with_name(f"{out.name}.journal")
    lines = journal / "journal.jsonl"
    lines.write_bytes(lines.read_bytes() + b'{"v":1,"key":"torn')  # what a kill leaves
    recording = recorded(out, work, after, limits=limits)
    assert not journal.exists()
    assert not {*before.cots} & {*after.cots}
    return recording, before, after
