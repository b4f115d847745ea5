"""What is to be recorded: one LLM on one dataset, checked before anything is paid for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from feval.answers import EXTRACTOR_VERSION, KINDS
from feval.answers.equality import named_equality
from feval.cards.cards import find_dataset_card
from feval.errors import ConflictError, UnknownNameError, UsageError
from feval.publish.secrets import known_secrets, refuse_key_fields, refuse_secrets
from feval.recording import DatasetInfo, LLMInfo, Question
from feval.recording.layout.format import LeafHash, check_name
from feval.recording.parts import llm_leaf, question_line
from recorders.asking.probing import Probing
from recorders.asking.samples import SamplePlan
from recorders.asking.trees import Levels
from recorders.request import Decoding, Message, Request


@dataclass(frozen=True, slots=True)
class RecordingTask:
    """One LLM on one dataset; tasks with equal identity share a journal.

    Attributes:
        questions: in order.
        dataset: its id.
        llm_name: the LLM's name in the recording, such as "gpt-4o-mini@t=0.8"; the part before "@"
            finds the price.
        messages: returns what is sent for a question.
        prompt_version: names the prompt; a changed prompt is a new version.
        decoding: how samples are drawn.
        samples: CoTs per question.
        model: as the provider calls it; `None`: the part of `llm_name` before "@".
        answer_kind: a key of `feval.answers.KINDS`; `None`: as the dataset's card says.
        notes: sentences about the questions, for the recording.
        equality: of answers, see `feval.answers.equality.named_equality`; `None`: that of the
            answer kind.
        allow_fields: names of fields of the extra body that are like those of keys, and hold none.
        probing: how CoTs are probed; `None` for no probes. It is not part of the identity.
        tree: the trees of steps, or chains of turns, that are recorded instead of single CoTs;
            `None` for these.

    Raises:
        AnswerError: answers are compared by math-verify, which is not installed.
        UsageError: there is no question; the answer kind is unknown or cannot be extracted from
            texts; or a name or text cannot be stored in a recording, or holds a known key.
        OutOfRangeError: a setting that no server takes.
    """

    questions: Sequence[Question]
    dataset: str
    llm_name: str
    messages: Callable[[Question], Sequence[Message]]
    prompt_version: str
    decoding: Decoding = field(default_factory=Decoding)
    samples: int = 40
    model: str | None = None
    answer_kind: str | None = None
    notes: Sequence[str] = ()
    equality: str | None = None
    allow_fields: Collection[str] = ()
    probing: Probing | None = None
    tree: Levels | None = None

    def __post_init__(self) -> None:
        if not self.questions:
            raise UsageError(f"There is no question of {self.dataset} to ask; give at least one.")
        named_equality(self.kind(), self.equality)
        self.decoding.check()
        self._check_storable()
        refuse_key_fields(
            self.decoding.extra_body, self.allow_fields, "name it in allow_fields = [{!r}]"
        )
        self.refuse_secrets(known_secrets())

    def refuse_secrets(self, secrets: Mapping[str, str]) -> None:
        """Raise a `UsageError` if secrets, by their environment variable, are in what would be
        stored.
        """
        texts = [(question.text, question.answer, question.choices) for question in self.questions]
        stored: dict[str, object] = {
            f"the {name}": value for name, value in self.identity().items()
        }
        stored["the questions"] = texts
        stored["the probes"] = self.probing.content() if self.probing else {}
        stored["the system prompt"] = [
            message.content for message in self.messages(self.questions[0])
        ]
        refuse_secrets(stored, secrets)

    def _check_storable(self) -> None:
        """Refuse what could not be sealed, before anything is paid for."""
        check_name("dataset", self.dataset)
        check_name("LLM", self.llm_name)
        llm_leaf(self.llm_info(), "usage")
        leaf, seen = LeafHash(), set[str]()
        for question in self.questions:
            check_name("question", question.id)
            leaf.add(question_line(question))
            if question.id in seen:
                raise ConflictError(
                    f"{self.dataset} has the question id {question.id!r} twice; give each its own."
                )
            seen.add(question.id)

    def kind(self) -> str:
        """Return the answer kind."""
        return answer_kind(self.dataset, self.answer_kind)

    def model_name(self) -> str:
        """Return the model as the provider calls it."""
        return self.model or self.llm_name.split("@", 1)[0]

    def plan(self) -> SamplePlan:
        """Return the requests and the number of samples."""
        requests = [
            Request(
                self.dataset,
                question.id,
                tuple(self.messages(question)),
                self.model_name(),
                self.decoding,
            )
            for question in self.questions
        ]
        return SamplePlan(requests, self.samples if self.tree is None else self.tree.steps)

    def identity(self) -> dict[str, Any]:
        """Return what must be equal for a journal to be continued."""
        return {
            "dataset": self.dataset,
            "llm": self.llm_name,
            "model": self.model_name(),
            "prompt": self.prompt_version,
            "decoding": self.decoding.content() | {"seed": self.decoding.seed},
        } | ({} if self.tree is None else {self.tree.NAME: self.tree.content()})

    def dataset_info(self, requests: Sequence[Request]) -> DatasetInfo:
        """Return the dataset as the recording describes it."""
        systems = {
            next((m.content for m in r.messages if m.role == "system"), None) for r in requests
        }
        system = systems.pop() if len(systems) == 1 else None
        return dataset_info(self.dataset, self.kind(), self.equality, system)

    def llm_info(self) -> LLMInfo:
        """Return the LLM as the recording describes it, without the decoding parameters that are
        not sent.
        """
        steps = {} if self.tree is None else {self.tree.IN_DECODING: self.tree.content()}
        return llm_info(
            self.llm_name,
            self.model_name(),
            self.prompt_version,
            self.decoding,
            seed=self.decoding.seed,
            **steps,
        )


def dataset_info(
    dataset: str, kind: str, equality: str | None, system: str | None = None
) -> DatasetInfo:
    """Return a dataset as a recording describes it."""
    card = find_dataset_card(dataset)
    title, licence = (card.title, card.licence) if card else (dataset, None)
    equal = named_equality(kind, equality)
    return DatasetInfo(dataset, title, kind, EXTRACTOR_VERSION, system, licence, equal)


def llm_info(name: str, model: str, prompt: str, decoding: Decoding, **others: Any) -> LLMInfo:
    """Return an LLM as a recording describes it, without the decoding parameters that are not
    sent.
    """
    content = decoding.content() | others
    temperature, max_tokens = content.pop("temperature"), content.pop("max_tokens")
    sent = {name: value for name, value in content.items() if value not in (None, [], {})}
    return LLMInfo(name, temperature, max_tokens, {"model": model, "prompt": prompt} | sent)


def answer_kind(dataset: str, named: str | None) -> str:
    """Return a dataset's answer kind: the one that is named, or its card's; refuse what is not read
    from texts.
    """
    card = find_dataset_card(dataset)
    kind = named or (card.answer_kind if card else None)
    if kind is None:
        raise UsageError(
            f"There is no card for the dataset {dataset!r}, so its kind of answers is not known;"
            f" pass it, --answer-kind KIND (one of {', '.join(KINDS)})."
        )
    if kind not in KINDS:
        raise UnknownNameError.of("answer kind", kind, KINDS)
    if kind == "verbatim":
        raise UsageError(
            "Verbatim answers are not extracted from texts; choose another answer kind for a"
            " recording."
        )
    return kind
