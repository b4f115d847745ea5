"""Accuracy of votes.

| module | what it computes |
| --- | --- |
| `plurality` | exact accuracy of n recorded samples drawn without replacement; pass@k |
| `multinomial` | exact plurality accuracy of M independent calls, from shares |
| `plugin` | mean and bias of the plug-in estimate; what is unbiased |
| `sampling`, `gaussian` | the papers' estimators: simulated votes, the normal approximation |
| `empirical_votes` | V_n from recorded right/wrong calls |
| `best_of_n` | accuracy of the best-scored of n samples |
| `diagnostics` | how answers are spread: mass by rank, entropy, strata of difficulty |
"""
