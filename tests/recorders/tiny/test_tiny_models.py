"""The tiny models: the forward pass equals PyTorch's, draws follow the softmax, a sample depends on
its name only.
"""

import json
import math
from collections import Counter
from hashlib import sha256

import numpy as np
import pytest
from places import DATA
from scipy import stats
from splitmix import GOLDEN_RATIO, mix
from tiny_export import export
from tiny_recipes import arrays, parameters

from feval.errors import OutOfRangeError, UnknownNameError
from recorders.shared_noise import exponentials
from recorders.tiny import FAMILY, TinyDecoding, TinyModel, load_model, problems, sample, tokenizer
from recorders.tiny.model import END, PAD, Shape, weights_file

QUESTIONS = problems.test_questions()
GOLDEN = DATA / "tiny_logits.npz"  # made by tiny_logits.py
NAMES = list(FAMILY)
SMALLEST = NAMES[0]
SHAPE = Shape(width=16, layers=2, heads=2, hidden=24)


def whole(number):
    """The tokens of a test question and its right answer."""
    return tokenizer().prompt(QUESTIONS[number].question) + tokenizer().completion(
        QUESTIONS[number].chain
    )


def random_weights(shape, seed=0):
    """Weights far larger than trained ones begin: every part of the model matters."""
    bits = np.random.Philox(key=seed)
    uniform = {
        name: (bits.random_raw(int(np.prod(size))) >> 11) * 2.0**-53
        for name, size in arrays(shape).items()
    }
    return {
        name: (uniform[name].reshape(size) - (0.5 if len(size) == 2 else 0.0)).astype(np.float16)
        for name, size in arrays(shape).items()
    }


@pytest.fixture(scope="module")
def random_model():
    """A model whose every token is likely: one for tests of distributions."""
    return TinyModel("random", SHAPE, random_weights(SHAPE))


