"""Several workers find what one process finds: the same problems, in the same order."""

import shutil
from pathlib import Path
from random import Random

import pytest
from parcels import Parcels
from recording_fuzz import refill, spoil
from small import letters, restate, write_scored_toy

from feval.errors import FevalError
from feval.recording import verify_recording

POOLS = {"alpha": letters("44-", "757"), "beta": [["4"], ["9", None]]}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Two LLMs with scores and log-probabilities."""
    return write_scored_toy(tmp_path_factory.mktemp("sound") / "toy", POOLS, ["4", "5"])


def found(folder, executor):
    try:
        return verify_recording(folder, executor=executor)
    except FevalError as error:
        return type(error), str(error)


def test_a_sound_recording_is_checked_in_tasks(sound):
    executor, steps = Parcels(), list[tuple[int, int]]()
    assert verify_recording(
        sound, lambda *done: steps.append(done), executor=executor
    ) == verify_recording(sound)
    files = sum(path.is_file() for path in sound.rglob("*")) - 1  # the manifest
    assert executor.tasks == files + 2 + 2
    assert steps == [(n, files + 2) for n in range(files + 3)]


@pytest.mark.parametrize("cases", [range(12), pytest.param(range(12, 80), marks=pytest.mark.slow)])
def test_a_damaged_recording_has_the_same_problems(sound, tmp_path, cases):
    paths = sorted(
        str(path.relative_to(sound))
        for path in sound.rglob("*.*")
        if path.parent != sound and path.is_file()
    )
    contents, different = [(sound / path).read_bytes() for path in paths], set()
    folder = Path(shutil.copytree(sound, tmp_path / "changed"))
    manifest = (folder / "manifest.json").read_bytes()
    for case in cases:
        rng = Random(case)  # noqa: S311  cases of a test
        number = rng.randrange(len(paths))
        data = contents[number]
        _, changed = (
            refill(paths[number], data, rng) if rng.random() < 0.7 else spoil(data, contents, rng)
        )
        (folder / paths[number]).write_bytes(changed)
        restate(folder, paths[number])
        alone = found(folder, None)
        assert found(folder, Parcels()) == alone
        different.add(repr(alone))
        (folder / paths[number]).write_bytes(data)
        (folder / "manifest.json").write_bytes(manifest)
    assert len(different) > len(cases) // 2
