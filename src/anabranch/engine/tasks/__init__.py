"""What runs where the rows are: the kinds of task, their steps, what they send and what they report."""
