//! `muxtap`, which people type, and `muxtapd`, which it needs.

use std::{fs, path::Path};

use crate::common::{Background, World, run};

/// Copies these programs to a directory under these names; returns the path of the first one.
fn installed(world: &World, folder: &str, programs: &[(&Path, &str)]) -> std::path::PathBuf {
    fs::create_dir(world.path(folder)).unwrap();
    for (program, name) in programs {
        fs::copy(program, world.path(folder).join(name)).unwrap();
    }
    world.path(folder).join(programs[0].1)
}

#[test]
fn each_does_what_it_can_where_it_is_found_and_says_what_is_missing() {
    let world = World::with_server();
    let (muxtap, muxtapd) = (world.plain_muxtap_command().get_program().to_owned(), world.muxtapd());
    let sessions = |program: &Path| {
        let answer = run(world.command(program).arg("-S").arg(world.socket()).args(["ls", "-F", "#{session_name}"]));
        let _stops = run(world.command(program).arg("stop"));
        answer
    };
    // Side by side, also if a link leads to that directory.
    let both = installed(&world, "both", &[(Path::new(&muxtap), "muxtap"), (&muxtapd, "muxtapd")]);
    std::os::unix::fs::symlink(&both, world.path("link")).unwrap();
    for program in [both, world.path("link")] {
        let answer = sessions(&program);
        assert_eq!((answer.status, answer.text().as_str()), (0, "main\n"), "{answer:?}");
    }
    // One file, under any name.
    let one = installed(&world, "one", &[(&muxtapd, "muxtap")]);
    assert_eq!(sessions(&one).text(), "main\n");
    // Without the daemon's program there is no daemon.
    let alone = installed(&world, "alone", &[(Path::new(&muxtap), "muxtap")]);
    let missing = world.path("alone/muxtapd").display().to_string();
    let answer = sessions(&alone);
    assert!(answer.status == 1 && answer.stderr.contains(&missing), "{answer:?}");
    // A program that another user has put there is not run.
    if rustix::process::geteuid().is_root() {
        fs::copy(&muxtapd, &missing).unwrap();
        std::os::unix::fs::chown(&missing, Some(65534), None).unwrap();
        let answer = sessions(&alone);
        assert!(answer.status == 1 && answer.stderr.contains("belongs to user 65534"), "{answer:?}");
        // Through a link it could be replaced at any moment.
        fs::remove_file(&missing).unwrap();
        std::os::unix::fs::symlink(&muxtapd, &missing).unwrap();
        std::os::unix::fs::lchown(&missing, Some(65534), None).unwrap();
        let answer = sessions(&alone);
        assert!(answer.status == 1 && answer.stderr.contains("belongs to user 65534"), "{answer:?}");
        fs::remove_file(&missing).unwrap();
    }
    // `muxtap` under the name of the daemon would exec itself forever.
    fs::copy(&muxtap, &missing).unwrap();
    let answer = sessions(&alone);
    assert!(answer.status == 1 && answer.stderr.contains("is `muxtap` itself"), "{answer:?}");
    fs::remove_file(&missing).unwrap();
    let answer = run(world.command(&alone).args(["--json", "doctor"]));
    let error = answer.error();
    assert!(answer.status == 1 && error["message"].as_str().unwrap().contains(&missing), "{answer:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn only_the_daemon_is_called_muxtapd_by_the_system() {
    let world = World::with_server();
    let pane = world.session("work");
    // The first command starts the daemon.
    world.ok(&["list-sessions"]);
    // The second is a request that `muxtap` leaves to `muxtapd`; the third is `muxtapd` itself.
    let line = ["wait-for", "-t", &pane, "-p", "never", "-T", "60"];
    let mut by_daemons_program = world.command(world.muxtapd());
    by_daemons_program.arg("-S").arg(world.socket()).args(line);
    let waits = [
        world.spawn(&line),
        world.spawn(&[&line[..], &["--on-end", "true"]].concat()),
        Background::start(&mut by_daemons_program),
    ];
    crate::common::eventually("the waits are open", || world.json(&["status"])["waits"] == 3);
    let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    for wait in &waits {
        assert_eq!(name(wait.pid()), "muxtap\n");
    }
    assert_eq!(name(world.daemon_pid().unwrap()), "muxtapd\n");
    for wait in waits {
        wait.kill();
    }
}

/// The small program contains all code that it reaches: a call that leads to the tree of arguments,
/// the runtime or the engine would double its size.
#[test]
fn what_people_type_carries_no_engine() {
    let world = World::new();
    let size = |program: &Path| fs::metadata(program).unwrap().len();
    let (small, whole) = (size(Path::new(world.plain_muxtap_command().get_program())), size(&world.muxtapd()));
    assert!(small * 2 < whole, "{small} and {whole} bytes");
}
