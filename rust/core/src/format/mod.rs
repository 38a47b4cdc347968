//! Bytes on disk; `FORMAT.md` beside this crate is the text.
