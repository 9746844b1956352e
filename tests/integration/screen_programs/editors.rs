//! Editors.

use super::{output, stage::Stage};

fn vim(name: &'static str, term: &str, settings: &str) {
    let Some(mut stage) = Stage::with_term(name, "vim", term) else { return };
    stage.file("code.rs", output::source(200));
    stage.file("words.txt", output::words());
    stage.start(&format!("vim -Nu NONE -i NONE -n -c '{settings}' code.rs"));
    stage.shows("\"code.rs\"");
    stage.shows("function_1(");
    stage.check("begun");
    stage.press("\x04");
    stage.shows("function_6(");
    stage.check("half a page down");
    stage.press("\x05\x05\x05\x19");
    stage.check("scrolled by lines");
    stage.press("G");
    stage.shows("function_200(");
    stage.check("at the end");
    stage.press("gg/return\r");
    stage.until("a match", |screen| screen.cursor().row > 0);
    stage.check("found");
    stage.press("nnN");
    stage.check("found again");
    stage.press("Oinserted above\x1b");
    stage.shows("inserted above");
    stage.check("a line inserted");
    stage.press("5dd");
    stage.hides("inserted above");
    stage.check("lines deleted");
    stage.press("u");
    stage.shows("inserted above");
    stage.check("undone");
    stage.press(":split words.txt\r");
    stage.shows("漢字");
    stage.check("split");
    stage.press("\x06");
    stage.check("a page on in the upper window");
    stage.press(":vsplit\r");
    stage.until("two windows side by side", |screen| {
        screen.row_text(3).contains('|') || screen.row_text(3).contains('│')
    });
    stage.check("split again");
    stage.press("\x05\x05");
    stage.check("scrolled in a window of half the width");
    stage.resize(100, 30);
    stage.check("larger at once");
    stage.until("the larger picture", |screen| screen.row_text(28).contains("code.rs"));
    stage.check("larger");
    stage.resize(61, 17);
    stage.until("the smaller picture", |screen| screen.row_text(15).contains("code.rs"));
    stage.check("smaller");
    stage.press(":only\r");
    stage.check("one window");
    stage.press("iwide 漢字 and e\u{301} and 👩‍👩‍👧\x1b");
    stage.shows("wide 漢字");
    stage.check("wide characters typed");
    stage.press("hhhx0x");
    stage.check("and deleted");
    stage.press("v\x06");
    stage.check("selected");
    stage.press("\x1b:help\r");
    stage.check("help");
    stage.press(":qa!\r");
    stage.prompt();
    stage.check("left");
    stage.end();
}

#[test]
fn vim_plain() {
    vim("vim", "screen", "set hlsearch incsearch");
}

#[test]
fn vim_coloured() {
    vim(
        "vim, coloured",
        "tmux-256color",
        "syntax on | set hlsearch number cursorline list termguicolors background=dark",
    );
}

#[test]
fn vi_with_long_lines() {
    let Some(mut stage) = Stage::with_term("vi", "vi", "screen-256color") else { return };
    stage.file("long.txt", output::words().replace("\n\n", "\n"));
    stage.start("vi -u NONE -i NONE -n long.txt");
    stage.shows("\"long.txt\"");
    stage.check("begun");
    stage.press("jjA and more at its end\x1b");
    stage.shows("and more at its end");
    stage.check("typed");
    stage.resize(33, 24);
    stage.check("narrower");
    stage.press("jjjdd");
    stage.check("deleted");
    stage.press("\x1a");
    stage.until("the shell", |screen| !screen.alternate());
    stage.check("stopped");
    stage.press("fg\r");
    stage.until("back", muxtap::screen::Screen::alternate);
    stage.check("back");
    stage.press(":q!\r");
    stage.prompt();
    stage.check("left");
    stage.end();
}

#[test]
fn nano() {
    let Some(mut stage) = Stage::with_term("nano", "nano", "tmux-256color") else { return };
    stage.file("code.rs", output::source(100));
    stage.start("nano --ignorercfiles code.rs");
    stage.shows("Exit");
    stage.check("begun");
    stage.press("\x16\x16");
    stage.shows("function_10(");
    stage.check("two pages down");
    stage.press("typed 漢字 here\r\r");
    stage.shows("typed 漢字 here");
    stage.check("typed");
    stage.press("\x0b\x0b\x0b");
    stage.check("cut");
    stage.press("\x17");
    stage.shows("Search");
    stage.check("asked");
    stage.press("return\r");
    stage.hides("Search:");
    stage.check("found");
    stage.resize(50, 14);
    stage.shows("Exit");
    stage.check("smaller");
    stage.resize(90, 30);
    stage.check("larger");
    stage.until("the larger picture", |screen| screen.row_text(28).contains("Help"));
    stage.check("drawn anew");
    stage.press("\x18");
    stage.shows("Save modified buffer");
    stage.check("asked to save");
    stage.press("n");
    stage.prompt();
    stage.check("left");
    stage.end();
}
