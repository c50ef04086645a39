"""Dead letters: rows that a gate sheds are written elsewhere, by the same batch."""
