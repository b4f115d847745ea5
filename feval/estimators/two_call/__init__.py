"""What two calls per question tell about votes over many."""
