"""Tracked runs of any source as one tidy table, with findings for whatever is wrong with them.

python -m analysis.tables SOURCE... [--out table.parquet]       docs/tables.md
"""
