"""Calls for the reference values of methods that go from one LLM to the next; see
`golden_methods`.
"""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
from dealt import in_recorded_order

from feval.cards.billing import Price, usd
from feval.cards.tokens import count_words
from feval.methods import MixtureOfThoughts, ModelSwitch
from feval.methods.model_switch import consistency_weight


def right(decisions, gold):
    """Questions answered with the gold."""
    return int(((decisions.answer[0] == gold) & (gold >= 0)).sum())


# -- draws and dollars as the reference package has them
# -----------------------------------------------------------------


def sampled_orders(pools, wanted, seed):
    """Draws of `random.sample`, question by question and LLM by LLM; small pools are handed out
    whole and take no randomness.
    """
    generator = random.Random(seed)  # noqa: S311  the reference draws from it
    draws = [min(wanted, pool.smallest) for pool in pools]
    orders = [
        np.empty((1, len(pool.sizes), n), np.uint16) for pool, n in zip(pools, draws, strict=True)
    ]
    for question in range(len(pools[0].sizes)):
        for pool, order, n in zip(pools, orders, draws, strict=True):
            size = int(pool.sizes[question])
            order[0, question] = generator.sample(range(size), n) if n < size else range(size)
    return orders


def with_tokens(real, pools):
    """The pools with the reference's token counts: of the CoTs' texts, and of the question as the
    request.
    """
    counted = []
    for pool in pools:
        file = real.file(pool.llm)
        output = np.array([[count_words(text) for text in texts] for texts in file.samples])
        counted.append(
            replace(
                pool, output_tokens=output, prompt_tokens=np.array([*map(count_words, file.texts)])
            )
        )
    return counted


def dollars(decisions, pools, prices):
    """USD of all questions, prompts billed once."""
    return sum(
        float(
            usd(
                Price(*price),
                int((ledger.rounds > 0)[0] @ pool.prompt_tokens),
                int(ledger.output_tokens.sum()),
            )
        )
        for ledger, pool, price in zip(decisions.ledgers, pools, prices, strict=True)
    )


# -- ModelSwitch
# ----------------------------------------------------------------------


def model_switch_weights(real, entry):
    """Weights of the first n recorded answers of some questions."""
    result = []
    for case in entry["expected"]:
        counts = list(
            Counter(real.file(case["file"]).answers[case["question"]][: case["n"]]).values()
        )
        result.append(
            {key: case[key] for key in ("file", "question", "n")}
            | {"counts": counts}
            | {
                f"weight_{name}": consistency_weight(counts, name)
                for name in ("distinct", "samples")
            }
        )
    return result


_LLMS = {"gpt35": "date_cot1", "llama2": "llama2_date_cot1", "gpt4": "gpt4_date_cot1"}


def model_switch_run(real, entry):
    """Recorded order; answers are equal if they are after removing spaces."""
    names = entry["params"]["order"].split("_")
    # As the entry says in words: five of each and three of GPT-4, which has no more; three of both
    # when it is one of two.
    few = "gpt4" in names and len(names) == 2
    samples = tuple(3 if few or name == "gpt4" else 5 for name in names)
    pools, gold = real.pools(
        *(_LLMS[name] for name in names), first=samples, same=lambda a: a.replace(" ", "")
    )
    decisions = in_recorded_order(ModelSwitch(samples), pools)
    reached = [int(ledger.rounds.sum()) for ledger in decisions.ledgers]
    return {
        "correct": right(decisions, gold),
        "samples": sum(int(ledger.cots.sum()) for ledger in decisions.ledgers),
        "stopped_at_model": [
            here - beyond for here, beyond in zip(reached, [*reached[1:], 0], strict=True)
        ],
        "questions": len(gold),
    }


def model_switch_replay(real, entry):
    """The reference package's example on its own draws."""
    params = entry["params"]
    pools, gold = real.pools(*entry["inputs"])
    pools = with_tokens(real, pools)
    orders = sampled_orders(pools, params["N"], params["seed"])
    decisions = ModelSwitch(tuple(order.shape[2] for order in orders)).decide(pools, orders)
    return {"correct": right(decisions, gold), "usd": dollars(decisions, pools, params["prices"])}


# -- Mixture of thoughts
# ----------------------------------------------------------------------

_STRONG = "gpt4_date_cot1"


def mixture_of_thoughts(real, entry):
    """A cell of the paper's Table 5: each combination of weak variants, then their means."""
    params = entry["params"]
    rule = {"rule": "verify"} if entry["id"].endswith("Verify") else {"threshold": params["tau"]}
    strong = params.get("strong", _STRONG).split()[0]
    result = []
    for weak in params["combinations"]:
        pools, gold = real.pools(*weak, strong)
        decisions = in_recorded_order(MixtureOfThoughts(**rule), pools)
        result.append([right(decisions, gold), int(decisions.ledgers[-1].rounds.sum())])
    correct, escalated = np.mean(result, axis=0) / len(gold)
    return {"per_combination": result, "accuracy": correct, "escalation": escalated}


def mixture_of_40_samples(real, entry):
    """CoT-1D-Vote over all recorded samples."""
    pools, gold = real.pools(*entry["inputs"])
    result = {"questions": len(gold)}
    for prefix, strict in (("", False), ("strict_", True)):
        method = MixtureOfThoughts(entry["params"]["tau"], samples=pools[0].smallest, strict=strict)
        decisions = in_recorded_order(method, pools)
        result[f"{prefix}correct"] = right(decisions, gold)
        result[f"{prefix}escalated"] = int(decisions.ledgers[-1].rounds.sum())
    return result


def mixture_replay(real, entry):
    """The reference package's example on its own draws; "strict" is its rule, "paper" the right
    one.
    """
    params = entry["params"]
    if "same draws as" in params:  # and its prices
        params = real.golden(params["same draws as"])["params"] | params
    prices, seed = params["prices"], int(params.get("seed", entry["id"].rpartition("seed")[2]))
    pools, gold = real.pools(*entry["inputs"])
    pools = with_tokens(real, pools)
    orders = sampled_orders(pools, params["N"], seed)
    method = MixtureOfThoughts(
        params["tau"],
        samples=orders[0].shape[2],
        strong_samples=orders[1].shape[2],
        strict=params["rule"] == "share > tau",
        no_answer="vote",
    )
    decisions = method.decide(pools, orders)
    return {
        "correct": right(decisions, gold),
        "usd": dollars(decisions, pools, prices),
        "escalated": int(decisions.ledgers[-1].rounds.sum()),
    }
