"""Tables with a row for each CoT: what their columns are read as, and that no format and no order
of rows changes a number.
"""

import gc
import gzip
import io
import json
import math
import subprocess
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from foreign_sources import in_arrow, lines
from hypothesis import HealthCheck, given, settings, strategies as st
from importing import as_csv, check, manifest, notes, requests, rows
from places import ROOT
from small import parquet

from feval import BestOfN, PriceList, SelfConsistency, SingleCall, evaluate, from_dataframe, load
from feval.cards.prices import Price
from feval.errors import (
    ConflictError,
    FevalError,
    SourceError,
    SourceWarning,
    UnknownNameError,
    UsageError,
)
from feval.exporters import export_recording
from feval.importers import files, import_recording, tables, understood
from feval.importers.layouts import Layout, layout_of
from feval.importers.tables import meanings
from feval.recording import open_recording, select, verify_recording

Row = dict[str, Any]

SCORED = layout_of(scores=["reward"])
PRICES = PriceList(
    "2026-01-01", "2026-01-01", "made up", {f"m{i}": Price(1 + i, 4 + i) for i in range(3)}
)


def table(llms=2, questions=6, samples=5):
    """Rows in random order; each question has two answers, and an odd number of CoTs, so that no
    vote is a tie.
    """
    generator = np.random.default_rng(7)
    cots = [
        {
            "question_id": f"q{q}",
            "question": f"What is {q} + {q}?",
            "target": str(2 * q),
            "model": f"m{m}",
            "sample": s,
        }
        for m in range(llms)
        for q in range(questions)
        for s in range(samples)
    ]
    for cot in cots:
        cot["answer"] = str(int(cot["target"]) + int(generator.integers(2)))
        cot |= {
            "response": f'I think,\n"so": {cot["answer"]} é',
            "reward": float(generator.random()),
        }
        cot |= {
            "tokens": int(generator.integers(5, 90)),
            "prompt_tokens": 11,
            "choices": None,
            "remark": "x",
        }
    return [cots[place] for place in generator.permutation(len(cots))]


def in_parquet(cots):
    return in_arrow(cots)[0]


FORMS = {
    "csv": as_csv,
    "tsv": lambda cots: as_csv(cots, "\t"),
    "semicolons": lambda cots: b"\xef\xbb\xbf" + as_csv(cots, ";"),
    "csv.gz": lambda cots: gzip.compress(as_csv(cots)),
    "parquet": in_parquet,
    "feather": lambda cots: in_arrow(cots)[1],
    "stream": lambda cots: in_arrow(cots)[2],
    "jsonl": lambda cots: lines(*cots),
    "jsonl.gz": lambda cots: gzip.compress(lines(*cots)),
    "json": lambda cots: json.dumps(cots).encode(),
}


def imported_table(imported, cots, **options):
    return imported("table", cots, **{"llm": None, "answer_kind": "number", **options})


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return from_dataframe(table(), dataset="toy", answer_kind="number", scores="reward")


@pytest.mark.parametrize("form", FORMS)
def test_every_format_gives_the_same_recording(recording, imported, form):
    read = imported_table(imported, FORMS[form](table()), layout=SCORED)
    assert read.hash == recording.hash


def test_numbers_are_those_of_pandas(recording):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(table())
    frame["right"] = frame.answer == frame.target
    groups = frame.groupby(["model", "question_id"])
    votes = (
        groups.answer.agg(lambda answers: answers.value_counts().idxmax()) == groups.target.first()
    )
    best = frame.loc[groups.reward.idxmax()].groupby("model").right.mean()
    dataset, llms = load("toy", recording=recording, prices=PRICES)
    for llm in llms:
        price, own = PRICES.prices[llm.name], frame[frame.model == llm.name]
        assert evaluate(SingleCall(), dataset, llm).accuracy == pytest.approx(
            own.right.mean(), abs=1e-12
        )
        vote = evaluate(SelfConsistency(n=5), dataset, llm)
        assert vote.accuracy == pytest.approx(votes[llm.name].mean(), abs=1e-12)
        cost = 6 * 11 * price.input_usd_per_mtok + own.tokens.sum() * price.output_usd_per_mtok
        assert vote.usd_per_question == pytest.approx(cost / 6 / 1e6, rel=1e-12)
        chosen = evaluate(BestOfN(n=5, scorer="reward", aggregate="score"), dataset, llm)
        assert chosen.accuracy == pytest.approx(best[llm.name], abs=1e-12)


