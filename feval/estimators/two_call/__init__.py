"""What two labelled calls per question say about any number of votes (arXiv 2605.03379).

| module | what it computes |
| --- | --- |
| `moments`, `pair_table` | mu, nu and rho; counts of two calls per question |
| `vote_intervals` | sharp intervals [L_n, U_n] for every odd budget; certified gains |
| `polynomial_objectives` | the same for any polynomial, such as V_3 - V_1 |
| `certificates`, `polynomial_minima` | the proof that each bound carries, and its check |
| `wald_regions` | confidence intervals for V_n from a pair table |
| `completions` | maximum-entropy and latent-difficulty curves with given moments |
| `mixtures` | randomized mixtures of policies, the best one, pairs that change order |
"""
