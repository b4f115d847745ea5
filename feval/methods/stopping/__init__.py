"""Methods that stop sampling early."""
