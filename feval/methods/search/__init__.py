"""Search over the steps of recorded trees."""
