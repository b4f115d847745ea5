"""`feval run`, methods by name, and methods from a user's file."""

import json
import re

import numpy as np
import pytest
from command_line import failed, feval, said, told
from places import read_data, read_json
from small import letters, write_toy

from feval import load
from feval.errors import MethodError, UnknownNameError, UsageError
from feval.evaluation.method_names import field_names, make_method, method_fields, parse_settings
from feval.evaluation.user_methods import MethodFile
from feval.methods import METHODS, SelfConsistency
from feval.methods.adaptive_consistency import THRESHOLDS
from feval.methods.fields import json_field

SAID = read_data("commands.json")
POOLS = letters("aaba", "xy-y", "bbbb")
SIX_LINES = """
def agree(question, llm):
    first, second = llm.sample(2).answers
    if first == second:
        return first
    return llm.sample(1).answers[0]
"""


@pytest.fixture
def toy(tmp_path):
    return write_toy(
        tmp_path / "toy", {"gpt-3.5-turbo": POOLS, "gpt-4o-mini": POOLS}, ["a", "y", "b"]
    )


def run(*arguments):
    return feval("run", *arguments)


def test_run_prints_one_json_object(toy):
    result = told("run self-consistency --set n=3 --recording", toy, "--llm gpt-3.5-turbo")
    keys = {
        "method", "fields", "kind", "questions", "accuracy", "accuracy_low", "accuracy_high",
        "samples_per_question",
        "usd_per_question", "tokens_per_question", "calls_per_question",
    }  # fmt: skip
    assert keys <= set(result)
    assert (result["method"], result["fields"]["n"], result["kind"], result["questions"]) == (
        "self-consistency",
        3,
        "exact",
        3,
    )
    assert result["samples_per_question"] == 3
    assert not {"correct", "samples"} & set(result)


def test_run_in_recorded_order_counts(toy):
    arguments = ["--recording", toy, "--llm gpt-3.5-turbo --order recorded"]
    result = told("run self-consistency --set n=3", *arguments)
    assert (result["correct"], result["samples"], result["kind"]) == (2, 9, "recorded")


