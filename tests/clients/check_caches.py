"""Packages that keep replies, with their caches and by the recipes of docs/serving.md: asked on
trial, then, after the run was reset, for five samples.

    python check_caches.py PACKAGE WHERE ...    pairs: a package of CACHES, who has it
"""

import json
import sys
from tempfile import TemporaryDirectory

from check import QUESTIONS, SAMPLES, asked

from feval import load
from feval.serving import serve
from recorders.demo import bundled_recording

CACHES = {
    "dspy": (1, {"cache": True}, {"cache": False}),
    "inspect_ai": (1, {"cache": True}, {"cache": False}),
    "lm_eval": (
        1,
        {"use_cache": "replies", "do_sample": False},
        {"use_cache": "replies", "do_sample": True},
    ),
    "lm_eval_requests": (
        1,
        {"cache_requests": True},
        {"cache_requests": True, "rewrite_requests_cache": True},
    ),
    "promptfoo": (SAMPLES, [], ["--no-cache"]),
}
"""How many samples on trial; what keeps replies or requests; what does not."""


def main() -> None:
    with bundled_recording() as recording:
        dataset, llms = load("tiny_sums", recording=recording)
        llm = llms[1]
        questions = [dataset[row] for row in range(QUESTIONS)]
        texts = json.dumps([question.question for question in questions])
        drawn = [
            sorted(llm.texts(row)[own] for own in llm(question.id, SAMPLES).samples)
            for row, question in enumerate(questions)
        ]
        for package, where in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
            client = package.removesuffix("_requests")
            trial, keeps, recipe = CACHES[package]
            for options in (keeps, recipe):
                with TemporaryDirectory() as home, serve(recording, datasets="tiny_sums") as server:
                    caches = {"HOME": home, "LM_HARNESS_CACHE_PATH": home}
                    for count in (trial, SAMPLES):
                        for run in server.application.ledger()["runs"]:
                            server.application.reset(run["run"])
                        own = (llm.name, str(count), "whole", json.dumps(options))
                        found = asked(client, where, server.url, *own, texts=texts, **caches)
                    cots = sum(run["cots"] for run in server.application.ledger()["runs"])
                equal = [sorted(said) for said in found["texts"]] == drawn
                print(  # noqa: T201  the table of caches
                    f"{package:18} {json.dumps(options):50} {cots} CoTs of"
                    f" {QUESTIONS * SAMPLES}, {'those' if equal else 'not those'} of the draw"
                )
                assert (equal and cots == QUESTIONS * SAMPLES) == (options is recipe)


main()
