"""Votes of other vendors' clients, each against a server of its own: accuracy, output tokens and
ledger are those of the same draws replayed.

    python check.py CLIENT WHERE ...    pairs: a client of vote.py with the interpreter that has it,
                                        or of vote.mjs with the folder of its node_modules
"""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from feval import evaluate, load
from feval.answers import extract
from feval.methods import SelfConsistency
from feval.serving import serve
from recorders.demo import bundled_recording

FOLDER = Path(__file__).parent
QUESTIONS, SAMPLES = 20, 5
MODES = ("whole", "streamed")
ONE_MODE = dict.fromkeys(("dspy", "its_hub", "lm_eval", "optillm_votes", "promptfoo"), MODES[:1])
"""Clients that never stream, or always do."""
ONE_MODE["guidance"] = MODES[1:]


def asked(
    client: str, where: str, url: str, *arguments: str, texts: str, **environment: str
) -> dict[str, Any]:
    """Return what vote.py prints, or vote.mjs."""
    program = [where, FOLDER / "vote.py"]
    if Path(where).is_dir():
        program = ["node", FOLDER / "vote.mjs"]
        environment["PATH"] = f"{where}/node_modules/.bin{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [*program, client, url.removesuffix("/v1"), *arguments],
        input=texts,
        capture_output=True,
        text=True,
        check=False,
        cwd=environment.get("HOME"),
        env=os.environ | {"CLIENTS": where} | environment,
    )
    if done.returncode:
        sys.exit(f"{client} {arguments}:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    with bundled_recording() as recording:
        dataset, llms = load("tiny_sums", recording=recording)
        llm, rows = llms[1], [*range(QUESTIONS)]
        kind = llm.recording.dataset_info("tiny_sums").answer_kind
        expected = evaluate(
            SelfConsistency(SAMPLES), dataset, [llm], rows=rows, replicates=1, order="seeded"
        )
        texts = json.dumps([dataset[row].question for row in rows])
        for client, where in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
            for mode in ONE_MODE.get(client, MODES):
                began = time.perf_counter()
                with serve(recording, datasets="tiny_sums") as server:
                    own = (llm.name, str(SAMPLES), mode)
                    found = asked(client, where, server.url, *own, texts=texts)
                    ledger = server.application.ledger("votes")
                votes = [
                    Counter(own).most_common(1)[0][0]
                    for said in found["texts"]
                    if (own := [a for text in said if (a := extract(kind, text)) is not None])
                ]
                right = sum(
                    vote == dataset[row].answer for vote, row in zip(votes, rows, strict=True)
                )
                tokens = round(expected.output_tokens_per_question * QUESTIONS)
                assert ledger["output_tokens"] == tokens, (ledger, tokens)
                assert found["tokens"] in (tokens, None), (found["tokens"], tokens)
                assert right / QUESTIONS == expected.accuracy, (right, expected.accuracy)
                usd = expected.usd_per_question * QUESTIONS
                assert abs(ledger["usd"] - usd) < 1e-9 * usd, (ledger["usd"], usd)
                print(  # noqa: T201  the table of clients
                    f"{client:18} {mode:8} {right} of {QUESTIONS} right,"
                    f" {tokens} output tokens, USD {ledger['usd']:.6g},"
                    f" {time.perf_counter() - began:.1f} s"
                )


if __name__ == "__main__":
    main()
