"""The reference package's names: its example scripts, written anew, run on a zip and on recordings
with the recorded results.
"""

import gzip
import json
import os
import random
import subprocess
import sys
import zipfile
from collections import Counter
from math import log

import pytest
from places import ROOT
from real_files import golden

from feval.cards.tokens import count_words
from feval.compat.feval_ttc import (
    CoT,
    CoTMetadata,
    DatasetType,
    LLMRequest,
    LLMResponse,
    LLMType,
    ModelCost,
    available_models,
    load,
)
from feval.errors import (
    FevalError,
    NotARecordingError,
    NotRecordedError,
    OutOfRangeError,
    PriceNotFoundError,
    SourceError,
    UsageError,
)
from feval.importers import import_recording

DATE_40 = "GPT3_result/date_cot1_40.json.gz"
GPT4 = "GPT4_result/date_cot1.json.gz"
LLAMA2 = "llama2_13B_result/date_cot1.json.gz"
# Three sets of recorded LLMs, under the names of LLMs with the prices that the golden values were
# computed at.
SETS = {
    "sc": {LLMType.Mixtral8x7B: DATE_40},
    "mot": {LLMType.Qwen1B25: DATE_40, LLMType.Qwen72B25: GPT4},
    "switch": {LLMType.Qwen1B25: LLAMA2, LLMType.LLaMA70B33: DATE_40, LLMType.GPT4oMINI: GPT4},
}


def reference(shared, name):
    return golden(shared, name)[name]["expected"]


def write_zip(path, questions, llms, *, dataset="Bigbench_Date", finish_reason="stop"):
    """An archive as the reference package stores it; its stored dollars are nonsense, and must not
    matter.
    """
    entries = [{"answer": gold, "question": text} for text, gold in questions]

    def cost(text):
        return {"dollar_cost": 1e6, "token_cost": float(count_words(text))}

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            f"dataset_{dataset}.txt",
            json.dumps({"data": entries, "datatype": dataset, "system_prompt": "Think."}),
        )
        archive.writestr(f"dataset_{dataset}_models.txt", json.dumps({"llms": list(llms)}))
        for llm, pools in llms.items():
            responses = [
                {
                    "cots": [
                        {
                            "raw_text": text,
                            "answer": answer,
                            "metadata": cost(text) | {"finish_reason": finish_reason},
                        }
                        for text, answer in pool
                    ],
                    "request": {"raw_text": entry["question"]} | cost(entry["question"]),
                }
                for entry, pool in zip(entries, pools, strict=True)
            ]
            config = {"name": llm, "temperature": 0.7, "max_tokens": 2048}
            archive.writestr(
                f"LLM_{llm}_dataset_{dataset}.txt",
                json.dumps({"config": config, "responses": responses}),
            )
    return path


@pytest.fixture(scope="module")
def sources(shared, tmp_path_factory):
    """(kind, set) -> api_path: each set as a zip, and that zip as a recording; "sc" also imported
    from its original.
    """
    folder = tmp_path_factory.mktemp("api")
    real = shared / "real" / "mot_cascade"

    def entries(name):
        return list(json.loads(gzip.decompress((real / name).read_bytes())))

    questions = [(entry["question"], entry["answer"]) for entry in entries(DATE_40)]
    paths = {}
    for name, files in SETS.items():
        pools = {
            str(llm): [list(zip(e["generated"], e["results"], strict=True)) for e in entries(file)]
            for llm, file in files.items()
        }
        archive = write_zip(folder / f"{name}.zip", questions, pools)
        paths["zip", name] = archive
        paths["recording", name] = import_recording(
            "feval-ttc",
            archive,
            folder / name,
            dataset=DatasetType.BIGBENCH_DATE,
            answer_kind="verbatim",
        )
    paths["original", "sc"] = import_recording(
        "mot-cascade",
        real / DATE_40,
        folder / "original",
        dataset=DatasetType.BIGBENCH_DATE,
        llm=LLMType.Mixtral8x7B,
        answer_kind="verbatim",
    )
    return paths


both = pytest.mark.parametrize("kind", ["zip", "recording"])


def plurality(answers):
    votes = Counter(answer for answer in answers if answer is not None)
    return votes.most_common(1)[0][0] if votes else None


