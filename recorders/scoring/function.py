"""Scores by a Python function that the user names; it runs as it is, in this process or in those of
an executor.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from feval import __version__
from feval.errors import UsageError
from feval.executors.tasks import run_task
from feval.recording import ScorerInfo
from recorders.errors import InterruptedByUser, RecorderError
from recorders.scoring.scores import Item, Score, Scorer, read_score

_HERE, _IMPORTING = (str(Path(file).parent) for file in (__file__, importlib.__file__))

_BATCH_OF_WORKERS = 256
_MOST_RUNS = 3
_PLACES = {"question_id", "llm", "sample"}
_LOADING = Lock()  # a worker may have several threads


class FunctionScorer(Scorer):
    """A function MODULE:FUNCTION of (question, text, answer) that returns a number, a list of step
    scores, or `None`.

    It gets `question_id`, `llm` and `sample`, too, where it has parameters of these names.
    """

    def __init__(self, where: str, name: str | None, executor: Executor | None = None) -> None:
        self._where, self._executor = where, executor
        self.batch = 16 if executor is None else _BATCH_OF_WORKERS
        self.concurrency = 1 if executor is None else None
        self._function = _load_function(where)
        parameters: dict[str, Any] = {"function": where}
        try:  # a changed scorer is another scorer
            if path := inspect.getsourcefile(self._function):
                source = Path(path).read_bytes()
                parameters["source_sha256"] = hashlib.sha256(source).hexdigest()
        except (TypeError, OSError):
            pass  # not known
        try:  # behind question, text and answer
            self._places = _PLACES.intersection([*inspect.signature(self._function).parameters][3:])
        except (TypeError, ValueError):
            self._places = set()  # not known
        self.info = ScorerInfo(name or f"python:{where}", "python", parameters)

    async def score(self, items: Sequence[Item]) -> list[Score]:
        """Return one result per CoT."""
        if self._executor is not None:
            return await self._scored_elsewhere(self._executor, items)
        scores = []
        for item in items:
            await asyncio.sleep(0)  # so that Ctrl-C and the progress bar get their turn
            scores.append(self._score(item))
        return scores

    async def _scored_elsewhere(self, executor: Executor, items: Sequence[Item]) -> list[Score]:
        task = self._where, self.info.parameters.get("source_sha256"), items
        for _ in range(_MOST_RUNS):
            try:
                return await asyncio.wrap_future(
                    executor.submit(run_task, __version__, _scores, task)
                )
            except BrokenExecutor as error:
                reason = error
        raise RecorderError(
            f"The processes that call {self._where} ended again and again, on a CoT of question"
            f" {items[0].question.id!r}; there must be memory for each. What was scored before is"
            " in the journal. Run the command again, or with one worker."
        ) from reason

    def _score(self, item: Item) -> Score:
        try:
            places = {"question_id": item.question.id, "llm": item.llm, "sample": item.sample}
            named = {name: value for name, value in places.items() if name in self._places}
            value = self._function(item.question_text, item.text, item.answer, **named)
            score = read_score(value)
        except KeyboardInterrupt as error:
            raise InterruptedByUser(
                f"Scoring was interrupted inside the function {self._where}. What was scored before"
                " is in the journal, and the same command continues from there."
            ) from error
        except (Exception, SystemExit) as error:  # whatever a user's function raises
            raise RecorderError(
                f"The function {self._where} failed on a CoT of question {item.question.id!r}"
                f" ({_described(error)}). Correct it, or let it return None for such CoTs, and run"
                " the command again."
            ) from error
        if score is None:
            if inspect.iscoroutine(value):
                value.close()
            raise RecorderError(
                f"The function {self._where} returned {value!r:.100} for a CoT of question"
                f" {item.question.id!r}; it should return a number, a list of numbers, or None."
                " Correct it and run the command again."
            )
        return score


def _scores(where: str, source_sha256: str | None, items: Sequence[Item]) -> list[Score]:
    """Return one result per CoT: a task."""
    with _LOADING:
        scorer = _worker(where, source_sha256)
    if scorer.info.parameters.get("source_sha256") != source_sha256:
        raise RecorderError(
            f"A worker has another file for the function {where} than this process. Give all of"
            " them the same, and run the command again."
        )
    return [scorer._score(item) for item in items]  # noqa: SLF001  of its own module


@lru_cache(1)
def _worker(where: str, _source_sha256: str | None) -> FunctionScorer:
    # a worker may have imported another version of the file
    sys.modules.pop(where.rpartition(":")[0].strip(), None)
    return FunctionScorer(where, None)


def _described(error: BaseException) -> str:
    """Type, text and place of an error in a user's code."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error}"
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if not frame.filename.startswith((_HERE, _IMPORTING, "<frozen")):
            place = f"; {Path(frame.filename).name}, line {frame.lineno}"
    return f"{type(error).__name__}: {str(error)[:200]}{place}"


def _load_function(where: str) -> Callable[..., Any]:
    module_name, _, function_name = (part.strip() for part in where.rpartition(":"))
    if not module_name or not function_name:
        raise UsageError(
            f"The scorer python:{where} names no function; write python:MODULE:FUNCTION."
        )
    if module_name.endswith(".py") or not all(
        part.isidentifier() for part in module_name.split(".")
    ):
        raise UsageError(
            f"The scorer python:{where} names the module {module_name!r}, which cannot be imported"
            " by that name. Write it as after `import`, such as python:my_scorers:length for"
            " length in my_scorers.py, and run feval in its folder."
        )
    module = _imported(module_name)
    function = getattr(module, function_name, None)
    if not callable(function):
        names = [
            name for name, _ in inspect.getmembers(module, inspect.isfunction) if name[0] != "_"
        ]
        raise UsageError(
            f"The module {module_name!r} has no function {function_name!r}; it has"
            f" {', '.join(names[:8]) or 'none'}. Name one that takes question, text and answer."
        )
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(
            f"The function {module_name}:{function_name} is asynchronous, and a scorer is a plain"
            " function. Name one that returns the score itself."
        )
    scoring: Callable[..., Any] = function
    return scoring


def _imported(module_name: str) -> object:
    here = str(Path.cwd())
    sys.path.insert(0, here)  # as `python -m` does
    try:
        return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # whatever a user's module raises
        advice = (
            "Run feval in the folder of its file, or put that folder into PYTHONPATH."
            if isinstance(error, ModuleNotFoundError) and error.name == module_name.split(".")[0]
            else "Correct it, or install what it needs, and run the command again."
        )
        raise UsageError(
            f"The module {module_name!r} of the scorer could not be imported ({_described(error)})."
            f" {advice}"
        ) from error
    finally:
        if here in sys.path:
            sys.path.remove(here)
