"""Small valid sources of every format, for the tests of the importers."""

import io
import json
import zipfile

from small import parquet

from feval.values import without_none


def mot_entry(**changes):
    return {
        "question": "What is 1 + 1?",
        "answer": "2",
        "generated": ["One and one.\nA: 2", "A: 3", "nothing"],
        "results": ["2", "3", None],
        "result_counter": {"2": 1, "3": 1},
        "prediction": "2",
        **changes,
    }


def dumped(value):
    return json.dumps(value).encode()


def lines(*values):
    return b"\n".join(map(dumped, values)) + b"\n"


def cot(text="so 2", answer="2", tokens=4.0, reason="stop"):
    return {
        "raw_text": text,
        "answer": answer,
        "metadata": {"dollar_cost": 1e-6, "token_cost": tokens, "finish_reason": reason},
    }


def response(*cots):
    return {
        "cots": list(cots),
        "request": {"raw_text": "Q: 1 + 1?", "dollar_cost": 1e-6, "token_cost": 5.0},
    }


ARCHIVE_LLM = "meta-llama/Llama-3.2-1B-Instruct"


def archive_members(**changes):
    """Members of a reference archive with two questions and two LLMs, as JSON values or bytes."""
    members = {
        "dataset_GSM8K.txt": {
            "data": [{"answer": "2", "question": "1 + 1?"}, {"answer": "4", "question": "2 + 2?"}],
            "datatype": "GSM8K",
            "system_prompt": "Be brief.",
        },
        "dataset_GSM8K_models.txt": {"llms": [ARCHIVE_LLM, "o3-mini"]},
        f"LLM_{ARCHIVE_LLM}_dataset_GSM8K.txt": {
            "config": {"name": ARCHIVE_LLM, "temperature": 0.7, "max_tokens": 2048},
            "responses": [
                response(
                    cot(),
                    cot("cut", None, 2048.0, "max_tokens"),
                    cot("no", "3", 1, "content_filter"),
                ),
                response(
                    cot(reason="run_cancelled"),
                    cot(reason="run_expired"),
                    cot("", None, 0, "run_failed"),
                ),
            ],
        },
        "LLM_o3-mini_dataset_GSM8K.txt": {
            "config": {"name": "o3-mini"},
            "responses": [response(cot("2", "2", 1)), response(cot("4", "4", 1))],
        },
    }
    return {**members, **changes}


def archive(members, compression=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, value in members.items() if isinstance(members, dict) else members:
            file.writestr(name, value if isinstance(value, bytes) else dumped(value))
    return buffer.getvalue()


MMLU_KEY = b"subject,index,answer\nalgebra,0,A\nalgebra,1,B\n"
MMLU_REPLIES = b"0\n" + b"".join(b'"A.\nBecause, yes"\n' for _ in range(10)) + b"B\n" * 9 + b'""\n'


def switch_entry(**changes):
    return {
        "question": "1 + 1?",
        "no": 0,
        "category": "Math",
        "solution": "2",
        "step_sampling": ["It is \\boxed{2}."],
        "intermediate_results": ["2"],
        "ans_list": ["2"],
        "final_answer": "2",
        "Correctness": True,
        **changes,
    }


def open_entry(no=0, **changes):
    """An entry of ModelSwitch's files of open models."""
    entry = {
        "question": "1 + 1?",
        "no": no,
        "solution": 2,
        "Llama-3.1-70B-Instruct_Sampling": ["assistant\n\nIt is \\boxed{2}.", "It is 3."],
        "Llama-3.1-70B-Instruct_ans_list": ["2", "3"],
        "Llama-3.1-70B-Instruct_final_answer": "2",
        "gemma_Sampling": ["So 2."],
        "gemma_ans_list": ["2"],
        **changes,
    }
    return without_none(entry)


def harness_line(**changes):
    """A line of lm-evaluation-harness."""
    return {
        "doc_id": 0,
        "doc": {"question": "What is 1 + 1?", "answer": "2"},
        "target": "2",
        "arguments": {
            "gen_args_0": {
                "arg_0": "Q: What is 1 + 1?\nA:",
                "arg_1": {"temperature": 0.7, "max_gen_toks": 64},
            }
        },
        "resps": [["It is 2.", "It is 3.", "Hm"]],
        "filtered_resps": [["2", "3", "[invalid]"]],
        "filter": "every",
        "doc_hash": "0",
        "exact_match": 0.5,
        **changes,
    }


def inspect_sample(**changes):
    """A sample of inspect-ai."""
    message = {"role": "assistant", "content": "It is 2."}
    return {
        "id": 1,
        "epoch": 1,
        "input": "What is 1 + 1?",
        "target": "2",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is 1 + 1?"},
            message,
        ],
        "output": {
            "model": "m",
            "choices": [{"message": message, "stop_reason": "stop"}],
            "usage": {"input_tokens": 9, "output_tokens": 5, "input_tokens_cache_read": 3},
        },
        "scores": {"match": {"value": "C", "answer": "2"}},
        **changes,
    }


