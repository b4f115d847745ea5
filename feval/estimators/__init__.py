"""Estimators: arrays in, arrays out. They know nothing of recordings, LLMs or methods.

- `counts`: answer codes to votes per candidate.
- `plurality`: votes to the exact accuracy of self-consistency over all draws of n; pass@k.
- `cost`: tokens to the expected tokens of a draw.
- `benefit`: performance and cost of a cascade to AutoMix's benefit per cost.
- `bootstrap`: values per question to confidence intervals.
- `per_question`: what the exact estimators return, values per question, stored once per distinct question.
"""
