"""Logs of evaluation harnesses: lm-evaluation-harness, Inspect, LightEval."""
