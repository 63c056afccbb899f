"""The pytest plugin. It adds nothing yet."""
