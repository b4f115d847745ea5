"""Methods that stop early: their rules, and exact expectations over all orders of a pool.

| module | what it computes |
| --- | --- |
| `criteria` | Adaptive-Consistency's stopping criteria |
| `ends` | where a rule ends, as a table over counts of answers |
| `subpools`, `orders`, `by_partition` | accuracy, samples and tokens of such a rule, three ways |
| `early_stopping`, `early_plurality` | ESC in closed form: stops and tokens; its final vote |
| `traces` | DeepConf's confidence along a CoT |
"""
