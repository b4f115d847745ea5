"""The mixer of the noise schemes, in Python's integers."""

GOLDEN_RATIO = 0x9E3779B97F4A7C15


def mix(x):
    """SplitMix64's finalizer of a number modulo 2^64."""
    x %= 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)
