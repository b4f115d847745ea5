"""A local model as a backend, with a small random Llama that is made here: no network."""

import math
from collections import Counter
from dataclasses import replace

import pytest
import recording_doubles

from feval.errors import OutOfRangeError, SourceError, UsageError
from recorders.errors import Fatal, RefusalError
from recorders.request import Decoding, Message, Prefill, Request

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")

from recorders.backends.local import TransformersLocal  # noqa: E402  after the skips

WORDS = ["<end>", *"abcdefghijklm"]
TEMPLATE = "{% for m in messages %}{{ m['content'] }} {% endfor %}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, "a"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=WORDS[0])
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,
        eos_token_id=0,
        pad_token_id=None,
        bos_token_id=None,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def request(*texts, **decoding):
    messages = tuple(Message("user", text) for text in texts or ("a b c",))
    return Request(
        "toy",
        "q1",
        messages,
        "some/llama",
        Decoding(**({"temperature": 1.0, "max_tokens": 12} | decoding)),
    )


def complete(folder, asked, samples=(0,), notes=None, batch=16):
    note = ([] if notes is None else notes).append
    backend = TransformersLocal(
        str(folder), device="cpu", batch=batch, local_files_only=True, note=note
    )
    return recording_doubles.completions(backend, asked, samples)


def test_a_sample_does_not_depend_on_what_it_is_drawn_with(folder):
    together = complete(folder, request(), range(12))
    assert complete(folder, request(), range(12), batch=5) == together
    assert [complete(folder, request(), [index])[0] for index in (0, 7)] == [
        together[0],
        together[7],
    ]
    assert len({completion.text for completion in together}) > 6


def test_the_seed_counts_on(folder):
    assert complete(folder, request(seed=5), [0, 1]) == complete(folder, request(), [5, 6])


def test_ends_and_limits_are_told_apart_and_counted(folder):
    completions = complete(folder, request(), range(60))
    for completion in completions:
        words = len(completion.text.split())
        if completion.finish_reason == "stop":
            assert completion.output_tokens == words + 1  # the end token is billed
        else:
            assert (completion.finish_reason, completion.output_tokens) == ("length", 12)
    assert {completion.finish_reason for completion in completions} == {"stop", "length"}
    assert {completion.prompt_tokens for completion in completions} == {3}


def test_log_probabilities_are_the_models_own(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    numbers = {word: number for number, word in enumerate(WORDS)}
    for completion in complete(folder, request(logprobs=3, temperature=0.7, top_p=0.9), range(4)):
        tokens = [numbers[word] for word in completion.text.split()] + [0] * (
            completion.finish_reason == "stop"
        )
        with torch.inference_mode():
            logits = model(torch.tensor([[1, 2, 3, *tokens]])).logits[0, 2:-1]
        logprobs = torch.log_softmax(logits, dim=-1)
        expected = logprobs[range(len(tokens)), tokens].tolist()
        assert completion.token_logprobs == pytest.approx(expected, abs=1e-4)
        assert completion.token_confidences == pytest.approx(
            (-logprobs.topk(3).values.mean(-1)).tolist(), abs=1e-4
        )


def test_log_probabilities_are_there_only_when_asked_for(folder):
    [plain], [sampled] = complete(folder, request()), complete(folder, request(logprobs=0))
    assert (plain.token_logprobs, plain.token_confidences) == (None, None)
    assert len(sampled.token_logprobs or ()) == sampled.output_tokens
    assert sampled.token_confidences is None


def test_first_tokens_follow_the_softmax(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.inference_mode():
        shares = torch.softmax(
            model(torch.tensor([[1, 2, 3]])).logits[0, -1] / 0.8, dim=-1
        ).tolist()
    draws = 3000
    completions = complete(folder, request(max_tokens=1, temperature=0.8), range(draws), batch=1000)
    counts = Counter(completion.text or WORDS[0] for completion in completions)
    found, expected = [counts[word] for word in WORDS], [draws * share for share in shares]
    chi_square = sum((a - b) ** 2 / b for a, b in zip(found, expected, strict=True))
    assert chi_square < 40  # 13 degrees of freedom: beyond 40 by chance once in 10,000 times


def test_temperature_zero_takes_the_likeliest(folder):
    assert (
        len(
            {completion.text for completion in complete(folder, request(temperature=0.0), range(5))}
        )
        == 1
    )


def test_top_p_leaves_out_the_tail(folder):
    wide = {
        completion.text
        for completion in complete(folder, request(max_tokens=1), range(300), batch=300)
    }
    narrow = {
        completion.text
        for completion in complete(folder, request(max_tokens=1, top_p=0.3), range(300), batch=300)
    }
    assert narrow < wide


def test_a_stop_text_ends_the_answer_and_is_not_part_of_it(folder):
    completions = complete(folder, request(logprobs=2), range(40))
    whole = next(completion for completion in completions if len(set(completion.text.split())) >= 4)
    index = completions.index(whole)
    stop = whole.text.split()[3]
    cut = complete(folder, request(logprobs=2, stop=(stop,)), range(40))[index]
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.finish_reason == "stop"
    assert len(cut.token_logprobs or ()) == len(cut.token_confidences or ()) == cut.output_tokens


def test_without_a_chat_template_that_is_said(folder, tmp_path):
    for file in folder.iterdir():
        if "template" not in file.name:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    notes = []
    [completion] = complete(tmp_path, request("a b", "c"), notes=notes)
    assert completion.prompt_tokens == 3
    assert ["no chat template" in note for note in notes] == [True]


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        (request(" ".join("a" * 64)), RefusalError),
        (request(temperature=-1.0), Fatal),
        (request(temperature=math.inf), Fatal),
        (request(top_p=0.0), Fatal),
        (request(extra_body={"min_p": 0.1}), Fatal),
    ],
)
def test_what_cannot_work_is_said(folder, asked, kind):
    with pytest.raises(kind):
        complete(folder, asked)


def test_a_model_that_cannot_be_loaded_is_said(tmp_path):
    with pytest.raises(SourceError, match="could not be loaded"):
        TransformersLocal(str(tmp_path), local_files_only=True)


def test_wrong_settings_are_said(folder):
    with pytest.raises(OutOfRangeError):
        TransformersLocal(str(folder), batch=0)
    with pytest.raises(UsageError, match="no number type 'float99'"):
        TransformersLocal(str(folder), dtype="float99")


def test_the_beginning_of_a_reply_is_continued(folder):
    whole, *_ = complete(folder, request(temperature=0.0, max_tokens=8))
    begun = Prefill(" ".join(whole.text.split()[:3]))
    [rest] = complete(
        folder, replace(request(temperature=0.0, max_tokens=5, logprobs=0), prefill=begun)
    )
    assert f"{begun.text} {rest.text}" == whole.text
    assert rest.prompt_tokens == 6


def test_the_tokenizer_says_what_each_token_wrote(folder):
    backend = TransformersLocal(str(folder), device="cpu", local_files_only=True)
    assert backend.token_lengths("some/llama", "a b  c") == (1, 2, 3)
    assert backend.token_lengths("some/llama", "") == ()
