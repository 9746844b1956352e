//! Content for programs to show, and programs that only print.

use std::fmt::Write as _;

use super::stage::Stage;

/// Returns a source file.
pub fn source(functions: u32) -> String {
    let mut text = String::new();
    for number in 1..=functions {
        writeln!(
            text,
            "/// Gives number {number}; this line is long enough that it does not fit into a narrow window at all, so it wraps.\nfn function_{number}(value: u32) -> u32 {{\n\treturn value + {number}; // \"a string\"\n}}\n"
        )
        .unwrap();
    }
    text
}

/// Returns lines of wide, combining and joined characters.
pub fn words() -> String {
    let line = "漢字とかな, größe, e\u{301}te\u{301}, 한국어, עברית, ไทย, 👩‍👩‍👧 👍🏽 🇩🇪 ✔️ ½, ｆｕｌｌ, ";
    let mut text = String::new();
    for number in 1..=30 {
        writeln!(text, "{number}: {}\n", line.repeat(1 + number % 3)).unwrap();
    }
    text
}

/// Returns text in colors.
pub fn colours() -> String {
    let mut text = String::new();
    for number in 0..=255 {
        write!(
            text,
            "\x1b[38;5;{number}mcolour {number}\x1b[0m \x1b[48;5;{number}m  \x1b[0m \x1b[1;4;3{}m",
            number % 8
        )
        .unwrap();
        write!(text, "bold\x1b[0m \x1b[38;2;{number};0;99mexact\x1b[39m \x1b[7;9mreversed\x1b[27;29m").unwrap();
        text.push_str(if number % 3 == 0 { "\n" } else { " " });
    }
    text
}

/// Returns bold and underlined text in typewriter style (overstruck).
pub fn overstruck() -> String {
    let bold = |text: &str| text.chars().flat_map(|letter| [letter, '\x08', letter]).collect::<String>();
    let under = |text: &str| text.chars().flat_map(|letter| ['_', '\x08', letter]).collect::<String>();
    let mut text = String::new();
    for number in 1..=60 {
        writeln!(text, "{} and {} in line {number}", bold("NAME"), under("something underlined")).unwrap();
    }
    text
}

/// A repository with branches.
pub const REPOSITORY: &str = "set -e
git init -q -b main .
git config user.name Somebody
git config user.email somebody@example.org
for i in 1 2 3 4 5 6 7 8 9 10; do
    echo \"// change $i\" >>code.rs
    git add code.rs
    git commit -q -m \"Commit $i of the größe 漢字\" -m \"Its reason, which is told at such length that the line wraps in a narrow window.\"
    if [ $i = 5 ]; then git branch side; fi
done
git checkout -q side
echo other >other; git add other; git commit -q -m 'Commit on the side'
git checkout -q main
git merge -q -m 'Merge the side' side
sed -i -e 's/return value/give value/' code.rs
git commit -q -a -m 'Another word'
echo changed >>other
";

/// A manual page.
pub const MANUAL: &str = ".TH PAGE 1\n.SH NAME\npage \\- a page\n.SH SYNOPSIS\n.B page\n[\\fB\\-a\\fR] [\\fIfile\\fR ...]\n.SH DESCRIPTION\n\
A page with \\fBbold\\fR and \\fIitalic\\fR text that is long enough to fill more than one row of the window in which it is read.\n.TP\n.B \\-a\n\
All.\n.SH ENVIRONMENT\n.nf\nA\nB\nC\nD\nE\nF\nG\nH\nI\nJ\nK\nL\nM\nN\nO\nP\n.fi\n.SH BUGS\nNone known.\n";

/// Boxes, colors, scroll regions, and inserted and deleted lines and characters.
pub const CURSES: &str = r#"import curses
def main(s):
    curses.curs_set(0)
    curses.use_default_colors()
    for i in range(1, 8):
        curses.init_pair(i, i, (i * 3) % 8)
    n = 0
    def step(w):
        nonlocal n
        n += 1
        s.addstr(s.getmaxyx()[0] - 1, 0, "step %d." % n)
        s.noutrefresh()
        w.noutrefresh()
        curses.doupdate()
        while s.getch() == curses.KEY_RESIZE:
            pass
    for i in range(20):
        s.addstr(i, i * 2, "text %d" % i, curses.color_pair(i % 8))
    step(s)
    w = curses.newwin(10, 40, 4, 10)
    w.bkgd(' ', curses.color_pair(4))
    w.box()
    w.addstr(0, 3, " A question ", curses.A_BOLD)
    w.addstr(4, 5, "[ Yes ]", curses.A_REVERSE)
    w.addstr(4, 20, "[ No ]")
    step(w)
    w.addstr(4, 5, "[ Yes ]")
    w.addstr(4, 20, "[ No ]", curses.A_REVERSE | curses.A_BLINK)
    step(w)
    s.scrollok(True)
    s.idlok(True)
    s.touchwin()
    s.setscrreg(2, 12)
    for i in range(5):
        s.move(12, 0)
        s.scroll(1)
        s.addstr(12, 0, "scrolled in %d" % i, curses.A_UNDERLINE)
    step(s)
    s.scroll(-3)
    step(s)
    s.setscrreg(0, s.getmaxyx()[0] - 1)
    s.idcok(True)
    s.move(5, 3)
    s.insdelln(2)
    s.insstr(6, 2, "inserted ")
    s.move(7, 4)
    for i in range(6):
        s.delch()
    step(s)
    s.erase()
    s.hline(3, 0, curses.ACS_HLINE, 40)
    s.vline(3, 20, curses.ACS_VLINE, 10)
    s.addstr(8, 30, "\u6f22\u5b57 \u00fc e\u0301")
    s.addch(3, 20, curses.ACS_TTEE)
    step(s)
    s.bkgd(' ', curses.color_pair(2))
    s.clrtobot()
    step(s)
    s.clear()
    s.addstr(0, 0, "after clear " * 30)
    step(s)
