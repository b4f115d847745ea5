"""How often feval reads what upstreams recorded beside their texts, and what an older commit read;
and how fast.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import islice
from random import Random

from benchmarks.measure import ROOT, Goal, Workspace, cpu_ms

REAL = ROOT.parent / "shared" / "real"
TEXTS = 2_000  # per kind, for the speed
LONG = 300  # texts of 300 words, of each shape

OPTIONS = (
    ("A", "the red house"),
    ("B", "a blue bicycle"),
    ("C", "the cat"),
    ("D", "twelve of them"),
    ("E", "none of these"),
)
NUMBERS = ("42", "1,234", "$18.50", "7", "3/4", "120")
WORDS = (
    "so we first find how many apples the farmer sold in the morning and then subtract what she"
    " gave to her neighbour because each basket holds a dozen and costs three dollars at the market"
    " which means that the total is more than she planned before"
)
PLAIN = ("12", "3 * 4 = 12", "$1,200", "7.5", "40%", "2/3")
MARKUP = (
    "**12**",
    "\\( x = 12 \\)",
    "5 \\times 4 = 20",
    "\\$1,200",
    "7.5",
    "40%",
    "3 apples",
    "12 dollars",
)


def goals(workspace: Workspace) -> list[Goal]:  # noqa: ARG001  every benchmark is called alike
    """One line per file of `../shared/real`: the agreement that the ledger states is the least;
    then texts per CPU second.
    """
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from upstream_answers import sources

    if not REAL.is_dir():
        raise FileNotFoundError(
            f"The extraction benchmark reads recorded answers from {REAL}, which is not there."
        )
    goals = []
    for source in sources():
        texts, differences = source.differences(REAL)
        note = ", ".join(f"{count} {reason}" for reason, count in source.reasons.items())
        goals.append(
            Goal(
                source.name[-58:],
                texts - len(differences),
                source.agreement,
                "texts",
                at_least=True,
                note=f"of {texts}; {note}",
            )
        )
    return goals + _unchanged() + _speed() + _long_texts()


def _unchanged() -> list[Goal]:
    """Files of real strings, and blocks of a thousand fuzzed texts, in which every kind reads what
    the reference read.
    """
    from extraction_texts import BLOCKS, DIGESTS, TEXTS, digest, fuzzed, strings

    reference = json.loads(DIGESTS.read_text("utf-8"))
    real = sum(digest(texts) == reference["real"][name] for name, texts in strings(REAL))
    blocks = sum(digest(fuzzed(block)) == reference["fuzzed"][block] for block in range(BLOCKS))
    note = f"all kinds, as commit {reference['commit'][:12]} ({reference['version']})"
    return [
        Goal(
            "real files with the same answers",
            real,
            len(reference["real"]),
            "files",
            at_least=True,
            note=note,
        ),
        Goal(
            "fuzzed texts with the same answers",
            blocks * TEXTS,
            BLOCKS * TEXTS,
            "texts",
            at_least=True,
            note=note,
        ),
    ]


def _long_texts() -> list[Goal]:
    """Texts of 300 words whose key is read per CPU second, by where the answer stands."""
    from feval.answers import canonical, extract

    def option(draw: Random) -> tuple[str, str]:
        return draw.choice(OPTIONS)

    def number(draw: Random) -> str:
        return draw.choice(NUMBERS)

    shapes: dict[tuple[str, str], tuple[tuple[str, ...], str, Callable[[Random], str]]] = {
        ("number", "behind a phrase"): (PLAIN, "\n", lambda draw: f"The answer is {number(draw)}."),
        ("number", "the last of one paragraph"): (
            PLAIN,
            " ",
            lambda draw: f"She has {number(draw)} apples.",
        ),
        ("number", "boxed, TeX and Markdown"): (
            MARKUP,
            "\n\n",
            lambda draw: f"Thus: $\\boxed{{{number(draw)}}}$.",
        ),
        ("number", "the last, TeX and Markdown"): (
            MARKUP,
            "\n\n",
            lambda draw: f"She has **{number(draw)}** apples.",
        ),
        ("choice", "label behind a phrase"): (
            PLAIN,
            "\n",
            lambda draw: f"The answer is ({option(draw)[0]}).",
        ),
        ("choice", "option behind a phrase"): (
            PLAIN,
            " ",
            lambda draw: f"The answer is {option(draw)[1]}.",
        ),
        ("choice", "label, TeX and Markdown"): (
            MARKUP,
            "\n\n",
            lambda draw: f"**Answer:** {option(draw)[0]}",
        ),
        ("choice", "label at the end"): (
            PLAIN,
            "\n",
            lambda draw: f"Therefore, {option(draw)[0]}.",
        ),
        ("choice", "option in the last line"): (
            PLAIN,
            "\n",
            lambda draw: f"So it must be {option(draw)[1]}.",
        ),
        ("choice", "option at the end of one paragraph"): (
            PLAIN,
            " ",
            lambda draw: f"So it must be {option(draw)[1]}.",
        ),
    }

    def read(kind: str, texts: list[str]) -> None:
        choices = OPTIONS if kind == "choice" else ()
        for text in texts:  # a copy, so that nothing is kept from the run before
            assert (
                canonical(kind, extract(kind, text[:-1] + text[-1:], choices), choices) is not None
            )

    texts = {
        name: [_long_text(Random(place), *shape) for place in range(LONG)]
        for name, shape in shapes.items()
    }
    ms = cpu_ms(
        {" ".join(name): lambda name=name: read(name[0], texts[name]) for name in shapes}, pick=min
    )  # type: ignore[misc]
    return [
        Goal(
            f"extraction: {kind}, {where}",
            1e3 * LONG / ms[f"{kind} {where}"],
            25_000,
            "texts/s",
            at_least=True,
            note=f"300 words, {_mean(texts[kind, where])} characters",
        )
        for kind, where in shapes
    ]


def _long_text(
    draw: Random, figures: tuple[str, ...], separator: str, conclusion: Callable[[Random], str]
) -> str:
    """A text of about 300 words: sentences with a figure each, and a conclusion."""
    sentences: list[str] = []
    while sum(len(sentence.split()) for sentence in sentences) < 290:
        words = draw.choices(WORDS.split(), k=draw.randint(8, 14))
        words.insert(draw.randint(1, len(words)), draw.choice(figures))
        sentences.append(f"{' '.join(words).capitalize()}.")
    return separator.join([*sentences, conclusion(draw)])


def _speed() -> list[Goal]:
    """Texts whose key is read per CPU second, by answer kind."""
    from upstream_answers import Source, sources

    from feval.answers import canonical, extract

    def read(source: Source, texts: list[str]) -> None:
        for text in texts:
            canonical(source.kind, extract(source.kind, text, source.choices), source.choices)

    by_kind = {source.kind: source for source in sources()}
    texts = {
        kind: [pair.text for pair in islice(source.pairs(REAL), TEXTS)]
        for kind, source in by_kind.items()
    }
    ms = cpu_ms(
        {kind: lambda kind=kind: read(by_kind[kind], texts[kind]) for kind in by_kind}, pick=min
    )  # type: ignore[misc]
    return [
        Goal(
            f"extraction: {kind}",
            1e3 * len(texts[kind]) / ms[kind],
            None,
            "texts/s",
            note=f"{_mean(texts[kind])} characters",
        )
        for kind in by_kind
    ]


def _mean(texts: list[str]) -> int:
    return sum(map(len, texts)) // len(texts)
