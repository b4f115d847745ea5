"""`feval record --into`: a recording on the Hub grows by a pull request, and nothing that was there changes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hub_double import HubDouble
from hub_settings import run_feval
from recording_doubles import FakeBackend
from settings_files import settings_file

from feval.errors import ConflictError, HubError, StorageError, UsageError
from feval.publish.release import look, prepare, push
from feval.recording import (
    Question,
    Recording,
    ScorerInfo,
    ScoreRows,
    add_scores,
    merge,
    open_recording,
    verify_recording,
)
from feval.recording.derived.extension import extend
from recorders.asking.probing import Probing
from recorders.request import Completion, Decoding, Message, Request
from recorders.work.record import record_dataset
from recorders.work.task import RecordingTask
from recorders.work.topup import TopUp, check_top_up, hub_recording, offer, recorded_folder, top_up

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("blank_pictures", "licence_stated")]

REPO = "somebody/recording"
PR = "refs/pr/1"
TINY = ("--dataset", "tiny_sums", "--llm", "feval/tiny-30k", "--temperature", "1", "--max-tokens", "100")
QUESTIONS = [Question(f"toy/{n}", f"What is question {n}?", str(n % 3), str(n % 3)) for n in range(8)]


def task(llm: str = "alpha", samples: int = 4, questions: int = 8, **more: Any) -> RecordingTask:
    def messages(question: Question) -> tuple[Message, ...]:
        return (Message("user", question.text),)

    work = RecordingTask(QUESTIONS[:questions], "toy", llm, messages, "none", Decoding(), samples, answer_kind="number")
    return replace(work, **more)


def llm(shift: int = 0, longer: int = 0) -> FakeBackend:
    """An LLM that answers 0, 1 or 2 at random, moved by a shift; every sample has a text of its own."""

    def answer(request: Request, sample: int) -> Completion:
        rolled = random.Random(f"{request.question_id} {sample}")  # noqa: S311  no secret
        tokens = rolled.randrange(20, 60) + longer
        text = f"Thought {sample} of {request.question_id}. The answer is {rolled.randrange(3) + shift}."
        return Completion(text, "stop", output_tokens=tokens, prompt_tokens=9)

    return FakeBackend(answer=answer)


def published(tmp_path: Path, *works: RecordingTask, name: str = "base") -> Path:
    """A recording with these works, pushed."""
    folders = [
        record_dataset(work, llm(), tmp_path / f"{name}-{number}", prices="none") for number, work in enumerate(works)
    ]
    folder = folders[0] if len(folders) == 1 else merge(folders, tmp_path / name)
    push(prepare(folder, look(REPO)))
    return folder


def grown(tmp_path: Path, work: RecordingTask, backend: FakeBackend | None = None, **options: Any) -> TopUp:
    remote = hub_recording(f"hf://{REPO}")
    check_top_up(remote, work)
    result = top_up(remote, work, backend or llm(), tmp_path / "out", prices="none", **options)
    offer(remote, result)
    return result


def pools(recording: Recording | Path, name: str = "alpha", dataset: str = "toy") -> dict[str, Any]:
    opened = recording if isinstance(recording, Recording) else open_recording(recording)
    return {pool.question_id: pool for pool in opened.pools(dataset, name)}


def offered(hub: HubDouble, folder: Path) -> Path:
    """The pull request's files, as a folder."""
    for path, data in hub.files(REPO, PR).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def test_the_command_records_what_is_missing_and_offers_it(hub: HubDouble, tmp_path: Path) -> None:
    assert run_feval("record", *TINY, "--first", "4", "--samples", "3", "--out", tmp_path / "old").exit_code == 0
    assert run_feval("push", tmp_path / "old", REPO).exit_code == 0
    before = hub.files(REPO)
    more = ("record", *TINY, "--first", "6", "--samples", "5", "--into", f"hf://{REPO}", "--out", tmp_path / "new")
    estimate = json.loads(run_feval(*more, "--dry-run", "--json").stdout)
    assert estimate["cots"] == 6 * 5 - 4 * 3
    result = run_feval(*more, "--json")
    assert result.exit_code == 0, result.output
    account = json.loads(result.stdout)
    assert account["new_cots"] == 6 * 5 - 4 * 3
    assert account["pull_request"].startswith("http")
    assert account["drift"]["questions"] == 4
    assert hub.files(REPO) == before
    copy = offered(hub, tmp_path / "copy")
    assert verify_recording(copy).problems == ()
    assert open_recording(copy).hash == open_recording(tmp_path / "new").hash
    old, new = (pools(folder, "feval/tiny-30k", "tiny_sums") for folder in (tmp_path / "old", copy))
    assert [len(pool.texts) for pool in new.values()] == [5] * 6
    for key, pool in old.items():
        assert new[key].texts[:3] == pool.texts
        assert new[key].output_tokens[:3] == pool.output_tokens
        assert new[key].extra["recorded_at"][:3] == pool.extra["recorded_at"]
    page = hub.files(REPO, PR)["README.md"].decode()
    assert page != before["README.md"].decode()
    assert open_recording(copy).hash in page
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("new")) == ["new"]


