"""Generic rows: the columns that are understood, what is kept of them, what is refused, what is
named as not understood.
"""

import math
from datetime import UTC, datetime

import pytest
from command_line import feval
from foreign_sources import COT, QUESTION, lines
from importing import check, manifest, notes, refusals, rows
from places import read_data
from small import letters

from feval import SelfConsistency, evaluate, load
from feval.errors import FevalError, UnknownNameError
from feval.importers.columns import COLUMNS, names_of
from feval.recording.parts import EXTRA_COLUMNS
from feval.report.tables.known import KNOWN

READ = read_data("importers.json")


@pytest.mark.parametrize("column", ["llm", "model", "model_name"])
def test_rows_of_several_models_are_several_llms(imported, column):
    source = [COT | {column: name, "answer": name} for name in "abcabc"]
    recording = imported("jsonl", source, llm=None)
    check(recording, llms=["a", "b", "c"])
    assert [rows(recording, llm=name)["answer"] for name in "abc"] == letters("aa", "bb", "cc")
    imported.refuses(
        r"no LLM in x\.jsonl, 'mine'\. Known: a, b, c\. CoTs of several LLMs are not one",
        "jsonl",
        source,
        error=UnknownNameError,
        llm="mine",
    )
    recording = imported("jsonl", source, llm=["b", "c"])
    check(recording, "also has CoTs of a, which were left out, as requested", llms=["b", "c"])


def test_a_model_that_does_not_vary_may_be_renamed(imported):
    source = [COT | {"model": "openai/gpt-4o"}, COT | {"model": "openai/gpt-4o"}]
    check(imported("jsonl", source, llm=None), llms=["openai/gpt-4o"])
    recording = imported("jsonl", source, llm="gpt-4o")
    check(
        recording,
        "calls the LLM 'openai/gpt-4o'; it was recorded as 'gpt-4o', as requested",
        llms=["gpt-4o"],
    )


def test_samples_of_one_line_may_be_of_several_models(imported):
    samples = [{"text": "t", "answer": "1", "model": name} for name in "aba"]
    recording = imported("jsonl", QUESTION | {"samples": samples}, llm=None)
    assert [len(rows(recording, llm=name)["answer"]) for name in "ab"] == [2, 1]


def test_a_decoding_in_the_rows_is_the_llms(imported):
    source = [COT | {"temperature": 0.7, "max_tokens": 512.0}, COT | {"temperature": None}]
    (llm,) = manifest(imported("jsonl", source))["llms"]
    assert (llm["temperature"], llm["max_tokens"]) == (0.7, 512)
    imported.refuses(r"says temperature 0\.7, and 0\.5 was given", "jsonl", source, temperature=0.5)


def test_cots_of_two_decodings_are_not_one_pool(imported):
    source = [COT | {"model": "m", "temperature": t} for t in (0.4, 0.8)]
    imported.refuses(
        r"Line 2 of x\.jsonl has temperature 0\.8, .* such as 'm@t=0\.8'", "jsonl", source, llm=None
    )


def test_names_that_other_tools_write_are_understood(imported):
    first = {
        "question_id": "a",
        "problem": "1 + 1?",
        "target": 2,
        "model": "m",
        "sample_id": 1,
        "completion": "so 2",
        "prediction": "2",
        "output_tokens": 7,
        "input_tokens": 5,
    }
    second = {
        "question_id": "a",
        "model": "m",
        "sample_id": 0,
        "response": "so 3",
        "prediction": "3",
        "completion_tokens": 8.0,
    }
    recording = imported("jsonl", [first, second], llm=None)
    check(
        recording,
        questions=["1 + 1?"],
        golds=["2"],
        text=["so 3", "so 2"],
        answer=["3", "2"],
        output_tokens=[8, 7],
        prompt_tokens=[5],
    )
    assert manifest(recording)["pairs"][0]["counter"] == "usage"
    assert "not understood" not in notes(recording)


