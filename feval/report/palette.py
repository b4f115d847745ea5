"""What tells lines apart, in pictures and on pages: twelve colours, markers and dashes, and how
they are combined.

Of twelve lines no two share colour or marker, and all are solid. Every further dozen moves markers
by one and dashes by two: of 72 lines no two share more than one of the three.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from feval.comparison import MethodCurve

Look = tuple[int, int, int]
"""Which colour, marker and dashes a line has."""

# Two lines' colours differ by CIEDE2000 of 10 or more, as seen by a normal eye and by protanopes,
# deuteranopes and tritanopes (simulated by Machado et al. 2009), and stand out from the paper by a
# contrast of 3 or more (WCAG 1.4.11).
COLOURS = ("#0072B2", "#D55E00", "#009B7C", "#C17EAC", "#6290FF", "#909659",
           "#2A14E0", "#995845", "#7C153C", "#554502", "#273E74", "#000000")  # fmt: skip
COLOURS_ON_DARK = ("#19B3FF", "#FC8370", "#32FFB6", "#F8AED2", "#008980", "#779800",
                   "#A312E4", "#826415", "#CB0966", "#BAF20C", "#8F7BB5", "#FFFFFF")  # fmt: skip

MARKERS = {
    "o": "M-4.6 0a4.6 4.6 0 1 0 9.2 0a4.6 4.6 0 1 0-9.2 0Z",
    "s": "M-4.2-4.2H4.2V4.2H-4.2Z",
    "^": "M0-5.4L5 3.9H-5Z",
    "D": "M0-5.8L5.2 0L0 5.8L-5.2 0Z",
    "v": "M0 5.4L5-3.9H-5Z",
    "P": "M-1.7-5H1.7V-1.7H5V1.7H1.7V5H-1.7V1.7H-5V-1.7H-1.7Z",
    "X": (
        "M-4.8-2.6L-2.6-4.8L0-2.2L2.6-4.8L4.8-2.6L2.2 0L4.8 2.6L2.6 4.8L0 2.2L-2.6 4.8L-4.8"
        " 2.6L-2.2 0Z"
    ),
    "<": "M-5.4 0L3.9-5V5Z",
    ">": "M5.4 0L-3.9 5V-5Z",
    "p": "M0-5.4L5.1-1.7L3.2 4.4H-3.2L-5.1-1.7Z",
    "*": "M0-6.4L1.6-2.2L6.1-2L2.6.8L3.8 5.2L0 2.7L-3.8 5.2L-2.6.8L-6.1-2L-1.6-2.2Z",
    "h": "M-2.6-4.6H2.6L5.2 0L2.6 4.6H-2.6L-5.2 0Z",
}
"""Matplotlib's name of a marker -> its shape on a page, an SVG path."""

DASHES: tuple[tuple[float, ...], ...] = (
    (), (9, 2), (9, 2, 2, 2), (4, 2), (9, 2, 2, 2, 2, 2), (2.5, 1.5), (15, 3),
    (6, 2, 6, 2, 2, 2), (15, 2, 4, 2), (4, 2, 2, 2), (4, 2, 4, 2, 1.5, 2), (2.5, 1.5, 2.5, 4),
)  # fmt: skip
"""Lengths of strokes and gaps, in widths of the line."""


CEILINGS: tuple[tuple[float, ...], ...] = ((5, 2), (1, 1.6), (6, 2, 1, 2), (3, 1, 1, 1, 1, 1))
"""Dashes of pass@n, whose lines are thin; the first two are those of all other thin lines."""


def places(position: int) -> Look:
    """Return which colour, marker and dashes a line has; of the first 144 no two have the same
    three.
    """
    many = len(COLOURS)
    dozen, place = divmod(position, many)
    return place, (place + dozen) % many, 2 * dozen % many


def method_parts(label: str, llms: Sequence[str]) -> tuple[str, str]:
    """Return a method and its LLMs as legends have them."""
    joined = " > ".join(llms)
    return label.removesuffix(f" ({joined})"), joined


class CurveLook(NamedTuple):
    """How a curve of a comparison looks.

    Attributes:
        look: its own.
        method: without its LLMs.
        llms: in one text.
        name: in a legend; empty where its method and its LLMs are named, once each.
    """

    look: Look
    method: str
    llms: str
    name: str


def curve_looks(every: Sequence[MethodCurve], drawn: Sequence[MethodCurve]) -> list[CurveLook]:
    """Return how each drawn curve looks: where LLMs and methods both vary, colours are LLMs,
    markers and dashes methods; else colours are what varies. A method or LLM looks the same in all
    pictures of a comparison in which the same varies.
    """
    known, parts = (
        [method_parts(curve.label, curve.entry.llms) for curve in curves]
        for curves in (every, drawn)
    )
    methods, llms = (list(dict.fromkeys(names)) for names in zip(*known, strict=True))
    own, of = Counter(method for method, _ in parts), {llm for _, llm in parts}
    alone = {curve.entry.llms for curve in drawn if len(curve.entry.llms) == 1}
    both = min(len(own), len(of)) > 1 and max(len(own), len(of)) < len(parts) == len({*parts})
    found = []
    for curve, (method, llm) in zip(drawn, parts, strict=True):
        look, name = places(every.index(curve)), curve.label
        if both:
            place = methods.index(method) % len(DASHES)
            look = llms.index(llm) % len(COLOURS), place, place
            name = method * (own[method] == 1)
        elif len(alone) < 2 and len(own) == len(parts):
            look, name = places(methods.index(method)), method
        elif len(own) == 1 and len(of) == len(parts):
            look, name = places(llms.index(llm)), llm
        found.append(CurveLook(look, method, llm, name))
    return found


def ceiling_looks(
    ceilings: Sequence[MethodCurve], curves: Sequence[CurveLook]
) -> list[tuple[int | None, tuple[float, ...]]]:
    """Return place of the colour, or `None` for grey, and dashes of pass@n of LLMs: each has the
    colour of its LLM if one is; else, or where several have none, dashes tell them apart.
    """
    colours = {each.llms: each.look[0] for each in curves if each.name in ("", each.llms)}
    alike = len(ceilings) == 1 or all(curve.label in colours for curve in ceilings)
    return [
        (colours.get(curve.label), CEILINGS[0 if alike else i % len(CEILINGS)])
        for i, curve in enumerate(ceilings)
    ]


def page_dashes(pattern: Sequence[float]) -> str:
    """Return dashes as an attribute of SVG elements."""
    return " ".join(f"{2 * length:g}" for length in pattern) or "none"


def page_shapes() -> dict[str, list[str]]:
    """Return markers and dashes as attributes of SVG elements."""
    return {"markers": list(MARKERS.values()), "dashes": [page_dashes(each) for each in DASHES]}


def page_colours() -> str:
    """Return CSS that names the colours --c0 to --c11, for light, dark and printed pages."""
    light, dark = (
        ":root { " + " ".join(f"--c{i}: {colour};" for i, colour in enumerate(colours)) + " }"
        for colours in (COLOURS, COLOURS_ON_DARK)
    )
    return f"{light}\n@media screen and (prefers-color-scheme: dark) {{ {dark} }}\n"