def test_what_is_there_is_refused_before_anything_is_asked(hub: HubDouble, tmp_path: Path) -> None:
    assert run_feval("record", *TINY, "--first", "4", "--samples", "3", "--out", tmp_path / "old").exit_code == 0
    assert run_feval("push", tmp_path / "old", REPO).exit_code == 0
    again = ("--samples", "3", "--into", f"hf://{REPO}", "--out", tmp_path / "new")
    result = run_feval("record", *TINY, "--first", "4", *again)
    assert result.exit_code == 1
    assert "the same samples are not recorded twice" in result.stderr
    other = run_feval("record", *TINY, "--first", "4", *again, "--model", "feval/tiny-300k")
    assert other.exit_code == 1
    assert "model 'feval/tiny-30k', and model 'feval/tiny-300k' is asked for" in other.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--into", "hf://somebody/nothing"], 1, "nothing to top up"),
        (["--into", f"hf://{REPO}@main/part"], 2, "a whole repository"),
        (["--into", "somewhere"], 2, "hf://namespace/name"),
        (["--into", f"hf://{REPO}", "--from", "x"], 2, "leave one of them out"),
    ],
)
def test_what_cannot_be_is_a_sentence(
    hub: HubDouble, tmp_path: Path, options: list[str], code: int, words: str
) -> None:
    result = run_feval("record", *TINY, "--first", "2", "--samples", "2", "--out", tmp_path / "new", *options)
    assert result.exit_code == code, result.output
    assert words in result.stderr
    assert not (tmp_path / "new").exists()


def test_drift_is_refused_only_where_something_is_topped_up(tmp_path: Path) -> None:
    refusing = settings_file(tmp_path, "refuse_drift = true")
    result = run_feval("record", *TINY, "--first", "2", "--out", tmp_path / "new", *refusing)
    assert (result.exit_code, "add --into" in result.stderr) == (2, True)


def test_only_what_the_new_cots_need_is_fetched_before_they_are_recorded(hub: HubDouble, tmp_path: Path) -> None:
    published(tmp_path, task(), task("beta"))
    remote = hub_recording(f"hf://{REPO}")
    hub.forget()
    check_top_up(remote, task(samples=6))
    assert not hub.asked("beta|texts/")


def test_other_llms_and_their_files_stay_as_they_are(hub: HubDouble, tmp_path: Path) -> None:
    base = published(tmp_path, task(), task("beta"))
    grown(tmp_path, task(samples=6))
    before, after = hub.files(REPO), hub.files(REPO, PR)
    same = {path for path in before if "beta" in path or path.startswith("questions/")}
    assert same
    assert all(after[path] == before[path] for path in same)
    assert {path for path in after if path not in before} == set()
    assert pools(base, "beta") == pools(tmp_path / "out", "beta")
    assert [len(pool.answers) for pool in pools(tmp_path / "out").values()] == [6] * 8


def test_questions_that_are_not_asked_again_keep_their_cots(hub: HubDouble, tmp_path: Path) -> None:
    base = published(tmp_path, task())
    grown(tmp_path, task(samples=6, questions=2))
    old, new = pools(base), pools(tmp_path / "out")
    assert [len(pool.answers) for pool in new.values()] == [6, 6, 4, 4, 4, 4, 4, 4]
    assert all(new[key].texts[:4] == old[key].texts for key in old)


def test_an_llm_that_was_not_there_joins(hub: HubDouble, tmp_path: Path) -> None:
    published(tmp_path, task())
    result = grown(tmp_path, task("beta"))
    assert result.new == 32
    assert result.drift is not None
    assert result.drift.questions == 0
    assert result.warnings == ()
    assert open_recording(tmp_path / "out").llm_names("toy") == ["alpha", "beta"]


