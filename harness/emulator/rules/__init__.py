"""Which op makes the host wait for the device, when, and by what evidence."""
