import re

import numpy as np
from lighteval.metrics.metrics_sample import AvgAtN, MajAtN
from lighteval.metrics.utils.metric_utils import SampleLevelMetric
from lighteval.tasks.lighteval_task import LightevalTaskConfig
from lighteval.tasks.requests import Doc, SamplingMethod


def prompt(line, task_name=None):
    return Doc(
        task_name=task_name, query=line["question"], choices=[str(line["answer"])], gold_index=0
    )


def last_number(text):
    found = re.findall(r"The answer is (-?[0-9]+)", text)
    return found[-1] if found else text


def score(doc, model_response):
    return float(last_number(model_response.final_text[0]) == doc.get_golds()[0])


def metric(name, function):
    return SampleLevelMetric(
        metric_name=name,
        sample_level_fn=function,
        category=SamplingMethod.GENERATIVE,
        corpus_level_fn=np.mean,
        higher_is_better=True,
    )


TASKS_TABLE = [
    LightevalTaskConfig(
        name="tiny_sums",
        prompt_function=prompt,
        hf_repo="questions",
        hf_subset="default",
        hf_avail_splits=["train"],
        evaluation_splits=["train"],
        metrics=[
            metric("avg@3", AvgAtN(n=3, sample_scoring_function=score)),
            metric("maj@3", MajAtN(n=3, normalize=last_number)),
        ],
        generation_size=64,
        stop_sequence=["\n\n"],
    )
]
