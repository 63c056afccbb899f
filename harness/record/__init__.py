"""What is kept of a run or an audit: frozen records, their tables of samples, and the store."""
