"""Several methods on the same questions and draws of a recording: python examples/compare_methods.py RECORDING [DATASET]."""

from __future__ import annotations

import sys
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
    print(f"{'method':22}{'LLMs':36}{'accuracy':>9}{'95 % interval':>17}{'CoTs':>7}{'USD/question':>14}")
    for label, method, asked in rows:
        told = evaluate(method, dataset, asked, order="seeded", replicates=100)
        usd = "not known" if told.usd_per_question is None else f"{told.usd_per_question:.7f}"
        interval = f"{told.accuracy_low:.1%} to {told.accuracy_high:.1%}"
        names = " > ".join(told.llms)
        print(f"{label:22}{names:36}{told.accuracy:9.1%}{interval:>17}{told.samples.mean():7.2f}{usd:>14}")


if __name__ == "__main__":
    compare(*sys.argv[1:])
