"""What sources say of the depth of their CoTs: probes."""
