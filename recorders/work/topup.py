"""Top up a recording on the Hub: fetch what is there, record what is missing, and offer both as a pull request.

    base = hub_recording("hf://org/name")
    check_top_up(base, task)                                       # before anything is paid for
    result = top_up(base, task, backend, "my-top-up")              # record, join, test for drift
    pushed = offer(base, result)                                   # a pull request

Only what the new CoTs need is fetched before they are recorded; the rest follows, since the page and the manifest cover all of
it. The new CoTs are in `OUT.recorded` until they are in `OUT`, which stays: whatever fails after they were paid for, the same
command continues.
"""

from __future__ import annotations

import math
import shutil
from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from feval.answers import canonical_gold
from feval.cards.tokens import is_usage
from feval.errors import ConflictError, HubError, StorageError, UsageError
from feval.estimators.inference.drift import Drift, drift
from feval.hub import local_folder, open_place, parse_address
from feval.hub.commits import Pushed
from feval.publish.release import Seen, look, prepare, push
from feval.recording import Recording, open_recording, verify_recording
from feval.recording.derived.extension import check_extension, extend, grown_pools
from feval.recording.verify import open_sound
from feval.report.text import counted
from recorders.request import Backend
from recorders.work.record import record_dataset
from recorders.work.task import RecordingTask

ALARM = 0.01
"""Holm-adjusted p below which a difference between old and new CoTs is reported."""

_OPERATION = "top_up"
_Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class HubRecording:
    """A recording on the Hub that is to be topped up, at the commit that was seen; files are fetched as they are needed."""

    seen: Seen
    recording: Recording

    @property
    def address(self) -> str:
        """Its address, with the commit."""
        return self.recording.address or str(self.recording.path)

    def start(self, task: RecordingTask) -> Recording | None:
        """Return the recording to continue; `None` if the LLM was not recorded on the dataset."""
        return self.recording if (task.dataset, task.llm_name) in self.recording.manifest.pairs else None


@dataclass(frozen=True, slots=True)
class TopUp:
    """The result of a top-up.

    `drift` is `None` if an earlier run of the command compared old and new CoTs; warnings of drift are in the notes as well.
    """

    folder: Path
    new: int
    drift: Drift | None
    warnings: tuple[str, ...]

    @property
    def what(self) -> str:
        """What is new, in words."""
        return counted(self.new, "new CoT") if self.new else "probes"


def hub_recording(place: str | Path) -> HubRecording:
    """Return the recording at the head of `main` of hf://namespace/name, where a pull request starts."""
    address = parse_address(place)
    if address.path:
        raise UsageError(
            f"A top-up is offered to a whole repository, hf://{address.repo_id}; {address} is part of one."
        )
    seen = look(address.repo_id)
    if seen.state is None:
        raise HubError(
            f"The Hub shows no dataset repository {address.repo_id}, or not to you, so there is nothing to top up. Record "
            f"without --into, and publish with `feval push OUT {address.repo_id}`."
        )
    if address.revision not in {None, "main", seen.state.commit}:
        raise ConflictError(
            f"{address} is not the head of {address.repo_id}, which is {seen.state.commit}. A pull request starts there; leave "
            "the revision out."
        )
    return HubRecording(seen, open_place(f"hf://{address.repo_id}@{seen.state.commit}"))


def check_top_up(base: HubRecording, task: RecordingTask) -> None:
    """Check, before anything is paid for, that there is something to record and that it can join the recording."""
    info = task.dataset_info(task.plan().requests)
    questions = [replace(q, answer_key=canonical_gold(info.answer_kind, q.answer, q.choices)) for q in task.questions]
    check_extension(base.recording, info, questions, task.llm_info())
    if base.start(task) is None:
        return
    base.recording.prepare(task.dataset, [task.llm_name])
    sizes = _sizes(base.recording, task.dataset, task.llm_name)
    if not _lacks_probes(base.recording, task) and all(
        sizes.get(question.id, 0) >= task.samples for question in task.questions
    ):
        raise ConflictError(
            f"{base.address} has the {counted(task.samples, 'CoT')} of {task.llm_name} on each of "
            f"{counted(len(task.questions), 'question')} of {task.dataset} already; the same samples are not recorded twice. Ask "
            "for more with --samples, or for other questions."
        )


def recorded_folder(out: str | Path) -> Path:
    """Return the folder of the new CoTs until they are in the topped-up recording: `NAME.recorded` beside it."""
    return Path(out).parent / f"{Path(out).name}.recorded"


