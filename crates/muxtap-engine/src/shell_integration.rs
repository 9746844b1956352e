//! The shell integration: lines that make a shell mark its commands, and the files by which a shell that muxtap
//! starts reads them.
//!
//! A shell that muxtap starts reads the user's own startup files as it would without, and afterwards the integration.
//! No file of the user's is changed. `sh` starts the shell: only in the pane is it known which variables the user's
//! `ZDOTDIR` and `ENV` are. If the files are gone, the shell starts without them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use muxtap_base::{
    files::{Existing, make_private_folder, write_secret},
    quoting::is_plain_path,
};

const BASH: &str = include_str!("shell/bash.sh");
const ZSH: &str = include_str!("shell/zsh.zsh");
const FISH: &str = include_str!("shell/fish.fish");
const POSIX: &str = include_str!("shell/sh.sh");
const NU: &str = include_str!("shell/nu.nu");

/// The name of the file that starts a shell.
const START: &str = "start";
/// The files, each with its parts.
const FILES: [(&str, &[&str]); 5] = [
    (START, &[include_str!("shell/start.sh")]),
    ("bash", &[include_str!("shell/start-bash.sh"), BASH]),
    ("zsh/.zshenv", &[include_str!("shell/start-zsh.zsh"), ZSH]),
    ("fish", &[FISH]),
    ("sh", &[include_str!("shell/start-posix.sh"), POSIX]),
];
/// Starts `$2…` with the files in `$1`, or without them if they are gone.
const LAUNCHER: &str = "d=$1; shift; if [ -r \"$d/start\" ]; then . \"$d/start\"; else exec \"$@\"; fi";
/// The launcher's `$0`.
const LAUNCHER_NAME: &str = "muxtap-shell";
/// The shells that can be started with the integration, and the arguments with which they remain interactive shells.
const SHELLS: [(&str, &[&str]); 8] = [
    ("bash", &["-i", "-l", "-il", "-li", "--login"]),
    ("zsh", &["-i", "-l", "-il", "-li", "--login"]),
    ("fish", &["-i", "-l", "-il", "-li", "--login", "--interactive"]),
    ("sh", &["-i", "-l", "-il", "-li"]),
    ("dash", &["-i", "-l", "-il", "-li"]),
    ("ash", &["-i", "-l", "-il", "-li"]),
    ("mksh", &["-i", "-l", "-il", "-li"]),
    ("ksh", &["-i", "-l", "-il", "-li"]),
];

/// A kind of shell that has an integration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShellKind {
    /// bash 4.4 and later.
    Bash,
    /// zsh.
    Zsh,
    /// fish.
    Fish,
    /// dash, busybox ash, mksh, ksh93.
    Posix,
    /// nushell.
    Nu,
}

impl ShellKind {
    /// Returns the lines for the shell's startup file.
    pub fn script(self) -> &'static str {
        match self {
            Self::Bash => BASH,
            Self::Zsh => ZSH,
            Self::Fish => FISH,
            Self::Posix => POSIX,
            Self::Nu => NU,
        }
    }
}

/// The startup files of shells that muxtap starts, in a private directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartupFiles {
    /// Has only characters that no shell interprets.
    directory: String,
}

impl StartupFiles {
    /// Writes the files that are missing or differ, each with mode 0600. The directory is created with mode 0700.
    pub(crate) fn write(directory: &Path) -> io::Result<Self> {
        let text = directory.to_str().filter(|text| directory.is_absolute() && is_plain_path(text));
        let text = text.ok_or_else(|| {
            let why = format!("{} has characters that shells interpret", directory.display());
            io::Error::new(io::ErrorKind::InvalidInput, why)
        })?;
        // Before a file is believed; and from the top: of an inner directory, only the inner one would be checked.
        make_private_folder(directory).map_err(|error| io::Error::other(format!("{} {error}", directory.display())))?;
        for (name, parts) in FILES {
            let (path, contents) = (directory.join(name), parts.concat());
            let contents = contents.trim_end_matches('\n');
            if fs::read_to_string(&path).is_ok_and(|found| found.trim_end_matches('\n') == contents) {
                continue;
            }
            write_secret(&path, contents, Existing::Replace)?;
        }
        Ok(Self { directory: text.to_owned() })
    }

