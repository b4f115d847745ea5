"""Importers on damaged and arbitrary files: a recording or a `FevalError`, never anything else,
never a hang.
"""

import gzip
import json
import os
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from foreign_sources import (
    COT,
    MMLU_KEY,
    MMLU_REPLIES,
    PUZZLES,
    QUESTION,
    SMALL,
    archive,
    archive_members,
    details,
    details_row,
    dumped,
    game_entry,
    harness_line,
    in_arrow,
    inspect_archive,
    inspect_log,
    inspect_sample,
    lines,
    mot_entry,
    open_entry,
    probed_entry,
    switch_entry,
)  # fmt: skip
from hypothesis import HealthCheck, given, settings, strategies as st
from importing import encoded
from places import read_data

from feval.errors import FevalError
from feval.importers import IMPORTERS, import_recording
from feval.importers.columns import names_of
from feval.recording import verify_recording

pytestmark = pytest.mark.slow

# Positions as golds, and the columns behind which channels lie.
EVERYTHING = read_data("importers.json")["everything"]
SEEDS = {name: [data] for name, (data, _) in SMALL.items()} | {
    "jsonl": [
        lines(COT, COT | {"sample": 1, "llm": "m"}),
        lines(QUESTION, QUESTION | {"id": "b", "prompt": "x"}),
        lines(COT | EVERYTHING, COT | EVERYTHING | {"sample_id": 1, "target": 1}),
    ],
    "table": [
        (
            b"question,answer,model,sample,output,n_tokens,score.a\n1+1?,2,m,0,It is"
            b' 2,5,0.5\n1+1?,2,m,1,"a\nb",,nan\n'
        ),
        lines(COT | EVERYTHING, COT | EVERYTHING | {"sample_id": 1}),
        dumped([COT, COT | {"sample": 1}]),
        *in_arrow([COT, COT | {"sample": 1, "step_scores": {"a": [0.5]}}]),
    ],
}
SEEDS["feval-ttc"].append(archive(archive_members(), 0))
SEEDS["mot-cascade"].append(gzip.compress(dumped([mot_entry()])))
SEEDS["modelswitch"].append(
    dumped([open_entry(), open_entry(no=1, m_Sampling=["x", "y"], m_ans_list=["1", None])])
)
SEEDS["game24"].append(dumped([game_entry(ys=["x", "Answer: 1 / (4 - 4)"], accs=[False, False])]))
SEEDS["inspect-ai"] += [inspect_archive(inspect_log()), inspect_archive(inspect_log(), 0)]
KINDS = ["verbatim", "number", "choice", "date", "letters", "text", "yes-no"]
FILES = {"coupled-mmlu": MMLU_KEY, "game24": PUZZLES}
EXAMPLES = int(os.environ.get("FEVAL_FUZZ_EXAMPLES", "60"))
FUZZ = settings(
    deadline=None,
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

# Member names that the importers look at, so that arbitrary JSON gets past the first check now and
# then.
NAMES = st.sampled_from(
    ["question", "answer", "generated", "results", "generated_answer", "no", "solution",
    "step_sampling", "id", "samples",
     "intermediate_results", "text", "tokens", "finish_reason", "choices", "label", "prompt",
     "prompt_tokens", "llm", "sample",
     "gold", "question_id", "role", "content", "doc_id", "doc", "target", "arguments", "gen_args_0",
     "arg_0", "arg_1", "resps",
     "filtered_resps", "filter", "epoch", "input", "messages", "output", "scores", "usage",
     "output_tokens", "idx", "ys", "accs",
     "ans_list", "m_Sampling", "m_ans_list", "completion_tokens", "logprob", "each_branch",
     "final_answers_trace", "probe_freq",
     "gold_answer", *names_of("question", "request", "llm", "cot", "probe")]
)  # fmt: skip
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.integers(10**18, 10**40)  # noqa: E501
    | st.sampled_from(["stop", "A", "the answer is 4", "\ud800", "1e999999999", "\x00",
    "05/01/2021"])
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=8),
    max_leaves=20,
)
RECORDS = st.dictionaries(NAMES, VALUES, min_size=1, max_size=12)


