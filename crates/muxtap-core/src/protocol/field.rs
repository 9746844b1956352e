//! The fields of a line, as nom parsers over bytes. Lines are framed before they are parsed here,
//! so all input is complete.

use super::ids::{PaneId, SessionId, WindowId};
use bytes::Bytes;
use nom::{
    IResult, Parser,
    bytes::complete::{tag, take_while1},
    character::complete::digit1,
    combinator::{map_opt, opt, rest},
    sequence::preceded,
};

type Parsed<'a, T> = IResult<&'a [u8], T>;

/// Parses a decimal number without a sign.
pub(super) fn number<T: std::str::FromStr>(input: &[u8]) -> Parsed<'_, T> {
    map_opt(digit1, |digits| std::str::from_utf8(digits).ok()?.parse().ok()).parse(input)
}

/// Parses `%3`.
pub(super) fn pane(input: &[u8]) -> Parsed<'_, PaneId> {
    preceded(tag("%"), number).map(PaneId).parse(input)
}

/// Parses `@1`.
pub(super) fn window(input: &[u8]) -> Parsed<'_, WindowId> {
    preceded(tag("@"), number).map(WindowId).parse(input)
}

/// Parses `$0`.
pub(super) fn session(input: &[u8]) -> Parsed<'_, SessionId> {
    preceded(tag("$"), number).map(SessionId).parse(input)
}

/// Parses a field: bytes up to a space.
pub(super) fn word(input: &[u8]) -> Parsed<'_, Bytes> {
    take_while1(|byte| byte != b' ').map(Bytes::copy_from_slice).parse(input)
}

/// Parses a name that is the last field: everything after one space; empty without the space.
pub(super) fn name(input: &[u8]) -> Parsed<'_, Bytes> {
    let (left, name) = opt(preceded(tag(" "), rest)).parse(input)?;
    Ok((left, Bytes::copy_from_slice(name.unwrap_or_default())))
}

/// Parses the boundary after a field that may be the last one: the end, or a space and fields that
/// this version does not know.
pub(super) fn boundary(input: &[u8]) -> Parsed<'_, ()> {
    match input.first() {
        None | Some(b' ') => Ok((&[], ())),
        Some(_) => Err(nom::Err::Error(nom::error::Error::new(input, nom::error::ErrorKind::Eof))),
    }
}

/// Returns the bytes after the first `" : "`, which ends the fields that later versions may extend
/// (F20, F22).
pub(super) fn after_colon(input: &[u8]) -> Option<&[u8]> {
    let at = memchr::memmem::find(input, b" : ")?;
    input.get(at.checked_add(3)?..)
}
