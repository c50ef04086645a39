"""Rows that were shed: which they are, and how to find and send them again."""
