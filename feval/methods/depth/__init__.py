"""Methods that look at traces while they grow: when one may stop, and which to go on with."""
