"""The peer on the crate ``dbsp``: a program in Rust, built by cargo on demand."""
