"""An independent OpenAI-compatible server that does less than it is asked for: `transformers
serve`.

Not run by default: FEVAL_TRANSFORMERS_COMMAND names the `transformers` command of an environment
with transformers[serving] and torch (about 1.2 GB, up in 15 to 20 s).
"""

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from feval.recording import Question, open_recording
from recorders.asking.pace import Limits
from recorders.backends.endpoint import Endpoint
from recorders.request import Decoding, Message
from recorders.work.record import record_dataset
from recorders.work.task import RecordingTask

pytest.importorskip("openai", reason="the official client (extra `record`) is not installed")

from recorders.backends.openai_compatible import OpenAICompatible

COMMAND = os.environ.get("FEVAL_TRANSFORMERS_COMMAND", "")
pytestmark = pytest.mark.skipif(
    not COMMAND, reason="a manual check: FEVAL_TRANSFORMERS_COMMAND names no `transformers` command"
)

MAKE_MODEL = """
import sys, tokenizers, torch, transformers
words = ["<end>", *"abcdefghijklm"]
tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: n for n, w in enumerate(words)}, "a"))
tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
fast.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
fast.save_pretrained(sys.argv[1])
torch.manual_seed(0)
config = transformers.LlamaConfig(
    vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.3, eos_token_id=0, bos_token_id=None,
)
transformers.LlamaForCausalLM(config).save_pretrained(sys.argv[1])
"""  # noqa: E501


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Base URL and model name of a running server."""
    folder, hub = tmp_path_factory.mktemp("model"), tmp_path_factory.mktemp("hub")
    # The interpreter that the command's first line names has torch and transformers.
    interpreter = Path(COMMAND).read_text("utf-8").splitlines()[0].removeprefix("#!")
    subprocess.run([interpreter, "-c", MAKE_MODEL, folder], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(hub), "OMP_NUM_THREADS": "1"}
    call = [
        COMMAND,
        "serve",
        str(folder),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--device",
        "cpu",
    ]
    with (
        (hub / "log").open("wb") as log,
        subprocess.Popen(call, env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            for _ in range(600):
                if _is_up(port):
                    break
                assert process.poll() is None, (hub / "log").read_text("utf-8")[-2000:]
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port}/v1", str(folder)
        finally:
            process.terminate()


def _is_up(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def test_what_the_server_ignores_is_noticed(server, tmp_path):
    url, model = server
    notes = []
    work = RecordingTask(
        questions=[Question(f"q{letter}", f"a b {letter}", "3") for letter in "cde"],
        dataset="letters",
        llm_name="local/llama",
        messages=lambda question: [Message("user", question.text)],
        prompt_version="letters-1",
        decoding=Decoding(temperature=0.9, max_tokens=8, logprobs=2),
        samples=4,
        model=model,
        answer_kind="text",
    )
    backend = OpenAICompatible(Endpoint(url), note=notes.append)
    record_dataset(
        work,
        backend,
        tmp_path / "r",
        prices="none",
        limits=Limits(concurrency=2),
        backend_notes=notes,
    )
    recording = open_recording(tmp_path / "r")
    said = " ".join(recording.manifest.raw["notes"])
    assert "ignores n" in said
    assert "ignores logprobs" in said
    assert "On 3 of 3 questions all CoTs are equal" in said
    assert [pair["counter"] for pair in recording.manifest.pairs.values()] == ["usage"]
