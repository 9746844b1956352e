//! Times as people write them: `1.5`, `90s`, `10m`, `1h30m`, as timeout(1) and sleep(1) take them.

/// The longest time limit that a wait or a run takes: a day, in seconds.
const LIMIT_SECONDS: f64 = 86_400.0;
/// The longest time ago, in seconds: a thousand years. What is older is no time but a mistake.
const AGO_SECONDS: f64 = 86_400.0 * 365_250.0;

/// Reads a time limit as milliseconds: seconds, fractions included, or numbers with units (`250ms`,
/// `90s`, `10m`, `1h30m`, `1d`), at most a day. Rounded up, so that a very short time does not become
/// none.
///
/// Error: what is wrong with it, to stand behind the name of what was given.
pub fn parse(text: &str) -> Result<u64, String> {
    let seconds = if text.parse::<f64>().is_ok() { text.parse().ok() } else { with_units(text) };
    let seconds = seconds.ok_or_else(|| "not a time: write seconds, or 90s, 10m, 1h30m".to_owned())?;
    if !(0.0..=LIMIT_SECONDS).contains(&seconds) {
        return Err(format!("must lie between 0 and {LIMIT_SECONDS} s, a day"));
    }
    Ok(milliseconds(seconds))
}

/// Reads how long ago something was as milliseconds: numbers with units alone. `None`: it is something
/// else.
pub(crate) fn parse_ago(text: &str) -> Option<u64> {
    with_units(text).filter(|seconds| *seconds <= AGO_SECONDS).map(milliseconds)
}

/// Reads seconds, with at most three decimals, as milliseconds, exactly. `None`: it is something else.
pub(crate) fn parse_seconds(text: &str) -> Option<u64> {
    let (seconds, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(seconds) || !digits(decimals) || decimals.len() > 3 {
        return None;
    }
    let milliseconds: u64 = format!("{decimals:0<3}").parse().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(milliseconds)
}

/// Rounds up to milliseconds. Seconds are neither negative nor too many for it.
#[allow(clippy::cast_sign_loss)]
fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1000.0).ceil() as u64
}

/// Reads numbers with units as seconds. `None`: it is something else.
fn with_units(text: &str) -> Option<f64> {
    let mut rest = text;
    let mut sum = 0.0;
    while !rest.is_empty() {
        let behind = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number: f64 = rest.strip_suffix(behind)?.parse().ok()?;
        rest = behind.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        sum += number
            * match behind.strip_suffix(rest)? {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "d" => 86_400.0,
                _ => return None,
            };
    }
    (!text.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_fractions_or_units() {
        for (text, milliseconds) in [
            ("1.5", 1500),
            ("0", 0),
            ("0.0001", 1),
            ("1s", 1000),
            ("250ms", 250),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(parse(text), Ok(milliseconds), "{text}");
        }
        for text in ["", "-1", "nan", "inf", "86401", "25h", "s", "1x", "1h30", "m5", "1 h", "1.2.3s"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn how_long_ago_has_a_unit_and_may_be_days() {
        assert_eq!(parse_ago("2d"), Some(172_800_000));
        assert_eq!(parse_ago("90s"), Some(90_000));
        for text in ["", "10", "1.5", "-1s", "99999999999d", "infs", "nand", "5 m"] {
            assert_eq!(parse_ago(text), None, "{text:?}");
        }
    }

    #[test]
    fn seconds_are_read_exactly() {
        for (text, milliseconds) in [("0", 0), ("5", 5000), ("1795263374.123", 1_795_263_374_123), ("1.5", 1500)] {
            assert_eq!(parse_seconds(text), Some(milliseconds), "{text}");
        }
        for text in ["", ".", "1.", ".5", "1.2345", "-1", "1e3", "99999999999999999999"] {
            assert_eq!(parse_seconds(text), None, "{text:?}");
        }
    }
}
