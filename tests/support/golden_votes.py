"""Reference values of votes: self-consistency under seeds, ESC, Adaptive-Consistency, tokens and
dollars.
"""

import random
import re
from collections import Counter
from fractions import Fraction

import golden_methods as table
import numpy as np
from dealt import in_recorded_order

from feval.cards.billing import Price, billed_prompts, usd
from feval.cards.names import LLMType
from feval.cards.prices import price_list
from feval.cards.tokens import count_words
from feval.estimators import stopping_criteria as criteria
from feval.estimators.early_stopping import expected_samples
from feval.methods import AdaptiveConsistency, EarlyStopping, SelfConsistency
from feval.methods.protocol import drawn


def decided(method, pool, orders):
    return method.decide([pool], [orders])


def right(method, pool, gold, orders):
    """[R] correct answers."""
    return ((decided(method, pool, orders).answer == gold) & (gold >= 0)).sum(axis=1)


def seeded_samples(pool, n, seed, *, whole_in_order=False):
    """[1, Q, n] what `random.sample` takes of every question after one seed."""
    random.seed(seed)
    places = [range(int(size)) for size in pool.sizes]
    taken = [list(p) if whole_in_order and n >= len(p) else random.sample(p, n) for p in places]
    return np.array([taken], np.uint16)


# -- ESC
# ----------------------------------------------------------------------


def esc(real, entry):
    [pool], gold = real.pools(*entry["inputs"])
    window = EarlyStopping(entry["params"]["window"], entry["params"]["budget"], "window")
    whole = EarlyStopping(window.window, window.budget)
    in_order = in_recorded_order(window, [pool])
    result = {
        "recorded_correct": table.correct(in_order, gold),
        "recorded_correct_vote_over_all": table.correct(in_recorded_order(whole, [pool]), gold),
        "recorded_samples": table.samples(in_order),
        "questions": len(gold),
    }
    for key in entry["expected"]:
        if shuffled := re.fullmatch(r"shuffled_seed(\d+)_x(\d+)_mean_acc", key):
            seed, passes = map(int, shuffled.groups())
            orders = shuffles(pool, passes, seed)
            result[key] = 100 * right(window, pool, gold, orders).mean() / len(gold)
            result[key.replace("acc", "num")] = decided(window, pool, orders).ledgers[0].cots.mean()
    if "exact_accuracy" in entry["expected"]:
        exact = window.exact(pool, gold)
        result |= {"exact_accuracy": exact.right.mean(), "exact_mean_samples": exact.cots.mean()}
    return result


def shuffles(pool, passes, seed):
    """[passes, Q, S] `random.shuffle` of a fresh list for every question, pass by pass after one
    seed.
    """
    random.seed(seed)
    orders = np.empty((passes, *pool.codes.shape), np.uint16)
    for of_pass in orders:
        for row, size in enumerate(pool.sizes.tolist()):
            places = list(range(size))
            random.shuffle(places)
            of_pass[row, :size] = places
    return orders


def sc_seeded(real, entry):
    [pool], gold = real.pools(*entry["inputs"])
    n, seed = entry["params"]["N"], entry["params"]["seed"]
    return {
        "correct": int(right(SelfConsistency(n), pool, gold, seeded_samples(pool, n, seed))[0]),
        "questions": len(gold),
    }


def control_scheme(real, entry):
    [pool], _ = real.pools(*entry["inputs"])
    window, budget = entry["params"]["window"], entry["params"]["budget"]
    codes = drawn(pool.codes, seeded_samples(pool, window, entry["params"].get("seed", 0)))[0]
    first = (codes[:, :, None] == np.arange(codes.max() + 1)).sum(axis=1)
    return {"expected_samples": expected_samples(first, window=window, budget=budget).mean()}


# -- Adaptive-Consistency
# ----------------------------------------------------------------------


def adaptive(entry, pool):
    """The authors' evaluation takes a failed extraction for the answer "None"."""
    name, _, top = entry["params"]["criterion"].partition("_top")
    return AdaptiveConsistency(
        name,
        entry["params"]["threshold"],
        entry["params"].get("budget", min(40, pool.smallest)),
        "vote",
        int(top) if top else None,
    )


def ac_run(real, entry):
    [pool], gold = real.pools(*entry["inputs"])
    in_order = in_recorded_order(adaptive(entry, pool), [pool])
    return {
        "correct": table.correct(in_order, gold),
        "samples": table.samples(in_order),
        "questions": len(gold),
    }


def ac_exact(real, entry):
    [pool], gold = real.pools(*entry["inputs"])
    exact = adaptive(entry, pool).exact(pool, gold)
    return {"accuracy": exact.right.mean(), "mean_samples": exact.cots.mean()}


def ac_prefixes(real, entry):
    return [prefix(real, entry["params"], part) for part in entry["expected"]]