def all_logits(model, rows):
    """The logits [rows, length, vocabulary] of every next token, without a cache."""
    return np.asarray(
        [[model.read(row[:end]).logits for end in range(1, len(row) + 1)] for row in rows]
    )


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def same(left, right):
    return all(
        a.text == b.text
        and a.tokens.tolist() == b.tokens.tolist()
        and a.finish_reason == b.finish_reason
        and np.allclose(a.logprobs, b.logprobs, rtol=0, atol=1e-12)
        for a, b in zip(left, right, strict=True)
    )


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_that_transformers_computed(name):
    with np.load(GOLDEN, allow_pickle=False) as file:
        rows, wanted = file["tokens"].tolist(), file[name]
    computed = np.stack(
        [
            all_logits(load_model(name), [row])[0, -len(logits) :]
            for row, logits in zip(rows, wanted, strict=True)
        ]
    )
    assert np.abs(computed - wanted).max() < 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_the_training_script(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    import tiny_training as train

    with weights_file(name) as path:
        weights = train.read(path)
    with torch.no_grad():
        wanted = train.logits(weights, FAMILY[name], torch.tensor([whole(0)])).numpy()
    assert np.abs(all_logits(load_model(name), [whole(0)]) - wanted).max() < 1e-4


def test_the_cache_gives_what_the_full_pass_gives(random_model):
    prompt, answers = whole(1)[:20], np.asarray([whole(2)[:12], whole(3)[:12], whole(4)[:12]])
    full = all_logits(random_model, [prompt + answer for answer in answers.tolist()])
    read = random_model.read(prompt)
    assert np.allclose(read.logits, full[0, 19], rtol=0, atol=1e-10)
    cache = random_model.begin(read, rows=3, room=12)
    for position in range(12):
        assert np.allclose(
            random_model.step(cache, answers[:, position]),
            full[:, 20 + position],
            rtol=0,
            atol=1e-10,
        )


def test_rows_can_be_dropped_from_the_cache(random_model):
    read = random_model.read(whole(0)[:9])
    all_rows, some_rows = random_model.begin(read, 5, 3), random_model.begin(read, 5, 3)
    first, second = np.array([7, 8, 9, 10, 11]), np.array([20, 21, 22, 23, 24])
    random_model.step(all_rows, first)
    random_model.step(some_rows, first)
    kept = some_rows.keep(np.array([False, True, False, True, True]))
    assert sorted(kept.tolist()) == [1, 3, 4]
    expected = random_model.step(all_rows, second)[kept]
    assert np.allclose(random_model.step(some_rows, second[kept]), expected, rtol=0, atol=1e-12)


def test_more_tokens_than_the_context_holds_are_refused(random_model):
    with pytest.raises(OutOfRangeError, match=r"257 tokens.*its context holds 256"):
        random_model.read([7] * 256)
    with pytest.raises(OutOfRangeError, match="its context holds 256"):
        sample(random_model, "9" * 300, range(2))


def test_names_tell_the_number_of_parameters():
    for name, shape in FAMILY.items():
        assert round(parameters(shape) / 1000) == pytest.approx(
            int(name.removeprefix("feval/tiny-")[:-1]), abs=3
        )


def test_weights_are_float16_and_small():
    total = 0
    for name, shape in FAMILY.items():
        with weights_file(name) as path:
            total += path.stat().st_size
            weights = np.load(path)
            assert {key: value.shape for key, value in weights.items()} == arrays(shape)
            assert {value.dtype for value in weights.values()} == {np.dtype(np.float16)}
    assert total < 1_000_000


def test_an_unknown_model_is_named_with_the_nearest():
    with pytest.raises(UnknownNameError, match=f"Did you mean {SMALLEST!r}"):
        load_model(SMALLEST.replace("feval/", "feval/a"))


def chi_square(drawn, probabilities):
    """The p-value of draws against exact probabilities; tokens expected fewer than five times are
    one cell.
    """
    counts = np.bincount(drawn, minlength=len(probabilities))
    assert not counts[probabilities == 0].any()
    expected = probabilities * len(drawn)
    rare = expected < 5
    cells = [np.append(values[~rare], values[rare].sum()) for values in (counts, expected)]
    if cells[1][-1] == 0:
        cells = [cell[:-1] for cell in cells]
    return float(stats.chisquare(*cells).pvalue)


@pytest.mark.parametrize(
    ("temperature", "top_p"), [(1.0, 1.0), (0.5, 1.0), (2.0, 1.0), (1.0, 0.7), (1.5, 0.4)]
)
def test_draws_follow_the_softmax(random_model, temperature, top_p):
    question = "How many?"
    logits = all_logits(random_model, [tokenizer().prompt(question)])[0, -1]
    probabilities = np.exp(log_softmax(logits / temperature))
    if top_p < 1:  # the definition, token by token
        kept, mass = [], 0.0
        for token in sorted(range(len(probabilities)), key=lambda token: -probabilities[token]):
            if mass < top_p:
                kept.append(token)
                mass += probabilities[token]
        probabilities = (
            np.array([p if token in kept else 0.0 for token, p in enumerate(probabilities)]) / mass
        )
    drawn = sample(
        random_model,
        question,
        range(20_000),
        TinyDecoding(temperature=temperature, top_p=top_p, max_tokens=1),
    )
    assert chi_square([int(completion.tokens[0]) for completion in drawn], probabilities) > 0.001


def test_later_tokens_follow_the_softmax_given_the_earlier_ones(random_model):
    question = "How many?"
    drawn = sample(random_model, question, range(20_000), TinyDecoding(max_tokens=2))
    first = Counter(int(completion.tokens[0]) for completion in drawn)
    first.pop(END, None)
    token, _ = first.most_common(1)[0]
    probabilities = np.exp(
        log_softmax(all_logits(random_model, [[*tokenizer().prompt(question), token]])[0, -1])
    )
    second = [int(completion.tokens[1]) for completion in drawn if completion.tokens[0] == token]
    assert len(second) > 200
    assert chi_square(second, probabilities) > 0.001


def test_the_noise_is_exponential_at_every_position():
    keys, tokens = np.random.Philox(key=1).random_raw(100), np.arange(1, 144, dtype=np.uint64)
    noise = {
        position: exponentials(
            keys[:, None] + (tokens + np.uint64(position << 16)) * np.uint64(GOLDEN_RATIO)
        )
        for position in (0, 1, 200)
    }
    for numbers in noise.values():
        assert numbers.min() > 0
        assert stats.kstest(numbers.ravel(), "expon").pvalue > 0.001
    assert np.intersect1d(noise[0], noise[1]).size == 0


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_random_numbers_are_those_of_the_documented_scheme(random_model, temperature):
    question, seed, index = "Wie viele Äpfel?", 7, 3
    decoding = TinyDecoding(temperature=temperature, seed=seed, stream="a stream", max_tokens=12)
    [completion] = sample(random_model, question, [index], decoding)
    name = f'["feval-tiny-noise-1", "a stream", {seed}, "Wie viele \\u00c4pfel?"]'
    start = int.from_bytes(sha256(name.encode()).digest()[:8], "little")
    key = mix(start + (index + 1) * GOLDEN_RATIO)
    tokens = tokenizer().prompt(question)
    for position, drawn in enumerate(completion.tokens.tolist()):
        logits = all_logits(random_model, [tokens])[0, -1] / temperature
        bits = [mix(key + (position * 65536 + v + 1) * GOLDEN_RATIO) >> 12 for v in range(143)]
        arrivals = [
            -math.log((bit + 0.5) / 2**52) / math.exp(logit)
            for bit, logit in zip(bits, logits, strict=True)
        ]
        assert drawn == arrivals.index(min(arrivals))
        tokens.append(drawn)


@pytest.mark.parametrize("temperature", [0.0, 1e-9, 1e-320])
def test_temperature_zero_or_next_to_it_takes_the_likeliest_token(temperature):
    model = load_model(SMALLEST)
    [first, second] = sample(
        model, QUESTIONS[0].question, range(2), TinyDecoding(temperature=temperature)
    )
    prompt = tokenizer().prompt(QUESTIONS[0].question)
    likeliest = all_logits(model, [prompt + first.tokens.tolist()])[0, len(prompt) - 1 : -1].argmax(
        axis=-1
    )
    assert first.tokens.tolist() == likeliest.tolist() == second.tokens.tolist()


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_log_probabilities_are_the_models_own(temperature):
    model = load_model(SMALLEST)
    prompt = tokenizer().prompt(QUESTIONS[3].question)
    decoding = TinyDecoding(temperature=temperature, top_p=0.9, top_logprobs=5)
    for completion in sample(model, QUESTIONS[3].question, range(8), decoding):
        exact = log_softmax(
            all_logits(model, [prompt + completion.tokens.tolist()])[0, len(prompt) - 1 : -1]
        )
        drawn = np.take_along_axis(exact, completion.tokens[:, None], -1)[:, 0]
        assert np.allclose(completion.logprobs, drawn, rtol=0, atol=1e-10)
        best = -np.sort(-exact, axis=-1)[:, :5]
        assert np.allclose(completion.top_logprobs, best, rtol=0, atol=1e-10)
        assert np.allclose(
            np.take_along_axis(exact, completion.top_tokens, -1), best, rtol=0, atol=1e-10
        )


def test_no_likeliest_tokens_are_reported_unless_asked_for():
    [completion] = sample(load_model(SMALLEST), QUESTIONS[0].question, [0])
    assert completion.top_tokens.shape == (completion.output_tokens, 0)


def test_a_sample_is_the_same_alone_and_with_others():
    model, question = load_model(SMALLEST), QUESTIONS[5].question
    together = sample(model, question, range(150))  # two batches
    assert same(together, sample(model, question, range(150)))
    assert same(together[:40], sample(model, question, range(40)))
    assert same([together[149], together[3]], sample(model, question, [149, 3]))
    assert same(together[:6], [sample(model, question, [index])[0] for index in range(6)])


def test_an_answer_stops_or_runs_out_of_tokens():
    model, question = load_model(NAMES[-1]), QUESTIONS[0].question
    [stopped] = sample(model, question, [0])
    assert stopped.finish_reason == "stop"
    assert stopped.tokens[-1] == END
    assert stopped.output_tokens == len(stopped.tokens) == len(stopped.logprobs)
    assert stopped.prompt_tokens == len(tokenizer().prompt(question))
    assert stopped.text == tokenizer().decode(stopped.tokens.tolist()).strip()
    [cut] = sample(model, question, [0], TinyDecoding(max_tokens=stopped.output_tokens - 1))
    assert cut.finish_reason == "length"
    assert cut.tokens.tolist() == stopped.tokens.tolist()[:-1]
    [exact] = sample(model, question, [0], TinyDecoding(max_tokens=stopped.output_tokens))
    assert exact.finish_reason == "stop"


def test_an_answer_ends_where_the_context_ends(random_model):
    never = random_weights(SHAPE)
    model = TinyModel(
        "endless", SHAPE, never | {"model.norm.weight": np.zeros(16)}
    )  # every token as likely: seldom `<end>`
    drawn = sample(model, "1" * 236, range(30), TinyDecoding(max_tokens=200))
    assert {
        completion.output_tokens for completion in drawn if completion.finish_reason == "length"
    } == {256 - 239}


def test_no_samples_are_no_answers():
    assert sample(load_model(SMALLEST), QUESTIONS[0].question, []) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": -0.1}, {"temperature": float("nan")}, {"temperature": float("inf")},
        {"top_p": 0.0}, {"top_p": 1.1},
        {"max_tokens": 0}, {"top_logprobs": -1}, {"top_logprobs": 144},
    ],
)  # fmt: skip
def test_decoding_that_means_nothing_is_refused(fields):
    with pytest.raises(OutOfRangeError):
        TinyDecoding(**fields)  # type: ignore[arg-type]


