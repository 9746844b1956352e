//! Parses a file of rules.

use std::{ops::Range, sync::Arc};

use muxtap_api::{AgentState, Error, ProgressState, Result};
use muxtap_base::glob::Glob;
use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use toml::Spanned;

use super::{
    rules::{Agent, Options, Rule, Rules},
    version::{AgentVersion, VersionRange},
};

/// The most agents in total.
const AGENTS: usize = 64;
/// The most rules of one agent.
const RULES: usize = 64;
/// The most expressions in one place.
const EXPRESSIONS: usize = 16;
/// The longest expression, in bytes.
const EXPRESSION_BYTES: usize = 4096;
/// The most bytes of one compiled expression.
const COMPILED_BYTES: usize = 1 << 20;
/// The most rows that one rule may examine.
const ROWS: u16 = 200;
/// The rows that a rule examines by default.
const ROWS_PRESET: u16 = 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    agent: Vec<AgentEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentEntry {
    id: Spanned<String>,
    name: Option<String>,
    #[serde(default)]
    programs: Vec<String>,
    #[serde(default)]
    process: Vec<Spanned<String>>,
    #[serde(default)]
    except: Vec<Spanned<String>>,
    #[serde(default)]
    prompt: Vec<Spanned<String>>,
    #[serde(default)]
    footer: Vec<Spanned<String>>,
    version: Option<Spanned<String>>,
    tested: Option<Spanned<String>>,
    keeps_answered: Option<bool>,
    #[serde(default)]
    replace: bool,
    #[serde(default)]
    rule: Vec<RuleEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleEntry {
    name: Spanned<String>,
    state: Spanned<AgentState>,
    priority: Option<i32>,
    versions: Option<Spanned<String>>,
    #[serde(default)]
    projects: Vec<Spanned<String>>,
    rows: Option<Spanned<u16>>,
    below: Option<Spanned<String>>,
    #[serde(default)]
    screen: Vec<Spanned<String>>,
    #[serde(default)]
    unless: Vec<Spanned<String>>,
    title: Option<Spanned<String>>,
    #[serde(default)]
    bell: bool,
    progress: Option<ProgressState>,
    notification: Option<Spanned<String>>,
    question: Option<Spanned<String>>,
    options: Option<Spanned<String>>,
    #[serde(default)]
    framed: bool,
}

/// Parses `text`. Its rules for agents in `known` are added before the known rules.
pub(super) fn parse(text: &str, known: &Rules) -> Result<Rules> {
    // The message names line and column.
    let file: File = toml::from_str(text).map_err(|error| Error::invalid(error.to_string().trim_end()))?;
    let mut agents = known.agents.clone();
    for entry in &file.agent {
        let reader = Reader { text, agent: entry.id.get_ref() };
        let id = entry.id.get_ref();
        if id.is_empty() || !id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
            return Err(reader.wrong(entry.id.span(), None, "`id` may have only lower case letters, digits, hyphens"));
        }
        let place = agents.iter().position(|agent| agent.id == *id);
        let known = place.and_then(|at| agents.get(at)).filter(|_| !entry.replace);
        let agent = Arc::new(reader.agent(entry, known)?);
        match place.and_then(|at| agents.get_mut(at)) {
            Some(known) => *known = agent,
            None => agents.push(agent),
        }
        if agents.len() > AGENTS {
            return Err(reader.wrong(entry.id.span(), None, &format!("more than {AGENTS} agents")));
        }
    }
    Ok(Rules { agents, error: None })
}

struct Reader<'a> {
    text: &'a str,
    agent: &'a str,
}