curses.wrapper(main)
"#;

/// Progress bars: one redrawn after a lone CR, one above a status line, several reached by moving
/// up.
const PROGRESS: &str = r##"import sys, shutil
w = sys.stdout.write
width = shutil.get_terminal_size().columns
for i in range(0, 101, 4):
    w("\r[%-40s] %3d%%" % ("#" * (i * 40 // 100), i)); sys.stdout.flush()
w("\n")
for i in range(30):
    w("\r\x1b[K\x1b[1m\x1b[32m   Compiling\x1b[0m crate-%d v0.%d.0 (/some/where/rather/long/so/that/it/may/wrap/%d)\n" % (i, i, i))
    w("\x1b[1m\x1b[36m    Building\x1b[0m [%-27s] %d/30: crate-%d(build.rs)..." % ("=" * (i * 26 // 30) + ">", i, i)); sys.stdout.flush()
w("\r\x1b[K\x1b[1m\x1b[32m    Finished\x1b[0m `dev` profile\n")
w("\n" * 4)
for i in range(0, 101, 5):
    w("\x1b[4A")
    for k in range(4):
        w("\x1b[2K\x1b[3%dmdownload %d: %s %d%%\x1b[0m\n" % (k + 1, k, "\u2588" * (i * (k + 1) // 20), min(100, i * (k + 1) // 2)))
    sys.stdout.flush()
for i in range(50):
    w("\r" + "|/-\\"[i % 4] + " turning" + "." * (i * width // 40))
w("\n\x1b[?25lhidden\x1b[?25h\n")
"##;

/// Characters of all kinds, also at the right edge.
const SHOWN: &str = r#"import sys
w = sys.stdout.write
w("\u6f22\u5b57" * 30 + "\n")
w("x" + "\u6f22\u5b57" * 30 + "\n")
w("e\u0301" * 100 + "\n")
w("\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f44d\U0001f3fd \U0001f1e9\U0001f1ea \u2714\ufe0f \u263a\n" * 4)
w("\x1b(0lqqqk\n\rx   x\n\rmqqqj\x1b(B ascii\n")
w("\x0e lqk \x0f\x1b)0\x0elqk\x0f\n")
w("\x1b[31;44mred on blue\x1b[K\n\x1b[0m\x1b[4:3;58;5;9mcurly\x1b[0m \x1b[53mover\x1b[0m \x1b[3;9mitalic struck\x1b[0m\n")
w("\x1b]8;;http://example.org\x1b\\link\x1b]8;;\x1b\\ \x1b]2;a title\x07\x1bk a name\x1b\\\n")
w("a\tb\tc\x1b[3g\x1b[5G\x1bH\r\ttab\n\x1bc")
w("after a full reset\n\x1b[2J\x1b[Hhome\x1b[10;20Hthere\x1b[1Jgone\x1b[5;10r\x1b[10;1H" + "scroll\n" * 8 + "\x1b[r\x1b[20;1H")
w("\x1b7saved\x1b[3;3Helsewhere\x1b8\x1b[12b\x1b[5@\x1b[2P\x1b[3X\x1b[2L\x1b[1M\n\x1b#8\x1b[22;1H\x1b[?7lno wrap " + "y" * 100 + "\x1b[?7h\x1b[24;1H\x1b[2K")
"#;

#[test]
fn progress() {
    let Some(mut stage) = Stage::new("progress bars", "python3") else { return };
    stage.file("progress.py", PROGRESS);
    stage.run("python3 progress.py");
    stage.check("printed");
    stage.resize(50, 20);
    stage.check("narrower");
    stage.run("python3 progress.py");
    stage.check("narrower and printed again");
    stage.resize(120, 30);
    stage.check("wider");
    stage.run("python3 progress.py");
    stage.check("wider and printed again");
    stage.resize(80, 24);
    stage.check("as before");
    stage.run("clear");
    stage.check("cleared");
    stage.end();
}

#[test]
fn characters_of_all_kinds() {
    let Some(mut stage) = Stage::with_term("characters", "python3", "tmux-256color") else { return };
    stage.file("shown.py", SHOWN);
    stage.file("words.txt", words());
    stage.file("colours", colours());
    stage.run("python3 shown.py");
    stage.check("printed");
    stage.run("cat words.txt");
    stage.check("wide characters");
    stage.resize(43, 24);
    stage.check("narrower");
    stage.run("cat words.txt");
    stage.check("narrower and printed again");
    stage.resize(101, 30);
    stage.check("wider");
    stage.run("cat colours");
    stage.check("colours");
    stage.resize(60, 24);
    stage.check("colours, narrower");
    stage.run("reset");
    stage.check("reset");
    stage.run("ls --color=always -la /usr/bin | head -n 100");
    stage.check("a listing");
    stage.run("clear; seq 1 10");
    stage.check("cleared");
    stage.end();
}

#[test]
fn more_than_the_history_holds() {
    let Some(mut stage) = Stage::new("history", "bash") else { return };
    for count in [180, 3, 45, 1000] {
        stage.run(&format!("seq -f 'a line, number %g' 1 {count}"));
        stage.check(&format!("{count} lines"));
    }
    stage.resize(30, 10);
    stage.check("narrower");
    stage.run("seq -f 'a line that wraps here, number %g' 1 150");
    stage.check("lines that wrap");
    stage.resize(80, 40);
    stage.check("larger");
    stage.end();
}