def attempt(format_name, data, kind, questions=None):
    """Import, and leave either a recording that verifies or an error with nothing behind it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "source_seed7"
        source.write_bytes(data)
        file = folder / "questions"
        file.write_bytes(FILES.get(format_name, b"") if questions is None else questions)
        given_file = file if format_name in FILES or questions is not None else None
        try:
            import_recording(
                format_name, source, folder / "out", dataset="gsm8k",
                llm=None if format_name == "feval-ttc" else "an-llm",
                answer_kind=kind, questions=given_file,
            )  # fmt: skip
        except FevalError as error:
            check_nothing_is_left(error, folder)
        else:
            verify_recording(folder / "out")
        shutil.rmtree(folder / "out", ignore_errors=True)


def check_nothing_is_left(error, folder):
    assert str(error)
    assert sorted(path.name for path in folder.iterdir()) == ["questions", "source_seed7"]


@st.composite
def mutated(draw, seeds):
    """A valid source with bytes changed, cut, repeated or inserted."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 6))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.sampled_from(["byte", "cut", "repeat", "insert", "tail", "digit"])):
            case "byte" if data:
                data[place] = draw(st.integers(0, 255))
            case "cut":
                del data[place : place + draw(st.integers(1, 40))]
            case "repeat":
                data[place:place] = data[place : place + draw(st.integers(1, 200))]
            case "insert":
                data[place:place] = draw(
                    st.binary(max_size=8)
                    | st.sampled_from([b"\\ud800", b"NaN", b"[" * 99, b"1e999"])
                )
            case "tail":
                del data[place:]
            case _:
                data[place:place] = draw(
                    st.sampled_from([b"9", b"-", b'"', b"0" * 30, b"null", b"{}", b"[]", b","])
                )
    return bytes(data)


@st.composite
def spoiled(draw, value):
    """JSON with something arbitrary somewhere in it."""
    value = holder = json.loads(json.dumps(value))
    while True:
        if isinstance(holder, dict):
            key = draw(st.sampled_from(sorted(holder)) | NAMES)
            inner = holder.get(key)
        else:
            key = draw(st.integers(0, len(holder) - 1))
            inner = holder[key]
        if not (isinstance(inner, dict | list) and inner and draw(st.integers(0, 3))):
            holder[key] = draw(VALUES)
            return value
        holder = inner


@st.composite
def questions_with_samples(draw):
    members = st.dictionaries(NAMES, VALUES, max_size=3)
    samples = [{"text": "t", "answer": "1"} | draw(members) for _ in range(2)]
    return lines(QUESTION | draw(members) | {"samples": [*samples, *draw(st.lists(VALUES))]})


@st.composite
def spoiled_details(draw):
    """Details of lighteval with an arbitrary member, as far as that can stand in Parquet."""
    members = "query", "choices", "gold_index", "id", "text", "input", "input_tokens"
    name = draw(st.sampled_from([*members, "output_tokens"]))
    try:
        return details(details_row(**{name: draw(VALUES)}))
    except (pa.ArrowException, OverflowError, UnicodeEncodeError, TypeError):
        return details()


LOG = inspect_log(inspect_sample(), inspect_sample(epoch=2))
GOLDS = st.fixed_dictionaries(
    {
        "gold": st.integers() | st.text(max_size=3) | st.just(1),
        "options": VALUES | st.lists(st.text(max_size=3), max_size=4),
    }
)
RECORDS_OF = {
    "mot-cascade": mot_entry(),
    "esc": {"question": "Q: a", "answer": "a", "generated_answer": ["the answer is a"]},
    "modelswitch": switch_entry(),
    "jsonl": COT | EVERYTHING,
    "lm-eval": harness_line(),
    "game24": game_entry(),
    "linc": ["True", "Error"],
    "probed-traces": probed_entry(),
}
OTHERS = {
    "jsonl": [
        questions_with_samples(),
        GOLDS.map(lambda golds: lines(COT | golds, COT | EVERYTHING | {"id": "b"})),
    ],
    "feval-ttc": [
        spoiled(archive_members()[name]).map(
            lambda value, name=name: archive(archive_members(**{name: value}))
        )
        for name in archive_members()
    ],
    "inspect-ai": [
        spoiled(LOG).map(dumped),
        spoiled(LOG).filter(lambda log: isinstance(log.get("samples"), list)).map(inspect_archive),
    ],
    "lighteval": [spoiled_details()],
}


def sources(format_name):
    """Damaged and arbitrary files for one importer."""
    arbitrary = st.binary(max_size=300)
    kinds = [mutated(SEEDS[format_name]), arbitrary, arbitrary.map(gzip.compress)]
    if format_name in RECORDS_OF:
        record = RECORDS_OF[format_name]
        values = st.lists(VALUES | RECORDS, max_size=4) | spoiled([record, record])
        kinds.append(values.map(lambda values: encoded(format_name, values)))
    return st.one_of(*kinds, *OTHERS.get(format_name, ()))


@pytest.mark.parametrize("format_name", sorted(IMPORTERS))
def test_any_source_ends_in_a_sentence_or_a_recording(format_name):
    @settings(FUZZ, max_examples=4 * EXAMPLES)
    @given(data=sources(format_name), kind=st.sampled_from(KINDS))
    def check(data, kind):
        attempt(format_name, data, kind)

    check()


@FUZZ
@given(questions=mutated([MMLU_KEY, lines({"id": "gsm8k/0", "question": "1 + 1?", "answer": "2"})]))
def test_any_questions_file_ends_in_a_sentence_or_a_recording(questions):
    attempt("coupled-mmlu", MMLU_REPLIES, "choice", questions)
    attempt("mot-cascade", dumped([mot_entry()]), "number", questions)
