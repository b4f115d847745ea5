"""New recordings from recordings: merged, selected, extended, extracted again."""
