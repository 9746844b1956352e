//! Durations as people write them: `1.5`, `90s`, `10m`, `1h30m`, as timeout(1) and sleep(1) accept
//! them.

/// The longest timeout of a wait or a run: a day, in seconds.
const LIMIT_SECONDS: f64 = 86_400.0;
/// The longest time ago, in seconds: a thousand years. A longer one is a mistake.
const AGO_SECONDS: f64 = 86_400.0 * 365_250.0;

/// Parses a timeout into milliseconds: seconds, fractions included, or numbers with units (`250ms`,
/// `90s`, `10m`, `1h30m`, `1d`), at most a day. The result is rounded up, which keeps a very short
/// timeout above zero.
///
/// The error says what is wrong; the caller puts the name of the argument before it.
pub fn parse(text: &str) -> Result<u64, String> {
    let seconds = if text.parse::<f64>().is_ok() { text.parse().ok() } else { with_units(text) };
    let seconds = seconds.ok_or_else(|| "not a duration; expected seconds, or 90s, 10m, 1h30m".to_owned())?;
    if !(0.0..=LIMIT_SECONDS).contains(&seconds) {
        return Err(format!("must be between 0 and {LIMIT_SECONDS} s (one day)"));
    }
    Ok(milliseconds(seconds))
}

/// Parses a time ago into milliseconds. Accepts only numbers with units; `None` for any other text.
pub(crate) fn parse_ago(text: &str) -> Option<u64> {
    with_units(text).filter(|seconds| *seconds <= AGO_SECONDS).map(milliseconds)
}

/// Parses seconds, with at most three decimals, into exact milliseconds; `None` for any other text.
pub(crate) fn parse_seconds(text: &str) -> Option<u64> {
    let (seconds, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(seconds) || !digits(decimals) || decimals.len() > 3 {
        return None;
    }
    let milliseconds: u64 = format!("{decimals:0<3}").parse().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(milliseconds)
}

/// Rounds seconds up to milliseconds. The seconds must be neither negative nor too large.
#[allow(clippy::cast_sign_loss)]
fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1000.0).ceil() as u64
}

/// Parses numbers with units into seconds; `None` for any other text.
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
