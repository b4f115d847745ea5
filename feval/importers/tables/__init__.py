"""Tables: rows of CSV, JSON Lines and Parquet."""
