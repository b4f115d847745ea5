"""Dataset and LLM cards: front matter read into frozen models. `data_cards/README.md` describes the
files.

To add a dataset, an LLM or a price list, put a Markdown file into a folder named by `FEVAL_CARDS`.
Where two folders describe the same dataset or LLM, the first folder wins; feval's own comes last.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from feval import answers
from feval.answers.thoughts import FAMILIES, Thoughts
from feval.cards.front_matter import (
    CARD_KINDS,
    card_files,
    check_card,
    find_card,
    iso_date,
    known_card,
    not_blank,
)
from feval.cards.names import base_of
from feval.errors import CardError, UnknownNameError


def _known_kind(name: str) -> str:
    if name not in answers.KINDS:
        raise ValueError(f"the answer kinds are {', '.join(answers.KINDS)}")
    return name


def _known_family(name: str) -> str:
    if name not in FAMILIES:
        raise ValueError(
            f"the families are {', '.join(FAMILIES)}; or give an opening and a closing mark"
        )
    return name


def _no_double_hyphen(name: str) -> str:
    if "--" in name:  # it stands for "/" in file names; the Hub forbids it in names, too
        raise ValueError("a name cannot contain '--'")
    return name


Text = Annotated[str, AfterValidator(not_blank)]
"""Text that is not blank."""
Day = Annotated[str, AfterValidator(iso_date)]
"""A day, YYYY-MM-DD."""
_Repository = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)?$")
]
_Commit = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
_Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_DatasetId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9](?:-?[A-Za-z0-9._])*$")]
_LLMName = Annotated[
    str, StringConstraints(pattern=r"^[^\s@\\]+$"), AfterValidator(_no_double_hyphen)
]
_AnswerKind = Annotated[str, AfterValidator(_known_kind)]
_ThoughtFamily = Annotated[str, AfterValidator(_known_family)]
_Mark = Annotated[str, StringConstraints(pattern=r"^\S(?:.*\S)?$")]


class Card(BaseModel):
    """The facts of a card. A card that says questions: "250" is corrected by its author, not by
    us.
    """

    # Built on first use: most commands read one kind of card of four, or none.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class Choice(Card):
    """One option of a multiple-choice question."""

    label: str
    text: str


class HubChoices(Card):
    """Which column holds the options of a question, and in which form.

    "labelled" has label and text of each, "marked" texts such as "A)21", "plain" texts alone
    (labelled A, B, C, ...; a gold may be a position from 0). "in-question": the column is the
    question's, and the options are the lines after its line "Options:".
    """

    column: Text
    form: Literal["labelled", "marked", "plain", "in-question"]


class HubColumns(Card):
    """How the rows of a repository become questions; `data_cards/README.md` explains the fields."""

    question: Annotated[tuple[Text, ...], Field(strict=False, min_length=1)]
    answer: Text
    answer_after: Text | None = None
    choices: HubChoices | None = None
    order: Text | None = None


class HubSource(Card):
    """Where the questions are on the Hugging Face Hub. The revision is the pinned commit; `None`
    where none was verified.
    """

    repository: _Repository
    config: Text | None
    split: Text
    revision: _Commit | None
    columns: HubColumns | None = None
    files: Annotated[tuple[Text, ...], Field(strict=False, min_length=1)] | None = None


class SourceFile(Card):
    """The file whose rows the question ids count: a public repository, a path in it, and the pinned
    commit, if known.
    """

    repository: Text
    path: Text
    commit: _Commit | None


class CardExample(Card):
    """A question, an answer as a CoT gives it, and the same answer in canonical form (the voting
    key).
    """

    question: Text
    choices: Annotated[tuple[Choice, ...], Field(strict=False)] = ()
    raw_answer: Text
    answer: Text


class DatasetCard(Card):
    """The facts of a dataset; `data_cards/README.md` explains the fields. What is optional or
    `null` there may be `None`.
    """

    id: _DatasetId
    title: Text
    group: Text
    answer_kind: _AnswerKind
    questions: int = Field(ge=1)
    first_question_id: Text
    last_question_id: Text
    licence: Text | None
    citation: Text
    hub: HubSource | None
    example: CardExample
    source: SourceFile | None = None
    questions_sha256: _Sha256 | None = None
    constant: Text | None = None
    reference_name: Text | None = None
    checked: Day | None = None


class LLMCard(Card):
    """The facts of an LLM; `data_cards/README.md` explains the fields.

    `thoughts` is a family, or an opening and a closing mark; `None`: any family, by the first mark
    in the text. A `temperature` or `max_tokens` of `None` is the provider's default, or 32,768
    tokens for an LLM that reasons and whose card is not feval's. `pooling` says how a reward model
    states each score at `/pooling`: as a list of it, a number, or a pair that adds up to 1.
    """

    name: _LLMName
    title: Text
    family: Text
    provider: Text
    reasoning: bool
    cots_to_record: int = Field(ge=1)
    temperature: float | None = Field(ge=0)
    max_tokens: int | None = Field(ge=1)
    source: Text
    thoughts: _ThoughtFamily | Annotated[tuple[_Mark, _Mark], Field(strict=False)] | None = None
    licence: Text | None = None
    constant: Text | None = None
    paper_name: Text | None = None
    pooling: Literal["list", "number", "pair"] = "list"
    released: Day | None = None
    checked: Day | None = None


class SetCard(Card):
    """The facts of a published sample set, whose name is its layout's; `data_cards/README.md`
    explains the fields. `None`: not known.
    """

    name: Text
    title: Text
    datasets: Text
    llms: Text
    samples: Text
    holds: Text
    sampling: Text | None
    repository: Text
    files: Text
    revision: _Commit | None
    size: Text | None
    licence: Text | None


_CardT = TypeVar("_CardT", bound=Card)
_ADVICE = "To add one, put a card into a folder named by FEVAL_CARDS."
_NAME_FIELDS = {"datasets": "id", "llms": "name"}


def price_ids() -> list[str]:
    """Return the ids of all price lists that are cards, sorted."""
    return list(card_files("prices"))


def dataset_card(dataset_id: str) -> DatasetCard:
    """Return the card of a dataset, such as "gsm8k".

    Raises:
        UnknownNameError: no card describes it.
        CardError: its card cannot be used.
    """
    card = find_dataset_card(dataset_id)
    if card is None:
        advice = (
            f"{_ADVICE} Questions in a file of your own need none: --questions FILE --answer-kind"
            " KIND (in Python: source=FILE, answer_kind=KIND)."
        )
        raise UnknownNameError.among("dataset card", dataset_id, card_files("datasets"), advice)
    return card


def find_dataset_card(dataset_id: str) -> DatasetCard | None:
    """Return the card of a dataset; `None` where there is none. A card that cannot be used raises a
    `CardError`.
    """
    return _find("datasets", dataset_id, DatasetCard)


def our_dataset_id(reference_name: str) -> str:
    """Return our id of a dataset of the reference package, such as "aqua" for "AQuA"; the name
    itself where no card has it.
    """
    ids = (
        dataset
        for dataset in card_files("datasets")
        if dataset_card(dataset).reference_name == reference_name
    )
    return next(ids, reference_name)


def llm_card(name: str) -> LLMCard:
    """Return the card of an LLM, or of the base of a variant such as "gpt-3.5-turbo@t=0.8".

    Raises:
        UnknownNameError: no card describes it.
        CardError: its card cannot be used.
    """
    card = find_llm_card(name)
    if card is None:
        raise UnknownNameError.among("LLM card", base_of(name), card_files("llms"), _ADVICE)
    return card


def find_llm_card(name: str) -> LLMCard | None:
    """Return the card of an LLM or of a variant's base; `None` where there is none."""
    return _find("llms", base_of(name), LLMCard)


def set_card(name: str) -> SetCard:
    """Return the card of a published sample set; errors as for `llm_card`."""
    return check_card("sets", known_card("sets", name, _ADVICE), SetCard.model_validate)


def _find(kind: str, name: str, model: type[_CardT]) -> _CardT | None:
    path = find_card(kind, name)
    if path is None:
        return None
    card = check_card(kind, path, model.model_validate)
    own_name: str = getattr(card, _NAME_FIELDS[kind])
    if own_name != name:
        raise CardError(
            f"The {CARD_KINDS[kind]} {path} describes {own_name!r}: its file must be called"
            f" {own_name.replace('/', '--')}.md."
        )
    return card


def thoughts_of(llm: str) -> Thoughts | None:
    """Return how an LLM marks its thoughts, from its or its base's card; `None` where it does not
    say.
    """
    card = find_llm_card(llm)
    return None if card is None else card.thoughts
