"""Estimators: arrays in, arrays out. They know nothing of recordings, LLMs or methods.

- `counts`: answer codes to votes per candidate.
- `plurality`: votes to the exact accuracy of self-consistency over all draws of n; pass@k.
- `multinomial`: answer probabilities, or the shares of G calls, to the exact plurality accuracy of M independent calls.
- `plugin`: what those shares tell on average, and what is unbiased.
- `sampling`, `gaussian`: the papers' estimators of the same: recorded and simulated votes, the normal approximation.
- `diagnostics`: how the answers are spread: mass by rank, entropy, strata of difficulty.
- `self_consistency_error`: how often a call disagrees with the LLM's own favourite; bounds, splits of a budget.
- `probabilities`, `poissonised`, `ties`: what these share: checked laws, generating functions at roots of unity, ties.
- `reasons`: why a value is missing; every result that can hold NaN has `reasons`, sentences beside its values.
- `cost`: tokens to the expected tokens of a draw.
- `benefit`: performance and cost of a cascade to AutoMix's benefit per cost.
- `bootstrap`: values per question to confidence intervals.
- `vote_polynomials`: P_n(q), the accuracy of a majority of 2n + 1 independent calls; exact polynomials on [0, 1].
- `empirical_votes`: V_n from any number of recorded right/wrong calls.
- `moments`, `pair_table`: mu, nu and rho from two labelled calls per question, with standard errors.
- `two_call`: sharp intervals [L_n, U_n] for every odd budget and for infinitely many votes; certified gains.
- `polynomial_objectives`: the same for any polynomial, such as V_3 - V_1.
- `certificates`: the proof each bound carries, and how it is checked.
- `wald_regions`: confidence intervals for V_n from a pair table.
- `completions`: maximum-entropy and latent-difficulty curves that match two moments.
- `mixtures`: randomized mixtures of policies, the best one, overtaking pairs.
- `paired`: two curves: differences at equal cost, costs at equal accuracy, how sure their signs are.
- `frontier`, `bradley_terry`: what nothing dominates; strengths from pairwise wins.
- `best_of_n`, `traces`: the best-scored of n CoTs; DeepConf's confidence along a CoT.
- `stopping`, `orders`, `by_partition`: Adaptive-Consistency's criteria; rules that stop early, over all orders of a pool.
- `early_stopping`, `early_plurality`: ESC over all orders of a pool, in closed form.
- `per_question`: what the exact estimators return, values per question, stored once per distinct question.
"""
