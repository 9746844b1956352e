//! Rules that were checked, and all of them together with their regexes.

use std::{sync::Arc, time::Duration};

use muxtap_api::{
    AgentState, Error, EventKind, Labels, PaneInfo, ProgressState, ReadFormat, Result, ScreenFormat, StatusIs,
    SubscribeRequest, WhenRule,
};
use muxtap_base::glob::Glob;
use muxtap_engine::{Selector, is_selector};

use crate::{
    limits::{EVERY, EVERY_LEAST, PATTERN_BYTES, RULES, RUN_LIMIT, RUN_MOST},
    patterns::Patterns,
    post::Post,
};

/// The word for this machine in `hosts`.
pub(crate) const LOCAL: &str = "local";

/// The condition of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// A line of the output matches.
    Output,
    /// A row of the screen begins to match.
    Screen,
    /// A command ends.
    Command { status: Option<StatusIs>, longer: Option<Duration> },
    /// The agent enters a state.
    Agent(AgentState),
    /// Progress enters a state.
    Progress(ProgressState),
    /// A notification matches.
    Notification,
    /// The pane's process ends.
    Ended { status: Option<StatusIs> },
    /// The pane is quiet for this time.
    Quiet(Duration),
}

impl Condition {
    /// Returns the word for it: the rule's field.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::Screen => "screen",
            Self::Command { .. } => "command",
            Self::Agent(_) => "agent",
            Self::Progress(_) => "progress",
            Self::Notification => "notification",
            Self::Ended { .. } => "ended",
            Self::Quiet(_) => "quiet",
        }
    }
}

/// Typed text of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Typing {
    /// The text, without a newline at its end.
    pub(crate) text: String,
    /// Whether Enter follows.
    pub(crate) enter: bool,
    /// The target, if it is not the pane that fired.
    pub(crate) into: Option<String>,
}

/// A rule that was checked.
#[derive(Debug)]
pub(crate) struct Rule {
    /// The rule as it was given.
    pub(crate) given: WhenRule,
    pub(crate) condition: Condition,
    panes: Vec<PanePattern>,
    labels: Vec<Selector>,
    hosts: Vec<Glob>,
    pub(crate) every: Duration,
    pub(crate) timeout: Duration,
    pub(crate) post: Option<Post>,
    pub(crate) typing: Option<Typing>,
}

/// A pattern of panes.
#[derive(Clone, Debug)]
enum PanePattern {
    /// A session, and one of its windows.
    Within(Glob, Glob),
    /// A session, a window, a title or an id.
    Any(Glob),
    /// Labels.
    Labels(Selector),
}

impl Rule {
    /// Checks a rule. Error: `INVALID_ARGUMENT`, with the rule's name and the field.
    pub(crate) fn of(given: WhenRule) -> Result<Self> {
        let name = check_name(&given.name)?;
        let wrong = |why: String| Error::invalid(format!("rule {name}: {why}"));
        let condition = condition(&given).map_err(wrong)?;
        let every = time("every", given.every.as_deref()).map_err(wrong)?.unwrap_or(EVERY);
        if every < EVERY_LEAST {
            return Err(wrong(format!("every: expected at least {}ms", EVERY_LEAST.as_millis())));
        }
        let timeout = time("timeout", given.timeout.as_deref()).map_err(wrong)?.unwrap_or(RUN_LIMIT);
        if timeout.is_zero() || timeout > RUN_MOST {
            return Err(wrong(format!("timeout: expected more than 0 and at most {} s", RUN_MOST.as_secs())));
        }
        if given.run.first().is_some_and(String::is_empty) {
            return Err(wrong("run: the program's name is empty".into()));
        }
        if given.run.iter().any(|word| word.contains('\0')) {
            return Err(wrong("run: a word contains NUL".into()));
        }
        let post = given.post.as_ref().map(Post::of).transpose().map_err(wrong)?;
        let typing = given.type_text.as_ref().map(|text| Typing {
            text: text.strip_suffix('\n').unwrap_or(text).to_owned(),
            enter: text.ends_with('\n'),
            into: given.into.clone(),
        });
        if typing.as_ref().is_some_and(|typing| typing.text.is_empty() && !typing.enter) {
            return Err(wrong("type: the text is empty".into()));
        }
        if typing.is_none() && given.into.is_some() {
            return Err(wrong("into: needs `type`".into()));
        }
        let has_action = !given.run.is_empty() || post.is_some() || given.notify || !given.label.is_empty();
        if !has_action && typing.is_none() {
            return Err(wrong("no action; expected at least one of run, post, notify, type, label".into()));
        }
        let panes = given.panes.iter().map(|pattern| PanePattern::of(pattern));
        let panes = panes.collect::<Result<_>>().map_err(|error| wrong(format!("panes: {}", error.message)))?;
        let labels = given.labels.iter().map(|terms| Selector::of_terms(terms)).collect::<Result<_>>();
        let labels = labels.map_err(|error| wrong(format!("labels: {}", error.message)))?;
        Labels::default().with(&given.label).map_err(|error| wrong(format!("label: {}", error.message)))?;
        let hosts = given.hosts.iter().map(|host| Glob::new(host)).collect();
        Ok(Self { given, condition, panes, labels, hosts, every, timeout, post, typing })
    }

