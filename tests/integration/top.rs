//! `muxtap top`, in a pane of a second tmux server.

use rustix::process::Signal;

use crate::{
    common::{World, answering, eventually, signal, type_line},
    watch::{line, press, screen, shows, terminal, told},
};

fn quit(world: &World, pane: &str) {
    press(world, pane, &["q"]);
    shows(world, pane, "status 0");
    assert_eq!(told(world, pane, "#{alternate_on}#{cursor_flag}"), "01");
    press(world, pane, &["typed", "Enter"]);
    shows(world, pane, "typed\ntyped");
}

#[test]
fn panes_are_shown_as_they_are_and_keys_do_what_they_say() {
    let world = World::with_server();
    let talks = answering(&world, &["new-window", "-n", "talks"]);
    world.tmux(&["new-window", "-d", "-n", "quiet", "cat"]);
    let top = terminal(&world, "110", "14", &line(&world, "top"));
    shows(&world, &top, "1 server · 3 panes · 0 waits · by place");
    shows(&world, &top, "main:1.0 talks .*ready");
    type_line(&world, &talks, "hello there");
    shows(&world, &top, "main:1.0 talks .*B/s +0s .*got hello there");
    // The waits of each pane.
    let wait = world.spawn(&["wait-for", "-t", &talks, "-p", "the end of it", "-T", "60"]);
    shows(&world, &top, "1 wait .*\n.*WAITED FOR");
    shows(&world, &top, "main:1.0 talks .*pattern the end of it");
    type_line(&world, &talks, "the end of it");
    assert_eq!(wait.finish().status, 0);
    shows(&world, &top, "0 waits");
    // A pane that opens, and one that closes.
    world.tmux(&["new-window", "-d", "-n", "late", "cat"]);
    shows(&world, &top, "main:3.0 late");
    world.tmux(&["kill-window", "-t", "main:late"]);
    shows(&world, &top, "3 panes");
    // The selected pane's screen.
    press(&world, &top, &["j"]);
    press(&world, &top, &["Enter"]);
    shows(&world, &top, r"\A%\d+  main:1.0 talks .*\nready\ngot hello there");
    type_line(&world, &talks, "more");
    shows(&world, &top, "got more");
    press(&world, &top, &["Escape"]);
    shows(&world, &top, "by place");
    // The filter, in which `q` and `s` are letters.
    press(&world, &top, &["/", "q", "u", "i"]);
    shows(&world, &top, "1 of 3 panes");
    shows(&world, &top, r"/qui\s*\z");
    press(&world, &top, &["Enter"]);
    shows(&world, &top, r"/qui +\(Esc");
    press(&world, &top, &["Escape"]);
    shows(&world, &top, "· 3 panes");
    press(&world, &top, &["s"]);
    shows(&world, &top, "by rate");
    press(&world, &top, &["?"]);
    shows(&world, &top, "any key: back");
    press(&world, &top, &["x"]);
    shows(&world, &top, "by rate");
    quit(&world, &top);
}

#[test]
fn it_needs_a_terminal_and_says_what_does_not() {
    let world = World::with_server();
    for args in [&["top"][..], &["--json", "top"]] {
        let answer = world.muxtap(args);
        assert_eq!((answer.status, answer.text().as_str()), (1, ""), "{answer:?}");
        assert!(answer.stderr.contains("list-panes --watch --json"), "{answer:?}");
    }
    assert!(!world.daemon_socket().exists());
}

#[test]
fn a_terminal_of_any_size_and_hostile_text_are_drawn() {
    let world = World::with_server();
    let hostile =
        "printf '\\033]0;a title\\007wide 日本語 e\\314\\201 \\342\\200\\256override \\302\\2335mend\\n'; exec cat";
    let pane = world.window(hostile);
    world.await_output(&pane, "end");
    world.tmux(&["rename-window", "-t", &pane, "日本 \u{202e}x"]);
    let top = terminal(&world, "100", "10", &format!("NO_COLOR=1 {}", line(&world, "top")));
    shows(&world, &top, "wide 日本語 e override .*end");
    let text = screen(&world, &top);
    assert!(text.contains(r"日本 \u{202e}x") && !text.contains('\u{202e}'), "{text}");
    let coloured = world.tmux_at(&world.path("outer"), &["capture-pane", "-p", "-e", "-t", &top]);
    // 39 and 49 are the terminal's default colors.
    let colour = regex::Regex::new("\u{1b}\\[([0-9]+;)*(3[0-8]|4[0-8]|9[0-7])[;m]").unwrap();
    assert!(!colour.is_match(&coloured), "{coloured:?}");
    for (columns, rows) in [("1", "1"), ("2", "3"), ("7", "5"), ("200", "2"), ("3", "40"), ("100", "10")] {
        world.tmux_at(&world.path("outer"), &["resize-window", "-t", &top, "-x", columns, "-y", rows]);
        eventually("the size is another", || {
            told(&world, &top, "#{pane_width}x#{pane_height}") == format!("{columns}x{rows}")
        });
        press(&world, &top, &["j", "Enter", "Escape", "?", "x"]);
    }
    shows(&world, &top, "wide 日本語");
    quit(&world, &top);
}

