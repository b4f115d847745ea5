"""Top up a recording on the Hub: what is there is fetched, what is missing is recorded, and both are offered as a pull request.

    there = recording_there("hf://org/name")
    check_top_up(there, work)                                       # before anything is paid for
    told = top_up(there, work, backend, "my-top-up")                # records, joins, and tests for drift
    pushed = offer(there, told)                                     # a pull request

Only what the new CoTs need is fetched before they are recorded; the rest comes afterwards, since the page and the manifest are
made of all of it. The new CoTs lie in `OUT.recorded` until they are in `OUT`, and `OUT` stays: whatever fails after they were
paid for, the same command goes on.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from feval.answers import canonical_gold
from feval.cards.tokens import is_usage
from feval.errors import ConflictError, HubError, StorageError, UsageError
from feval.estimators.inference.drift import Drift, drift
from feval.hub import local_folder, open_place, parse_address
from feval.publish.release import Seen, look, prepare, push
from feval.recording import Recording, open_recording, verify_recording
from feval.recording.derived.extension import check_extension, extend, grown_pools
from feval.recording.verify import open_sound
from feval.report.text import counted
from recorders.work.record import Work, record_dataset

if TYPE_CHECKING:
    from feval.hub import Pushed
    from recorders.request import Backend

__all__ = ["ALARM", "There", "ToppedUp", "check_top_up", "offer", "recorded_folder", "recording_there", "top_up"]

ALARM = 0.01
"""Holm's adjusted p below which a difference between old and new CoTs is told."""

_OPERATION = "top_up"
_Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class There:
    """A recording on the Hub that is to grow.

    Attributes:
        seen: its repository, as it was looked at.
        recording: at that commit; its files are fetched as they are looked at.
    """

    seen: Seen
    recording: Recording

    @property
    def address(self) -> str:
        """Where it is, with the commit."""
        return self.recording.address or str(self.recording.path)

    def start(self, work: Work) -> Recording | None:
        """What the new CoTs begin with; `None` where the LLM was not recorded on the dataset."""
        return self.recording if (work.dataset, work.llm_name) in self.recording.manifest.pairs else None


@dataclass(frozen=True, slots=True)
class ToppedUp:
    """What a top-up made.

    Attributes:
        folder: the recording with old and new CoTs.
        new: CoTs that were not there.
        drift: old and new CoTs compared; `None` where they were before, in an earlier run of the command.
        warnings: sentences on drift; they are in the recording's notes as well.
    """

    folder: Path
    new: int
    drift: Drift | None
    warnings: tuple[str, ...]


def recording_there(place: str | Path) -> There:
    """Look at the recording of a repository.

    Args:
        place: hf://namespace/name; a revision must be the commit that `main` is at, since a pull request starts there.

    Raises:
        UsageError: no address of a whole repository.
        ConflictError: another revision.
        HubError: there is no such repository, or no recording in it.
    """
    address = parse_address(place)
    if address.path:
        raise UsageError(
            f"A top-up is offered to a whole repository, hf://{address.repo_id}; {address} is a part of one."
        )
    seen = look(address.repo_id)
    if seen.state is None:
        raise HubError(
            f"The Hub shows no dataset repository {address.repo_id}, or not to you, so there is nothing to top up. Record "
            f"without --into, and publish with `feval push OUT {address.repo_id}`."
        )
    if address.revision not in {None, "main", seen.state.commit}:
        raise ConflictError(
            f"{address} is not where {address.repo_id} stands today, which is {seen.state.commit}. A pull request starts there; "
            "leave the revision out."
        )
    return There(seen, open_place(f"hf://{address.repo_id}@{seen.state.commit}"))


def check_top_up(there: There, work: Work) -> None:
    """Make sure, before anything is paid for, that there is something to record and that it can join what is there.

    Raises:
        ConflictError: every sample that is asked for is there, or what is there is of something else.
    """
    info = work.dataset_info(work.plan().requests)
    questions = [
        replace(one, answer_key=canonical_gold(info.answer_kind, one.answer, one.choices)) for one in work.questions
    ]
    check_extension(there.recording, info, questions, work.llm_info())
    if there.start(work) is None:
        return
    there.recording.prepare(work.dataset, [work.llm_name])
    sizes = _sizes(there.recording, work.dataset, work.llm_name)
    if all(sizes.get(question.id, 0) >= work.samples for question in work.questions):
        raise ConflictError(
            f"{there.address} has the {counted(work.samples, 'CoT')} of {work.llm_name} on each of "
            f"{counted(len(work.questions), 'question')} of {work.dataset} already; the same samples are not recorded twice. Ask "
            "for more with --samples, or for other questions."
        )


def recorded_folder(out: str | Path) -> Path:
    """Where the new CoTs lie until they are in the topped-up recording: beside it, `NAME.recorded`."""
    return Path(out).parent / f"{Path(out).name}.recorded"


