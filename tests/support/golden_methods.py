"""The table from the id of a reference value to the call that computes it.

`GOLDENS` maps prefixes of ids to functions `(Real, entry) -> computed`, where the computed value
has the shape of the entry's "expected"; the longest prefix counts. Entries that no prefix claims
fail the test, so that new ones are never passed over.
"""

import gzip
import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from dealt import in_recorded_order
from golden_cascades import (
    mixture_of_40_samples,
    mixture_of_thoughts,
    mixture_replay,
    model_switch_replay,
    model_switch_run,
    model_switch_weights,
)
from golden_confidence import best_of_n, confidence_weighted, deep_confidence
from golden_difficulty import dsc
from golden_votes import VOTES
from real_files import letters

from feval.methods import SelfConsistency
from feval.replay.pools import Pool

Entry = dict[str, Any]


@dataclass(frozen=True)
class Questions:
    """One recorded file: per question the text, the gold, and the texts and answers of the
    samples.
    """

    texts: list[str]
    golds: list[str | None]
    samples: list[list[str]]
    answers: list[list[str | None]]


class Real:
    """The recordings under `shared/real`, by the names the goldens give them; read without feval's
    importers.
    """

    def __init__(self, shared):
        self.folder = shared / "real"
        self.file = cache(self._file)

    def golden(self, name):
        """Another reference value, by its id."""
        entries = json.loads((self.folder.parent / "golden/methods.json").read_text("utf-8"))[
            "goldens"
        ]
        return next(entry for entry in entries if entry["id"] == name)

    def _file(self, name):
        if name == "last_letters_gpt35":
            return self._last_letters()
        folder, stem = {
            "gpt4_date_cot1": ("GPT4_result", "date_cot1"),
            "gpt4_date_cot2": ("GPT4_result", "date_cot2"),
            "llama2_date_cot1": ("llama2_13B_result", "date_cot1"),
        }.get(name, ("GPT3_result", name.replace("_t04", "_t=0.4").replace("_t08", "_t=0.8")))
        path = self.folder / "mot_cascade" / folder / f"{stem}.json.gz"
        entries = json.loads(gzip.decompress(path.read_bytes()))
        golds = [e["answer"] for e in entries]
        if name.startswith("llama2"):
            golds = self.file("date_cot1").golds
        return Questions(
            [e["question"] for e in entries],
            golds,
            [e["generated"] for e in entries],
            [e["results"] for e in entries],
        )

    def _last_letters(self):
        path = self.folder / "esc/GPT3.5_result/last_letters/T0.7.jsonl.gz"
        entries = [
            json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()
        ]
        samples = [e["generated_answer"] for e in entries]
        answers = [[letters(text) for text in texts] for texts in samples]
        return Questions(
            [e["question"] for e in entries], [e["answer"] for e in entries], samples, answers
        )

    def pools(self, *names, first=None, same=str):
        """Pools of several files with shared answer codes, and the gold codes.

        Args:
            names: of files with the same questions.
            first: how many recorded samples of each count; all for `None`.
            same: answers are equal if this makes them equal.
        """
        files = [self.file(name) for name in names]
        codes = [{} for _ in files[0].golds]
        pools = []
        for place, (name, file) in enumerate(zip(names, files, strict=True)):
            answers = [a if first is None else a[: first[place]] for a in file.answers]
            pools.append(_pool(name, answers, codes, same))
        gold = [
            codes[q].get(same(g), -1) if g is not None else -1 for q, g in enumerate(files[0].golds)
        ]
        return pools, np.array(gold, np.int64)


def _pool(name, answers, codes, same):
    size = max(map(len, answers))
    table = np.full((len(answers), size), -2, np.int16)
    for row, own in enumerate(answers):
        known = codes[row]
        table[row, : len(own)] = [
            -1 if a is None else known.setdefault(same(str(a)), len(known)) for a in own
        ]
    sizes = np.array([len(own) for own in answers])
    ones = np.ones_like(table, np.int32)
    # Candidates of later files are added later: 2 ** 14 is more than any question has.
    return Pool(
        name, table, ones, 0 * sizes, sizes, np.zeros_like(table, np.uint8), np.full(len(answers),
        1 << 14),
        np.arange(len(answers), dtype=np.uint64),
    )  # fmt: skip


def correct(decided, gold):
    """Questions answered with the gold."""
    return int(((decided.answer[0] == gold) & (gold >= 0)).sum())


def samples(decided):
    """CoTs of all LLMs and questions together."""
    return sum(int(ledger.cots.sum()) for ledger in decided.ledgers)


# -- self-consistency
# -------------------------------------------------------------------------------------------------


def sc_exact(real, entry):
    pools, gold = real.pools(*entry["inputs"])
    return {"accuracy": SelfConsistency(entry["params"]["N"]).exact(pools[0], gold).right.mean()}


def sc_prefix(real, entry):
    pools, gold = real.pools(*entry["inputs"])
    return {
        "correct": correct(in_recorded_order(SelfConsistency(entry["params"]["N"]), pools), gold),
        "questions": len(gold),
    }


def sc_none(real, entry):
    [pool], gold = real.pools(*entry["inputs"])
    result = {}
    for rule in ("drop", "vote"):
        method = SelfConsistency(entry["params"]["N"], rule)
        result[rule] = method.exact(pool, gold).right.mean()
        result[f"prefix_{rule}_correct"] = correct(in_recorded_order(method, [pool]), gold)
    return result


GOLDENS = {
    "sc.exact.": sc_exact,
    "sc.prefix.": sc_prefix,
    "sc.none.": sc_none,
    "dsc.": dsc,
    "bon.": best_of_n,
    "cisc.": confidence_weighted,
    "deepconf.": deep_confidence,
    "mot.date.": mixture_of_thoughts,
    "mot.date40.": mixture_of_40_samples,
    "feval.replay.mot": mixture_replay,
    "ms.weights": model_switch_weights,
    "ms.run.": model_switch_run,
    "feval.replay.model_switch": model_switch_replay,
    **VOTES,
}
"""Prefix of ids -> what computes the expected value."""
