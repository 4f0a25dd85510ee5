"""The migration bench: state that moves while a stream runs."""
