//! Selectors: panes by their labels, `{role=build,team!=a}`.

use muxtap_api::{Error, ErrorCode, Labels, Result, check_key, check_value, decode_label};
use muxtap_base::glob::Glob;

/// The most terms of a selector.
const TERMS: usize = 16;

/// A selector: panes whose labels match all of its terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    terms: Vec<Term>,
}

/// One term of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    key: String,
    value: Value,
    /// `!=`: panes that do not match.
    is_negated: bool,
}

/// The value of a term.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    /// This value; the empty one is that of a pane without the label.
    Exactly(String),
    /// A value that matches, of a pane with the label.
    Like(Glob),
}

/// Returns whether a target is a selector: in braces, with a `=`, which distinguishes it from tmux's
/// words (`{last}`).
pub fn is_selector(target: &str) -> bool {
    target.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).is_some_and(|terms| terms.contains('='))
}

impl Selector {
    /// Parses the terms of a selector, without the braces. Error: `INVALID_TARGET`.
    pub fn of_terms(terms: &str) -> Result<Self> {
        let invalid = |why: &str| {
            let given = terms.to_owned();
            Error::new(
                ErrorCode::InvalidTarget,
                format!("invalid selector {given:?}: {why}; expected KEY=VALUE or KEY!=VALUE, separated by commas"),
            )
        };
        let parse = |term: &str| {
            let (key, written) = term.split_once('=').ok_or_else(|| invalid("a term has no `=`"))?;
            let (key, is_negated) = key.strip_suffix('!').map_or((key, false), |key| (key, true));
            if written.contains(['{', '}']) {
                return Err(invalid("a brace in a value; write %7B and %7D"));
            }
            let value = decode_label(written).ok_or_else(|| invalid("a `%` without two hexadecimal digits"))?;
            check_key(key).and_then(|()| check_value(key, &value)).map_err(|error| invalid(&error.message))?;
            // A star that was written as `%2A` is a star of the value.
            let value = if !written.contains('*') {
                Value::Exactly(value)
            } else if written.contains("%2A") || written.contains("%2a") {
                return Err(invalid("`*` and `%2A` in one value"));
            } else {
                Value::Like(Glob::new(&value))
            };
            Ok(Term { key: key.to_owned(), value, is_negated })
        };
        let terms: Vec<_> = terms.split(',').map(parse).collect::<Result<_>>()?;
        if terms.len() > TERMS {
            return Err(invalid(&format!("{} terms; at most {TERMS} are allowed", terms.len())));
        }
        Ok(Self { terms })
    }

    /// Returns whether a pane's labels match.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.terms.iter().all(|term| {
            let value = labels.get(&term.key);
            let is_met = match &term.value {
                Value::Exactly(wanted) => value.unwrap_or_default() == wanted,
                Value::Like(glob) => value.is_some_and(|value| glob.matches(value)),
            };
            is_met != term.is_negated
        })
    }
}

impl std::str::FromStr for Selector {
    type Err = Error;

    /// Parses a selector with its braces.
    fn from_str(text: &str) -> Result<Self> {
        Self::of_terms(text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_terms_must_match() {
        let labels = Labels::parse("role=build,team=a,note=a%2Cb c".replace(' ', "%20").as_str());
        let is_match = |text: &str| text.parse::<Selector>().unwrap().matches(&labels);
        for yes in [
            "{role=build}",
            "{role=build,team=a}",
            "{role=b*}",
            "{role=*}",
            "{team!=b}",
            "{owner!=me}",
            "{owner=}",
            "{role!=}",
            "{owner!=*}",
            "{note=a%2Cb%20c}",
            "{note=a%2cb c}",
            "{note=*%2C*}",
        ] {
            assert!(is_match(yes), "{yes}");
        }
        for no in ["{role=test}", "{role=build,team=b}", "{role!=b*}", "{owner=*}", "{role=}", "{owner!=}", "{note=a}"]
        {
            assert!(!is_match(no), "{no}");
        }
        assert!(!"{note=%2A}".parse::<Selector>().unwrap().matches(&labels));
        assert!("{note=%2A}".parse::<Selector>().unwrap().matches(&Labels::parse("note=*")));
    }

    #[test]
    fn what_is_no_selector_is_refused() {
        let many = vec!["a=1"; TERMS + 1].join(",");
        for text in [
            "", "role", "=x", "a=1,", "a=1,b", "A=1", "a=%", "a=%zz", "a=%0a", "a={x}", "a b=1", "!=x", "a=*%2A",
            &*many,
        ] {
            assert_eq!(Selector::of_terms(text).unwrap_err().code, ErrorCode::InvalidTarget, "{text:?}");
        }
        for (text, yes) in [
            ("{a=1}", true),
            ("{=}", true),
            ("{last}", false),
            ("{mouse}", false),
            ("a=1", false),
            ("=", false),
            ("{", false),
        ] {
            assert_eq!(is_selector(text), yes, "{text}");
        }
    }
}
