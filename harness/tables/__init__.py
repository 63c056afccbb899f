"""Records as text: figures, tables of runs and claims, and audit reports."""
