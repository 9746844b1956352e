//! Files that another user put in the place of muxtap's own: in a sticky directory such as `/tmp`
//! any user can.

use std::{
    fs,
    os::unix::{
        fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown, lchown, symlink},
        net::UnixListener,
    },
    path::PathBuf,
    process::Command,
    time::Duration,
};

use crate::common::{Answer, Background, World};

const NOBODY: u32 = 65534;
/// Longer than a busy machine takes to refuse, and shorter than a wait for another process.
const LIMIT: Duration = Duration::from_secs(40);

/// What another user may put in a file's place.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    File,
    Fifo,
    Link,
    HardLink,
    Folder,
    Socket,
}

const KINDS: [Kind; 6] = [Kind::File, Kind::Fifo, Kind::Link, Kind::HardLink, Kind::Folder, Kind::Socket];

/// A sticky directory, in which the daemon's socket will be `s`.
struct Sticky {
    folder: PathBuf,
}

impl Sticky {
    fn new(world: &World, name: &str) -> Self {
        let folder = world.path(name);
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777)).unwrap();
        Self { folder }
    }

    fn at(&self, suffix: &str) -> PathBuf {
        self.folder.join(format!("s{suffix}"))
    }

    /// Puts this in a file's place as another user. A link leads to a file of the user's own, as a
    /// hard link does.
    fn plant(&self, suffix: &str, kind: Kind) {
        let (at, own) = (self.at(suffix), self.folder.join("own"));
        fs::write(&own, "mine\n").unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o600)).unwrap();
        match kind {
            Kind::File => fs::write(&at, "theirs\n").unwrap(),
            Kind::Fifo => rustix::fs::mkfifoat(rustix::fs::CWD, &at, rustix::fs::Mode::from_raw_mode(0o666)).unwrap(),
            Kind::Link => symlink(&own, &at).unwrap(),
            Kind::HardLink => return fs::hard_link(&own, &at).unwrap(),
            Kind::Folder => fs::create_dir(&at).unwrap(),
            Kind::Socket => drop(UnixListener::bind(&at).unwrap()),
        }
        if kind != Kind::Link {
            fs::set_permissions(&at, fs::Permissions::from_mode(0o666 | if kind == Kind::Folder { 0o111 } else { 0 }))
                .unwrap();
        }
        lchown(&at, Some(NOBODY), Some(NOBODY)).unwrap();
    }

    /// Returns whether the planted file is unchanged.
    fn is_untouched(&self, suffix: &str, kind: Kind) -> bool {
        let at = self.at(suffix);
        let found = fs::symlink_metadata(&at).unwrap();
        let is_same = match kind {
            Kind::File => fs::read_to_string(&at).unwrap() == "theirs\n",
            Kind::Fifo => found.file_type().is_fifo(),
            Kind::Link => found.is_symlink(),
            Kind::HardLink => found.nlink() == 2,
            Kind::Folder => fs::read_dir(&at).unwrap().next().is_none(),
            Kind::Socket => found.file_type().is_socket(),
        };
        is_same && fs::read_to_string(self.folder.join("own")).unwrap() == "mine\n"
    }

    fn muxtap(&self, world: &World, args: &[&str]) -> Answer {
        let mut command = world.plain_muxtap_command();
        command.env("MUXTAP_SOCKET", self.at("")).args(args);
        Background::start_with(&mut command, LIMIT).finish()
    }
}

/// Tests each of the daemon's files beside its socket with each planted kind, for a daemon that is
/// run directly and for one that a command starts.
#[test]
fn a_file_planted_by_another_user_is_refused_and_left_untouched() {
    let world = World::new();
    if !rustix::process::geteuid().is_root() {
        println!("not tested: only root can play another user");
        return;
    }
    let serve: &[&str] = &["serve", "--http", "127.0.0.1:0"];
    let starts: &[&str] = &["snapshot", "list"];
    let cases: [(&str, &[&[&str]]); 9] = [
        ("", &[serve, starts]),
        (".lock", &[serve, starts]),
        (".start", &[starts]),
        (".log", &[starts]),
        (".audit.jsonl", &[serve, starts]),
        (".audit.jsonl.key", &[serve, starts]),
        (".audit.jsonl.1", &[serve, starts]),
        (".token", &[serve, &["token"]]),
        (".page-open.html", &[]),
    ];
    for (suffix, commands) in cases {
        for kind in KINDS {
            for (number, args) in commands.iter().enumerate() {
                // A token is created before the daemon: either of the two reports the file in its
                // place.
                let case = format!("{}{suffix}-{kind:?}-{number}", args[0]);
                let sticky = Sticky::new(&world, &case);
                sticky.plant(suffix, kind);
                let answer = sticky.muxtap(&world, args);
                assert_eq!(answer.status, 1, "{case}: {answer:?}");
                let words = match kind {
                    Kind::HardLink if suffix.is_empty() => "is not a socket: move it away",
                    Kind::HardLink => "hard links",
                    _ => "user 65534",
                };
                let said = answer.stderr.contains(words) && answer.stderr.contains(sticky.at(suffix).to_str().unwrap());
                assert!(said, "{case}: {answer:?}");
                assert!(sticky.is_untouched(suffix, kind), "{case}: {answer:?}");
            }
        }
    }
}

