r"""Numbers: "#### 42", "The answer is $1,234.50.", "\boxed{3/4}", "5%", "1 1/2", "-5", "7 km/h",
"276 000", "29,00 €", "10k".

Which number of a CoT is its answer (the first rule that finds one):

1. in the answer that the CoT sets apart: in a JSON object, or in the last `\boxed{...}`;
2. after the last answer phrase (`feval.answers.markers`) that holds a number: the first number of
   its sentence, or what an equation there comes to ("5 + 3 = 8" gives 8). After a label ("Answer:")
   the number must stand first, or be the last one of a CoT's last line, because "Answer: She eats 3
   eggs and ..." begins a chain of thought, not an answer;
3. the last number of the text, unless an answer phrase without a number closes it.

A denied number is none: "not 5 but 6" and "6, not 5" are 6, "the answer is not 5" is no answer.

What counts as one number: sign (also U+2212), currency, decimals (.5), fractions (1/2, \frac{1}{2},
½), mixed numbers (1 1/2), powers (2^{10}, 10⁶, 1e3, 3 x 10^5, 2 million, 10k, $2.5M), repeating
decimals (0.\overline{3}, 0.(3)), a full hour (2:00 is 2), and, where an answer has no digits, the
words zero to twenty. Units, currency and the percent sign are dropped: "5%" is 5, as datasets ask
"how many percent". Other clock times, dates (1/2/2020), versions (1.2.3), towers of powers and
other bases (0x1F) are not numbers; neither are digits inside a word (H2O).

An equation is its right-hand side: "n + 1 = 8" is 8. An answer that is an expression, n+1,
\frac{\pi}{6}, 2\sqrt{3}, 5 + 3, is no number, hence no answer: none of its terms is taken for it,
and nothing above it.

Separators are read alike in texts, boxes and bare answers. Thousands: 1,234 - 1,00,000 - 1'234 -
1{,}234 - 1.234,5 - 1.234.567, and blanks of any width before groups of exactly three digits (276
000, 276\,000). A comma is a decimal comma where it cannot separate thousands: 1,5 - 0,25 - 29,00 -
0,125 - 1234,567, but not in lists and pairs without blanks: 1,2,3 - (3,4). "1,500" is 1500 and
"1.500" is 1.5.

The key is exact: an integer as digits, a terminating decimal as such, any other rational as "p/q"
in lowest terms; 0.333 is not 1/3. Only decimals of more than `SIGNIFICANT_DIGITS` significant
digits are rounded (half to even) to so many, digits before the point always kept:
109.00000000000001 is 109, 2^64 stays whole. Fractions written p/q are never rounded; where their
decimal has more digits than that, the key is "p/q". Numbers that need more than `MAX_DIGITS` digits
have no key.
"""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal
from fractions import Fraction
from itertools import islice

from feval.answers import markers
from feval.answers.markers import Match, Segment

MAX_DIGITS = 1000
"""The longest number that has a key: digits before plus behind the point, written out."""

SIGNIFICANT_DIGITS = 12
"""Digits that a decimal keeps: floating-point noise begins at the sixteenth, and sums of prices
carry it further up.
"""

_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
_SCALES = {
    "thousand": "3",
    "million": "6",
    "billion": "9",
    "trillion": "12",
    "k": "3",
    "m": "6",
    "b": "9",
    "-": "0",
}

# One number of a text. Quantifiers are possessive or bounded: a megabyte of digits, commas or
# slashes is read in one pass. Repeated groups are atomic, `(?>(?:..)+)`, instead: Python before
# 3.11.5 loses its place in a possessive group, `(?:..)++`.
_SPACED = r"[1-9]\d{0,2} (?>(?:[ ]\d{3}(?!\d)){1,9})"
_DOTTED = r"[1-9]\d{0,2} (?>(?:\.\d{3}(?!\d)){2,9}) (?!\.\d)"
_PLAIN = rf"""(?: [1-9]\d{{0,2}} (?>(?:[,']\d{{3}}(?!\d))+) (?:\.\d++)?
        | \d\d? (?>(?:,\d\d(?=,)){{1,9}}) ,\d{{3}} (?!,?\d)
        | {_SPACED} (?:[.,]\d++)?
        | (?<!\d,) (?! (?<=[(\[]) \d++,\d++ [)\]] ) \d++,\d++ (?![,.]\d)
        | \d++ (?:\.\d++)?
        | \.\d++ )"""
