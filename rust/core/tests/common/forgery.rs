//! Bytes as an attacker would forge them: changed anywhere, with checksums and digests that fit, so that
//! decoders after these are reached.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::frames::positions;

/// Seconds for which each kind of bytes is forged; without it a fixed number of cases.
const SECONDS: &str = "HOLDFAST_FUZZ_SECONDS";
/// The first seed comes from this variable; without it each run forges the same.
const FIRST: &str = "HOLDFAST_FUZZ_FIRST";
/// The one case to run again.
const SEED: &str = "HOLDFAST_FUZZ_SEED";

const FOOTER: u8 = 4;
const TRAILER: u8 = 5;
const DIRECTORY: u8 = 12;
const BLOCKS: std::ops::RangeInclusive<u8> = 10..=DIRECTORY;
const FRAME_HEADER_BYTES: usize = 20;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let parsed = text.parse();
    Some(parsed.unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

/// Runs a case for so many seeds, or for as long as `HOLDFAST_FUZZ_SECONDS` says. One that panics is
/// named, to be run again by `HOLDFAST_FUZZ_SEED`.
pub fn for_many_seeds(what: &str, cases: u64, case: impl Fn(&mut Rng)) {
    if let Some(seed) = number(SEED) {
        case(&mut Rng(seed));
        return;
    }
    let until = number(SECONDS).map(|seconds| Instant::now() + Duration::from_secs(seconds));
    // Runs that begin a second apart share no seeds.
    let first = number(FIRST).map_or(0, |first| first << 32);
    let mut seed = first;
    while until.map_or(seed < cases, |until| Instant::now() < until) {
        let run = || case(&mut Rng(seed));
        assert!(
            catch_unwind(AssertUnwindSafe(run)).is_ok(),
            "{what}: run it again with {SEED}={seed}"
        );
        seed += 1;
    }
    println!("{what}: {} cases", seed - first);
}

/// SplitMix64 (Steele, Lea and Flood, *Fast Splittable Pseudorandom Number Generators*, 2014).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Small ones, and those at which lengths and offsets overflow.
    pub fn telling_number(&mut self) -> u64 {
        let edges = [0u64, 1 << 7, 1 << 16, 1 << 20, 1 << 31, 1 << 32, 1 << 63, 0];
        let near = edges[self.below(edges.len())];
        near.wrapping_add(self.below(5) as u64).wrapping_sub(2)
    }
}

/// Changes some bytes. Half of the time the length stays.
pub fn change(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..=rng.below(3) {
        let len = bytes.len();
        if len == 0 {
            bytes.extend((0..rng.below(20)).map(|i| i as u8));
            continue;
        }
        let at = rng.below(len);
        match rng.below(12) {
            0..=1 => bytes[at] ^= 1 << rng.below(8),
            2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.below(5)],
            // A varint that continues, or ends early.
            3 => bytes[at] ^= 0x80,
            4..=5 => {
                let number = rng.telling_number().to_le_bytes();
                let room = (len - at).min([1, 2, 4, 8][rng.below(4)]);
                bytes[at..at + room].copy_from_slice(&number[..room]);
            }
            6 => {
                let end = at + rng.below(len - at);
                bytes[at..end].reverse();
            }
            7 => bytes.truncate(at),
            8 => bytes.extend_from_within(at..),
            9 => drop(bytes.remove(at)),
            10 => bytes.insert(at, rng.next() as u8),
            _ => {
                let from = rng.below(len);
                let room = (len - at.max(from)).min(1 + rng.below(40));
                bytes.copy_within(from..from + room, at);
            }
        }
    }
}

/// A frame whose parts can be changed.
#[derive(Clone)]
pub struct ForgedFrame {
    version: u16,
    pub kind: u8,
    codec: u8,
    /// The header's value; `None` for the true one.
    raw_len: Option<u32>,
    body: Vec<u8>,
    is_changed: bool,
    /// Its stored bytes before it was changed.
    stored: Vec<u8>,
    /// Its original offset.
    pub offset: usize,
}

/// The frames of bytes that are only frames. Only the bodies of a footer are still compressed.
pub fn frames_of(bytes: &[u8]) -> Vec<ForgedFrame> {
    let starts: Vec<usize> = positions(bytes).into_iter().map(|(at, _)| at).collect();
    let ends = starts.iter().skip(1).copied().chain([bytes.len()]);
    let frame = |(at, end): (&usize, usize)| {
        let stored = bytes[*at..end].to_vec();
        let body = &stored[FRAME_HEADER_BYTES..];
        let raw_len = u32::from_le_bytes(stored[12..16].try_into().unwrap()) as usize;
        let body = match stored[7] {
            0 => body.to_vec(),
            _ => lz4_flex::block::decompress(body, raw_len).unwrap(),
        };
        ForgedFrame {
            version: u16::from_le_bytes([stored[4], stored[5]]),
            kind: stored[6],
            codec: 0,
            raw_len: None,
            body,
            is_changed: false,
            stored,
            offset: *at,
        }
    };
    starts.iter().zip(ends).map(frame).collect()
}