    /// Returns its name.
    pub(crate) fn name(&self) -> &str {
        &self.given.name
    }

    /// Returns whether the rule counts on a host; `None` is this machine.
    pub(crate) fn is_on(&self, host: Option<&str>) -> bool {
        match host {
            None => self.hosts.is_empty() || self.hosts.iter().any(|pattern| pattern.matches(LOCAL)),
            Some(host) => self.hosts.iter().any(|pattern| pattern.matches(host)),
        }
    }

    /// Returns whether the rule counts in a pane with this agent.
    pub(crate) fn is_in(&self, pane: &PaneInfo, agent: Option<&str>) -> bool {
        let agents = &self.given.agents;
        (agents.is_empty() || agent.is_some_and(|agent| agents.iter().any(|wanted| wanted == agent)))
            && self.is_in_pane(pane)
    }

    /// Returns whether the rule selects panes by labels, which change.
    pub(crate) fn selects(&self) -> bool {
        !self.labels.is_empty() || self.panes.iter().any(|pattern| matches!(pattern, PanePattern::Labels(_)))
    }

    /// Returns whether the rule counts in a pane, whatever its agent.
    pub(crate) fn is_in_pane(&self, pane: &PaneInfo) -> bool {
        self.labels.iter().all(|selector| selector.matches(&pane.labels))
            && (self.panes.is_empty() || self.panes.iter().any(|pattern| pattern.matches(pane)))
    }

    /// Returns whether it types into a pane, or labels it: that is done first, soon after the event.
    pub(crate) fn is_for_pane(&self) -> bool {
        self.typing.is_some() || !self.given.label.is_empty()
    }

    /// Returns whether a pane's title may decide.
    fn needs_titles(&self) -> bool {
        self.panes.iter().any(|pattern| matches!(pattern, PanePattern::Any(_)))
    }
}

impl PanePattern {
    fn of(pattern: &str) -> Result<Self> {
        if is_selector(pattern) {
            return pattern.parse().map(Self::Labels);
        }
        Ok(match pattern.split_once(':') {
            Some((session, window)) => Self::Within(Glob::new(session), Glob::new(window)),
            None => Self::Any(Glob::new(pattern)),
        })
    }

    fn matches(&self, pane: &PaneInfo) -> bool {
        let PaneInfo { id, session, window, window_index, index, title, .. } = pane;
        match self {
            Self::Labels(selector) => selector.matches(&pane.labels),
            Self::Any(glob) => {
                glob.matches(session) || glob.matches(window) || glob.matches(title) || glob.matches(&id.to_string())
            }
            Self::Within(sessions, windows) => {
                sessions.matches(session)
                    && (windows.matches(window)
                        || windows.matches(&window_index.to_string())
                        || windows.matches(&format!("{window_index}.{index}"))
                        || windows.matches(&format!("{window}.{index}")))
            }
        }
    }
}

