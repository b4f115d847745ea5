"""Calls for the reference values of methods that read scores or log-probabilities; see
`golden_methods`.
"""

import ast
import operator
import re

import numpy as np

from feval.estimators.trace_confidence import known_percentiles
from feval.methods import (
    BestOfN,
    ConfidenceWeighted,
    DeepConfidence,
    SelfConsistency,
    WeightedBestOfN,
)
from feval.methods.vote import confidence_weights
from feval.recording import ScorerInfo
from feval.recording.arrays import Scores
from feval.replay.pools import ArrayChannels, Pool, Ragged, TokenLogprobs


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


def ragged(lists, shape):
    """Numbers of some CoTs, none of the others."""
    lengths = np.zeros(shape, np.int64)
    for place, numbers in lists.items():
        lengths[place] = len(numbers)
    values = np.concatenate([lists[place] for place in sorted(lists)]) if lists else np.empty(0)
    return Ragged(values, np.concatenate([[0], np.cumsum(lengths.ravel())]), shape)


def scores_of(values, steps=None, tokens=0):
    """Scores by a scorer named "synthetic"."""
    shape = (values.shape[0], values.shape[1])
    made = ragged(steps or {}, shape)
    counts = np.full(shape, tokens, np.int32)
    scored = ~np.isnan(values) | (made.lengths() > 0)
    return Scores(ScorerInfo("synthetic", "test"), values, scored, made, counts, counts)


def first_samples(real, entry, channels):
    """The first recorded samples of the entry's file, with channels."""
    count = int(re.findall(r"\d+", entry["params"]["answers"])[0])
    [pool], _ = real.pools(*entry["inputs"], first=[count])
    made = channels((pool.codes.shape[0], pool.codes.shape[1]))
    return Pool(
        pool.llm, pool.codes, pool.output_tokens, pool.prompt_tokens, pool.sizes, pool.finish,
        pool.candidates,
        pool.question_keys, made,
    )  # fmt: skip


def asked(entry):
    """Rows of the questions that an entry speaks of."""
    return sorted({case["question"] for case in entry["expected"]})


def answers(real, entry, method, pool, questions):
    """What a method answers to some questions in recorded order."""
    from dealt import in_recorded_order

    part = pool.rows(np.array(questions))
    codes = in_recorded_order(method, [part]).answer[0].tolist()
    file = real.file(entry["inputs"][0])
    return {
        q: None if code < 0 else file.answers[q][int((own == code).argmax())]
        for q, code, own in zip(questions, codes, part.codes, strict=True)
    }


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
                "bon": answers(real, entry, BestOfN(**fields), pool, [case["question"]])[
                    case["question"]
                ],
                "weighted": answers(
                    real, entry, WeightedBestOfN(**fields), pool, [case["question"]]
                )[case["question"]],
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
                "answer": answers(real, entry, method, pool, [question])[question],
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
        return answers(real, entry, method, pool, [question])[question]

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
