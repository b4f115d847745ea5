"""Other packages' names over feval's recordings, so that code written for them runs with its import
line changed.
"""
