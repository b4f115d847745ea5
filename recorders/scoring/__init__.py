"""Score recorded CoTs with a reward model or a judge."""
