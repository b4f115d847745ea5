"""The answers that upstreams recorded beside their texts in `../shared/real`, and how often feval's
extraction agrees.

Upstream's side is read without feval's extraction: a stored string counts as an answer only where
it is one and nothing else. Texts without an answer to compare are left out: programs of thought
(upstream ran them), LINC's neurosymbolic formulas (upstream proved them), Game of 24 (no answer
kind) and the probed traces (answers without texts).
"""

import csv
import datetime as dt
import gzip
import io
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from places import DATA

from feval.answers import canonical, decimal_key, extract

LEDGER = DATA / "upstream_answers.toml"

_DATE = (
    r"\s*(\d{1,2}/\d{1,2}/\d{4}|[A-Z][a-z]+\.? \d{1,2}(?:st|nd|rd|th)?,?"
    r" \d{4}|\d{1,2}(?:st|nd|rd|th)? [A-Z][a-z]+,? \d{4})"
)
_ONE_DATE = re.compile(rf"{_DATE}(?:[^\w\n]{{0,3}}\(.*|[^\w\n(]*)(?:\n|$)")


class Pair(NamedTuple):
    """One text with what upstream recorded for it: the canonical answer, and the string as
    stored.
    """

    text: str
    upstream: str | None
    stored: str


class Difference(NamedTuple):
    """A text that feval reads in another way than upstream did."""

    pair: Pair
    ours: str | None


@dataclass(frozen=True)
class Source:
    """A file of texts and recorded answers, with what is known of their agreement.

    Attributes:
        name: below `../shared/real`, without the endings.
        kind: the answer kind that reads its texts.
        texts: how many it holds.
        agreement: of how many feval's answer is upstream's.
        before: the same of the version "feval-answers-1".
        reasons: reason for a difference -> on how many texts.
        labels: of the options of every question; of the kind "choice" only.
    """

    name: str
    kind: str
    texts: int
    agreement: int
    before: int
    reasons: Mapping[str, int]
    labels: tuple[str, ...] = ()

    @property
    def choices(self):
        """(label, text) of the options of every question."""
        return tuple((label, label if len(label) > 1 else "") for label in self.labels)

    def pairs(self, real):
        """Every text of the file with upstream's answer to it."""
        return READERS[self.name.partition("/")[0]](real, self.name)

    def differences(self, real):
        """How many texts there are, and those that feval reads in another way; an answer that is no
        label is none to upstream.
        """
        pairs = list(self.pairs(real))
        read = [Difference(pair, answer(self.kind, pair.text, self.choices)) for pair in pairs]
        if self.labels:
            read = [Difference(pair, ours if ours in self.labels else None) for pair, ours in read]
        return len(pairs), [
            difference for difference in read if difference.ours != difference.pair.upstream
        ]


def reasons():
    """Why feval and an upstream differ: a word -> a sentence."""
    return tomllib.loads(LEDGER.read_text("utf-8"))["reasons"]


def sources():
    """Every file of texts with recorded answers, as the ledger has it."""
    files = tomllib.loads(LEDGER.read_text("utf-8"))["files"]
    return tuple(Source(**{**file, "labels": tuple(file.get("labels", ()))}) for file in files)


def reason(source, difference):
    """The entry of the ledger's reasons that explains a difference."""
    (text, upstream, _), ours = difference
    upstream_name = source.name.partition("/")[0]
    if upstream_name == "mot_cascade" and source.kind == "date":
        return "ran-on" if upstream else "sentence"
    if upstream_name == "esc":
        return "accents" if "the answer is" in text.lower() else "no-phrase"
    if upstream_name == "coupled_mmlu":
        return "several-labels" if ours is None else "first-word"
    if upstream_name == "linc":
        return "contradicted" if ours else "unnamed"
    return {"mot_cascade": "two-quantities", "modelswitch": "formula"}.get(
        upstream_name, "unexplained"
    )


@cache
def answer(kind, text, choices):
    """The key of a text's answer; files repeat texts a lot."""
    return canonical(kind, extract(kind, text, choices), choices)


def mot_cascade(real, name):
    """Results are dates as text, or numbers."""
    for row in json.loads(unpacked(real / f"{name}.json.gz")):
        for text, result in zip(row["generated"], row["results"], strict=True):
            yield Pair(text, date(result) if "/date_" in name else number(result), str(result))


def date(stored):
    """MM/DD/YYYY of a string that is one date, with at most a remark in brackets or further lines
    behind it.
    """
    found = _ONE_DATE.match(stored)
    if found is None:
        return None
    plain = re.sub(r"(?<=\d)(?:st|nd|rd|th)|[.,]", "", found[1])
    for form in ("%m/%d/%Y", "%B %d %Y", "%b %d %Y", "%d %B %Y", "%d %b %Y"):
        try:
            return dt.datetime.strptime(plain, form).strftime("%m/%d/%Y")
        except ValueError:
            continue
    return None


def number(stored):
    """The key of a number, or of a string that is one and nothing else."""
    if isinstance(stored, str):
        plain = stored.replace(",", "")
        return (
            decimal_key(Fraction(plain)) if re.fullmatch(r"-?\d+(?:\.\d+|/\d+)?", plain) else None
        )
    return decimal_key(stored)


def esc(real, name):
    """Nothing is stored; the rule of the authors' code is applied."""
    for line in unpacked(real / f"{name}.jsonl.gz").splitlines():
        for text in json.loads(line)["generated_answer"]:
            stored = re.sub("[^a-z]", "", text.lower().rpartition("the answer is")[2])
            yield Pair(text, stored or None, stored)


def coupled_mmlu(real, name):
    """Nothing is stored; the rule of the authors' code is applied, whose "E" is no answer."""
    content = io.StringIO(unpacked(real / f"{name}.csv.gz"), newline="")
    for cells in list(csv.reader(content))[1:]:
        reply = cells[0] if cells else ""
        word = re.sub(r'[.",);]', "", (reply or "nan").split(" ")[0]).strip()
        letter = word if word in tuple("ABCD") else reply.split("\n")[0].strip()
        yield Pair(reply, letter if letter in tuple("ABCD") else None, letter)


def modelswitch(real, name):
    """Extracted answers are strings such as "1,234" and "57.00"."""
    for row in json.loads(unpacked(real / f"{name}.json.gz")):
        [text], [stored] = row["step_sampling"], row["intermediate_results"]
        yield Pair(text, number(stored), stored)


def linc(real, name):
    """Labels are in a file beside the texts; "Error" is no answer."""
    texts = json.loads(unpacked(real / f"{name}_generations_raw.json.gz"))
    labels = json.loads((real / f"{name}_generations_prc.json").read_text())
    for of_question, stored in zip(texts, labels, strict=True):
        for text, label in zip(of_question, stored, strict=True):
            yield Pair(text, None if label == "Error" else label, label)


def qwen_rm(real, name):
    """Predictions are LaTeX, compared by normal form."""
    for line in unpacked(real / f"{name}.jsonl.gz").splitlines():
        row = json.loads(line)
        for text, prediction in zip(row["code"], row["pred"], strict=True):
            yield Pair(text, canonical("latex", prediction), prediction)


READERS = {
    reader.__name__: reader
    for reader in (mot_cascade, esc, coupled_mmlu, modelswitch, linc, qwen_rm)
}


def unpacked(path):
    """The text of a compressed file."""
    return gzip.decompress(path.read_bytes()).decode()
