import datetime as dt

import pytest
from hypothesis import given, settings, strategies as st
from places import read_data

from feval.answers import canonical, extract

CASES = read_data("answers.json")


@pytest.mark.parametrize("raw", CASES["dates"])
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
