"""The section of a card that says how to load the recording: with feval, `datasets`, DuckDB and polars."""

from __future__ import annotations

from feval.publish.configs import Config
from feval.publish.markdown import python_text, shell_word
from feval.publish.page import Page
from feval.recording import Recording

__all__ = ["loading"]


def loading(recording: Recording, page: Page) -> list[str]:
    """The section's lines; none where no LLM was recorded on the first dataset."""
    dataset = recording.dataset_ids()[0]
    samples = next((config for config in page.configs if config.part == "samples" and config.dataset == dataset), None)
    if samples is None:
        return []
    newest = (
        f"A name such as `{page.repo_id}` means the newest version. What you publish should rest on one that never changes: "
        f"`hf://{page.repo_id}@COMMIT`, with the commit that *Files and versions* shows"
    )
    return [
        "## Load it",
        "",
        *_feval(recording, page, dataset, str(samples.splits[0].llm)),
        "",
        *_datasets(page, dataset, samples),
        "",
        *_queries(recording, page, samples),
        "",
        newest + (f", or the tag `{page.revision}`." if page.revision else "."),
    ]


def _feval(recording: Recording, page: Page, dataset: str, llm: str) -> list[str]:
    address = f"hf://{page.pinned}"
    flags = "" if len(recording.dataset_ids()) == 1 else f" --dataset {shell_word(dataset)}"
    flags += "" if len(recording.llm_names(dataset)) == 1 else f" --llm {shell_word(llm)}"
    return [
        "**feval** fetches the dataset and the LLMs that are asked for, and checks every byte against the manifest:",
        "",
        "```python",
        "import feval",
        "",
        f'dataset, llms = feval.load({python_text(dataset)}, [{python_text(llm)}], "{address}")',
        "print(llms[0](dataset.question_ids[0], n=1).answers)",
        "```",
        "",
        "```sh",
        f"feval curve self-consistency --recording {address}{flags} --out my-curve",
        "```",
    ]


def _datasets(page: Page, dataset: str, samples: Config) -> list[str]:
    split = samples.splits[0].name
    revision = f', revision="{page.revision}"' if page.revision else ""
    questions, texts = (page.config_name(dataset, part) for part in ("questions", "texts"))
    return [
        "**datasets** has a configuration for each dataset and part, and a split for each LLM:",
        "",
        "```python",
        "from datasets import load_dataset",
        "",
        f'samples = load_dataset("{page.repo_id}", "{samples.name}", split="{split}"{revision})',
        f'questions = load_dataset("{page.repo_id}", "{questions}", split="questions"{revision})',
        f'texts = load_dataset("{page.repo_id}", "{texts}", split="{split}"{revision})',
        "```",
    ]


def _queries(recording: Recording, page: Page, samples: Config) -> list[str]:
    if recording.manifest.raw["format_version"] < 3:
        return [
            "`feval select` of this recording writes the columns `llm` and `correct`, for DuckDB, polars and pandas."
        ]
    files = f"hf://datasets/{page.pinned}/{samples.splits[0].path.rpartition('/')[0]}/*.parquet"
    return [
        "**DuckDB** and **polars** read the files where they are. Here, the accuracy of one call:",
        "",
        "```sql",
        f"SELECT llm, avg(correct::INT) AS accuracy FROM '{files}' GROUP BY llm ORDER BY llm;",  # noqa: S608  shown, not run
        "```",
        "",
        "```python",
        "import polars as pl",
        "",
        f'samples = pl.scan_parquet("{files}")',
        'print(samples.group_by("llm").agg(pl.col("correct").mean()).sort("llm").collect())',
        "```",
    ]
