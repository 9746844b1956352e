//! Layouts in both directions: text that parses as a layout is written so that it parses as the
//! same layout.
#![no_main]

use libfuzzer_sys::fuzz_target;
use muxtap_core::protocol::layout::{Layout, checksum};

fuzz_target!(|body: &[u8]| {
    let _ = Layout::parse(body);
    // A fuzzer does not guess checksums.
    let mut text = format!("{:04x},", checksum(body)).into_bytes();
    text.extend_from_slice(body);
    if let Ok(layout) = Layout::parse(&text) {
        assert_eq!(Layout::parse(layout.to_string().as_bytes()).as_ref(), Ok(&layout));
        assert_eq!(layout.panes().count(), layout.leaves().count());
    }
});