@pytest.mark.parametrize(
    "library", ["pandas", "polars", "pyarrow", pytest.param("datasets", marks=pytest.mark.slow)]
)
def test_a_frame_of_any_library_gives_the_same_recording(recording, library):
    module = pytest.importorskip(library)
    if library == "datasets":
        frame = module.Dataset.from_list(table()).to_iterable_dataset()
    else:
        frame = (
            module.Table.from_pylist(table()) if library == "pyarrow" else module.DataFrame(table())
        )
    made = from_dataframe(frame, dataset="toy", answer_kind="number", scores={"reward": "reward"})
    assert made.hash == recording.hash


@pytest.mark.parametrize("kind", ["float16", "float32", "Float32", "float[pyarrow]"])
@pytest.mark.parametrize("mixed", [(1, "1"), ("1", "1")])  # Arrow has no type for the first
def test_a_gold_of_few_bits_is_its_shortest_decimal(kind, mixed):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "question": ["a", "b"],
            "gold": pd.array([0.1, None], dtype=kind),
            "text": "x",
            "mixed": mixed,
        }
    )
    made = from_dataframe(frame, dataset="toy", answer_kind="number", llm="m")
    check(made, golds=["0.1", None])


@pytest.mark.parametrize("form", ["pandas", "mixed", "pyarrow", "parquet", "rows"])
def test_a_float_of_32_bits_is_its_shortest_decimal(imported, form):
    number, options = np.float32(0.1), {"dataset": "toy", "answer_kind": "number", "llm": "a"}
    cot = {
        "question": "q",
        "gold": number,
        "response": "x",
        "answer": number,
        "tokens": 3,
        "reward": number,
    }
    schema = pa.schema(
        [
            (name, pa.float32() if value is number else pa.scalar(value).type)
            for name, value in cot.items()
        ]
    )
    listed = pa.array([[-0.1], [-0.1]], pa.list_(pa.float32()))
    frame = pa.Table.from_pylist([cot, cot], schema).append_column("token_logprobs", listed)
    if form == "parquet":
        made = imported("table", parquet(frame), **options, layout=SCORED)
    else:
        if form != "pyarrow":
            frame = frame.to_pandas()
            assert frame.answer.dtype == np.float32
        if form == "mixed":  # which Arrow has no type for
            frame["mixed"] = [1, "1"]
        made = from_dataframe([cot, cot] if form == "rows" else frame, **options, scores="reward")
    assert made.questions("toy")[0].answer == "0.1"
    pool = next(made.pools("toy", "a"))
    assert pool.raw_answers == ["0.1", "0.1"]
    assert pool.sequence_logprobs == (None if form == "rows" else [-0.1, -0.1])
    assert made.scores("toy", "a", "reward").values.tolist() == [[0.1, 0.1]]


def test_a_frame_may_state_verdicts_and_usd():
    pandas = pytest.importorskip("pandas")
    cells = {"text": list("abc"), "verdict": [1, math.nan, 0.5], "cost": [0.5, 0.25, 0.75]}
    frame = pandas.DataFrame({"question": "1 + 1?", "model": "m", "tokens": 3, **cells})
    options = {"dataset": "toy", "answer_kind": "text", "map": {"usd": "cost"}}
    recording = from_dataframe(frame, **options)
    result = evaluate(SingleCall(), *load("toy", None, recording, prices="recorded"))
    assert (result.accuracy, result.usd.tolist()) == (0.5, [0.5])


