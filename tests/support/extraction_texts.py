"""Texts for showing that a faster extraction reads what a slower one read: every real string, and
seeded fuzzed texts.

`tests/data/extraction_digests.json` holds digests of their answers as an older commit read them,
which it names. It is made anew only when answers change on purpose (a new `EXTRACTOR_VERSION`),
from a checkout of the commit that is the reference:

    PYTHONPATH=CHECKOUT python tests/support/extraction_texts.py COMMIT
"""

import csv
import gzip
import hashlib
import io
import json
import sys
from random import Random

from places import DATA, ROOT, read_data

from feval.answers import EXTRACTOR_VERSION, KINDS, canonical, extract
from feval.answers.thoughts import split

REAL = ROOT.parent / "shared" / "real"
DIGESTS = DATA / "extraction_digests.json"
READ = sorted(set(KINDS) - {"verbatim"})
BLOCKS = 64
TEXTS = 1_000  # per block

_PIECES = read_data("extraction_pieces.json")
CHOICES = [tuple(map(tuple, choices)) for choices in _PIECES["choices"]]
_SWAPS = dict(
    zip("skiIS -:A5", "\u017f\u212a\u0130\u0131\u1e9e\u00a0\u2212\uff1a\uff21\uff15", strict=True)
)
_GROUPS = [
    _PIECES[name]
    for name in "words words names numbers numbers tex dates markers options ends odd".split()  # noqa: SIM905  shorter
]
_ANSWERS = (
    *map(_PIECES.__getitem__, ("numbers", "options", "dates", "tex")),
    ("yajo", "y-a-j-o", '"yajo"', "'y', 'a'", "mango", "the mango", ""),
)


def fuzzed(block):
    """Return the texts of one block: thoughts, sentences, lists, marked answers, then damage."""
    draw = Random(f"extraction {block}")  # noqa: S311  values of a test
    return [_text(draw) for _ in range(TEXTS)]


def _text(draw):
    shape = draw.randrange(12)
    if shape == 0:
        return _repeated(draw)
    parts = [_sentence(draw) for _ in range(draw.choice((0, 0, 1, 2, 3, 6, 12)))]
    if shape == 1:
        some = draw.sample(_PIECES["thoughts"], 2)
        parts.insert(0, some[0] + _sentence(draw) + some[1])
    if shape > 2:
        parts.append(_conclusion(draw))
    if shape > 9:
        parts.append(_sentence(draw))
    text = draw.choice(("", " ", "\n", "\n", "\n\n", ". ")).join(parts)
    return _damaged(draw, text) if draw.randrange(3) == 0 else text


def _sentence(draw):
    words = [
        draw.choice(draw.choice(_GROUPS) if draw.randrange(3) == 0 else _PIECES["words"])
        for _ in range(draw.randint(1, 12))
    ]
    return (
        draw.choice(("", "", "- ", "* ", "**Step 1:** ", "1. ", "(A) ", "A. ", "# "))
        + " ".join(words)
        + draw.choice(_PIECES["ends"])
    )


def _conclusion(draw):
    kind = draw.randrange(8)
    answer = draw.choice(draw.choice(_ANSWERS))
    if kind == 0:
        return draw.choice(_PIECES["objects"])
    if kind == 1:
        return f"\\boxed{{{answer}}}" + draw.choice(_PIECES["ends"])
    if kind == 2:
        return f"{draw.choice(_PIECES['words'])} {answer}"
    blank = draw.choice((" ", " ", " ", "", "\n", " **", " $", " not ", " about ", " x = ", " ("))
    return draw.choice(_PIECES["markers"]) + blank + answer + draw.choice(_PIECES["ends"])


def _repeated(draw):
    pieces = [draw.choice(draw.choice(_GROUPS)) for _ in range(draw.randint(1, 3))]
    return draw.choice(("", " ", "\n")).join(pieces * draw.choice((1, 2, 5, 40))) + draw.choice(
        draw.choice(_ANSWERS)
    )


def _damaged(draw, text):
    """Change case, swap letters for alike ones, delete, repeat and insert."""
    for _ in range(draw.randint(1, 4)):
        place = draw.randint(0, len(text))
        end = min(len(text), place + draw.choice((1, 1, 3, 30)))
        part, how = text[place:end], draw.randrange(7)
        if how == 0:
            part = part.swapcase()
        elif how == 1:
            part = "".join(_SWAPS.get(one, one) for one in part)
        elif how == 2:
            part = ""
        elif how == 3:
            part = part * draw.choice((2, 3, 9))
        else:
            part += draw.choice(_PIECES["odd"] if how == 4 else draw.choice(_GROUPS))
        text = text[:place] + part + text[end:]
    return text


def strings(real=REAL):
    """Yield the name of every real file and its distinct strings, in order of appearance."""
    csv.field_size_limit(1 << 30)
    for path in sorted(real.rglob("*")):
        name = path.name.removesuffix(".gz")
        if path.is_file() and name.endswith((".csv", ".json", ".jsonl")):
            text = (
                gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            ).decode()
            yield (
                path.relative_to(real).as_posix(),
                list(dict.fromkeys(_leaves(_parsed(name, text)))),
            )


def _parsed(name, text):
    if name.endswith(".csv"):
        return list(csv.reader(io.StringIO(text, newline="")))
    return (
        [json.loads(line) for line in text.splitlines() if line]
        if name.endswith(".jsonl")
        else json.loads(text)
    )


def _leaves(value):
    if isinstance(value, str):
        yield value
    for inner in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from _leaves(inner)


def digest(texts):
    """Return the SHA-256 of what every kind reads in some texts, and of their thoughts; the choice
    sets take turns.
    """
    total = hashlib.sha256()
    for place, text in enumerate(texts):
        total.update(json.dumps(answers(text, CHOICES[place % len(CHOICES)])).encode())
    return total.hexdigest()


def answers(text, choices):
    """Return, for every kind, the raw answer, its normal form, that of the text as a stored answer;
    then the split thoughts.
    """
    read = []
    for kind in READ:
        raw = extract(kind, text, choices)
        read.append([raw, canonical(kind, raw, choices), canonical(kind, text, choices)])
    parts = split(text)
    return [
        *read,
        parts.reply,
        parts.reasoning,
        [(m.reply_offset, m.opening, m.length, m.closing) for m in parts.marks],
    ]


def main(commit):
    """Write the digests of the `feval` that is imported."""
    reference = {
        "version": EXTRACTOR_VERSION,
        "commit": commit,
        "real": {name: digest(texts) for name, texts in strings()},
        "fuzzed": [digest(fuzzed(block)) for block in range(BLOCKS)],
    }
    DIGESTS.write_text(json.dumps(reference, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
