"""Methods that vote over a fixed number of CoTs."""