test_two_names_of_one_column_must_agree = refusals(
    "jsonl", READ["two names"], lambda changes: COT | changes, llm=None
)


def test_null_is_a_missing_value_as_pandas_writes_it(imported):
    nothing = dict.fromkeys(name for name in names_of("question", "request", "llm", "cot"))
    recording = imported("jsonl", [nothing | COT | {"id": "a"}, nothing | COT])
    check(recording, answer=["1", "1"])
    assert "not understood" not in notes(recording)


def test_answers_that_are_all_null_are_read_from_the_texts(imported):
    with_answers = [COT | {"model": "a", "answer": "1"}, COT | {"model": "a", "answer": None}]
    without = [COT | {"model": "b", "answer": None, "text": "The answer is 1."}] * 2
    recording = imported("jsonl", [*with_answers, *without], llm=None, answer_kind="number")
    assert [rows(recording, llm=name)["answer"] for name in "ab"] == letters("1-", "11")
    assert "All answers of b are null, so they were read from the texts." in notes(recording)


def test_samples_may_have_names_instead_of_numbers(imported):
    source = [COT | {"sample_id": "x9", "text": "t0"}, COT | {"sample_id": "a1", "text": "t1"}]
    check(imported("jsonl", source), text=["t0", "t1"])
    imported.refuses(
        r"Question 'a' has a sample number twice: 'x9' on line 1 of x\.jsonl and on line 2",
        "jsonl",
        [COT | {"sample_id": "x9"}, COT | {"sample_id": "x9"}],
    )
    imported.refuses(
        r"Line 2 of x\.jsonl and line 1 of x\.jsonl number the CoTs of question 'a' in two ways",
        "jsonl",
        [COT | {"sample_id": "x9"}, COT | {"sample_id": 3}],
    )


def test_sample_numbers_that_count_from_1_have_no_gap(imported):
    recording = imported("jsonl", [COT | {"sample_index": n, "text": str(n)} for n in (2, 1)])
    check(recording, text=["1", "2"])
    assert "gaps" not in notes(recording)


def test_what_is_not_understood_is_named_once_with_an_example_in_notes_and_terminal(
    save, imported, tmp_path
):
    source = save(
        "x.jsonl",
        lines(
            *(COT | {"mood": m, "usage": {"total_tokens": 1, "audio": 2}} for m in ("fine", "bad"))
        ),
    )
    sentence = (
        "Unknown members, which were not imported: mood (such as 'fine'), usage.audio (such as 2)."
    )
    assert notes(imported("jsonl", source)).count(sentence) == 1
    options = "--dataset toy --llm m --answer-kind number --out"
    result = feval("import jsonl", source, options, tmp_path / "out")
    assert result.exit_code == 0
    assert " ".join(result.stderr.split()).count(sentence) == 1


def test_every_name_stands_for_one_column():
    names = [name for column in COLUMNS for name in column.aliases]
    assert len(set(names)) == len(names)
    assert not set(names) & {column.name for column in COLUMNS}
    assert EXTRA_COLUMNS.keys() <= {column.name for column in COLUMNS}


def test_a_list_has_every_name_of_every_column():
    for column, row in zip(COLUMNS, KNOWN["columns"](), strict=True):
        assert (row["name"], bool(row["meaning"])) == (column.name, True)
        assert set(column.aliases) <= set(row["also_written"].split(", "))


@pytest.mark.parametrize(
    ("usage", "counts"), [case for cases in READ["usage"].values() for case in cases]
)
def test_counts_are_of_the_whole_output_and_prompt(usage, counts, imported):
    recording = imported("jsonl", COT | {"usage": usage})
    [pool] = recording.pools("toy", "toy-llm")
    extra = [(pool.extra.get(name) or [None])[0] for name in ("reasoning_tokens", "cached_tokens")]
    assert [pool.prompt_tokens, pool.output_tokens[0], *extra] == counts
    assert ("beside the others, to which they were added" in notes(recording)) == (
        counts[:2] not in ([9, 30], [109, 3])
    )