    /// Returns the words that start a pane's shell, as tmux would start it: its `default-command` if it has one, else
    /// `default-shell` as a login shell. A shell without an integration is started without one.
    pub(crate) fn of_default(&self, default_shell: &str, default_command: &str) -> Vec<String> {
        let words = if default_command.is_empty() {
            vec![default_shell.to_owned(), "-l".to_owned()]
        } else {
            vec![default_command.to_owned()]
        };
        self.of_command(&words).unwrap_or(words)
    }

    /// Returns the words that start a shell with the integration. `None`: this is not a command of an interactive
    /// shell.
    pub(crate) fn of_command(&self, words: &[String]) -> Option<Vec<String>> {
        let words = shell_words(words)?;
        let launcher = ["sh", "-c", LAUNCHER, LAUNCHER_NAME, &self.directory].map(str::to_owned);
        Some(launcher.into_iter().chain(words).collect())
    }
}

/// Returns the words of a command that starts an interactive shell; `None` for any other command.
pub(crate) fn shell_words(words: &[String]) -> Option<Vec<String>> {
    let words: Vec<String> = match words {
        // A command line.
        [line] => {
            let is_plain = |char: char| char.is_ascii_alphanumeric() || "/._- ".contains(char);
            let plain = line.chars().all(is_plain).then_some(line)?;
            plain.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
        }
        words => words.to_vec(),
    };
    let (shell, arguments) = words.split_first()?;
    let name = shell.rsplit('/').next()?;
    let (_, known) = SHELLS.iter().find(|(known, _)| *known == name)?;
    arguments.iter().all(|argument| known.contains(&argument.as_str())).then_some(words)
}

/// Returns the directory in which the files are, if none was chosen: `muxtap-shell` in the user's runtime directory.
pub(crate) fn default_directory() -> Option<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute())?;
    Some(runtime.join("muxtap-shell"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn only_commands_of_interactive_shells_are_given_the_integration() {
        for (command, shell) in [
            (words("bash"), true),
            (words("/usr/bin/zsh -l"), true),
            (vec!["fish --login".to_owned()], true),
            (words("bash -il"), true),
            (words("bash -c true"), false),
            (words("bash --norc"), false),
            (words("bash script"), false),
            (vec!["bash; true".to_owned()], false),
            (vec!["FOO=1 bash".to_owned()], false),
            (words("vim"), false),
            (vec![String::new()], false),
        ] {
            assert_eq!(shell_words(&command).is_some(), shell, "{command:?}");
        }
    }

    #[test]
    fn the_files_are_private_and_written_again_only_if_they_differ() {
        let base = tempfile::tempdir().unwrap();
        let directory = base.path().join("shell");
        let files = StartupFiles::write(&directory).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&directory.join("zsh"))), (0o700, 0o700));
        for (name, _) in FILES {
            assert_eq!(mode(&directory.join(name)), 0o600, "{name}");
        }
        let written = |name: &str| fs::metadata(directory.join(name)).unwrap().modified().unwrap();
        let before = (written("bash"), written("sh"));
        fs::write(directory.join("sh"), "old").unwrap();
        assert_eq!(StartupFiles::write(&directory).unwrap(), files);
        assert_eq!(written("bash"), before.0);
        assert!(fs::read_to_string(directory.join("sh")).unwrap().contains("__muxtap_on"));
        assert!(StartupFiles::write(&base.path().join("a b")).is_err(), "a shell would split this path");
    }

    #[test]
    fn a_default_command_is_a_command_line_and_a_default_shell_a_login_shell() {
        let files = StartupFiles { directory: "/d".to_owned() };
        let last = |words: Vec<String>, count: usize| words[words.len() - count..].join(" ");
        assert_eq!(last(files.of_default("/bin/bash", ""), 3), "/d /bin/bash -l");
        assert_eq!(last(files.of_default("/bin/bash", "fish"), 2), "/d fish");
        assert_eq!(files.of_default("/bin/bash", "exec fish"), ["exec fish"]);
        assert_eq!(files.of_default("/bin/tcsh", ""), ["/bin/tcsh", "-l"]);
    }
}
