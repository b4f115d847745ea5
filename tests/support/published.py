"""Recordings to publish: small ones made up, with names that a page must survive."""

import json

import pytest

from feval.publish import Licence, release
from feval.recording import DatasetInfo, LLMInfo, PoolRows, Question, RecordingWriter

ANSWERS = {"q1": ["1", "1", "2", None], "q2": ["7", "2", "7", "2"], "q3": ["3", "3", "3", "3"]}
GOLDS = {"q1": "1", "q2": "2", "q3": "4"}


def write(
    out,
    datasets=("toy",),
    llms=("alpha", "beta@t=0.8"),
    *,
    title="Toy questions",
    text="So the answer is",
    sizes=None,
    golds=None,
    prices="none",
    finish="stop",
    system_prompt="Think step by step.",
    notes=(),
    licence="CC-BY-4.0",
):
    """A recording of three questions a dataset and up to four CoTs a question."""
    golds = GOLDS if golds is None else golds
    licences = {"questions": "MIT", "outputs": licence}
    with RecordingWriter(
        out, operation={"name": "test"}, prices=prices, licences=licences, notes=notes
    ) as writer:
        for dataset in datasets:
            questions = [
                Question(key, f"What is {key}?", golds.get(key), golds.get(key)) for key in ANSWERS
            ]
            writer.add_dataset(
                DatasetInfo(dataset, title, "number", "feval-answers-1", system_prompt, "MIT"),
                questions,
            )
            for llm in llms:
                writer.add_pools(
                    dataset, LLMInfo(llm, 0.7, 100), "usage", _pools(text, sizes or {}, finish)
                )
    return out


def _pools(text, sizes, finish):
    for key, answers in ANSWERS.items():
        own = answers[: sizes.get(key, 4)]
        reasons = ["length" if answer is None else finish for answer in own]
        prompt = json.dumps([{"role": "user", "content": f"What is {key}?"}])
        yield PoolRows(
            key, [f"{text} {a}." for a in own], own, own, [10] * len(own), reasons, prompt, 20
        )


@pytest.fixture(scope="session", autouse=True)
def pictures_drawn_once():
    """Draw the picture of a recording once in a run: it takes most of the time of a release."""
    drawn = {}
    draw = release.picture

    def picture(recording, prices):
        digest = None if prices is None else prices.digest
        key = json.dumps([recording.hash, recording.manifest.raw["datasets"], digest], default=str)
        if key not in drawn:
            drawn[key] = draw(recording, prices)
        return drawn[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release, "picture", picture)
        yield


@pytest.fixture
def licence_stated(monkeypatch):
    """Let every recording state a licence, where it is not the subject."""
    monkeypatch.setattr(release, "stated_licence", lambda _: Licence("mit"))
