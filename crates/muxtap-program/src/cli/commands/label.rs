//! `label`, and targets of labels for other commands.

use std::collections::BTreeMap;

use clap::Args;
use muxtap_base::plain;

use super::{Caller, Outcome, change::patch, output, path_named};
use crate::api::{Error, Labels, PaneInfo, PatchRequest, SessionInfo};

/// Set, remove or list labels of a pane or a session
///
/// Without words: lists them. Targets select panes by their labels: `{role=build,team!=a}`, or
/// `-l role=build`. A pane has the labels of its session, except those that it sets itself. A label
/// lasts as long as its pane or session.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap label -t %3 role=build team=a           set two labels
  muxtap label -t %3 team-                       remove one
  muxtap label -t %3                             list them
  muxtap label -s -t work team=a                 label all panes of a session
  muxtap wait-for -l role=build --prompt         wait for the panes that have it
  muxtap capture-pane -p -t '{role=build}'       the only pane that has it")]
pub(in crate::cli) struct Label {
    /// The pane, with -s the session (default: the caller's)
    #[arg(short = 't', value_name = "TARGET")]
    target: Option<String>,
    /// Label the session instead of a pane
    #[arg(short = 's')]
    session: bool,
    /// `KEY=VALUE` sets a label, `KEY-` removes it
    #[arg(value_name = "KEY=VALUE|KEY-", value_parser = change)]
    changes: Vec<(String, String)>,
}

impl Label {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let kind = if self.session { "sessions" } else { "panes" };
        if self.changes.is_empty() {
            let path = path_named(kind, &caller.target(self.target)?)?;
            let mut client = caller.client().await?;
            return if self.session {
                let session: SessionInfo = client.get(&path, &()).await?;
                print(caller, &session, &session.labels)
            } else {
                let pane: PaneInfo = client.get(&path, &()).await?;
                print(caller, &pane, &pane.labels)
            };
        }
        let mut labels = BTreeMap::new();
        for (key, value) in self.changes {
            if labels.insert(key.clone(), value).is_some() {
                return Err(Error::invalid(format!("{}: given twice; expected once", plain::name(&key))).into());
            }
        }
        patch(caller, kind, self.target, &PatchRequest { labels: Some(labels), ..PatchRequest::default() }).await
    }
}

/// Prints labels, as JSON what has them.
fn print(caller: &Caller, whole: &impl serde::Serialize, labels: &Labels) -> Outcome {
    if caller.json {
        output::print_json(whole)?;
    } else {
        let lines = labels.iter().map(|(key, value)| format!("{}={}\n", plain::name(key), plain::name(value)));
        output::print(lines.collect::<String>())?;
    }
    Ok(0)
}

/// Parses a change of a label: its key and value, which is empty if it is removed.
fn change(text: &str) -> Result<(String, String), String> {
    let parts = match text.split_once('=') {
        Some((_, "")) => None,
        Some(parts) => Some(parts),
        None => text.strip_suffix('-').map(|key| (key, "")),
    };
    let (key, value) = parts.ok_or("expected KEY=VALUE, or KEY- to remove a label")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Returns the targets of a command: those given, or the panes that have all of these labels.
pub(super) fn with_labels(mut targets: Vec<String>, labels: &[String]) -> Vec<String> {
    if !labels.is_empty() {
        targets.push(format!("{{{}}}", labels.join(",")));
    }
    targets
}

/// Parses a term of a selector, as `-l` takes it.
pub(super) fn term(text: &str) -> Result<String, String> {
    match muxtap_engine::Selector::of_terms(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_sets_or_removes_a_label() {
        for (text, key, value) in
            [("a=b", "a", "b"), ("a=b=c-", "a", "b=c-"), ("a-", "a", ""), ("a--", "a-", ""), ("a-=x", "a-", "x")]
        {
            assert_eq!(change(text).unwrap(), (key.to_owned(), value.to_owned()), "{text}");
        }
        for text in ["a", "a=", ""] {
            assert!(change(text).is_err(), "{text}");
        }
    }
}
