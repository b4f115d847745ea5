"""Load recordings and replay them: LLMs, datasets, pools, draws."""

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.replay.clock import (
        SECONDS as SECONDS,
        Clock as Clock,
        Timing as Timing,
        makespan as makespan,
    )
    from feval.replay.dataset import Dataset as Dataset, DatasetEntry as DatasetEntry
    from feval.replay.draws import ORDERS as ORDERS
    from feval.replay.llm import LLM as LLM
    from feval.replay.loading import (
        load as load,
        only_dataset as only_dataset,
        only_name as only_name,
        open_recordings as open_recordings,
    )
    from feval.replay.meter import MeteredLLM as MeteredLLM, Node as Node
    from feval.replay.pools import Pool as Pool, without_gaps as without_gaps
    from feval.replay.responses import (
        CoT as CoT,
        CoTMetadata as CoTMetadata,
        LLMRequest as LLMRequest,
        LLMResponse as LLMResponse,
    )
    from feval.replay.rightness import (
        Judges as Judges,
        Rightness as Rightness,
        checked_rule as checked_rule,
        graders_of as graders_of,
        rightness_of as rightness_of,
    )
    from feval.replay.source import RecordedSource as RecordedSource

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "draws": "ORDERS",
        "clock": "SECONDS Clock makespan Timing",
        "dataset": "Dataset DatasetEntry",
        "llm": "LLM",
        "loading": "load open_recordings only_dataset only_name",
        "meter": "MeteredLLM Node",
        "pools": "Pool without_gaps",
        "responses": "CoT CoTMetadata LLMRequest LLMResponse",
        "rightness": "Judges Rightness checked_rule graders_of rightness_of",
        "source": "RecordedSource",
    },
)
