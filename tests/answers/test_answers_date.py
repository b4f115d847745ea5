import datetime as dt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feval.answers import canonical, extract


@pytest.mark.parametrize(
    "raw",
    [
        "04/21/2021", "4/21/2021", "04-21-2021", "2021-04-21", "2021/4/21", "2021-04-21T10:00:00",
        "April 21, 2021",
        "Apr. 21st, 2021", "apr 21 2021", "21 April 2021", "21st of April, 2021",
        "Wednesday, April 21, 2021",
        "**04/21/2021**.", "04/21/2021\n\n# part 2", "A: 04/21/2021", "The date is 04/21/2021",
        "If today is 4/20/2021, then tomorrow is 4/21/2021.",
    ],
)  # fmt: skip
def test_spellings_of_one_date_have_one_key(raw):
    assert canonical("date", raw) == "04/21/2021"


@pytest.mark.parametrize(
    "raw", ["02/30/2021", "02/29/2015", "25/12/2021", "4/21/21", "0000-01-01", "13/13/2013"]
)
def test_what_is_no_date_of_the_calendar_or_ambiguous_is_extracted_but_has_no_key(raw):
    assert extract("date", f"It was 01/01/2021.\nA: {raw}") == raw
    assert canonical("date", raw) is None


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "2021",
        "May 2021",
        "08/31",
        "04/21/20211",
        "April 211, 2021",
        "mayor 5, 2021",
        "1/2/2020/3",
    ],
)
def test_what_does_not_look_like_a_date_is_no_answer(raw):
    assert extract("date", raw) is None
    assert canonical("date", raw) is None


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        (
            "Explain: Yesterday was April 30, 2021, so today is May 1, 2021.\nA: 05/01/2021",
            "05/01/2021",
        ),
        ("The answer is 05/01/2021, since yesterday was 04/30/2021.", "05/01/2021"),
        ("Answer: Today is 05/01/2021. Tomorrow is 05/02/2021.", "05/02/2021"),
        ("\\boxed{05/01/2021} comes after 04/30/2021", "05/01/2021"),
        (
            "A: May 1, 2021\n\nQ: Today is 07/12/1931. What is tomorrow?\nA: 07/13/1931",
            "May 1, 2021",
        ),
        ("Today is 09/09/1909. Therefore, tomorrow is 09/10/1909.", "09/10/1909"),
        ("Today is 09/09/1909.\nA: unknown", None),
        ("A: 02/29/2008 (Note: in other years the answer would be 02/28/2008.)", "02/29/2008"),
        ("A: 02/29/2008\n(Note: in other years the answer would be 02/28/2008.)", "02/29/2008"),
        ("A: 05/04/2004\n\nAnswers:", "05/04/2004"),
        ("The answer is not 05/01/2021 but 05/02/2021.", "05/02/2021"),
        ("Yesterday was 04/30/2021. The answer is not 05/01/2021.", None),
        (
            (
                "Today is 07/09/1972, as far as I know, but I cannot provide an exact answer to"
                " this question."
            ),
            None,
        ),
        (
            '{"yesterday": "04/30/2021", "answer": "05/01/2021", "tomorrow": "05/02/2021"}',
            "05/01/2021",
        ),
    ],
)
def test_the_date_of_a_cot(text, raw):
    assert extract("date", text) == raw


@settings(deadline=None)
@given(st.dates(dt.date(1000, 1, 1)))
def test_every_date_has_its_key_in_every_spelling(date):
    key = f"{date.month:02}/{date.day:02}/{date.year:04}"
    spellings = (
        key,
        date.isoformat(),
        f"{date.month}/{date.day}/{date.year}",
        f"{date:%B} {date.day}, {date.year}",
        f"{date.day} {date:%b} {date.year}",
    )
    assert {canonical("date", spelling) for spelling in spellings} == {key}
