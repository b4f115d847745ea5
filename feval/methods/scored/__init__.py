"""Methods that use scores or log-probabilities of CoTs."""