impl ForgedFrame {
    pub fn change(&mut self, rng: &mut Rng) {
        self.is_changed = true;
        match rng.below(20) {
            0 => self.kind = rng.below(15) as u8,
            1 => self.codec = rng.below(3) as u8,
            2 => self.raw_len = Some(rng.telling_number() as u32),
            3 => self.version = rng.below(4) as u16,
            // A body that is not LZ4, said to be.
            4 => {
                self.codec = 1;
                self.raw_len = Some(rng.telling_number() as u32);
            }
            _ => change(rng, &mut self.body),
        }
    }

    /// With a checksum that fits.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = b"HLDF".to_vec();
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&[self.kind, self.codec]);
        let stored_len = self.body.len() as u32;
        out.extend_from_slice(&stored_len.to_le_bytes());
        out.extend_from_slice(&self.raw_len.unwrap_or(stored_len).to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&out), &self.body);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&self.body);
        out
    }
}

/// Digests that changed, as bytes: what was, and what is.
#[derive(Default)]
pub struct Swaps(Vec<(Vec<u8>, Vec<u8>)>);

impl Swaps {
    fn add(&mut self, was: Vec<u8>, is: Vec<u8>) {
        if was != is {
            self.0.push((was, is));
        }
    }

    /// Replaces old digests by new ones.
    pub fn apply(&self, bytes: &mut [u8]) {
        for (was, is) in &self.0 {
            for at in 0..(bytes.len() + 1).saturating_sub(was.len()) {
                if bytes[at..].starts_with(was) {
                    bytes[at..at + is.len()].copy_from_slice(is);
                }
            }
        }
    }
}

/// Frames as bytes, with the digests of changed blocks and segments in everything after them. Segments
/// are given by their first and last offset in the original.
pub fn refit(frames: &[ForgedFrame], segments: &[(usize, usize)], swaps: &mut Swaps) -> Vec<u8> {
    let mut out = Vec::new();
    let mut head = (Vec::new(), Vec::new());
    let mut segment = (Vec::new(), Vec::new());
    let mut footer_bytes = 0u64;
    for frame in frames {
        let mut fitted = frame.clone();
        swaps.apply(&mut fitted.body);
        if frame.kind == TRAILER && !frame.is_changed {
            fitted.body[..8].copy_from_slice(&footer_bytes.to_le_bytes());
        }
        let (was, is) = (frame.stored.clone(), fitted.to_bytes());
        out.extend_from_slice(&is);
        if frame.kind == FOOTER {
            footer_bytes += is.len() as u64;
        }
        if segments.iter().any(|(first, _)| *first == frame.offset) {
            head = (was.clone(), is.clone());
            segment = Default::default();
        }
        if BLOCKS.contains(&frame.kind) {
            let of = |bytes: &[u8]| xxh3_64(bytes).to_le_bytes().to_vec();
            swaps.add(of(&was), of(&is));
        }
        if frame.kind == DIRECTORY {
            let root = |head: &[u8], directory: &[u8]| {
                xxh3_128(&[head, directory].concat()).to_le_bytes().to_vec()
            };
            swaps.add(root(&head.0, &was), root(&head.1, &is));
        }
        let end = frame.offset + was.len();
        segment.0.extend_from_slice(&was);
        segment.1.extend_from_slice(&is);
        if segments.iter().any(|(_, last)| *last == end) {
            let of = |bytes: &[u8]| xxh3_128(bytes).to_le_bytes().to_vec();
            swaps.add(of(&segment.0), of(&segment.1));
        }
    }
    out
}

impl ForgedFrame {
    /// Sets some bytes of the body.
    pub fn set(&mut self, at: usize, bytes: &[u8]) {
        self.body[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Replaces the last such bytes of the body, by as many.
    pub fn replace_last(&mut self, was: &[u8], is: &[u8]) -> Option<()> {
        let at = self
            .body
            .windows(was.len())
            .rposition(|found| found == was)?;
        self.body[at..at + is.len()].copy_from_slice(is);
        Some(())
    }
}

/// The body of the first frame of a type, if it is not compressed.
pub fn body_of(bytes: &[u8], kind: u8) -> Option<Vec<u8>> {
    let (at, _) = positions(bytes).into_iter().find(|(_, k)| *k == kind)?;
    let stored = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
    let body = &bytes[at + FRAME_HEADER_BYTES..][..stored];
    (bytes[at + 7] == 0).then(|| body.to_vec())
}

/// An id of a commit, changed, with a checksum that fits.
pub fn change_id(rng: &mut Rng, text: &str) -> String {
    let (prefix, encoded) = text.split_at(4);
    let mut bytes = URL_SAFE_NO_PAD.decode(encoded).unwrap();
    bytes.truncate(bytes.len() - 3);
    change(rng, &mut bytes);
    let crc = crc32c::crc32c(&bytes).to_le_bytes();
    bytes.extend_from_slice(&crc[..3]);
    let prefix = if rng.one_in(4) {
        ["hf1-", "hf2-", "hf3-", "hfv1-"][rng.below(4)]
    } else {
        prefix
    };
    format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bytes))
}
