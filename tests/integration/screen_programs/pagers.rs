//! Pagers, and what is shown in them.

use super::{output, stage::Stage};

#[test]
fn less() {
    let Some(mut stage) = Stage::new("less", "less") else { return };
    stage.file("code.rs", output::source(100));
    stage.start("less code.rs");
    stage.shows("function_1(");
    stage.check("begun");
    stage.press("f");
    stage.shows("function_8(");
    stage.check("forward");
    stage.press("jjj");
    stage.check("by lines");
    stage.press("bk");
    stage.check("back");
    stage.press("/return\r");
    stage.check("searched");
    stage.press("nN");
    stage.check("searched again");
    stage.press("G");
    stage.shows("(END)");
    stage.check("the end");
    stage.resize(60, 20);
    stage.draws(1);
    stage.check("smaller");
    stage.press("g");
    stage.shows("function_1(");
    stage.check("the start");
    stage.press("-S\r");
    stage.press("\x1b[C");
    stage.check("shifted");
    stage.press("h");
    stage.shows("SUMMARY OF LESS COMMANDS");
    stage.check("help, in bold");
    stage.press("qq");
    stage.prompt();
    stage.check("left");
    stage.start("less -X -N code.rs");
    stage.shows("function_1(");
    stage.check("on the main screen");
    stage.press("fjjb");
    stage.check("on the main screen, moved");
    stage.press("q");
    stage.prompt();
    stage.check("left, and it stays");
    stage.end();
}

#[test]
fn less_with_colours_and_bold() {
    let Some(mut stage) = Stage::with_term("less -R", "less", "tmux-256color") else { return };
    stage.file("colours", output::colours());
    stage.file("bold", output::overstruck());
    stage.file("words.txt", output::words());
    stage.start("less -R colours");
    stage.shows("colour 7");
    stage.check("colours");
    stage.press("fffb");
    stage.check("moved");
    stage.resize(45, 24);
    stage.draws(1);
    stage.check("narrower");
    stage.press("j");
    stage.check("narrower and moved");
    stage.press("q");
    stage.prompt();
    stage.start("less bold");
    stage.shows("NAME");
    stage.check("bold and underlined");
    stage.press("fjjjb");
    stage.check("moved");
    stage.press("q");
    stage.prompt();
    stage.start("less words.txt");
    stage.shows("1: 漢字");
    stage.check("wide characters");
    stage.press("f");
    stage.check("the next page");
    stage.press("q");
    stage.prompt();
    stage.check("left");
    stage.end();
}

#[test]
fn git_with_a_pager() {
    let Some(mut stage) = Stage::with_term("git", "git", "screen-256color") else { return };
    stage.file("code.rs", output::source(40));
    stage.file("make", output::REPOSITORY);
    stage.run("sh make >/dev/null 2>&1");
    stage.start("git -c color.ui=always log --graph --decorate --all");
    stage.shows("commit");
    stage.check("log");
    stage.press("fjjb");
    stage.check("moved");
    stage.press("/Commit 2\r");
    stage.check("searched");
    stage.resize(50, 20);
    stage.draws(1);
    stage.check("smaller");
    stage.press("G");
    stage.shows("(END)");
    stage.check("the end");
    stage.press("q");
    stage.prompt();
    stage.start("git log -p --word-diff=color");
    stage.shows("commit");
    stage.check("word by word");
    stage.press("ff");
    stage.check("moved");
    stage.press("q");
    stage.prompt();
    stage.run("git --no-pager -c color.ui=always log --oneline --stat | head -n 40");
    stage.check("without a pager");
    stage.run("git --no-pager status");
    stage.check("status");
    stage.end();
}

#[test]
fn man() {
    let Some(mut stage) = Stage::new("man", "man") else { return };
    stage.file("page.1", output::MANUAL);
    stage.start("man ./page.1");
    stage.shows("SYNOPSIS");
    stage.check("begun");
    stage.press("f");
    stage.check("a page on");
    stage.press("q");
    stage.prompt();
    stage.check("left");
    stage.end();
}
