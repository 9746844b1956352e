//! The place of a socket at which muxtap starts a tmux server.
//!
//! `tmux` connects to a socket before it starts a server on it, and connects twice. If other users
//! may replace files in its folder, or move the folder away, they can be faster with a server of
//! theirs, and tmux would obey that one.

use std::{fs, path::Path};

use muxtap_api::{Error, Result};
use muxtap_base::files::open_to_others;

/// The maximum number of links that a socket's name may go through.
const LINKS: usize = 8;

/// Checks that only this user (and root) decides what is at this path. Its folder must exist.
/// Error: `TMUX_UNAVAILABLE`, with the way out.
pub(super) fn check(socket: &Path) -> Result<()> {
    let refuse = |why: &str| {
        let socket = socket.display();
        Err(Error::unavailable(format!(
            "no tmux server runs on {socket}, and muxtap does not start one there: {why}; choose a directory that only \
             you can write to, or start it yourself: tmux -S {socket} new-session -d"
        )))
    };
    let mut end = socket.to_owned();
    // Links are followed, as tmux follows them.
    for _ in 0..LINKS {
        let Some(folder) = end.parent() else { return refuse("it has no parent directory") };
        if let Some(why) = open_to_others(folder, false) {
            return refuse(&why);
        }
        if open_to_others(folder, true).is_some()
            && let Err(why) = hold(&end)
        {
            return refuse(&why);
        }
        let Ok(target) = fs::read_link(&end) else { return Ok(()) };
        end = folder.join(target);
    }
    refuse("its path leads through too many symbolic links")
}

/// Takes a name in a sticky folder, such as `/tmp`: other users can create a missing name in it,
/// but cannot replace what is this user's. On a socket without a listener tmux starts a server in
/// its place. Error: in words.
fn hold(name: &Path) -> std::result::Result<(), String> {
    use std::os::unix::fs::MetadataExt as _;

    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, socket};
    let made =
        socket(AddressFamily::UNIX, SocketType::STREAM, None).and_then(|made| bind(&made, &SocketAddrUnix::new(name)?));
    match (made, fs::symlink_metadata(name)) {
        (_, Ok(found)) if found.uid() == rustix::process::geteuid().as_raw() => Ok(()),
        (_, Ok(found)) => Err(format!("{} belongs to user {}", name.display(), found.uid())),
        (Err(error), _) => Err(format!("{}: {error}", name.display())),
        (Ok(()), Err(error)) => Err(format!("{}: {error}", name.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_server_is_started_only_where_no_other_user_can_create_its_socket() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let (own, open, sticky) = (dir.path().join("own"), dir.path().join("open"), dir.path().join("sticky"));
        for (folder, mode) in [(&own, 0o755), (&open, 0o777), (&sticky, 0o1777)] {
            fs::create_dir(folder).unwrap();
            fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        }
        check(&own.join("s")).unwrap();
        let why = |socket: &Path| check(socket).unwrap_err().message;
        assert!(why(&open.join("s")).contains("can be written by others (mode 0777)"));
        // In a sticky folder the name is taken, by a socket without a listener.
        check(&sticky.join("s")).unwrap();
        let refused = std::os::unix::net::UnixStream::connect(sticky.join("s")).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        check(&sticky.join("s")).unwrap();
        let below = [open.join("mine"), sticky.join("mine")];
        for folder in &below {
            fs::create_dir(folder).unwrap();
        }
        let [below_open, below_sticky] = below;
        assert!(why(&below_open.join("s")).contains("can be written by others"), "its folder can be moved away");
        check(&below_sticky.join("s")).unwrap();
        let link = own.join("link");
        symlink(open.join("s"), &link).unwrap();
        assert!(why(&link).contains("can be written by others (mode 0777)"));
        let links: Vec<_> = (0..4).map(|number| own.join(format!("link{number}"))).collect();
        symlink(&link, &links[0]).unwrap();
        for (one, next) in links.iter().zip(&links[1..]) {
            symlink(one, next).unwrap();
        }
        assert!(why(&links[3]).contains("can be written by others (mode 0777)"), "however many links lead there");
        // The folder of a link decides the link's target, and a missing folder could become any
        // user's.
        symlink(&own, open.join("link")).unwrap();
        assert!(why(&open.join("link/s")).contains("can be written by others (mode 0777)"));
        assert!(why(&sticky.join("missing/s")).contains("No such file"));
        symlink(&own, sticky.join("link")).unwrap();
        check(&sticky.join("link/s")).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(sticky.join("link"), Some(65534), None).unwrap();
            assert!(
                why(&sticky.join("link/s")).contains("is a symbolic link of user 65534"),
                "its owner can make it anew"
            );
        }
    }
}
