use proptest::prelude::*;

use super::*;
use crate::{GapReason, stream::ring::NullSink};

/// An operation on a ring.
#[derive(Clone, Debug)]
enum Step {
    Push(usize, u8),
    GiveUp,
    Restart,
    Gap,
    Hide(u64),
    Trim(usize),
    Limit(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..40_000_usize, any::<u8>()).prop_map(|(length, byte)| Step::Push(length, byte)),
        1 => Just(Step::Push(3, b'\x1b')),
        1 => Just(Step::GiveUp),
        1 => Just(Step::Restart),
        1 => Just(Step::Gap),
        1 => (0..5000_u64).prop_map(Step::Hide),
        1 => (0..100_000_usize).prop_map(Step::Trim),
        1 => (20_000..200_000_usize).prop_map(Step::Limit),
    ];
    proptest::collection::vec(step, 0..12)
}

fn carry_out(ring: &mut Ring, steps: &[Step]) {
    for step in steps {
        match step {
            // The second byte opens a string.
            Step::Push(length, byte) => {
                ring.push(&[&b"\x1b]0;"[..], &vec![*byte; *length]].concat(), &mut NullSink);
            }
            Step::GiveUp => drop(ring.give_up()),
            Step::Restart => ring.restart(),
            Step::Gap => ring.push_gap(Gap { reason: GapReason::Paused, bytes: None }),
            Step::Hide(bytes) => ring.hide(ring.end().saturating_sub(*bytes).max(ring.start()), ring.end()),
            Step::Trim(bytes) => ring.trim_to(*bytes),
            Step::Limit(bytes) => ring.set_limit(*bytes),
        }
    }
}

fn stored(value: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(value).unwrap()
}

proptest! {
    /// T40.
    #[test]
    fn a_ring_that_was_copied_before_is_restored_whole(before in steps(), after in steps(), most in 1..100_000_usize) {
        let mut ring = Ring::new(100_000);
        carry_out(&mut ring, &before);
        let (mut copied, mut sealed) = (Copied::default(), Sealed::default());
        let mut from = 0;
        while let Some((some, next)) = ring.copy_sealed(from, ring.end(), most, &mut copied) {
            prop_assert!(next > from);
            from = next;
            sealed.add(postcard::from_bytes(&stored(&some)).unwrap());
        }
        // The copy itself.
        let mut first: Ring = postcard::from_bytes(&stored(&ring.without(&copied))).unwrap();
        first.complete(&mut sealed).unwrap();
        prop_assert_eq!(stored(&first), stored(&ring));
        // The later state.
        carry_out(&mut ring, &after);
        let mut later: Ring = postcard::from_bytes(&stored(&ring.without(&copied))).unwrap();
        later.complete(&mut first.take_sealed()).unwrap();
        prop_assert_eq!(stored(&later), stored(&ring));
    }
}

#[test]
fn a_ring_without_a_copied_segment_is_rejected() {
    let mut ring = Ring::new(1 << 20);
    ring.push(&vec![b'x'; 100_000], &mut NullSink);
    let mut copied = Copied::default();
    let (some, _) = ring.copy_sealed(0, ring.end(), usize::MAX, &mut copied).unwrap();
    let bytes = stored(&ring.without(&copied));
    assert!(bytes.len() < 20_000, "{}", bytes.len());
    let rejected = |sealed: &mut Sealed| postcard::from_bytes::<Ring>(&bytes).unwrap().complete(sealed).unwrap_err();
    assert!(rejected(&mut Sealed::default()).contains("missing"));
    let mut short = Sealed::default();
    short.add(some);
    short.0.values_mut().next().unwrap().pop();
    assert!(rejected(&mut short).contains("fit"));
    // Segments that were not copied are stored whole.
    let mut whole: Ring = postcard::from_bytes(&stored(&ring.without(&Copied::default()))).unwrap();
    whole.complete(&mut Sealed::default()).unwrap();
    assert_eq!(stored(&whole), stored(&ring));
}

/// T40.
#[test]
fn a_damaged_ring_is_rejected() {
    let mut ring = Ring::new(1 << 20);
    ring.push(&vec![b'x'; 100_000], &mut NullSink);
    let whole = || postcard::from_bytes::<Ring>(&stored(&ring)).unwrap();
    // A segment without bytes before the others, also in the copy: a copy of it would have no end.
    let mut empty = whole();
    let first = empty.segments.front().unwrap();
    let first = Segment { bytes: Vec::new(), ..*first };
    let mut sealed: Sealed = [(first.start, Vec::new())].into_iter().collect();
    empty.segments.push_front(first);
    assert!(empty.complete(&mut sealed).unwrap_err().contains("fit"));
    assert!(empty.copy_sealed(0, 1, 0, &mut Copied::default()).is_none());
    // A stream that would end behind the last offset.
    let mut endless = whole();
    endless.segments.drain(..endless.segments.len() - 1);
    let last = endless.segments.back_mut().unwrap();
    (last.start, last.bytes) = (u64::MAX - 1, vec![b'x'; 5]);
    (endless.end, endless.len) = (u64::MAX, 1);
    assert!(endless.complete(&mut Sealed::default()).unwrap_err().contains("longer"));
}
