"""Who sees how far work is: terminals and notebooks, not scripts unless they ask, and never two
bars at once.
"""

import io
import sys
from itertools import pairwise
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from recording_doubles import FakeBackend, task
from scoring_doubles import FUNCTIONS, run as score

import feval
from feval.executors import progress
from feval.executors.progress import Lines, NotebookBar, ProgressBar, TerminalBar, reports
from feval.recording import Question
from recorders.work.record import record_dataset


@reports("outer")
def work(steps=2, *, inside=False, progress=None):
    """What the function was given, and what a function within it was."""
    if progress is not None:
        progress(1, steps)
    return [progress, *(work() if inside else ())]


@pytest.fixture(autouse=True)
def _settings(monkeypatch):
    # nothing is drawn here unless a test draws it
    monkeypatch.setattr(ProgressBar, "DELAY_SECONDS", 3600.0)
    yield
    feval.set_progress(None)


def on_terminal(monkeypatch, *, answer):
    monkeypatch.setattr(
        sys,
        "stderr",
        SimpleNamespace(isatty=lambda: answer, write=lambda _: None, flush=lambda: None),
    )


def test_a_script_sees_nothing_unless_it_asks(monkeypatch):
    on_terminal(monkeypatch, answer=False)
    assert work() == [None]
    feval.set_progress(True)
    assert isinstance(work()[0], ProgressBar)


@pytest.mark.parametrize("stream", ["none", "closed", "left"])
def test_work_goes_on_where_nobody_reads_standard_error(stream, monkeypatch):
    there = io.StringIO()
    there.close()
    left = SimpleNamespace(write=Mock(side_effect=BrokenPipeError))
    monkeypatch.setattr(sys, "stderr", {"none": None, "closed": there, "left": left}[stream])
    assert work() == [None]
    Lines("comparing").update(1, 2)


def test_a_terminal_sees_one_bar_unless_it_is_switched_off(monkeypatch):
    on_terminal(monkeypatch, answer=True)
    outer, inner = work(inside=True)
    assert (isinstance(outer, ProgressBar), inner) == (True, None)
    assert isinstance(work()[0], ProgressBar)  # the last one is gone
    feval.set_progress(False)
    assert work() == [None]


def test_a_caller_that_listens_is_told_instead(monkeypatch):
    on_terminal(monkeypatch, answer=True)
    heard = []
    assert work(5, progress=lambda done, total: heard.append((done, total)))[0] is not None
    assert heard == [(1, 5)]
    assert isinstance(work(progress=None)[0], ProgressBar)


def test_work_that_fails_leaves_no_bar(monkeypatch):
    on_terminal(monkeypatch, answer=True)
    with pytest.raises(TypeError):
        work("two", wrong=True)  # type: ignore[arg-type, call-arg]
    assert isinstance(work()[0], ProgressBar)


def test_each_place_has_its_bar(monkeypatch):
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    for terminal, ipython, kind in (
        (True, None, TerminalBar),
        (False, shell, NotebookBar),
        (False, None, Lines),
    ):
        with monkeypatch.context() as patch:
            on_terminal(patch, answer=terminal)
            patch.setitem(sys.modules, "IPython", ipython)
            patch.setattr(
                progress, kind.__name__, made := (lambda label: SimpleNamespace(label=label))
            )
            assert progress.ProgressBar("work")._made() == made("work")


@pytest.fixture
def drawn(monkeypatch):
    """What a bar shows that need not wait: words, steps, and steps in all."""
    shown = []
    enter = ProgressBar.__enter__

    class Drawn:
        def __init__(self, label):
            self.describe(label)

        def describe(self, label):
            self.label = label

        def update(self, done, total):
            shown.append((self.label, done, total))

        def stop(self):
            shown.append(("", 0, None))

    monkeypatch.setattr(
        ProgressBar, "__enter__", lambda bar: setattr(bar, "_due", True) or enter(bar)
    )
    monkeypatch.setattr(ProgressBar, "_made", lambda bar: Drawn(bar.label))
    feval.set_progress(True)
    yield shown
    assert not progress._taken.locked()


def test_a_bar_waits_for_its_number_of_steps(drawn, monkeypatch):
    with ProgressBar("work") as bar:
        for total in (None, 0, 3):
            bar(0, total)
    assert drawn == [("work", 0, 3), ("", 0, None)]
    on_terminal(monkeypatch, answer=True)
    with ProgressBar("work") as bar:  # a terminal shows at least that there is work
        bar._show()
    assert drawn[2:] == [("work", 0, None), ("", 0, None)]


def test_recording_and_scoring_in_python_show_their_bars(drawn, tmp_path, monkeypatch):
    recording = record_dataset(
        task([Question("sums/0", "1 + 1?", "2")], 3),
        FakeBackend(),
        tmp_path / "recorded",
        prices="none",
    )
    (tmp_path / "my_scorers.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    score(recording, tmp_path / "scored", "python:my_scorers:length")
    last = [before for before, here in pairwise(drawn) if here[0] == ""]
    assert [(label.partition(",")[0], *steps) for label, *steps in last] == [
        ("recording: 3 of 3", 3, 3), ("scoring: 3 of 3", 3, 3)
    ]  # fmt: skip


def test_lines_come_with_each_tenth(capsys):
    lines = Lines("comparing")
    for done in range(101):
        lines.update(done, 200)
    lines.update(5, None)
    assert capsys.readouterr().err == "".join(
        f"comparing: {tenths} %\n" for tenths in (0, 10, 20, 30, 40, 50)
    )


def test_a_notebook_s_bar_follows(capsys):
    bar = NotebookBar("comparing")
    bar.update(3, 4)
    assert (bar._bar.n, bar._bar.total) == (3, 4)
    bar.describe("writing")
    bar._bar.refresh()
    bar.stop()
    drawn = [line for line in capsys.readouterr().err.split("\r") if line.strip()]
    assert [line.partition("%")[0] for line in drawn] == [
        "comparing:  75",
        "writing:  75",
    ]  # and nothing before the total
