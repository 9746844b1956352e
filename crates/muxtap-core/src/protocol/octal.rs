//! The escaping of pane output on the wire (F20): bytes below 0x20 and the backslash are sent as
//! `\ooo`, always three octal digits; all others, 0x7f to 0xff included, are sent unchanged.
//!
//! Both decoders move runs between backslashes, not bytes, and give the same result: a backslash
//! that begins no such escape (tmux never sends one) is literal.

use memchr::memchr;

/// The length of an escape: a backslash and three digits.
const ESCAPE: usize = 4;

/// Returns the byte that an escape at the start of `input` represents.
#[inline]
fn escape(input: &[u8]) -> Option<u8> {
    let [b'\\', high @ b'0'..=b'3', mid @ b'0'..=b'7', low @ b'0'..=b'7', ..] = input else { return None };
    Some((high & 3) << 6 | (mid & 7) << 3 | (low & 7))
}

/// Appends the decoded form of `encoded` to `out`.
pub fn decode_into(encoded: &[u8], out: &mut Vec<u8>) {
    out.reserve(encoded.len());
    let mut left = encoded;
    while let Some(at) = memchr(b'\\', left) {
        let (run, from) = left.split_at(at);
        out.extend_from_slice(run);
        let (byte, used) = escape(from).map_or((b'\\', 1), |byte| (byte, ESCAPE));
        out.push(byte);
        left = from.get(used..).unwrap_or_default();
    }
    out.extend_from_slice(left);
}

/// Decodes `buffer` in place and returns the length of the result, at most `buffer.len()`. The
/// bytes beyond that length are unspecified.
#[must_use]
pub fn decode_in_place(buffer: &mut [u8]) -> usize {
    let Some(first) = memchr(b'\\', buffer) else { return buffer.len() };
    let mut read = first;
    let mut write = first;
    while let Some(from) = buffer.get(read..).filter(|from| !from.is_empty()) {
        if let Some(byte) = escape(from) {
            // `write` never overtakes `read`, so the slot exists.
            if let Some(slot) = buffer.get_mut(write) {
                *slot = byte;
            }
            read += ESCAPE;
            write += 1;
            continue;
        }
        // A run: at least one byte (a backslash without an escape), then up to the next backslash.
        let run = from.get(1..).and_then(|tail| memchr(b'\\', tail)).map_or(from.len(), |at| at + 1);
        buffer.copy_within(read..read + run, write);
        read += run;
        write += run;
    }
    write
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The oracle of both decoders: one byte at a time.
    fn naive(encoded: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut at = 0;
        while at < encoded.len() {
            let digit = |offset: usize, max: u8| {
                encoded.get(at + offset).filter(|d| (b'0'..=max).contains(d)).map(|d| u32::from(d - b'0'))
            };
            match (encoded[at], digit(1, b'3'), digit(2, b'7'), digit(3, b'7')) {
                (b'\\', Some(a), Some(b), Some(c)) => {
                    out.push(u8::try_from(a * 64 + b * 8 + c).unwrap());
                    at += 4;
                }
                (byte, ..) => {
                    out.push(byte);
                    at += 1;
                }
            }
        }
        out
    }

    fn both(encoded: &[u8]) -> Vec<u8> {
        let mut copied = b"kept ".to_vec();
        decode_into(encoded, &mut copied);
        let mut in_place = encoded.to_vec();
        let length = decode_in_place(&mut in_place);
        in_place.truncate(length);
        assert_eq!(copied.strip_prefix(b"kept ").unwrap(), in_place);
        in_place
    }

    #[test]
    fn escapes_become_bytes_and_the_rest_stays() {
        assert_eq!(both(b"a\\015\\012b"), b"a\r\nb");
        assert_eq!(both(b"\\134\\033[0m"), b"\\\x1b[0m");
        assert_eq!(both(b"\xff\x7f\xc3\xa9"), b"\xff\x7f\xc3\xa9");
        assert_eq!(both(b""), b"");
    }

    #[test]
    fn every_byte_that_tmux_escapes_is_decoded() {
        for byte in (0..0x20).chain([b'\\']) {
            assert_eq!(both(format!("x\\{byte:03o}y").as_bytes()), [b'x', byte, b'y']);
        }
    }

    #[test]
    fn a_malformed_escape_is_kept_unchanged() {
        for kept in [&b"\\"[..], b"\\\\", b"\\01", b"\\018", b"\\400", b"\\n", b"ab\\9", b"\\\\\\"] {
            assert_eq!(both(kept), kept);
        }
        assert_eq!(both(b"\\\\012"), b"\\\n");
        assert_eq!(both(b"\\0\\012"), b"\\0\n");
    }

    proptest! {
        #[test]
        fn decoding_equals_the_byte_at_a_time_oracle(encoded in "[\\\\0-8a]{0,64}") {
            prop_assert_eq!(both(encoded.as_bytes()), naive(encoded.as_bytes()));
        }

        #[test]
        fn bytes_encoded_as_tmux_does_decode_to_the_original(plain in proptest::collection::vec(any::<u8>(), 0..256)) {
            let mut encoded = Vec::new();
            for &byte in &plain {
                if byte < 0x20 || byte == b'\\' {
                    encoded.extend_from_slice(format!("\\{byte:03o}").as_bytes());
                } else {
                    encoded.push(byte);
                }
            }
            prop_assert_eq!(both(&encoded), plain);
        }
    }
}