def run_self_consistency(datatype, llm_name, api_path, n, seed):
    random.seed(seed)
    dataset, [llm] = load(datatype, [llm_name], api_path=str(api_path))
    correct, usd = 0, 0.0
    for question_id, entry in dataset:
        response = llm(question_id, N=n)
        correct += plurality(response.answers) == entry.answer
        usd += response.dollar_cost
    return correct, usd


def run_mixture_of_thoughts(api_path, *, strict):
    random.seed(0)
    dataset, [weak, strong] = load(
        DatasetType.BIGBENCH_DATE, [LLMType.Qwen1B25, LLMType.Qwen72B25], api_path=str(api_path)
    )
    correct, usd, escalated = 0, 0.0, 0
    for question_id, entry in dataset:
        weak_response, strong_response = weak(question_id, N=20), strong(question_id, N=20)
        answer, votes = Counter(weak_response.answers).most_common(1)[0]
        tenths = 10 * votes - 9 * len(weak_response)
        accepted = tenths > 0 if strict else tenths >= 0
        usd += weak_response.dollar_cost
        if not accepted:
            answer, usd = plurality(strong_response.answers), usd + strong_response.dollar_cost
        escalated += not accepted
        correct += answer == entry.answer
    return correct, usd, escalated


def consistency_weight(answers):
    """ModelSwitch's internal weight (arXiv 2504.00762), the entropy relative to that of the
    distinct answers.
    """
    n, counts = len(answers), Counter(answers).values()
    if len(counts) == 1:
        return 1.0
    entropy = -sum(count / n * log(count / n) for count in counts)
    return 1 / n + (1 - 1 / n) * (1 - entropy / log(len(counts)))


def switch_models(responses):
    usd = 0.0
    scores = {}
    for place, response in enumerate(responses):
        usd += response.dollar_cost
        answers = [answer for answer in response.answers if answer is not None]
        if len(set(response.answers)) == 1 and answers and place < len(responses) - 1:
            return answers[0], usd
        weight = consistency_weight(answers)
        for answer in answers:
            scores[answer] = scores.get(answer, 0.0) + weight
    return max(scores, key=scores.__getitem__), usd


def run_model_switch(api_path):
    random.seed(1)
    dataset, llms = load(DatasetType.BIGBENCH_DATE, list(SETS["switch"]), api_path=str(api_path))
    correct, usd = 0, 0.0
    for question_id, entry in dataset:
        answer, cost = switch_models([llm(question_id, N=5) for llm in llms])
        correct += answer == entry.answer
        usd += cost
    return correct, usd


@pytest.mark.parametrize(
    "kind", [pytest.param("zip", marks=pytest.mark.slow), "recording", "original"]
)
def test_seeded_self_consistency_is_reproduced(shared, sources, kind):
    expected = reference(shared, "feval.replay.sc20.seed0")
    correct, usd = run_self_consistency(
        DatasetType.BIGBENCH_DATE, LLMType.Mixtral8x7B, sources[kind, "sc"], n=20, seed=0
    )
    assert correct == expected["correct"] == 240
    assert usd == pytest.approx(expected["usd"], abs=1e-9)


@both
@pytest.mark.parametrize(("rule", "strict"), [("mot20_strict0.9", True), ("mot20_paper0.9", False)])
def test_seeded_mixture_of_thoughts_is_reproduced(shared, sources, kind, rule, strict):
    expected = reference(shared, f"feval.replay.{rule}.seed0")
    correct, usd, escalated = run_mixture_of_thoughts(sources[kind, "mot"], strict=strict)
    assert (correct, escalated) == (expected["correct"], expected["escalated"])
    assert usd == pytest.approx(expected["usd"], abs=1e-9)


@both
def test_seeded_model_switch_is_reproduced(shared, sources, kind):
    expected = reference(shared, "feval.replay.model_switch5.seed1")
    correct, usd = run_model_switch(sources[kind, "switch"])
    assert correct == expected["correct"] == 321
    assert usd == pytest.approx(expected["usd"], abs=1e-9)


