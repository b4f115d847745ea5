"""From what a user names (a dataset, an LLM, an endpoint) to a recording task and a backend, with
defaults for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path

from feval.answers import extract
from feval.cards import LLMCard, find_dataset_card, find_llm_card, thoughts_of
from feval.cards.front_matter import card_folder, find_card
from feval.errors import OutOfRangeError, UsageError, require_known
from feval.hub.datasets import questions, remarks, train_rows
from feval.recording import Question
from feval.recording.layout.format import check_name
from recorders.asking.batches import BatchedOpenAI
from recorders.asking.samples import Probing
from recorders.asking.trees import MOST_STEPS, Tree, Turns
from recorders.backends.local import Tiny, TransformersLocal
from recorders.backends.openai_compatible import Endpoint, OpenAICompatible
from recorders.request import Backend, Decoding, Message
from recorders.tiny import DATASET_ID, test_questions
from recorders.work.prompts import (
    check_prompt,
    messages,
    prompt_card,
    prompt_version,
    read_protocol,
    with_train_exemplars,
)
from recorders.work.record import RecordingTask, answer_kind

BACKENDS = {
    "openai": "any OpenAI-compatible endpoint, through the official client (extra feval[record])",
    "tiny": "the small models that come with feval; needs nothing",
    "transformers": "a local Hugging Face model (extra feval[coupled])",
}
"""Backends, and what each needs."""

EXEMPLARS = ("card", "train")
"""Where a prompt's worked questions come from."""

_TINY = "feval/tiny-"
_SAMPLES, _REASONING_SAMPLES = 40, 3
_REASONING_MAX_TOKENS = 32_768
_PROBE_TOKENS = 20
_BRANCH, _DEPTH = 4, 8
_PRICES, _TINY_PRICES = "2025-06-02", "tiny-2026-11"


@dataclass(frozen=True)
class RecordingOptions:
    """What a user says about a recording. `None` leaves a choice to the LLM's card, or else to the
    paper's protocol.

    By default there are 40 CoTs per question, 3 of reasoning models, and the prompt is the
    dataset's latest card; "none" sends the bare question. `exemplars` are the card's own or, with
    "train", worked questions from the train split, which is fetched from the Hub if `train_rows`
    names no file. The others are as in `recorders.work.record.RecordingTask`.
    """

    dataset: str
    llm: str
    model: str | None = None
    samples: int | None = None
    prompt: str | None = None
    reasoning: bool | None = None
    system_role: bool = True
    answer_kind: str | None = None
    exemplars: str = "card"
    train_rows: Path | None = None
    exemplar_count: int | None = None
    equality: str | None = None
    allow_fields: Sequence[str] | None = None
    probe_every: int | None = None
    probe_cue: str | None = None
    probe_tokens: int | None = None
    probe_template: str | None = None
    tree: bool = False
    branch: int | None = None
    depth: int | None = None
    step_stop: str | None = None
    step_template: str | None = None
    protocol: Path | None = None
    turns: int | None = None
    turn_template: str | None = None


@dataclass(frozen=True)
class RecordingSettings(RecordingOptions):
    """The same, with how texts are drawn."""

    decoding: Decoding = field(default_factory=Decoding)


def make_task(settings: RecordingSettings, questions: Sequence[Question]) -> RecordingTask:
    """Fill in what was left open, and check it before anything is paid for."""
    check_name("LLM", settings.llm)
    settings.decoding.check()
    card = find_llm_card(settings.llm)
    reasoning = _is_reasoning(card, settings.reasoning)
    samples = settings.samples
    if samples is None:
        default = _REASONING_SAMPLES if reasoning else _SAMPLES
        samples = card.cots_to_record if card else default
    tree = _turns(settings, questions, samples) or _tree(settings)
    version, messages = _prompt(settings, questions, reasoning=reasoning)
    return RecordingTask(
        questions,
        settings.dataset,
        settings.llm if tree is None or "@" in settings.llm else f"{settings.llm}@{tree.variant}",
        messages,
        version,
        settings.decoding,
        samples,
        settings.model,
        settings.answer_kind,
        tuple(remarks(questions)),
        settings.equality,
        settings.allow_fields or (),
        _probing(settings, reasoning=reasoning),
        tree,
    )


def _turns(
    settings: RecordingSettings, questions: Sequence[Question], samples: int
) -> Turns | None:
    what, fields = "a protocol of turns; add --protocol FILE", ("turns", "turn_template")
    _refuse_alone(settings, what, fields, settings.protocol)
    if settings.protocol is None:
        return None
    _refuse_beside(settings, "--protocol", "turns", tree="A tree is of steps")
    protocol = read_protocol(settings.protocol, settings.turn_template)
    turns = max(len(protocol.messages) + 1, 2) if settings.turns is None else settings.turns
    kind = answer_kind(settings.dataset, settings.answer_kind)
    choices = {question.id: question.choices for question in questions if question.choices}
    return Turns(
        samples, 1, turns, protocol, lambda name, reply: extract(kind, reply, choices.get(name, ()))
    )


