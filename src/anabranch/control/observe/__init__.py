"""What slots are asked to look at, what they see, and what planners are told of it."""