@pytest.mark.parametrize("n", [1, 5, 20])
def test_seeded_self_consistency_of_esc_is_reproduced(shared, tmp_path, n):
    source = shared / "real" / "esc" / "GPT3.5_result" / "last_letters" / "T0.7.jsonl.gz"
    own = {"dataset": "last_letters", "llm": LLMType.GPT3, "answer_kind": "verbatim"}
    letters = import_recording("esc", source, tmp_path / "letters", **own)
    correct, _ = run_self_consistency("last_letters", LLMType.GPT3, letters, n=n, seed=0)
    assert correct == reference(shared, f"esc.sc_seed0.last_letters_gpt35.n{n}")["correct"]


@both
def test_available_models_lists_what_was_recorded(sources, kind):
    available = available_models(DatasetType.BIGBENCH_DATE, api_path=str(sources[kind, "switch"]))
    assert available == list(SETS["switch"])
    assert all(isinstance(name, LLMType) for name in available)


def test_a_zip_and_its_recording_hand_out_the_same(sources):
    responses = []
    for kind in ("zip", "recording"):
        random.seed(7)
        dataset, llms = load(
            "Bigbench_Date", list(SETS["switch"]), api_path=sources[kind, "switch"]
        )
        responses.append([(llm(row, N=3), entry) for row, entry in dataset for llm in llms])
    assert responses[0] == responses[1]
    texts = [
        [cot.raw_text for response, _ in side[:30] for cot in response.cots] for side in responses
    ]
    assert texts[0] == texts[1]


TEXTS = ["one two three", "one", "so it is b", "", "I do not know", "b, I say"]
ANSWERS = ["a", "a", "b", None, None, "b"]
OTHER = "somebody/new-model"


@pytest.fixture(params=["zip", "recording"])
def small(request, tmp_path):
    """Two questions; one LLM with a price and pools of six and two, one without a price and with an
    empty pool.
    """
    pool = list(zip(TEXTS, ANSWERS, strict=True))
    llms = {str(LLMType.GPT4oMINI): [pool, pool[:2]], OTHER: [pool[:1], []]}
    archive = write_zip(
        tmp_path / "api.zip",
        [("What is it?", "a"), ("And now?", "b")],
        llms,
        dataset="AQuA",
        finish_reason="max_tokens",
    )
    if request.param == "zip":
        return archive
    return import_recording(
        "feval-ttc", archive, tmp_path / "recording", dataset="aqua", answer_kind="verbatim"
    )


def open_small(small):
    dataset, [llm] = load(DatasetType.AQUA, [LLMType.GPT4oMINI], api_path=small)
    return dataset, llm


def test_a_dataset_iterates_rows_and_entries(small):
    dataset, _ = open_small(small)
    assert [(row, entry.question, entry.answer) for row, entry in dataset] == [
        (0, "What is it?", "a"),
        (1, "And now?", "b"),
    ]
    assert (len(dataset), dataset.datatype, dataset.system_prompt) == (
        2,
        DatasetType.AQUA,
        "Think.",
    )
    assert dataset[1] == dataset.data[1]
    with pytest.raises(NotRecordedError, match="0 to 1"):
        dataset[2]


def test_draws_are_those_of_the_global_generator(small):
    _, llm = open_small(small)
    random.seed(5)
    first, second = llm(0, N=3), llm(0, N=3)
    random.seed(5)
    for response in (first, second):
        expected = random.sample(range(6), k=3)
        assert [cot.raw_text for cot in response.cots] == [TEXTS[i] for i in expected]
        assert response.answers == [ANSWERS[i] for i in expected]


@pytest.mark.parametrize("n", [6, 7, 40])
def test_asking_for_all_gives_recorded_order_and_draws_nothing(small, n):
    _, llm = open_small(small)
    random.seed(3)
    before = random.getstate()
    assert llm(0, N=n).answers == ANSWERS
    assert llm(1, n).answers == ["a", "a"]
    assert random.getstate() == before


def test_deterministic_gives_the_first_and_draws_nothing(small):
    _, llm = open_small(small)
    before = random.getstate()
    assert llm(0, N=4, deterministic=True).answers == ANSWERS[:4]
    assert random.getstate() == before


def test_dollars_come_from_the_price_list_and_not_from_the_archive(small):
    _, llm = open_small(small)
    response = llm(0)
    tokens = [count_words(text) for text in TEXTS]
    assert [cot.metadata.token_cost for cot in response.cots] == tokens
    assert response.token_cost == 4 + sum(tokens)
    assert response.dollar_cost == pytest.approx(1e-6 * (0.15 * 4 + 0.60 * sum(tokens)), rel=1e-12)


