"""Export a tiny model to a folder that Hugging Face's `transformers` loads: a `LlamaForCausalLM`
with its tokenizer.

    python examples/tiny_models/tiny_export.py feval/tiny-42k --out tiny-42k

It serves as an independent forward pass to compare ours with, and to try servers that load such
folders. Writing it needs only NumPy. The folder's tokenizer differs from ours in one respect: it
reads special tokens such as "<end>" from text.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from feval.errors import UnknownNameError
from recorders.tiny.model import END, FAMILY, PAD, SPECIAL, UNKNOWN, Shape, tokenizer, weights_file

_TEMPLATE = "<question> {{ messages[-1]['content'] }}<answer>"


def export(name: str, out: Path) -> Path:
    """Write a tiny model as a `transformers` folder, created if missing; weights stay float16."""
    if name not in FAMILY:
        raise UnknownNameError.among("tiny model", name, FAMILY)
    with weights_file(name) as path, np.load(path) as file:
        arrays = dict(file)
    out.mkdir(parents=True, exist_ok=True)
    (out / "model.safetensors").write_bytes(
        _safetensors({key: value.astype("<f2") for key, value in arrays.items()})
    )
    for file, content in {
        "config.json": _config(FAMILY[name]),
        "generation_config.json": {"do_sample": True, "eos_token_id": END, "pad_token_id": PAD},
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": _tokenizer_config(),
    }.items():
        (out / file).write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    return out


def _safetensors(arrays: dict[str, np.ndarray[Any, np.dtype[np.float16]]]) -> bytes:
    """Return arrays in the safetensors format: length of the header, header in JSON, bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for key, value in arrays.items():
        start, end = end, end + value.nbytes
        header[key] = {"dtype": "F16", "shape": list(value.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return (
        len(text).to_bytes(8, "little")
        + text
        + b"".join(value.tobytes() for value in arrays.values())
    )


def _config(shape: Shape) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float16",
        "vocab_size": shape.tokens,
        "hidden_size": shape.width,
        "intermediate_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "head_dim": shape.head_width,
        "hidden_act": "silu",
        "max_position_embeddings": shape.context,
        "rms_norm_eps": shape.epsilon,
        "rope_theta": shape.rotary_base,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": None,
        "eos_token_id": END,
        "pad_token_id": PAD,
    }


def _tokenizer() -> dict[str, Any]:
    """Return our greedy split for the `tokenizers` library: WordPiece over the whole text, without
    a prefix for inner pieces.
    """
    flags = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": token, **flags} for number, token in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {
            "type": "WordPiece",
            "unk_token": SPECIAL[UNKNOWN],
            "continuing_subword_prefix": "",
            "max_input_chars_per_word": 100_000,
            "vocab": {token: number for number, token in enumerate(tokenizer().vocabulary)},
        },
    }


def _tokenizer_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": SPECIAL[PAD],
        "unk_token": SPECIAL[UNKNOWN],
        "eos_token": SPECIAL[END],
        "clean_up_tokenization_spaces": False,
        "chat_template": _TEMPLATE,
    }


def main() -> None:
    """Write one model of the family."""
    parser = argparse.ArgumentParser(
        description="Write a tiny model as a folder for Hugging Face's transformers."
    )
    parser.add_argument("name", choices=FAMILY)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    export(options.name, options.out)


if __name__ == "__main__":
    main()
