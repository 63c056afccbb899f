"""What happens to each op: it runs, is judged by the rules, and is told to the observers."""
