"""The public names are a list, they exist, and `import feval` costs next to nothing."""

import inspect
import re
import subprocess
import sys

import pytest
from places import ROOT

import feval
from feval.errors import UsageError, command_line
from feval.evaluation.surfaces import surface
from feval.forecast import estimate
from feval.serving import Application, replay_http_client

PUBLIC = [
    "AdaptiveConsistency", "AnswerConvergence", "AutoMix", "BeamSearch", "BestOfN",
    "BudgetEnvironment", "BudgetPolicy", "Cascade", "Comparison",
    "ConfidenceWeighted", "Curve", "CurvePoint", "DVTS", "Dataset", "DatasetType", "DeepConfidence",
    "DifficultyAdaptive",
    "EarlyStopping", "Evaluation", "FevalError", "LLM", "LLMType", "METHODS", "MixtureOfThoughts",
    "ModelSwitch", "Oracle",
    "ParallelProbe", "ParticleFiltering", "PathConsistency", "Plan", "PriceList", "ProbeConfidence",
    "Router",
    "SelfConsistency", "SequentialRevision", "SingleCall", "TokenBudget",
    "WeightedBestOfN", "__version__", "as_method", "compare", "distributed", "evaluate",
    "export_recording", "from_dataframe",
    "import_recording", "load", "merge", "method_curve", "open_recording", "plurality",
    "price_list", "replaying", "reprice", "select", "set_progress", "style",
    "self_consistency_curve", "train_test_rows", "training", "verify_receipt", "verify_recording",
]  # fmt: skip

HEAVY = [
    "dask", "distributed", "httpx2", "huggingface_hub", "matplotlib", "numpy", "orjson", "pyarrow",
    "pydantic", "rich", "scipy",
    "tiktoken", "typer", "yaml",
]  # fmt: skip
NOT_FOR_A_CURVE = [
    "asyncio", "dask", "distributed", "huggingface_hub", "matplotlib", "multiprocessing", "pyarrow",
    "rich", "scipy.optimize",
    "scipy.special", "scipy.stats",
]  # fmt: skip
NOT_FOR_VOTES = [
    "feval.answers.kinds", "feval.evaluation.user_methods.host",
    "feval.executors.workers", "feval.hub.client", "feval.methods.adaptive_consistency",
]  # fmt: skip
CURVE = f"""
from feval import load, self_consistency_curve

dataset, [llm] = load("tiny_sums", ["feval/tiny-42k"], {str(ROOT / "recorders" / "tiny" / "recording")!r})
assert self_consistency_curve(dataset, llm, [1, 5]).points[0].usd_per_question
"""  # noqa: E501
COMMAND = f"""
import sys
from feval.cli import main

sys.argv = ["feval", "curve", "self-consistency", "--recording", {str(ROOT / "recorders" / "tiny" / "recording")!r}]
sys.argv += ["--llm", "feval/tiny-42k", "--n", "1,5", "--quiet"]
try:
    main()
except SystemExit as end:
    assert not end.code
"""  # noqa: E501


def loaded_after(statement):
    """Return the modules that a fresh interpreter holds after a statement."""
    code = f"{statement}\nimport sys\nprint()\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_every_option_of_a_comparison_is_an_argument_with_its_words():
    # Python 3.13 takes the indentation away itself.
    words = inspect.getdoc(feval.compare).split("Raises:")[0]
    described = {*re.findall(r"^ {4}(\w+):", words, re.MULTILINE)}
    arguments = {*inspect.signature(feval.compare).parameters}
    assert described == arguments
    assert {*feval.Plan.model_fields} - {"entries"} <= arguments


