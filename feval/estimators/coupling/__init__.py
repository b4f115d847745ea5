"""Two LLMs under shared noise (arXiv 2502.01754).

| module | what it computes |
| --- | --- |
| `gumbel_coupling` | joint law of two answers under shared Gumbel noise; its covariance |
| `recorded_pairs` | covariances, variances and errors from recorded pairs of calls |
| `winrates` | win-rates with and without shared noise, ranks, and whether the ranking changes |
"""
