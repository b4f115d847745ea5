"""OpenAI's dialect: what requests say, how replies and errors look, and the document that describes
both.
"""
