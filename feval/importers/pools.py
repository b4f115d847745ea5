"""From the pools of a source to those of a recording: thoughts split off, answers read and
normalised, tokens counted.

With an executor, a task reads a block of questions, whose CoTs travel there and back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import field, replace
from functools import partial
from itertools import chain
from pathlib import Path

import orjson

from feval.answers import NORMAL_FORM, canonical_gold, extract, keys, normal_forms
from feval.answers.thoughts import SplitColumns, Thoughts, opened_by_template, split_columns
from feval.errors import FevalError, SourceError, UsageError
from feval.executors import results
from feval.importers.source import Importer, Prompt, Row, SourcePool, SourceQuestion, chat
from feval.importers.stored_rows import StoredRows
from feval.recording import PoolRows
from feval.values import frozen

_BLOCK_COTS = 1 << 14
_BLOCK_BYTES = 6 << 20  # Dask warns of tasks of 10 MB
_BLOCKS_AHEAD = 2  # for each worker, taken from the source and not yet written


# A question, the pool of one LLM, and whether its other CoTs show that its chat template opens the
# thought.
_Pair = tuple[SourceQuestion, SourcePool, bool]


@frozen
class Reading:
    """How the CoTs of an LLM are read.

    Attributes:
        importer: of the source.
        kind: of the answers.
        equality: of the answers.
        always_text: answers are read in the texts, also where the source stores some.
        compares: answers that are right are counted, as they are read and as the source stores
            them.
        golds_are_positions: stored numbers that name no option are counted.
        count: counts the tokens of a text; `None` takes the source's counts.
        counted: the source has the output tokens of every CoT.
        thoughts: how the LLM marks its thoughts.
        seen: counts what is unusual.
    """

    importer: Importer
    kind: str
    equality: str
    always_text: bool
    compares: bool
    golds_are_positions: bool
    count: Callable[[str], int] | None = None
    counted: bool = False
    thoughts: Thoughts | None = None
    seen: Counter[str] = field(default_factory=Counter)

    def rows(self, question: SourceQuestion, pool: SourcePool, opens: bool) -> PoolRows:
        """Return the rows of a pool; `opens` is as in `split_columns`."""
        seen, whole = self.seen, pool.ends is None or pool.messages is not None
        reasons = pool.finish_reasons or ["unknown"] * len(pool.texts)
        columns = (
            split_columns(pool.texts, pool.reasoning, reasons, self.thoughts, opens=opens)
            if whole
            else SplitColumns(list(pool.texts), None, None, list(reasons), list(pool.ends or ()))
        )
        seen["with thoughts"] += sum(bool(marks) for marks in columns.marks or ())
        seen["without reply"] += columns.readable.count(False) if whole else 0
        raw = self._raw_answers(question, pool, columns)
        canonical = normal_forms(self.kind, raw, question.choices)
        gold = canonical_gold(self.kind, question.gold, question.choices)
        is_stored = pool.answers is not None and not self.always_text
        if self.compares and question.gold is not None:
            # those of the source's authors: stored, or by their published rule
            stored = pool.answers or []
            if pool.answers is None and (rule := self.importer.upstream_answer) is not None:
                stored = _answers(pool.texts, rule)
            seen["compared"] += len(raw)
            seen["compared as stored"] += len(stored)
            seen["right"] += self._right_by_kind(question, raw, canonical, gold)
            seen["right as stored"] += stored.count(question.gold)
        if self.golds_are_positions and is_stored:
            labels = dict(question.choices)
            seen["numbers"] += sum(
                form.isdecimal() and form not in labels for form in canonical if form
            )
        if question.gold is not None and is_stored:
            seen["as floats"] += _right_but_for_a_float(question.gold, raw, canonical, gold)
        seen["unreadable"] += canonical.count(None) - raw.count(None)
        prompt, prompt_tokens = self._request(question, pool)
        return PoolRows(
            question.id,
            columns.texts,
            raw,
            canonical,
            self._output_tokens(question, pool),
            columns.finish_reasons,
            prompt,
            prompt_tokens,
            pool.extra,
            reasoning=columns.reasoning,
            reasoning_marks=columns.marks,
            sequence_logprobs=pool.sequence_logprobs,
            token_logprobs=pool.token_logprobs,
            token_confidences=pool.token_confidences,
            parents=pool.parents,
            ends=pool.ends,
            messages=pool.messages,
            turn_prompt_tokens=self._turn_prompt_tokens(question.id, pool, prompt_tokens),
        )

    def _right_by_kind(
        self,
        question: SourceQuestion,
        raw: Sequence[str | None],
        forms: Sequence[str | None],
        gold: str | None,
    ) -> int:
        """Return the number of CoTs that vote with the gold."""
        if self.equality == NORMAL_FORM:
            return 0 if gold is None else list(forms).count(gold)
        choices, equality = question.choices, self.equality
        votes = keys(self.kind, raw, question.gold, choices, equality=equality)
        return 0 if votes.gold is None else votes.answers.count(votes.gold)

    def _raw_answers(
        self, question: SourceQuestion, pool: SourcePool, columns: SplitColumns
    ) -> Sequence[str | None]:
        """Return the stored answers, or those read in the replies; verbatim answers are read as the
        authors do.
        """
        verbatim = self.kind == "verbatim"
        self.seen["texts"] += len(columns.texts) - columns.texts.count(None)
        if pool.answers is not None and not self.always_text:
            self.seen["stored"] += len(pool.answers)
            answers = pool.answers
        elif not verbatim:
            answers = _answers(columns.texts, partial(extract, self.kind, choices=question.choices))
        elif self.importer.upstream_answer is not None:
            answers = _answers(pool.texts, self.importer.upstream_answer)
        elif any(text is not None for text in pool.texts):
            raise UsageError(
                f"Verbatim answers are the stored ones of a {self.importer.name} source, and"
                f" question {question.id!r} has none; choose an answer kind that can be extracted"
                " from the texts, --answer-kind KIND."
            )
        else:
            answers = [None] * len(pool.texts)
        if verbatim:
            return answers
        return [
            answer if readable else None
            for answer, readable in zip(answers, columns.readable, strict=True)
        ]

    def _request(self, question: SourceQuestion, pool: SourcePool) -> tuple[str | None, int | None]:
        """Return the request and its tokens. Where the source has neither, the question's text
        stands in for the request.

        A count of the source is taken, unless the source has counts of everything and another
        counter was asked for.
        """
        prompt, count = pool.prompt, self.count
        if prompt is None and pool.prompt_tokens is None and question.text:
            prompt = chat(question.text)
            self.seen["question as request"] += 1
        tokens = pool.prompt_tokens
        if count is not None and (self.counted or tokens is None):
            tokens = count(prompt.text) if prompt else None
        elif count is not None:
            self.seen["request counted by source"] += 1
        self.seen["uncounted"] += tokens is None
        return (prompt.messages if prompt else None), tokens

    def _output_tokens(self, question: SourceQuestion, pool: SourcePool) -> Sequence[int]:
        count = self.count
        if count is None:
            return pool.tokens or [0] * len(pool.texts)
        if None in pool.texts:
            raise SourceError(
                f"A CoT of question {question.id!r} has neither text nor a usable token count, so"
                " its cost is not known. Give the source 'text' or 'tokens' for each CoT."
            )
        # Reasoning apart from the text was sampled and paid for, too.
        apart = pool.reasoning or [None] * len(pool.texts)
        columns = zip(pool.texts, apart, strict=True)
        return [
            count(text) + count(thoughts or "") for text, thoughts in columns if text is not None
        ]

    def _turn_prompt_tokens(
        self, question: str, pool: SourcePool, request: int | None
    ) -> Sequence[int | None] | None:
        """Return the tokens of all that was sent for each turn: as the source has them, else
        counted along the conversation.
        """
        given, parents, count = pool.turn_prompt_tokens, pool.parents or (), self.count
        if pool.messages is None or request is None:
            return given
        sent: list[int | None] = []
        conversations: list[int] = []  # up to each CoT, itself included
        for place, (parent, messages) in enumerate(zip(parents, pool.messages, strict=True)):
            tokens = None if given is None else given[place]
            if parent is None or messages is None:
                tokens = None
            elif count is not None and (self.counted or tokens is None):
                tokens = conversations[parent] + count(
                    "\n".join(each["content"] for each in orjson.loads(messages))
                )
            elif tokens is None:
                first, depth = parent, 0
                while (before := parents[first]) is not None:
                    first, depth = before, depth + 1
                raise SourceError(
                    f"Turn {depth} of sample {first} of question {question!r} has no"
                    " 'prompt_tokens', and the request has; give both or neither, or have all"
                    " tokens counted (--counter)."
                )
            sent.append(tokens)
            own = 0 if count is None else count(pool.texts[place] or "")
            conversations.append((request if tokens is None else tokens) + own)
        return sent


def _right_but_for_a_float(
    gold: str, raw: Sequence[str | None], forms: Sequence[str | None], right: str | None
) -> int:
    """Return the number of answers that are not the gold, and are it but for ".0"."""
    gold = gold.strip()
    other = gold.removesuffix(".0") if gold.endswith(".0") else f"{gold}.0"
    if other not in raw or not gold[-1:].isdecimal():
        return 0
    return sum(answer == other and each != right for answer, each in zip(raw, forms, strict=True))


def _answers(
    texts: Sequence[str | None], read: Callable[[str], str | None]
) -> Sequence[str | None]:
    """Return the answer of each text; equal ones, common where replies are short, are read once."""
    answers = {text: None if text is None else read(text) for text in set(texts)}
    return [answers[text] for text in texts]


def pool_rows(
    reading: Reading,
    pools: Iterable[tuple[SourceQuestion, SourcePool]],
    executor: Executor | None,
    scratch: Path,
) -> Iterator[PoolRows]:
    """Yield the rows of each question's pool, in order.

    On every executor an error comes behind the pools before it. `scratch` is the folder of a
    temporary file.
    """
    pairs = _with_openings(pools, reading.thoughts, scratch)
    if executor is None:
        yield from (reading.rows(*pair) for pair in pairs)
        return
    tasks = ((replace(reading, seen=Counter()), block) for block in _blocks(pairs))
    for rows, seen, error in results(_rows_of_block, tasks, executor, ahead=_BLOCKS_AHEAD):
        yield from rows
        reading.seen.update(seen)
        if error is not None:
            raise error


def _with_openings(
    pools: Iterable[tuple[SourceQuestion, SourcePool]], thoughts: Thoughts | None, scratch: Path
) -> Iterator[_Pair]:
    """Yield pools with whether any CoT of the LLM, before or behind them, closes a thought that it
    does not open.

    From the first one on that has a CoT which was cut off, pools wait on disk until such a CoT
    comes, or the end.
    """
    opens, failure = False, None
    rest, waiting, number = iter(pools), StoredRows(scratch), 0
    try:
        for question, pool in rest:
            is_whole = pool.ends is None or pool.messages is not None
            if is_whole and any(opened_by_template(text, thoughts) for text in pool.texts):
                opens, rest = True, chain([(question, pool)], rest)
                break
            if number or "length" in (pool.finish_reasons or ()):
                waiting.add(0, number, (question, pool))
                number += 1
            else:
                yield question, pool, False
    except FevalError as error:
        failure = error
    for _, [(question, pool)] in waiting.questions(0):
        yield *_restored(question, pool), opens
    if failure is not None:
        raise failure
    yield from ((question, pool, True) for question, pool in rest)


def _restored(question: Row, pool: Row) -> tuple[SourceQuestion, SourcePool]:
    """Return a question and a pool that were kept as JSON values."""
    prompt = pool["prompt"] and Prompt(**pool["prompt"])
    choices = tuple(map(tuple, question["choices"]))
    return SourceQuestion(**question | {"choices": choices}), SourcePool(
        **pool | {"prompt": prompt}
    )


def _blocks(pairs: Iterable[_Pair]) -> Iterator[list[_Pair]]:
    """Yield questions in blocks of half a second of work or less; where the source fails, what
    comes before that first.
    """
    block: list[_Pair] = []
    cots = size = 0
    try:
        for pair in pairs:
            block.append(pair)
            cots += len(pair[1].texts)
            size += _bytes(*pair[:2])
            if cots >= _BLOCK_COTS or size >= _BLOCK_BYTES:
                yield block
                block, cots, size = [], 0, 0
    except FevalError:
        yield block
        raise
    yield block


def _bytes(question: SourceQuestion, pool: SourcePool) -> int:
    """Estimate what a pool takes on its way to a worker."""
    request = () if pool.prompt is None else (pool.prompt.messages, pool.prompt.text)
    texts = chain(pool.texts, pool.reasoning or (), pool.messages or (), request, [question.text])
    numbers = chain(pool.token_logprobs or (), pool.token_confidences or ())
    return sum(len(text) * (1 if text.isascii() else 3) for text in texts if text) + 9 * sum(
        map(len, filter(None, numbers))
    )


def _rows_of_block(
    reading: Reading, block: list[_Pair]
) -> tuple[list[PoolRows], Counter[str], FevalError | None]:
    """Read a block: a task. Return its rows, as far as the first error, what was unusual in them,
    and that error.
    """
    rows: list[PoolRows] = []
    try:
        rows.extend(reading.rows(*pair) for pair in block)
    except FevalError as error:
        return rows, reading.seen, error
    return rows, reading.seen, None