def test_the_public_names_are_these():
    assert sorted(feval.__all__) == sorted(PUBLIC)
    assert dir(feval) == sorted(feval.__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_exists_and_is_documented(name):
    value = getattr(feval, name)
    if callable(value):
        assert value.__doc__


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing_of_the_kind'"):
        feval.nothing_of_the_kind  # noqa: B018 -- the look-up is the test


def test_importing_feval_errors_and_names_loads_nothing_heavy():
    program = "import feval; feval.FevalError; feval.DatasetType.GSM8K; feval.LLMType"
    assert loaded_after(program).isdisjoint(HEAVY)


def test_cards_are_read_when_they_are_asked_for():
    read = "from feval.cards.prices import price_list; price_list('2025-06-02')"
    assert loaded_after(read).isdisjoint({*HEAVY} - {"yaml"})
    opened = """
import builtins, io, os, sys
sys.addaudithook(lambda event, given: event == "open" and str(given[0]).endswith(".md") and 1 / 0)
import feval.cards.names, feval.cards.cards, feval.cards.prices, feval.cards.tokens
"""
    assert "tiktoken" not in loaded_after(opened)


WRONG = [
    (
        lambda _, __: feval.evaluate(feval.SelfConsistency(5), 5, "gpt-x"),
        "evaluate takes a Dataset .* as dataset; 5",
    ),
    (
        lambda data, _: feval.evaluate(feval.SelfConsistency(5), data, ["gpt-x"]),
        r"LLMs from `load`, .* the names of both; .* \['gpt-x'\], ",
    ),
    (
        lambda data, llm: feval.evaluate(feval.SelfConsistency(5), data, llm, replicates="9"),
        "a whole number or None as",
    ),
    (
        lambda data, _: feval.self_consistency_curve(data, [data], [1]),
        "self_consistency_curve takes an LLM .* as llm",
    ),
    (
        lambda data, llm: feval.method_curve(data, [llm], "self-consistency", "n", 5),
        "takes a list .* as values; 5",
    ),
    (lambda data, _: feval.compare(data), "compare takes a Plan, .* as recording"),
    (lambda data, _: surface(data, "x"), "surface takes an LLM"),
    (lambda _, llm: estimate("x", llm, g=2, m=[3]), "estimate takes a Dataset"),
    (
        lambda _, __: feval.load("tiny_sums", 5),
        "load takes text, a list .each text. or None as llms; 5",
    ),
    (lambda _, __: feval.merge("one", "two"), "merge takes a list"),
    (lambda _, llm: feval.BudgetEnvironment("x", llm), "BudgetEnvironment takes a Dataset"),
    (lambda data, llm: llm.ask(data[0], 0), "named by its id or row; DatasetEntry"),
    (lambda data, _: data[1.5], "named by its id or row; 1.5"),
    (lambda _, __: Application.open(5), "Application.open takes .* as recording; 5"),
    (
        lambda _, __: replay_http_client(few_shot=True),
        "Application.open takes text as few_shot; True",
    ),
    (lambda _, __: replay_http_client(run=5), "a run is text; 5"),
]


@pytest.mark.parametrize(("call", "words"), WRONG)
def test_a_wrong_type_is_a_sentence(call, words):
    data, [llm] = feval.load(
        "tiny_sums", ["feval/tiny-42k"], ROOT / "recorders" / "tiny" / "recording"
    )
    with pytest.raises(UsageError, match=f"{words}.* was given"):
        call(data, llm)


@pytest.mark.parametrize(
    ("program", "heavy"),
    [
        (CURVE, [*NOT_FOR_A_CURVE, *NOT_FOR_VOTES, "pydantic"]),
        (COMMAND, NOT_FOR_A_CURVE),
        (
            "from feval import evaluate",
            [*NOT_FOR_A_CURVE, *NOT_FOR_VOTES, "feval.evaluation.method_names"],
        ),
    ],
)
def test_a_first_curve_loads_no_more_than_it_needs(program, heavy):
    assert loaded_after(program).isdisjoint(heavy)


def test_errors_name_arguments_in_python_and_options_on_the_command_line():
    error = UsageError(
        "Run FILE.py, or take --set a.b=1 (in Python: b=1), --drop x (in Python: x=2)."
    )
    assert str(error) == "Run FILE.py, or take b=1, x=2."
    with command_line():
        assert str(error) == "Run FILE.py, or take --set a.b=1, --drop x."
    assert str(error) == "Run FILE.py, or take b=1, x=2."
