"""Estimators: arrays in, arrays out. They know nothing of recordings, LLMs or methods.

- `counts`: answer codes to votes per candidate.
- `plurality`: votes to the exact accuracy of self-consistency over all draws of n; pass@k.
- `multinomial`: answer probabilities, or the shares of G calls, to the exact plurality accuracy of M independent calls.
- `plugin`: what those shares tell on average, and what is unbiased.
- `sampling`, `gaussian`: the papers' estimators of the same: recorded and simulated votes, the normal approximation.
- `diagnostics`: how the answers are spread: mass by rank, entropy, strata of difficulty.
- `self_consistency_error`: how often a call disagrees with the LLM's own favourite; bounds, splits of a budget.
- `probabilities`, `poissonised`, `ties`: what these share: checked laws, generating functions at roots of unity, ties.
- `cost`: tokens to the expected tokens of a draw.
- `bootstrap`: values per question to confidence intervals.
- `per_question`: what the exact estimators return, values per question, stored once per distinct question.
"""