_EXPONENT = r"(?: [ ]?(?:[-+]?\d++|\{[ ]?[-+]?\d++[ ]?\}|\([-+]?\d++\)) (?![)}]*[ ]?\^) )"
_JUNK = rf"""(?<![\d.,/:]) (?:
        \d++ (?>(?:/\d++){{2,}})                            # a date
      | (?! {_DOTTED} ) \d++ (?>(?:\.\d++){{2,}}) (?!,\d)   # a version
      | \d\d?: (?!00(?![\d:])) \d\d (?>(?::\d\d)*) (?!\d)   # a clock time other than a full hour
      | 0[xXbBoO] [0-9A-Fa-f]++ (?!\w)                      # another base
      | \d[\d.,]*+ [ ]?\^ (?! {_EXPONENT} )              # a power without a value here
    )"""
_NUMBER = re.compile(
    rf"""
    (?= [-.\d$€£¥₹UEGR] ) (?:
    (?P<junk> {_JUNK} )
  | (?<![\w./^]) (?<![\^_][{{(]) (?<!\^[{{(]-)
    (?P<sign> (?<![)\]}}%]) - )?
    (?P<currency> (?: US\$ | USD | EUR | GBP | Rs\.? | [$€£¥₹] ) [ ]? (?P<inner> - )? )?
    (?: (?P<european> \d{{1,3}} (?>(?:\.\d{{3}}){{1,9}}) ,\d++ | {_DOTTED} )
      | (?! {_SPACED} ) (?P<mixed> \d++ ) [ ]{{1,2}} (?:and[ ])? (?P<over> \d++ ) [ ]?/[ ]? (?P<under> \d++ )
      | (?P<top> {_PLAIN} ) [ ]?/[ ]? (?P<bottom> {_PLAIN} )
      | (?P<plain> {_PLAIN} )
        (?: :00
          | [eE] (?P<exponent> [-+]? \d++ ) (?!\w)
          | (?: [ ]?[x*×·][ ]? (?P<base> \d{{1,40}} ) )? [ ]?\^ (?={_EXPONENT}) [ ]?[{{(]? [ ]? (?P<power> [-+]? \d++ ) [ ]?[)}}]?
          | (?: \. | (?<=\.\d) | (?<=\.\d\d) | (?<=\.\d{{3}}) | (?<=\.\d{{4}}) ) \( (?P<repetend> \d{{1,40}} ) \)
          | [ ] (?P<scale> (?i:thousand|million|billion|trillion) ) \b
          | (?P<letter> [kK] | (?(currency) [mM]n? | (?!) ) | (?(currency) [bB]n? | (?!) ) ) (?!\w)
        )?
    )
    (?! [eE][-+]?\d | [ ]?\^ )
    (?: [ ]?% )?
    )
    """,  # noqa: E501  a pattern is read as one line
    re.VERBOSE | re.ASCII,
)

