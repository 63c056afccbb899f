"""What passes between this program and the world: files in, files out, and text of others."""