def test_a_recording_in_memory_goes_with_the_last_reference_to_it():
    # of its own: a library that looks at a frame's variables keeps them until it returns
    def used():
        made = from_dataframe(table(1, 2, 1), dataset="toy", answer_kind="number")
        folder = made.path
        dataset, llms = load("toy", recording=made)
        del made
        gc.collect()
        assert evaluate(SingleCall(), dataset, llms[0]).accuracy in {0, 0.5, 1}
        verify_recording(folder)
        return folder

    folder = used()
    gc.collect()
    assert not folder.parent.exists()


def test_a_recording_of_a_frame_is_written_where_asked(tmp_path):
    made = from_dataframe(
        table(1, 2, 1), dataset="toy", answer_kind="number", out=tmp_path / "made"
    )
    assert made.path == tmp_path / "made"
    with pytest.raises(FevalError, match="exists"):
        from_dataframe(table(1, 2, 1), dataset="toy", answer_kind="number", out=tmp_path / "made")


CYCLE = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        ({"a": [1]}, "list of dicts"),
        ("text", "list of dicts"),
        ([1], "Row 1"),
        ([], "empty"),
        (
            pa.chunked_array([[1]]),
            "The ChunkedArray could not be read as a table: .* Give a DataFrame",
        ),
        ([{"question": CYCLE}], "The list could not be read as a table: maximum recursion"),
        (
            [{"question": "q", "text": "x", "gold": "1", "score": Decimal("sNaN"), "tokens": -1}],
            "'tokens' of line 1",
        ),
    ],
)
def test_refuses_what_is_no_table(frame, sentence):
    with pytest.raises(FevalError, match=sentence):
        from_dataframe(frame, dataset="toy", answer_kind="number", llm="m")


def test_frames_that_are_no_tables_are_sentences():
    pd = pytest.importorskip("pandas")
    twice = pd.DataFrame([["q", "a", "b"]], columns=["question", "text", "text"])
    for frame, sentence in (
        (pd.DataFrame, "read as a table"),
        (pd.Series([1]), "Row 1 .* a dict"),
        (twice, "of one name"),
    ):
        with pytest.raises(UsageError, match=sentence):
            from_dataframe(frame, dataset="toy", answer_kind="number")


