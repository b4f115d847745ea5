"""Several methods on the same questions and draws of a recording: python
examples/compare_methods.py RECORDING [DATASET].
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from typing import Any

from feval import (
    AdaptiveConsistency,
    EarlyStopping,
    ModelSwitch,
    SelfConsistency,
    SingleCall,
    evaluate,
    load,
    open_recording,
)
from feval.errors import FevalError


def compare(recording: str, dataset_id: str | None = None) -> None:
    """Print accuracy and cost of some methods, on one LLM and on two."""
    opened = open_recording(recording)
    dataset, llms = load(dataset_id or opened.dataset_ids()[0], recording=opened)
    most = min([40, *(llm.pool.smallest for llm in llms)])
    few = min(5, most)
    methods: dict[str, Any] = {
        "one call": SingleCall(),
        f"{few} votes": SelfConsistency(few),
        f"{most} votes": SelfConsistency(most),
        "until settled": AdaptiveConsistency(budget=most),
        "until a window agrees": EarlyStopping(window=few, budget=most),
    }
    rows = [(label, method, [llm]) for llm in llms for label, method in methods.items()]
    rows += [("switch", ModelSwitch(few), [one, other]) for one, other in pairwise(llms)]
    print(f"{dataset.id}, {len(dataset)} questions, 100 draws of each")
    print(
        f"{'method':22}{'LLMs':36}{'accuracy':>9}{'95 % interval':>17}{'CoTs':>7}"
        f"{'USD per 1,000 questions':>25}"
    )
    for label, method, asked in rows:
        told = evaluate(method, dataset, asked, order="seeded", replicates=100)
        usd = "not known"
        if told.usd_per_question is not None:
            usd = f"{1000 * told.usd_per_question:.3g}"
        interval = f"{told.accuracy_low:.1%} to {told.accuracy_high:.1%}"
        names = " > ".join(told.llms)
        print(
            f"{label:22}{names:36}{told.accuracy:9.1%}{interval:>17}{told.samples.mean():7.2f}{usd:>25}"
        )


def main() -> None:
    """Read the arguments and print."""
    parser = argparse.ArgumentParser(
        description="Methods side by side, on the same questions and the same draws."
    )
    parser.add_argument("recording", metavar="RECORDING", help="a folder, or an address on the Hub")
    parser.add_argument(
        "dataset", metavar="DATASET", nargs="?", help="id; the recording's first if left out"
    )
    given = parser.parse_args()
    try:
        compare(given.recording, given.dataset)
    except FevalError as error:
        parser.exit(error.exit_code, f"error: {error}\n")


if __name__ == "__main__":
    main()