/// Puts a folder of another user, or that user's link to a folder of one's own, in a folder's place.
fn plant_folder(sticky: &Sticky, suffix: &str, is_link: bool) -> std::path::PathBuf {
    let (at, own) = (sticky.at(suffix), sticky.folder.join("own"));
    if is_link {
        fs::create_dir(&own).unwrap();
        symlink(&own, &at).unwrap();
    } else {
        fs::create_dir(&at).unwrap();
        fs::set_permissions(&at, fs::Permissions::from_mode(0o777)).unwrap();
    }
    lchown(&at, Some(NOBODY), Some(NOBODY)).unwrap();
    at
}

/// A wait whose result cannot be kept goes on all the same.
#[test]
fn no_result_of_a_wait_is_stored_in_a_folder_that_another_user_made_or_linked() {
    let world = World::with_server();
    if !rustix::process::geteuid().is_root() {
        println!("not tested: only root can play another user");
        return;
    }
    let socket = world.socket().to_str().unwrap().to_owned();
    for is_link in [false, true] {
        let sticky = Sticky::new(&world, &format!("waits-{is_link}"));
        let at = plant_folder(&sticky, ".waits", is_link);
        let answer = sticky
            .muxtap(&world, &["-S", &socket, "wait-for", "-t", "main", "-p", "never", "-T", "0.2", "--background"]);
        assert_eq!(answer.status, 0, "{answer:?}");
        let answer = sticky.muxtap(&world, &["result", answer.text().trim()]);
        assert_eq!(answer.status, 124, "{answer:?}");
        assert!(fs::read_dir(&at).unwrap().next().is_none());
        let _ = sticky.muxtap(&world, &["stop"]);
    }
}

/// The directories beside the socket too: content of another user's directory is not the user's.
#[test]
fn nothing_is_stored_in_folders_that_another_user_made_or_linked() {
    let world = World::with_server();
    if !rustix::process::geteuid().is_root() {
        println!("not tested: only root can play another user");
        return;
    }
    let socket = world.socket().to_str().unwrap().to_owned();
    let cases: [(&str, &[&str]); 5] = [
        (".snapshots", &["snapshot", "save", "x"]),
        (".layouts", &["layout", "save", "x", "-t", "main"]),
        (".recordings", &["record", "-t", "main"]),
        (".tls", &["serve", "--http", "127.0.0.1:0", "--tls"]),
        (".snapshots", &["snapshot", "list"]),
    ];
    for (number, (suffix, args)) in cases.into_iter().enumerate() {
        for is_link in [false, true] {
            let sticky = Sticky::new(&world, &format!("{number}-{is_link}"));
            let at = plant_folder(&sticky, suffix, is_link);
            let mut args = args.to_vec();
            if args[0] != "serve" {
                args.splice(0..0, ["-S", socket.as_str()]);
            }
            let answer = sticky.muxtap(&world, &args);
            let case = format!("{args:?}, link: {is_link}");
            assert!(answer.status == 1 && answer.stderr.contains("user 65534"), "{case}: {answer:?}");
            assert!(fs::read_dir(&at).unwrap().next().is_none(), "{case}");
            let _ = sticky.muxtap(&world, &["stop"]);
        }
    }
}

/// A lock that another user holds on a file of theirs is not another daemon's, and is not waited
/// for.
#[test]
fn another_users_lock_is_neither_a_daemon_nor_waited_for() {
    let world = World::new();
    if !rustix::process::geteuid().is_root() {
        println!("not tested: only root can play another user");
        return;
    }
    for suffix in [".lock", ".start"] {
        let sticky = Sticky::new(&world, suffix);
        sticky.plant(suffix, Kind::File);
        let held = fs::File::open(sticky.at(suffix)).unwrap();
        rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let answer = sticky.muxtap(&world, &["snapshot", "list"]);
        assert!(answer.status == 1 && answer.stderr.contains("belongs to user 65534"), "{answer:?}");
        assert!(!answer.stderr.contains("another muxtap daemon"), "{answer:?}");
    }
}

