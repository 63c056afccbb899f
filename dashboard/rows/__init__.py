"""From records to the rows that a view shows: plain data, no chart and no page."""
