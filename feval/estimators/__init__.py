"""Estimators: arrays in, arrays out. They know nothing of recordings, LLMs or methods.

| folder | what it estimates |
| --- | --- |
| `votes` | votes: exact, plug-in, simulated, Gaussian; best-of-n; the spread of answers |
| `stopping` | stopping rules, and their expectations over all orders of a pool |
| `two_call` | what two calls per question say about any number of votes; mixtures of policies |
| `coupling` | two LLMs that share their noise: joint laws, covariances, win-rates |
| `inference` | intervals, tests, frontiers and rankings over questions |

| module | what it holds |
| --- | --- |
| `self_consistency_error` | how often a call disagrees with the LLM's own favourite answer |
| `self_consistency_bounds` | bounds on its estimate, and how to split a budget of calls |
| `vote_polynomials` | P_n(q), how often 2n + 1 calls vote right; exact polynomials |
| `counts`, `cost` | answer codes to votes; tokens to expected tokens of a draw |
| `benefit` | AutoMix's benefit per cost of a cascade |
| `per_question` | values per question, stored once for questions that cannot differ |
| `probabilities`, `poissonised`, `ties` | probabilities, generating functions, tie rules |
| `checks`, `missing`, `arrays` | checks of arguments; why values are missing; array types |

The order of imports: root modules, then `votes` and `inference`, then `stopping`, `two_call` and
`coupling`.
"""
