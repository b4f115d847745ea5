"""The votes files of a dataset made the simplest way, with everything in memory, as
`docs/recording-format.md` describes them.
"""

import json
from itertools import accumulate

import numpy as np

from feval.cards.names import FINISH_REASONS
from feval.recording.layout.format import name_key

_DETAILS = ("question_id", "text_keys", "candidates", "candidate_offsets", "alias", "finish")


def votes_files(dataset, questions, pools, divide):
    """The bytes of both files, by part."""
    codes = [{} for _ in questions]
    rows = {question.id: row for row, question in enumerate(questions)}
    for own in pools.values():
        for pool in own:
            for answer in pool.answers:
                if answer is not None:
                    codes[rows[pool.question_id]].setdefault(
                        answer, len(codes[rows[pool.question_id]])
                    )
    parties = [
        divide(q.id, list(own), q.answer_key) for q, own in zip(questions, codes, strict=True)
    ]
    candidates = []
    for own, joined in zip(codes, parties, strict=True):
        keys = dict.fromkeys(joined.key(form) for form in own)
        keys |= {} if joined.gold is None else {joined.gold: None}
        candidates.append({key: code for code, key in enumerate(keys)})
    most = max(map(len, candidates), default=0)
    code_type = np.int8 if most < 127 else np.int16 if most < 32767 else np.int32
    arrays = {
        **_strings("question_ids", "question_id_offsets", [q.id for q in questions]),
        "question_keys": np.array(
            [name_key("feval/question", dataset, q.id) for q in questions], np.uint64
        ),
        "text_keys": np.array([name_key(q.text) for q in questions], np.uint64),
        **_strings("candidates", "candidate_offsets", [key for keys in candidates for key in keys]),
        "candidate_starts": _offsets([len(keys) for keys in candidates]),
        "gold": np.array(
            [
                -1 if p.gold is None else keys[p.gold]
                for p, keys in zip(parties, candidates, strict=True)
            ],
            code_type,
        ),
    }
    aliases = [
        {form: keys[key] for form, key in sorted(p.joined.items()) if key in keys}
        for p, keys in zip(parties, candidates, strict=True)
    ]
    if any(aliases):
        arrays |= _strings("aliases", "alias_offsets", [form for own in aliases for form in own])
        arrays["alias_starts"] = _offsets([len(own) for own in aliases])
        arrays["alias_codes"] = np.array(
            [code for own in aliases for code in own.values()], np.int32
        )
    for i, own_pools in enumerate(pools.values()):
        shape = len(questions), max((len(pool.answers) for pool in own_pools), default=0)
        table, tokens = np.full(shape, -2, code_type), np.zeros(shape, np.uint32)
        finish, sizes = np.zeros(shape, np.uint8), np.zeros(len(questions), np.uint32)
        prompt_tokens = np.full(len(questions), -1, np.int32)
        for pool in own_pools:
            row, size = rows[pool.question_id], len(pool.answers)
            table[row, :size] = [
                -1 if a is None else candidates[row][parties[row].key(a)] for a in pool.answers
            ]
            tokens[row, :size] = pool.output_tokens
            finish[row, :size] = [FINISH_REASONS.index(reason) for reason in pool.finish_reasons]
            sizes[row], prompt_tokens[row] = (
                size,
                (-1 if pool.prompt_tokens is None else pool.prompt_tokens),
            )
        arrays[f"codes.{i}"] = table
        arrays[f"output_tokens.{i}"] = (
            tokens if tokens.max(initial=0) >= 2**16 else tokens.astype(np.uint16)
        )
        arrays[f"finish.{i}"] = finish if (finish != finish[:1, :1]).any() else finish[:1, :1]
        arrays |= {f"prompt_tokens.{i}": prompt_tokens, f"sizes.{i}": sizes}
    votes = {
        name: array
        for name, array in arrays.items()
        if not name.startswith(_DETAILS) or name == "question_keys"
    }
    details = {name: array for name, array in arrays.items() if name not in votes}
    return {
        "votes": _file({"dataset": dataset, "llms": list(pools)}, votes),
        "details": _file({"dataset": dataset}, details),
    }


def _strings(name, offsets, strings):
    encoded = [string.encode() for string in strings]
    return {
        name: np.frombuffer(b"".join(encoded), np.uint8),
        offsets: _offsets([len(piece) for piece in encoded]),
    }


def _offsets(lengths):
    return np.array([0, *accumulate(lengths)], np.uint32)


def _file(header, arrays):
    room = 16 + len(json.dumps(header, ensure_ascii=False).encode()) + 96 * (len(arrays) + 1)
    room += -room % 64
    data, places = b"", {}
    for name, array in arrays.items():
        places[name] = [array.dtype.name, list(array.shape), room + len(data)]
        data += array.tobytes()
        data += bytes(-len(data) % 64)
    text = json.dumps(
        header | {"arrays": places}, ensure_ascii=False, separators=(",", ":")
    ).encode()
    return b"FEVALVT1" + (room - 16).to_bytes(8, "little") + text.ljust(room - 16) + data
