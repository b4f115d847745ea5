"""Trees of steps, or of turns, as the engine's assignment: each step that goes on is continued by
its children, up to a depth.

A step ends at the stop text, and stands in the journal as a sample of its question's request. The
steps of a tree are numbered level by level, whether or not all of them exist, so that a number says
where a step belongs. Chains of turns are trees of one child each: the user says something after
each reply, and the LLM replies again. Every turn sends the whole conversation again, each reply
without its thoughts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, field, replace
from hashlib import sha256
from typing import Any, ClassVar, NamedTuple

from feval.answers.thoughts import Thoughts, split_columns
from feval.appendlog import clean
from feval.cards import UNANSWERED, Price, count_words
from feval.errors import OutOfRangeError, UsageError
from feval.replay.draws import ABSENT_SAMPLE
from feval.values import RecordLike, frozen, without_none
from recorders.asking.pace import CostEstimate, cost
from recorders.asking.samples import Lack, MissingSamples, SampleBatch, SamplePlan, prefix
from recorders.errors import Fatal, RefusalError
from recorders.journal import Journal
from recorders.request import Completion, Message, Prefill, Request, require_template

# ruff: noqa: D102  the methods of an `Assignment` and of `Levels` are described there


MOST_STEPS = ABSENT_SAMPLE - 1
"""Most steps of a question in a recording."""

_SEEDS = 0x7FFFFFFF


class TreePlace(NamedTuple):
    """A step, or the request: its number, its level, and what is behind it: the text of the path,
    or the conversation so far.

    `tokens_left` is how many tokens the path may still have.
    """

    step: int | None
    level: int
    text: str = ""
    tokens_left: float = math.inf
    conversation: tuple[Message, ...] = ()


def root(request: Request) -> TreePlace:
    """Return the place of the request."""
    return TreePlace(None, 0, tokens_left=request.decoding.max_tokens or math.inf)


@frozen
class _Numbered:
    """The numbers of the steps that are recorded for each question, level by level.

    Attributes:
        first: first steps.
        branch: children of each further step.
        depth: steps of the longest path.
    """

    first: int
    branch: int
    depth: int

    @property
    def steps(self) -> int:
        """Steps of the tree if no path ends early; more than a recording has is not counted
        further.
        """
        return self.below(0)

    def below(self, level: int) -> int:
        """Return how many steps come behind one of a level, 0 being the request, if no path ends
        early.
        """
        total, width = 0, 1
        for after in range(level, self.depth):
            width *= self.branch if after else self.first
            total += width
            if total > MOST_STEPS:
                break
        return total

    def parent(self, step: int) -> int | None:
        """Return the number of the step before one; `None` for a first step."""
        return None if step < self.first else (step - self.first) // self.branch

    def children(self, step: int | None) -> range:
        """Return the numbers of the steps behind one, or of the first steps."""
        if step is None:
            return range(self.first)
        return range(self.first + step * self.branch, self.first + (step + 1) * self.branch)

    def arranged(
        self, records: Sequence[RecordLike]
    ) -> tuple[Sequence[RecordLike], list[int | None]]:
        """Return the recorded steps of a question as a recording has them, and the place of the
        step before each.
        """
        places: dict[int | None, int] = {
            record["sample"]: place for place, record in enumerate(records)
        }
        return records, [places.get(self.parent(record["sample"])) for record in records]

    def path(self, step: int | None) -> tuple[int, ...]:
        """Return the number of each step of the path to one among its siblings."""
        if step is None:
            return ()
        parent = self.parent(step)
        return (*self.path(parent), step - self.children(parent).start)


@frozen
class Tree(_Numbered):
    """The full tree of steps that is recorded for each question.

    Attributes:
        first: first steps.
        branch: children of each further step.
        depth: steps of the longest path; the last one goes on to the end of the solution.
        stop: text that a step ends at, and keeps but for blanks at its end: they begin the next
            step's first word.
        template: see `recorders.request.Prefill`.

    Raises:
        OutOfRangeError: a number below 1, or more steps than a recording has.
        UsageError: a stop text of blanks, or a template without "{prompt}".
    """

    stop: str
    template: str | None = None

    NAME: ClassVar = "tree"  # in the identity of a journal
    IN_DECODING: ClassVar = "steps"  # in the decoding that a recording states
    unit: ClassVar = "steps"

    def __post_init__(self) -> None:
        for name, value in (
            ("branch", self.branch),
            ("samples", self.first),
            ("depth", self.depth),
        ):
            if not 1 <= value <= MOST_STEPS:
                raise OutOfRangeError(
                    f"The setting {name} of a tree is 1 to {MOST_STEPS:,}; {value:,} was given."
                )
        if not self.stop.strip(" "):
            raise UsageError(
                "The stop text of the steps is empty or of blanks; give one such as '\\n\\n'."
            )
        require_template("step_template", self.template)
        if self.steps > MOST_STEPS:
            raise OutOfRangeError(
                f"A tree of {self.first} first steps, {self.branch} children each and depth"
                f" {self.depth} has more than the {MOST_STEPS:,} steps that a question may have;"
                " lower depth, branch or --samples."
            )

    @property
    def variant(self) -> str:
        """What the LLM is called in the recording, behind its name and "@"."""
        return self.unit

    def content(self) -> dict[str, Any]:
        return without_none(asdict(self))

    def text(self, record: RecordLike) -> str:
        """Return a recorded step as the path holds it."""
        kept = self.stop.rstrip(" ") if record.get("stop_text") == self.stop else ""
        return f"{record['text']}{kept}"

    def behind(
        self,
        before: TreePlace,
        record: RecordLike,
        _thoughts: Thoughts | None,  # a path holds them as they came
    ) -> tuple[TreePlace, bool]:
        """Return the place of a recorded step, and whether nothing comes behind it."""
        counted = record.get("output_tokens")
        left = before.tokens_left - (count_words(record["text"]) if counted is None else counted)
        place = TreePlace(record["sample"], before.level + 1, before.text + self.text(record), left)
        goes_on = record["finish_reason"] == "stop" and record.get("stop_text") == self.stop
        return place, not goes_on or place.level == self.depth or left < 1

    def continued(self, question: Request, before: TreePlace, thoughts: Thoughts | None) -> Request:
        decoding, prefill = question.decoding, None
        if before.level + 1 < self.depth:
            decoding = replace(decoding, stop=(*decoding.stop, self.stop))
        if before.level:
            if decoding.max_tokens is not None:
                decoding = replace(decoding, max_tokens=int(before.tokens_left))
            beginning, _ = prefix({"text": before.text}, len(before.text), thoughts)
            prefill = replace(beginning, template=self.template)
        return replace(question, decoding=decoding, prefill=prefill)

    def require_continuable(self, replies: Sequence[Completion], *, is_last: bool) -> None:
        if any(reply.reasoning for reply in replies):
            raise Fatal(
                "The server moves thoughts into a field of their own, so that a path cannot be"
                " continued. Serve it without a reasoning parser."
            )
        if not is_last and any(
            reply.finish_reason == "stop" and reply.stop_text is None for reply in replies
        ):
            raise Fatal(
                "The server does not say whether a step ended at the stop text or by itself, so"
                " that no tree can be recorded. Take a server that states stop_reason or"
                " matched_stop, as vLLM and SGLang do."
            )


def child_seed(path: Sequence[int], child: int) -> int:
    """Return what the seed of a child adds to the base seed: a function of the path to it, whatever
    the tree's shape.
    """
    if not path:
        return child
    digest = sha256(".".join(map(str, path)).encode()).digest()
    return (int.from_bytes(digest[:4], "big") + child) & _SEEDS


class MissingSteps(MissingSamples):
    """The steps of the trees of a plan that a journal lacks; the plan's samples are the steps of a
    full tree.
    """

    def __init__(self, tree: Levels, plan: SamplePlan, *arguments: Any) -> None:
        self._tree, self.unit = tree, tree.unit
        super().__init__(plan, *arguments)

    def _find(self) -> tuple[int, int]:
        total, _ = super()._find()
        recorded, lacks = 0, list[Lack]()
        for key, request in self._plan.by_key.items():
            going_on = [root(request)]
            recorded_steps = places(self._tree, request, self.journal.cots(key), self._thoughts)
            for _, place, ends in recorded_steps:
                recorded += 1
                if ends:
                    total -= self._tree.below(place.level)
                else:
                    going_on.append(place)
            lacks += [self._children(key, place) for place in going_on]
        self._lacks = iter(lacks)
        return total, total - recorded

    def accept(self, batch: SampleBatch, reply: list[Completion]) -> None:
        super().accept(batch, reply)
        lack = batch.lack
        for sample, completion in zip(batch.samples, reply, strict=False):
            record = asdict(completion) | {"sample": sample, "messages": batch.request.said()}
            place, ends = self._tree.behind(lack.place, record, self._thoughts)
            if ends:
                self.total -= self._tree.below(place.level)
            else:
                self._waiting.appendleft(self._children(lack.key, place))

    def refuse(self, batch: SampleBatch, error: RefusalError) -> None:
        super().refuse(batch, error)
        level = batch.lack.place.level + 1
        self.total -= self._tree.below(level) * len(batch.samples)

    async def send(self, batch: SampleBatch) -> list[Completion]:
        replies = await super().send(batch)
        self._tree.require_continuable(
            replies, is_last=batch.lack.place.level + 1 == self._tree.depth
        )
        return replies

    def _numbers(self, lack: Lack, samples: Sequence[int]) -> list[int]:
        path = self._tree.path(lack.place.step)
        first = self._tree.children(lack.place.step).start
        return [child_seed(path, sample - first) for sample in samples]

    def _children(self, key: str, place: TreePlace) -> Lack:
        """Return the steps behind one that are not asked for yet."""
        lacking = [
            step for step in self._tree.children(place.step) if not self.journal.has(key, step)
        ]
        request = self._tree.continued(self._plan.by_key[key], place, self._thoughts)
        return Lack(request, key, lacking, place=place)


def estimate_tree(
    tree: Tree, plan: SamplePlan, journal: Journal | None, price: Price | None
) -> CostEstimate:
    """Return the most steps that the trees of a plan still lack, and what they would cost at most.

    The leaves bound the output, each with a whole path; the prompt tokens leave out the paths,
    which servers cache.
    """
    keys, limit = plan.by_key, plan.decoding.max_tokens
    recorded = 0 if journal is None else sum(map(journal.count, keys))
    steps = max(plan.total - recorded, 0)
    leaves = len(keys) * tree.first * tree.branch ** (tree.depth - 1)
    calls = -(-steps // tree.branch)
    prompt = round(calls * (sum(request.words for request in plan.requests) / len(plan.requests)))
    output = None if limit is None else leaves * limit
    shape = f"full trees of {tree.steps:,} steps per question"
    basis = f"{shape}, without a limit on output tokens"
    if limit is not None:
        basis = (
            f"an upper bound: {shape}, whose paths all take {limit:,} tokens; the paths sent count"
            " as cached"
        )
    return CostEstimate(steps, calls, prompt, output, cost(price, prompt, output), basis, True)


_PLACES = re.compile(r"\{(question|answer)\}")


@frozen
class Protocol:
    """What the user says after each reply of a chain.

    Attributes:
        name: of the protocol; the LLM is called after it.
        messages: the message before each turn from the second on, or one before all of them. In
            them "{question}" stands for what was asked first, and "{answer}" for the answer in the
            last reply.
        no_answer: stands for an answer where the last reply has none.
        template: one exchange as the LLM reads it, with "{prompt}" and "{reply}", for endpoints
            that continue a text; `None`: the endpoint takes messages.
    """

    name: str
    messages: tuple[str, ...]
    no_answer: str = "no answer"
    template: str | None = None

    def message(self, turn: int, question: str, answer: Callable[[], str | None]) -> str:
        """Return what is said before a turn, 1 being the second."""
        values = {"question": lambda: question, "answer": lambda: answer() or self.no_answer}
        return _PLACES.sub(lambda place: values[place[1]](), self.text(turn))

    def text(self, turn: int) -> str:
        """Return the message before a turn, 1 being the second, as it was written."""
        return self.messages[turn - 1 if len(self.messages) > 1 else 0]


@frozen
class Turns(_Numbered):
    """The chains that are recorded for each question: `first` of them, each of `depth` turns.

    Attributes:
        protocol: what is said before each turn.
        read: returns the answer in a reply, by the id of its question.

    Raises:
        OutOfRangeError: a number below 1, or more turns than a recording has.
        UsageError: not one message before each turn, or a template without "{prompt}" and "{reply}"
            after it.
    """

    protocol: Protocol
    read: Callable[[str, str], str | None] = field(repr=False, compare=False)

    NAME: ClassVar = "protocol"
    IN_DECODING: ClassVar = "protocol"
    unit: ClassVar = "turns"

    def __post_init__(self) -> None:
        said, template = len(self.protocol.messages), self.protocol.template
        if self.depth < 2 or self.first < 1:
            raise OutOfRangeError(
                f"A protocol has 1 chain or more of 2 turns or more; {self.first} of {self.depth}"
                " turns were asked for."
            )
        if self.first * self.depth > MOST_STEPS:
            raise OutOfRangeError(
                f"{self.first:,} chains of {self.depth:,} turns are more than the {MOST_STEPS:,}"
                " turns that a question may have; record fewer or shorter ones."
            )
        if said > 1 and said != self.depth - 1:
            raise UsageError(
                f"The protocol {self.protocol.name} has messages for turns 2 to {said + 1}, and"
                f" {self.depth} turns were asked for. Ask for as many as it has, or write one"
                " message for all turns."
            )
        if template is not None and not re.fullmatch(r"(?s).*\{prompt\}.*\{reply\}.*", template):
            raise UsageError(
                'The setting turn_template holds "{prompt}" and then "{reply}", as one'
                f" exchange is written; {template!r:.80} was given."
            )

    @property
    def variant(self) -> str:
        return self.protocol.name

    def content(self) -> dict[str, Any]:
        protocol = self.protocol
        values = {
            "name": protocol.name,
            "turns": self.depth,
            "first": self.first,
            "messages": list(protocol.messages),
        }
        if any("{answer}" in text for text in protocol.messages):
            values["no_answer"] = protocol.no_answer
        return values if protocol.template is None else values | {"template": protocol.template}

    def behind(
        self, before: TreePlace, record: RecordLike, thoughts: Thoughts | None
    ) -> tuple[TreePlace, bool]:
        reply = reply_of(record, thoughts)
        said = [Message(**each) for each in record.get("messages", ())]
        conversation = (*before.conversation, *said, Message("assistant", reply))
        place = TreePlace(record["sample"], before.level + 1, conversation=conversation)
        is_broken = "refused" in record or record["finish_reason"] in UNANSWERED
        return place, is_broken or place.level == self.depth or not reply.strip()

    def continued(self, question: Request, before: TreePlace, thoughts: Thoughts | None) -> Request:  # noqa: ARG002  they are gone
        if not before.level:
            return question
        asked = next((m.content for m in reversed(question.messages) if m.role == "user"), "")
        reply = before.conversation[-1].content
        said = self.protocol.message(
            before.level, asked, lambda: self.read(question.question_id, reply)
        )
        template = self.protocol.template
        prefill = None if template is None else Prefill("", template=template)
        return replace(
            question, conversation=(*before.conversation, Message("user", said)), prefill=prefill
        )

    def require_continuable(self, replies: Sequence[Completion], *, is_last: bool) -> None:
        pass


Levels = Tree | Turns


def places(
    levels: Levels, request: Request, records: Sequence[RecordLike], thoughts: Thoughts | None
) -> Iterator[tuple[RecordLike, TreePlace, bool]]:
    """Yield each recorded step of a question, in order, with its place and whether nothing comes
    behind it.
    """
    found: dict[int | None, TreePlace] = {None: root(request)}
    for record in records:
        place, ends = levels.behind(found[levels.parent(record["sample"])], record, thoughts)
        found[place.step] = place
        yield record, place, ends


@frozen
class LiveTurns:
    """Turns that a method asked for live: each says itself which one it replies to."""

    def arranged(
        self, records: Sequence[RecordLike]
    ) -> tuple[Sequence[RecordLike], list[int | None]]:
        """Return the recorded turns of a question, turn by turn of a conversation, and the place of
        the one before each.
        """
        replies: dict[int | None, list[RecordLike]] = {}
        for record in records:
            replies.setdefault(record.get("parent"), []).append(record)
        turns: list[tuple[RecordLike, int | None]] = [
            (record, None) for record in replies.get(None, ())
        ]
        for place, (before, _) in enumerate(turns):  # grows meanwhile
            turns += [(record, place) for record in replies.get(before["sample"], ())]
        return [record for record, _ in turns], [place for _, place in turns]


def reply_of(record: RecordLike, thoughts: Thoughts | None) -> str:
    """Return a recorded reply as a conversation holds it: without its thoughts."""
    apart = record.get("reasoning")
    columns = split_columns(
        [record["text"]], apart and [apart], [record["finish_reason"]], thoughts
    )
    return clean(columns.texts[0] or "")


def estimate_turns(
    turns: Turns, plan: SamplePlan, journal: Journal | None, price: Price | None
) -> CostEstimate:
    """Return the most turns that the chains of a plan still lack, and what they would cost: each
    sends the conversation again.

    Replies are as long as the journal's, else they take all tokens they may.
    """
    limit, at_most = plan.decoding.max_tokens, True
    length: float | None = limit
    basis = "nothing: there is no limit on output tokens"
    if journal is not None and journal.totals.cots:
        length = journal.totals.output_tokens / journal.totals.cots
        basis, at_most = "the mean length of the replies in the journal", False
    elif limit is not None:
        basis = f"an upper bound: the limit of {limit:,} output tokens for every turn"
    texts = [turns.protocol.text(turn) for turn in range(1, turns.depth)]
    cots, calls, fresh, again = 0, 0, 0.0, 0.0
    for key, request in plan.by_key.items():
        levels = [turn // turns.first for turn in plan.missing(key, journal)]
        later = [level for level in levels if level]
        words = request.words
        said = [count_words(text) + text.count("{question}") * words for text in texts]
        begins = 0 in levels
        cots, calls = cots + len(levels), calls + begins + len(later)
        fresh += begins * words + sum(said[level - 1] for level in later)
        again += sum(words + sum(said[: level - 1]) + level * (length or 0) for level in later)
    prompt, new = round(fresh + again), round(fresh)
    output = None if length is None else round(cots * length)
    return CostEstimate(
        cots,
        calls,
        prompt,
        output,
        cost(price, prompt, output),
        basis,
        at_most,
        uncached_prompt_tokens=None if output is None else new,
        usd_cached=cost(price, new, output),
    )
