"""A live LLM with the interface of a replayed one: the same `sample(k)`, `reply`, `start(k)`,
`expand`, the same ledger.

    with live(backend, "gpt-4o-mini", answer_kind="number") as llm:
        metered = llm.ask("What is 12 * 12?")
        answer = method("What is 12 * 12?", metered)  # a method written for the replay, unchanged
        print(answer, metered.cots, metered.dollar_cost)

`record_method` makes a recording of what a method asks. `feval record` makes one that serves many
methods.
"""

from recorders.live.llm import LiveLLM, live
from recorders.live.recording import record_method

__all__ = ["LiveLLM", "live", "record_method"]
