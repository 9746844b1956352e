//! Any line gives a value; a version and a guard parse or do not.
#![no_main]

use libfuzzer_sys::fuzz_target;
use muxtap_core::protocol::{
    guard::Guard,
    line::{Line, parse_line},
    notification::Notification,
    version::Version,
};

fuzz_target!(|line: &[u8]| {
    match parse_line(line) {
        // An unknown line is kept whole.
        Line::Text(text) => assert_eq!(text, line),
        Line::Notification(Notification::Unknown(text)) => assert_eq!(text, line),
        Line::Output { data, .. } | Line::ExtendedOutput { data, .. } => assert!(line.ends_with(data)),
        Line::Begin(guard) | Line::End(guard) | Line::Error(guard) => {
            assert_eq!(Guard::parse(guard.to_string().as_bytes()), Some(guard));
        }
        Line::Notification(_) => {}
    }
    if let Ok(version) = Version::parse(line)
        && version != Version::UNKNOWN
    {
        assert_eq!(Version::parse(version.to_string().as_bytes()), Ok(version));
    }
});
