"""Draws: the order in which the CoTs of a pool are handed out, scheme `draws-v1`.

Every order is a pure function of (seed, dataset, question, LLM, replicate): it does not depend on
what else is loaded, on the machine, or on NumPy's generators, whose streams may change. The first k
of an order are the draw of k, so draws nest.

    pool key      P = H(seed, dataset, LLM)
    question key  K = H(dataset, question)
    stream        s = mix(mix(P xor K) + (r + 1) g)             replicate r = 0, 1, 2, ...
    sample key    k_i = mix(s + (i + 1) g)                      recorded CoT i = 0, 1, 2, ...
    order         sort i by (floor(k_i / 2^16), i)

modulo 2^64, with g = 0x9E3779B97F4A7C15, `mix` the finalizer of SplitMix64 (Steele, Lea, Flood,
OOPSLA 2014) and H the first eight bytes of a SHA-256. `docs/numbers.md` writes it down for other
languages, with test vectors; a change is a new version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any
from weakref import finalize

import numpy as np
import numpy.typing as npt

from feval.arguments import is_whole
from feval.errors import OutOfRangeError
from feval.recording.layout.flat import Floats, Integers, Numbers, UInt64

SCHEME = "draws-v1"

ORDERS = ("exact", "recorded", "seeded")
"""How CoTs are drawn: the expectation over all draws, the order of the recording, or seeded
replicates.
"""

ABSENT_SAMPLE = 0xFFFF
"""Fills the end of an order where a pool is smaller than the largest."""

MAX_REPLICATES = 1_000_000
"""Most draws of every question: more add no precision, and a typing error would run for days."""

Orders = npt.NDArray[np.uint16]
"""[R, Q, draws] recorded places of CoTs, in draw order."""

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_HIGH = np.uint64(_MASK ^ 0xFFFF)
_BLOCK = 1 << 15  # keys worked on at once: two buffers of them stay in a core's own cache


def pool_key(seed: int, dataset: str, llm: str) -> int:
    """Return the pool key P: eight bytes, little-endian, of SHA-256 over the lines
    "feval/draws-v1", seed, dataset and LLM.
    """
    text = "\n".join(("feval/draws-v1", str(int(seed)), dataset, llm))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def orders(
    key: int, question_keys: UInt64, sizes: Integers, replicates: Sequence[int], draws: int
) -> Orders:
    """Return the orders of the pools of one LLM.

    Args:
        key: the pool key, see `pool_key`.
        question_keys: [Q] question keys, as the recording keeps them.
        sizes: [Q] recorded CoTs of each question.
        replicates: R replicate numbers, each 0 or more.
        draws: length of each order, at most the largest pool.

    Returns:
        [R, Q, draws] sample indices, `ABSENT_SAMPLE` where a pool has fewer CoTs. Two bytes each;
        memory beyond the result does not grow with R.

    Raises:
        OutOfRangeError: a pool of 65,535 CoTs or more, or a negative replicate.
    """
    width = int(sizes.max(initial=0))
    require_places(width)
    for replicate in replicates:
        if not is_whole(replicate) or replicate < 0:
            raise OutOfRangeError(
                f"Replicates are numbered from 0; {replicate!r:.80} was asked for."
            )
    steps = np.array([(i + 1) * _GOLDEN & _MASK for i in range(width)], np.uint64)
    # NumPy's would overflow
    starts = np.array([(int(r) + 1) * _GOLDEN & _MASK for r in replicates], np.uint64)
    base = _mix(question_keys ^ np.uint64(key), np.empty_like(question_keys))
    indices = np.arange(width, dtype=np.uint64)
    absent = None
    if width and int(sizes.min()) < width:
        absent = np.where(indices >= sizes[:, None], np.uint64(_MASK), np.uint64(0))
    result = np.empty((len(replicates), len(sizes), min(draws, width)), np.uint16)
    block = max(1, _BLOCK // max(width, 1))
    keys, spare = np.empty((2, min(block, len(sizes)), width), np.uint64)
    for r, start in enumerate(starts):
        streams = _mix(base + start, np.empty_like(base))
        for q in range(0, len(sizes), block):
            rows = slice(q, min(q + block, len(sizes)))
            block_keys = keys[: rows.stop - q]
            np.add(streams[rows, None], steps, out=block_keys)
            _mix(block_keys, spare[: rows.stop - q])
            block_keys &= _HIGH
            block_keys |= indices
            if absent is not None:
                block_keys |= absent[rows]
            block_keys.sort(axis=-1)
            result[r, rows] = block_keys[:, : result.shape[2]]
    return result


def require_places(width: int) -> None:
    """Raise an `OutOfRangeError` if a pool has more CoTs than the two bytes of an order can
    number.
    """
    if width >= ABSENT_SAMPLE:
        raise OutOfRangeError(
            f"Draws reach {ABSENT_SAMPLE - 1} CoTs per question; a pool has {width}. Select fewer."
        )


def more_uniforms(numbers: Floats, count: int) -> Floats:
    """Return more random numbers [..., count] from each of some [...], such as `uniforms` gives:
    SplitMix64 begun with its bits.

    With b = 2^53 u, they are floor(mix(b + (j + 1) g) / 2^11) / 2^53 for j = 0, 1, ...
    """
    bits = (numbers * 2.0**53).astype(np.uint64)[..., None]
    states = bits + np.array([(j + 1) * _GOLDEN & _MASK for j in range(count)], np.uint64)
    return (_mix(states, np.empty_like(states)) >> np.uint64(11)) * np.float64(2.0**-53)


def _mix(x: UInt64, spare: UInt64) -> UInt64:
    """Apply SplitMix64's finalizer in place; `spare` is working space of the same shape."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        np.right_shift(x, np.uint64(shift), out=spare)
        x ^= spare
        if factor > 1:
            x *= np.uint64(factor)
    return x


