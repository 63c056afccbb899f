"""How records are written for people: figures, grids of cells, rows of runs, claims and audits."""