def top_up(
    base: HubRecording,
    task: RecordingTask,
    backend: Backend,
    out: str | Path,
    *,
    fetching: _Progress | None = None,
    **options: Any,
) -> TopUp:
    """Record what is missing and join it with what is there; `options` are those of `record_dataset`, without `start`."""
    out = Path(out)
    operation = {"name": _OPERATION, "into": base.seen.repo_id, "samples": task.samples, **task.identity()}
    operation |= {} if task.probing is None else {"probes": task.probing.content()}
    if out.exists():
        return _made_before(base, out, operation)
    start = base.start(task)
    if start is not None and not is_usage(counter := start.manifest.pairs[task.dataset, task.llm_name]["counter"]):
        options["counter"] = counter
    folder = recorded_folder(out)
    record_dataset(task, backend, folder, start=start, **options)
    old = open_sound(local_folder(base.address, fetching))
    recorded = open_recording(folder)
    new, comparison = _compare(old, recorded, task)
    if not new and not _lacks_probes(old, task):
        raise ConflictError(
            f"No new CoT of {task.llm_name} on {task.dataset} was recorded, so there is nothing to add to {base.address}."
        )
    warnings = _warnings(comparison, task)
    pair = {"dataset": task.dataset, "llm": task.llm_name}
    extend(old, recorded, out, operation=operation | {"backend": backend.name}, notes=warnings, **pair)
    if problems := verify_recording(out).problems:
        raise StorageError(
            f"The recording {out} does not verify after it was written: {problems[0]} Remove it, and try again."
        )
    shutil.rmtree(folder)
    return TopUp(out, new, comparison, warnings)


def offer(base: HubRecording, result: TopUp, *, progress: _Progress | None = None) -> Pushed:
    """Offer a topped-up recording to its repository as a pull request, with its page regenerated."""
    release = prepare(result.folder, base.seen, progress=progress)
    message = f"Top up with {result.what} (recording hash {release.recording_hash[:12]})"
    return push(release, message=message, create_pr=True)


def _lacks_probes(recording: Recording, task: RecordingTask) -> bool:
    """Whether probes are wanted of CoTs that have none."""
    return task.probing is not None and not recording.has_probes(task.dataset, task.llm_name)


def _made_before(base: HubRecording, out: Path, operation: dict[str, Any]) -> TopUp:
    """Return the result of an earlier run of the same command, if that is what `out` holds."""
    existing = open_recording(out)
    recorded = existing.manifest.raw["operation"]
    parents = existing.manifest.raw["parents"] or [{}]
    if {name: recorded.get(name) for name in operation} != operation or parents[0].get("hash") != base.recording.hash:
        raise StorageError(
            f"{out} exists already, and is not what {base.address} would be with these CoTs. Name another folder with --out."
        )
    pair = str(operation["dataset"]), str(operation["llm"])
    before = sum(_sizes(base.recording, *pair).values()) if pair in base.recording.manifest.pairs else 0
    warnings = tuple(note for note in existing.manifest.raw["notes"] if str(note).startswith(_warning_start(*pair)))
    return TopUp(out, sum(_sizes(existing, *pair).values()) - before, None, warnings)


def _sizes(recording: Recording, dataset: str, llm: str) -> dict[str, int]:
    votes = recording.votes(dataset)
    return dict(zip(votes.question_ids, votes.llms[llm].sizes.tolist(), strict=True))


def _compare(old: Recording, recorded: Recording, task: RecordingTask) -> tuple[int, Drift]:
    """Return the number of new CoTs, and the test of drift."""
    numbers, answers, tokens, is_new = array("q"), array("q"), array("q"), array("q")
    for number, grown in enumerate(grown_pools(old, recorded, task.dataset, task.llm_name)):
        codes: dict[str, int] = {}
        size = len(grown.pool.answers)
        numbers.extend([number] * size)
        answers.extend(-1 if answer is None else codes.setdefault(answer, len(codes)) for answer in grown.pool.answers)
        tokens.extend(grown.pool.output_tokens)
        is_new.extend(place >= grown.old for place in range(size))
    questions, codes_of, lengths = (np.array(column, np.int64) for column in (numbers, answers, tokens))
    return sum(is_new), drift(questions, codes_of, lengths, np.array(is_new, np.bool_))


def _warning_start(dataset: str, llm: str) -> str:
    return f"Drift: new CoTs of {llm} on {dataset} "


def _warnings(comparison: Drift, task: RecordingTask) -> tuple[str, ...]:
    """Sentences about what differs between old and new CoTs."""
    if math.isnan(comparison.answers.p_value):
        return ()
    differences = []
    if comparison.answers.p_holm < ALARM:
        differences.append(
            f"answer differently from the old ones: the distance of their answers is {comparison.distance:.3f}, and "
            f"{comparison.expected_distance:.3f} is expected of the same LLM (p = {comparison.answers.p_holm:.2g}"
        )
    if comparison.lengths.p_holm < ALARM:
        longer = "longer" if comparison.lengths.statistic > 0 else "shorter"
        differences.append(
            f"are {longer} than the old ones: {comparison.new_tokens:.1f} output tokens after {comparison.old_tokens:.1f} (p = "
            f"{comparison.lengths.p_holm:.2g}"
        )
    start, questions = _warning_start(task.dataset, task.llm_name), counted(comparison.questions, "question")
    end = f", permutation test over {questions}, Holm). The provider may have changed the model behind the name."
    return tuple(start + difference + end for difference in differences)
