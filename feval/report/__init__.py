"""What a curve looks like to people: tables, pictures, CSV, and the folder they are written to. Computes no result."""