#[test]
fn signals_give_the_terminal_back() {
    for (how, shown) in [(Signal::TERM, "status 143"), (Signal::HUP, "status 129")] {
        let world = World::with_server();
        let top = terminal(&world, "80", "10", &line(&world, "top"));
        shows(&world, &top, "1 server · 1 pane");
        let program = || world.processes().into_iter().find(|(_, line)| line.ends_with(" top ")).map(|(pid, _)| pid);
        signal(program().expect("it runs"), how);
        shows(&world, &top, shown);
        assert_eq!(told(&world, &top, "#{alternate_on}#{cursor_flag}"), "01", "{shown}");
        press(&world, &top, &["typed", "Enter"]);
        shows(&world, &top, "typed\ntyped");
    }
}

/// Ctrl-Z leads back to the shell, and `fg` to the view.
#[test]
fn it_can_be_suspended() {
    let mut world = World::with_server();
    world.set("PS1", "$ ");
    let shell = terminal(&world, "80", "10", "bash --norc --noprofile");
    shows(&world, &shell, r"(?m)^\$");
    press(&world, &shell, &["-l", &line(&world, "top")]);
    press(&world, &shell, &["Enter"]);
    shows(&world, &shell, "1 server · 1 pane");
    press(&world, &shell, &["C-z"]);
    shows(&world, &shell, "Stopped");
    assert_eq!(told(&world, &shell, "#{alternate_on}#{cursor_flag}"), "01");
    press(&world, &shell, &["fg", "Enter"]);
    shows(&world, &shell, "1 server · 1 pane");
    let top = world.processes().into_iter().find(|(_, line)| line.ends_with(" top ")).unwrap().0;
    signal(top, Signal::TSTP);
    shows(&world, &shell, "Stopped");
    press(&world, &shell, &["fg", "Enter"]);
    shows(&world, &shell, "1 server · 1 pane");
    press(&world, &shell, &["C-c"]);
    shows(&world, &shell, r"\$\s*\z");
    press(&world, &shell, &["echo it was $?", "Enter"]);
    shows(&world, &shell, "it was 130");
}

#[test]
fn it_outlives_a_daemon_and_a_server() {
    let world = World::with_server();
    let pane = answering(&world, &["new-window", "-n", "talks"]);
    let top = terminal(&world, "100", "10", &line(&world, "top"));
    shows(&world, &top, "1 server · 2 panes");
    world.kill_daemon(Signal::KILL);
    type_line(&world, &pane, "hello");
    shows(&world, &top, "got hello");
    world.tmux(&["kill-server"]);
    shows(&world, &top, "0 servers · 0 panes");
    world.session("back");
    shows(&world, &top, "1 server · 1 pane .*\n(.*\n)+.*back:0.0");
    world.ok(&["stop"]);
    eventually("it has ended", || screen(&world, &top).contains("status 1"));
    assert!(screen(&world, &top).contains("the daemon has ended"));
}

/// In a pane of the server that it shows, it would otherwise redraw for its own output forever.
#[test]
fn it_is_not_drawn_for_its_own_output() {
    let world = World::with_server();
    let shell = world.tmux(&["new-window", "-d", "-n", "self", "-P", "-F", "#{pane_id}", &line(&world, "top")]);
    let (args, limit) = (["wait-for", "-t", shell.as_str(), "--screen"], ["-T", "30"]);
    world.ok(&[&args[..], &["main:1.0 self"], &limit].concat());
    // Its own output is not counted, regardless of other output.
    let other = answering(&world, &["new-window", "-n", "talks"]);
    type_line(&world, &other, "once");
    world.ok(&[&args[..], &["talks .*got once"], &limit].concat());
    let text = world.tmux(&["capture-pane", "-p", "-t", &shell]);
    let own = text.lines().find(|line| line.contains("main:1.0 self")).unwrap_or_default();
    assert!(!own.contains("/s "), "{text}");
}
