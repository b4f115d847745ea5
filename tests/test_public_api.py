"""The public names are a list, they exist, and `import feval` costs next to nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import feval

PUBLIC = [
    "LLM",
    "METHODS",
    "Comparison",
    "AdaptiveConsistency",
    "AutoMix",
    "BestOfN",
    "BudgetEnvironment",
    "Cascade",
    "ConfidenceWeighted",
    "Curve",
    "CurvePoint",
    "Dataset",
    "DatasetType",
    "DeepConfidence",
    "DifficultyAdaptive",
    "EarlyStopping",
    "Evaluation",
    "FevalError",
    "LLMType",
    "Plan",
    "MixtureOfThoughts",
    "ModelSwitch",
    "Oracle",
    "PriceList",
    "SelfConsistency",
    "SingleCall",
    "WeightedBestOfN",
    "__version__",
    "compare",
    "as_method",
    "evaluate",
    "import_recording",
    "load",
    "merge",
    "method_curve",
    "open_recording",
    "plurality",
    "price_list",
    "select",
    "self_consistency_curve",
    "train_test_rows",
    "verify_receipt",
    "verify_recording",
]

HEAVY = [
    "httpx2", "huggingface_hub", "matplotlib", "numpy", "orjson", "pyarrow", "pydantic", "rich", "scipy", "tiktoken", "typer",
    "yaml",
]  # fmt: skip


def loaded_after(statement: str) -> set[str]:
    """Return the top-level modules a fresh interpreter holds after a statement."""
    code = f"{statement}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_public_names_are_these() -> None:
    assert sorted(feval.__all__) == sorted(PUBLIC)
    assert dir(feval) == sorted(feval.__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_exists_and_is_documented(name: str) -> None:
    value = getattr(feval, name)
    if callable(value):
        assert value.__doc__


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing_of_the_kind'"):
        feval.nothing_of_the_kind  # noqa: B018 -- the look-up is the test


def test_importing_feval_loads_nothing_heavy() -> None:
    assert loaded_after("import feval").isdisjoint(HEAVY)


def test_errors_and_names_load_nothing_heavy() -> None:
    assert loaded_after("import feval; feval.FevalError; feval.DatasetType.GSM8K; feval.LLMType").isdisjoint(HEAVY)
