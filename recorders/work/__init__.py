"""From a dataset to a sealed recording: prompts, resuming, topping up."""
