r"""Prompts: from a prompt card and a question to the messages of a request.

A prompt card (`data_cards/prompts/<dataset>.md`) holds a system prompt, worked exemplars, and for
reasoning models a zero-shot instruction. There is one format for all datasets:

    system     what to do, and the sentence to end with
    user       an exemplar's question, its options below it, one per line: "(A) text"
    assistant  its chain of thought, and on a line of its own the answer sentence:
               "The answer is (A)."
    ...        (every exemplar)
    user       the question

Exemplars are chat turns rather than one long user message: chat models continue in the style of
their own earlier turns, do not mistake the exemplars for the task or invent a next question, and
the turns are a constant prefix, which providers cache. A reasoning model gets one user message, the
question and the instruction, as in the paper (section 2.2: zero-shot instructions), and no system
prompt, which some of them refuse.

A published prompt never changes: a better one is a new version in its own file (`gsm8k@2.md`).
`prompt_version` names it and hashes what is sent, so that a recording can tell prompts apart
whatever folder they came from.

Protocols of turns are Markdown files, too, with front matter (`name`, `title`, `no_answer`):

    ---
    name: revise
    ---
    Look at each step of your solution again, correct what is wrong, and end with the answer.

The text is said before every turn from the second on; with headings ("# Turn 2", "# Turn 3", ...)
each turn has its own. In it, "{question}" stands for what was asked first and "{answer}" for the
answer in the last reply; where that has none, for the front matter's `no_answer`. Without front
matter a protocol is called as its file is.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from feval import answers
from feval.cards.cards import Choice
from feval.cards.front_matter import (
    card_files,
    card_folders,
    check_card,
    read_body,
    read_card_text,
    read_front_matter,
)
from feval.cards.reading import sentence
from feval.errors import CardError, OutOfRangeError, SourceError, UnknownNameError, UsageError
from feval.recording import Question
from feval.values import Pairs, RecordLike, frozen
from recorders.asking.trees import Protocol
from recorders.request import Message

_SLOT = "{answer}"
_LONGEST_RATIONALE = 1000  # characters: an exemplar is paid for with every question


@frozen
class PromptCard:
    """One version of a dataset's prompt.

    `answer_sentence` has "{answer}" in the place of the answer; `train_form`, a key of
    `TRAIN_FORMS`, says how the dataset's train split is read, if it has rationales; `source` is
    "train" if the exemplars are from there.
    """

    dataset: str
    version: int
    system: str | None
    zero_shot: str
    answer_sentence: str
    exemplars: tuple[Exemplar, ...]
    train_form: str | None = None
    source: Literal["card", "train"] = "card"

    @property
    def name(self) -> str:
        """The name that finds this version again: "gsm8k@1"."""
        return f"{self.dataset}@{self.version}"

    def reply(self, exemplar: Exemplar) -> str:
        """Return an exemplar's reply as it is sent: the chain of thought and the answer sentence,
        each on lines of its own.
        """
        return f"{exemplar.cot}\n{self.answer_sentence.replace(_SLOT, exemplar.answer)}"


def messages(
    card: PromptCard, question: Question, *, reasoning: bool = False, system_role: bool = True
) -> tuple[Message, ...]:
    """Return what an LLM is sent for a question; its gold is not.

    Reasoning models are asked zero-shot. Some chat templates (of Mistral and Gemma) refuse the role
    "system": without `system_role`, the system prompt begins the first user message.
    """
    if not question.text.strip():
        raise SourceError(
            f"The question {question.id!r} has no text, so no LLM can be asked it. Give a file with"
            " the questions, --questions."
        )
    rendered = _rendered(question.text, question.choices)
    if reasoning:
        return (Message("user", f"{rendered}\n\n{card.zero_shot}"),)
    turns = [
        turn
        for exemplar in card.exemplars
        for turn in (
            Message("user", _rendered(exemplar.question, exemplar.choices)),
            Message("assistant", card.reply(exemplar)),
        )
    ]
    first, *others = [*turns, Message("user", rendered)]
    if card.system is None:
        return (first, *others)
    if system_role:
        return (Message("system", card.system), first, *others)
    return (Message("user", f"{card.system}\n\n{first.content}"), *others)


def _rendered(text: str, choices: Pairs) -> str:
    """Return the question with its options below; options that are their own labels ("Yes", "No")
    get no label.
    """
    bare = all(label == option for label, option in choices)
    options = (f"- {option}" if bare else f"({label}) {option}" for label, option in choices)
    return "\n".join([text, *options])


_PLACEHOLDER = Question(id="", text="{question}", choices=(("{label}", "{option}"),))


def prompt_version(card: PromptCard, *, reasoning: bool = False, system_role: bool = True) -> str:
    """Return a recording's description of its prompt: name, version, and a hash of all that is sent
    besides the question.

    Such as "gsm8k/1#0123456789abcdef", "gsm8k/1/zero-shot#...", "gsm8k/1/train#...": after the #,
    the first 16 hex digits of the sha256 of the messages around a placeholder, as canonical JSON.
    """
    kind = "/zero-shot" if reasoning else "/train" if card.source == "train" else ""
    sent = messages(card, _PLACEHOLDER, reasoning=reasoning, system_role=system_role)
    content = json.dumps(
        [[message.role, message.content] for message in sent], separators=(",", ":")
    )
    digest = hashlib.sha256(content.encode("ascii")).hexdigest()
    return f"{card.dataset}/{card.version}{kind}#{digest[:16]}"


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _with_slot(sentence: str) -> str:
    if sentence.count(_SLOT) != 1:
        raise ValueError(f"write {_SLOT} once, where the answer belongs")
    return sentence


def _known_form(name: str) -> str:
    if name not in TRAIN_FORMS:
        raise ValueError(f"known forms: {', '.join(TRAIN_FORMS)}")
    return name


_Text = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]


class _ExemplarFacts(_Facts):
    question: _Text
    choices: Annotated[tuple[Choice, ...], Field(strict=False)] = ()
    cot: _Text
    answer: _Text

    def exemplar(self) -> Exemplar:
        choices = tuple((choice.label, choice.text) for choice in self.choices)
        return Exemplar(self.question, self.cot, self.answer, choices)


class _PromptFacts(_Facts):
    dataset: _Text
    version: int = Field(ge=1)
    title: _Text
    system: _Text | None
    zero_shot: _Text
    answer_sentence: Annotated[str, AfterValidator(_with_slot)]
    train_form: Annotated[str, AfterValidator(_known_form)] | None = None
    exemplars: Annotated[tuple[_ExemplarFacts, ...], Field(strict=False, min_length=1)]


def prompt_names() -> list[str]:
    """Return every prompt that has a card, sorted, with its version: "gsm8k@1"."""
    return sorted({f"{dataset}@{version}" for _, dataset, version in _prompt_files()})


def prompt_card(name: str) -> PromptCard:
    """Return a prompt by its dataset ("gsm8k": the latest version), or with a version ("gsm8k@1":
    always this one).

    The first folder with a prompt for the dataset decides, of those in `FEVAL_CARDS` and feval's
    own.
    """
    dataset, mark, number = name.partition("@")
    files = [(path, version) for path, named, version in _prompt_files() if named == dataset]
    if not files:
        raise UnknownNameError.among(
            "prompt card",
            dataset,
            {named for _, named, _ in _prompt_files()},
            f"Write one: a folder my-cards/prompts with a file {dataset[:80]}.md (system prompt,"
            " exemplars, zero-shot instruction; data_cards/README.md lists the fields), and set"
            " FEVAL_CARDS=my-cards. Or send the bare questions: --set prompt=none.",
        )
    if not mark:
        deciding = files[0][0].parent
        return _read([path for path, _ in files if path.parent == deciding][-1])
    for path, version in files:
        if str(version) == number:
            return _read(path)
    versions = {f"{dataset}@{version}" for _, version in files}
    raise UnknownNameError.among(
        "prompt card", name, versions, f"{dataset!r} alone means the latest version."
    )


def _prompt_files() -> list[tuple[Path, str, int]]:
    """Every prompt card with the dataset and version in its file name, folder by folder in search
    order.
    """
    order = {folder / "prompts": position for position, folder in enumerate(card_folders())}
    cards = [
        (path, *_parsed_name(name, path))
        for name, paths in card_files("prompts").items()
        for path in paths
    ]
    return sorted(cards, key=lambda each: (order[each[0].parent], each[1], each[2]))


def _parsed_name(stem: str, path: Path) -> tuple[str, int]:
    dataset, mark, version = stem.partition("@")
    if not mark:
        return dataset, 1
    if not re.fullmatch(r"[1-9][0-9]{0,8}", version, re.ASCII) or version == "1":
        raise CardError(
            f"The prompt card {path} has an odd name: {dataset}.md is version 1, {dataset}@2.md"
            " version 2."
        )
    return dataset, int(version)


def _read(path: Path) -> PromptCard:
    facts = check_card("prompts", path, _PromptFacts.model_validate)
    name = facts.dataset if facts.version == 1 else f"{facts.dataset}@{facts.version}"
    if path.name != f"{name}.md":
        raise CardError(
            f"The prompt card {path} is version {facts.version} of {facts.dataset!r}: its file must"
            f" be called {name}.md."
        )
    fields = dict(facts) | {"exemplars": tuple(each.exemplar() for each in facts.exemplars)}
    del fields["title"]
    return PromptCard(**fields)


def check_prompt(card: PromptCard, kind: str, questions: Iterable[Question] = ()) -> None:
    """Check a prompt before anything is paid for.

    Every exemplar's reply must be read back as its answer; every answer must be one of the
    exemplar's options; no exemplar may be a question of the dataset, whose answer would be given
    away.
    """
    ids = {_folded(question.text, question.choices): question.id for question in questions}
    for number, exemplar in enumerate(card.exemplars, start=1):
        where = f"Exemplar {number} of the prompt {card.name}"
        labels = [label for label, _ in exemplar.choices]
        if labels and (exemplar.answer not in labels or len(set(labels)) < len(labels)):
            raise CardError(
                f"{where} has the answer {exemplar.answer!r}, which must be one of its labels"
                f" {labels}."
            )
        read = _read_back(card, exemplar, kind)
        gold = answers.canonical_gold(kind, exemplar.answer, exemplar.choices)
        if gold is None or read != gold:
            raise CardError(
                f"{where} has the answer {exemplar.answer!r}, but its reply is read as {read!r}"
                f" (answer kind {kind!r}). Correct its chain of thought, its answer, or the card's"
                " answer sentence."
            )
        same = ids.get(_folded(exemplar.question, exemplar.choices))
        if same is not None:
            raise CardError(
                f"{where} is the question {same!r}: its answer would be given away. Write another"
                " exemplar."
            )


def _read_back(card: PromptCard, exemplar: Exemplar, kind: str) -> str | None:
    raw = answers.extract(kind, card.reply(exemplar), exemplar.choices)
    return answers.canonical(kind, raw, exemplar.choices)


def _folded(text: str, choices: Pairs) -> str:
    return " ".join(_rendered(text, choices).casefold().split())


def with_train_exemplars(
    card: PromptCard, rows: Iterable[RecordLike], count: int, questions: Iterable[Question] = ()
) -> PromptCard:
    """Return the prompt with exemplars from the dataset's train split in place of its own.

    The choice does not depend on the order of rows: it takes the usable rows whose question has the
    smallest sha256. A row is usable if its rationale has 1 to 1000 characters, its reply is read
    back as its gold answer, and it is not one of the questions that will be asked.
    """
    if card.train_form is None:
        known = ", ".join(
            name for name in prompt_names() if prompt_card(name).train_form is not None
        )
        raise UsageError(
            f"The prompt {card.name} cannot take its exemplars from a train split: no split of"
            f" {card.dataset!r} with rationales is known. Leave out exemplars = 'train'. Prompts"
            f" that can: {known}."
        )
    if count < 1:
        raise OutOfRangeError(
            f"{count} exemplars were asked for; a few-shot prompt has at least 1."
        )
    form = TRAIN_FORMS[card.train_form]
    excluded = {_folded(question.text, question.choices) for question in questions}
    usable: dict[str, Exemplar] = {}
    total = 0
    for total, row in enumerate(rows, start=1):
        exemplar = form.exemplar(_checked(row, form, card.train_form, total))
        if (
            exemplar
            and len(exemplar.cot) <= _LONGEST_RATIONALE
            and _read_back(card, exemplar, form.kind) == exemplar.answer
            and _folded(exemplar.question, exemplar.choices) not in excluded
        ):
            text = exemplar.question.encode("utf-8", "surrogatepass")
            usable.setdefault(hashlib.sha256(text).hexdigest(), exemplar)
    if len(usable) < count:
        raise SourceError(
            f"{count} exemplars were asked for, but of {total} rows of the train split only"
            f" {len(usable)} can be used (a rationale of at most {_LONGEST_RATIONALE} characters"
            " whose answer is read back as the gold). Ask for fewer."
        )
    chosen = tuple(usable[digest] for digest in sorted(usable)[:count])
    return replace(card, exemplars=chosen, source="train")


def _checked(row: RecordLike, form: TrainForm, name: str, number: int) -> RecordLike:
    for field in form.fields:
        value = row.get(field)
        texts = value if field == "options" else [value]
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise SourceError(
                f"Row {number} of the train split should have {', '.join(form.fields)} (the form"
                f" {name!r}); its {field!r} is {value!r:.80}. Give the train split as its"
                " repository publishes it."
            )
    return row


@frozen
class Exemplar:
    """A worked question; its chain of thought is without the answer sentence, and with options the
    answer is a label.
    """

    question: str
    cot: str
    answer: str
    choices: Pairs = ()


class TrainForm(NamedTuple):
    """How the rows of one train split are read: which columns, and an exemplar from a row with a
    usable rationale.
    """

    kind: str
    fields: tuple[str, ...]
    exemplar: Callable[[RecordLike], Exemplar | None]


_CALCULATION = re.compile(r"<<[^<>\n]{0,200}>>")
_OPTION = re.compile(r"\s*\(?([A-Z])\s*[).:]\s*(.*)", re.DOTALL)
_VERDICT = re.compile(
    r"\W*(?:(?:so|hence|thus|therefore|the|correct|right|final)\W+){0,4}(?:answer|ans|option|choice)\b.*|\W*[A-E]\W*",
    re.IGNORECASE,
)


def _gsm8k(row: RecordLike) -> Exemplar | None:
    """GSM8K: `answer` is a worked solution with calculator notes in << >>, then "#### " and the
    number.
    """
    cot, mark, gold = row["answer"].rpartition("####")
    answer = answers.canonical_gold("number", gold)
    cot = "\n".join(line.strip() for line in _CALCULATION.sub("", cot).splitlines() if line.strip())
    return Exemplar(row["question"].strip(), cot, answer) if mark and answer and cot else None


def _aqua(row: RecordLike) -> Exemplar | None:
    """AQuA: `options` such as "A)21", a `rationale`, often with a verdict ("Answer: B") at its end,
    and `correct`.
    """
    options = [_OPTION.fullmatch(option) for option in row["options"]]
    lines = [line.strip() for line in row["rationale"].splitlines() if line.strip()]
    while lines and _VERDICT.fullmatch(lines[-1]):
        lines.pop()
    choices = tuple((option[1], option[2].strip()) for option in options if option)
    if (
        not lines
        or len(choices) < len(options)
        or row["correct"] not in (label for label, _ in choices)
    ):
        return None
    return Exemplar(row["question"].strip(), "\n".join(lines), row["correct"], choices)


TRAIN_FORMS: dict[str, TrainForm] = {
    "gsm8k": TrainForm("number", ("question", "answer"), _gsm8k),
    "aqua": TrainForm("choice", ("question", "options", "rationale", "correct"), _aqua),
}
"""Train splits with rationales that can be read; a prompt card names its own in `train_form`."""


_HEADING = re.compile(r"^#+ Turn ([0-9]{1,5})[ \t]*$", re.MULTILINE)


class _ProtocolFacts(_Facts):
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]
    title: str = ""
    no_answer: Annotated[str, StringConstraints(pattern=r"\S")] = "no answer"


def read_protocol(path: Path, template: str | None = None) -> Protocol:
    """Return the protocol in a file; `template` is as in `Protocol`.

    Raises:
        CardError: the file cannot be read or lacks something; the message says where.
    """
    text = read_card_text(path)
    named = text.startswith("---")
    try:
        facts = _ProtocolFacts.model_validate(
            read_front_matter(path) if named else {"name": path.stem}
        )
    except ValidationError as error:
        raise CardError(
            f"The protocol {path} {sentence(error)}. It has name (a file of text only has its own),"
            " and may have title and no_answer."
        ) from error
    before, *sections = _HEADING.split(read_body(path) if named else text)
    numbers, texts = sections[::2], [text.strip() for text in sections[1::2] or [before]]
    if numbers and (
        before.strip() or numbers != [str(turn) for turn in range(2, len(numbers) + 2)]
    ):
        raise CardError(
            f"The protocol {path} should begin with the heading '# Turn 2' and go on with '# Turn"
            " 3' and so on, or have no such heading; the first turn answers the question."
        )
    if not all(texts):
        empty = f"turn {texts.index('') + 2}" if numbers else "the turns"
        raise CardError(f"The protocol {path} has no text for {empty}; write what is said.")
    return Protocol(facts.name, tuple(texts), facts.no_answer, template)
