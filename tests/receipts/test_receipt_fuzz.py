"""Changed plans and receipts: whatever they say, a `FevalError` or a result comes, and it comes
soon.
"""

import copy
import json
import random
import signal
import time
import warnings
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from command_line import feval
from small import letters, write_toy

from feval.comparison.comparison import compare
from feval.comparison.plan import Plan
from feval.errors import FevalError
from feval.receipts.verifying import verify_receipt

pytestmark = pytest.mark.slow

SECONDS = 12.0  # for each of the two fuzzers
LONGEST = 10.0  # of one case; the toy has three questions
LLM = "gpt-3.5-turbo"
COMMANDS = {
    "run": "run self-consistency --set n=2 --order seeded --replicates 3",
    "learning": "run cascade --set samples=1 --set score=vote-share --train-fraction 0.5",
    "curve": "curve early-stopping --sweep window=1,2 --set budget=4",
    "plain curve": "curve self-consistency --n 1..4",
    "estimate": "estimate --g 3 --m 1..4 --method plug-in,monte-carlo,two-call,unbiased",
    "compare": "compare",
}
PLAN = f"""dataset = "toy"
recordings = ["toy"]
resamples = 50
replicates = 3
order = "seeded"
cost = "samples"
costs = [1.5]
accuracies = [0.5]
train_fraction = 0.5

[[method]]
name = "self-consistency"
label = "votes"
llms = ["{LLM}"]
budgets = {{ n = [1, 2] }}

[[method]]
name = "early-stopping"
llms = ["{LLM}"]
fields = {{ budget = 4, answer = "window" }}
budgets = {{ window = [1, 2] }}

[[method]]
name = "model-switch"
llms = ["{LLM}", "gpt-4o-mini"]
fields = {{ samples = 2 }}
"""
VALUES = (
    *(None, True, False, 0, 1, -1, 2, 3.5, -0.0, 1e308, 1e-308, 2**31, 2**63, 2**64, -(2**63),
    10**30, 10**400, 10**9,),
    *("", " ", "a", "self-consistency", "oracle", "x.py:f", "/dev/zero", "../toy", "\x00",
    "\x1b[31m", "\u202e", "\ud800"),
    *("inf", "-inf", "nan", "1", "0.5", "none", "hf://a/b", "exact", "seeded", "usd", "toy",
    "a" * 100_000, "9" * 5000),
    *([], [[]], {}, {"": 1}, [None], [1, "a"], {"n": [1]}, {"a": {"b": [1.5, {}]}},
    list(range(2000)), [0.5] * 3, ["a"] * 2000),
)  # fmt: skip
TOKENS = (
    "[",
    "]",
    "{",
    "}",
    '"',
    "'",
    ",",
    ":",
    "=",
    ".",
    "\n",
    "\\",
    "\\u0000",
    "-",
    "1e999",
    "NaN",
    "1979-05-27",
    "#",
    "0" * 40,
    "[[",
    "\ufeff",
)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    base = tmp_path_factory.mktemp("fuzz")
    pools = letters("aaba", "xy-y", "bbbb", "cdc-")
    write_toy(base / "toy", {LLM: pools, "gpt-4o-mini": pools[::-1]}, ["a", "y", "b", "d"])
    (base / "plan.toml").write_text(PLAN)
    for name, command in COMMANDS.items():
        options = ["--recording", base / "toy", f"--llm {LLM}"]
        options += ["--llm gpt-4o-mini"] if name == "learning" else []
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FEVAL_RECEIPTS", str(base))
            of_command = [base / "plan.toml"] if name == "compare" else options
            done = feval(command, *of_command, "--json")
        assert done.exit_code == 0, (name, done.output)
        Path(json.loads(done.stdout)["receipt"]).rename(base / f"{name}.json")
    return base


