"""Any JSON values, for readers of what others wrote."""

from hypothesis import strategies as st


def json_values(text=None):
    """Values that nest three deep at most, their texts drawn from a strategy."""
    text = st.text(max_size=8) if text is None else text
    numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    return st.recursive(
        st.none() | st.booleans() | numbers | text,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
        max_leaves=6,
    )
