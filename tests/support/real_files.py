"""Answer codes straight from the files of `../shared/real`, by a reader that shares nothing with
feval's importers.
"""

import gzip
import json
import re
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.recording.arrays import Probes
from feval.replay.pools import ArrayChannels, Pool

Codes = npt.NDArray[np.integer[Any]]


def golden(shared, prefix="", file="methods.json"):
    """Reference values whose id starts with a prefix, by id."""
    entries = json.loads((shared / "golden" / file).read_text("utf-8"))
    entries = entries if isinstance(entries, list) else entries["goldens"]
    return {entry["id"]: entry for entry in entries if entry["id"].startswith(prefix)}


def real_codes(shared, name):
    """Codes [Q, S] and gold [Q] of a recording named as in the goldens: "last_letters_gpt35",
    "date_cot1_40", "date_pot1".
    """
    if name == "last_letters_gpt35":
        text = gzip.decompress(
            (shared / "real/esc/GPT3.5_result/last_letters/T0.7.jsonl.gz").read_bytes()
        ).decode()
        entries = [json.loads(line) for line in text.splitlines()]
        return encoded(
            [([letters(t) for t in e["generated_answer"]], e["answer"]) for e in entries]
        )
    path = shared / f"real/mot_cascade/GPT3_result/{name}.json.gz"
    entries = json.loads(gzip.decompress(path.read_bytes()))
    return encoded([(e["results"], e["answer"]) for e in entries])


def probed_store(shared, name):
    """A published store of probed traces, as its authors read it: pool, golds, and the answers of
    each question by code.
    """
    entries = json.loads(gzip.decompress((shared / f"real/probed/{name}.json.gz").read_bytes()))
    tables = []
    shown, finals, tokens, starts = [], [], [], [0]
    for entry in entries:
        places = {}
        for answers, length, final in entry["each_branch"]:
            shown += [places.setdefault(answer, len(places)) for answer in answers]
            finals.append(places.setdefault(final, len(places)))
            tokens.append(length)
            starts.append(len(shown))
        places.setdefault(entry["gold_answer"], len(places))
        tables.append(list(places))
    [interval] = {entry["probe_freq"] for entry in entries}
    shape = (len(entries), len(finals) // len(entries))
    offsets = [interval * (j + 1) for start, stop in pairwise(starts) for j in range(stop - start)]
    arrays = np.array(starts), np.array(offsets, np.uint32), np.array(shown, np.int16)
    channels = ArrayChannels(probes=Probes(interval, *arrays, None, None, shape))
    codes, lengths = (
        np.array(finals, np.int16).reshape(shape),
        np.array(tokens, np.uint32).reshape(shape),
    )
    sizes, keys = np.full(shape[0], shape[1]), np.arange(shape[0], dtype=np.uint64)
    candidates = np.array([len(table) for table in tables])
    pool = Pool(
        name,
        codes,
        lengths,
        sizes * 0 - 1,
        sizes,
        codes.astype(np.uint8) * 0,
        candidates,
        keys,
        channels,
    )
    golds = [
        table.index(entry["gold_answer"]) for table, entry in zip(tables, entries, strict=True)
    ]
    return pool, golds, tables


def letters(text):
    return re.sub("[^a-zA-Z]", "", text.lower().split("the answer is")[-1])


def encoded(questions):
    codes = np.full((len(questions), max(len(answers) for answers, _ in questions)), -2, np.int16)
    gold = np.full(len(questions), -1, np.int16)
    for row, (answers, right) in enumerate(questions):
        places = {
            answer: code
            for code, answer in enumerate(dict.fromkeys(a for a in answers if a is not None))
        }
        codes[row, : len(answers)] = [-1 if a is None else places[a] for a in answers]
        gold[row] = places.get(right, -1)
    return codes, gold
