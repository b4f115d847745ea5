"""From what a user names (a dataset, an LLM, an endpoint) to what the engine takes: a `Work` and a backend."""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from feval.cards.cards import find_dataset_card, find_llm_card
from feval.cards.front_matter import card_folder, find_card
from feval.errors import OutOfRangeError, UnknownNameError, UsageError
from feval.hub.datasets import questions, remarks, train_rows
from feval.recording import Question
from feval.recording.layout.format import check_name
from recorders.backends.endpoint import Endpoint
from recorders.backends.openai_compatible import OpenAICompatible
from recorders.backends.tiny import Tiny
from recorders.backends.transformers_local import TransformersLocal
from recorders.request import Decoding, Message
from recorders.tiny import DATASET_ID, test_questions
from recorders.work.prompts import check_prompt, messages, prompt_card, prompt_version, with_train_exemplars
from recorders.work.record import Work

if TYPE_CHECKING:
    from feval.cards.cards import LLMCard
    from recorders.request import Backend
    from recorders.work.prompts import PromptCard

__all__ = [
    "BACKENDS",
    "EXEMPLARS",
    "Ask",
    "Asked",
    "assemble",
    "backend",
    "questions_of",
    "usual_backend",
    "usual_decoding",
    "usual_prices",
]

BACKENDS = {
    "openai": "any OpenAI-compatible endpoint, through the official client (extra feval[record])",
    "tiny": "the small models that come with feval; needs nothing",
    "transformers": "a local Hugging Face model (extra feval[coupled])",
}
"""What can be asked, and what each needs."""

EXEMPLARS = ("card", "train")
"""Where the worked questions of a prompt come from."""

_TINY = "feval/tiny-"
_SAMPLES, _REASONING_SAMPLES = 40, 3
_REASONING_MAX_TOKENS = 32_768
_PRICES, _TINY_PRICES = "2025-06-02", "tiny-2026-11"


