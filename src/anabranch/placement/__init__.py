"""Where slots run: policies that choose homes among executors."""