def places(value):
    """Yield every holder of a value, with the key or index of the value in it."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in list(items):
        yield value, key
        yield from places(inner)


def with_other_values(content, chance):
    changed = copy.deepcopy(content)
    for _ in range(chance.choice((1, 1, 2, 5))):
        found = list(places(changed))
        if not found:
            break
        holder, key = chance.choice(found)
        kind = chance.random()
        if kind < 0.7:
            holder[key] = copy.deepcopy(chance.choice(VALUES))
        elif kind < 0.8:
            del holder[key]
        elif kind < 0.9 and isinstance(holder, list):
            holder.insert(0, copy.deepcopy(holder[key]))
        else:
            other, there = chance.choice(found)
            with suppress(KeyError, IndexError):
                holder[key] = copy.deepcopy(other[there])
    return changed


def with_other_text(text, chance):
    for _ in range(chance.choice((1, 1, 3, 10))):
        start = chance.randrange(len(text) + 1)
        end = min(len(text), start + chance.choice((0, 1, 1, 5, 50)))
        kind = chance.random()
        new = (
            chance.choice(TOKENS) * chance.choice((1, 1, 1, 3, 200))
            if kind < 0.6
            else text[start:end] * 2
            if kind < 0.8
            else ""
        )
        text = text[:start] + new + text[end:]
    data = text.encode(errors="surrogatepass")
    return data if chance.random() < 0.9 else data[: chance.randrange(len(data) + 1)]


@contextmanager
def in_time(what):
    def late(*_):
        raise TimeoutError(f"{what!r:.3000} took longer than {LONGEST} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def survives(check, what):
    try:
        with in_time(what), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a plan may ask for what deserves a note
            check()
    except FevalError:
        return
    except Exception as error:
        error.add_note(f"{what!r:.3000}")
        raise


def compared(base, plan):
    compare(Plan.read(plan) if isinstance(plan, Path) else Plan.from_dict(plan), base=base)


def test_changed_receipts_are_told_in_a_sentence(base):
    chance, end, path = random.Random(17), time.monotonic() + SECONDS, base / "changed.json"  # noqa: S311
    texts = [(base / f"{name}.json").read_text() for name in COMMANDS]
    while time.monotonic() < end:
        text = chance.choice(texts)
        if chance.random() < 0.7:
            content = json.loads(text)
            part = chance.choice(("request", "request", "numbers", None))
            changed = (
                content | {part: with_other_values(content[part], chance)}
                if part
                else with_other_values(content, chance)
            )
            path.write_bytes(json.dumps(changed).encode())
        else:
            changed = with_other_text(text, chance)
            path.write_bytes(changed)
        survives(partial(verify_receipt, path), changed)


def test_changed_plans_are_told_in_a_sentence(base):
    chance, end, path = random.Random(18), time.monotonic() + SECONDS, base / "changed.toml"  # noqa: S311
    whole = Plan.read(base / "plan.toml").to_dict()
    while time.monotonic() < end:
        if chance.random() < 0.6:
            changed = with_other_values(whole, chance)
            survives(partial(compared, base, changed), changed)
        else:
            path.write_bytes(changed := with_other_text(PLAN, chance))
            survives(partial(compared, base, path), changed)


CASES = (
    {"recordings": ["\x00"]},
    {"recordings": "\ud800"},
    {"seed": 10**400},
    {"costs": [1e308], "accuracies": [-0.0]},
    {"method": [{"name": "x\x00.py:f", "llms": LLM}]},
    {"method": [{"name": "self-consistency", "llms": [LLM], "fields": {"n": [[[]]]}}]},
    {"method": [{"name": "self-consistency", "llms": [LLM], "budgets": {"n": ["9" * 5000]}}]},
)
"""Changes of the plan that were errors of ours at some time, and their neighbours."""


@pytest.mark.parametrize("case", range(len(CASES)))
def test_changes_found_before_stay_sentences(case, base):
    survives(
        partial(compared, base, Plan.read(base / "plan.toml").to_dict() | CASES[case]), CASES[case]
    )
