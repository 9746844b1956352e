//! The screen model equals tmux while real programs draw: at every checkpoint and after every
//! resize, `capture-pane` of a pane equals the capture of a model that was fed with the pane's
//! output.

mod editors;
mod output;
mod pagers;
mod shells;
mod stage;
mod tools;
