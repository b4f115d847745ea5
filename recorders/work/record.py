"""Record an LLM on a dataset, from questions to a verified recording: what `feval record` does.

    decoding = Decoding(temperature=0.8)
    task = RecordingTask(questions, "gsm8k", "gpt-4o-mini@t=0.8", messages, "gsm8k@1", decoding)
    record_dataset(task, backend, "my-recording")

The journal is beside the recording, in `my-recording.journal/`, from the first reply until the
recording is verified. The same call again continues where the last one stopped; once the recording
is complete, it does nothing.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Collection, Mapping, MutableSequence, Sequence
from dataclasses import field, replace
from functools import partial as partial_of
from itertools import groupby
from pathlib import Path
from typing import Any

from feval.answers import EXTRACTOR_VERSION, KINDS
from feval.answers.equality import named_equality
from feval.appendlog import difference
from feval.cards import find_dataset_card, thoughts_of
from feval.cards.tokens import SPLIT_USAGE, is_usage, token_counter
from feval.errors import ConflictError, NotARecordingError, StorageError, UsageError, require_known
from feval.executors import reports
from feval.publish.secrets import known_secrets, refuse_key_fields, refuse_secrets
from feval.recording import (
    DatasetInfo,
    LLMInfo,
    PoolRows,
    Question,
    Recording,
    open_recording,
    verify_recording,
)
from feval.recording.layout.format import LeafHash, check_name, recording_around
from feval.recording.parts import llm_leaf, question_line
from feval.recording.verify import open_sound
from feval.values import Record, RecordLike, frozen
from recorders.asking.batches import BatchedOpenAI, BatchedSamples
from recorders.asking.engine import Control, Progress, RunBar, run
from recorders.asking.pace import CostEstimate, Limits, check_cost_limit, find_price
from recorders.asking.samples import (
    MissingProbes,
    MissingSamples,
    Probing,
    SamplePlan,
    estimate_probes,
    estimate_samples,
    record_samples,
)
from recorders.asking.trees import Levels, MissingSteps, Tree, Turns, estimate_tree, estimate_turns
from recorders.errors import InterruptedByUser, MissingError, RecorderError
from recorders.journal import (
    JOURNAL,
    Journal,
    check_mode,
    completion_of,
    is_written,
    journal_folder,
    never_empty,
    utc_now,
)
from recorders.request import Backend, Decoding, Message, Request
from recorders.work.seal import JournaledLLM, seal, start_probes


@reports("recording", RunBar)
def record_dataset(
    task: RecordingTask,
    backend: Backend,
    out: str | Path,
    *,
    mode: str = "new_episodes",
    limits: Limits | None = None,
    prices: str = "2025-06-02",
    cost_limit_usd: float | None = None,
    counter: str = "usage",
    other_counter: str = "words",
    partial: bool = False,
    journal: str | Path | None = None,
    keep_journal: bool = False,
    start: str | Path | None = None,
    progress: Callable[[Progress], None] | None = None,
    sealing: Callable[[int], None] | None = None,
    expected: Callable[[CostEstimate], None] | None = None,
    backend_notes: MutableSequence[str] | None = None,
    now: Callable[[], str] = utc_now,
) -> Path:
    """Ask for what is missing, seal, verify, and remove the journal.

    In the main thread, the first Ctrl-C waits for replies in flight, SIGTERM and SIGHUP for 30
    seconds at most, a second one for nothing.

    Args:
        task: what is to be recorded.
        backend: asked, and closed at the end; a `BatchedOpenAI` is asked in batches.
        out: folder of the recording to make.
        mode: a key of `recorders.journal.MODES`.
        limits: how fast to ask.
        prices: price list of the recording, by id, or "none".
        cost_limit_usd: most dollars for the recording, earlier runs included.
        counter: who counts tokens: "usage" (the provider), or a name that
            `feval.cards.tokens.token_counter` knows.
        other_counter: counts instead, if the provider did not count everything.
        partial: seal what there is if the run ends early for another reason than Ctrl-C, or may not
            ask. Pools may then have different sizes.
        journal: the journal's folder; `None`: `OUT.journal` beside the recording.
        keep_journal: leave the journal where it is, to top it up later into another recording.
        start: a recording that holds the LLM, asked in the same way: what it has of the questions
            is not asked for again.
        progress: called with where the run is.
        sealing: called with how many questions are sealed.
        expected: called with what a tree or chains of turns are still to come to, before anything
            is asked.
        backend_notes: a list to which the backend appends sentences about what the server does.
        now: the time as it is recorded.

    Returns:
        The recording's folder.

    Raises:
        StoppedError: recording ended early (`InterruptedByUser`, `CostLimitError`, or requests
            that failed too often).
        BackendError: no request works, and why.
        JournalError: the journal is damaged, locked or of something else, or the mode forbids
            asking for what is missing.
        StorageError: `out` is another recording, or the disk refused.
        ConflictError: `start` is of something else.
        UsageError: a name or number that cannot task.
    """
    out = Path(out)
    price = find_price(prices, task.llm_name)
    if task.decoding.noise_seed is not None and not backend.shares_noise:
        raise UsageError(
            "Coupled samples need a model that draws with feval's noise; the backend"
            f" {backend.name!r} asks a server, which draws with its own. Use the backend 'tiny' or"
            " 'transformers', or leave coupled out."
        )
    batches = backend if isinstance(backend, BatchedOpenAI) else None
    limits = limits or Limits()
    if batches is not None:
        if task.tree is not None or task.probing is not None:
            raise UsageError(
                "Batches are of whole CoTs; record steps, turns and probes without --batch (in"
                " Python: with another backend). Probes of CoTs from a batch are added by --from."
            )
        price = price and (price.batch or price)
    if task.tree is not None and (partial or start is not None):
        what = "Trees of steps" if isinstance(task.tree, Tree) else "Chains of turns"
        raise UsageError(
            f"{what} are recorded whole and anew; leave partial and --from (in Python: start) out."
        )
    plan, identity = task.plan(), task.identity()
    probes = {} if task.probing is None else {"probes": task.probing.content()}
    folder = journal_folder(out) if journal is None else Path(journal)
    check_cost_limit(cost_limit_usd, price, task.llm_name, prices)
    check_mode(mode)
    if is_sealed(out, task, mode):
        # The journal, or its lock alone, of a run that was killed between sealing and removing it.
        if folder.is_dir() and not keep_journal and verify_recording(out).ok:
            with Journal.open(folder, identity) as leftover:
                leftover.remove()
        return out
    # A vocabulary is fetched before anything is paid for.
    token_counter(other_counter if counter == "usage" else counter)
    opened = Journal.open(folder, identity, mode=mode, about={"backend": backend.name})
    with opened, never_empty(opened):
        if start is not None:
            start_from(start, opened, task, plan.requests)
        if expected is not None and task.tree is not None:
            expected(_estimate(task, plan, opened, {"price": price}))
        if batches is None and opened.may_ask and opened.sent():
            raise UsageError(
                f"CoTs that {folder} lacks are in batches, and would be paid twice; add --batch (in"
                " Python: the backend BatchedOpenAI) to collect them."
            )
        control = Control()
        options: Record = {
            "limits": limits,
            "price": price, "cost_limit_usd": cost_limit_usd,
            "progress": progress,
            "backend_notes": backend_notes, "control": control, "now": now,
            "thoughts": thoughts_of(task.llm_name),
        }  # fmt: skip

        steps: Callable[..., MissingSamples] = MissingSamples if batches is None else BatchedSamples
        if task.tree is not None:
            steps = partial_of(MissingSteps, task.tree)

        async def everything() -> Progress:
            if batches is not None and opened.may_ask:
                batches.begin(opened, limits)
            ask = partial_of(record_samples, plan, backend, opened, **options)
            outcome = await ask(missing=steps)
            if task.probing is None or outcome.error is not None:
                return outcome
            return await ask(missing=partial_of(MissingProbes, task.probing))

        error: RecorderError | None
        try:
            error = run(everything(), control, backend.aclose).error
        except MissingError as lacking:
            error = lacking
        if error is not None and not (
            partial and len(opened) and not isinstance(error, InterruptedByUser)
        ):
            raise error
        replies = JournaledLLM(
            opened,
            task.dataset_info(plan.requests),
            task.questions,
            plan.requests,
            task.llm_info(),
            counter,
            other_counter,
            task.tree,
        )
        seal(
            [replies],
            out,
            operation={
                "name": "record",
                "backend": backend.name,
                "samples": task.samples,
                **identity,
                **probes,
            },
            probing=task.probing,
            prices=prices,
            notes=[*task.notes, *([] if error is None else [f"Recording ended early. {error}"])],
            progress=sealing,
        )
        if not keep_journal:
            opened.remove()
    return out


def estimate_dataset(
    task: RecordingTask,
    out: str | Path,
    *,
    mode: str = "new_episodes",
    limits: Limits | None = None,
    prices: str = "2025-06-02",
    journal: str | Path | None = None,
    start: str | Path | None = None,
) -> CostEstimate:
    """Return what `record_dataset` would ask for and cost, without asking; args are its own."""
    check_mode(mode)
    if is_sealed(Path(out), task, mode):
        return CostEstimate(
            0, 0, 0, 0, 0.0, "the recording, which is sealed and complete", at_most=False
        )
    folder = journal_folder(out) if journal is None else Path(journal)
    options: Record = {"price": find_price(prices, task.llm_name), "limits": limits}
    plan, is_new = task.plan(), not (folder / JOURNAL).exists()
    if mode == "all" or (is_new and start is None):
        return _estimate(task, plan, None, options)
    with (
        tempfile.TemporaryDirectory() as place,
        Journal.open(place if is_new else folder, task.identity()) as opened,
    ):
        if is_new and start is not None:
            start_from(start, opened, task, plan.requests)
        return _estimate(task, plan, opened, options)


def _estimate(
    task: RecordingTask, plan: SamplePlan, journal: Journal | None, options: RecordLike
) -> CostEstimate:
    if isinstance(task.tree, Tree):
        return estimate_tree(task.tree, plan, journal, options["price"])
    if isinstance(task.tree, Turns):
        return estimate_turns(task.tree, plan, journal, options["price"])
    cots = estimate_samples(plan, journal, **options)
    if task.probing is None:
        return cots
    probes = estimate_probes(task.probing, plan, cots, journal, options["price"])
    return replace(cots, probes=probes)


_POOLS_PER_COMMIT = 256


def is_sealed(out: Path, task: RecordingTask, mode: str) -> bool:
    """Return whether a folder is the wanted recording, sealed before.

    A `StorageError` says if something else is there, if it holds less than is wanted or is to be
    recorded again (mode "all"), or if it would be inside another recording.
    """
    if not is_written(out):
        holder = recording_around(out.absolute().parent)
        if holder is not None:
            raise StorageError(
                f"{out} would be inside the recording {holder}, which never changes. Name another"
                " folder."
            )
        return False
    try:
        recording = open_recording(out)
    except NotARecordingError as error:
        raise StorageError(
            f"{out} exists already and is not a recording; name another folder."
        ) from error
    stated, identity = recording.manifest.raw["operation"], task.identity()
    differs = difference(
        {"operation": stated.get("name")} | {name: stated.get(name) for name in identity},
        {"operation": "record"} | identity,
    )
    if differs is not None:
        raise StorageError(
            f"{out} exists already and is another recording: its {differs}. A recording is never"
            " overwritten; name another folder."
        )
    _require_enough(recording, out, task)
    if mode == "all":
        raise StorageError(
            f"{out} is sealed, and the mode 'all' records everything again. A sealed recording is"
            " never changed: name another folder."
        )
    return True


def start_from(
    start: str | Path, journal: Journal, task: RecordingTask, requests: Sequence[Request]
) -> None:
    """Put the CoTs and probes of a sealed recording into a journal, so that only what is missing is
    asked for.

    CoTs that are already in the journal are left alone. What a recording does not keep is lost:
    prompt tokens are counted once per run of CoTs with the same second and response id, and a
    refused request is an empty CoT like any other.
    """
    recording, llm, dataset = open_sound(Path(start)), task.llm_info(), task.dataset
    recording.require(dataset, llm.name)
    if differs := difference(_asked(recording.llm_info(llm.name)), _asked(llm)):
        raise ConflictError(
            f"{start} cannot be continued: its {differs}. Ask in the same way, or start without it."
        )
    by_question = {request.question_id: request for request in requests}
    counter = recording.counter(dataset, llm.name)
    for number, pool in enumerate(recording.pools(dataset, llm.name), 1):
        request = by_question.get(pool.question_id)
        if request is None or not pool.texts:
            continue
        if pool.prompt != request.prompt():
            raise ConflictError(
                f"{start} cannot be continued: it asked the question {pool.question_id!r} with"
                " other messages. Give the same questions and prompt, or start without it."
            )
        _add(journal, request, pool, counter)
        if number % _POOLS_PER_COMMIT == 0:
            journal.commit()
    journal.commit()
    if task.probing is not None:
        start_probes(recording, journal, task.probing, (dataset, llm.name), by_question)
    journal.note(f"It begins with the CoTs of the recording {recording.hash}.")
    journal.commit()


def _asked(llm: LLMInfo) -> Record:
    """Return how an LLM was asked, as JSON holds it."""
    limits = {"temperature": llm.temperature, "max_tokens": llm.max_tokens}
    values: Record = json.loads(json.dumps(limits | dict(llm.decoding)))
    return values


def _require_enough(recording: Recording, out: Path, task: RecordingTask) -> None:
    probing = task.probing
    samples = task.samples if task.tree is None else task.tree.first  # at least
    more = (
        "A sealed recording is never changed: record into another folder that begins with its"
        f" CoTs, --out NEW --from {out} (in Python: out=NEW, start={str(out)!r}), and only what is"
        " missing is asked for."
    )
    recorded = {question.id: question for question in recording.questions(task.dataset)}
    lacking = [question.id for question in task.questions if question.id not in recorded]
    if lacking:
        raise StorageError(
            f"{out} is sealed with {len(recorded)} questions, and {len(lacking)} others were asked"
            f" for, such as {lacking[0]!r:.80}. {more}"
        )
    for question in task.questions:
        known = recorded[question.id]
        if any(
            getattr(known, name) != getattr(question, name)
            for name in ("text", "answer", "choices")
        ):
            raise StorageError(
                f"{out} exists already and is another recording: its question {question.id!r:.80}"
                " has another text, gold or options. A recording is never overwritten; name"
                " another folder."
            )
    smallest = min(
        (pair.get("smallest_pool", 0) for pair in recording.manifest.pairs.values()), default=0
    )
    if smallest < samples:
        raise StorageError(
            f"{out} is sealed with {smallest} CoTs per question, and {samples} were asked for."
            f" {more}"
        )
    stated = recording.manifest.raw["operation"].get("probes")
    if probing is not None and stated != probing.content():
        found = (
            "without probes" if stated is None else f"with probes made in another way ({stated})"
        )
        raise StorageError(
            f"{out} is sealed {found}, and probes every {probing.every} tokens were asked for."
            f" {more}"
        )


def _add(journal: Journal, request: Request, pool: PoolRows, counter: str) -> None:
    """Add one pool as the replies it came in, as far as that can be told."""
    columns: dict[str, Sequence[Any] | None] = {
        "text": pool.raw_texts(),
        "finish_reason": pool.finish_reasons,
        "output_tokens": pool.output_tokens,
        "reasoning": pool.reasoning_apart(),
        "token_logprobs": pool.token_logprobs,
        "token_confidences": pool.token_confidences,
        "sequence_logprob": pool.sequence_logprobs,
        **pool.extra,
    }
    key, base, records = request.key(), request.decoding.seed, list[tuple[int, Record]]()
    for row in range(len(pool.texts)):
        record = {name: values[row] for name, values in columns.items() if values is not None}
        seed = record.get("seed")
        # Pools are numbered without gaps; seeds, if any, tell the index.
        sample = row if base is None or seed is None else seed - base
        if not journal.has(key, sample):
            records.append((sample, record))
    was_counted = is_usage(counter)
    for (at, _), reply in groupby(
        records, lambda each: (each[1].get("recorded_at"), each[1].get("response_id"))
    ):
        samples, fields = zip(*reply, strict=True)
        completions = [
            replace(
                completion_of(record),
                text=record["text"] or "",
                output_tokens=record["output_tokens"] if was_counted else None,
                prompt_tokens=pool.prompt_tokens if was_counted and place == 0 else None,
                tokens_split=counter == SPLIT_USAGE or None,
            )
            for place, record in enumerate(fields)
        ]
        seeds = [record.get("seed") for record in fields]
        journal.add(request, key, samples, completions, recorded_at=at or "", seeds=seeds)


@frozen
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

    def identity(self) -> Record:
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
    require_known("answer kind", kind, KINDS)
    if kind == "verbatim":
        raise UsageError(
            "Verbatim answers are not extracted from texts; choose another answer kind for a"
            " recording."
        )
    return kind