def uniforms(question_keys: UInt64, orders: Integers, seed: int = 0) -> Floats:
    """Return random numbers for methods that toss coins: one per draw, a pure function of the
    question and the draws so far.

        h_0 = mix(K xor mix(seed))        h_k = mix(h_(k-1) xor (i_k + 1) g)
        u_k = floor(h_k / 2^11) / 2^53

    with K the question key, i_k the recorded place of draw k, and g and `mix` as above. They depend
    neither on the LLM nor on what else is loaded; two replicates differ as soon as their draws do.

    Args:
        question_keys: [Q] as the recording keeps them.
        orders: [R, Q, n] recorded places, in draw order.
        seed: for methods that need several independent streams.

    Returns:
        [R, Q, n] numbers in [0, 1).
    """
    salt = _mix(np.array([seed & _MASK], np.uint64), np.empty(1, np.uint64))
    state = np.broadcast_to(question_keys ^ salt, orders.shape[:2]).copy()
    spare = np.empty_like(state)
    result = np.empty(orders.shape, np.float64)
    for k in range(orders.shape[2]):
        state ^= (orders[:, :, k].astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN)
        _mix(state, spare)
        result[:, :, k] = (state >> np.uint64(11)) * 2.0**-53
    return result


MOST_BYTES = 1 << 30
"""Most bytes in the file of `SharedDraws`; orders beyond are made each time."""

_CODES_AT_ONCE = 1 << 21  # of whole orders, also where a method takes only their first codes

_Pool = tuple[int, UInt64, Integers]
"""Pool key, question keys and sizes, as `orders` takes them."""


class SharedDraws:
    """`orders` with a memory, for `LLM.drawing`: draws that several methods share are made once,
    and kept in a temporary file.

    The orders of a block of questions are written in full, replicate by replicate; a shorter draw
    is the beginning of one. What is asked for in another turn, or does not fit, is made anew.
    """

    def __init__(self) -> None:
        self._file: Any = None
        self._end, self._most = 0, MOST_BYTES
        # Where the orders of some questions begin in the file, and for how many replicates.
        self._blocks: dict[bytes, tuple[int, int]] = {}

    def orders(
        self,
        key: int,
        question_keys: UInt64,
        sizes: Integers,
        replicates: Sequence[int],
        draws: int,
    ) -> Orders:
        """As `draws.orders`."""
        pool = key, question_keys, sizes
        if (
            not isinstance(replicates, range)
            or replicates.step != 1
            or not 0 <= replicates.start < replicates.stop
            or not sizes.any()
        ):
            return orders(*pool, replicates, draws)
        name = hashlib.sha256(question_keys.tobytes() + key.to_bytes(8, "little")).digest()
        width = int(sizes.max())
        result = np.empty((len(replicates), len(sizes), min(draws, width)), np.uint16)
        step = max(1, _CODES_AT_ONCE // (len(sizes) * width))
        for start in range(0, len(replicates), step):
            some = replicates[start : start + step]
            result[start : start + step] = self._whole(name, pool, some, width)[:, :, :draws]
        return result

    def _whole(
        self, name: bytes, pool: _Pool, replicates: range, width: int
    ) -> npt.NDArray[np.unsignedinteger[Any]]:
        """Return some replicates in full, from the file where they are kept there, and else
        made.
        """
        sizes = pool[2]
        first, count = self._blocks.get(name, (self._end, 0))
        is_narrow = width <= 1 << 8 and int(sizes.min()) == width
        kind = np.dtype(np.uint8 if is_narrow else np.uint16)
        place = first + replicates.start * len(sizes) * width * kind.itemsize
        if replicates.stop <= count:
            data = np.empty((len(replicates), len(sizes), width), kind)
            self._file.seek(place)
            if self._file.readinto(data.data.cast("B")) == data.nbytes:
                return data
        made = orders(*pool, replicates, width)
        if (replicates.start, place) == (count, self._end) and self._write(made.astype(kind)):
            self._blocks[name] = first, replicates.stop
        return made

    def _write(self, data: Numbers) -> bool:
        """Append orders, if there is room."""
        if self._end + data.nbytes > self._most:
            return False
        try:
            if self._file is None:
                from tempfile import TemporaryFile  # deferred: exact curves draw nothing

                self._file = TemporaryFile(prefix="feval-draws-", buffering=0)  # noqa: SIM115  it outlives this call
                finalize(self, self._file.close)
            self._file.seek(self._end)
            whole = self._file.write(data.data.cast("B")) == data.nbytes
        except OSError:
            whole = False
        if not whole:
            self._most = self._end  # the disk is full: what is there stays of use
            return False
        self._end += data.nbytes
        return True