def test_run_a_users_method(toy, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(SIX_LINES)
    result = json.loads(
        run(f"{file}:agree", "--recording", toy, "--llm gpt-4o-mini --order recorded --json").stdout
    )
    assert (result["method"], result["correct"], result["samples"]) == ("agree", 2, 2 + 3 + 2)
    seeded = [
        run(f"{file}:agree", "--recording", toy, "--llm gpt-4o-mini --workers", n, "--json").stdout
        for n in (1, 2)
    ]
    assert seeded[0] == seeded[1]
    assert json.loads(seeded[0])["kind"] == "seeded"


def test_run_shows_tables(toy):
    shown = run("self-consistency --set n=2 --recording", toy, "--llm gpt-3.5-turbo --order seeded")
    assert "self-consistency(n=2" in shown.stdout
    assert "How wrong answers came about" in shown.stdout
    assert "mean over 100 seeded draws" in shown.stdout
    assert "pass" not in run("oracle --set n=2 --recording", toy, "--llm gpt-3.5-turbo").stderr


def test_run_and_curve_warn_of_few_questions_and_of_prompts_paid_once(toy):
    arguments = ("--recording", toy, "--llm gpt-3.5-turbo")
    for command in (
        "run adaptive-consistency --set budget=3",
        "curve adaptive-consistency --sweep budget=1,3",
    ):
        shown = said(command, *arguments)
        assert "Only 3 questions: below 10" in shown
        assert "calls per question, and billing once charges" in shown
        assert "USD per 1,000 questions, per_round" in shown
    assert "per_round" not in run("self-consistency", *arguments).stdout


@pytest.mark.parametrize(("arguments", "code", "words"), SAID["run"])
def test_what_run_refuses(arguments, code, words, toy):
    done = run(arguments, "--recording", toy, "--llm gpt-3.5-turbo")
    failed(done, code, words)


@pytest.mark.parametrize("command", ["run", "verify"])
def test_a_sandbox_that_cannot_be_is_refused(command, toy, tmp_path, monkeypatch):
    file = tmp_path / "mine.py"
    file.write_text(SIX_LINES)
    arguments = [f"{file}:agree", "--recording", toy, "--llm gpt-4o-mini --replicates 1"]
    if command == "verify":
        said("run", *arguments, "--out", tmp_path)
        arguments = [tmp_path / "receipt.json", "--recording", toy, f"--method {file}:agree"]
    monkeypatch.setenv("PATH", str(tmp_path))
    done = feval(command, *arguments, "--sandbox")
    failed(done, 2, "--sandbox runs a method in bubblewrap")


def test_a_file_that_cannot_be_used(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("x = 1\ndef method(q, llm): pass\n")
    with pytest.raises(UnknownNameError, match=r"methd.*'method'"):
        make_method(f"{file}:methd").host.learns()
    with pytest.raises(UnknownNameError, match=r"'n'.*can be set of method"):
        make_method(f"{file}:method", {"n": 1}).host.learns()
    file.write_text("1 / 0\n")
    with pytest.raises(
        MethodError, match=r"raised ZeroDivisionError: division by zero \(.*mine.py, line 1\)"
    ):
        make_method(f"{file}:method").host.learns()


def test_a_users_method_is_pinned_by_its_source(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(SIX_LINES)
    before = MethodFile(file, "agree").source_sha256
    file.write_text(SIX_LINES + "\n")
    assert MethodFile(file, "agree").source_sha256 != before


LEARNER = """
class Popular:
    answer = None

    def fit(self, train):
        learnt = Popular()
        learnt.answer = str(len(train.gold))
        return learnt

    def __call__(self, question, llm):
        return self.answer or llm.sample(9).answers[0]
"""


def test_a_users_method_that_learns_is_fitted_on_the_training_questions(toy, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(LEARNER)
    own = ("--recording", toy, "--llm gpt-3.5-turbo --json --train-fraction")
    common = [f"{file}:Popular", *own, 0.5]
    # unfitted, it would ask for 9 CoTs of 4
    result = json.loads(run(*common, "--out", tmp_path / "out").stdout)
    assert (result["method"], result["train_questions"], result["samples_per_question"]) == (
        "Popular",
        2,
        0,
    )
    check = ["verify", str(tmp_path / "out" / "receipt.json"), "--method", f"{file}:Popular"]
    said(*check)
    failed(run(*common[:-1], 0.4, "--workers 2"), 2, "take one worker")


SET = """
from dataclasses import dataclass

@dataclass
class Noted:
    n: int = 1
    word: str = "-"
    pair: tuple[int, ...] = ()

    def __call__(self, question, llm):
        return f"{self.n + 1} {self.word} {self.pair}"

def noted(question, llm, *, n, word: str = "-"):
    return f"{n + 1} {word}"
"""


def test_fields_of_a_users_method_are_set(toy, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(SET)
    dataset, llms = load("toy", ["gpt-3.5-turbo"], toy)

    def answer(name, **settings):
        method = make_method(f"{file}:{name}", settings)
        [answers] = [each.host.answers(dataset, llms, np.arange(1), None, 9) for each in [method]]
        return answers[0].answer

    assert answer("Noted") == "2 - ()"
    assert answer("Noted", n="3", word="4", pair="1,2") == "4 4 [1, 2]"
    assert answer("noted", n="3", word="true") == "4 true"
    with pytest.raises(UnknownNameError, match="Known: n, pair, word"):
        answer("Noted", m="3")
    own = "--recording", toy, "--llm gpt-3.5-turbo --json --set n=3 --out", tmp_path / "out"
    assert json.loads(run(f"{file}:noted", *own).stdout)["fields"] == {"n": "3"}
    receipt = tmp_path / "out" / "receipt.json"
    said("verify", receipt, f"--method {file}:noted")


def test_settings_are_read_as_their_fields_want_them():
    assert (
        make_method("self-consistency", {"n": "7"})
        == make_method("self-consistency", {"n": 7})
        == SelfConsistency(7)
    )
    assert make_method("cascade", {"thresholds": "0.5", "order": "0,1"}).thresholds == (0.5,)
    assert make_method("cascade", {"samples": "5"}).samples == 5
    assert parse_settings(["n=7", "scorer = a=b "]) == {"n": "7", "scorer": "a=b"}
    with pytest.raises(UsageError, match="whole number, 1 or more; n=True was given"):
        make_method("self-consistency", {"n": True})


BADLY_BEHAVED = """
import sys
def exits(question, llm): sys.exit(3)
def prints(question, llm): print("spoilt"); return llm.sample(1).answers[0]
def asks(question, llm): return input()
def three(question, one, two, three): return None
def text(question, llm): return question + 1
class Needy:
    def __init__(self, n): pass
"""


@pytest.mark.parametrize(("function", "code", "words"), SAID["badly behaved"])
def test_a_badly_behaved_method_ends_in_a_sentence(function, code, words, toy, tmp_path):
    (file := tmp_path / "mine.py").write_text(BADLY_BEHAVED)
    done = run(f"{file}:{function}", "--recording", toy, "--llm gpt-3.5-turbo --order recorded")
    failed(done, code, words)


def test_what_a_method_prints_does_not_spoil_the_json(toy, tmp_path, capfd):
    (file := tmp_path / "mine.py").write_text(f"print('at import')\n{BADLY_BEHAVED}")
    done = run(f"{file}:prints", "--recording", toy, "--llm gpt-3.5-turbo --order recorded --json")
    assert json.loads(done.stdout)["method"] == "prints"
    printed = capfd.readouterr()
    assert printed.err.splitlines() == ["at import", *["spoilt"] * 3]
    assert printed.out == ""


def test_an_infinite_field_is_text_in_json():
    method = make_method("confidence-weighted", {"temperature": "inf"})
    assert method.temperature == float("inf")
    assert make_method("confidence-weighted", {"temperature": "Infinity"}) == method
    with pytest.raises(
        UsageError, match="takes a number above 0 or none; temperature='nan' was given"
    ):
        make_method("confidence-weighted", {"temperature": "nan"})
    assert json_field(method.temperature) == "inf"
    assert (
        make_method("confidence-weighted", {"temperature": json_field(method.temperature)})
        == method
    )


def test_a_list_of_one_is_given_as_its_value():
    assert make_method("cascade", {"thresholds": "0.4"}).thresholds == (0.4,)
    assert make_method("model-switch", {"weights": "2"}).weights == (2.0,)
    assert make_method("model-switch", {"samples": "3"}).samples == 3


def test_a_threshold_that_follows_its_criterion_is_listed_with_every_value():
    [field] = [
        field for field in method_fields("adaptive-consistency") if field["field"] == "threshold"
    ]
    own = field["about"].partition("the criterion's own: ")[2]
    for criterion, value in THRESHOLDS.items():
        assert re.search(rf"{re.escape(value)} \([^)]*\b{criterion}\b[^)]*\)", own)


def test_the_fields_of_every_method_are_listed_with_a_meaning():
    for name in (*METHODS, "oracle"):
        listed = method_fields(name)
        assert [field["field"] for field in listed] == field_names(name)
        assert all(field["about"] for field in listed), name
        assert all("<" not in field["takes"] for field in listed), name


def test_a_file_without_a_function_says_what_to_add():
    with pytest.raises(
        UsageError, match=r"mine\.py is a file; name the function in it as well: mine\.py:FUNCTION"
    ):
        make_method("mine.py", {})


def test_measures_of_calls_in_tables_json_and_files(toy, tmp_path):
    asked = ["curve single-call --recording", toy, "--llm gpt-4o-mini --n 1,2,4"]
    asked += ["--measure", "accuracy,pass@k,pass^k,g-pass@k:0.5,mg-pass@k"]
    shown = said(*asked, "--out", tmp_path / "made")
    assert "At k = 4, accuracy is 75.00 %, pass@k is 100.00 %, pass^k is 33.33 %" in shown
    assert "pass^k %" in shown
    assert "even k" in shown
    assert "pass@n" not in shown
    result = read_json(tmp_path / "made" / "curve.json")
    by_k = {point["n"]: point for point in result["points"]}
    assert result["measures"] == ["accuracy", "pass@k", "pass^k", "g-pass@k:0.5", "mg-pass@k"]
    assert by_k[1]["pass^k"] == by_k[1]["pass@k"] == by_k[1]["accuracy"]
    assert by_k[2]["pass^k"] == pytest.approx((1 / 2 + 1 / 6 + 1) / 3)
    assert by_k[4]["g-pass@k:0.5"] == 1
    assert by_k[4]["mg-pass@k"] == pytest.approx((1 / 2 + 0 + 1) / 3)
    assert by_k[4]["usd_per_question"] > by_k[2]["usd_per_question"]
    head, first, *_ = (tmp_path / "made" / "curve.csv").read_text().splitlines()
    cells = dict(zip(head.split(","), first.split(","), strict=True))
    assert (cells["mg-pass@k"], cells["pass^k"]) == ("", cells["accuracy"])
    said("verify", tmp_path / "made" / "receipt.json")
    drawn = (tmp_path / "made" / "curve.svg").read_text()
    assert "g-pass@k:0.5" in drawn
    assert "dominated" not in drawn
    failed(feval(*asked, "--llm gpt-3.5-turbo"), 2, "give one method, single-call, and one --llm")
    failed(feval(*asked[:-1], "pass^5"), 2, "Did you mean 'pass^k'")
    failed(feval("curve single-call --recording", toy), 2, "with --measure pass@k --n 1..K")
