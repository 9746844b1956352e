//! Shows what a terminal would show after a recorded stream, without tmux: the screen model from
//! which captures are printed.
//!
//! `script -c 'ls --color' typescript; cargo run --example capture -- typescript`

use std::io::Write as _;

use muxtap::screen::{CaptureOptions, Line, Rules, Screen, Settings, Size};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).ok_or("which file? give one that holds what a terminal was sent")?;
    // tmux versions draw differently in a few cases; these are the rules of 3.5a.
    let rules = Rules::for_version("3.5a".parse()?);
    let mut screen = Screen::new(Size { columns: 80, rows: 24 }, rules, Settings::default());
    screen.feed(&std::fs::read(file)?);

    let options = CaptureOptions { start: Line::Edge, escapes: true, ..CaptureOptions::default() };
    std::io::stdout().write_all(&screen.capture(&options))?;
    eprintln!("title {:?}, cursor {:?}", screen.title(), screen.cursor());
    Ok(())
}