def _tree(settings: RecordingSettings) -> Tree | None:
    fields = ("branch", "depth", "step_stop", "step_template")
    _refuse_alone(settings, "trees of steps; add --tree", fields, settings.tree or None)
    if not settings.tree:
        return None
    _refuse_beside(settings, "--tree", "steps")
    branch = _BRANCH if settings.branch is None else settings.branch
    first = branch if settings.samples is None else settings.samples
    return tree_of(
        settings.llm, first, branch, settings.depth, settings.step_stop, settings.step_template
    )


def _refuse_alone(
    settings: RecordingSettings, what: str, fields: Sequence[str], given: object
) -> None:
    """Refuse settings of something that was not asked for."""
    named = [name for name in fields if getattr(settings, name) is not None]
    if named and given is None:
        raise UsageError(f"The setting {named[0]} is for {what}, or leave it out.")


def _refuse_beside(settings: RecordingSettings, option: str, what: str, **others: str) -> None:
    """Refuse what cannot be recorded together with steps or turns."""
    others["probe_every"] = "Probes are of whole CoTs"
    others["noise_seed"] = "Shared noise is for whole CoTs"
    for name, why in others.items():
        value = getattr(settings, name, getattr(settings.decoding, name, None))
        if value is not None and value is not False:
            raise UsageError(
                f"{why}, and {option} records {what}; leave one of {option} and {name} out."
            )


def tree_of(
    llm: str, first: int, branch: int, depth: int | None, stop: str | None, template: str | None
) -> Tree:
    """Return the tree of an LLM, with defaults for depth and stop text."""
    if stop is None:
        stop = ". " if llm.startswith(_TINY) else "\n\n"
    if depth is None:  # 8, or as many as a recording holds
        steps = accumulate(first * branch**level for level in range(_DEPTH))
        depth = max(1, sum(total <= MOST_STEPS for total in steps))
    return Tree(first, branch, depth, stop, template)


def _probing(settings: RecordingSettings, *, reasoning: bool) -> Probing | None:
    fields = ("probe_cue", "probe_tokens", "probe_template")
    _refuse_alone(settings, "probes; add --probe-every N", fields, settings.probe_every)
    if settings.probe_every is None:
        return None
    cue = settings.probe_cue
    if cue is None:
        cue = default_cue(settings.llm, reasoning=reasoning)
    return Probing(
        settings.probe_every, cue, settings.probe_tokens or _PROBE_TOKENS, settings.probe_template
    )


def default_cue(llm: str, *, reasoning: bool = False) -> str:
    """Return the text behind a prefix that makes an LLM answer; the mark that ends an open thought
    comes before it.
    """
    if llm.startswith(_TINY):
        return " The answer is"
    boxed = reasoning or thoughts_of(llm) is not None
    return "\n\nFinal answer: \\boxed{" if boxed else "\n\nThe answer is"


def make_backend(
    name: str,
    *,
    base_url: str | None = None,
    key_variable: str | None = None,
    timeout_s: float = 600.0,
    model: str | None = None,
    notes: MutableSequence[str] | None = None,
    batch_poll_s: float | None = None,
    resubmit: bool = False,
) -> Backend:
    """Make a backend.

    Args:
        name: a key of `BACKENDS`.
        base_url: of an endpoint; `None`: OPENAI_BASE_URL, or OpenAI.
        key_variable: environment variable with the key; `None`: OPENAI_API_KEY.
        timeout_s: for one request.
        model: a local model: its folder or Hub name.
        notes: a list to which the backend appends what the server does not do as asked.
        batch_poll_s: an endpoint is asked in batches, and looked at every so many seconds.
        resubmit: see `recorders.asking.batches.BatchedOpenAI`.

    Raises:
        UnknownNameError: no such backend.
        UsageError: an option the backend does not have, no key, or an extra that is not installed.
    """
    note: Callable[[str], None] = (notes if notes is not None else []).append
    require_known("backend", name, BACKENDS)
    if name == "openai":
        endpoint = Endpoint.from_environment(base_url, key_variable)
        if batch_poll_s is None:
            return OpenAICompatible(endpoint, timeout_s=timeout_s, note=note)
        return BatchedOpenAI(
            endpoint, poll_s=batch_poll_s, resubmit=resubmit, timeout_s=timeout_s, note=note
        )
    if base_url or key_variable or batch_poll_s is not None:
        raise UsageError(
            f"The backend {name!r} asks no server; leave --base-url, --batch and api_key_env out,"
            " or pass --backend openai."
        )
    if name == "tiny":
        return Tiny(note=note)
    if not model:
        raise UsageError(
            "The backend 'transformers' runs a local model; name its folder with --model."
        )
    return TransformersLocal(model, note=note)