# Alternatives begin with their first character, so that the pattern is tried only where there is
# one; frequent ones come first.
_TEX = re.compile(
    r"""
    \\ (?: [:\ ()\[\]]
        | \$ (?P<dollar> )
        | [,;] (?: (?P<thousand> (?<=\d\\[,;]) (?=\d{3}(?!\d)) ) | )
        | t (?P<times> imes )(?![a-z])
        | c (?P<cdot> dot )(?![a-z])
        | ! (?P<nothing> )
        | % (?P<percent> )
        | [dtc]?frac \s{0,3} \{ \s{0,3} (?P<over>-?[\d.,]{1,40}) \s{0,3} \} \s{0,3} \{ \s{0,3} (?P<under>[\d.,]{1,40}) \s{0,3} \}
        | [dtc]?frac \s{0,3} (?P<o>\d) \s{0,3} (?P<u>\d)
        | (?P<size> left|right )(?![a-z])
        | (?:overline|bar|dot) \s? \{ (?P<repetend> \d{1,40} ) \}
        | (?:text|textbf|textit|textrm|mathrm|mathbf|mbox|boxed|fbox)\s{0,3}\{ )
  | \*\*
  | ~
  | \^ \s?\{?\\circ\}? (?P<degrees> )
  | \{,\} (?: (?P<point> (?<=\d\{,\}) (?= \d{1,2}(?!\d) | \d{4} ) | (?<= (?<!\d)0\{,\} ) (?=\d) ) | (?P<comma> ) )
    """,  # noqa: E501  a pattern is read as one line
    re.VERBOSE,
)
_UNTEX = dict.fromkeys(("nothing", "size", "degrees", "thousand"), "") | {
    "dollar": "$", "percent": "%", "times": "×", "cdot": "×", "point": ".", "comma": ",", None: " ",
}  # fmt: skip
_SEPARATORS = str.maketrans("", "", ",' ")
_TYPOGRAPHY = dict.fromkeys("−‐‒–", "-") | {"⁄": "/", "’": "'"}  # of what NFKC leaves

_VULGAR_FRACTION = re.compile("[¼-¾⅐-⅞]")
_SUPERSCRIPT = re.compile(r"(?<=[\w)\]}])(⁻?[⁰¹²³⁴-⁹]++)(?!⁄)")

_STARS = re.compile(r"\*\*(?<=\d\*\*)(?=\d)")  # Python's power

