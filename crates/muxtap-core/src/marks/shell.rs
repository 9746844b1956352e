//! The steps of a shell: OSC 133 (`FinalTerm`, with the options of kitty, `WezTerm` and fish) and
//! OSC 633 (VS Code).

use super::{
    Directory, Line, NAME_BYTES, Sign,
    decode::{backslashes, name, number, percent, split, unquote},
};

/// A step of a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShellMark<'a> {
    /// The family of sequences.
    pub family: Family,
    /// The step.
    pub step: Step,
    /// The id of the shell (`aid=`), if it named one.
    pub aid: Option<&'a str>,
    /// The nonce (`muxtap=`) that muxtap's own integration prints.
    pub nonce: Option<&'a str>,
    /// The kind of shell (`shell=`), which muxtap's own integration prints with `B`.
    pub shell: Option<&'a str>,
}

/// A family of sequences for a shell's steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// OSC 133.
    Osc133,
    /// OSC 633.
    Osc633,
}

impl Family {
    /// Returns the name used in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Osc133 => "osc-133",
            Self::Osc633 => "osc-633",
        }
    }
}

/// A step of a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// `A`: a prompt begins, for a new command line.
    Prompt,
    /// `P`, or `A` with `k=c`, `k=s` or `k=r`: a part of a prompt, a continuation prompt, or a right
    /// prompt. No new command line begins.
    PromptPart,
    /// `B`: the command line begins.
    Input,
    /// `E`: the command line, shortly before the command begins.
    Line(Line),
    /// `C`: the command's output begins.
    Output {
        /// The command line, if the shell reported it with this step.
        line: Option<Line>,
    },
    /// `D`: the command ended.
    End {
        /// The exit status, if the shell reported it.
        status: Option<i32>,
    },
}

/// Parses an OSC 133 without `133;`. `is_cut`: the end is missing.
pub(super) fn parse_133(payload: &[u8], is_cut: bool) -> Option<ShellMark<'_>> {
    let (letter, rest) = split(payload, b';');
    let mut mark = ShellMark { family: Family::Osc133, step: Step::Prompt, aid: None, nonce: None, shell: None };
    let mut rest = rest.unwrap_or_default();
    let mut status = None;
    if letter == b"D" {
        let (first, options) = split(rest, b';');
        if !first.contains(&b'=') {
            status = number(first).filter(|_| !is_cut);
            rest = options.unwrap_or_default();
        }
    }
    let mut is_part = false;
    let mut line = None;
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix(b"cmdline=") {
            let (text, after) = unquote(quoted);
            line = Line::reported(&text, is_cut && after.is_empty()).or(line);
            rest = after.strip_prefix(b";").unwrap_or_default();
            continue;
        }
        let (option, after) = split(rest, b';');
        let is_last = after.is_none();
        rest = after.unwrap_or_default();
        let (key, Some(value)) = split(option, b'=') else { continue };
        let breaks_off = is_cut && is_last;
        match key {
            b"cmdline_url" => line = Line::reported(&percent(value), breaks_off).or(line),
            _ if breaks_off => {}
            b"aid" => mark.aid = name(value, NAME_BYTES),
            b"shell" => mark.shell = name(value, NAME_BYTES),
            b"muxtap" => mark.nonce = name(value, NAME_BYTES),
            b"k" => is_part = matches!(value, b"c" | b"s" | b"r"),
            _ => {}
        }
    }
    mark.step = match letter {
        b"A" if is_part => Step::PromptPart,
        b"A" => Step::Prompt,
        b"P" => Step::PromptPart,
        b"B" => Step::Input,
        b"C" => Step::Output { line },
        b"D" => Step::End { status },
        _ => return None,
    };
    Some(mark)
}

/// Parses an OSC 633 without `633;`. `is_cut`: the end is missing.
pub(super) fn parse_633(payload: &[u8], is_cut: bool) -> Option<Sign<'_>> {
    let (letter, rest) = split(payload, b';');
    let step = match letter {
        b"A" => Step::Prompt,
        b"B" => Step::Input,
        b"C" => Step::Output { line: None },
        b"D" => Step::End { status: rest.and_then(|rest| number(split(rest, b';').0)).filter(|_| !is_cut) },
        b"E" => {
            let (line, nonce) = split(rest?, b';');
            Step::Line(Line::reported(&backslashes(line), is_cut && nonce.is_none())?)
        }
        b"P" if !is_cut => {
            let path = rest?.strip_prefix(b"Cwd=")?;
            return Directory::of(&backslashes(path), b"").map(Sign::Directory);
        }
        _ => return None,
    };
    Some(Sign::Shell(ShellMark { family: Family::Osc633, step, aid: None, nonce: None, shell: None }))
}
