"""What a gate drops: hashes, tables and classes, and their numpy twins."""
