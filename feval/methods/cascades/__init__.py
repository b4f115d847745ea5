"""Methods that ask a stronger LLM when a cheaper one seems unsure."""
