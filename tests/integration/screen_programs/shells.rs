//! Shells and other programs that edit a line.

use super::stage::{Stage, row};

#[test]
fn bash_edits_lines() {
    let Some(mut stage) = Stage::new("bash", "bash") else { return };
    stage.press("echo first");
    stage.cursor_after("$ echo first");
    stage.check("typed");
    stage.press("\x01\x1b[C\x1b[C\x0b");
    stage.cursor_after("$ ec");
    stage.check("killed to the end");
    stage.press("\x19\r");
    stage.prompt();
    stage.run("echo second");
    stage.press("\x1b[A\x1b[A");
    stage.cursor_after("$ echo first");
    stage.check("history");
    stage.press("\x15\x1b>\x12econd");
    stage.shows("(reverse-i-search)`econd': echo second");
    stage.check("search in the history");
    stage.press("\x07");
    stage.hides("reverse-i-search");
    stage.press("\x15");
    stage.prompt();
    let long = "a long line that wraps, ".repeat(8);
    stage.press(&format!("echo {long}end"));
    stage.shows("wraps, end");
    stage.check("a line of three rows");
    stage.press("\x01\x1bfMIDDLE");
    stage.shows("echoMIDDLE");
    stage.check("typed in its first row");
    stage.press("\x05\x17\x17\x17");
    stage.hides("wraps, end");
    stage.check("words deleted at its end");
    stage.resize(50, 24);
    stage.check("narrower");
    stage.press("XY");
    stage.shows("XY");
    stage.check("narrower and typed");
    stage.resize(100, 30);
    stage.press("Z");
    stage.shows("XYZ");
    stage.check("wider and typed");
    stage.press("\x03");
    stage.prompt();
    stage.press("\x0c");
    stage.until("a cleared screen", |screen| screen.row_text(0) == "$" && screen.cursor().row == 0);
    stage.check("cleared by ctrl-l");
    stage.end();
}

#[test]
fn bash_completes() {
    let Some(mut stage) = Stage::with_term("bash completion", "bash", "tmux-256color") else { return };
    for name in ["apple", "apricot", "avocado", "banana with spaces", "größe", "漢字"] {
        stage.file(name, "");
    }
    stage.press("ls a\t\t");
    stage.shows("apple    apricot  avocado");
    stage.cursor_after("$ ls a");
    stage.check("what may come");
    stage.press("pr\t");
    stage.cursor_after("$ ls apricot");
    stage.press("漢\t");
    stage.shows("apricot 漢字");
    stage.check("a wide name");
    stage.press("\x1b[D\x1b[D\x7f");
    stage.shows("apricot 字");
    stage.check("deleted before a wide character");
    stage.press("\x03");
    stage.prompt();
    stage.press("for i in 1 2; do\r");
    stage.cursor_after("> ");
    stage.press("echo again $i\r");
    stage.until("the next line", |screen| {
        let row = |number| screen.row_text(u16::try_from(number).unwrap());
        let at = screen.cursor().row;
        row(at) == ">" && row(at - 1) == "> echo again $i"
    });
    stage.check("a command of several lines");
    stage.press("done\r");
    stage.shows("again 2");
    stage.prompt();
    stage.check("its output");
    stage.resize(60, 15);
    stage.check("smaller");
    stage.run("clear");
    stage.check("clear");
    stage.run("tput reset");
    stage.check("tput reset");
    stage.end();
}

