"""One scenario, one optimization, one GPU and one kind of finding."""