@dataclass(frozen=True, slots=True)
class Ask:
    """What is to be asked of which LLM; `None` leaves a choice to the LLM's card, or else to the paper's protocol.

    Attributes:
        dataset: its id.
        llm: name in the recording, such as "gpt-4o-mini@t=0.8".
        model: as the provider calls it.
        samples: CoTs per question; the paper's 40, or 3 for reasoning models.
        prompt: a prompt card, such as "gsm8k" or "gsm8k@1"; by default the dataset's latest. "none" sends the bare question.
        reasoning: zero-shot, without system prompt.
        system_role: whether the chat template takes a system message.
        answer_kind: a key of `feval.answers.KINDS`; by default the dataset card's.
        decoding: sampling parameters; `usual_decoding` has those that nobody named.
        exemplars: "card" for the prompt card's own, "train" for worked questions from the dataset's train split.
        train_rows: a file of the train split's rows; `None` fetches them from the Hub.
        exemplar_count: how many train exemplars; `None`: as many as the card has.
        equality: of answers, see `feval.answers.equality.named_equality`; `None`: that of the answer kind.
    """

    dataset: str
    llm: str
    model: str | None = None
    samples: int | None = None
    prompt: str | None = None
    reasoning: bool | None = None
    system_role: bool = True
    answer_kind: str | None = None
    decoding: Decoding = field(default_factory=Decoding)
    exemplars: str = "card"
    train_rows: Path | None = None
    exemplar_count: int | None = None
    equality: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What `assemble` made.

    Attributes:
        work: for `recorders.work.record.record_dataset`.
        prompt_version: what the recording will say of the prompt.
        reasoning: whether the zero-shot form is sent.
        remarks: what must be known of the questions, in sentences; the recording will keep them.
    """

    work: Work
    prompt_version: str
    reasoning: bool
    remarks: tuple[str, ...] = ()


def assemble(ask: Ask, questions: Sequence[Question]) -> Asked:
    """Fill in what was left open and check it before anything is paid for.

    Args:
        ask: what the user said.
        questions: of the dataset.

    Raises:
        UsageError: a name or number that cannot work.
        CardError: a card that cannot be read, or a prompt that resembles a question.
        UnknownNameError: no prompt card of that name.
    """
    check_name("LLM", ask.llm)
    ask.decoding.check()
    card = find_llm_card(ask.llm)
    reasoning = _reasons(card, ask.reasoning)
    usual = _REASONING_SAMPLES if reasoning else _SAMPLES
    samples = ask.samples if ask.samples is not None else card.cots_to_record if card else usual
    if samples < 1:
        raise OutOfRangeError(f"A recording has at least 1 CoT per question; {samples} were asked for.")

    version, messages = _prompt(ask, questions, reasoning=reasoning)
    peculiar = tuple(remarks(questions))
    work = Work(
        questions,
        ask.dataset,
        ask.llm,
        messages,
        version,
        ask.decoding,
        samples,
        ask.model,
        ask.answer_kind,
        peculiar,
        ask.equality,
    )
    return Asked(work, version, reasoning, peculiar)


def backend(
    name: str,
    *,
    base_url: str | None = None,
    key_variable: str | None = None,
    timeout_s: float = 600.0,
    model: str | None = None,
    notes: MutableSequence[str] | None = None,
) -> Backend:
    """Make a backend.

    Args:
        name: a key of `BACKENDS`.
        base_url: of an endpoint; `None`: OPENAI_BASE_URL, or OpenAI.
        key_variable: environment variable with the key; `None`: OPENAI_API_KEY.
        timeout_s: for one request.
        model: a local model: its folder or Hub name.
        notes: where the backend says what the server does not do as asked.

    Raises:
        UnknownNameError: no such backend.
        UsageError: an option the backend does not have, no key, or an extra that is not installed.
    """
    note: Callable[[str], None] = (notes if notes is not None else []).append
    if name not in BACKENDS:
        raise UnknownNameError.of("backend", name, BACKENDS)
    if name == "openai":
        return OpenAICompatible(Endpoint.from_environment(base_url, key_variable), timeout_s=timeout_s, note=note)
    if base_url or key_variable:
        raise UsageError(
            f"The backend {name!r} asks no server; leave --base-url and --api-key-env out, or use 'openai'."
        )
    if name == "tiny":
        return Tiny(note=note)

    if not model:
        raise UsageError("The backend 'transformers' runs a local model; name its folder with --model.")
    return TransformersLocal(model, note=note)


def usual_backend(llm: str) -> str:
    """Return the backend of an LLM where none was named: the built-in models, or else an endpoint."""
    return "tiny" if llm.startswith(_TINY) else "openai"


def usual_decoding(llm: str, *, reasoning: bool | None = None) -> Decoding:
    """Return the decoding of an LLM where none was named: its card's, or else the paper's 0.7 and 2048.

    Reasoning models are sent no temperature: OpenAI's refuse it, and the others have a default of their own. They may write
    32,768 tokens, unless their card names a limit or is one of feval's own, which are published and stay as they are.

    Args:
        llm: name in the recording.
        reasoning: whether it is one; `None`: as its card says.
    """
    card = find_llm_card(llm)
    usual = Decoding(temperature=card.temperature, max_tokens=card.max_tokens) if card else Decoding()
    if not _reasons(card, reasoning):
        return usual
    named = card is not None and (card.max_tokens is not None or _is_published(llm))
    return replace(usual, temperature=None, max_tokens=usual.max_tokens if named else _REASONING_MAX_TOKENS)


def usual_prices(llm: str) -> str:
    """Return the id of the price list of an LLM where none was named."""
    return _TINY_PRICES if llm.startswith(_TINY) else _PRICES


def questions_of(
    dataset: str, path: Path | None = None, first: int | None = None, *, answer_kind: str | None = None
) -> list[Question]:
    """Return the questions of a dataset: from a file, or those that come with feval, or else from the Hub.

    Args:
        dataset: its id.
        path: JSON Lines, see `docs/datasets.md`.
        first: only the first so many; `None` for all.
        answer_kind: a key of `feval.answers.KINDS`; `None`: the card's. Needed where the dataset has no card.

    Raises:
        OutOfRangeError: `first` is not between 1 and their number.
        FevalError: they cannot be had; see `feval.hub.datasets.questions`.
    """
    found = (
        _built_in()
        if dataset == DATASET_ID and path is None
        else questions(dataset, source=path, answer_kind=answer_kind)
    )
    if first is not None and not 1 <= first <= len(found):
        raise OutOfRangeError(
            f"{dataset} has {len(found)} questions; the first {first} were asked for. Ask for 1 to {len(found)}."
        )
    return found[:first]


def _built_in() -> list[Question]:

    problems = enumerate(test_questions())
    return [Question(f"{DATASET_ID}/{row}", p.question, str(p.answer), str(p.answer)) for row, p in problems]


def _is_published(llm: str) -> bool:
    """Whether the card of an LLM is one of those that come with feval."""
    path = find_card("llms", llm.split("@", 1)[0])
    return path is not None and path.is_relative_to(card_folder())


def _reasons(card: LLMCard | None, named: bool | None) -> bool:
    return named if named is not None else card is not None and card.reasoning


def _prompt(
    ask: Ask, questions: Sequence[Question], *, reasoning: bool
) -> tuple[str, Callable[[Question], Sequence[Message]]]:
    if ask.exemplars not in EXEMPLARS:
        raise UnknownNameError.of("source of exemplars", ask.exemplars, EXEMPLARS)
    if ask.exemplars == "card" and (ask.train_rows is not None or ask.exemplar_count is not None):
        raise UsageError("Rows and numbers of train exemplars were given, but not --exemplars train; add it.")
    if ask.prompt == "none" or (ask.prompt is None and _asks_bare(ask)):
        if ask.exemplars == "train":
            raise UsageError("A bare question has no exemplars; leave out --exemplars train, or name a prompt card.")
        return "none", _bare

    card = prompt_card(ask.prompt or ask.dataset)
    if ask.exemplars == "train":
        card = _with_train(card, ask, questions)
    kind = ask.answer_kind or _card_kind(ask.dataset)
    if kind is not None:
        check_prompt(card, kind, questions)
    version = prompt_version(card, reasoning=reasoning, system_role=ask.system_role)
    return version, partial(messages, card, reasoning=reasoning, system_role=ask.system_role)


def _with_train(card: PromptCard, ask: Ask, questions: Sequence[Question]) -> PromptCard:

    count = len(card.exemplars) if ask.exemplar_count is None else ask.exemplar_count
    if card.train_form is None:
        return with_train_exemplars(card, [], count)  # says so, before anything is fetched

    return with_train_exemplars(card, train_rows(card.dataset, source=ask.train_rows), count, questions)


def _asks_bare(ask: Ask) -> bool:
    """The built-in models were trained on bare questions and read nothing else."""
    return ask.llm.startswith(_TINY) and find_card("prompts", ask.dataset) is None


def _card_kind(dataset: str) -> str | None:

    card = find_dataset_card(dataset)
    return card.answer_kind if card else None


def _bare(question: Question) -> Sequence[Message]:
    """The question alone, its options below it."""
    options = "".join(f"\n({label}) {text}" for label, text in question.choices)
    return [Message("user", f"{question.text}{options}")]
