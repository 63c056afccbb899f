"""What this machine is, what its sensors say, and how steady it was."""