def test_cots_that_are_there_get_probes(hub: HubDouble, tmp_path: Path) -> None:
    folder, backend = published(tmp_path, task()), llm()
    result = grown(tmp_path, task(probing=Probing(20, "So,")), backend)
    assert (result.new, result.what) == (0, "probes")
    copy = open_recording(offered(hub, tmp_path / "copy"))
    assert pools(copy) == pools(folder)
    tokens = [count for pool in pools(folder).values() for count in pool.output_tokens]
    assert len(backend.calls) == sum((count - 1) // 20 for count in tokens)
    assert copy.probes_record("toy", "alpha")["probes"] == len(backend.calls)
    assert [note for note in copy.manifest.raw["notes"] if "cut by length of text" in note]
    with pytest.raises(ConflictError, match="already; the same samples are not recorded twice"):
        check_top_up(replace(hub_recording(f"hf://{REPO}"), recording=copy), task(probing=Probing(20, "So,")))


def test_a_recording_can_grow_twice(hub: HubDouble, tmp_path: Path) -> None:
    published(tmp_path, task(), task("beta"))
    grown(tmp_path, task(samples=5))
    hub.add_dataset(REPO, hub.files(REPO, PR))  # merged
    remote = hub_recording(f"hf://{REPO}")
    result = top_up(remote, task(samples=6), llm(), tmp_path / "second", prices="none")
    assert result.new == 8
    assert [len(pool.answers) for pool in pools(tmp_path / "second").values()] == [6] * 8


def test_scores_of_old_cots_stay_with_them(hub: HubDouble, tmp_path: Path) -> None:
    base = record_dataset(task(), llm(), tmp_path / "base", prices="none")
    rows = [ScoreRows(question.id, [0, 3], [0.25, 0.75]) for question in QUESTIONS]
    scored = add_scores(base, tmp_path / "scored", ScorerInfo("judge", "test"), {("toy", "alpha"): rows})
    push(prepare(scored, look(REPO)))
    grown(tmp_path, task(samples=6))
    after = list(open_recording(tmp_path / "out").score_rows("toy", "alpha", "judge"))
    assert [(own.question_id, list(own.sample_indices), list(own.scores)) for own in after] == [
        (question.id, [0, 3], [0.25, 0.75]) for question in QUESTIONS
    ]


def test_the_page_s_own_words_survive(hub: HubDouble, tmp_path: Path) -> None:
    folder = record_dataset(task(), llm(), tmp_path / "base", prices="none")
    push(prepare(folder, look(REPO), title="The exam", words="Recorded in **Kyoto**."))
    grown(tmp_path, task(samples=6))
    page = hub.files(REPO, PR)["README.md"].decode()
    assert "# The exam" in page
    assert "Recorded in **Kyoto**." in page


def test_the_same_llm_gives_no_warning(hub: HubDouble, tmp_path: Path) -> None:
    published(tmp_path, task(samples=10))
    result = grown(tmp_path, task(samples=20))
    assert result.warnings == ()
    assert result.drift is not None
    assert result.drift.questions == 8


@pytest.mark.parametrize(
    ("backend", "words"),
    [(lambda: llm(shift=2), ["answer differently"]), (lambda: llm(longer=40), ["are longer"])],
    ids=["answers", "lengths"],
)
def test_drift_is_told_and_kept_and_offered_all_the_same(
    hub: HubDouble, tmp_path: Path, backend: Callable[[], FakeBackend], words: list[str]
) -> None:
    published(tmp_path, task(samples=10))
    result = grown(tmp_path, task(samples=20), backend())
    assert len(result.warnings) == len(words)
    assert all(word in warning for word, warning in zip(words, result.warnings, strict=True))
    notes = json.loads(hub.files(REPO, PR)["manifest.json"])["notes"]
    assert set(result.warnings) <= set(notes)


def test_drift_can_be_refused_and_nothing_paid_is_lost(
    hub: HubDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "questions.jsonl"
    lines = ({"id": q.id, "question": q.text, "answer": q.answer} for q in QUESTIONS)
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    backend = llm()
    monkeypatch.setattr("feval.cli.record.make_backend", lambda *_, **__: backend)
    own = ("record", "--dataset", "mine", "--answer-kind", "number", "--questions", source, "--llm", "alpha")
    own = (*own, "--prompt", "none", "--prices", "none")
    assert run_feval(*own, "--samples", "10", "--out", tmp_path / "old").exit_code == 0
    assert run_feval("push", tmp_path / "old", REPO).exit_code == 0
    backend = llm(shift=2)
    more = (*own, "--samples", "20", "--into", f"hf://{REPO}", "--out", tmp_path / "new")
    refused = run_feval(*more, *settings_file(tmp_path, "refuse_drift = true"))
    assert refused.exit_code == 1
    assert "note: Drift: new CoTs of alpha on mine answer differently" in refused.stderr
    assert "Nothing was offered" in refused.stderr
    assert PR not in hub.datasets[REPO].refs
    assert [len(pool.answers) for pool in pools(tmp_path / "new", dataset="mine").values()] == [20] * 8
    calls = len(backend.calls)
    again = run_feval(*more, "--json")  # drift is not refused; nothing is asked again
    assert again.exit_code == 0, again.output
    assert len(backend.calls) == calls
    assert json.loads(again.stdout)["new_cots"] == 80
    assert len(json.loads(again.stdout)["warnings"]) == 1
    assert PR in hub.datasets[REPO].refs


def joined(tmp_path: Path, base: Path, more: Path) -> Path:
    pair = {"dataset": "toy", "llm": "alpha"}
    return extend(open_recording(base), open_recording(more), tmp_path / "both", operation={"name": "test"}, **pair)


def test_samples_that_were_recorded_twice_are_refused(tmp_path: Path) -> None:
    base = record_dataset(task(), llm(), tmp_path / "base", prices="none")
    alone = record_dataset(task(samples=6), llm(longer=3), tmp_path / "alone", prices="none")
    with pytest.raises(ConflictError, match="sample 0 is there already, and was recorded again"):
        joined(tmp_path, base, alone)
    assert not (tmp_path / "both").exists()


def test_seeds_tell_which_samples_are_new(tmp_path: Path) -> None:
    seeded = {"decoding": Decoding(seed=100)}

    def backend() -> FakeBackend:
        made = llm()
        made.takes_seed = True
        return made

    base = record_dataset(task(samples=2, **seeded), backend(), tmp_path / "base", prices="none")
    whole = record_dataset(task(samples=4, **seeded), backend(), tmp_path / "whole", prices="none")
    both = joined(tmp_path, base, whole)
    assert [list(pool.extra["seed"]) for pool in pools(both).values()] == [[100, 101, 102, 103]] * 8


def test_a_reply_of_a_cache_is_no_new_sample(hub: HubDouble, tmp_path: Path) -> None:
    def same(request: Request, sample: int) -> Completion:
        ids = f"reply-{request.question_id}-{sample % 4}"
        return Completion(f"The answer is {sample % 3}.", "stop", output_tokens=5, prompt_tokens=9, response_id=ids)

    folder = record_dataset(task(), FakeBackend(answer=same), tmp_path / "base", prices="none")
    push(prepare(folder, look(REPO)))
    with pytest.raises(ConflictError, match=r"reply 'reply-toy/0-0' is there already; a cache may have answered"):
        grown(tmp_path, task(samples=6), FakeBackend(answer=same))
    assert recorded_folder(tmp_path / "out").is_dir()


def test_other_words_are_refused_before_they_are_asked(hub: HubDouble, tmp_path: Path) -> None:
    published(tmp_path, task())
    remote = hub_recording(f"hf://{REPO}")
    other = [replace(question, text="Another question?") for question in QUESTIONS]
    with pytest.raises(ConflictError, match="has two texts"):
        check_top_up(remote, replace(task(samples=6), questions=other))
    backend = llm()
    prompted = task(samples=6, messages=lambda question: (Message("user", f"Think. {question.text}"),))
    with pytest.raises(ConflictError, match="with other messages"):
        top_up(remote, prompted, backend, tmp_path / "out", prices="none")
    assert backend.calls == []
    with pytest.raises(ConflictError, match=r"temperature 0\.7, and temperature 0\.9 is asked for"):
        check_top_up(remote, task(samples=6, decoding=Decoding(temperature=0.9)))


def test_a_repository_that_moved_meanwhile_is_not_topped_up(hub: HubDouble, tmp_path: Path) -> None:
    published(tmp_path, task())
    remote = hub_recording(f"hf://{REPO}")
    result = top_up(remote, task(samples=6), llm(), tmp_path / "out", prices="none")
    hub.add_dataset(REPO, {**hub.files(REPO), "notes.md": b"Theirs."})
    with pytest.raises(ConflictError, match="has changed since it was looked at"):
        offer(remote, result)


def test_a_failed_offer_goes_on_without_asking_again(hub: HubDouble, tmp_path: Path) -> None:
    published(tmp_path, task())
    remote, backend = hub_recording(f"hf://{REPO}"), llm()
    first = top_up(remote, task(samples=6), backend, tmp_path / "out", prices="none")
    calls = len(backend.calls)
    again = top_up(remote, task(samples=6), backend, tmp_path / "out", prices="none")
    assert (again.new, again.warnings, len(backend.calls)) == (first.new, first.warnings, calls)
    with pytest.raises(StorageError, match="exists already, and is not what"):
        top_up(remote, task(samples=7), backend, tmp_path / "out", prices="none")


def test_another_revision_than_main_is_refused(hub: HubDouble, tmp_path: Path) -> None:
    published(tmp_path, task())
    old = hub.datasets[REPO].refs["main"]
    assert hub_recording(f"hf://{REPO}@{old}").address == f"hf://{REPO}@{old}"
    hub.add_dataset(REPO, {**hub.files(REPO), "notes.md": b"Theirs."})
    with pytest.raises(ConflictError, match="leave the revision out"):
        hub_recording(f"hf://{REPO}@{old}")
    with pytest.raises(UsageError, match="a whole repository"):
        hub_recording(f"hf://{REPO}/folder")
    with pytest.raises(HubError, match="nothing to top up"):
        hub_recording("hf://somebody/nothing")
