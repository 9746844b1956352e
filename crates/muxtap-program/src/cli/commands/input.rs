//! `send-keys`.

use clap::Args;
use muxtap_engine::is_pattern;

use super::{Caller, Outcome, fitting_reachable, list::note_unreachable, output, path_named, path_of};

use muxtap_snapshot::{answers::GroupInputAnswer, name_in};

use crate::{
    api::{Error, InputAnswer, InputRequest, Result},
    cli::{
        EXIT_ERROR,
        one_request::{Ask, OneRequest},
        quick::Words,
    },
};

/// The argument that means stdin.
const STDIN: &str = "-";

/// Type into a pane
///
/// As in tmux, words that name keys (`Enter`, `C-c`, `Up`, `F5`, `M-x`) press them; other words are
/// typed. A following `wait-for` or `read` begins after this input by default.
// Reasons: each is a flag of the command line, and so a switch by nature.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap send-keys -t work 'make test' Enter
  muxtap send-keys -t work:1 C-c
  muxtap send-keys -t work --submit 'explain this function'  for programs that treat a burst as a paste
  muxtap send-keys -t work --paste - < notes.txt             stdin, of any size")]
pub(in crate::cli) struct SendKeys {
    /// The pane (default: the caller's); `*` in a name selects all matching panes, `%NAME` all
    /// panes of a group
    #[arg(short = 't', value_name = "PANE")]
    target: Option<String>,
    /// Type the words literally, without separators, as in tmux; `-` alone types stdin
    #[arg(short = 'l', long, conflicts_with = "hex")]
    literal: bool,
    /// Send the words as bytes in hexadecimal: 1b 5b 41
    #[arg(short = 'H', long)]
    hex: bool,
    /// Paste the words, bracketed if the program enabled that; `-` alone pastes stdin
    #[arg(long, conflicts_with = "hex")]
    paste: bool,
    /// Type the words, then press Enter separately, so that a program does not read both as one
    /// paste; report whether the program reacted. Several lines are one message to a program that
    /// enabled bracketed paste
    #[arg(long)]
    submit: bool,
    /// Key names or text
    #[arg(value_name = "KEYS", trailing_var_arg = true, required_unless_present = "submit")]
    pub(in crate::cli) keys: Vec<String>,
}

