"""A comparison file runs no code of others unless the command line names that file."""

import json
import py_compile
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from command_line import failed, feval, said
from places import read_json
from small import letters, write_toy

from feval.comparison.comparison import compare
from feval.comparison.plan import Plan
from feval.errors import UsageError
from feval.receipts.document import comparison_receipt
from feval.receipts.verifying import verify_receipt

MINE = (
    "open({ran!r}, 'a').close()\ndef first(question, llm):\n    return llm.sample(1).answers[0]\n"
)
HEAD = 'dataset = "toy"\nrecordings = ["toy"]\nresamples = 20\nreplicates = 2\n'
BUILT_IN = '[[method]]\nname = "self-consistency"\nllms = ["gpt-3.5-turbo"]\nfields = {n = 1}\n'


@pytest.fixture
def base(tmp_path):
    """A folder with a recording, and a stranger's file in a folder of its own."""
    write_toy(tmp_path / "toy", {"gpt-3.5-turbo": letters("ab", "xy")}, ["a", "y"])
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "mine.py").write_text(MINE.format(ran=str(tmp_path / "ran")))
    (tmp_path / "link.py").symlink_to(tmp_path / "far" / "mine.py")
    return tmp_path


def plan(base, *methods):
    tables = [f'[[method]]\nname = "{name}"\nllms = ["gpt-3.5-turbo"]\n' for name in methods]
    (base / "plan.toml").write_text("\n".join([HEAD, BUILT_IN, *tables]))
    return base / "plan.toml"


@pytest.mark.parametrize(
    "name",
    ["far/mine.py:first", "{base}/far/mine.py:first", "link.py:first", "far/../link.py:first"],
)
@pytest.mark.parametrize(
    "given", [[], ["--method", "{base}/far/mine.py:other"], ["--method", "self-consistency"]]
)
def test_a_comparison_file_runs_no_code_that_the_command_does_not_name(name, given, base):
    options = [option.format(base=base) for option in given]
    failed(
        feval("compare", plan(base, name.format(base=base)), *options),
        2,
        "A comparison file runs no code by itself",
        f"pass --method {base}",
    )
    assert not (base / "ran").exists()


def test_the_file_that_the_command_names_is_the_one_that_runs(base):
    file = plan(base, "link.py:first", f"{base}/far/mine.py:first", "gone.py:first")
    done = said("compare", file, "--method", base / "far" / "mine.py:first", "--out", base / "out")
    assert "There is no file" in done  # nothing that could run: listed as missing, as before
    assert (base / "ran").exists()
    sources = read_json(base / "out" / "receipt.json")["request"]["sources"]
    assert len({hash_ for hash_ in sources.values() if hash_}) == 1
    assert verify_receipt(base / "out" / "receipt.json", methods=[f"{base}/link.py:first"]).equal


def test_a_comparison_in_python_runs_no_code_that_is_not_given(base):
    read = Plan.read(plan(base, "link.py:first"))
    with pytest.raises(UsageError, match="runs no code by itself"):
        compare(read, base=base)
    result = compare(read, base=base, methods={})
    assert [one.label for one in result.missing] == ["link.py:first"]
    assert not (base / "ran").exists()


def test_the_receipt_pins_the_code_that_ran_and_not_what_the_file_holds_later(base):
    mine = base / "far" / "mine.py"
    read = Plan.read(plan(base, "far/mine.py:first"))
    result = compare(read, base=base, methods=[f"{mine}:first"])
    before = result.methods["far/mine.py:first"].source_sha256
    mine.write_text("def first(question, llm):\n    return 'a'\n")
    assert comparison_receipt(result, base, base)["request"]["sources"] == {
        "far/mine.py:first": before
    }


def test_a_receipt_of_a_curve_that_names_code_runs_none(base):
    command = ["curve", "self-consistency", "--n", "1,2"]
    path = base / "out" / "receipt.json"
    said(*command, "--recording", base / "toy", "--out", path.parent)
    whole = read_json(path)
    whole["request"] |= {"method": f"{base}/far/mine.py:first", "settings": {}, "field": "n"}
    path.write_text(json.dumps(whole))
    assert feval("verify", path).exit_code == 2
    assert not (base / "ran").exists()


def test_a_planted_pyc_does_not_run_in_place_of_the_source(base):
    mine, evil = base / "far" / "mine.py", base / "evil.py"
    evil.write_text(
        f"open({str(base / 'evil ran')!r}, 'a').close()\ndef first(question, llm):\n    return"
        " 'y'\n"
    )
    planted = Path(cache_from_source(str(mine)))
    planted.parent.mkdir(exist_ok=True)
    # An unchecked .pyc stands for its source whatever that holds; a legacy one lies beside it.
    for place in (planted, mine.with_suffix(".pyc")):
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(evil), str(place), doraise=True, invalidation_mode=mode)
    said("run", f"{mine}:first", "--recording", base / "toy", "--replicates 2")
    assert (base / "ran").exists()
    assert not (base / "evil ran").exists()


def test_lists_of_a_plan_are_bounded(base):
    one = {"name": "self-consistency", "llms": ["a"]}
    whole = {"dataset": "toy", "recordings": ["toy"], "method": [one]}
    labelled = [one | {"label": str(n)} for n in range(1001)]
    swept = {"budgets": {"n": list(range(1, 1001))}}
    for part, bound in (
        ({"recordings": ["toy"] * 1001}, "1000"),
        ({"method": labelled}, "1000"),
        ({"method": [one | {"llms": ["a"] * 1001}]}, "1000"),
        ({"method": [one | {"budgets": {"n": list(range(1001))}}]}, "1,000"),
        ({"costs": [1.0] * 1001}, "1000"),
        ({"accuracies": [0.5] * 1001}, "1000"),
        ({"resamples": 100_001}, "100000"),
        ({"replicates": 1_000_000}, "100000"),
        (
            {"method": [each | swept for each in labelled[:11]]},
            "at most 10,000 points, .* this one has 11,000",
        ),
    ):
        with pytest.raises(UsageError, match=bound):
            Plan.from_dict(whole | part)
