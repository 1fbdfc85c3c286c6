//! Paths as text and back, for JSON.
//!
//! A path is bytes; JSON holds text. What is UTF-8 stands there as it is, line breaks included. Each other byte becomes
//! U+FFFD (`�`) and two upper-case hexadecimal digits: the byte 0xFF is `�FF`. So that the way back is exact, a `�` that
//! a path itself has before two such digits is written as its own three bytes, `�EF�BF�BD`.
//!
//! Invariants
//! 1. `from_text(to_text(path))` is `path`, for every path.
//! 2. A path that is UTF-8, and has no `�` before two such digits, is its own text.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Stands before the digits of a byte.
const MARK: char = char::REPLACEMENT_CHARACTER;

/// A path as text.
#[must_use]
pub fn to_text(path: &Path) -> String {
    bytes_to_text(path.as_os_str().as_bytes())
}

/// The path that a text of [`to_text`] stands for. A text that is not one stands for itself.
#[must_use]
pub fn from_text(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (one, after) = rest.split_at(c.len_utf8());
        let byte = after.get(..2).filter(|_| c == MARK).and_then(escaped_byte);
        bytes.extend_from_slice(byte.as_ref().map_or(one.as_bytes(), std::slice::from_ref));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn escaped_byte(digits: &str) -> Option<u8> {
    let upper = |b: u8| matches!(b, b'0'..=b'9' | b'A'..=b'F');
    digits.bytes().all(upper).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// [`to_text`] for bytes that are no path.
pub(super) fn bytes_to_text(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    let mut rest = bytes;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            rest = &rest[c.len_utf8()..];
            let looks_escaped = c == MARK && rest.get(..2).and_then(|two| std::str::from_utf8(two).ok()).is_some();
            if looks_escaped && escaped_byte(&String::from_utf8_lossy(&rest[..2])).is_some() {
                let mut own = [0; 4];
                c.encode_utf8(&mut own).bytes().for_each(|byte| push_escaped(&mut out, byte));
            } else {
                out.push(c);
            }
        }
        for byte in chunk.invalid() {
            push_escaped(&mut out, *byte);
            rest = &rest[1..];
        }
    }
    out
}

fn push_escaped(out: &mut String, byte: u8) {
    out.push(MARK);
    out.push_str(&format!("{byte:02X}"));
}

/// A text that stands for these bytes: other bytes, another text.
pub(super) fn digest(bytes: &[u8]) -> String {
    hex(&<sha2::Sha256 as sha2::Digest>::digest(bytes))
}

/// Bytes in lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_text_stays_as_it_is_invariant_2() {
        for plain in ["/a b/é/.git", "line\nbreak", "my%20dir/%FF", "100%", "\u{fffd}", "\u{fffd}G0", "\u{fffd}ff"] {
            assert_eq!(to_text(Path::new(plain)), plain);
            assert_eq!(from_text(plain), Path::new(plain));
        }
        let other = Path::new(OsStr::from_bytes(b"/a\xff/\xc3"));
        assert_eq!(to_text(other), "/a\u{fffd}FF/\u{fffd}C3");
        assert_eq!(to_text(Path::new("\u{fffd}FF")), "\u{fffd}EF\u{fffd}BF\u{fffd}BDFF");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_path_comes_back_invariant_1(pieces in proptest::collection::vec(prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..4),
            proptest::sample::select(vec!["\u{fffd}", "F", "A0", "/", "%FF", "é", "\n"]).prop_map(|s| s.as_bytes().to_vec()),
            proptest::sample::select(vec![b"\xef".to_vec(), b"\xbf\xbd".to_vec(), b"\xff".to_vec()]),
        ], 0..8)) {
            let bytes = pieces.concat();
            let path = Path::new(OsStr::from_bytes(&bytes));
            let text = to_text(path);
            prop_assert_eq!(from_text(&text).into_os_string().into_vec(), bytes, "{}", text);
        }
    }
}
