"""Asking a live LLM: pace, budget, plan and checks."""
