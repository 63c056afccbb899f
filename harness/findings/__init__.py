"""What to change, and what it gives: one kind of finding per file."""
