"""An outcome or process reward model in this process, from a local folder (transformers; extra
`coupled`).

Two architectures are common and need no custom code:

- sequence classification with one output: an outcome reward model; the CoT's score is the output.
- token classification with two labels: a process reward model as TRL trains them
  (https://huggingface.co/docs/trl/prm_trainer): question, newline, then every step followed by a
  newline; the score of a step is the probability of label 1 at the last token of its separator.
  Steps are the paragraphs of the CoT, or its lines if it has one paragraph.

Models with custom code are refused: `trust_remote_code` stays off. Nothing is downloaded.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from feval.errors import UsageError
from feval.recording import ScorerInfo
from recorders.backends.torch_libraries import torch_libraries
from recorders.scoring.score_journal import Score
from recorders.scoring.scorer import Item

_SEPARATOR = "\n"
_HASHED = ("config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json")


class LocalRewardModel:
    """A reward model from a folder as `save_pretrained` writes it, with the tokenizer."""

    batch = 8
    concurrency = 1
    request_cost = None

    def __init__(self, folder: Path, name: str | None = None) -> None:
        if not (folder / "config.json").is_file():
            raise UsageError(
                f"{folder} holds no config.json; name a folder with a model that `save_pretrained`"
                " wrote."
            )
        torch, transformers = torch_libraries("A reward model on this machine")
        self._torch = torch
        try:
            config = transformers.AutoConfig.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
            self.by_step = _is_process_model(folder, config)
            classes = (
                transformers.AutoModelForTokenClassification,
                transformers.AutoModelForSequenceClassification,
            )
            loader = classes[0] if self.by_step else classes[1]
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
            self._model = loader.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            ).eval()
        except (OSError, ValueError, KeyError) as error:
            raise UsageError(
                f"{folder} cannot be loaded as a reward model ({str(error)[:300]})."
            ) from error
        self._model.to("cuda" if torch.cuda.is_available() else "cpu")
        self._longest = int(getattr(config, "max_position_embeddings", 0) or 0)
        parameters = {"model": folder.name, "by_step": self.by_step, "sha256": _hash(folder)}
        self.info = ScorerInfo(name or f"transformers:{folder.name}", "transformers", parameters)
        self.facts: Mapping[str, Any] = {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }
        self.warnings: tuple[str, ...] = ()

    async def score(self, items: Sequence[Item]) -> list[Score]:
        """Return one result per CoT, computed in another thread."""
        return await asyncio.to_thread(lambda: [self._one(item) for item in items])

    async def aclose(self) -> None:
        """Do nothing: memory is released with the process."""

    def _one(self, item: Item) -> Score:
        ids = self._ids(item.question_text + _SEPARATOR)
        ends = []
        for step in steps_of(item.text) if self.by_step else [item.text]:
            ids += self._tokenizer.encode(
                step + _SEPARATOR if self.by_step else step, add_special_tokens=False
            )
            ends.append(len(ids) - 1)
        if self._longest and len(ids) > self._longest:
            return Score(
                problem="unreadable", verdict=f"{len(ids)} tokens; the model reads {self._longest}"
            )
        with self._torch.inference_mode():
            logits = (
                self._model(self._torch.tensor([ids], device=self._model.device)).logits[0].float()
            )
        if not self.by_step:
            return Score(float(logits[0]), prompt_tokens=len(ids), output_tokens=0)
        right = logits.softmax(-1)[:, 1]
        return Score(
            step_scores=tuple(float(right[end]) for end in ends),
            prompt_tokens=len(ids),
            output_tokens=0,
        )

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        first = self._tokenizer.bos_token_id
        return ids if first is None else [first, *ids]


def steps_of(text: str) -> list[str]:
    """Return the steps of a CoT: its non-blank paragraphs, or its lines if it has one paragraph."""
    for separator in ("\n\n", "\n"):
        steps = [step.strip() for step in text.split(separator) if step.strip()]
        if len(steps) > 1:
            return steps
    return [text.strip()] if text.strip() else [""]


def _is_process_model(folder: Path, config: Any) -> bool:
    names = [str(name) for name in getattr(config, "architectures", None) or ()]
    if any(name.endswith("ForTokenClassification") for name in names) and config.num_labels == 2:
        return True
    if any(name.endswith("ForSequenceClassification") for name in names) and config.num_labels == 1:
        return False
    raise UsageError(
        f"{folder} holds {', '.join(names) or 'no architecture'} with {config.num_labels} labels; a"
        " reward model is a sequence classification with one output, or a token classification"
        " with two."
    )


def _hash(folder: Path) -> str:
    """Hash of a model's weights, configuration and tokenizer."""
    digest = hashlib.sha256()
    for path in sorted({*folder.glob("*.safetensors"), *(folder / name for name in _HASHED)}):
        if path.is_file():
            with path.open("rb") as file:
                digest.update(
                    f"{path.name}:{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode()
                )
    return digest.hexdigest()