/// Another user's daemon, or what looks like one, gets nothing of a command's input: neither from
/// the commands that use HTTP nor from `muxtap mcp`, which sends its environment first.
#[test]
fn another_users_daemon_is_sent_nothing() {
    let world = World::new();
    if !rustix::process::geteuid().is_root() {
        println!("not tested: only root can play another user");
        return;
    }
    let sticky = Sticky::new(&world, "theirs");
    let listener = UnixListener::bind(sticky.at("")).unwrap();
    chown(sticky.at(""), Some(NOBODY), Some(NOBODY)).unwrap();
    fs::set_permissions(sticky.at(""), fs::Permissions::from_mode(0o777)).unwrap();
    listener.set_nonblocking(true).unwrap();
    for args in [
        &["snapshot", "list"][..],
        &["mcp"],
        &["send-keys", "-t", "main", "secret"],
        &["approvals"],
        &["stop"],
        &["serve"],
    ] {
        let answer = sticky.muxtap(&world, args);
        assert!(answer.status != 0 && answer.stderr.contains("belongs to user 65534"), "{args:?}: {answer:?}");
        assert!(listener.accept().is_err(), "{args:?}: somebody was called");
    }
}

/// The victim is not root, and the sticky directory protects it from renames: nothing hangs, and
/// the messages are the same.
#[test]
fn a_user_who_is_not_root_gets_the_same_errors() {
    let world = World::new();
    if !rustix::process::geteuid().is_root() {
        println!("not tested: only root can play another user");
        return;
    }
    fs::set_permissions(world.dir(), fs::Permissions::from_mode(0o711)).unwrap();
    let program = world.path("muxtap");
    fs::copy(world.muxtapd(), &program).unwrap();
    for suffix in ["", ".lock", ".start", ".log", ".audit.jsonl", ".audit.jsonl.1", ".token"] {
        for kind in [Kind::File, Kind::Fifo, Kind::Link] {
            let sticky = Sticky::new(&world, &format!("as-user{suffix}-{kind:?}"));
            sticky.plant(suffix, kind);
            // A third user's: the victim is the user `nobody`.
            lchown(sticky.at(suffix), Some(65533), Some(65533)).unwrap();
            let mut command: Command = world.command("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
            command.args(if suffix == ".token" { &["token"][..] } else { &["snapshot", "list"] });
            command.env("MUXTAP_SOCKET", sticky.at("")).env("HOME", &sticky.folder).current_dir("/");
            let answer = Background::start_with(&mut command, LIMIT).finish();
            let case = format!("{suffix} {kind:?}");
            assert!(answer.status == 1 && answer.stderr.contains("user 65533"), "{case}: {answer:?}");
            assert!(sticky.is_untouched(suffix, kind), "{case}");
        }
    }
}

/// A configuration decides which programs run: one that another user put into a shared directory is
/// neither read nor waited for.
#[test]
fn a_configuration_planted_by_another_user_is_not_read() {
    let world = World::new();
    if !rustix::process::geteuid().is_root() {
        println!("not tested: only root can play another user");
        return;
    }
    let sticky = Sticky::new(&world, "config");
    for kind in [Kind::File, Kind::Fifo, Kind::Link] {
        sticky.plant(".toml", kind);
        for variable in ["MUXTAP_CONFIG", "MUXTAP_AGENTS_FILE"] {
            let mut command = world.plain_muxtap_command();
            command.env(variable, sticky.at(".toml")).args(["serve"]);
            let answer = Background::start_with(&mut command, LIMIT).finish();
            assert!(answer.status == 1 && answer.stderr.contains("user 65534"), "{kind:?} {variable}: {answer:?}");
        }
        fs::remove_file(sticky.at(".toml")).unwrap();
    }
}

/// Another user who can write a configuration's file, or replace it, could choose the programs that
/// run: through a group, a directory above, a link, or a home that `sudo` kept.
#[test]
fn a_configuration_that_another_user_could_have_written_is_not_read() {
    let world = World::new();
    if !rustix::process::geteuid().is_root() {
        println!("not tested: only root can play another user");
        return;
    }
    let mode = |path: &PathBuf, group: u32, mode: u32| {
        chown(path, None, Some(group)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let make = |name: &str| {
        let folder = world.path(name).join("muxtap");
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("config.toml");
        fs::write(&file, "log_level = \"info\"\n").unwrap();
        mode(&file, 0, 0o644);
        mode(&folder, 0, 0o755);
        (world.path(name), folder, file)
    };
    let ask = |variable: &str, path: &PathBuf| {
        let mut command = world.plain_muxtap_command();
        command.env(variable, path).args(["config", "--json"]);
        Background::start_with(&mut command, LIMIT).finish()
    };
    let refused = |(home, _, file): &(PathBuf, PathBuf, PathBuf), words: &str| {
        for (variable, path) in [("MUXTAP_CONFIG", file), ("XDG_CONFIG_HOME", home)] {
            let answer = ask(variable, path);
            assert!(answer.status == 1 && answer.stderr.contains(words), "{variable}: {answer:?}");
        }
    };

    let fine = make("fine");
    assert_eq!(ask("XDG_CONFIG_HOME", &fine.0).status, 0);
    // The user's own link to a file of the user's, as dotfile managers create it.
    let linked = make("linked");
    fs::remove_file(&linked.2).unwrap();
    symlink(&fine.2, &linked.2).unwrap();
    assert_eq!(ask("MUXTAP_CONFIG", &linked.2).status, 0);
    // The user's own group can write: no other user is in it.
    mode(&fine.1, 0, 0o775);
    mode(&fine.2, 0, 0o664);
    assert_eq!(ask("MUXTAP_CONFIG", &fine.2).status, 0);

    let theirs = make("theirs-in-a-group-folder");
    mode(&theirs.1, NOBODY, 0o775);
    chown(&theirs.2, Some(NOBODY), Some(NOBODY)).unwrap();
    refused(&theirs, "belongs to user 65534");
    let own = make("own-in-a-group-folder");
    mode(&own.1, NOBODY, 0o775);
    refused(&own, "can be written by others (mode 0775)");
    let above = make("a-group-folder-above");
    mode(&above.0, NOBODY, 0o775);
    refused(&above, "can be written by others (mode 0775)");
    let file = make("a-group-file");
    mode(&file.2, NOBODY, 0o664);
    refused(&file, "other users can write it (mode 0664): chmod go-w it");
    let plain = make("their-file");
    chown(&plain.2, Some(NOBODY), Some(NOBODY)).unwrap();
    mode(&plain.1, 0, 0o777);
    let answer = ask("MUXTAP_CONFIG", &plain.2);
    assert!(answer.stderr.contains("it belongs to user 65534") && !answer.stderr.contains("link"), "{answer:?}");

    // Another user's link in the path, and a link of the user's to a place that others can write.
    let way = Sticky::new(&world, "way");
    symlink(&fine.1, way.at("")).unwrap();
    assert_eq!(ask("MUXTAP_CONFIG", &way.at("").join("config.toml")).status, 0);
    lchown(way.at(""), Some(NOBODY), Some(NOBODY)).unwrap();
    let answer = ask("MUXTAP_CONFIG", &way.at("").join("config.toml"));
    assert!(answer.status == 1 && answer.stderr.contains("is a symbolic link of user 65534"), "{answer:?}");
    fs::remove_file(&linked.2).unwrap();
    symlink(&own.2, &linked.2).unwrap();
    refused(&linked, "can be written by others (mode 0775)");

    // Like sudo when it keeps HOME.
    let home = make("home");
    for path in [&home.0, &home.1, &home.2] {
        chown(path, Some(12345), Some(12345)).unwrap();
    }
    refused(&home, "belongs to user 12345");
    assert!(ask("MUXTAP_CONFIG", &home.2).stderr.contains("HOME, XDG_CONFIG_HOME or MUXTAP_CONFIG"));
    // A home without a configuration is not an error.
    fs::remove_file(&home.2).unwrap();
    assert_eq!(ask("XDG_CONFIG_HOME", &home.0).status, 0);
}

/// In a sticky directory without other users' files the daemon creates its files, for the user
/// alone.
#[test]
fn a_fresh_sticky_folder_serves() {
    let world = World::new();
    let sticky = Sticky::new(&world, "fresh");
    let answer = sticky.muxtap(&world, &["snapshot", "list"]);
    assert_eq!(answer.status, 0, "{answer:?}");
    for suffix in [".lock", ".start", ".log", ".audit.jsonl"] {
        let mode = fs::metadata(sticky.at(suffix)).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o600, "{suffix}");
    }
    assert_eq!(sticky.muxtap(&world, &["stop"]).status, 0);
}
