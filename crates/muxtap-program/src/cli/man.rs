//! The manual pages, one for each command: `muxtapd __man FOLDER`, which `scripts/package` runs.
//!
//! `__man` is not in the argument tree, so no help lists it.

use std::{ffi::OsString, fs, io, path::Path, process::ExitCode};

use clap::Command;
use clap_mangen::Man;

use super::{EXIT_ERROR, EXIT_USAGE, args, output};

/// The word that requests the pages.
pub(super) const WORD: &str = "__man";

/// Writes the pages into the folder that the arguments name, and reports a failure.
pub(super) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(folder), None) = (arguments.next(), arguments.next()) else {
        output::note("usage: muxtapd __man FOLDER");
        return ExitCode::from(EXIT_USAGE);
    };
    match write(Path::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::note(&format!("cannot write manual pages to {}: {error}", Path::new(&folder).display()));
            ExitCode::from(EXIT_ERROR)
        }
    }
}

fn write(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut tree = args::tree().disable_help_subcommand(true);
    tree.build();
    write_page(&tree, folder)
}

/// Writes the page of a command and those of the commands below it.
fn write_page(command: &Command, folder: &Path) -> io::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write_page(inner, folder)?;
    }
    let page = Man::new(command.clone()).manual("muxtap").date("");
    page.generate_to(folder).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_options() {
        fn check(command: &Command, name: &str, folder: &Path, seen: &mut usize) {
            let page = fs::read_to_string(folder.join(format!("{name}.1"))).unwrap_or_else(|error| {
                panic!("{name}: {error}");
            });
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                if let Some(long) = arg.get_long() {
                    assert!(page.contains(&long.replace('-', "\\-")), "{name}: --{long} is missing");
                }
            }
            *seen += 1;
            for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
                check(inner, &format!("{name}-{}", inner.get_name()), folder, seen);
            }
        }
        let dir = tempfile::tempdir().unwrap();
        write(dir.path()).unwrap();
        let mut seen = 0;
        check(&args::tree(), "muxtap", dir.path(), &mut seen);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), seen);
        assert!(seen > 50, "{seen}");
    }
}
