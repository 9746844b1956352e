//! Programs that draw the whole screen, and a tmux inside of tmux.

use muxtap::screen::CaptureOptions;

use super::{
    output,
    stage::{Stage, row},
};

#[test]
fn htop() {
    let Some(mut stage) = Stage::with_term("htop", "htop", "screen-256color") else { return };
    stage.start("htop --delay=2");
    stage.shows("F10");
    stage.check("begun");
    stage.keys("Down Down");
    stage.check("moved");
    stage.press("t");
    stage.check("as a tree");
    stage.keys("F1");
    stage.shows("Released under");
    stage.check("help");
    stage.press(" ");
    stage.hides("Released under");
    stage.resize(60, 16);
    stage.shows("F1");
    stage.check("smaller");
    stage.keys("F2");
    stage.check("setup");
    stage.resize(120, 40);
    stage.check("larger");
    stage.keys("F10");
    stage.keys("F10");
    stage.until("its end", |screen| !screen.alternate());
    stage.check("left");
    stage.end();
}

#[test]
fn top() {
    let Some(mut stage) = Stage::new("top", "top") else { return };
    stage.start("top -d 0.3");
    stage.shows("PID");
    stage.check("begun");
    stage.press("z");
    let coloured = CaptureOptions { escapes: true, ..CaptureOptions::default() };
    // Not `CSI 39 m`: the default color is on the screen before the key is read.
    let colors = |part: &[u8]| matches!(part, [0x1b, b'[', b'3', b'0'..=b'7']);
    stage.until("colours", |screen| screen.capture(&coloured).windows(4).any(colors));
    stage.check("coloured");
    // Of two keys read at once the program discards the second.
    stage.press("1");
    stage.shows("%Cpu0");
    stage.check("one line for each processor");
    stage.press("q");
    stage.until("its end", |screen| row(screen, screen.cursor().row) == "$");
    stage.check("left");
    // No key is sent after the resize: keys and signals that come while it handles a new size are
    // sometimes lost.
    stage.start("top -d 0.3");
    stage.shows("PID");
    stage.resize(60, 16);
    stage.check("smaller");
    stage.end();
}

#[test]
fn midnight_commander() {
    let Some(mut stage) = Stage::with_term("mc", "mc", "screen-256color") else { return };
    for name in ["apple", "apricot", "漢字", "größe"] {
        stage.file(name, output::source(30));
    }
    stage.start("mc --nosubshell");
    stage.shows("10Quit");
    stage.check("begun");
    stage.keys("Down Down");
    // The line under the files. It is drawn late, and an earlier key may be lost or mean something
    // else.
    stage.shows("│ apricot                              │");
    stage.check("moved");
    stage.press_and_see("\t");
    stage.check("the other panel");
    stage.press_and_see("\t");
    stage.check("the first panel again");
    stage.keys("F3");
    stage.shows("function_1(");
    stage.check("viewed");
    stage.keys("NPage NPage");
    stage.check("viewed, two pages on");
    stage.keys("F10");
    stage.shows("10Quit");
    stage.keys("F9");
    stage.check("menu");
    stage.keys("Down");
    stage.check("menu, opened");
    stage.resize(100, 30);
    stage.shows("10Quit");
    stage.check("larger");
    stage.keys("F10");
    stage.keys("F10");
    stage.until("its end", |screen| !screen.alternate());
    stage.check("left");
    stage.end();
}

#[test]
fn fzf() {
    let Some(mut stage) = Stage::with_term("fzf", "fzf", "tmux-256color") else { return };
    stage.start("seq 1 300 | fzf");
    stage.shows("300/300");
    stage.check("begun");
    stage.keys("Up Up");
    stage.check("moved");
    stage.press("12");
    stage.shows("/300");
    stage.hides("300/300");
    stage.check("narrowed");
    stage.resize(50, 16);
    stage.check("smaller");
    stage.press("\r");
    stage.prompt();
    stage.check("chosen");
    stage.start("seq 1 300 | fzf --height 10 --border --reverse -m");
    stage.shows("300/300");
    stage.check("below the prompt");
    stage.press("\t\t3");
    stage.hides("300/300");
    stage.check("chosen and narrowed");
    stage.press("\x1b");
    stage.prompt();
    stage.check("given up");
    stage.end();
}

#[test]
fn tmux_inside() {
    let Some(mut stage) = Stage::with_term("tmux", "tmux", "tmux-256color") else { return };
    let program = crate::common::tmux_program();
    stage.inner_socket();
    // Keys that arrive at once are not a paste.
    stage.file("conf", "set-option -g assume-paste-time 0\n");
    stage.file(
        "inside",
        format!("unset TMUX\nexec {program} -f conf -u -S ./s new-session 'exec bash --norc --noprofile'\n"),
    );
    stage.start("sh inside");
    stage.shows("[0]");
    stage.check("begun");
    stage.press("seq 1 100\r");
    stage.shows("100");
    stage.check("output");
    stage.press("\x02\"");
    stage.shows("───");
    stage.check("split");
    stage.press("\x02%");
    stage.shows("│");
    stage.check("split again");
    stage.press("seq 1 50; echo 漢字\r");
    stage.shows("漢字");
    stage.check("output in a part of the width");
    stage.resize(100, 30);
    stage.check("larger at once");
    stage.until("the larger picture", |screen| screen.row_text(29).contains("[0]"));
    stage.check("larger");
    stage.press("\x02[");
    stage.shows("[0/");
    stage.keys("PPage");
    stage.check("in copy mode");
    stage.press("q");
    stage.until("the end of copy mode", |screen| (0..29).all(|number| !row(screen, number).contains(']')));
    stage.press("\x02?");
    stage.shows("Select next layout");
    stage.check("keys");
    stage.press("q");
    stage.hides("Select next layout");
    stage.press("\x02d");
    stage.shows("[detached");
    stage.prompt();
    stage.check("left");
    stage.run(&format!("{program} -S ./s kill-server"));
    stage.end();
}

#[test]
fn curses() {
    let Some(mut stage) = Stage::with_term("curses", "python3", "screen-256color") else { return };
    stage.file("draw.py", output::CURSES);
    stage.start("python3 draw.py");
    for step in 1..=9 {
        stage.shows(&format!("step {step}."));
        stage.check(&format!("step {step}"));
        if step == 6 {
            stage.resize(70, 20);
            // ncurses loses a key that comes while it handles the new size.
            stage.draws(1);
            stage.check("resized");
        }
        stage.press(" ");
    }
    stage.prompt();
    stage.check("left");
    stage.end();
}
