"""Questions by name: from files, and from a Hub on loopback through the real client."""

import json
import random
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from command_line import feval, told
from hub_double import Failure
from hub_settings import TOKEN
from huggingface_hub import HfApi, constants
from hypothesis import given, settings, strategies as st
from places import read_data
from small import full_disk, parquet

from feval.cards.cards import HubColumns, HubSource, dataset_card
from feval.cards.names import DatasetType
from feval.errors import (
    CardError,
    ConflictError,
    HubError,
    SourceError,
    StorageError,
    UnknownNameError,
    UsageError,
)
from feval.hub import question_files, snapshots
from feval.hub.client import cache_folder
from feval.hub.datasets import hub_questions, questions, questions_sha256, remarks, split_options
from feval.hub.snapshots import split_files
from feval.recording import Question

SIXTEEN = [str(name) for name in DatasetType]
REVISION = "0123456789abcdef0123456789abcdef01234567"
SUMS = """\
id: sums
title: Sums
group: arithmetic
answer_kind: number
questions: 2
first_question_id: sums/0
last_question_id: sums/1
questions_sha256: {sha256}
licence: CC0-1.0
citation: None.
hub:
  repository: us/sums
  config: null
  split: test
  revision: 0123456789abcdef0123456789abcdef01234567
  columns: {{question: [q], answer: a}}
example: {{question: '1 + 1?', raw_answer: '2', answer: '2'}}
"""
TWO_SUMS = b'{"q": "1 + 1?", "a": 2}\n{"q": " 2 + 2? ", "a": "4.0"}\n'
SUMS_SHA256 = questions_sha256(
    [Question("sums/0", "1 + 1?", "2"), Question("sums/1", "2 + 2?", "4")]
)


@pytest.fixture(autouse=True)
def cache(hub, tmp_path, monkeypatch):
    """The cache folder of the test; nobody is logged in."""
    monkeypatch.delenv("HF_TOKEN")
    return tmp_path / "cache"


@pytest.fixture
def sums(tmp_path, monkeypatch, hub):
    """A dataset of two questions, with a card of its own, on the Hub."""
    put_card(tmp_path, monkeypatch)
    hub.add_dataset("us/sums", {"README.md": b"# Sums\n", "test.jsonl": TWO_SUMS}, REVISION)
    return hub


def put_card(tmp_path, monkeypatch, *changes, sha256=SUMS_SHA256):
    facts = SUMS.format(sha256=sha256)
    for old, new in changes:
        assert old in facts
        facts = facts.replace(old, new)
    path = tmp_path / "cards" / "datasets" / "sums.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\n{facts}---\n\n# Sums\n", "utf-8")
    monkeypatch.setenv("FEVAL_CARDS", str(tmp_path / "cards"))


