"""The journal turned into tables, queries and words."""
