"""The plain twin of every compiled loop, under the same module and name: what the loop must do, in as few words."""
