"""A recording made through every fault that passes equals the one made without faults, to the
hash.
"""

import re
from dataclasses import replace
from itertools import cycle, islice

import pytest
from faulty_server import FAULTS, FaultyServer
from recording_doubles import task

from feval.recording import Question, open_recording, verify_recording
from feval.recording.layout.format import recording_hash
from recorders.asking.pace import Limits
from recorders.backends.openai_compatible import Endpoint
from recorders.work.record import record_dataset

pytest.importorskip("openai", reason="the official client (extra `record`) is not installed")

from recorders.backends.openai_compatible import OpenAICompatible

SAMPLES = 5
MARKERS = (
    "",
    "[length]",
    "[content_filter]",
    "[refusal]",
    "[unicode]",
    "[half]",
    "[big]",
    "[reasoning]",
    *[""] * 4,
)
QUESTIONS = [
    Question(f"q{number}", f"How much is {number} + 3? {marker}", str(number + 3))
    for number, marker in enumerate(MARKERS)
]
# Those that never pass have their tests in test_backends_openai; a date in a Retry-After is whole
# seconds of waiting.
NEVER_PASS = re.compile("429 quota|4(00|01|02|03|04|05|13|22)( .*)?")
PASSING = [
    name
    for name in FAULTS
    if not NEVER_PASS.fullmatch(name) and name not in {"429 date", "no usage"}
]
QUICK = Limits(concurrency=16, backoff_s=0.002, longest_backoff_s=0.01, timeout_s=0.6, retries=12)
NOW = "2026-01-01T00:00:00Z"


@pytest.fixture(autouse=True)
def seconds(monkeypatch):
    """Durations are content, and differ from run to run: here every reply takes none."""
    monkeypatch.setattr("recorders.backends.openai_compatible.perf_counter", lambda: 0.0)


def recorded(server, out, limits=QUICK, **decoding):
    """Record all questions and return a hash of the CoTs. How tokens were counted depends on how
    the server bundles them.
    """
    notes = []
    backend = OpenAICompatible(Endpoint(server.url), note=notes.append)
    # the server counts bytes
    work = task(QUESTIONS, SAMPLES, **{"max_tokens": 2_000_000} | decoding)
    record_dataset(
        work, backend, out, limits=limits, prices="none", backend_notes=notes, now=lambda: NOW
    )
    assert verify_recording(out).ok
    manifest = open_recording(out).manifest
    leaves = manifest.leaves.items()
    return recording_hash({part: leaf for part, leaf in leaves if part.name != "llm"})


def some_each(names, each):
    """A plan in which the first attempts at every question fail, each in another way."""
    supply = cycle(names)
    plans = {question.text: list(islice(supply, each)) for question in QUESTIONS}
    return lambda question, attempt: plans[question][attempt] if attempt < each else ""


# Without seeds the server counts its answers: requests for one question must not overtake each
# other to be comparable.
SLOWLY = Limits(concurrency=1, backoff_s=0.002, longest_backoff_s=0.01, timeout_s=3, retries=12)
# A long answer on a busy machine may take more than a moment; one that times out is sent twice.
PATIENT = replace(QUICK, timeout_s=3)


@pytest.mark.parametrize(
    ("decoding", "limits"),
    [
        ({"seed": 11}, PATIENT),
        *(
            pytest.param(decoding, limits, marks=pytest.mark.slow)
            for decoding, limits in (
                ({"seed": 11, "logprobs": 3}, PATIENT),
                ({}, SLOWLY),
                ({"logprobs": 3}, SLOWLY),
            )
        ),
    ],
)
def test_faults_leave_no_trace_in_the_recording(tmp_path, decoding, limits):
    with FaultyServer() as calm:
        expected = recorded(calm, tmp_path / "calm", limits, **decoding)
    with FaultyServer(some_each(PASSING, 3)) as faulty:
        result = recorded(faulty, tmp_path / "faulty", limits, **decoding)
    assert result == expected
    assert set(faulty.faulted) == set(PASSING)
    assert faulty.sent == calm.sent == {question.text: SAMPLES for question in QUESTIONS}
    assert not list(tmp_path.glob("*.journal"))