def test_an_llm_without_a_price_votes_but_has_no_dollars(small):
    _, [llm] = load(DatasetType.AQUA, [OTHER], api_path=small)
    response = llm(0, N=20)
    assert (response.answers, response.cots[0].dollar_cost, response.token_cost) == (["a"], None, 8)
    with pytest.raises(PriceNotFoundError, match="2025-06-02"):
        _ = response.dollar_cost
    assert llm(1).answers == []


def test_configs_say_what_was_recorded(small):
    _, llm = open_small(small)
    assert (llm.config.name, llm.config.temperature, llm.config.max_tokens, len(llm)) == (
        LLMType.GPT4oMINI,
        0.7,
        2048,
        2,
    )


@pytest.mark.parametrize("name", ["AQuA", "aqua", DatasetType.AQUA])
def test_a_dataset_goes_by_either_name(small, name):
    assert available_models(name, api_path=small) == [LLMType.GPT4oMINI, OTHER]
    assert len(load(name, [], api_path=small)[0]) == 2


def test_dataset_constants_take_the_reference_packages_strings():
    assert DatasetType("Bigbench_Date") is DatasetType.BIGBENCH_DATE
    assert DatasetType("Math_500") is DatasetType.MATH_500
    with pytest.raises(ValueError, match="nobody"):
        DatasetType("nobody")


def test_responses_survive_json(small, tmp_path):
    _, llm = open_small(small)
    response = llm(0, N=40)
    response.to_json(str(tmp_path / "response.json"))
    stored = json.loads((tmp_path / "response.json").read_text("utf-8"))
    assert stored["num_cots"] == 6
    assert stored["cots"][0]["metadata"]["finish_reason"] == "max_tokens"
    read = LLMResponse.from_json(str(tmp_path / "response.json"))
    assert read == response
    assert [cot.raw_text for cot in read.cots] == TEXTS


def test_a_response_written_by_the_reference_package_is_read(tmp_path):
    file = tmp_path / "response.json"
    cot = {
        "raw_text": "b",
        "answer": "b",
        "metadata": {"dollar_cost": 0.5, "token_cost": 1.0, "finish_reason": "stop"},
    }
    request = {"raw_text": "?", "dollar_cost": 0.25, "token_cost": 1.0}
    file.write_text(json.dumps({"cots": [cot], "request": request, "num_cots": 1}), "utf-8")
    read = LLMResponse.from_json(file)
    assert (read.answers, read.dollar_cost, read.token_cost) == (["b"], 0.75, 2)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"cots": 1, "request": {}}', b"\xff", b'{"cots": []}']
)
def test_a_foreign_json_file_is_refused(tmp_path, content):
    file = tmp_path / "response.json"
    file.write_bytes(content)
    with pytest.raises(SourceError, match=r"response\.json"):
        LLMResponse.from_json(file)
    with pytest.raises(SourceError, match="missing"):
        LLMResponse.from_json(tmp_path / "missing.json")


def test_a_request_without_tokens_has_no_sum():
    response = LLMResponse(
        [CoT("a", CoTMetadata(0.1, 1, "stop"), lambda: None)], LLMRequest(None, None, None)
    )
    with pytest.raises(NotRecordedError, match="tokens"):
        _ = response.token_cost
    with pytest.raises(PriceNotFoundError, match="dollars"):
        _ = response.dollar_cost


def test_wrong_arguments_are_refused_with_a_sentence(small, tmp_path):
    _, llm = open_small(small)
    with pytest.raises(OutOfRangeError, match="N=0"):
        llm(0, N=0)
    with pytest.raises(NotRecordedError, match="-1"):
        llm(-1)
    with pytest.raises(FevalError, match=r"GSM8K|gsm8k"):
        load(DatasetType.GSM8K, [LLMType.GPT4oMINI], api_path=small)
    with pytest.raises(FevalError, match="o3-mini"):
        load(DatasetType.AQUA, [LLMType.o3MINI], api_path=small)
    with pytest.raises(FevalError, match=r"GSM8K|gsm8k"):
        available_models(DatasetType.GSM8K, api_path=small)
    for call in (
        lambda: load("aqua", [], api_path=tmp_path / "no.zip"),
        lambda: available_models("aqua", tmp_path / "no"),
    ):
        with pytest.raises(NotARecordingError, match="does not exist"):
            call()


