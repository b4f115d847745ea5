"""How confident an LLM was along a CoT (a trace): DeepConf's measures, Fu et al. 2025, arXiv
2508.15260, section 3.

All measures use running sums C_t = C_(t-1) + c_t of the token confidences c_t, so a group of tokens
costs one subtraction. Assumes nothing about the calls.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from feval.estimators.arrays import Floats, Int64, Integers, Numbers, Result

MEASURES = ("mean", "tail", "lowest-group", "bottom-10%")
"""Measures: the mean over all tokens or the last ones, over the worst group, or over the worst
tenth of the groups.
"""


def trace_confidences(
    tokens: Numbers, lengths: Int64, measure: str, group: int, tail: int
) -> Floats:
    """[S] the confidence of each trace by one of `MEASURES`; NaN for a trace without tokens.

    `tokens` holds the token confidences of all traces one after another, `lengths` [S] their
    numbers. `group` is the tokens in a sliding group (a shorter trace is one group), `tail` the
    number of last tokens for "tail".
    """
    sums = _running_sums(tokens, lengths)
    confidences = np.full(len(lengths), np.nan)
    traces = np.flatnonzero(lengths)
    ends = sums[traces, lengths[traces]]
    if measure == "tail":
        starts = np.maximum(lengths[traces] - tail, 0)
        confidences[traces] = (ends - sums[traces, starts]) / (lengths[traces] - starts)
        return confidences
    confidences[traces] = ends / lengths[traces]
    long = np.flatnonzero(lengths >= group)
    if measure == "mean" or not long.size:
        return confidences
    groups = _group_means(sums[long], lengths[long], group)
    confidences[long] = groups.min(axis=1) if measure == "lowest-group" else _worst_tenth(groups)
    return confidences


def _running_sums(tokens: Numbers, lengths: Int64) -> Floats:
    """[S, longest + 1] running sums; a trace's last sum pads its row."""
    table = np.zeros((len(lengths), int(lengths.max(initial=0)) + 1))
    table[:, 1:][np.arange(table.shape[1] - 1) < lengths[:, None]] = tokens
    return table.cumsum(axis=1)


def _group_means(sums: Floats, lengths: Int64, group: int) -> Floats:
    """[S, starts] mean of the group that starts at each token; infinity where it would exceed the
    trace.
    """
    means: Floats = (sums[:, group:] - sums[:, :-group]) / group
    means[np.arange(means.shape[1]) + group > lengths[:, None]] = np.inf
    return means


def _worst_tenth(groups: Floats) -> Floats:
    """[S] mean of the lowest tenth of the groups, at least one."""
    numbers = np.maximum(np.isfinite(groups).sum(axis=1) // 10, 1)
    sums = np.sort(groups, axis=1).cumsum(axis=1)
    result: Floats = sums[np.arange(len(groups)), numbers - 1] / numbers
    return result


class LowGroups(Result):
    """The groups of each trace with a lower mean than all groups before: enough to find the first
    one below any bar.

    Attributes:
        means: means of those groups, trace by trace, falling within a trace; plus one sentinel.
        ends: tokens of the trace when each group is complete; plus one sentinel.
        offsets: [S + 1] trace s has the entries from `offsets[s]` on; none if it is shorter than a
            group.
    """

    means: Floats
    ends: Int64
    offsets: Int64


def low_groups(questions: Sequence[tuple[Numbers, Int64]], group: int) -> LowGroups:
    """Find the record lows of the group confidence (C_t - C_(t-g)) / g of all traces, given per
    question.
    """
    means, ends, counts = [np.empty(0)], [np.empty(0, np.int64)], [np.zeros(1, np.int64)]
    for tokens, lengths in questions:
        counts.append(np.zeros(len(lengths), np.int64))
        long = np.flatnonzero(lengths >= group)
        if not long.size:
            continue
        groups = _group_means(_running_sums(tokens, lengths)[long], lengths[long], group)
        before = np.minimum.accumulate(groups, axis=1)[:, :-1]
        trace, start = np.nonzero(
            groups < np.concatenate([np.full((len(long), 1), np.inf), before], axis=1)
        )
        means.append(groups[trace, start])
        ends.append(start + group)
        counts[-1][long] = np.bincount(trace, minlength=len(long))
    means.append(np.array([-np.inf]))
    ends.append(np.zeros(1, np.int64))
    return LowGroups(np.concatenate(means), np.concatenate(ends), np.cumsum(np.concatenate(counts)))


def tokens_until_below(low: LowGroups, traces: Integers, bars: Floats) -> Int64:
    """[N] tokens of a trace when its first group below a bar is complete, by bisection in its
    record lows; 2^62 without one.
    """
    first, last = low.offsets[traces], low.offsets[np.asarray(traces) + 1]
    stop = last.copy()
    for _ in range(int((last - first).max(initial=0)).bit_length()):
        middle = (first + stop) // 2
        below = (low.means[middle] < bars) & (first < stop)
        stop = np.where(below, middle, stop)
        first = np.where(below | (first >= stop), first, middle + 1)
    return np.where(first < last, low.ends[first], 1 << 62)


def known_percentiles(values: Floats, percent: float) -> Floats:
    """Percentiles along the last axis, as `numpy.percentile` but ignoring NaN; -infinity, a bar all
    pass, where all are NaN.
    """
    ordered = np.sort(values, axis=-1)  # NaN comes last
    known = (~np.isnan(values)).sum(axis=-1)
    last = np.maximum(known - 1, 0)
    place = last * (percent / 100)
    below = place.astype(np.intp)
    around = np.minimum(below[..., None] + np.arange(2), last[..., None])
    low, high = np.moveaxis(np.take_along_axis(ordered, around, axis=-1), -1, 0)
    part = place - below
    # From the nearer end, as NumPy does: the result is then exact at both.
    percentiles = np.where(part < 0.5, low + (high - low) * part, high - (high - low) * (1 - part))
    return np.where(known > 0, percentiles, -np.inf)
