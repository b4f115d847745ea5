"""Results as Matplotlib figures."""