def test_model_cost_prices_texts():
    cost = ModelCost(LLMType.GPT4oMINI)
    assert (cost.input_cost, cost.output_cost, cost.llm_type) == (0.15, 0.60, LLMType.GPT4oMINI)
    assert (cost.token_cost("a b"), cost.token_cost("")) == (3, 0)
    assert cost.input_dollar_cost("a b") == pytest.approx(0.45e-6, rel=1e-12)
    assert cost.output_dollar_cost("a b") == pytest.approx(1.8e-6, rel=1e-12)
    with pytest.raises(PriceNotFoundError, match=OTHER):
        ModelCost(OTHER)


# Typed from the paper (arXiv 2511.01203), line breaks included.
LISTING_1 = """\
from feval_ttc import load, DatasetType, LLMType

dataset, [llm1,llm2] = load(DatasetType.SVAMP, \\
                 [LLMType.LLaMA3B32, LLMType.Qwen72B25])

for question_id, dataentry in dataset:
    print("Question: ", dataentry.question)
    print("True answer: ", dataentry.answer)
    llm1_response = llm1(question_id, N=20)
    print("1st CoT answer: ", llm1_response.cots[0].answer)
    print("Token cost: ", llm1_response.cots[0].tokens)
    print("USD Cost: ", llm1_response.cots[0].dollar_cost)
"""