def top_up(
    there: There,
    work: Work,
    backend: Backend,
    out: str | Path,
    *,
    fetching: _Progress = lambda _done, _total: None,
    **options: Any,
) -> ToppedUp:
    """Record what is missing and join it with what is there.

    Args:
        there: from `recording_there`, and `check_top_up` found nothing against it.
        work: what is to be recorded.
        backend: whom to ask.
        out: folder of the recording to make.
        fetching: called with (bytes so far, bytes in all) of what is fetched.
        options: as for `recorders.work.record.record_dataset`; `start` is what is there.

    Raises:
        StorageError: `out` is there already, and is something else.
        FevalError: as for `record_dataset` and `feval.recording.derived.extension.extend`.
    """
    out = Path(out)
    operation = {"name": _OPERATION, "into": there.seen.repo_id, "samples": work.samples, **work.identity()}
    if out.exists():
        return _made_before(there, out, operation)
    start = there.start(work)
    if start is not None and not is_usage(counter := start.manifest.pairs[work.dataset, work.llm_name]["counter"]):
        options["counter"] = counter
    folder = recorded_folder(out)
    record_dataset(work, backend, folder, start=start, **options)
    base = open_sound(local_folder(there.address, fetching))
    recorded = open_recording(folder)
    new, compared = _compared(base, recorded, work)
    if not new:
        raise ConflictError(
            f"No new CoT of {work.llm_name} on {work.dataset} was recorded, so there is nothing to add to {there.address}."
        )
    warnings = _warnings(compared, work)
    pair = {"dataset": work.dataset, "llm": work.llm_name}
    extend(base, recorded, out, operation=operation | {"backend": backend.name}, notes=warnings, **pair)
    _check(out)
    shutil.rmtree(folder)
    return ToppedUp(out, new, compared, warnings)


def offer(there: There, told: ToppedUp, *, progress: _Progress | None = None) -> Pushed:
    """Offer a topped-up recording to its repository, as a pull request with its page made anew.

    Raises:
        ReleaseError: the search found what must not be published.
        ConflictError: the repository has changed since it was looked at.
        HubError: the Hub does not take it.
    """
    release = prepare(told.folder, there.seen, progress=progress)
    message = f"Top up with {counted(told.new, 'CoT')} (recording hash {release.recording_hash[:12]})"
    return push(release, message=message, create_pr=True)


def _made_before(there: There, out: Path, operation: dict[str, Any]) -> ToppedUp:
    """What an earlier run of the same command made, if that is what lies there."""
    made = open_recording(out)
    own, parents = made.manifest.raw.get("operation", {}), made.manifest.raw.get("parents") or [{}]
    if {name: own.get(name) for name in operation} != operation or parents[0].get("hash") != there.recording.hash:
        raise StorageError(
            f"{out} is there already, and is not what {there.address} would be with these CoTs. Name another folder with --out."
        )
    pair = str(operation["dataset"]), str(operation["llm"])
    before = sum(_sizes(there.recording, *pair).values()) if pair in there.recording.manifest.pairs else 0
    warnings = tuple(note for note in made.manifest.raw.get("notes", ()) if str(note).startswith(_warning_start(*pair)))
    return ToppedUp(out, sum(_sizes(made, *pair).values()) - before, None, warnings)


def _sizes(recording: Recording, dataset: str, llm: str) -> dict[str, int]:
    votes = recording.votes(dataset)
    return dict(zip(votes.question_ids, votes.llms[llm].sizes.tolist(), strict=True))


def _check(out: Path) -> None:
    found = verify_recording(out)
    if not found.ok:
        raise StorageError(
            f"The recording {out} does not verify after it was written: {found.problems[0]} Remove it, and try again."
        )


def _compared(base: Recording, recorded: Recording, work: Work) -> tuple[int, Drift]:
    """The number of new CoTs, and the test of drift."""
    rows: list[tuple[int, int, int, bool]] = []
    for number, grown in enumerate(grown_pools(base, recorded, work.dataset, work.llm_name)):
        codes: dict[str, int] = {}
        answers = [-1 if answer is None else codes.setdefault(answer, len(codes)) for answer in grown.pool.answers]
        rows += [
            (number, answer, tokens, place >= grown.old)
            for place, (answer, tokens) in enumerate(zip(answers, grown.pool.output_tokens, strict=True))
        ]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    return int(columns[3].sum()), drift(columns[0], columns[1], columns[2], columns[3].astype(np.bool_))


def _warning_start(dataset: str, llm: str) -> str:
    return f"Drift: new CoTs of {llm} on {dataset} "


def _warnings(told: Drift, work: Work) -> tuple[str, ...]:
    """Sentences on what differs between old and new CoTs."""
    found = []
    if told.answers.p_holm < ALARM:
        found.append(
            f"answer otherwise than those that were there: the distance of their answers is {told.distance:.3f}, and "
            f"{told.expected_distance:.3f} is expected of the same LLM (p = {told.answers.p_holm:.2g}"
        )
    if told.lengths.p_holm < ALARM:
        longer = "longer" if told.lengths.statistic > 0 else "shorter"
        found.append(
            f"are {longer} than those that were there: {told.new_tokens:.1f} output tokens after {told.old_tokens:.1f} (p = "
            f"{told.lengths.p_holm:.2g}"
        )
    start, questions = _warning_start(work.dataset, work.llm_name), counted(told.questions, "question")
    end = f", permutation test over {questions}, Holm). The provider may have changed what stands behind the name."
    return tuple(start + one + end for one in found if not math.isnan(told.answers.p_value))