def prefix(real, thresholds, part):
    counts = list(Counter(real.file(part["file"]).answers[part["question"]][: part["n"]]).values())
    votes, top = tuple(sorted(counts, reverse=True)), thresholds["dirichlet_top_k"]
    result = {name: part[name] for name in ("file", "question", "n")} | {
        "counts": counts,
        "beta": float(criteria.beta_confidence(votes)),
        "dirichlet": float(criteria.dirichlet_confidence(votes)),
        f"dirichlet_top{top}": float(criteria.dirichlet_confidence(votes[:top])),
        "entropy": least_entropy(votes),
        "majority": float(criteria.majority_share(votes, part["n"])),
    }
    for name, some in (
        *((n, None) for n in ("beta", "dirichlet", "entropy", "majority")),
        ("dirichlet", top),
    ):
        rule = criteria.Criterion(name, Fraction(str(thresholds[name])), 40, some)
        label = name if some is None else f"{name}_top{some}"
        result[f"{label}_stop"] = rule.stops(votes, part["n"])
        in_floats = rule.stop_mask(np.array([votes]), part["n"])
        assert in_floats.tolist() == [result[f"{label}_stop"]], (label, votes)
    return result


def least_entropy(votes):
    """The least threshold at which the entropy stops: the normalised entropy."""
    low, high = Fraction(0), Fraction(1)
    for _ in range(50):
        middle = (low + high) / 2
        stops = criteria.Criterion("entropy", middle, 40).stops(votes, 2)
        low, high = (low, middle) if stops else (middle, high)
    return float(high)


def asc_baseline(real, entry):
    return baseline(real, entry, AdaptiveConsistency, "threshold")


def esc_baseline(real, entry):
    return baseline(real, entry, EarlyStopping, "window")


def baseline(real, entry, method, *names):
    """The method's defaults, where the entry has no parameters; no more CoTs than there are."""
    [pool], gold = real.pools(*entry["inputs"])
    fields = {
        name: value for name, value in entry.get("params", {}).items() if name in (*names, "budget")
    }
    in_order = in_recorded_order(method(**{"budget": min(40, pool.smallest)} | fields), [pool])
    return {"correct": table.correct(in_order, gold), "samples": table.samples(in_order)}


# -- tokens and dollars
# ----------------------------------------------------------------------


def tokens_of(texts):
    return [count_words(text) for text in texts]


def cost_tokens(real, entry):
    counted = [tokens_of(texts) for texts in real.file(entry["inputs"][0]).samples]
    return {"tokens": sum(map(sum, counted)), "first_question": counted[0]}


def cost_probe(real, entry):
    return [[text, count_words(text)] for text, _ in entry["expected"]]


def cost_prices(real, entry):
    prices = {name: price_list("2025-06-02").price(LLMType[name]) for name in entry["expected"]}
    return {
        name: [price.input_usd_per_mtok, price.output_usd_per_mtok]
        for name, price in prices.items()
    }


def billed(real, entry, orders):
    """Self-consistency on some draws, billed by equation 1: the question is the request."""
    [pool], gold = real.pools(*entry["inputs"])
    file, n = real.file(entry["inputs"][0]), entry["params"]["N"]
    taken = orders(pool)
    prompts = np.array(tokens_of(file.texts))
    spent = np.array([tokens_of(texts) for texts in file.samples])
    ledger = decided(SelfConsistency(n), pool, taken).ledgers[0]
    output = drawn(spent, taken)[0].sum(axis=1)
    requests = billed_prompts("once", ledger.rounds[0], ledger.cots[0])
    return {
        "correct": int(right(SelfConsistency(n), pool, gold, taken)[0]),
        "usd": usd(Price(*entry["params"]["prices"]), requests * prompts, output).sum(),
        "tokens": int((prompts + output).sum()),
    }


def cost_first(real, entry):
    n = entry["params"]["N"]
    return billed(
        real,
        entry,
        lambda pool: np.broadcast_to(np.arange(n, dtype=np.uint16), (1, len(pool.sizes), n)),
    )


def replay_sc(real, entry):
    n, seed = entry["params"]["N"], entry["params"]["seed"]
    return billed(real, entry, lambda pool: seeded_samples(pool, n, seed, whole_in_order=True))


VOTES = {
    "esc.": esc,
    "esc.sc_seed": sc_seeded,
    "esc.control_scheme.": control_scheme,
    "ac.run.": ac_run,
    "ac.exact.": ac_exact,
    "ac.prefixes": ac_prefixes,
    "dsc.asc_baseline.": asc_baseline,
    "dsc.esc_baseline.": esc_baseline,
    "cost.tokens.": cost_tokens,
    "cost.token_probe": cost_probe,
    "cost.prices": cost_prices,
    "cost.first_n.": cost_first,
    "feval.replay.sc": replay_sc,
}
"""Prefix of ids -> what computes the expected value."""