CELLS = st.sampled_from(["1", "2", " 2 ", "1.0", "x", "", None])
POOLS = st.dictionaries(
    st.tuples(st.sampled_from(["m", "n"]), st.sampled_from(["é1", "q 2", "3"])),
    st.lists(
        st.tuples(CELLS, st.sampled_from([0.5, -1.0, None, math.nan]), st.integers(0, 9)),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
)


@settings(
    max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(pools=POOLS, seed=st.integers(0, 99), form=st.sampled_from(list(FORMS)))
def test_any_table_in_any_order_is_recorded_as_it_is(tmp_path, pools, seed, form):
    cots = [
        {
            "qid": question,
            "query": f"{question}?",
            "gold": "2",
            "llm": llm,
            "trial": str(place),
            "text": "a",
            "pred": answer,
        }
        | {
            "num_tokens": str(tokens),
            "reward": None if score is None or math.isnan(score) else score,
        }
        for (llm, question), pool in pools.items()
        for place, (answer, score, tokens) in enumerate(pool)
    ]
    order = np.random.default_rng(seed).permutation(len(cots))
    # an empty cell of CSV is a missing value
    blank = None if "sv" in form or form == "semicolons" else ""
    path, out = tmp_path / "x", tmp_path / f"{len(list(tmp_path.iterdir()))}"
    path.write_bytes(FORMS[form]([cots[place] for place in order]))
    import_recording("table", path, out, dataset="toy", answer_kind="number", layout=SCORED)
    names = "question_id", "llm", "sample", "answer", "tokens", "score.reward"
    found = open_recording(out).to_arrow().to_pylist()
    assert {tuple(row.get(name) for name in names) for row in found} == {
        (
            cot["qid"],
            cot["llm"],
            int(cot["trial"]),
            blank if cot["pred"] == "" else cot["pred"],
            int(cot["num_tokens"]),
            cot["reward"],
        )
        for cot in cots
    }


BASE = {"question": "1 + 1?", "gold": "2", "llm": "m", "text": "The answer is 2.", "tokens": 5}


def uses(save, cots, layout=None, **options):
    """Return column -> what it is read as; those that are not read are missing."""
    path = save("x", cots if isinstance(cots, bytes) else lines(*cots))
    return {
        use.column: use.scorer or use.target
        for use in understood(path, layout or Layout(), **options).uses
    }


def test_usual_names_need_no_mapping(save):
    names = ["question_id", "question", "answer", "llm", "sample", "text", "tokens"]
    assert uses(save, [dict.fromkeys(names, "x")]) == {
        **dict(zip(names, names, strict=True)), "question_id": "id", "answer": "gold"
    }  # fmt: skip
    others = [
        "Problem ID",
        "query",
        "Reference Answer",
        "modelName",
        "trial",
        "Model Output",
        "pred",
        "n_tokens",
        "stop_reason",
    ]
    assert list(uses(save, [dict.fromkeys(others, "x")]).values()) == [
        "id", "question", "gold", "llm", "sample", "text", "answer", "tokens", "finish_reason"
    ]  # fmt: skip


def test_answer_is_the_gold_where_no_other_column_is(save):
    cot = {"question": "a", "answer": "2", "text": "x"}
    assert uses(save, [cot])["answer"] == "gold"
    assert uses(save, [cot | {"prediction": "3"}]) == {
        "question": "question",
        "answer": "gold",
        "text": "text",
        "prediction": "answer",
    }
    for name in ("target", "gold", "ground_truth", "reference", "gt"):
        assert uses(save, [cot | {name: "2"}])["answer"] == "answer"
    for gold, read_as in (({"answer": "2"}, "answer"), ({}, "gold")):
        questions = save("questions", lines({"id": "a", "question": "a", **gold}))
        assert uses(save, [cot], questions=questions)["answer"] == read_as
    assert uses(save, [cot], layout_of(columns=["answer=text", "text=answer"])) == {
        "question": "question", "text": "gold", "answer": "text"
    }  # fmt: skip


def test_what_was_named_goes_before_a_name(save):
    layout = layout_of(
        columns={"question": "prompt", "text": "meta.reply"}, scores=["prm=rewards", "conf"]
    )
    cot = {
        "question": 3,
        "prompt": "a",
        "meta": {"reply": "b"},
        "rewards": [1, 2],
        "conf": 0.5,
        "answer": "2",
        "score.x": 1,
    }
    assert uses(save, [cot], layout) == {
        "prompt": "question", "meta.reply": "text", "rewards": "prm", "conf": "conf",
        "answer": "gold", "score.x": "x"
    }  # fmt: skip


def test_a_column_is_left_out_on_request(save):
    cot = BASE | {"n": 1, "prediction": "2", "answer": "3"}
    assert uses(save, [cot])["prediction"] == "answer"
    without = layout_of("matharena", ignored=["prediction", "answer"])
    assert uses(save, [cot], without).keys() == BASE.keys()
    table = understood(save("x", lines(cot)), layout_of(ignored=["n", "prediction"]))
    assert (table.ignored, table.unread) == (("n", "prediction"), ())
    for missing in ("m", "llm.name"):
        with pytest.raises(
            SourceError, match=f"x has no column '{missing}'; it has 'question', 'gold', .*'answer'"
        ):
            uses(save, [cot], layout_of(ignored=[missing]))
    recording = from_dataframe([cot], dataset="toy", answer_kind="number", ignore="prediction")
    check(recording, answer=["3"])
    assert manifest(recording)["operation"]["layout"] == {"ignored": ["prediction"]}


def test_python_speaks_of_arguments_in_one_frame():
    cots = [
        {"prompt_id": str(q), "engine": llm, "output": "2", "gold": "2", "x": 1}
        for q in "ab"
        for llm in "mn"
    ]
    with pytest.raises(UsageError) as error:
        from_dataframe(cots, map={"n_tokens": "x"})
    call = "dataset='dataframe', answer_kind='number'"
    columns = {"n_tokens": "x", "llm": "engine", "question_id": "prompt_id"}
    assert f"Call feval.from_dataframe(table, map={columns}, {call})." in str(error.value)
    assert (len(error.traceback), error.value.__cause__) == (2, None)
    given = {"dataset": "toy", "answer_kind": "number", "map": columns}
    with pytest.warns(SourceWarning, match=r"^Answers were extracted"):
        recording = from_dataframe(cots, **given)
    check(recording, llm="m", output_tokens=[1, 1])


@pytest.mark.parametrize("layout", [{}, {"lists": ("gens",)}])
def test_a_path_that_leads_nowhere_is_said(save, layout):
    cots = [BASE | {"gens": [{"text": "2"}] if layout else {"text": "2"}}]
    named = Layout(columns={"text": "gens.txt"}, **layout)
    with pytest.raises(
        SourceError, match=r"nothing at 'gens\.txt'.* 'gens' has the members 'text'"
    ):
        uses(save, cots, named)


def test_questions_of_one_text_are_noted_refused_or_merged(imported):
    cots = [
        BASE | {"question_id": name, "sample": sample, "text": f"{name}{sample}"}
        for name in "ba"
        for sample in (1, 0)
    ]
    noted = imported_table(imported, cots)
    assert "Questions with the text of another, such as 'b': 1." in notes(noted)
    with pytest.raises(ConflictError, match=r"such as 'b', are refused.*duplicates='merge'"):
        imported_table(imported, cots, duplicates="refuse")
    merged = imported_table(imported, cots, duplicates="merge")
    check(merged, text=["b0", "b1", "a0", "a1"])


@pytest.mark.parametrize("end", ["b", 'say ""b', "", "b\n"])
def test_a_cell_that_was_cut_within_its_quotes_is_noticed(imported, end):
    whole = f'question,gold,llm,text\na,1,m,"c"\na,1,m,"{end}'
    with pytest.raises(SourceError, match="ends within the quotes of a cell"):
        imported_table(imported, whole.encode())
    check(imported_table(imported, f'{whole}"\n'.encode()), text=["c", end.replace('""', '"')])


def test_a_request_stands_for_the_question_where_no_other_column_does(save, imported):
    recording = imported_table(
        imported, [{"prompt": "1 + 1?", "answer": 2, "llm": "m", "text": "2", "tokens": 1}]
    )
    check(recording, questions=["1 + 1?"])


def test_several_datasets_of_a_table_become_several(imported):
    cots = [BASE | {"dataset": name, "llm": llm} for name in ("a", "b") for llm in ("m", "n")][:3]
    both = imported_table(imported, cots, dataset=None)
    assert both.manifest.pairs.keys() == {("a", "m"), ("a", "n"), ("b", "m")}
    assert imported_table(imported, cots, dataset=None, llm="n").manifest.pairs.keys() == {
        ("a", "n")
    }
    assert imported_table(imported, cots, dataset="b").manifest.pairs.keys() == {("b", "m")}
    assert imported_table(imported, cots[:1], dataset="c").manifest.pairs.keys() == {("c", "m")}
    known = imported_table(
        imported, [BASE | {"dataset": "tiny_sums"}], dataset=None, answer_kind=None
    )
    assert known.manifest.raw["licences"]["questions"] == "Apache-2.0"
    with pytest.raises(UnknownNameError, match=r"no dataset in .* 'c'"):
        imported_table(imported, cots, dataset="c")
    with pytest.raises(UsageError, match="kind of its answers is not known"):
        imported_table(imported, cots, dataset=None, answer_kind=None)


def test_ids_made_from_texts_depend_on_text_and_options_alone(imported):
    other = BASE | {"question": "2 + 2?", "gold": "4"}
    ids = [question.id for question in imported_table(imported, [BASE, other]).questions("toy")]
    check(imported_table(imported, [other, BASE]), ids=ids[::-1])
    assert all(name.startswith("q-") and len(name) == 18 for name in ids)
    options = [BASE | {"gold": "A", "choices": ["1", last], "sample": 0} for last in ("2", "3")]
    assert len(imported_table(imported, options, answer_kind="choice").questions("toy")) == 2


def test_a_table_without_texts_of_questions_is_read_with_a_note(imported):
    recording = imported_table(
        imported, [{"question_id": 1.0, "gold": 2, "llm": "m", "answer": 2.0, "tokens": 3.0}]
    )
    check(recording, "no texts of questions", question_id=["1"])


def test_requests_without_token_counts_are_counted_in_words_with_a_note(imported):
    recording = imported_table(imported, [BASE | {"question": "one two three"}] * 2)
    assert requests(recording)["prompt_tokens"] == [4]  # four tokens to three words
    assert "those of the questions were counted by 'words'" in notes(recording)
    stated = imported_table(imported, [BASE | {"prompt_tokens": 9, "prompt": "four"}])
    check(stated, prompt_tokens=[9])
    assert "were counted by" not in notes(stated)


def test_notes_of_a_selection_are_marked_as_those_of_the_whole(recording, tmp_path):
    whole = notes(recording)
    renamed = open_recording(select(recording.path, tmp_path / "renamed", rename={"m0": "m9"}))
    assert notes(renamed) == whole
    one = select(renamed.path, tmp_path / "one", llms=["m9"])
    again = open_recording(select(one, tmp_path / "again", samples=2))
    assert notes(again) == "\n".join(f"Before the selection: {note}" for note in whole.splitlines())


def test_several_files_of_a_table_are_one(save, imported):
    cots = table()
    whole = imported_table(imported, cots, layout=SCORED)
    for number, part in enumerate((cots[:17], cots[17:])):
        save(f"shards/train-{number}.parquet", in_parquet(part))
    folder = save("shards/README.md", b"").parent
    for source in (folder, folder / "train-*.parquet"):
        recording = imported("table", source, llm=None, answer_kind="number", layout=SCORED)
        assert recording.hash == whole.hash
        assert [part["file"] for part in manifest(recording)["operation"]["source"]] == [
            "train-0.parquet",
            "train-1.parquet",
        ]


def test_rows_in_temporary_files_are_the_same(imported, monkeypatch, recording):
    monkeypatch.setattr("feval.recording.layout.files._IN_MEMORY_BYTES", 2000)
    monkeypatch.setattr("feval.importers.files._ROWS_AT_ONCE", 3)
    assert imported_table(imported, in_parquet(table()), layout=SCORED).hash == recording.hash


@pytest.mark.parametrize(
    ("cots", "options", "sentence"),
    [
        ([BASE | {"tokens": None, "n_tok": -1}], {"columns": ["tokens=n_tok"]},
        "'n_tok' of line 1 of x.json should be"),
        (b"question,gold,llm,text,tokens\na,b,c,d,1\na,b,c,d,x\n", {},
        "'tokens' of row 2 of x.json should be"),
        (b"question,gold,llm,text\na,b,c\n", {}, "Expected 4 columns, got 3"),
        (b"question,question,text\na,b,c\n", {}, "the column 'question' twice"),
        (b"question,text\n", {}, "has no rows"),
        (b"question,text\na,\xff\n", {}, "not readable as CSV"),
        (b"PAR1 nothing", {}, "damaged Parquet"),
        (b"ARROW1 nothing", {}, "not readable as Arrow"),
        ([BASE | {"sample": 0}] * 2, {},
        "a sample number twice: 0 on line 1 of x.json and on line 2"),
        ([BASE, BASE | {"gold": "3"}], {}, "two gold answers.*map={'prediction': 'gold'}"),
        ([{**BASE, "gold": None}, {**BASE, "question": None}], {},
        "Line 2 of x.json has nothing in 'question'"),
        ([BASE | {"id": name} for name in range(3)], {},
        "'id' of x.json is another on each of the 3 rows"),
        ([{"gold": 1, "text": "x"}], {}, "no column with the question.*'question': 'COLUMN'"),
        ([{"gold": 1, "text": "x", "problem_ref": "p7"}], {}, "'question_id': 'problem_ref'"),
        ([{"gold": 1, "text": "x", "as_problem": "1 + 1?"}], {}, "'question': 'as_problem'"),
        ([{"question": 1, "gold": "x"}], {}, "no column with the CoT"),
        ([BASE], {"columns": ["question=promt"]}, "no column 'promt'; it has 'question', 'gold'"),
        ([BASE], {"columns": ["qestion=text"]},
        "no column of feval's, 'qestion'. Did you mean 'question'"),
        ([BASE | {"reward": "high"}], {"scores": ["reward"]},
        "'reward' of 'score' of line 1.*should be a number"),
        (in_parquet([BASE | {"reward": math.inf}]), {"scores": ["reward"]},
        "'reward' of 'score' of row 1.*should be a number"),
        (b"question,gold,llm,text,score\na,b,c,d,-inf\n", {},
        "'score' of row 1.*should be a number"),
        (b'question,llm,text,gold,score\na,m,b,c,"{1: [2]}"\n', {},
        "'1' of 'score' of row 1 of x.json should be a number"),
        (b'{"question": "q", "x": ' + b"[" * 900 + b"NaN" + b"]" * 900 + b"}", {},
        "nested too deeply"),
        ([BASE | {"r": 1}], {"scores": ["\ud800=r"]},
        "valid Unicode. Rename the file or the scorer"),
    ],
)  # fmt: skip
def test_refuses_other_tables(imported, cots, options, sentence):
    with pytest.raises(FevalError, match=f"(?s){sentence}"):
        imported_table(imported, cots, layout=layout_of(**options))


def test_a_column_that_comes_late_may_not_change_what_others_mean(imported):
    cots = [{"question": "a", "answer": "2", "llm": "m", "text": "2"}] * 201
    late = imported_table(imported, [*cots, cots[0] | {"finish_reason": "stop"}])
    assert rows(late)["finish_reason"][-1] == "stop"
    with pytest.raises(SourceError, match=r"Line 202 of .* is the first with the column 'gold'"):
        imported_table(imported, [*cots, cots[0] | {"gold": "2"}])


def test_members_of_a_name_for_each_row_are_read_in_one_look(imported, monkeypatch):
    looked = []
    monkeypatch.setattr(
        tables, "meanings", lambda *given, **rest: looked.append(1) or meanings(*given, **rest)
    )
    cots = [{"question": "a", "answer": "2", "llm": "m", "text": "2"}] * 201
    odd = [cots[0] | {f"k{number}": 1} for number in range(20)]
    recording = imported_table(imported, [*cots, *odd, cots[0] | {"finish_reason": "stop"}])
    assert rows(recording)["finish_reason"][-1] == "stop"
    assert "k0 (such as 1), k1" in notes(recording)
    assert len(looked) == 2
    with pytest.raises(SourceError, match=r"Line 222 of .* the first with the column 'gold'"):
        imported_table(imported, [*cots, *odd, cots[0] | {"gold": "2"}])


def test_more_columns_than_a_table_has_are_refused(imported, monkeypatch):
    monkeypatch.setattr(files, "_MOST_COLUMNS", 6)
    cots = [BASE | {f"k{number}": 1} for number in range(7)]
    for data in (cots, b"question,text,gold,llm,a,b,c\n"):
        with pytest.raises(SourceError, match="has more than 6 columns"):
            imported_table(imported, data)


def test_a_parquet_bomb_is_refused(imported, monkeypatch):
    monkeypatch.setattr(files, "_CHECKED_BYTES", 0)
    monkeypatch.setattr(files, "_MOST_TIMES", 1)
    with pytest.raises(SourceError, match="expands to more than 1 times"):
        imported_table(imported, in_parquet([BASE | {"sample": number} for number in range(3000)]))


def zipped(columns, codec="zstd"):
    """A file of Arrow's IPC format, compressed."""
    made, arrow = io.BytesIO(), pa.table(columns)
    with pa.ipc.new_file(
        made, arrow.schema, options=pa.ipc.IpcWriteOptions(compression=codec)
    ) as file:
        file.write_table(arrow)
    return made.getvalue()


def shared_text(rows, size):
    """Many rows of one large text, as string views have it."""
    view = np.tile(np.array([size, 0x61616161, 0, 0], np.int32), rows).tobytes()
    buffers = [None, pa.py_buffer(view), pa.py_buffer(b"a" * size)]
    return pa.Array.from_buffers(pa.string_view(), rows, buffers)


RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([1000], pa.int32()), pa.array(["a"]))
BOMBS = {
    "zstd": (lambda: pa.array(["a" * (9 << 20)]), "it expands to more than 16,777,216 bytes"),
    "values": (lambda: pa.nulls(1 << 30), "it states 1,073,741,824 values of a column"),
    "in lists": (
        lambda: pa.FixedSizeListArray.from_arrays(pa.nulls(1 << 30), 1 << 30),
        "it states 1,073,741,824 values of a column",
    ),
    "dictionary": (
        lambda: pa.DictionaryArray.from_arrays(
            pa.array([0] * 1000, pa.int8()), pa.array(["a" * (1 << 20)])
        ),
        "its texts are repeated to more than 16,777,216 bytes",
    ),
    "views": (
        lambda: shared_text(1000, 1 << 20),
        "its texts are repeated to more than 16,777,216 bytes",
    ),
    "run ends": (lambda: RUNS, "'text' of the type run_end_encoded"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_an_arrow_bomb_is_refused(bomb, imported):
    make, sentence = BOMBS[bomb]
    text = make()
    rows = len(text)
    columns = {"text": text, "question": text} if bomb == "zstd" else {"text": text}
    data = zipped(columns | ({} if rows > 1000 else {"gold": ["a"] * rows}))
    assert len(data) < 1 << 15
    with pytest.raises(SourceError, match=sentence):
        imported_table(imported, data)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_arrow_with_repeated_texts_is_read(codec, imported):
    cots = table()
    columns = {name: pa.array([cot.get(name) for cot in cots]) for name in cots[0]}
    columns["response"] = columns["response"].dictionary_encode()
    columns["question"] = columns["question"].cast(pa.string_view())
    data = zipped(columns, codec)
    assert (
        imported_table(imported, data, layout=SCORED).hash
        == imported_table(imported, in_parquet(cots), layout=SCORED).hash
    )


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_an_exported_table_is_the_same_recording(imported, tmp_path, form):
    cots = [
        cot | {"response": f"- {cot['response']}", "temperature": 0.5, "choices": ["'=1", "2"]}
        for cot in table()
    ]
    recording = imported_table(imported, cots, layout=SCORED)
    export_recording(recording.path, tmp_path / "table", form)
    again = imported_table(imported, (tmp_path / "table").read_bytes(), dataset=None)
    assert again.hash == recording.hash


def test_a_table_of_steps_is_a_tree(imported, tmp_path):
    tree = imported("jsonl", ROOT / "examples" / "tree.jsonl", llm=None, answer_kind="number")
    export_recording(tree.path, tmp_path / "steps.csv", "csv")
    again = imported("table", tmp_path / "steps.csv", dataset=None, llm=None, answer_kind="number")
    assert rows(again) == rows(tree)
    nodes = [{"node": "a", "tokens": 1}, {"node": "b", "parent": "a", "answer": "2"}]
    own = imported_table(imported, [BASE | {"llm": "m@steps"} | node for node in nodes])
    check(own, answer=[None, "2"])


def test_a_row_of_csv_that_is_too_large_is_said(imported, monkeypatch):
    monkeypatch.setattr(files, "_BLOCK_BYTES", 200)
    with pytest.raises(SourceError, match=r"a row of more than 200 bytes.* Parquet or JSON Lines"):
        imported_table(imported, as_csv([BASE, BASE | {"text": "x" * 500}]))


@pytest.mark.slow
def test_an_error_leaves_no_thread_of_a_csv_reader_behind(tmp_path):
    source = tmp_path / "x.csv.gz"
    source.write_bytes(
        gzip.compress(
            b"question,gold,text\n" + b"What is 1 + 1?,2,The answer is 2 and so on.\n" * 300_000, 1
        )
    )
    command = [sys.executable, "-m", "feval", "import", "table", source, "--dataset", "x"]
    command += ["--out", tmp_path / "out", "--map", "llm=none"]
    for _ in range(30):
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
        assert done.returncode == 1, done.stderr
