"""Estimators: arrays in, arrays out. They know nothing of recordings, LLMs or methods.

- Votes: `plurality` of recorded calls and `multinomial` of independent ones, both exact;
  `approximations`, the papers' estimators; `diagnostics`, the spread of answers.
- One LLM with itself: `self_consistency`, its error, bounds, and splits of a budget.
- Methods that stop: `stopping_criteria`; `stopping_orders`, where a rule ends and means over all
  orders; `early_stopping`, ESC in closed form; `trace_confidence`, DeepConf.
- Two calls per question: `moments`, `vote_intervals`, `wald_regions`, `completions` and
  `mixtures`, over `vote_polynomials`.
- Shared noise: `coupling`, `winrates`. Questions as evidence: `intervals`, `comparisons`.
- Several LLMs by price: `routing`, what a router gains over all shares of calls.
- Below them all: `arrays`, types and checks; `per_question`, counts of votes, values and answer
  probabilities.
"""