def default_backend(llm: str) -> str:
    """Return the backend of an LLM: the built-in models, or else an endpoint."""
    return "tiny" if llm.startswith(_TINY) else "openai"


def default_decoding(llm: str, *, reasoning: bool | None = None) -> Decoding:
    """Return the decoding of an LLM: its card's, or else the paper's temperature 0.7 and 2,048
    tokens.

    Reasoning models (as the card says, unless it is said here) are sent no temperature: OpenAI's
    refuse it, and the others have a default of their own. They may write 32,768 tokens, unless
    their card names a limit or is one of feval's own, which are published and stay as they are.
    """
    card = find_llm_card(llm)
    decoding = Decoding(card.temperature, max_tokens=card.max_tokens) if card else Decoding()
    if not _is_reasoning(card, reasoning):
        return decoding
    path = find_card("llms", llm.split("@", 1)[0])
    is_published = path is not None and path.is_relative_to(card_folder())
    has_limit = card is not None and (card.max_tokens is not None or is_published)
    limit = decoding.max_tokens if has_limit else _REASONING_MAX_TOKENS
    return replace(decoding, temperature=None, max_tokens=limit)


def default_prices(llm: str) -> str:
    """Return the id of an LLM's price list."""
    return _TINY_PRICES if llm.startswith(_TINY) else _PRICES


def load_questions(
    dataset: str,
    path: Path | None = None,
    first: int | None = None,
    *,
    answer_kind: str | None = None,
) -> list[Question]:
    """Return the first questions of a dataset, or all: from a file, or those that come with feval,
    or else from the Hub.

    A dataset without a card needs an `answer_kind`.
    """
    if dataset == DATASET_ID and path is None:
        rows = [
            Question(f"{DATASET_ID}/{row}", each.question, str(each.answer), str(each.answer))
            for row, each in enumerate(test_questions())
        ]
    else:
        rows = questions(dataset, source=path, answer_kind=answer_kind)
    if first is not None and not 1 <= first <= len(rows):
        raise OutOfRangeError(
            f"{dataset} has {len(rows)} questions; the first {first} were asked for. Ask for 1 to"
            f" {len(rows)}."
        )
    return rows[:first]


def _is_reasoning(card: LLMCard | None, named: bool | None) -> bool:
    return named if named is not None else card is not None and card.reasoning


def _prompt(
    settings: RecordingSettings, questions: Sequence[Question], *, reasoning: bool
) -> tuple[str, Callable[[Question], Sequence[Message]]]:
    """Return the prompt's version, and what makes the messages for a question."""
    require_known("source of exemplars", settings.exemplars, EXEMPLARS)
    if settings.exemplars == "card" and (
        settings.train_rows is not None or settings.exemplar_count is not None
    ):
        raise UsageError(
            'Rows and numbers of train exemplars were given, but not exemplars = "train"; add it.'
        )
    # The built-in models were trained on bare questions and read nothing else.
    bare = settings.llm.startswith(_TINY) and find_card("prompts", settings.dataset) is None
    if settings.prompt == "none" or (settings.prompt is None and bare):
        if settings.exemplars == "train":
            raise UsageError(
                'A bare question has no exemplars; leave out exemplars = "train", or name a prompt'
                " card."
            )
        return "none", _bare

    card = prompt_card(settings.prompt or settings.dataset)
    if settings.exemplars == "train":
        count, named = settings.exemplar_count, settings.train_rows
        # A card without a form is refused, before anything is fetched.
        rows = [] if card.train_form is None else train_rows(card.dataset, source=named)
        count = len(card.exemplars) if count is None else count
        card = with_train_exemplars(card, rows, count, questions)
    dataset_card = find_dataset_card(settings.dataset)
    kind = settings.answer_kind or (dataset_card.answer_kind if dataset_card else None)
    if kind is not None:
        check_prompt(card, kind, questions)
    version = prompt_version(card, reasoning=reasoning, system_role=settings.system_role)
    return version, partial(messages, card, reasoning=reasoning, system_role=settings.system_role)


def _bare(question: Question) -> Sequence[Message]:
    """The question alone, its options below it."""
    options = "".join(f"\n({label}) {text}" for label, text in question.choices)
    return [Message("user", f"{question.text}{options}")]
