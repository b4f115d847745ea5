"""Results as plain-text tables, CSV and Parquet."""
