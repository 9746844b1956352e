//! Both decoders equal the reference, which decodes one byte at a time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use muxtap_core::protocol::octal::{decode_in_place, decode_into};

fn oracle(encoded: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < encoded.len() {
        let digits = encoded.get(at + 1..at + 4).unwrap_or_default();
        let value = digits.iter().try_fold(0u32, |value, digit| match digit {
            b'0'..=b'7' => Some(value * 8 + u32::from(digit - b'0')),
            _ => None,
        });
        match value {
            Some(value @ 0..=255) if encoded[at] == b'\\' && digits.len() == 3 => {
                out.push(value as u8);
                at += 4;
            }
            _ => {
                out.push(encoded[at]);
                at += 1;
            }
        }
    }
    out
}

fuzz_target!(|encoded: &[u8]| {
    let expected = oracle(encoded);
    let mut appended = b"kept".to_vec();
    decode_into(encoded, &mut appended);
    assert_eq!(appended.strip_prefix(b"kept"), Some(&expected[..]));
    let mut in_place = encoded.to_vec();
    let length = decode_in_place(&mut in_place);
    assert_eq!(in_place[..length], expected[..]);
});
