"""Intervals, tests and rankings over questions.

| module | what it computes |
| --- | --- |
| `intervals` | intervals of accuracies; tests and intervals of paired differences |
| `bootstrap` | percentile intervals of costs, ratios and areas over resampled questions |
| `paired` | two curves: differences at equal cost, costs at equal accuracy; Holm's adjustment |
| `frontier` | Pareto frontier; area under a curve's hull |
| `bradley_terry` | strengths from pairwise wins |
| `drift` | whether new CoTs of the same questions differ from old ones |
"""