fn check_name(name: &str) -> Result<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_plain) {
        let name = muxtap_base::plain::name(name);
        return Err(Error::invalid(format!(
            "rule: invalid name `{name}`; expected 1 to 64 letters, digits, `-`, `_` or `.`"
        )));
    }
    Ok(name.to_owned())
}

fn condition(given: &WhenRule) -> std::result::Result<Condition, String> {
    let pattern = |what: &str, pattern: &Option<String>, condition: Condition| match pattern {
        None => Ok(None),
        Some(pattern) if pattern.len() > PATTERN_BYTES => {
            Err(format!("{what}: {} bytes; expected at most {PATTERN_BYTES}", pattern.len()))
        }
        Some(_) => Ok(Some(condition)),
    };
    let quiet = time("quiet", given.quiet.as_deref())?;
    if quiet.is_some_and(|quiet| quiet.is_zero()) {
        return Err("quiet: expected more than 0".into());
    }
    let status = given.status;
    let longer = time("longer", given.longer.as_deref())?;
    let found = [
        pattern("output", &given.output, Condition::Output)?,
        pattern("screen", &given.screen, Condition::Screen)?,
        pattern("notification", &given.notification, Condition::Notification)?,
        given.command.then_some(Condition::Command { status, longer }),
        given.agent.map(Condition::Agent),
        given.progress.map(Condition::Progress),
        given.ended.then_some(Condition::Ended { status }),
        quiet.map(Condition::Quiet),
    ];
    let mut found = found.into_iter().flatten();
    let expected = "expected one of output, screen, command, agent, progress, notification, ended, quiet";
    let condition = found.next().ok_or_else(|| format!("no condition; {expected}"))?;
    if let Some(second) = found.next() {
        return Err(format!("two conditions, {} and {}; {expected}", condition.kind(), second.kind()));
    }
    if status.is_some() && !matches!(condition, Condition::Command { .. } | Condition::Ended { .. }) {
        return Err("status: needs `command` or `ended`".into());
    }
    if longer.is_some() && !matches!(condition, Condition::Command { .. }) {
        return Err("longer: needs `command`".into());
    }
    Ok(condition)
}

/// Parses a time.
fn time(field: &str, text: Option<&str>) -> std::result::Result<Option<Duration>, String> {
    let parse = |text| {
        let ms = muxtap_core::duration::parse(text);
        ms.map_err(|why| format!("{field}: `{}`: {why}", muxtap_base::plain::name(text)))
    };
    Ok(text.map(parse).transpose()?.map(Duration::from_millis))
}

/// All rules in effect, with the patterns of a kind searched for at once.
#[derive(Debug, Default)]
pub(crate) struct RuleSet {
    pub(crate) rules: Vec<Arc<Rule>>,
    pub(crate) output: Patterns,
    pub(crate) screen: Patterns,
    pub(crate) notification: Patterns,
}

/// Compiles the patterns that rules have in a field. Error: `INVALID_ARGUMENT`.
fn patterns(rules: &[Arc<Rule>], field: impl Fn(&WhenRule) -> Option<&String>) -> Result<Patterns> {
    let given = rules.iter().enumerate();
    let given = given.filter_map(|(place, rule)| Some((place, rule.name(), field(&rule.given)?.as_str())));
    Patterns::of(&given.collect::<Vec<_>>())
}

impl RuleSet {
    /// Compiles the patterns of these rules, which may take a second. Error: `INVALID_ARGUMENT` for a
    /// pattern that is not a regex, for too many rules, and for two rules of one name.
    pub(crate) fn of(rules: Vec<Arc<Rule>>) -> Result<Self> {
        if rules.len() > RULES {
            return Err(Error::invalid(format!("rules: {}; at most {RULES} are allowed", rules.len())));
        }
        let mut names: Vec<_> = rules.iter().map(|rule| rule.name()).collect();
        names.sort_unstable();
        if let Some(name) =
            names.windows(2).find(|pair| matches!(pair, [one, next] if one == next)).and_then(<[_]>::first)
        {
            return Err(Error::invalid(format!("rule {name}: two rules have this name; names must differ")));
        }
        let output = patterns(&rules, |rule| rule.output.as_ref())?;
        let screen = patterns(&rules, |rule| rule.screen.as_ref())?;
        let notification = patterns(&rules, |rule| rule.notification.as_ref())?;
        Ok(Self { rules, output, screen, notification })
    }

