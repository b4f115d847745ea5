"""Load names on first use (PEP 562), and what `report` makes of a result when somebody looks at it:
importing stays cheap.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package whose public names live in its modules
    (dotted, relative to it), each with its names in one text.

    A module listed without names is itself an attribute: `from feval import hub;
    hub.recordings.pull(...)` loads it on use.
    """
    homes = {
        name: f"{package}.{module}" for module, names in modules.items() for name in names.split()
    }
    whole = {module: f"{package}.{module}" for module, names in modules.items() if not names}

    def get(name: str) -> object:
        if name in whole:
            return import_module(whole[name])
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*homes, *whole, *getattr(sys.modules[package], "__all__", ())})


class LazyMapping(Mapping[str, Any]):
    """A mapping whose values are imported when they are looked up.

    Args:
        package: the dotted name that all of them lie below.
        homes: key -> `module:name`, the module relative to the package.
    """

    def __init__(self, package: str, homes: Mapping[str, str]) -> None:
        self._package = package
        self._homes = homes

    def __getitem__(self, key: str) -> Any:
        module, _, name = self._homes[key].partition(":")
        return getattr(import_module(f"{self._package}.{module}"), name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


VIEWS = "feval.report.views"
"""Makes sentences, tables, frames and pictures of results. It stands below all of them, and is
loaded on first use.
"""


def views() -> Any:
    """Return the module `VIEWS`."""
    return import_module(VIEWS)


class Displayable:
    """Base of what people look at in Python: a short `repr`, a table in notebooks, a DataFrame."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(views().sentence(self))

    def _repr_html_(self) -> str:
        return str(views().html(self))

    def to_frame(self, rows: str | None = None, library: str | None = None) -> Any:
        """Return the numbers as a DataFrame, with NaN or null for what is not known.

        Accuracies and shares are between 0 and 1; `usd` and `tokens` (prompt and output tokens
        billed) are per question. The rows and columns:

        - `Curve`, `Comparison`: a row per point, as in `curve.csv` and `results.csv`. Of a
          comparison, `to_frame("questions")` has a row per point and question, see
          `Comparison.per_question`, and `to_frame("differences")`, or the name of any other
          attribute of `Statistics`, a row per record of it.
        - `Evaluation`: a row per question: `right` (probability), `usd`, `tokens`, `output_tokens`,
          `samples` (CoTs), `calls`, and how errors came about, `no_answer`, `stopped_early`,
          `routed_wrong`.
        - `Forecast`, `BudgetPlan`, `Surface`: a row per estimator and number of votes; per number
          of votes; per width and depth.
        - `Recording`: a row per dataset and LLM, as `feval info` shows them. `Plan`: a row per
          method.
        - `Dataset`: a row per question, with its gold `answer`, and each LLM's share of right CoTs
          under the LLM's name.
        - `LLM`: a row per question: `cots`, `no_answer` (share), `answers` (distinct), `agreement`
          (share of the most frequent answer among all CoTs), `prompt_tokens`, `output_tokens` (mean
          of a CoT).

        Args:
            rows: of a comparison: "points", "questions", "differences", "frontier", "ranking" and
                so on.
            library: "pandas" or "polars", which may come first, too; `None` for the first of them
                that is installed.

        Raises:
            UsageError: the library is not installed, or is another one; no such rows.
        """
        return views().frame(self, rows, library)


class Plottable(Displayable):
    """What has a picture, too."""

    __slots__ = ()

    def plot(
        self,
        ax: Any = None,
        *,
        methods: Collection[str] | None = None,
        llms: Collection[str] | None = None,
        legend: str | bool = "auto",
        title: str | bool = True,
        ceilings: bool = True,
        frontier: bool = True,
        intervals: str | bool = "band",
        annotate: bool = True,
        cost: str | None = None,
        log: bool = True,
    ) -> Any:
        """Draw it with matplotlib and return the axes; fonts and sizes are those of Matplotlib's
        settings, see `feval.style`.

        A curve, a comparison, a forecast and a plan of a budget show accuracy over cost or votes, a
        surface accuracy over width and depth; a recording, a dataset, an LLM and an evaluation
        their questions, sorted.

        Args:
            ax: axes to draw on; `None` for a new figure of pyplot's, which notebooks show by
                themselves.
            methods: the methods of a comparison, by label or name, or the estimators of a forecast;
                `None` for all.
            llms: those of a comparison's methods of one LLM; methods of several stay.
            legend: "auto" names lines at their ends where that hides nothing, else in a legend
                "outside", beneath the figure and shared by its panels, which get a constrained
                layout if they have none. "inside" puts it on the axes, "direct" always names lines
                at their ends, and `False` leaves it out.
            title: `True` for one that says what is shown, or your own; `False` for none.
            ceilings: whether pass@n is drawn.
            frontier: whether the Pareto frontier of what is drawn is.
            intervals: "band", "bar", or `False`; of more than four methods, those on the frontier
                have one.
            annotate: whether points have their names, where these hide nothing.
            cost: along the axis: "usd" (of 1,000 questions), "tokens", "output-tokens",
                "sequential-tokens", "seconds", "calls" or "samples"; `None` for the result's own.
            log: whether the axis of costs or votes is logarithmic.

        Raises:
            UsageError: an argument means nothing for this result, or no point has this cost.
            UnknownNameError: there is no such method, LLM or cost.
        """
        return views().plot(
            self,
            ax,
            methods=methods,
            llms=llms,
            legend=legend,
            title=title,
            ceilings=ceilings,
            frontier=frontier,
            intervals=intervals,
            annotate=annotate,
            cost=cost,
            log=log,
        )


_TABLES = "feval.exporters.arrow"
"""Makes tables of recordings. It stands below these, and is loaded on first use."""


class Browsable(Plottable):
    """A recording, whose questions can be read, and of whose CoTs `exporters` makes a table,
    too.
    """

    __slots__ = ()

    def show(
        self,
        question: str | int,
        *,
        dataset: str | None = None,
        llm: str | None = None,
        samples: Collection[int] | None = None,
        reasoning: bool = False,
        right: str | None = None,
    ) -> None:
        """Print a question with its gold, how many CoTs of each LLM gave each answer, and the CoTs,
        as `feval show` does.

        Args:
            question: id or how it begins, a piece of the text, or row from 0.
            dataset: id; needed where several have the question.
            llm: name; `None` for all.
            samples: the CoTs to show, by sample index; `None` for all.
            reasoning: whether thoughts are shown, or only how long they are.
            right: what says which CoTs are right, as for `load`.

        Raises:
            NotRecordedError: no such dataset, LLM or row.
            UnknownNameError: no such question.
            UsageError: several questions are meant; they are listed.
        """
        views().show(
            self,
            question,
            dataset=dataset,
            llm=llm,
            right=right,
            samples=samples,
            reasoning=reasoning,
        )

    def to_arrow(
        self, *, datasets: Sequence[str] | None = None, llms: Sequence[str] | None = None
    ) -> Any:
        """Return the CoTs as one `pyarrow.Table` in memory, with a row for each CoT, or step of a
        tree.

        It is the table that `feval export --to parquet` writes. A column is there where an LLM has
        it; null is a missing value. docs/exporting.md says what each means. polars and DuckDB take
        the table as it is.

        Args:
            datasets: ids; `None` for all.
            llms: names; `None` for all.

        Raises:
            NotRecordedError: no such dataset or LLM.
        """
        return import_module(_TABLES).to_arrow(self, datasets, llms)

    def to_pandas(
        self, *, datasets: Sequence[str] | None = None, llms: Sequence[str] | None = None
    ) -> Any:
        """Return the same as a pandas DataFrame.

        Raises:
            NotRecordedError: no such dataset or LLM.
            UsageError: pandas is not installed.
        """
        return import_module(_TABLES).to_pandas(self, datasets, llms)
