//! The `muxtap` program.
fn main() {}