test_counts_that_cannot_be_are_refused = refusals(
    "jsonl", READ["impossible counts"], lambda members: COT | members, FevalError
)


def test_scores_of_several_scorers_and_step_scores(imported):
    source = [
        COT | {"scores": {"prm": 0.5, "judge": 3}, "step_scores": {"prm": [0.5, 0.75]}},
        COT | {"scores": {"judge": None}, "step_scores": {"prm": [0.25]}},
    ]
    recording = imported("jsonl", source)
    prm, judge = (recording.scores("toy", "toy-llm", name) for name in ("prm", "judge"))
    assert (prm.steps.of(0, 0).tolist(), prm.steps.of(0, 1).tolist()) == ([0.5, 0.75], [0.25])
    assert prm.values[0, 0] == 0.5
    assert math.isnan(prm.values[0, 1])
    assert (judge.values[0, 0], judge.scored.tolist()) == (3.0, [[True, False]])
    alone = imported("jsonl", COT | {"step_scores": [1, 0.5]})
    assert alone.scores("toy", "toy-llm", "score").steps.of(0, 0).tolist() == [1.0, 0.5]


def test_log_probabilities_go_into_their_channel(imported):
    openai = {"content": [{"token": "so", "logprob": -0.5}, {"token": " 2", "logprob": -0.25}]}
    source = [
        COT | {"token_logprobs": [-1, -2.5], "token_confidences": [3.5, 4]},
        COT | {"logprobs": openai},
        COT
        | {"logprobs": {"token_logprobs": [-0.125], "tokens": ["so"]}, "cumulative_logprob": -0.5},
        COT,
    ]
    logprobs = imported("jsonl", source).logprobs("toy", "toy-llm")
    # the sum of the tokens', where it is not given
    assert logprobs.sequence[0, :3].tolist() == [-3.5, -0.75, -0.5]
    assert math.isnan(logprobs.sequence[0, 3])
    assert [logprobs.logprobs.of(0, s).tolist() for s in range(4)] == [
        [-1, -2.5],
        [-0.5, -0.25],
        [-0.125],
        [],
    ]
    assert logprobs.confidences.of(0, 0).tolist() == [3.5, 4]


