"""Reference values of DSC: two rankings, two readings of the judged questions."""

from dataclasses import replace

import numpy as np
from dealt import in_recorded_order, scores_of

from feval.methods import DifficultyAdaptive
from feval.replay.pools import ArrayChannels


def ranked(pool, difficulty):
    """The pool with a recorded score per question, on its first CoT."""
    values = np.full(pool.codes.shape, np.nan)
    values[:, 0] = difficulty
    scores = scores_of(values, tokens=-1, name="rank")
    return replace(pool, channels=ArrayChannels({"rank": scores}))


def difficulty(real, name, ranking):
    file = real.file(name)
    if ranking == "distinct":
        return [len({a for a in answers if a is not None}) for answers in file.answers]
    assert ranking == "length"
    return [len(text) for text in file.texts]


def dsc(real, entry):
    from golden_methods import correct, samples

    [name] = entry["inputs"]
    ranking = entry["id"].split(".")[2]
    [pool], gold = real.pools(name)
    pool = ranked(pool, difficulty(real, name, ranking))
    fields = {
        "judged": entry["params"].get("k", 32),
        "neighbours": entry["params"].get("m", 16),
        "window": entry["params"].get("p", 4),
        "budget": entry["params"].get("budget", 40),
        "judged_are": "hard" if entry["id"].endswith("figure3") else "easy",
    }
    result = {}
    for part, preallocate in (("partition_only", False), ("full", True)):
        method = DifficultyAdaptive(**fields, preallocate=preallocate)
        decided = in_recorded_order(method, [pool])
        rounds = int(decided.ledgers[0].rounds.sum())
        result[part] = {
            "correct": correct(decided, gold),
            "samples": samples(decided),
            "rounds": rounds,
        }
        order = np.arange(fields["budget"], dtype=np.uint16)[None, None].repeat(len(gold), 1)
        allocation = method.allocation([pool], [order])
    return result | {
        "easy": int(allocation.easy.sum()),
        "preallocated_sum": int(allocation.first.sum()),
    }