_DIRECT = re.compile(
    r"[^a-z0-9]*+(?:(?:approximately|approx|about|around|roughly|exactly|equals?|to|only|just|simply|is|total|of|[a-z])"
    r"(?![a-z])[^a-z0-9]*+){0,4}",
    re.IGNORECASE,
)
_FUNCTION = r"\\(?:sqrt|[dtc]?frac|[dt]?binom|log|ln|sin|cos|tan)(?![a-z])"
# of one letter, but for "a" and "I"
_OPERAND = r"[ ]{0,2}(?:\$?\d|[b-zB-HJ-Z](?![A-Za-z])|[({\\√π])"
_BEFORE = re.compile(
    r"""(?: (?:(?<![A-Za-z\\])[A-Za-z]|[\d)}\]π]) [ ]{0,2} (?:[-+*/×·÷<>≤≥]|\\[gln]eq?) [ ]{0,2} [($]?
      | \d[ ]?x[ ]? | √[({ ]? | \.\( | (?<![A-Za-z])[A-Za-z]\( )\Z""",  # noqa: E501  a pattern is read as one line
    re.VERBOSE,
)
_ARGUMENT = re.compile(rf"{_FUNCTION}[ ]?[^=$\n, ]{{0,40}}[ ]?\Z")
_SUBTRACTED = re.compile(r"(?:(?<![A-Za-z])[A-Za-z]|\d)\Z")  # glued to a minus
_AFTER = re.compile(
    rf"""[ ]?[+×·÷]{_OPERAND} | [ ][-*<>]{_OPERAND} | -(?!\d){_OPERAND} | \*[\dA-Za-z(\\]
      | [ ]?/[ ]?(?:[\d({{\\]|[nxyz](?![A-Za-z])) | [ ]?[)}}]{{1,2}}[ ]?[+×·÷/^] | \([\d\\√π] | _[{{\d] | !(?=[ ]?[-+*/×·÷^)}}\\])
      | [ ]?[nxyz](?![A-Za-z]|[ ][a-z]{{2}}) | [abijqruvw](?![A-Za-z]) | [ ]?[√π∞]
      | [ ]?(?:{_FUNCTION}|\\(?:pi|cdots|pm|div|over|choose|alpha|beta|theta|lambda|phi|infty|sum|int)(?![a-z]))
      | [ ]?\\(?:[gln]eq?|[bB]igg?l?)(?![a-z])""",  # noqa: E501  a pattern is read as one line
    re.VERBOSE,
)
_SIDE = re.compile(
    r"(?>(?:[^A-Za-z,;:\n\\]|,(?=\d)|\\[A-Za-z]+|(?<![A-Za-z])[A-Za-z](?![A-Za-z])){0,200})"
)
_FORMULA = re.compile(r"[\d\\^√π∞]|\A\W*[A-Za-z]\W*\Z")  # what holds none of it is words
_TERM = re.compile(r"[^=\d]{0,40}?(?:[-+*/×÷·]|\bof\b|\bx\s?(?=[\d$]))")
_LOOSE_MINUS = re.compile(r"([\s$*(]{0,8}-)[ ]+(?=[$€£¥₹.\d])")
_DENIED = re.compile(r"[^\w\n]{0,8}not\s[^\w\n]{0,4}(?=\d)", re.IGNORECASE)
_NOT = re.compile(r"(?P<instead>,\s|\band\s)?\bnot\s[^\w\n]{0,4}$", re.IGNORECASE)
_WHOLE_KEY = re.compile(r"0|-?[1-9][0-9]{0,17}")
_PRICE = re.compile(r"\$?([1-9][0-9]{0,2}(?:,[0-9]{3}){1,2}|0|[1-9][0-9]{0,8})(?:\.([0-9]{1,3}))?")
_DIGIT = re.compile("[0-9]")
_THROUGH_DIGIT = re.compile(".*[0-9]", re.DOTALL)  # up to the last digit
# x may be a multiplication
_LETTERS = frozenset("abcdefghijklmnopqrstuvwyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
# characters in front of a number that tell whether it is a term, and the argument of a function
_NEAR, _FAR = 10, 60
_LEAD = 7  # characters of a number in front of its first digit: "-US$ -."
_REACH = 80
# up to the last character that no number holds
_APART = re.compile(r".*[cfgjpqvwyz=?!;|\n]", re.DOTALL)
_UNIT = re.compile(r"\s?[A-Za-z°$€£%][A-Za-z° /.$€£]{0,40}")
_HYPHENATED = re.compile(r"[^\W_]+(?:-[^\W_]+)*")


def extract(text: str) -> str | None:
    """Return the number a CoT answers with, as it is written there; `None` where there is none."""
    return markers.answer(text, _of_content, _of_segment, _of_all, _readable) or None


def _of_content(content: str) -> str | None:
    answer = _first(_readable(content))
    return "" if answer and content.rstrip().endswith("!") else answer


def _of_all(plain: str) -> str | None:
    answer = _last(_tight(plain.strip()))
    return _word(plain) if answer is None else answer


def canonical(raw: str) -> str | None:
    """Return the exact key of a raw answer; a raw answer that does not begin with its number is
    read as a text.
    """
    if _WHOLE_KEY.fullmatch(raw):
        # what most answers of an archive are: its import should not take longer than twice its
        # loading
        return raw
    if price := _PRICE.fullmatch(raw):
        places = (price[2] or "").rstrip("0")
        return price[1].replace(",", "") + (f".{places}" if places else "")
    plain = _tight(_readable(raw).strip())
    direct = _direct(plain)
    answer = _equation(plain, direct) if direct is not None else _word(plain) or extract(raw)
    if not answer:
        return None
    match = _search(answer)
    if match is None:
        word = _word(answer)
        return None if word is None else str(_WORDS.index(word))
    return fraction_key(_value(match))


def canonical_gold(gold: str) -> str | None:
    """Return the key of a gold: of what it marks as its answer, else of all of it; `None` where
    that has two numbers.

    Which of two ("3:1", "2 hours 30 minutes") is the answer could only be guessed, and every CoT
    would be judged by the guess.
    """
    content = markers.set_apart(gold)
    if content is None or canonical(content) is None:
        texts = [segment.text for segment in markers.segments(gold)]
        phrases = [text for each in texts for text in (markers.first_sentence(each), each)]
        content = next((text for text in phrases if canonical(text) is not None), gold)
    plain, key = _tight(_readable(content).strip()), canonical(content)
    if (
        key is None
        or key == whole(content)
        or (_direct(plain) and key == whole(plain.rpartition("=")[2]))
    ):
        return key  # one number, or an equation
    matches = (
        match
        for match in _NUMBER.finditer(plain)
        # the unit m^{2}, the base in 101_{2}
        if plain[max(0, match.start() - 2) : match.start()] not in ("^{", "_{")
    )
    numbers = [
        None if match["junk"] else fraction_key(_value(match)) for match in islice(matches, 2)
    ]
    words = {
        str(_WORDS.index(word)) for word in _HYPHENATED.findall(plain.casefold()) if word in _WORDS
    }
    # "18 (eighteen)" is one number
    return key if [*numbers, *words.difference(numbers)] == [key] else None


def whole(raw: str) -> str | None:
    """Return the key of a string that is one number with at most a unit, such as "4,200" or "15
    kmph"; else `None`.
    """
    plain = _readable(raw[:200]).strip().rstrip(".")
    match = _NUMBER.match(plain)
    if (
        match is None
        or match["junk"]
        or match["repetend"]
        or (match["power"] and match["base"] != "10")
    ):
        return None
    if match.end() < len(plain) and not _UNIT.fullmatch(plain, match.end()):
        return None
    return fraction_key(_value(match))


def decimal_key(number: float | Decimal | Fraction) -> str | None:
    """Return the key of a number a source stored: 540 and 540.0 give "540", 0.5 gives "0.5", 1e21
    all its digits.

    A float stands for the shortest decimal that reads back as it; floats and decimals are rounded
    to `SIGNIFICANT_DIGITS` as written ones are. Infinities, not-a-number, and numbers longer than
    `MAX_DIGITS` have no key.
    """
    if not isinstance(number, float | Decimal):
        return fraction_key(Fraction(number))
    digits, _, exponent = str(number).lower().partition("e")
    return (
        fraction_key(_decimal(digits, exponent or "0")) if any(map(str.isdigit, digits)) else None
    )


def fraction_key(value: Fraction | None) -> str | None:
    """Write a rational exactly: digits, a plain decimal, or "p/q"; `None` for `None` and beyond
    `MAX_DIGITS`.

    A decimal that `canonical` would round is written "p/q", so that every key is its own key.
    """
    if value is None:
        return None
    top, bottom = value.numerator, value.denominator
    if max(abs(top), bottom).bit_length() > 4 * MAX_DIGITS:
        return None
    places = _decimal_places(bottom)
    if places == 0:
        key = str(top)
    elif places is None or _rounded(value) != value:
        key = f"{top}/{bottom}"
    else:
        digits = str(abs(top) * 10**places // bottom).rjust(places + 1, "0")
        key = f"{'-' if top < 0 else ''}{digits[:-places]}.{digits[-places:]}"
    return key if sum(map(str.isdigit, key)) <= MAX_DIGITS else None


def _rounded(value: Fraction) -> Fraction:
    """A terminating decimal, half to even, to `SIGNIFICANT_DIGITS`; digits before the point are
    always kept.
    """
    places = _decimal_places(value.denominator) or 0
    digits = len(str(abs(value.numerator) * 10**places // value.denominator))
    surplus = digits - max(SIGNIFICANT_DIGITS, digits - places)
    return round(value, places - surplus) if surplus > 0 else value


def _decimal_places(bottom: int) -> int | None:
    """Digits behind the point of 1/bottom; `None` where they never end."""
    twos = (bottom & -bottom).bit_length() - 1
    rest, fives = bottom >> twos, 0
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    return max(twos, fives) if rest == 1 else None


def _readable(text: str) -> str:
    """Undo typography and TeX as far as numbers need it."""
    if not text.isascii():
        if not unicodedata.is_normalized("NFKC", text):
            text = _SUPERSCRIPT.sub(r"^{\1}", _VULGAR_FRACTION.sub(r" \g<0>", text))
            text = unicodedata.normalize("NFKC", text)
        for character, plain in _TYPOGRAPHY.items():
            text = text.replace(character, plain)
    if "\\" in text or "{,}" in text:
        return _TEX.sub(_untex, text)
    if "**" in text:
        text = _STARS.sub("^", text).replace("**", " ")
    return text.replace("~", " ")


def _untex(match: Match) -> str:
    kind = match.lastgroup
    plain = _UNTEX.get(kind)
    if plain is not None:
        return plain
    if kind == "repetend":
        return f"({match[kind]})"
    over, under = (match["over"], match["under"]) if kind == "under" else (match["o"], match["u"])
    glued = match.string[match.start() - 1 : match.start()].isdigit()
    return f"{' ' if glued else ''}{over}/{under}"


def _tight(text: str) -> str:
    """Join a leading minus to its number; elsewhere in a text "- 5" is a bullet or a
    subtraction.
    """
    return _LOOSE_MINUS.sub(r"\1", text, count=1) if _LOOSE_MINUS.match(text) else text


def _first(content: str) -> str | None:
    """The number of a short text that is all answer: its first, or what its equation comes to."""
    content = markers.affirmed(_tight(content))
    if _DENIED.match(content):
        return None
    match = _search(content)
    return (
        _equation(content, match)
        if match
        else _word(content) or ("" if _FORMULA.search(content) else None)
    )


def _of_segment(segment: Segment) -> str | None:
    text = markers.affirmed(_tight(segment.text))
    if _DENIED.match(text):
        return None
    direct = _direct(text)
    if direct is not None:
        return _equation(text, direct)
    if segment.verb:
        return _first(markers.first_sentence(text)) or _first(text)
    if not segment.final:
        return "" if _DIGIT.search(text) and _SIDE.fullmatch(text) else None
    return _word(text) or _last(text)


def _direct(text: str) -> Match | None:
    """The number a text begins with, markup and words such as "about" or "x =" aside."""
    match = _search(text)
    return match if match and _DIRECT.fullmatch(text, 0, match.start()) else None


def _equation(text: str, first: Match) -> str:
    """The first number of a text, or the right-hand side of its equation; empty where that is an
    expression.
    """
    sentence = text[: first.end()] + markers.first_sentence(text[first.end() :])
    equals = sentence.find("=", first.end())
    if equals >= 0 and (through_digit := _THROUGH_DIGIT.match(sentence, equals)):
        equals = sentence.rfind("=", equals, through_digit.end())
    else:
        equals = -1
    # mathematics in front of it, in brackets that are closed, and no words
    if equals >= 0 and (
        _TERM.match(sentence, first.end())
        or (
            sentence.count("(", 0, equals) == sentence.count(")", 0, equals)
            and _SIDE.fullmatch(sentence, 0, equals)
        )
    ):
        result = _search(sentence, equals + 1)
        return "" if result is None else _number(sentence, result)
    return _number(text, first)


def _number(text: str, match: Match) -> str:
    """The number of a match as it is written; empty where it is a term of an expression, such as
    the 1 of n+1.
    """
    start = match.start()
    is_term = _AFTER.match(text, match.end()) or (start and _is_term(text, start, match["sign"]))
    return "" if is_term else match[0].strip()


def _is_term(text: str, start: int, sign: str | None) -> bool:
    """Whether what stands in front of a number makes it a term of an expression, or the argument of
    a function.
    """
    is_tex = text.find("\\", max(0, start - _FAR), start) >= 0
    lead = text[max(0, start - 4) : start]
    # behind a word, as most numbers are
    if not is_tex and lead[-1] == " " and lead.rstrip(" ")[-1:] in _LETTERS:
        return False
    return (
        _BEFORE.search(text, max(0, start - _NEAR), start) is not None
        or (is_tex and _ARGUMENT.search(text, max(0, start - _FAR), start) is not None)
        or (sign is not None and _SUBTRACTED.search(lead) is not None)
    )


def _search(text: str, start: int = 0) -> Match | None:
    digit = _DIGIT.search(text, start)
    if digit is None:
        return None
    begin = max(start, digit.start() - _LEAD)
    return next((match for match in _NUMBER.finditer(text, begin) if not match["junk"]), None)


def _last(text: str) -> str | None:
    """The last number of a text that is not denied; numbers do not span lines, so that few lines
    are searched.
    """
    through_digit = _THROUGH_DIGIT.match(text)
    if through_digit is None:
        return None
    digit = through_digit.end() - 1
    end = text.find("\n", digit)
    end = len(text) if end < 0 else end
    near = _APART.match(text, max(0, digit - _REACH), digit)
    start = near.end() if near else text.rfind("\n", 0, end) + 1
    while end > 0:
        numbers = [match for match in _NUMBER.finditer(text, start, end) if not match["junk"]]
        if numbers:
            *others, last = numbers
            denied = _NOT.search(text, max(0, last.start() - 12), last.start())
            if denied is None:
                return _number(text, last)
            if not near:  # the one before where that is said instead of the last: "6, not 5"
                return others[-1][0].strip() if others and denied["instead"] else None
        if not near:
            end = start - 1
        near, start = None, text.rfind("\n", 0, end) + 1
    return None


def _word(text: str) -> str | None:
    bare = text.strip(" \t\r\n.*_$\"'").casefold()
    return bare if bare in _WORDS else None


def _value(match: Match) -> Fraction | None:
    negative = bool(match["sign"]) != bool(match["inner"])
    if match["mixed"]:
        units, part = _decimal(match["mixed"]), _ratio(match["over"], match["under"])
        # "2 7/3" is none
        value = units + part if units is not None and part is not None and part < 1 else None
    elif match["top"]:
        value = _ratio(match["top"], match["bottom"])
    elif match["european"]:
        value = _decimal(match["european"].replace(".", "").replace(",", "."))
    elif match["repetend"]:
        # the last digits repeat: a sixth is 0.1(6)
        places, repetend = len(match["plain"].partition(".")[2]), match["repetend"]
        repeated = Fraction(int(repetend), (10 ** len(repetend) - 1) * 10**places)
        value = Fraction(match["plain"]) + repeated
    elif match["power"]:
        value = _power(match["plain"], match["base"], match["power"])
    else:
        scale = match["scale"] or (match["letter"] or "-")[0]  # of "million" or "k"
        value = _decimal(_point(match["plain"]), match["exponent"] or _SCALES[scale.lower()])
    return -value if value is not None and negative else value


def _point(written: str) -> str:
    """Digits with a decimal point, without separators: a comma separates thousands only where it
    can.
    """
    head, _, tail = written.partition(",")
    if tail.isdigit() and (len(tail) != 3 or len(head) > 3 or head.startswith("0")):
        return f"{head.translate(_SEPARATORS)}.{tail}"
    return written.translate(_SEPARATORS)


def _decimal(digits: str, exponent: str = "0") -> Fraction | None:
    """A plain decimal times a power of ten, rounded; without ever building a number that is too
    long.
    """
    if len(digits) > MAX_DIGITS + 1 or len(exponent) > 6 or abs(int(exponent)) > MAX_DIGITS:
        return None
    value = Fraction(digits)
    if exponent != "0":
        value *= Fraction(10) ** int(exponent)
    return _rounded(value) if len(digits) > SIGNIFICANT_DIGITS else value


def _ratio(top: str, bottom: str) -> Fraction | None:
    numerator, denominator = _decimal(_point(top)), _decimal(_point(bottom))
    return numerator / denominator if numerator is not None and denominator else None


def _power(plain: str, base: str | None, exponent: str) -> Fraction | None:
    """A power, or a number times a power; without ever building a number that is too long."""
    factor, number = (
        (_decimal(_point(plain)), _decimal(base))
        if base
        else (Fraction(1), _decimal(_point(plain)))
    )
    if factor is None or number is None or len(exponent) > 6 or (number == 0 and int(exponent) < 0):
        return None
    size = max(abs(number.numerator), number.denominator).bit_length()
    if size * abs(int(exponent)) > 8 * MAX_DIGITS and size > 1:
        return None
    value = factor * number ** int(exponent)
    return _rounded(value) if base == "10" and len(plain) > SIGNIFICANT_DIGITS else value