impl SendKeys {
    /// Parses the words of a plain command line. `None`: it may need several requests, or reads stdin.
    pub(in crate::cli) fn plain(words: &mut Words) -> Option<Self> {
        let flags = [words.has('l'), words.has_long("literal"), words.has('H'), words.has_long("hex")];
        let [l, literal, h, hex] = flags;
        if l && literal || h && hex {
            // The same option twice: the whole command line rejects it.
            return None;
        }
        let send = Self {
            target: words.value('t'),
            literal: l || literal,
            hex: h || hex,
            paste: words.has_long("paste"),
            submit: words.has_long("submit"),
            keys: words.rest(),
        };
        let is_sound = !(send.hex && (send.literal || send.paste)) && (send.submit || !send.keys.is_empty());
        let is_one = !send.target.as_deref().is_some_and(|target| is_pattern(target) || name_in(target).is_some());
        (is_sound && is_one && send.keys != [STDIN]).then_some(send)
    }

    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let target = caller.target(self.target.clone())?;
        let request = self.request(&mut std::io::stdin().lock())?;
        let mut client = caller.client().await?;
        if let Some(group) = name_in(&target) {
            let path = format!("{}/input", path_of("groups", &group));
            let answer: GroupInputAnswer = client.post(&path, &request).await?;
            // One shape, whatever the target is: a line for each pane.
            for pane in &answer.panes {
                self.print(caller, pane)?;
            }
            return Ok(0);
        }
        let mut status = 0;
        let (targets, unreachable) = if is_pattern(&target) {
            fitting_reachable(&mut client, &target).await?
        } else {
            (vec![target], Vec::new())
        };
        if !unreachable.is_empty() {
            note_unreachable(&unreachable);
            status = EXIT_ERROR;
        }
        let several = targets.len() > 1;
        for target in targets {
            match client.post(&path_of_input(&target)?, &request).await {
                Ok(answer) => _ = self.print(caller, &answer)?,
                // The other panes of the pattern still get the input.
                Err(mut error) if several => {
                    error.message = format!("{target}: {error}");
                    output::report(&error, caller.json);
                    status = EXIT_ERROR;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(status)
    }

    fn request(&self, stdin: &mut dyn std::io::Read) -> Result<InputRequest> {
        let &Self { target: _, literal, hex, paste, submit, ref keys } = self;
        let request = InputRequest { paste, submit, ..InputRequest::default() };
        if hex {
            return Ok(InputRequest { hex: Some(keys.join(" ")), ..request });
        }
        if !literal && !paste {
            // `--submit` alone presses Enter on the text already typed.
            return Ok(if keys.is_empty() {
                InputRequest { text: Some(String::new()), ..request }
            } else {
                InputRequest { keys: Some(keys.clone()), ..request }
            });
        }
        if *keys != [STDIN] {
            return Ok(InputRequest { text: Some(keys.concat()), ..request });
        }
        let mut input = Vec::new();
        stdin.read_to_end(&mut input).map_err(|error| Error::invalid(format!("cannot read stdin: {error}")))?;
        match String::from_utf8(input) {
            Ok(text) => Ok(InputRequest { text: Some(text), ..request }),
            Err(_) if paste => Err(Error::invalid("stdin is not valid UTF-8 and cannot be pasted: use -l to type it")),
            Err(error) => Ok(InputRequest { hex: Some(to_hex(error.as_bytes())), ..request }),
        }
    }
}

impl OneRequest for SendKeys {
    type Answer = InputAnswer;

    fn ask(&self, caller: &Caller) -> Result<Ask> {
        let path = path_of_input(&caller.target(self.target.clone())?)?;
        Ask::post(path, &self.request(&mut std::io::empty())?)
    }

    fn print(&self, caller: &Caller, answer: &InputAnswer) -> Outcome {
        if caller.json {
            output::print_json(answer)?;
        } else if self.submit && answer.submit.is_some_and(|seen| !seen.changed) {
            output::note(&format!("{}: Enter was pressed, but the pane has printed nothing since", answer.pane));
        }
        Ok(0)
    }
}

fn path_of_input(target: &str) -> Result<String> {
    Ok(format!("{}/input", path_named("panes", target)?))
}

fn to_hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(line: &[&str]) -> SendKeys {
        use clap::Parser;
        #[derive(Parser)]
        struct Only {
            #[command(flatten)]
            send: SendKeys,
        }
        Only::try_parse_from(line).unwrap().send
    }

    fn request(line: &[&str], stdin: &[u8]) -> Result<InputRequest> {
        let mut words = vec!["send-keys", "-t", "%0"];
        words.extend(line);
        send(&words).request(&mut &*stdin)
    }

    #[test]
    fn words_are_keys_unless_told_otherwise() {
        let request = request(&["make test", "Enter"], b"").unwrap();
        assert_eq!(request.keys.unwrap(), ["make test", "Enter"]);
        assert_eq!(request.text, None);
    }

    #[test]
    fn literal_words_follow_each_other_without_a_space() {
        assert_eq!(request(&["-l", "a", "b c"], b"").unwrap().text.unwrap(), "ab c");
    }

    #[test]
    fn a_dash_is_stdin_where_text_is_meant_and_a_key_elsewhere() {
        assert_eq!(request(&["-l", "-"], b"x\ny").unwrap().text.unwrap(), "x\ny");
        let pasted = request(&["--paste", "-"], "ü".as_bytes()).unwrap();
        assert_eq!((pasted.text.as_deref(), pasted.paste), (Some("ü"), true));
        assert_eq!(request(&["-"], b"x").unwrap().keys.unwrap(), ["-"]);
        assert_eq!(request(&["-l", "-", "-"], b"x").unwrap().text.unwrap(), "--");
    }

    #[test]
    fn bytes_that_are_no_text_are_typed_as_bytes_and_not_pasted() {
        assert_eq!(request(&["-l", "-"], b"\xff\x00").unwrap().hex.unwrap(), "ff00");
        assert!(request(&["--paste", "-"], b"\xff").is_err());
    }

    #[test]
    fn hex_and_submit() {
        assert_eq!(request(&["--hex", "1b", "5b"], b"").unwrap().hex.unwrap(), "1b 5b");
        let enter = request(&["--submit"], b"").unwrap();
        assert_eq!((enter.text.as_deref(), enter.submit), (Some(""), true));
    }
}