#[test]
fn zsh() {
    let Some(mut stage) = Stage::with_term("zsh", "zsh", "screen-256color") else { return };
    for name in ["apple", "apricot", "avocado"] {
        stage.file(name, "");
    }
    stage.start("PS1='zsh%# ' exec zsh -f");
    stage.cursor_after("zsh#");
    stage.check("its prompt");
    stage.press("autoload -U compinit && compinit -u -D && zstyle ':completion:*' menu select && echo ready\r");
    stage.until("ready", |screen| {
        let at = u16::try_from(screen.cursor().row).unwrap();
        screen.row_text(at) == "zsh#" && at > 0 && screen.row_text(at - 1) == "ready"
    });
    stage.press("ls a\t");
    stage.shows("apricot  avocado");
    stage.check("what may come");
    stage.press("\t\x1b[C");
    stage.shows("zsh# ls apricot");
    stage.check("the second chosen");
    stage.resize(50, 20);
    stage.check("smaller while choosing");
    stage.press("\x03");
    stage.until("no choice", |screen| !row(screen, screen.cursor().row).contains("apricot"));
    // If zsh is interrupted while it draws for a new size, it may leave its row empty: Ctrl-L draws it.
    stage.press("\x15\x0c");
    stage.until("the prompt", |screen| row(screen, screen.cursor().row) == "zsh#");
    stage.check("given up");
    stage.press("print -n no newline\r");
    stage.shows("no newline#");
    stage.check("output without a line's end");
    stage.press(&"echo a long line ".repeat(7));
    stage.until("all of it", |screen| row(screen, screen.cursor().row).ends_with("line"));
    stage.press("\x01X");
    stage.shows("zsh# Xecho");
    stage.check("a long line, edited at its start");
    stage.press("\x03");
    stage.press("\x04");
    stage.end();
}

#[test]
fn fish() {
    let Some(mut stage) = Stage::with_term("fish", "fish", "tmux-256color") else { return };
    for name in ["apple", "apricot", "avocado"] {
        stage.file(name, "");
    }
    stage.file("init.fish", "function fish_prompt; printf 'fish> '; end\nset -g fish_greeting\n");
    stage.start("exec fish -N -i -C 'source init.fish'");
    stage.until("its prompt", |screen| row(screen, screen.cursor().row) == "fish>");
    stage.check("its prompt");
    stage.press("echo fir");
    stage.shows("fish> echo fir");
    stage.check("typed, coloured");
    stage.press("st\r");
    stage.until("first", |screen| {
        let at = u16::try_from(screen.cursor().row).unwrap();
        screen.row_text(at) == "fish>" && at > 0 && screen.row_text(at - 1) == "first"
    });
    stage.press("ec");
    stage.shows("fish> echo first");
    stage.check("a suggestion");
    stage.press("\x15ls a\t\t");
    stage.shows("apricot");
    stage.check("what may come");
    stage.resize(60, 20);
    stage.check("smaller while choosing");
    stage.press("\x1b[B");
    stage.check("moved");
    stage.press("\x03\x03");
    stage.check("given up");
    stage.end();
}

#[test]
fn python() {
    let Some(mut stage) = Stage::new("python3", "python3") else { return };
    // Without its line editor (`-I`), so that the terminal's own editing is drawn.
    stage.start("python3 -q -I");
    stage.cursor_after(">>> ");
    stage.check("its prompt");
    stage.press("x = [n * n for n in range(60)]\r");
    stage.press("x\r");
    stage.shows("3481]");
    stage.cursor_after(">>> ");
    stage.check("a long list");
    stage.press("print('ü漢字 👩‍👩‍👧 e\u{301}')\r");
    stage.until("wide characters", |screen| {
        let at = u16::try_from(screen.cursor().row).unwrap();
        screen.row_text(at) == ">>>" && at > 0 && screen.row_text(at - 1).starts_with("ü漢字")
    });
    stage.check("wide characters");
    stage.press("def f(a):\r");
    stage.cursor_after("... ");
    stage.press("    return a\x1b[D\x1b[D\x1b[DX\x05 + 1");
    stage.shows("retu");
    stage.shows("+ 1");
    stage.check("edited in a block");
    stage.reads();
    stage.press("\x03");
    stage.shows("KeyboardInterrupt");
    stage.resize(40, 18);
    stage.check("smaller");
    stage.press("\x1b[A\x1b[A");
    stage.check("history");
    // Text typed together with an interrupt is discarded with the line.
    stage.reads();
    stage.press("\x03");
    stage.cursor_after(">>> ");
    stage.press("1/0\r");
    stage.shows("ZeroDivisionError");
    stage.check("an error");
    stage.press("\x04");
    stage.prompt();
    stage.check("ended");
    stage.end();
}
