"""What an importer reads from a file: plain columns, before answers are normalised and tokens
counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import orjson

from feval.cards import FINISH_REASONS
from feval.errors import SourceError, UsageError, require_known
from feval.importers.layouts import Layout
from feval.recording import LLMInfo, ScorerInfo, ScoreRows
from feval.recording.content import PoolColumns
from feval.values import Pairs, frozen

Row = dict[str, Any]
"""What one row, CoT or object of a source has, by name."""

FINISH_REASON_WORDS: dict[str, str] = {
    **dict(zip(FINISH_REASONS, FINISH_REASONS, strict=True)),
    "max_tokens": "length",
    "model_length": "length",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "run_cancelled": "error",
    "run_expired": "error",
    "run_failed": "error",
}
"""Finish reasons of sources, and their names in a recording (OpenAI's chat words, `error`,
`unknown`).
"""


@frozen
class SourceQuestion:
    """One question of a source or a questions file.

    `text` is `None` where the source has only the id, and empty where the text is not known. `gold`
    is as the source writes it, a number as its decimal key. `choices` are (label, text), `features`
    (name, value).
    """

    id: str
    text: str | None
    gold: str | None = None
    choices: Pairs = ()
    features: Pairs = ()


@frozen
class Prompt:
    """A request: `messages` as JSON, and the `text` whose tokens are counted."""

    messages: str
    text: str


def chat(messages: str | Iterable[Mapping[str, str]]) -> Prompt:
    """Return a request of messages, each with a role and a content, or of one of the user's."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    sent = list(messages)
    return Prompt(orjson.dumps(sent).decode(), "\n".join(each["content"] for each in sent))


@frozen
class SourcePool(PoolColumns):
    """The CoTs of one LLM on one question, as columns of equal length, in recorded order.

    `texts` are as the LLM wrote them, inline thoughts included, and `None` where the source kept
    none. A column is `None` where the source does not have it. An answer of `None` is no answer.
    `graded` has how right CoTs are, by grader; `grader` is who alone gave verdicts without a name.
    `probes` are (sample, offset, answer, text, output tokens, confidence), in this order.
    The other columns are as in `feval.recording.PoolRows`.
    """

    texts: Sequence[str | None]
    answers: Sequence[str | None] | None = None
    tokens: Sequence[int] | None = None
    finish_reasons: Sequence[str] | None = None
    prompt: Prompt | None = None
    prompt_tokens: int | None = None
    extra: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    scores: Mapping[str, ScoreRows] = field(default_factory=dict)
    graded: Mapping[str, ScoreRows] = field(default_factory=dict)
    grader: str = ""
    probes: Sequence[Sequence[Any]] = ()


@frozen
class SourceLLM:
    """One LLM of a source.

    `pools` has one pool per question, in their order, and may be a generator that reads as it goes.
    `counted`: the source has the output tokens of every CoT. `probe_cue`: what made it answer
    early; `counter`: who counted its tokens. `None`: not known. `probes_answered`: answers of
    probes are stored, and not read in their texts.
    """

    info: LLMInfo
    pools: Iterable[SourcePool]
    counted: bool = False
    probe_cue: str | None = None
    probes_answered: bool = False
    counter: str | None = None


@frozen
class SourceContent:
    """A whole source.

    `questions` may be read from disk. `llms` may be a generator, which reads one LLM at a time.
    `notes` are for the manifest, and complete once every pool was read. `dataset` is the id where
    the source names it, and `others` are its other datasets. `scorers`: name -> what the source
    says of the scorer.
    """

    questions: Sequence[SourceQuestion]
    llms: Iterable[SourceLLM]
    notes: list[str]
    system_prompt: str | None = None
    llm_count: int = 1
    dataset: str = ""
    others: Sequence[SourceContent] = ()
    scorers: Mapping[str, ScorerInfo] = field(default_factory=dict)