def inspect_log(*samples, **changes):
    """A log of inspect-ai."""
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "model": "openai/gpt-4o",
            "dataset": {"sample_ids": [1, 2]},
            "packages": {"inspect_ai": "0.3.285"},
            "scorers": [{"name": "match"}],
        },
        "plan": {"config": {"temperature": 0.5, "max_tokens": 100, "top_p": 0.9}},
        "samples": list(samples) or [inspect_sample(), inspect_sample(epoch=2)],
        **changes,
    }


def inspect_archive(log, compression=zipfile.ZIP_DEFLATED):
    """The same log as an `.eval` archive."""
    members = [("header.json", {name: value for name, value in log.items() if name != "samples"})]
    members += [
        (f"samples/{place}_epoch_1.json", sample) for place, sample in enumerate(log["samples"])
    ]
    return archive(members, compression)


def details(*rows):
    """Details of lighteval: pairs of `doc` and `model_response`."""
    names = "doc", "model_response"
    return parquet([dict(zip(names, row, strict=True)) for row in rows or [details_row()]])


def details_row(**changes):
    """One question of lighteval; a change goes where the member belongs."""
    doc = {
        "query": "What is 1 + 1?",
        "choices": ["2"],
        "gold_index": 0,
        "id": "0",
        "instruction": None,
    }
    response = {
        "text": ["It is 2.", "It is 3."],
        "input": None,
        "input_tokens": [7, 8],
        "output_tokens": [[1, 2], [1, 3, 2]],
    }
    for name, value in changes.items():
        (doc if name in doc else response)[name] = value
    return doc, response


PUZZLES = b"Rank,Puzzles,AMT (s)\n1,4 5 6 10,4.4\n2,1 1 4 6,4.4\n"


def game_entry(**changes):
    """A puzzle of the Game of 24."""
    return {
        "idx": 0,
        "ys": [
            "Answer: (5 * (10 - 4)) - 6 = 24",
            "Answer: 4 + 5 + 6 + 10 = 24",
            "Answer: 4 * 6 = 24\n",
        ],
        "accs": [True, False, False],
        "usage_so_far": {"completion_tokens": 30, "prompt_tokens": 10, "cost": 0.1},
        **changes,
    }


def probed_entry(**changes):
    """A question of a store of probed traces: three traces, probed every five tokens."""
    traces = [[["3", "2"], 12, "2"], [["2", "ERR", "3"], 14, "3"], [[], 3, "ERR"]]
    entry = {
        "question": "What is 1 + 1?",
        "gold_answer": "2",
        "probe_freq": 5,
        "each_branch": traces,
        "final_answers_trace": [final for _, _, final in traces],
        **changes,
    }
    return {name: value for name, value in entry.items() if value is not ...}


COT = {"id": "a", "question": "A?", "gold": "1", "text": "t", "answer": "1"}
QUESTION = {"id": "a", "question": "A?", "answer": "1", "samples": [{"text": "t", "answer": "1"}]}


def in_arrow(rows):
    """A table as Parquet, as a file of Arrow and as a stream of Arrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(rows)
    buffers = [io.BytesIO() for _ in range(3)]
    pq.write_table(table, buffers[0])
    for buffer, new in zip(buffers[1:], (pa.ipc.new_file, pa.ipc.new_stream), strict=True):
        with new(buffer, table.schema) as writer:
            writer.write_table(table)
    return [buffer.getvalue() for buffer in buffers]


SMALL = {
    "feval-ttc": (archive(archive_members()), {"dataset": "gsm8k", "llm": None}),
    "mot-cascade": (
        dumped([mot_entry(), mot_entry(results=[2, 0.5, None]), mot_entry(results=["2"])]),
        {"answer_kind": "number"},
    ),
    "esc": (
        lines(
            *(
                {"question": f"Q{n}", "answer": "a", "generated_answer": ["the answer is a"]}
                for n in range(4)
            )
        ),
        {},
    ),
    "coupled-mmlu": (MMLU_REPLIES, {"questions": MMLU_KEY}),
    "modelswitch": (dumped([switch_entry(), switch_entry(no=1)]), {}),
    "linc": (dumped([["True", "Error"], ["False", "Uncertain"]]), {}),
    "game24": (dumped([game_entry()]), {"questions": PUZZLES, "answer_kind": "number"}),
    "probed-traces": (
        dumped([probed_entry(), probed_entry(question="2 + 2?", probe_freq=3.0)]),
        {"answer_kind": "number"},
    ),
    "lm-eval": (
        lines(harness_line(), harness_line(doc_id=1), harness_line(filter="none")),
        {"answer_kind": "number"},
    ),
    "inspect-ai": (dumped(inspect_log()), {"answer_kind": "number"}),
    "lighteval": (details(), {"answer_kind": "number"}),
}
"""A source of each format but rows, with options that it needs."""
