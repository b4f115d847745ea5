"""Commands that make, show, check and publish recordings."""