impl Reader<'_> {
    fn agent(&self, entry: &AgentEntry, known: Option<&Arc<Agent>>) -> Result<Agent> {
        let mut programs: Vec<_> = entry.programs.iter().map(|name| name.to_lowercase()).collect();
        let mut process = self.all(&entry.process, None, "process")?;
        let mut except = self.all(&entry.except, None, "except")?;
        let (mut prompt, mut footer) =
            (self.all(&entry.prompt, None, "prompt")?, self.all(&entry.footer, None, "footer")?);
        let mut keeps_answered = entry.keeps_answered;
        let mut version = self.version(entry)?;
        let mut tested = entry.tested.as_ref().map(|text| self.tested(text)).transpose()?;
        let mut rules = entry.rule.iter().map(|rule| self.rule(rule)).collect::<Result<Vec<_>>>()?;
        let mut name = entry.name.clone();
        if let Some(known) = known {
            programs.extend(known.programs.iter().cloned());
            process.extend(known.process.iter().cloned());
            except.extend(known.except.iter().cloned());
            prompt.extend(known.prompt.iter().cloned());
            footer.extend(known.footer.iter().cloned());
            keeps_answered = keeps_answered.or(Some(known.keeps_answered));
            version = version.or_else(|| known.version.clone());
            tested = tested.or(known.tested);
            // A rule replaces the known one of the same name.
            let others =
                known.rules.iter().filter(|other| entry.rule.iter().all(|rule| *rule.name.get_ref() != other.name));
            rules.extend(others.cloned().collect::<Vec<_>>());
            name = name.or_else(|| Some(known.name.clone()));
        }
        if programs.is_empty() && process.is_empty() {
            let why = "give `programs` or `process`: nothing identifies this agent";
            return Err(self.wrong(entry.id.span(), None, why));
        }
        if rules.len() > RULES {
            return Err(self.wrong(entry.id.span(), None, &format!("more than {RULES} rules")));
        }
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.priority));
        let name = name.unwrap_or_else(|| self.agent.to_owned());
        let keeps_answered = keeps_answered.unwrap_or_default();
        let id = self.agent.to_owned();
        Ok(Agent { id, name, programs, process, except, prompt, footer, version, tested, keeps_answered, rules })
    }

    fn version(&self, entry: &AgentEntry) -> Result<Option<Regex>> {
        let Some(text) = &entry.version else { return Ok(None) };
        let regex = self.expression(text, None, "version")?;
        if regex.captures_len() < 2 {
            let why = "`version` must have a group that is the version";
            return Err(self.wrong(text.span(), None, why));
        }
        Ok(Some(regex))
    }

    fn tested(&self, text: &Spanned<String>) -> Result<AgentVersion> {
        let why = "`tested` must be a version: 1.2.3";
        AgentVersion::parse(text.get_ref()).ok_or_else(|| self.wrong(text.span(), None, why))
    }

    fn rule(&self, entry: &RuleEntry) -> Result<Rule> {
        let name = entry.name.get_ref();
        let state = *entry.state.get_ref();
        let Some(preset) = priority(state) else {
            let why = "`ended` is determined by the process, not by a rule";
            return Err(self.wrong(entry.state.span(), Some(name), why));
        };
        let has_signal =
            entry.title.is_some() || entry.bell || entry.progress.is_some() || entry.notification.is_some();
        if entry.screen.is_empty() && !has_signal {
            let why = "give `screen`, `title`, `bell`, `progress` or `notification`: nothing makes this rule apply";
            return Err(self.wrong(entry.name.span(), Some(name), why));
        }
        let rows = entry.rows.as_ref().map_or(ROWS_PRESET, |rows| *rows.get_ref());
        if let Some(given) = entry.rows.as_ref().filter(|_| !(1..=ROWS).contains(&rows)) {
            return Err(self.wrong(given.span(), Some(name), &format!("`rows` must be between 1 and {ROWS}")));
        }
        let one = |text: &Option<Spanned<String>>, key| {
            text.as_ref().map(|text| self.expression(text, Some(name), key)).transpose()
        };
        let options = match &entry.options {
            None => Options::None,
            Some(how) if how.get_ref() == "numbered" => Options::Numbered,
            Some(how) => {
                let regex = self.expression(how, Some(name), "options")?;
                if !regex.capture_names().flatten().any(|group| group == "label") {
                    let why = "`options` must be `numbered` or an expression with a group `label`";
                    return Err(self.wrong(how.span(), Some(name), why));
                }
                Options::Pattern(regex)
            }
        };
        let range = |text: &Spanned<String>| {
            let why = "`versions` must be comparisons: >=2.1, <2.2";
            VersionRange::parse(text.get_ref()).ok_or_else(|| self.wrong(text.span(), Some(name), why))
        };
        Ok(Rule {
            name: name.clone(),
            state,
            priority: entry.priority.unwrap_or(preset),
            versions: entry.versions.as_ref().map(range).transpose()?,
            projects: self.projects(&entry.projects, name)?,
            rows,
            below: one(&entry.below, "below")?,
            screen: self.all(&entry.screen, Some(name), "screen")?,
            unless: self.all(&entry.unless, Some(name), "unless")?,
            title: one(&entry.title, "title")?,
            bell: entry.bell,
            progress: entry.progress,
            notification: one(&entry.notification, "notification")?,
            question: one(&entry.question, "question")?,
            options,
            framed: entry.framed,
        })
    }

    /// Parses patterns of directories. Relative ones would depend on where the daemon runs.
    fn projects(&self, texts: &[Spanned<String>], rule: &str) -> Result<Vec<Glob>> {
        if let Some(over) = texts.get(EXPRESSIONS) {
            let why = format!("`projects`: more than {EXPRESSIONS} directories");
            return Err(self.wrong(over.span(), Some(rule), &why));
        }
        let mut globs = Vec::new();
        for text in texts {
            let given = text.get_ref().trim_end_matches('/');
            let home = std::env::home_dir().and_then(|home| home.into_os_string().into_string().ok());
            let path = match (given.strip_prefix('~'), home) {
                (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => format!("{home}{rest}"),
                _ => given.to_owned(),
            };
            if !path.starts_with('/') {
                let why = format!("`projects`: `{given}` is not absolute; begin with `/` or `~/`");
                return Err(self.wrong(text.span(), Some(rule), &why));
            }
            // The directory itself, and those in it.
            globs.extend([Glob::new(&path), Glob::new(&format!("{path}/*"))]);
        }
        Ok(globs)
    }

    fn all(&self, texts: &[Spanned<String>], rule: Option<&str>, key: &str) -> Result<Vec<Regex>> {
        if let Some(over) = texts.get(EXPRESSIONS) {
            return Err(self.wrong(over.span(), rule, &format!("`{key}`: more than {EXPRESSIONS} expressions")));
        }
        texts.iter().map(|text| self.expression(text, rule, key)).collect()
    }

    fn expression(&self, text: &Spanned<String>, rule: Option<&str>, key: &str) -> Result<Regex> {
        let wrong = |why: &str| self.wrong(text.span(), rule, &format!("`{key}`: {why}"));
        if text.get_ref().len() > EXPRESSION_BYTES {
            return Err(wrong(&format!("expression too long; at most {EXPRESSION_BYTES} bytes are allowed")));
        }
        RegexBuilder::new(text.get_ref())
            .multi_line(true)
            // Expressions of an agent ignore case, as those for command lines always have;
            // expressions of a rule do not.
            .case_insensitive(rule.is_none())
            .size_limit(COMPILED_BYTES)
            .dfa_size_limit(COMPILED_BYTES)
            .build()
            // The first lines show the expression; the last one has the reason.
            .map_err(|error| wrong(error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ")))
    }

    fn wrong(&self, span: Range<usize>, rule: Option<&str>, why: &str) -> Error {
        let line = self.text.get(..span.start).map_or(1, |before| before.matches('\n').count() + 1);
        let rule = rule.map(|rule| format!(", rule `{rule}`")).unwrap_or_default();
        Error::invalid(format!("line {line}: agent `{}`{rule}: {why}", self.agent))
    }
}

/// Returns the default priority of a state, highest for states that wait for a person. `None` for
/// the state that no rule may have.
const fn priority(state: AgentState) -> Option<i32> {
    match state {
        AgentState::Permission => Some(400),
        AgentState::Question => Some(300),
        AgentState::Working => Some(200),
        AgentState::Errored => Some(100),
        AgentState::Idle => Some(0),
        AgentState::Ended => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAUDE: &str = "[[agent]]\nid = 'claude'\n";

    fn error(text: &str) -> String {
        Rules::with_user_rules(text).unwrap_err().message
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line_and_rule() {
        for (rest, says) in [
            (
                "[[agent.rule]]\nname = 'x'\nstate = 'idle'\nscreen = ['(']",
                "line 6: agent `claude`, rule `x`: `screen`: ",
            ),
            ("[[agent.rule]]\nname = 'x'\nstate = 'idle'", "line 4: agent `claude`, rule `x`: give `screen`, `title`"),
            (
                "[[agent.rule]]\nname = 'x'\nstate = 'ended'\nbell = true",
                "line 5: agent `claude`, rule `x`: `ended` is determined",
            ),
            ("[[agent.rule]]\nname = 'x'\nstate = 'busy'\nbell = true", "line 5"),
            (
                "[[agent.rule]]\nname = 'x'\nstate = 'idle'\nbell = true\nrows = 0",
                "line 7: agent `claude`, rule `x`: `rows`",
            ),
            (
                "[[agent.rule]]\nname = 'x'\nstate = 'idle'\nbell = true\noptions = 'a+'",
                "line 7: agent `claude`, rule `x`: `options`",
            ),
            ("[[agent.rule]]\nname = 'x'\nstate = 'idle'\nbell = true\nscren = []", "line 7"),
            (
                "[[agent.rule]]\nname = 'x'\nstate = 'idle'\nbell = true\nversions = '2.1'",
                "line 7: agent `claude`, rule `x`: `versions`",
            ),
            (
                "[[agent.rule]]\nname = 'x'\nstate = 'idle'\nbell = true\nprojects = ['src']",
                "line 7: agent `claude`, rule `x`: `projects`: `src` is not absolute",
            ),
            ("[[agent.rule]]\nname = 'x'\nstate = 'idle'\nprogress = 'half'", "line 6"),
            ("version = 'v.*'", "line 3: agent `claude`: `version`"),
            ("tested = 'new'", "line 3: agent `claude`: `tested`"),
            ("process = ['[']", "line 3: agent `claude`: `process`: "),
            (
                "[[agent.rule]]\nname = 'x'\nstate = 'idle'\nscreen = ['\\w{1000}{1000}']",
                "line 6: agent `claude`, rule `x`: `screen`: ",
            ),
        ] {
            let message = error(&format!("{CLAUDE}{rest}\n"));
            assert!(message.contains(says), "{rest}: {message}");
        }
        assert!(error("[[agent]]\nid = 'mine'").contains("line 2: agent `mine`: give `programs`"));
        assert!(error("[[agent]]\nid = 'A b'").contains("lower case"));
        assert!(error("agents = 1").contains("line 1"));
    }

    #[test]
    fn a_file_adds_to_what_is_there_or_takes_its_place() {
        let of = |text: &str| {
            let rules = Rules::with_user_rules(text).unwrap();
            let agent = rules.agents.iter().find(|agent| agent.id == "claude").unwrap().clone();
            (rules.agents.len(), agent)
        };
        let built_in = Rules::built_in();
        let rule = "[[agent.rule]]\nname = 'proceed'\nstate = 'idle'\nscreen = ['x']\n";
        let (count, agent) = of(&format!("{CLAUDE}programs = ['Mine']\n{rule}"));
        assert_eq!((count, agent.name.as_str()), (built_in.agents.len(), "Claude Code"));
        assert_eq!(agent.programs, ["mine", "claude"]);
        assert_eq!(agent.rules.len(), built_in.agents[0].rules.len(), "the one of the same name has gone");
        assert_eq!(agent.rules.iter().filter(|rule| rule.name == "proceed").count(), 1);
        let (_, agent) = of(&format!("{CLAUDE}replace = true\nprograms = ['mine']\n{rule}"));
        assert_eq!((agent.rules.len(), agent.process.len()), (1, 0));
        let (count, _) = of("[[agent]]\nid = 'new'\nprograms = ['new']\n");
        assert_eq!(count, built_in.agents.len() + 1);
    }
}
