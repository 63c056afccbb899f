"""Each page once: a function from a snapshot and the choices made to blocks, drawn elsewhere."""
