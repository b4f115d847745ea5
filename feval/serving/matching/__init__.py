"""Find the recorded question that a chat request asks."""
