"""Calls for the reference values of methods that read scores or log-probabilities; see
`golden_methods`.
"""

import ast
import operator
import re
from dataclasses import replace

import numpy as np
from dealt import in_recorded_order, ragged, scores_of

from feval.estimators.trace_confidence import known_percentiles
from feval.methods import (
    BestOfN,
    ConfidenceWeighted,
    DeepConfidence,
    SelfConsistency,
    WeightedBestOfN,
)
from feval.methods.vote import confidence_weights
from feval.replay.pools import ArrayChannels, TokenLogprobs


def synthetic_stream(seed, n):
    """The numbers that stand in for scores and log-probabilities, which no peer publishes."""
    x = seed % 2147483647 or 1
    numbers = []
    for _ in range(n):
        x = x * 48271 % 2147483647
        numbers.append(x / 2147483647)
    return np.array(numbers)


OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
}  # fmt: skip


def formula(text, **names):
    """The value of a formula of an entry, such as "8 + 8*synthetic_stream(question + i, 60)"."""

    def value(node):
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return names[node.id]
            case ast.BinOp():
                return OPERATORS[type(node.op)](value(node.left), value(node.right))
            case ast.Call(func=ast.Name(id="synthetic_stream")):
                return synthetic_stream(*map(value, node.args))
        raise AssertionError(ast.dump(node))

    return value(ast.parse(text.split(" for ")[0], mode="eval").body)


def first_samples(real, entry, channels):
    """The first recorded samples of the entry's file, with channels."""
    count = int(re.findall(r"\d+", entry["params"]["answers"])[0])
    [pool], _ = real.pools(*entry["inputs"], first=[count])
    return replace(pool, channels=channels(pool.codes.shape))


def asked(entry):
    """Rows of the questions that an entry speaks of."""
    return sorted({case["question"] for case in entry["expected"]})


def answered(real, entry, method, pool, question):
    """What a method answers to a question in recorded order."""
    part = pool.rows(np.array([question]))
    [code] = in_recorded_order(method, [part]).answer[0].tolist()
    given = real.file(entry["inputs"][0]).answers[question]
    return None if code < 0 else given[int((part.codes[0] == code).argmax())]


def best_of_n(real, entry):
    def channels(shape):
        steps = {
            (q, i): formula(entry["params"]["step_scores"], question=q, i=i)
            for q in asked(entry)
            for i in range(shape[1])
        }
        return ArrayChannels({"synthetic": scores_of(np.full(shape, np.nan), steps)})

    pool = first_samples(real, entry, channels)
    n, result = pool.codes.shape[1], []
    for case in entry["expected"]:
        fields = {"n": n, "aggregate": case["agg"]}
        result.append(
            {
                "question": case["question"],
                "agg": case["agg"],
                "bon": answered(real, entry, BestOfN(**fields), pool, case["question"]),
                "weighted": answered(
                    real, entry, WeightedBestOfN(**fields), pool, case["question"]
                ),
            }
        )
    return result


def confidence_weighted(real, entry):
    def channels(shape):
        values = np.full(shape, np.nan)
        for q in asked(entry):
            values[q] = formula(entry["params"]["confidence"], question=q)[: shape[1]]
        return ArrayChannels({"synthetic": scores_of(values)})

    pool = first_samples(real, entry, channels)
    result = []
    for case in entry["expected"]:
        question, temperature = case["question"], case["T"]
        method = ConfidenceWeighted(pool.codes.shape[1], "synthetic", temperature)
        weights = confidence_weights(pool.aggregated("synthetic")[question], temperature)
        result.append(
            {
                "question": question,
                "T": temperature,
                "answer": answered(real, entry, method, pool, question),
                "weights_head": (weights / weights.sum())[: len(case["weights_head"])].tolist(),
            }
        )
    return result


MEASURES = {"mean": "mean", "tail": "tail", "bottom10": "bottom-10%", "lowest": "lowest-group"}


def deep_confidence(real, entry):
    params = entry["params"]

    def channels(shape):
        places = [(q, i) for q in asked(entry) for i in range(shape[1])]
        lists = {(q, i): formula(params["token_confidences"], question=q, i=i) for q, i in places}
        none = ragged({}, shape)
        return ArrayChannels(
            logprobs=TokenLogprobs(np.full(shape, np.nan), ragged(lists, shape), none)
        )

    pool = first_samples(real, entry, channels)
    n = pool.codes.shape[1]
    fields = {"n": n, "group": params["window"], "tail": params["tail"]}

    def answer(method, question):
        return answered(real, entry, method, pool, question)

    def offline(name, question):
        everyone = DeepConfidence(keep=100, measure=MEASURES[name], **fields)
        best = DeepConfidence(keep=params["top_percent"], measure=MEASURES[name], **fields)
        scores = best.confidences(pool)[question]
        bar = known_percentiles(scores, 100 - params["top_percent"])
        return {
            "scores_head": scores[:3].tolist(),
            "weighted": answer(everyone, question),
            "top10_kept": np.flatnonzero(scores >= bar).tolist(),
            "top10_weighted": answer(best, question),
        }

    def online(question):
        keep = params["online_percentile"]
        method = DeepConfidence(mode="online", keep=keep, warm_up=params["warmup"], **fields)
        scores = method.confidences(pool)[question]
        bar = known_percentiles(scores[: params["warmup"]], 100 - keep)
        kept = np.flatnonzero(scores >= bar).tolist()
        return {"bar": float(bar), "kept": kept, "answer": answer(method, question)}

    return [
        {"question": q, "majority": answer(SelfConsistency(n), q), "online_high": online(q)}
        | {name: offline(name, q) for name in MEASURES}
        for q in (case["question"] for case in entry["expected"])
    ]