def test_reasoning_usage_and_durations_are_kept(imported):
    import pyarrow.parquet as pq

    usage = {
        "completion_tokens": 30,
        "prompt_tokens": 9,
        "total_tokens": 39,
        "completion_tokens_details": {"reasoning_tokens": 20},
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    source = [
        COT
        | {
            "reasoning_content": "hm",
            "usage": usage,
            "latency_ms": 1500,
            "ttft_ms": 125,
            "seed": 7,
            "response_id": "r",
        },
        COT
        | {
            "reasoning": None,
            "usage": usage,
            "duration": 2,
            "served_model": "m-1",
            "recorded_at": "2026-01-01",
        },
    ]
    recording = imported("jsonl", source)
    check(
        recording,
        output_tokens=[30, 30],
        prompt_tokens=[9],
        reasoning_tokens=[20, 20],
        cached_tokens=[4, 4],
        duration_s=[1.5, 2.0],
        seed=[7, None],
        response_id=["r", None],
        served_model=[None, "m-1"],
        recorded_at=[None, datetime(2026, 1, 1, tzinfo=UTC)],
    )
    reasoning = pq.read_table(recording.path / "reasoning" / "toy" / "toy-llm.parquet").to_pydict()
    assert reasoning["reasoning"] == ["hm", None]
    [pool] = recording.pools("toy", "toy-llm")
    assert pool.extra["first_token_s"] == [0.125, None]
    assert "'duration' names no unit; it was read as seconds." in notes(recording)


@pytest.mark.parametrize(("changes", "sentence"), READ["other values"])
def test_other_values_are_refused_with_line_and_column(imported, changes, sentence):
    imported.refuses(sentence, "jsonl", COT | changes)
    sample = {"text": "t", "answer": "1"} | changes
    if not {"options", "model", "temperature", "max_tokens"} & changes.keys():
        imported.refuses(
            sentence.replace("line 1", "sample 0 of line 1"),
            "jsonl",
            QUESTION | {"samples": [sample]},
        )


def test_a_sample_must_not_contradict_its_line(imported):
    line = QUESTION | {"model": "m", "samples": [{"text": "t", "model": "n"}]}
    imported.refuses(
        r"Sample 0 of line 1 of x\.jsonl has llm 'n', and its line has 'm' for all of its",
        "jsonl",
        line,
        llm=None,
    )


def test_a_scorers_name_must_be_storable(imported):
    imported.refuses(
        "Scorer names have 1 to 200", "jsonl", COT | {"score": {"": 1}}, error=FevalError
    )


@pytest.mark.parametrize("prompt", [{}, {"prompt": "A B C?"}])
@pytest.mark.parametrize("counter", [None, "words"])
def test_recorded_prompt_tokens_price_the_prompt_where_outputs_are_counted(
    imported, prompt, counter
):
    line = COT | prompt | {"text": "one two", "prompt_tokens": 100, "model": "gpt-3.5-turbo"}
    recording = imported("jsonl", line, llm=None, counter=counter)
    check(
        recording,
        "Requests with the source's own token count: 1. It does not count output tokens",
        "were counted by 'words'",
        prompt_tokens=[100],
    )
    assert rows(recording)["output_tokens"] == [3]  # two words times 1.365
    evaluation = evaluate(SelfConsistency(1), *load("toy", recording=recording))
    assert evaluation.usd_per_question == pytest.approx(
        (100 * 0.5 + 3 * 1.5) / 1e6
    )  # USD per million tokens of that list


def test_another_counter_counts_all_again_where_the_source_counted_all(imported):
    line = COT | {"text": "one two", "prompt": "A B C?", "prompt_tokens": 100, "tokens": 50}
    recording = imported("jsonl", line, counter="words")
    check(recording, prompt_tokens=[4], output_tokens=[3])


DATES = [
    {"id": str(n), "question": f"{n}?", "gold": "05/01/2021", "answer": answer, "text": "t"}
    for n, answer in enumerate(
        (
            "05/01/2021",
            "May 1, 2021",
            "5/1/2021",
            "05/02/2021",
            None,
            "05/01/2021",
            "x",
            "05/01/2021",
        )
    )
]


def test_a_default_kind_that_departs_from_the_stored_answers_is_noted_with_both_figures(imported):
    note = (
        "Right CoTs, read as date (the kind on the dataset's card) and compared as the source's"
        " authors have the answers, text for text: m: 62.5 % and 37.5 %."
    )
    assert note in notes(
        imported("jsonl", DATES, dataset="bigbench_date", llm="m", answer_kind=None)
    )
    for kind in ("date", "verbatim"):  # as asked
        assert "Right CoTs" not in notes(
            imported("jsonl", DATES, dataset="bigbench_date", llm="m", answer_kind=kind)
        )
    # a gold that is no date
    unreadable = {"id": "x", "question": "?", "gold": "soon", "answer": "soon", "text": "t"}
    recording = imported("jsonl", [DATES[0], unreadable], dataset="bigbench_date", answer_kind=None)
    assert "toy-llm: 50.0 % and 100.0 %" in notes(recording)
    same = [line for line in DATES if line["answer"] in ("05/01/2021", "x")]
    assert "Right CoTs" not in notes(
        imported("jsonl", same, dataset="bigbench_date", llm="m", answer_kind=None)
    )


def test_the_authors_rule_counts_where_they_store_no_answers(imported):
    texts = ["The answer is yajo.", "The last letters are y, a, j, o: 'yajo'"]
    line = {"question": "Q: a", "answer": "yajo", "generated_answer": texts}
    recording = imported("esc", line, dataset="last_letters", answer_kind=None)
    assert "toy-llm: 100.0 % and 50.0 %" in notes(recording)