    /// Returns whether some rule counts on a host.
    pub(crate) fn are_on(&self, host: Option<&str>) -> bool {
        self.rules.iter().any(|rule| rule.is_on(host))
    }

    /// Returns the hosts, besides this machine, that the rules name without a `*`.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &str> {
        let named = self.rules.iter().flat_map(|rule| &rule.given.hosts).map(String::as_str);
        named.filter(|host| *host != LOCAL && !host.contains('*'))
    }

    /// Returns the subscription to a host's events that the rules need: only kinds that some rule looks at.
    pub(crate) fn subscription(&self, host: Option<&str>) -> SubscribeRequest {
        let mut types = vec![EventKind::PaneOpened, EventKind::PaneExited, EventKind::Topology];
        let mut add = |kind| {
            if !types.contains(&kind) {
                types.push(kind);
            }
        };
        for rule in self.rules.iter().filter(|rule| rule.is_on(host)) {
            match &rule.condition {
                Condition::Output | Condition::Quiet(_) => add(EventKind::Output),
                Condition::Screen => add(EventKind::Screen),
                Condition::Command { .. } => add(EventKind::CommandFinished),
                Condition::Progress(_) => add(EventKind::Progress),
                Condition::Notification => add(EventKind::Notification),
                Condition::Agent(_) => add(EventKind::Agent),
                Condition::Ended { .. } => {}
            }
            if !rule.given.agents.is_empty() {
                add(EventKind::Agent);
            }
            if rule.typing.is_some() {
                // What is printed after its typing decides when it may type again.
                add(EventKind::Output);
            }
            if rule.needs_titles() {
                add(EventKind::Title);
            }
        }
        // With its escape sequences: a line also ends where it is rewritten, which text no longer shows.
        SubscribeRequest { types, format: ReadFormat::Ansi, screen: ScreenFormat::Text, ..SubscribeRequest::default() }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use muxtap_core::protocol::ids::PaneId;

    use super::*;

    /// Reads rules as the configuration has them.
    pub(crate) fn rules(toml: &str) -> Result<RuleSet> {
        #[derive(serde::Deserialize)]
        struct File {
            when: Vec<WhenRule>,
        }
        let file: File = toml::from_str(toml).unwrap_or_else(|error| panic!("{toml}: {error}"));
        RuleSet::of(file.when.into_iter().map(|rule| Rule::of(rule).map(Arc::new)).collect::<Result<_>>()?)
    }

    #[test]
    fn a_rule_has_one_condition_and_an_action() {
        let good = "[[when]]\nname = 'a'\n";
        for (fields, error) in [
            ("notify = true", "no condition"),
            ("output = 'x'", "no action"),
            ("output = 'x'\nended = true\nnotify = true", "two conditions, output and ended"),
            ("output = '('\nnotify = true", "rule a: regex parse error"),
            ("output = 'x'\nnotify = true\nstatus = 1", "status: needs"),
            ("ended = true\nnotify = true\nlonger = '1s'", "longer: needs"),
            ("quiet = 'x'\nnotify = true", "quiet: `x`: not a duration"),
            ("quiet = '0s'\nnotify = true", "quiet: expected more"),
            ("ended = true\nnotify = true\nevery = '1ms'", "every: expected at least"),
            ("ended = true\nrun = ['']", "run: the program's name is empty"),
            ("ended = true\nrun = ['x']\ntimeout = '2h'", "timeout: expected"),
            ("ended = true\ntype = ''", "type: the text is empty"),
            ("ended = true\nnotify = true\ninto = 'x'", "into: needs"),
            ("ended = true\nnotify = true\nlabels = ['role']", "labels: invalid selector"),
            ("ended = true\nnotify = true\npanes = ['{a=1,b}']", "panes: invalid selector"),
            ("ended = true\nlabel = { A = 'x' }", "label: labels: invalid key"),
        ] {
            let refused = rules(&format!("{good}{fields}")).unwrap_err().message;
            assert!(refused.contains(error), "{fields}: {refused}");
        }
        for fields in
            ["ended = true\nnotify = true", "quiet = '1h30m'\nrun = ['true']", "agent = 'idle'\ntype = \"\\n\""]
        {
            rules(&format!("{good}{fields}")).unwrap();
        }
        let twice = format!("{good}ended = true\nnotify = true\n{good}ended = true\nnotify = true");
        assert!(rules(&twice).unwrap_err().message.contains("two rules"));
        for name in ["", "a b", "a/b", "\u{1b}[31m"] {
            let rule = WhenRule { name: name.into(), ended: true, notify: true, ..WhenRule::default() };
            assert!(!Rule::of(rule).unwrap_err().message.contains('\u{1b}'), "{name:?}");
        }
    }

    #[test]
    fn a_pattern_names_panes_by_session_window_title_or_id() {
        let pane = PaneInfo {
            session: "work".into(),
            window: "build-api".into(),
            window_index: 2,
            title: "vim".into(),
            labels: Labels::parse("role=build,team=a"),
            ..PaneInfo::of(PaneId(7))
        };
        let is_in = |panes: &str, agents: &str, agent: Option<&str>| {
            let set =
                rules(&format!("[[when]]\nname='a'\nended=true\nnotify=true\npanes=[{panes}]\nagents=[{agents}]"));
            set.unwrap().rules[0].is_in(&pane, agent)
        };
        for yes in
            ["", "'work'", "'build-*'", "'vim'", "'%7'", "'work:*'", "'work:2'", "'w*:2.0'", "'x', 'work:build-api'"]
        {
            assert!(is_in(yes, "", None), "{yes}");
        }
        for no in ["'build'", "'other:*'", "'work:3'", "'%70'", "'work:test*'"] {
            assert!(!is_in(no, "", None), "{no}");
        }
        assert!(is_in("'{role=b*,team!=b}'", "", None) && !is_in("'{role=test}'", "", None));
        for (labels, yes) in [("'role=build'", true), ("'role=build', 'team=b'", false), ("'role=build,team=a'", true)]
        {
            let set = rules(&format!("[[when]]\nname='a'\nended=true\nlabel={{a='1'}}\nlabels=[{labels}]")).unwrap();
            assert_eq!(set.rules[0].is_in(&pane, None), yes, "{labels}");
        }
        assert!(is_in("", "'claude'", Some("claude")));
        assert!(!is_in("", "'claude'", Some("codex")) && !is_in("", "'claude'", None));
    }

    #[test]
    fn hosts_are_named_and_without_them_a_rule_is_local() {
        let set = rules(
            "[[when]]\nname='a'\nended=true\nnotify=true\n\
             [[when]]\nname='b'\nended=true\nnotify=true\nhosts=['box','web*']",
        );
        let set = set.unwrap();
        let [a, b] = &set.rules[..] else { panic!("two rules") };
        assert!(a.is_on(None) && !a.is_on(Some("box")));
        assert!(!b.is_on(None) && b.is_on(Some("box")) && b.is_on(Some("web2")) && !b.is_on(Some("other")));
        assert_eq!(set.hosts().collect::<Vec<_>>(), ["box"]);
    }

    #[test]
    fn only_kinds_of_events_that_a_rule_needs_are_subscribed() {
        let types =
            |rule: &str| rules(&format!("[[when]]\nname='a'\nnotify=true\n{rule}")).unwrap().subscription(None).types;
        assert!(!types("ended=true").contains(&EventKind::Output));
        assert!(types("quiet='1s'").contains(&EventKind::Output));
        assert!(types("screen='x'").contains(&EventKind::Screen) && !types("output='x'").contains(&EventKind::Screen));
        assert!(types("ended=true\npanes=['x']").contains(&EventKind::Title));
        assert!(!types("ended=true\npanes=['x:*']").contains(&EventKind::Title));
        assert!(types("ended=true\nagents=['claude']").contains(&EventKind::Agent));
    }
}
