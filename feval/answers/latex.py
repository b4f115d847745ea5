r"""LaTeX answers, such as "\frac{1}{2}", "(3,\infty)", "x^2+1", a matrix, or "\text{Evelyn}".

Which mathematics of a CoT is its answer (the first rule that finds some): what the CoT sets apart,
in a JSON object or the last `\boxed{...}`; what follows the last answer phrase
(`feval.answers.markers`): its first formula, or its sentence without one; the last formula of the
text; its last number (`feval.answers.number`). "not 5 but 6" is 6. A formula stands in dollars,
`\(...\)` or `\[...\]`; several joined by a comma, "and" or "or" are one. A sentence that closes the
CoT without saying anything is no answer.

The key is written by a normaliser, not by algebra; what it does, in this order:

1. typography to TeX (x² to x^2, √ to \sqrt, − to -, π to \pi, ½ to \frac12, ...); formula
   delimiters and a closing full stop off;
2. sizes, spaces and styles off (\left, \right, \big, \, \! \quad, \displaystyle, \mathrm, ...);
   \dfrac, \tfrac, \cfrac to \frac, bmatrix and its like to pmatrix, other synonyms to one (\leq to
   \le, \lbrace to \{, ...);
3. degrees, percent and currency signs off; a unit at the end off, in \text or \mbox or bare
   ("15\mbox{ cm}^2", "12 inches");
4. braces to one form: \frac12 to \frac{1}{2}, \sqrt2 to \sqrt{2}, x^{2} to x^2; a/b of two whole
   numbers to \frac{a}{b}; \frac{-a}{b} to -\frac{a}{b}; needless braces and blanks off; a row break
   that lost one of its two backslashes mended;
5. "x =", "f(x) =" and "x \in" in front off, where that is the only equation, or all are of that x
   ("x=1, x=2" is "1,2"); "and" and "or" are commas;
6. the whole a number (also \frac{a}{b}, a\frac{b}{c}, 3\times10^5, 10{,}080): its exact key as in
   `feval.answers.number`. A bare comma separates thousands or answers ("1,5" is 1 and 5), a comma
   in braces may be a decimal one (1{,}5 is 1.5); the whole a word: folded; the whole one capital
   letter in brackets: the letter.

Matrices, tuples, intervals and sets stay as they are, spacing apart. An answer of more than
`LONGEST` characters has no key.

Where a recording has the equality of math-verify, pairs of keys are compared further, see
`feval.answers.equality`; `comparable` says which pairs are worth it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from feval.answers import markers, number
from feval.answers.markers import Segment
from feval.answers.text import LONGEST, fold

_FORMULA = re.compile(
    r"\\\[ (?P<display> (?:[^\\]|\\(?![()\[\]])){1,1000}? ) \\\]"
    r"| \\\( (?P<inline> (?:[^\\]|\\(?![()\[\]])){1,1000}? ) \\\)"
    r"| (?<!\\) \$\$? (?P<dollars> (?>(?:[^$\\]|\\.){1,1000}) ) \$\$?",
    re.DOTALL | re.VERBOSE,
)
_ROUNDS = 8
# characters of a line behind "Answer:" that is an answer and not the beginning of a chain of
# thought
_SHORT = 60

_TYPOGRAPHY = str.maketrans(
    {
        "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": "/", "⁄": "/", "∕": "/",
        "√": r"\sqrt ", "±": r"\pm ",
        "π": r"\pi ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ", "∞": r"\infty ",
        "°": r"^\circ ",
        "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "≤": r"\le ", "≥": r"\ge ",
        "≠": r"\ne ",
        "½": r"\frac12", "¼": r"\frac14", "¾": r"\frac34", "⅓": r"\frac13", "⅔": r"\frac23",
        "⅕": r"\frac15", "⅛": r"\frac18",
    }
    | {character: f"^{digit}" for digit, character in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
    | dict.fromkeys("−‐‑‒–﹣－", "-")
    | dict.fromkeys("\u00a0\u202f\u2009\u200b", " ")
)  # fmt: skip
_DROPPED = frozenset({
    r"\left", r"\right", r"\big", r"\Big", r"\bigg", r"\Bigg", r"\bigl", r"\bigr", r"\Bigl",
    r"\Bigr", r"\biggl", r"\biggr",
    r"\,", r"\;", r"\:", r"\!", r"\>", r"\quad", r"\qquad", "~", r"\displaystyle", r"\textstyle",
    r"\limits", r"\nolimits",
    r"\mathrm", r"\mathbf", r"\mathit", r"\mathsf", r"\boldsymbol", r"\bm", r"\rm", r"\bf", r"\it",
    r"\boxed", r"\fbox",
    r"\degree", r"\%", "%", r"\$", "$", "€", "£", "¥",
})  # fmt: skip
_SYNONYMS = {
    r"\dfrac": r"\frac", r"\tfrac": r"\frac", r"\cfrac": r"\frac", r"\leq": r"\le", r"\geq": r"\ge",
    r"\neq": r"\ne",
    r"\lbrace": r"\{", r"\rbrace": r"\}", r"\lbrack": "[", r"\rbrack": "]", r"\lparen": "(",
    r"\rparen": ")", r"\lvert": "|",
    r"\rvert": "|", r"\vert": "|", r"\mid": "|", r"\varnothing": r"\emptyset",
    r"\to": r"\rightarrow", r"\cr": r"\\",
    "*": r"\cdot", r"\ast": r"\cdot", r"\infin": r"\infty", r"\imath": "i",
}  # fmt: skip
_BLANK = "\\ "
_ROW_BREAK = "\\\\"
_CONTROL_WORD = re.compile(r"\\[A-Za-z]+")
_FACTOR_END = re.compile(r"[0-9A-Za-z)}]")
_FACTOR_START = re.compile(r"[A-Za-z(]|\\(?:sqrt|pi)")
_ARGUMENTS = {
    r"\frac": 2, r"\binom": 2, r"\sqrt": 1, "^": 1, "_": 1, r"\overline": 1, r"\mathbb": 1,
    r"\mathcal": 1, r"\vec": 1,
    r"\begin": 1, r"\end": 1, r"\operatorname": 1,
}  # fmt: skip

_TOKEN = re.compile(
    r"\\text\{[^{}]*\}|\\sqrt\s?\[[^\[\]{}]{1,20}\]|\\[A-Za-z]+|\\.|\s+|.", re.DOTALL
)
_MATRIX = re.compile(r"\\(begin|end)\s?\{\s?(?:[bBvV]|small)matrix\s?\}")
_TEXT = re.compile(
    r"\\(?:text(?:bf|it|rm|sf)?|[mh]box|mathrm(?=\s?\{[\s\\,]{0,3}[A-Za-z/ .]{2}))\s?\{([^{}]*)\}"
)
_UNIT = (
    "degrees?|inch(?:es)?|in|ft|feet|foot|yards?|yd|miles?|mi|mph|kmph|km/h|m/s|meters?|metres?|cm|mm|km|kg|g|grams?|lbs?|pounds?|oz|"
    "ounces?|liters?|litres?|ml|gallons?|seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?|months?|years?|dollars?|cents?|"
    "percent|units?|sq|square|cubic|radians?|people|students|apples|points|ways"
)
_BARE_UNIT = re.compile(
    rf"(?<=[\d}}])(?:\s(?:{_UNIT})\.?){{1,3}}(?:\s?\^\s?\{{?[23]\}}?)?$", re.IGNORECASE
)
_TEXT_UNIT = re.compile(r"(?<=[^\s\\])\s{0,3}\\text\{[^{}\d]*\}(?:\s?\^\s?\{?[23]\}?)?$")
_WHOLE_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_WORDS = re.compile(r"(?=[A-Za-z' ]{0,40}?[A-Za-z]{3})[A-Za-z][A-Za-z' ]{2,}")
_OPTION = re.compile(r"\(([A-Z])\)")
_ASSIGNED = re.compile(
    r"(?:[A-Za-z]|\\[a-z]{2,10}|[A-Za-z]\([A-Za-z]\)|\([A-Za-z](?:,[A-Za-z]){1,5}\)|\\text\{[^{}]*\})(?:=|\\in(?![A-Za-z]))(?=.)"
)
_SAME_UNKNOWN = re.compile(r"([A-Za-z]=)[^=,]+(?:,\1[^=,]+)+")
_CONJUNCTION = re.compile(r"\s{0,2}(?:,\s{0,2}(?:and|or)?|and|or)\s{0,2}")
_NEGATIVE_FRACTION = re.compile(r"(?:(?<=[(\[,{&=;|\\])|^)\\frac\{-(\d+|[A-Za-z])\}")
_RATIO = re.compile(r"(?<![\w.^/)\]])(\d{1,40})/(\d{1,40})(?![\w.{^/!]|,\d{3}(?!\d))")
_WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_NUMERAL = re.compile(
    rf"-?(?:{_WHOLE}(?:\.\d*)?|\.\d+)(?:\\times10\^(?:\{{[-+]?\d{{1,6}}\}}|\d))?"
    rf"|-?\d*\\frac\{{{_WHOLE}(?:\.\d+)?\}}\{{{_WHOLE}(?:\.\d+)?\}}|-?{_WHOLE}/{_WHOLE}"
)
_EXACT = re.compile(r"-?\d+(?:\.\d+|/\d+)?")
_BASE = re.compile(r"\d_(\d|\{\d+\})")
_LONGEST_COMPARED = 300
_REWRITES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(?<!\\)(?:\$|\\[()\[\]])", " "),
        (r"\\(?:left|right)\s?\.", ""),
        (r"(?<=\S)\s?,?\s?\\text\{(?:and|or)\}\s?(?=\S)", ","),
        (r"\s?\^\s?(?:\{\s?\\circ\s?\}|\\circ(?![A-Za-z]))", ""),
        (r"(?<!\d)0\{,\}(?=\d)", "0."),
        (r"(?<=\d)\s?(?:,\s?\\!|\{,\}|\\,|\s)\s?(?=\d{3}(?!\d))", ""),
        (r"(?<=\d)\{,\}(?=\d)", "."),
        (r"(?<=\d)\s?(?:\s|and\s)(\d{1,9})/(\d{1,9})(?![\w.])", r"\\frac{\1}{\2}"),
        (r"(frac)\s?(\d)\s(?=\d)", r"\1 \2"),
        (r"(?<=\d)\s(?=\d)", r"\\ "),
        (r"(?<![\\A-Za-z])\\?sqrt\s?\(([^()]{1,100})\)", r"\\sqrt{\1}"),
        (
            r"(?<![\\A-Za-z])(?=(?:sqrt(?=\s?\{)|(?:pi|sin|cos|tan|cot|sec|csc|log|ln)(?![A-Za-z])))",
            r"\\",
        ),
        (r"(?<![\\A-Za-z])(?:infinity|inf)(?![A-Za-z])", r"\\infty "),
        (r"([\^_])\s?(-\d{1,20}|\d{2,20})", r"\1{\2}"),
    )
)


def extract(text: str) -> str | None:
    """Return the mathematics a CoT answers with, as it is written there; `None` where there is
    none.
    """
    return markers.answer(
        text,
        lambda content: content.strip() if _normal(content) else None,
        _of_segment,
        lambda cot: formulas[-1] if (formulas := _formulas(cot)) else number.extract(cot),
    )


def _of_segment(segment: Segment) -> str | None:
    text = markers.affirmed(segment.text)
    formulas = _formulas(text)
    answer = formulas[0] if formulas else markers.first_sentence(text).strip() or text
    is_answer = segment.verb or segment.final or formulas or len(text) <= _SHORT
    return answer if is_answer and _normal(answer) else None


def canonical(raw: str) -> str | None:
    """Return the normal form of a raw answer; `None` where nothing is left, or it is too long to be
    an answer.

    A raw answer that is a text with its answer marked is read as a text.
    """
    if len(raw) > LONGEST:
        return None
    for _ in range(_ROUNDS):
        marked = extract(raw) if markers.ANSWER_PHRASE.search(raw) or "\\boxed" in raw else raw
        normal = _normal(marked or "")
        if normal == raw:
            break
        raw = normal
    else:
        return None
    return normal if 0 < len(normal) <= LONGEST else None


def _normal(raw: str) -> str:
    """One round of the normaliser; a second one changes broken TeX only."""
    return _normalised_once(raw) if len(raw) <= LONGEST else _normalised(raw)


def _normalised(raw: str) -> str:
    text = _plain_text(raw)
    whole = _WHOLE_TEXT.fullmatch(text)
    if whole:
        text = whole[1].strip(" .")
    if _WORDS.fullmatch(text):
        return fold(" ".join(text.split()))
    tokens = _braced([_SYNONYMS.get(token, token) for token in _tokens(text)])
    normal = _joined(_simplified(tokens)).rstrip(".,;:")
    normal = _RATIO.sub(r"\\frac{\1}{\2}", _NEGATIVE_FRACTION.sub(r"-\\frac{\1}", normal))
    if _SAME_UNKNOWN.fullmatch(normal):
        normal = normal.replace(normal[:2], "")
    if normal.count("=") + len(re.findall(r"\\in(?![A-Za-z])", normal)) == 1:
        normal = _ASSIGNED.sub("", normal, count=1) if _ASSIGNED.match(normal) else normal
    normal = normal.removeprefix("+")
    key = number.whole(normal) if _NUMERAL.fullmatch(normal) else None
    return key or _OPTION.sub(r"\1", normal)


# extraction and key ask for the same, and so do equal answers
_normalised_once = lru_cache(maxsize=256)(_normalised)


def comparable(left: str, right: str) -> bool:
    """Whether algebra could find two different keys equal.

    Two exact numbers differ for good (math-verify rounds); words and capital letters are not
    products of letters; two numerals of different bases differ (math-verify looks past the base); a
    key of more than 300 characters is not worth the time.
    """
    if max(len(left), len(right)) > _LONGEST_COMPARED or (
        _EXACT.fullmatch(left) and _EXACT.fullmatch(right)
    ):
        return False
    bases, others = _BASE.findall(left), _BASE.findall(right)
    if bases and others and bases != others:
        return False
    return not any(
        (_WORDS.fullmatch(side) and len(side) > 3) or side.isupper() for side in (left, right)
    )


def _plain_text(raw: str) -> str:
    """Steps 1 and 3: typography, delimiters, texts and units."""
    text = " ".join(_MATRIX.sub(r"\\\1{pmatrix}", raw.translate(_TYPOGRAPHY)).split())
    text = _TEXT.sub(lambda match: f"\\text{{{match[1].strip()}}}", text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = " ".join(text.split()).strip(" *").rstrip(" .,;:*").lstrip(" =:,")
    return _BARE_UNIT.sub("", _TEXT_UNIT.sub("", text))


def _tokens(text: str) -> list[str]:
    """Step 2: TeX's tokens without those that only set the type; a row break with one backslash
    gets its second.
    """
    tokens: list[str] = []
    for piece in _TOKEN.findall(text):
        if re.fullmatch(r"\\[-0-9]", piece):
            tokens += [_ROW_BREAK, piece[1]]
        elif piece.strip() and piece not in _DROPPED:
            tokens.append(piece)
    return tokens


def _braced(tokens: list[str]) -> list[str]:
    """Step 4: put every argument in braces and take all other braces away."""
    out: list[str] = []
    missing = [0]  # per open level: how many arguments its last command still takes
    levels: list[
        str
        # opened by a brace: "argument" or "plain"; by a command that is an argument itself:
        # "implied"
    ] = []

    def close() -> None:
        while True:
            missing.pop()
            if levels.pop() != "plain":
                out.append("}")
            if not levels or levels[-1] != "implied" or missing[-1]:
                return

    for piece in tokens:
        arguments = 1 if piece.startswith(r"\sqrt") else _ARGUMENTS.get(piece, 0)
        if piece == "}":
            while levels and levels[-1] == "implied":
                close()
            if levels:
                close()
        elif missing[-1] and piece != _BLANK:
            missing[-1] -= 1
            missing.append(arguments)
            levels.append("argument" if piece == "{" else "implied")
            out.append("{")
            if piece != "{":
                out.append(piece)
                if not arguments:
                    close()
        elif piece == "{":
            missing.append(0)
            levels.append("plain")
        else:
            missing[-1] = arguments
            out.append(piece)
    while levels:
        close()
    return out


def _simplified(tokens: list[str]) -> list[str]:
    r"""Step 4: x^{2} to x^2, 2\cdot x to 2x, no row break before the end of a matrix, blanks
    between digits only.
    """
    out: list[str] = []
    for piece, after in zip(tokens, [*tokens, ""][1:], strict=True):
        before = out[-1] if out else ""
        if (
            (piece == r"\cdot" and _FACTOR_END.fullmatch(before) and _FACTOR_START.fullmatch(after))
            or (piece == _ROW_BREAK and after == r"\end")
            or (piece == _BLANK and not (before.isdigit() and after.isdigit()))
        ):
            continue
        out.append(piece)
        if (
            piece == "}"
            and len(out) > 3
            and out[-3] == "{"
            and out[-4] in ("^", "_")
            and out[-2] not in "{}"
        ):
            out[-3:] = [out[-2]]
    return out


def _joined(tokens: list[str]) -> str:
    """TeX without blanks, but for the one that ends a control word before a letter."""
    written: list[str] = []
    for piece in tokens:
        if written and piece[0].isalpha() and _CONTROL_WORD.fullmatch(written[-1]):
            written.append(" ")
        written.append(piece)
    return "".join(written)


def _formulas(text: str) -> list[str]:
    """The formulas of a text; those that a comma, "and" or "or" joins are one."""
    joined: list[list[str]] = []
    end = 0
    for formula in _FORMULA.finditer(text):
        content = (formula["display"] or formula["inline"] or formula["dollars"] or "").strip()
        if content.count("=") > 1:  # what a chain "a = b = c" comes to
            content = content.rpartition("=")[2].strip()
        if joined and _CONJUNCTION.fullmatch(text, end, formula.start()):
            joined[-1].append(content)
        else:
            joined.append([content])
        end = formula.end()
    return [", ".join(contents) for contents in joined]
