"""Who sees how far work is: terminals and notebooks, not scripts unless they ask, and never two bars at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import feval
from feval.executors import progress
from feval.executors.progress import Lines, NotebookBar, ProgressBar, TerminalBar, reports


@reports("outer")
def work(steps: int = 2, *, inside: bool = False, progress: Callable[[int, int], None] | None = None) -> list[Any]:
    """What the function was given, and what a function within it was."""
    if progress is not None:
        progress(1, steps)
    return [progress, *(work() if inside else ())]


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(ProgressBar, "DELAY_SECONDS", 3600.0)  # nothing is drawn here unless a test draws it
    yield
    feval.set_progress(None)


def on_terminal(monkeypatch: pytest.MonkeyPatch, *, answer: bool) -> None:
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: answer, write=lambda _: None, flush=lambda: None))


def test_a_script_sees_nothing_unless_it_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch, answer=False)
    assert work() == [None]
    feval.set_progress(True)
    assert isinstance(work()[0], ProgressBar)


def test_a_terminal_sees_one_bar_unless_it_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch, answer=True)
    outer, inner = work(inside=True)
    assert (isinstance(outer, ProgressBar), inner) == (True, None)
    assert isinstance(work()[0], ProgressBar)  # the last one is gone
    feval.set_progress(False)
    assert work() == [None]


def test_a_caller_that_listens_is_told_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch, answer=True)
    heard: list[tuple[int, int]] = []
    assert work(5, progress=lambda done, total: heard.append((done, total)))[0] is not None
    assert heard == [(1, 5)]
    assert isinstance(work(progress=None)[0], ProgressBar)


def test_work_that_fails_leaves_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch, answer=True)
    with pytest.raises(TypeError):
        work("two", wrong=True)  # type: ignore[arg-type, call-arg]
    assert isinstance(work()[0], ProgressBar)


def test_each_place_has_its_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shell: Any = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    for terminal, ipython, kind in ((True, None, TerminalBar), (False, shell, NotebookBar), (False, None, Lines)):
        with monkeypatch.context() as patch:
            on_terminal(patch, answer=terminal)
            patch.setitem(sys.modules, "IPython", ipython)
            patch.setattr(progress, kind.__name__, made := (lambda label: SimpleNamespace(label=label)))
            assert progress.ProgressBar("work")._made() == made("work")


def test_without_tqdm_a_notebook_has_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch, answer=False)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object())))
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    assert isinstance(ProgressBar("work")._made(), Lines)


def test_lines_come_with_each_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines("comparing")
    for done in range(101):
        lines.update(done, 200)
    lines.update(5, None)
    assert capsys.readouterr().err == "".join(f"comparing: {tenths} %\n" for tenths in (0, 10, 20, 30, 40, 50))


def test_a_notebook_s_bar_follows(capsys: pytest.CaptureFixture[str]) -> None:
    bar = NotebookBar("comparing")
    bar.update(3, 4)
    assert (bar._bar.n, bar._bar.total) == (3, 4)
    bar.describe("writing")
    bar.stop()
    assert "comparing" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["compare", "evaluate", "method_curve", "import_recording", "verify_recording"])
def test_functions_keep_their_names_and_arguments(name: str) -> None:
    function = getattr(feval, name)
    assert function.__name__ == name
    assert function.__doc__
    assert "progress" in function.__wrapped__.__kwdefaults__ or "progress" in function.__wrapped__.__code__.co_varnames