def shared_rows(shared, dataset_id):
    lines = (shared / "real/questions" / f"{dataset_id}.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def shared_questions(shared, dataset_id):
    return [
        (
            row["id"],
            row["question"],
            row["answer"],
            tuple((c["label"], c["text"]) for c in row.get("choices", ())),
        )
        for row in shared_rows(shared, dataset_id)
    ]


def fields(result):
    return [(question.id, question.text, question.answer, question.choices) for question in result]


def hub_row(dataset_id, row, number):
    """A question as the repository of the card has it: the columns of the Hub, with upstream's
    spelling of the gold.
    """
    choices, question, gold = row.get("choices", ()), row["question"], row["answer"]
    labels, texts = ([choice[name] for choice in choices] for name in ("label", "text"))
    if dataset_id == "gsm8k":
        return {"question": question, "answer": row["source_answer"]}
    if dataset_id == "commonsense_qa":
        both = {"label": labels, "text": texts}
        return {"question": question, "choices": both, "answerKey": gold, "id": row["source_id"]}
    if dataset_id == "aqua":
        blank = " " * (number % 50 == 0)  # some of upstream's options are written "A) 21"
        options = [f"{label}){blank}{text}" for label, text in zip(labels, texts, strict=True)]
        return {"question": question, "options": options, "correct": gold}
    if dataset_id == "math_500":
        return {"problem": question, "answer": gold, "unique_id": row["source_id"]}
    if dataset_id == "svamp":
        body, _, question = question.rpartition(". ")
        # upstream's bodies end without a full stop in a third of the rows
        own = {"Body": body + "." * (number % 3 > 0), "Question": question}
        return own | {"ID": row["source_id"], "Answer": str(row["source_answer"])}
    lines = [
        f"- {text}" if text == label else f"({label}) {text}"
        for label, text in zip(labels, texts, strict=True)
    ]
    options = ["\nOptions:", *(line + " " * (line == "- valid") for line in lines)]
    return {"input": question + "\n".join(options) * bool(lines), "target": row["source_answer"]}


def hub_files(dataset_id, rows):
    """The files of the repository as the Hub lays them out, among others that are not meant."""
    rows = [hub_row(dataset_id, row, number) for number, row in enumerate(rows)]
    shards = "{}-{:05}-of-00002.parquet"
    half = len(rows) // 2
    two = {
        0: parquet(rows[:half], compression="snappy"),
        1: parquet(rows[half:], row_group_size=50),
    }
    source = dataset_card(dataset_id).hub
    other = {
        "README.md": b"---\nlicense: mit\n---\n",
        "dataset_infos.json": b"{}",
        ".gitattributes": b"",
    }
    if dataset_id == "math_500":
        return {**other, "test.jsonl": b"".join(json.dumps(row).encode() + b"\n" for row in rows)}
    if dataset_id == "svamp":
        random.Random(7).shuffle(rows)  # noqa: S311 -- any order will do
        train, test = parquet(rows[:700]), parquet(rows[700:])
        return {
            **other,
            "data/train-00000-of-00001-0a1b.parquet": train,
            "data/test-00000-of-00001-2c3d.parquet": test,
        }
    folder = "data" if source.config == "default" else source.config
    named = {f"{folder}/{shards.format(source.split, shard)}": data for shard, data in two.items()}
    return {
        **other,
        **named,
        f"{folder}/train-00000-of-00001.parquet": b"no",
        f"other/{source.split}-0.parquet": b"no",
    }


@pytest.mark.parametrize("dataset_id", SIXTEEN)
def test_a_dataset_of_the_paper_comes_from_the_hub_as_it_is(dataset_id, shared, hub):
    source = dataset_card(dataset_id).hub
    hub.redirect = True
    hub.add_dataset(
        source.repository, hub_files(dataset_id, shared_rows(shared, dataset_id)), source.revision
    )
    result = questions(dataset_id)
    assert fields(result) == shared_questions(shared, dataset_id)
    assert questions_sha256(result) == dataset_card(dataset_id).questions_sha256
    assert all(question.answer_key is not None for question in result)
    count = len(hub.requests)
    assert questions(dataset_id) == result
    assert len(hub.requests) == count, "the second time, nothing is asked"


@pytest.mark.parametrize("dataset_id", SIXTEEN)
def test_a_dataset_of_the_paper_comes_from_a_file_as_it_is(dataset_id, shared):
    result = questions(dataset_id, source=shared / "real/questions" / f"{dataset_id}.jsonl")
    assert fields(result) == shared_questions(shared, dataset_id)


def test_what_was_fetched_once_needs_no_network(sums, cache, monkeypatch):
    first = questions("sums")
    assert fields(first) == [("sums/0", "1 + 1?", "2", ()), ("sums/1", "2 + 2?", "4", ())]
    assert sums.asked() == [
        f"GET /api/datasets/us/sums/revision/{REVISION}",
        f"POST /api/datasets/us/sums/paths-info/{REVISION}",
        f"HEAD /datasets/us/sums/resolve/{REVISION}/test.jsonl",
        f"GET /datasets/us/sums/resolve/{REVISION}/test.jsonl",
    ]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert questions("sums") == first
    assert len(sums.requests) == 4
    assert (cache / "questions" / f"us%2Fsums@{REVISION}@@test.json").exists()
    assert [path.name for path in cache.iterdir()] == ["questions"]


def test_another_revision_or_split_is_another_entry(sums, tmp_path):
    sums.add_dataset("us/sums", {"test.jsonl": TWO_SUMS, "train.jsonl": TWO_SUMS[:24]}, "f" * 40)
    source = HubSource(repository="us/sums", config=None, split="test", revision=REVISION)
    for other in (source, source.model_copy(update={"revision": "f" * 40})):
        assert [file.read_bytes() for file in question_files(other).values()] == [TWO_SUMS]
    both = source.model_copy(update={"revision": "f" * 40, "split": "train+test"})
    assert list(question_files(both)) == ["train.jsonl", "test.jsonl"]
    named = both.model_copy(update={"files": ("te*.jsonl",)})
    assert list(question_files(named)) == ["test.jsonl"]


def cached_file(cache):
    [path] = cache.glob("questions/*/snapshots/*/test.jsonl")
    return path


@pytest.mark.parametrize("damage", [TWO_SUMS[:-1], TWO_SUMS[:-1] + b"x", None])
def test_a_damaged_copy_is_fetched_again_once(sums, cache, damage):
    first = questions("sums")
    path = cached_file(cache)
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    assert questions("sums") == first
    assert path.read_bytes() == TWO_SUMS
    count = len(sums.requests)
    assert questions("sums") == first
    assert len(sums.requests) == count


@pytest.mark.parametrize("damage", [None, "{", "[3]", '{"test.jsonl": 3}', "{}"])
def test_a_damaged_list_of_files_is_fetched_again(sums, cache, damage):
    first = questions("sums")
    [path] = cache.glob("questions/*.json")
    path.unlink() if damage is None else path.write_text(damage)
    sums.forget()
    assert questions("sums") == first
    assert sums.asked() == [f"GET /api/datasets/us/sums/revision/{REVISION}"], (
        "the file itself is in the cache"
    )
    assert questions("sums") == first
    assert len(sums.requests) == 1


def test_a_damaged_copy_without_a_network_is_said(sums, cache, monkeypatch):
    questions("sums")
    cached_file(cache).write_bytes(b"something else")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(
        HubError, match=r"the network is off \(HF_HUB_OFFLINE\), and no sound copy is in"
    ):
        questions("sums")


def test_a_cache_folder_that_cannot_be_used_is_said(sums, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEVAL_CACHE", str(tmp_path / "file"))
    with pytest.raises(StorageError, match=r"could not be kept in .*FEVAL_CACHE"):
        questions("sums")


def test_a_full_disk_is_said(sums, cache, monkeypatch):
    monkeypatch.setattr(HfApi, "hf_hub_download", full_disk)
    with pytest.raises(
        StorageError, match=r"kept in .*: No space left on device\. Name a folder .*FEVAL_CACHE"
    ):
        questions("sums")


def test_several_may_fetch_the_same_at_once(sums, cache):
    with ThreadPoolExecutor(8) as pool:
        result = list(pool.map(lambda _: fields(questions("sums")), range(8)))
    assert result == [result[0]] * 8


def test_the_cache_folder_is_the_users_or_the_platforms(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("FEVAL_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "feval"


def test_no_name_in_a_card_leaves_the_cache_folder(sums, cache):
    sums.add_dataset("us/sums", {"../../../evil.jsonl": TWO_SUMS, "a.jsonl": TWO_SUMS}, REVISION)
    source = HubSource(
        repository="us/sums", config="../..", split="/../x", revision=REVISION, files=("a.jsonl",)
    )
    assert len(question_files(source)) == 1
    assert [path.name for path in cache.iterdir()] == ["questions"]
    assert {path.name for path in cache.parent.iterdir()} <= {"cache", "cards", "hf-home"}
    with pytest.raises(HubError):
        question_files(source.model_copy(update={"files": ("*evil*",)}))
    assert not list(cache.parent.parent.glob("evil*"))


def test_without_a_pinned_revision_nothing_is_fetched(hub):
    with pytest.raises(HubError, match=r"pins no commit of tasksource/bigbench .*source=FILE"):
        question_files(
            HubSource(repository="tasksource/bigbench", config=None, split="train", revision=None)
        )
    with pytest.raises(
        CardError, match="'bigbench_date' is on the Hub, and its card does not say how"
    ):
        questions("bigbench_date")
    with pytest.raises(CardError, match=r"'last_letters' is not on the Hub. Pass a file"):
        questions("last_letters")
    assert hub.requests == []


@pytest.mark.parametrize("word", ["1", "true", "ON"])
def test_offline_and_not_cached_is_said_at_once(sums, monkeypatch, word):
    monkeypatch.setenv("HF_HUB_OFFLINE", word)
    with pytest.raises(
        HubError,
        match=r"us/sums at commit 0123456789ab .*HF_HUB_OFFLINE.*no sound copy.*source=FILE",
    ):
        questions("sums")
    assert sums.requests == []


def test_an_unreachable_hub_is_said_at_once(sums, monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv(
            "HF_ENDPOINT", f"http://user:{TOKEN}@127.0.0.1:{unused.getsockname()[1]}"
        )
        with pytest.raises(
            HubError,
            match=r"from the Hub \(127.0.0.1\): the Hub cannot be reached, and no sound copy is in",
        ) as caught:
            questions("sums")
    assert TOKEN not in str(caught.value)


def test_what_the_hub_does_not_have_is_said(sums):
    here = HubSource(repository="us/sums", config=None, split="test", revision=REVISION)
    with pytest.raises(HubError, match=r"the Hub shows no such repository.*Correct the card"):
        question_files(here.model_copy(update={"repository": "us/nothing"}))
    with pytest.raises(HubError, match="the repository but no such commit"):
        question_files(here.model_copy(update={"revision": "e" * 40}))
    with pytest.raises(
        HubError,
        match=(
            r"No files of config None and split 'dev' .* its data files are test.jsonl. Name them"
        ),
    ):
        question_files(here.model_copy(update={"split": "dev"}))
    with pytest.raises(HubError, match="no repository can have that name"):
        question_files(here.model_copy(update={"repository": "us--nothing"}))
    assert len(sums.requests) == 3, "none of these is worth another attempt"


def test_a_gated_repository_needs_a_token_that_is_never_shown(sums, monkeypatch):
    sums.gated.add("us/sums")
    with pytest.raises(
        HubError,
        match=r"access to it is restricted.*huggingface.co/datasets/us/sums.*hf auth login",
    ):
        questions("sums")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert len(questions("sums")) == 2
    assert {request.token for request in sums.requests[1:]} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_passing_failure_is_met_by_another_attempt(sums, status):
    sums.failures = [Failure(status, "/api/"), Failure(status, "/api/", (("Retry-After", "0"),))]
    assert len(questions("sums")) == 2
    assert len(sums.asked("/revision/")) == 3


@pytest.mark.parametrize(
    ("failure", "attempts", "words"),
    read_data("hub.json")["failures that stay"],
)  # fmt: skip
def test_a_failure_that_stays_is_said(sums, failure, attempts, words):
    sums.failures = [Failure(*failure)] * 9
    with pytest.raises(HubError, match=words):
        questions("sums")
    assert len(sums.asked("/revision/")) == attempts


def test_a_hub_that_does_not_answer_is_given_up(sums, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.05)
    sums.delay_seconds = 60
    with pytest.raises(HubError, match=r"did not answer in time \(HF_HUB_ETAG_TIMEOUT.*Try later"):
        questions("sums")
    assert len(sums.requests) == 3


def test_wrong_bytes_are_fetched_again_and_then_refused(sums, cache):
    sums.wrong_bytes["test.jsonl"] = 1
    assert len(questions("sums")) == 2
    source = HubSource(repository="us/sums", config=None, split="test", revision="e" * 40)
    sums.add_dataset("us/sums", {"test.parquet": parquet([{"q": "1 + 1?", "a": "2"}])}, "e" * 40)
    sums.wrong_bytes["test.parquet"] = 9
    with pytest.raises(HubError, match=r"test.parquet of .* came twice .* with other bytes than"):
        question_files(source)


def test_a_download_that_breaks_off_is_finished(sums, monkeypatch):
    sums.cut["test.jsonl"] = 2
    sums.failures = [Failure(503, "/resolve/"), Failure(429, "/resolve/", (("Retry-After", "0"),))]
    assert len(questions("sums")) == 2


def test_a_split_of_too_many_bytes_is_refused(sums, monkeypatch):
    monkeypatch.setattr(snapshots, "MAX_BYTES", 10)
    with pytest.raises(HubError, match="has 54 bytes; at most 10 are fetched"):
        questions("sums")


def test_a_difference_from_the_card_is_said(sums, tmp_path, monkeypatch):
    changes = (
        ("questions: 2", "questions: 3"),
        ("last_question_id: sums/1", "last_question_id: sums/2"),
    )
    put_card(tmp_path, monkeypatch, *changes)
    with pytest.raises(
        SourceError,
        match=r"2 questions instead of 3; the last id is 'sums/1' instead of 'sums/2'.*FEVAL_CARDS",
    ):
        questions("sums")
    put_card(tmp_path, monkeypatch, sha256="0" * 64)
    with pytest.raises(
        SourceError,
        match=rf"us/sums on the Hub .*number and ids agree.*SHA-256 is {SUMS_SHA256} instead of 00",
    ):
        questions("sums")


def test_a_dataset_of_ones_own_needs_a_file_and_an_answer_kind(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text(
        '{"question": "1 + 1?", "answer": 2}\n{"question": "1 / 3?", "answer": "no'
        ' idea"}\n{"question": "?"}\n'
    )
    result = questions("mine", source=path, answer_kind="number")
    keys = {question.id: question.answer_key for question in result}
    assert keys == {"mine/0": "2", "mine/1": None, "mine/2": None}
    assert remarks(result) == [
        "Questions with no gold answer, which accuracies need: 1 (mine/2).",
        (
            "Questions with a gold answer that their answer kind cannot read, as accuracies need: 1"
            " (mine/1)."
        ),
    ]
    with pytest.raises(UsageError, match=r"no card for the dataset 'mine'.*answer_kind="):
        questions("mine", source=path)
    with pytest.raises(UnknownNameError, match="no answer kind 'numbers'"):
        questions("mine", source=path, answer_kind="numbers")
    with pytest.raises(
        UnknownNameError, match=r"no dataset card 'mine'.* source=FILE, answer_kind=KIND"
    ):
        questions("mine", answer_kind="number")


def test_a_broken_file_is_said(tmp_path):
    path = tmp_path / "mine.jsonl"
    for text, error, words in (
        ('{"id": 1, "question": "a"}\n{"id": 1, "question": "b"}\n', ConflictError, "id '1'"),
        ('{"id": 1, "question": ""}\n', SourceError, "no text for the question '1'"),
        ('{"question"\n', SourceError, "not valid JSON"),
        ("subject,index,answer\nx,0,A\n", SourceError, "has no text"),
    ):
        path.write_text(text)
        with pytest.raises(error, match=words):
            questions("mine", source=path, answer_kind="text")
    with pytest.raises(SourceError, match="there is nothing"):
        questions("mine", source=tmp_path / "absent.jsonl", answer_kind="text")


def test_golds_that_are_no_option_are_said(shared):
    [sentence] = remarks(
        questions("bbh_ruin_names", source=shared / "real/questions/bbh_ruin_names.jsonl")
    )
    assert "none of their options" in sentence
    assert "2 (bbh_ruin_names/99, bbh_ruin_names/144)" in sentence


def columns(**fields):
    return HubColumns.model_validate({"question": ["q"], "answer": "a", **fields})


def one(row, kind="text", form=None, **fields):
    if form:
        fields["choices"] = {"column": "q" if form == "in-question" else "c", "form": form}
    [result] = hub_questions("d", [row], columns(**fields), kind)
    return result.text, result.gold, result.choices


def test_golds_are_read_as_the_card_says():
    assert one({"q": " a ", "a": " x "}) == ("a", "x", ())
    assert one({"q": "a", "a": None}) == ("a", None, ())
    assert one({"q": "a", "a": True}, "yes-no") == ("a", "yes", ())
    assert one({"q": "a", "a": "51.0"}, "number") == ("a", "51", ())
    assert one({"q": "a", "a": 1e21}, "number") == ("a", "1000000000000000000000", ())
    assert one({"q": "a", "a": "no idea"}, "number") == ("a", "no idea", ())
    assert one({"q": "a", "a": "1 #### 2 #### 3,000"}, "number", answer_after="####") == (
        "a",
        "3000",
        (),
    )
    assert one({"q": "a", "a": "(B)"}) == ("a", "(B)", ())


def test_columns_are_put_together_as_sentences():
    for body in ("Ann has 3", "Ann has 3.", " Ann has 3. "):
        assert (
            one({"b": body, "q": "How many?", "a": "3"}, question=["b", "q"])[0]
            == "Ann has 3. How many?"
        )
    assert one({"b": "Who?", "q": "Ann", "a": "3"}, question=["b", "q"])[0] == "Who? Ann"
    assert one({"b": "", "q": "Ann", "a": "3"}, question=["b", "q"])[0] == "Ann"


def test_options_are_read_in_each_form():
    both = (("A", "x"), ("B", "y"))
    structs = [{"label": "A", "text": "x "}, {"label": "B", "text": "y"}]
    lists = {"label": ["A", "B"], "text": ["x", " y"]}
    for form, gold, value, label in (
        ("labelled", "B", structs, "B"),
        ("labelled", "B", lists, "B"),
        ("marked", "B", ["A)x", "(B) y"], "B"),
        ("plain", 1, ["x", "y"], "B"),
        ("plain", "A", ["x", "y"], "A"),
    ):
        assert one({"q": "?", "a": gold, "c": value}, "choice", form) == ("?", label, both)
    row = {"q": "Options: two.\nOptions:\n(A) x\n(B) y", "a": "(B)"}
    assert one(row, "choice", "in-question") == ("Options: two.", "B", both)


@pytest.mark.parametrize(("row", "fields", "words"), read_data("cards.json")["rows"])
def test_a_row_of_another_shape_is_said(row, fields, words):
    fields = {"form": fields} if isinstance(fields, str) else fields
    with pytest.raises(SourceError, match=words):
        one(row, "choice", **fields)


def test_rows_are_put_in_the_order_of_a_column():
    rows = [{"q": f"{number}?", "a": "1", "n": f"chal-{number}"} for number in (10, 9, 100)]
    result = hub_questions("d", rows, columns(order="n"), "number")
    assert [(question.id, question.text) for question in result] == [
        ("d/0", "9?"), ("d/1", "10?"), ("d/2", "100?"),
    ]  # fmt: skip
    with pytest.raises(SourceError, match="the number 10 twice in 'n'"):
        hub_questions("d", [*rows, rows[0]], columns(order="n"), "number")


LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=30).map(
    str.strip
)
LABEL = st.from_regex(r"[A-Za-z0-9]{1,3}", fullmatch=True)


@settings(max_examples=100, deadline=None)
@given(
    question=st.text(st.characters(exclude_categories=["Cs"]), max_size=60).map(str.strip),
    options=st.lists(st.tuples(LABEL, LINE), unique_by=lambda option: option[0], max_size=12),
    blanks=st.sampled_from(["", " ", "\t "]),
)
def test_options_that_were_written_are_read_back(question, options, blanks):
    written = (
        question
        + "\nOptions:\n"
        + "\n".join(f"({label}) {text}{blanks}" for label, text in options)
    )
    assert split_options(written, "here") == (question, tuple(options))


def test_the_files_of_a_split_are_found_by_their_names():
    paths = [
        "README.md", "main/test-00001-of-00002.parquet", "main/test-00000-of-00002.parquet",
        "main/train-00000-of-00001.parquet",
        "socratic/test-00000-of-00001.parquet", "data/validation-00000-of-00001-ab12.parquet",
        "test.jsonl", "test.parquet",
        "raw/test/0000.parquet", "testing.jsonl", "dataset_infos.json",
    ]  # fmt: skip
    both = ["main/test-00000-of-00002.parquet", "main/test-00001-of-00002.parquet"]
    assert split_files(paths, "main", "test") == both
    assert split_files(paths, "main", "train+test") == ["main/train-00000-of-00001.parquet", *both]
    assert split_files(paths, "default", "validation") == [
        "data/validation-00000-of-00001-ab12.parquet"
    ]
    assert split_files(paths, None, "test") == ["test.parquet"]
    assert split_files(paths, "raw", "test") == ["raw/test/0000.parquet"]
    assert split_files(paths, "main", "test+dev") == []
    assert split_files(paths, "main", "test", ["test.*", "main/train-*"]) == [
        "test.jsonl", "test.parquet", "main/train-00000-of-00001.parquet",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("test.parquet", b"PAR1 or not", "is a damaged Parquet file"),
        ("test.json", b"[1]", "Row 1 of test.json should be an object"),
        ("test.jsonl", b"{", "not valid JSON"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_said(sums, name, data, words):
    sums.add_dataset("us/sums", {name: data}, REVISION)
    with pytest.raises(SourceError, match=words):
        questions("sums")


def test_one_json_array_is_read_too(sums):
    rows = [json.loads(line) for line in TWO_SUMS.splitlines()]
    sums.add_dataset("us/sums", {"test.json": json.dumps(rows, indent=1).encode()}, REVISION)
    assert len(questions("sums")) == 2


@pytest.fixture
def folder(sums, tmp_path, monkeypatch):
    """Where commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_fetches_shows_and_exports(folder, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    exported = feval("ls questions sums --out sums.jsonl")
    assert (exported.exit_code, exported.stderr) == (0, "")
    assert "2 questions" in exported.stdout
    assert "1 + 1?" in exported.stdout
    assert TOKEN not in exported.stdout
    lines = (folder / "sums.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["answer"] for line in lines] == ["2", "4"]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    account = told("ls questions sums --questions sums.jsonl")
    assert (account["count"], account["sha256"]) == (2, SUMS_SHA256)
    second = {"id": "sums/1", "question": "2 + 2?", "answer": "4", "answer_key": "4", "choices": []}
    assert account["questions"][1] == second | {"features": {}}