@frozen
class ImportRequest:
    """The user's options for an importer, as in `import_recording`.

    `dataset` is empty where the source should name it. `questions` are those of the questions file,
    in its order. `scratch` is the folder for temporary files, with what does not fit into memory;
    `None`: where the system has such files. `answer_kind`: what answers will be read as.
    `layout`: what the columns of a table mean. `facts`: what the table's metadata says
    (`feval.importers.exported.Facts`), where feval exported it. `merges`: questions of one text
    are one.
    """

    dataset: str
    llms: tuple[str, ...] = ()
    questions: list[SourceQuestion] | None = field(default=None, repr=False)
    keep_duplicates: bool = False
    temperature: float | None = None
    max_tokens: int | None = None
    scratch: Path | None = None
    answer_kind: str | None = None
    layout: Layout | None = None
    facts: Any = field(default=None, repr=False)
    merges: bool = False

    def llm_of(self, source: str, info: LLMInfo) -> LLMInfo:
        """Return the one LLM of a source that states its name (else empty) or decoding. A name that
        the user gave wins.

        Raises:
            UsageError: nobody names it, or several names were given.
            SourceError: user and source state another decoding.
        """
        name = self.llms[0] if len(self.llms) == 1 else info.name
        if len(self.llms) > 1 or not name:
            names = f"{len(self.llms)} were given" if self.llms else "none was given"
            raise UsageError(
                f"{source} has the CoTs of one LLM and does not name it, and {names}; pass its"
                " name, --llm NAME."
            )
        for key in ("temperature", "max_tokens"):
            option, stored = getattr(self, key), getattr(info, key)
            if None not in (option, stored) and option != stored:
                raise SourceError(
                    f"{source} says {key} {stored}, and {option} was given; leave the option out."
                )
        return replace(
            info,
            name=name,
            temperature=self.temperature if info.temperature is None else info.temperature,
            max_tokens=self.max_tokens if info.max_tokens is None else info.max_tokens,
        )

    def chosen_llms(self, source: str, infos: Sequence[LLMInfo]) -> list[tuple[str, LLMInfo]]:
        """Return (name in the source, LLM to record) for the LLMs to take from a source that names
        its LLMs.

        A name that the user gave chooses among several LLMs, and renames a single one.

        Raises:
            UnknownNameError: the source has several LLMs, and not the one named.
            SourceError: user and source state another decoding.
        """
        if len(infos) == 1 and len(self.llms) < 2:
            return [(infos[0].name, self.llm_of(source, infos[0]))]
        names = {llm.name: llm for llm in infos}
        for name in self.llms:
            require_known(
                f"LLM in {source},",
                name,
                names,
                "CoTs of several LLMs are not one LLM's: name some of them, or leave out --llm"
                " to import all.",
            )
        alone = replace(self, llms=())
        return [(name, alone.llm_of(source, names[name])) for name in self.llms or names]

    def question_id(self, row: int) -> str:
        """Return the id of the question in a row of the upstream dataset, counted from 0."""
        return f"{self.dataset}/{row}"


def counted_notes(*facts: tuple[str, int]) -> list[str]:
    """Return a sentence such as "Questions without samples: 3." for each count above 0."""
    return [f"{what}: {count:,}." for what, count in facts if count]


@frozen
class Importer:
    """One foreign format.

    Attributes:
        name: the argument of `feval import`.
        title: what it reads, for people.
        read: reads a file, which may be compressed by gzip. Raises nothing but `FevalError`:
            `SourceError` (broken, empty, hostile or of another shape), `ConflictError` (it
            contradicts itself), `UsageError` (the LLM's name or the questions are missing),
            `UnknownNameError` (it has no such LLM).
        upstream_answer: what `verbatim` means for a source that stores no answers: its authors'
            published extraction.
        beside: returns the existing files that are read with a source.
        files: returns the files of a source that are asked for, where it need not be one file.
        facts: returns what the metadata of a source says; `None` where it says nothing.
    """

    name: str
    title: str
    read: Callable[[Path, ImportRequest], SourceContent]
    upstream_answer: Callable[[str], str] | None = None
    beside: Callable[[Path], Sequence[Path]] | None = None
    files: Callable[[Path, ImportRequest], Iterable[Path]] | None = None
    facts: Callable[[Path], Any] | None = None
