"""A small recording with probes, written out, and its probes in words."""

from dataclasses import replace

from small import TOY, letters, pool, write_rows

from feval.recording import LLMInfo, ProbeRows

ANSWERS = {"alpha": letters("44-", "7", "", "12"), "org/beta": letters("4", "9", "9", "9")}
GOLDS = ["4", "5", None, "2"]
ALPHA = [
    ProbeRows(
        "toy/0",
        [0, 0, 2],
        [5, 10, 5],
        ["3.", "4.", None],
        ["3", "4", None],
        texts=["3.", " 4.", "Hm"],
        output_tokens=[2, 2, None],
        confidences=[0.5, None, 0.25],
    ),
    ProbeRows("toy/3", [0, 1, 1, 1], [5, 5, 10, 15], ["8", "2", "2", "1"], ["8", "2", "2", "1"]),
]
BETA = [ProbeRows("toy/1", [0, 0], [3, 4], ["5", "9"], ["5", "9"])]
CUE = "</think>\nThe answer is"


def write_probed(
    out, probes=None, answers=ANSWERS, *, golds=GOLDS, kind="verbatim", cue=CUE, **info
):
    """The toy recording with probes."""
    llms = (
        (
            LLMInfo(llm, temperature=0.7, max_tokens=64),
            [pool(i, each) for i, each in enumerate(own)],
        )
        for llm, own in answers.items()
    )
    probes = {"alpha": ALPHA, "org/beta": BETA} if probes is None else probes
    return write_rows(
        out, golds, *llms, info=replace(TOY, answer_kind=kind, **info), probes=probes, cue=cue
    )


def probe_words(recording, llm):
    """(question, sample, offset, answer) of each probe, from the mapped arrays."""
    probes, votes = recording.probes("toy", llm), recording.votes("toy")
    return [
        (
            votes.question_ids[q],
            s,
            int(probes.offsets[at]),
            None if code < 0 else votes.candidates(q)[code],
        )
        for q in range(probes.shape[0])
        for s in range(probes.shape[1])
        for at in range(*probes.of(q, s).indices(len(probes.offsets)))
        for code in [int(probes.codes[at])]
    ]


def as_words(rows):
    return [
        (each.question_id, *probe)
        for each in rows
        for probe in zip(each.sample_indices, each.offsets, each.answers, strict=True)
    ]
