//! How the parts of a pane are stored for another process that continues it.
//!
//! Types of this crate derive serde's traits for a compact binary format that names no fields. What
//! follows from other fields is not stored.

/// Stores bytes as one string of bytes, not as a sequence of numbers.
pub mod bytes {
    use std::fmt;

    use serde::{Deserializer, Serializer, de};

    /// Stores bytes.
    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    /// Reads stored bytes.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        deserializer.deserialize_byte_buf(Bytes)
    }

    struct Bytes;

    impl de::Visitor<'_> for Bytes {
        type Value = Vec<u8>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("bytes")
        }

        fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
            Ok(bytes.to_vec())
        }

        fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
            Ok(bytes)
        }
    }
}

/// Stores a gap that may be there.
pub mod gap {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use crate::{Gap, GapReason};

    /// Stores a gap.
    pub fn serialize<S: Serializer>(gap: &Option<Gap>, serializer: S) -> Result<S::Ok, S::Error> {
        gap.map(|gap| (gap.reason, gap.bytes)).serialize(serializer)
    }

    /// Reads a stored gap.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Gap>, D::Error> {
        let gap = Option::<(GapReason, Option<u64>)>::deserialize(deserializer)?;
        Ok(gap.map(|(reason, bytes)| Gap::new(reason, bytes)))
    }
}

/// Stores marked gaps. [`Gap`](crate::Gap)'s own form is for JSON: it omits a field that is empty.
pub(crate) mod gaps {
    use std::collections::VecDeque;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use crate::{Gap, GapReason};

    pub(crate) fn serialize<S: Serializer>(gaps: &VecDeque<(u64, Gap)>, serializer: S) -> Result<S::Ok, S::Error> {
        let gaps: Vec<_> = gaps.iter().map(|(offset, gap)| (offset, gap.reason, gap.bytes)).collect();
        gaps.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<VecDeque<(u64, Gap)>, D::Error> {
        let gaps = Vec::<(u64, GapReason, Option<u64>)>::deserialize(deserializer)?;
        Ok(gaps.into_iter().map(|(offset, reason, bytes)| (offset, Gap::new(reason, bytes))).collect())
    }
}