def run(script, *arguments, **environment):
    command = [sys.executable, "-W", "error", "-m", "feval.compat", str(script), *arguments]
    variables = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    done = subprocess.run(
        command, env=variables, cwd=script.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def svamp(folder, llms):
    """25 equal CoTs of each LLM: five words each, 7 tokens."""
    pools = {
        str(llm): [[("Three and five is 8.", "8")] * 25, [("Three minus two is 1.", "1")] * 25]
        for llm in llms
    }
    archive = write_zip(
        folder / "svamp.zip",
        [("3 apples and 5?", "8"), ("3 less 2?", "1.0")],
        pools,
        dataset="SVAMP",
    )
    return import_recording("feval-ttc", archive, folder / "svamp", dataset="svamp")


def test_listing_1_runs_as_printed(tmp_path):
    recording = svamp(tmp_path, [LLMType.LLaMA3B32, LLMType.Qwen72B25])
    listing = tmp_path / "listing.py"
    listing.write_text(LISTING_1, "utf-8")
    usd = 7 * 0.02e-6
    printed = run(listing, FEVAL_RECORDING=str(recording)).splitlines()
    assert printed == [
        "Question:  3 apples and 5?",
        "True answer:  8",
        "1st CoT answer:  8",
        "Token cost:  7",
        f"USD Cost:  {usd!r}",
        "Question:  3 less 2?",
        "True answer:  1",
        "1st CoT answer:  1",
        "Token cost:  7",
        f"USD Cost:  {usd!r}",
    ]


def test_a_script_runs_with_its_arguments_and_neighbours_whatever_is_installed(tmp_path):
    (tmp_path / "feval_ttc.py").write_text("raise SystemExit('theirs')", "utf-8")
    (tmp_path / "neighbour.py").write_text("name = 'beside it'", "utf-8")
    program = (
        "import sys, feval_ttc, neighbour; print(feval_ttc.__name__, neighbour.name, sys.argv[1:],"
        " __name__)"
    )
    (tmp_path / "script.py").write_text(program, "utf-8")
    assert (
        run(tmp_path / "script.py", "--n", "3")
        == "feval.compat.feval_ttc beside it ['--n', '3'] __main__\n"
    )


def test_llms_come_from_all_recordings_that_are_named(tmp_path, monkeypatch):
    folders = [tmp_path / name for name in ("one", "two")]
    for folder, llm in zip(folders, (LLMType.LLaMA3B32, LLMType.Qwen72B25), strict=True):
        folder.mkdir()
        svamp(folder, [llm])
    monkeypatch.setenv(
        "FEVAL_RECORDING", os.pathsep.join(str(folder / "svamp") for folder in folders)
    )
    assert available_models(DatasetType.SVAMP) == [LLMType.LLaMA3B32, LLMType.Qwen72B25]
    dataset, llms = load(DatasetType.SVAMP, [LLMType.Qwen72B25, LLMType.LLaMA3B32])
    assert [llm.config.name for llm in llms] == [LLMType.Qwen72B25, LLMType.LLaMA3B32]
    assert (dataset.system_prompt, llms[0].config.temperature) == ("Think.", 0.7)
    monkeypatch.delenv("FEVAL_RECORDING")
    for call in (lambda: load(DatasetType.SVAMP, []), lambda: available_models(DatasetType.SVAMP)):
        with pytest.raises(UsageError, match="FEVAL_RECORDING"):
            call()


def test_the_names_of_listing_3_are_there(small):
    _, llm = open_small(small)
    response = llm(0)
    assert (response.cots[0].metadata.tokens, response.request.tokens) == (count_words(TEXTS[0]), 4)
    assert llm.responses == [llm(0), llm(1)]
    assert llm.responses[1].answers == ["a", "a"]
    assert [cot.raw_text for cot in llm.responses[0].cots] == TEXTS


def test_datasets_say_what_their_answers_are():
    """As dataset_interface.py of the reference package has it, SVAMP on both sides included."""
    big_bench = {member for member in DatasetType if member.name.startswith("BIGBENCH")}
    assert len(big_bench) == 11
    assert {member for member in DatasetType if member.is_big_bench} == big_bench
    assert {member for member in DatasetType if member.is_output_number} == {
        DatasetType.GSM8K, DatasetType.SVAMP, DatasetType.MATH_500,
    }  # fmt: skip
    assert {member for member in DatasetType if member.is_output_choice} == big_bench | {
        DatasetType.AQUA, DatasetType.CommonsenseQA, DatasetType.SVAMP,
    }  # fmt: skip
    assert [llm for llm in LLMType if llm.is_reasoning_model] == [LLMType.o3MINI]


def test_everything_is_dumped_as_the_reference_package_does(small):
    dataset, llm = open_small(small)
    config = {"name": LLMType.GPT4oMINI, "temperature": 0.7, "max_tokens": 2048}
    assert dataset.model_dump() == {
        "data": [
            {"answer": "a", "question": "What is it?"},
            {"answer": "b", "question": "And now?"},
        ],
        "datatype": DatasetType.AQUA,
        "system_prompt": "Think.",
    }
    response = llm(1)
    cots = [
        {
            "raw_text": text,
            "answer": "a",
            "metadata": {
                "dollar_cost": 0.60e-6 * tokens,
                "token_cost": tokens,
                "finish_reason": "max_tokens",
            },
        }
        for text, tokens in (("one two three", 4), ("one", 1))
    ]
    request = {"raw_text": "And now?", "dollar_cost": pytest.approx(0.15e-6 * 3), "token_cost": 3}
    assert response.model_dump() == {"cots": cots, "request": request, "num_cots": 2}
    assert json.loads(response.model_dump_json()) == json.loads(response.model_dump_json(indent=2))
    assert response.model_dump_json(indent=2).startswith('{\n  "cots": [')
    assert llm.model_dump() == {
        "config": config,
        "responses": [each.model_dump() for each in llm.responses],
    }
    assert type(llm.config.model_dump(mode="json")["name"]) is str
    assert list(llm.config.model_dump()) == ["name", "temperature", "max_tokens"]


def test_copies_may_be_changed(small):
    dataset, llm = open_small(small)
    response = llm(0)
    shallow, deep, updated = (
        response.copy(),
        response.copy(deep=True),
        response.model_copy(update={"cots": []}),
    )
    assert shallow == deep == response
    assert (shallow.cots is response.cots, deep.cots is response.cots) == (True, False)
    assert (len(updated), len(response)) == (0, 6)
    deep.cots[0].answer, deep.cots[0].raw_text = "z", "new text"
    assert (deep.answers[0], deep.cots[0].raw_text) == ("z", "new text")
    assert (response.answers[0], response.cots[0].raw_text) == ("a", TEXTS[0])
    for value in (
        dataset,
        dataset[0],
        response.request,
        response.cots[0],
        response.cots[0].metadata,
        llm.config,
    ):
        assert value.copy() == value.copy(deep=True) == value
    assert llm.copy()(0, N=6) == llm.copy(deep=True)(0, N=6) == response
