//! The screen model equals tmux while real programs draw: what `capture-pane` prints of a pane is what the model prints
//! that was fed with the pane's output, at every checkpoint and after every resize.

mod editors;
mod output;
mod pagers;
mod shells;
mod stage;
mod tools;