def test_negative_sample_numbers_are_refused():
    with pytest.raises(OutOfRangeError, match="numbered from 0; number -1"):
        sample(load_model(SMALLEST), QUESTIONS[0].question, [0, -1])


def test_any_text_can_be_asked():
    for question in ("", "\ud800 \x00 é 漢字", "<end><answer>"):
        [completion] = sample(load_model(SMALLEST), question, [0], TinyDecoding(max_tokens=5))
        assert completion.output_tokens <= 5


def test_padding_and_prompts_carry_no_loss():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    import tiny_training as train

    batch, answer = train._padded([([5, 6, 7, END], 2), ([5, 6, 7, 8, 9, END], 4)])
    assert batch.tolist() == [[5, 6, 7, END, PAD, PAD], [5, 6, 7, 8, 9, END]]
    assert torch.equal(
        answer, torch.tensor([[0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1]], dtype=torch.bool)
    )


def test_an_exported_folder_holds_the_weights_in_safetensors(tmp_path):
    out = export(SMALLEST, tmp_path / "model")
    content = (out / "model.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    with weights_file(SMALLEST) as path:
        weights = np.load(path)
        assert set(header) == {"__metadata__", *weights}
    for key, array in weights.items():
        start, end = (8 + size + place for place in header[key]["data_offsets"])
        assert content[start:end] == array.astype("<f2").tobytes()
    config = json.loads((out / "config.json").read_text("utf-8"))
    assert config["num_hidden_layers"] == FAMILY[SMALLEST].layers
