"""What a writer collects until the recording is sealed: the questions in little memory, the votes,
which answers are equal.
"""
