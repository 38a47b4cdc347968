//! Runs for readers that look up single keys: index and filters fit the entries.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;

use proptest::prelude::*;
use xorf::{BinaryFuse8, BinaryFuse8Ref, DmaSerializable, Filter, FilterRef};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::*;
use crate::error::ErrorKind;
use crate::format::entry::parse_entry;
use crate::format::{NewSegment, SegmentKind};
use crate::ids::{CheckpointId, FileId, Owner, SegmentRef, Term};
use crate::storage::{ReadFile, check_range};

type Entry = (Vec<u8>, Option<Vec<u8>>);

fn encoder(compression: Compression) -> RunEncoder {
    let owner = Owner::new("query", "0", "0", "default");
    let new = NewSegment {
        owner: &owner,
        created: CheckpointId(1),
        kind: SegmentKind::Run,
        lineage: &[],
        replaced: None,
        entries: 0,
        tables: &[],
        runs: 0,
    };
    RunEncoder::new(&new, compression).unwrap()
}

fn encode(entries: &[Entry], compression: Compression) -> (Vec<u8>, u128) {
    encode_with(encoder(compression), entries)
}

fn encode_with(mut encoder: RunEncoder, entries: &[Entry]) -> (Vec<u8>, u128) {
    let mut bytes = Vec::new();
    // Keys come in two parts, the first of one length in all of them.
    let shortest = entries.iter().map(|(key, _)| key.len()).min().unwrap_or(0);
    for (number, (key, value)) in entries.iter().enumerate() {
        let (prefix, key) = key.split_at(shortest.min(2));
        encoder.push(prefix, key, value.as_deref()).unwrap();
        if number % 3 == 0 {
            bytes.extend_from_slice(encoder.frames());
            encoder.forget_frames();
        }
    }
    let digest = encoder.finish().unwrap();
    bytes.extend_from_slice(encoder.frames());
    assert_eq!(encoder.stored_bytes(), bytes.len() as u64);
    (bytes, digest)
}

/// The block at an offset: its body and its stored length.
fn block(bytes: &[u8], offset: u64, kind: FrameKind) -> (Vec<u8>, u64) {
    let mut rest = &bytes[offset as usize..];
    let mut body = Vec::new();
    let mut stored = 0;
    loop {
        let frame = frame::parse(rest).unwrap().expect(kind).unwrap();
        frame.decode_into(&mut body).unwrap();
        stored += frame.stored_len() as u64;
        rest = &rest[frame.stored_len()..];
        if frame.raw_len < MAX_BODY_BYTES {
            return (body, stored);
        }
    }
}

fn slice(bytes: &[u8], offset: u64, len: u64) -> &[u8] {
    &bytes[offset as usize..(offset + len) as usize]
}

/// A filter as `xorf` takes it.
fn descriptor_of(filter: &FilterMessage) -> Vec<u8> {
    let mut descriptor = filter.seed.to_le_bytes().to_vec();
    for number in [
        filter.segment_length,
        filter.segment_length - 1,
        filter.segment_count_length,
    ] {
        descriptor.extend(number.to_le_bytes());
    }
    assert_eq!(descriptor.len(), BinaryFuse8::DESCRIPTOR_LEN);
    descriptor
}

/// Reads a run as one that looks up single keys does, from its end, and checks all that such a reader
/// relies on. Returns its entries and the number of its groups.
fn read_from_the_end(bytes: &[u8], digest: u128) -> (Vec<Entry>, usize) {
    read_with(bytes, digest, false)
}

/// `filtered` says that it was to have filters however small it is.
fn read_with(bytes: &[u8], digest: u128, filtered: bool) -> (Vec<Entry>, usize) {
    let trailer_at = bytes.len() - TRAILER_BYTES;
    let totals = Totals::parse(&bytes[trailer_at..]).unwrap();
    let directory_at = trailer_at as u64 - totals.directory_bytes;
    let head_bytes = frame::parse(bytes).unwrap().stored_len();
    let tail = slice(bytes, directory_at, totals.directory_bytes);
    let root = xxh3_128(&[&bytes[..head_bytes], tail].concat());
    assert_eq!(totals.root, root);
    assert_eq!(totals.stored_bytes, bytes.len() as u64);
    assert_eq!(xxh3_128(bytes), digest);
    let (body, stored) = block(bytes, directory_at, FrameKind::Directory);
    assert_eq!(stored, totals.directory_bytes);
    let directory = DirectoryMessage::decode(body.as_slice()).unwrap();
    assert_eq!(directory.groups.len() as u64, totals.groups);
    let mut entries: Vec<Entry> = Vec::new();
    for group in &directory.groups {
        let stored = slice(bytes, group.offset, group.stored_bytes);
        assert_eq!(xxh3_64(stored), group.hash);
        let (body, _) = block(bytes, group.offset, FrameKind::Group);
        let message = GroupMessage::decode(body.as_slice()).unwrap();
        assert_eq!(message.blocks[0].separator, group.separator);
        // Runs that are read whole have none.
        let small = directory.groups.len() == 1 && totals.payload_bytes <= 256 << 10;
        assert_eq!(message.filter.is_none(), small && !filtered);
        let descriptor = message.filter.as_ref().map(descriptor_of);
        let fingerprints = message.filter.map(|filter| filter.fingerprints);
        let filter = descriptor.as_ref().zip(fingerprints.as_ref());
        let filter = filter.map(|(d, f)| BinaryFuse8Ref::from_dma(d, f));
        let mut offset = group.entries_offset;
        for known in message.blocks {
            let stored = slice(bytes, offset, known.stored_bytes);
            assert_eq!(xxh3_64(stored), known.hash);
            let (body, _) = block(bytes, offset, FrameKind::Entries);
            offset += known.stored_bytes;
            let mut at = 0;
            assert!(entries.last().is_none_or(|last| last.0 < known.separator));
            let mut in_block = 0;
            while at < body.len() {
                let entry = parse_entry(&body, at).unwrap();
                at = entry.end;
                let key = body[entry.key].to_vec();
                assert!(known.separator <= key);
                assert!(filter.as_ref().is_none_or(|f| f.contains(&xxh3_64(&key))));
                entries.push((key, entry.value.map(|value| body[value].to_vec())));
                in_block += 1;
            }
            assert!(in_block == 1 || body.len() <= 16 << 10, "{}", body.len());
        }
    }
    assert_eq!(entries.len() as u64, totals.entries);
    let hashes: Vec<u64> = entries.iter().map(|(key, _)| xxh3_64(key)).collect();
    if let Some(filter) = filter::filter_of(hashes) {
        let filter = filter::KeyFilter::new(filter).unwrap();
        assert!(entries.iter().all(|(key, _)| filter.may_have(key)));
    } else {
        assert!(entries.is_empty());
    }
    (entries, directory.groups.len())
}

fn walk(bytes: &[u8]) -> Result<(u128, Totals)> {
    let head = frame::parse(bytes)?.expect(FrameKind::Head)?.stored_len();
    let mut walk = RunWalk::new(&bytes[..head]);
    let mut rest = &bytes[head..];
    loop {
        let frame = frame::parse(rest)?;
        let event = walk.step(&rest[..frame.stored_len()], &frame)?;
        rest = &rest[frame.stored_len()..];
        if let Event::End { digest, totals } = event {
            return Ok((digest, totals));
        }
    }
}

/// Bytes as an open file.
#[derive(Debug)]
struct InMemory(Vec<u8>);

impl ReadFile for InMemory {
    fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        check_range("bytes", self.size_bytes(), offset, len)?;
        Ok(slice(&self.0, offset, len).to_vec())
    }
}

/// A reader of single keys, of a run somewhere in a file.
fn reader(bytes: &[u8]) -> Result<RunReader> {
    let reference = SegmentRef {
        file: FileId {
            term: Term(1),
            seq: 1,
        },
        offset: 7,
        len: bytes.len() as u64,
        digest: 0,
    };
    let file = Arc::new(InMemory([b"before ", bytes, b" behind"].concat()));
    let owner = Owner::new("query", "0", "0", "default");
    RunReader::read(file, "memory".to_owned(), reference, &owner)
}

/// The entry of a key in a run.
fn look_up(run: &RunReader, key: &[u8]) -> Result<Option<Option<Vec<u8>>>> {
    let Some(number) = run.group_of(key) else {
        return Ok(None);
    };
    let group = run.group(number)?;
    let Some(block) = group.block_of(key) else {
        return Ok(None);
    };
    let body = run.block(&group.blocks[block])?;
    let mut at = 0;
    while let Some(entry) = parse_entry(&body, at) {
        if &body[entry.key.clone()] == key {
            return Ok(Some(entry.value.map(|value| body[value].to_vec())));
        }
        at = entry.end;
    }
    Ok(None)
}

/// All entries by way of groups and blocks.
fn read_by_blocks(bytes: &[u8]) -> Result<Vec<Entry>> {
    let run = reader(bytes)?;
    let mut entries = Vec::new();
    for number in 0..run.groups() {
        let group = run.group(number)?;
        for block in &group.blocks {
            let body = run.block(block)?;
            let mut at = 0;
            while let Some(entry) = parse_entry(&body, at) {
                let value = entry.value.map(|value| body[value].to_vec());
                entries.push((body[entry.key].to_vec(), value));
                at = entry.end;
            }
        }
    }
    Ok(entries)
}

fn any_entries() -> impl Strategy<Value = Vec<Entry>> {
    let key = prop::collection::vec(0u8..4, 0..40);
    let value = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..60).prop_map(Some),
        1 => Just(None),
        1 => (0usize..40_000).prop_map(|len| Some(vec![7; len])),
    ];
    prop::collection::btree_map(key, value, 0..60).prop_map(|map| map.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_run_reads_back_from_both_ends(entries in any_entries(), lz4 in any::<bool>()) {
        let compression = if lz4 { Compression::Lz4 } else { Compression::None };
        let (bytes, digest) = encode(&entries, compression);
        let (found, _) = read_from_the_end(&bytes, digest);
        prop_assert_eq!(&found, &entries);
        let (walked, totals) = walk(&bytes).unwrap();
        prop_assert_eq!(walked, digest);
        prop_assert_eq!(totals.entries, entries.len() as u64);
    }

    #[test]
    fn single_keys_are_found_and_others_are_not(
        entries in any_entries(),
        others in prop::collection::vec(prop::collection::vec(0u8..5, 0..40), 0..20),
        filtered in any::<bool>(),
    ) {
        let mut encoder = encoder(Compression::Lz4);
        if filtered {
            encoder.filter_always();
        }
        let (bytes, digest) = encode_with(encoder, &entries);
        read_with(&bytes, digest, filtered);
        let run = reader(&bytes).unwrap();
        prop_assert_eq!(run.head.entries, entries.len() as u64);
        for (key, value) in &entries {
            prop_assert_eq!(look_up(&run, key).unwrap(), Some(value.clone()));
        }
        for key in others {
            let known = entries.iter().find(|(known, _)| *known == key);
            prop_assert_eq!(look_up(&run, &key).unwrap(), known.map(|(_, value)| value.clone()));
        }
    }

    /// Checksums that fit do not make a frame one of this run: blocks, groups, directory and trailer of
    /// another run, moved, left out or doubled, are refused.
    #[test]
    fn frames_in_another_order_are_refused(
        entries in any_entries(),
        moves in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..3u8), 1..4),
    ) {
        let (bytes, digest) = encode(&entries, Compression::None);
        let mut frames = Vec::new();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (frame, behind) = rest.split_at(frame::parse(rest).unwrap().stored_len());
            frames.push(frame);
            rest = behind;
        }
        for (a, b, how) in moves {
            let (a, b) = (a.index(frames.len()), b.index(frames.len()));
            match how {
                0 => frames.swap(a, b),
                1 => frames.insert(a, frames[b]),
                _ if frames.len() > 1 => { frames.remove(a); }
                _ => {}
            }
        }
        let moved = frames.concat();
        match read_by_blocks(&moved) {
            Ok(found) => prop_assert_eq!(&found, &entries),
            Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Corrupt),
        }
        match walk(&moved) {
            Ok((found, _)) => prop_assert!(found != digest || moved.starts_with(&bytes)),
            Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Corrupt),
        }
    }

    /// Bodies of any content, in frames that verify.
    #[test]
    fn bodies_of_any_content_never_panic(
        entries in any_entries(),
        at in any::<prop::sample::Index>(),
        body in prop::collection::vec(any::<u8>(), 0..200),
        mutations in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let (bytes, digest) = encode(&entries, Compression::None);
        let mut out = Vec::new();
        let mut rest = bytes.as_slice();
        let mut number = 0;
        let changed = at.index(6);
        while !rest.is_empty() {
            let frame = frame::parse(rest).unwrap();
            let mut mutated = frame.body.to_vec();
            for (at, byte) in &mutations {
                if !mutated.is_empty() {
                    let at = at.index(mutated.len());
                    mutated[at] ^= byte;
                }
            }
            let body = match (number == changed, mutations.is_empty()) {
                (true, true) => body.as_slice(),
                (true, false) => &mutated,
                _ => frame.body,
            };
            frame::put(&mut out, frame.kind, Compression::None, body).unwrap();
            rest = &rest[frame.stored_len()..];
            number += 1;
        }
        if let Err(error) = read_by_blocks(&out) {
            prop_assert_eq!(error.kind(), ErrorKind::Corrupt);
        }
        match walk(&out) {
            Ok((found, _)) => prop_assert!(found != digest || out == bytes),
            Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Corrupt),
        }
    }
}

/// A reader of single keys never sees all of a run, and so has no use of its digest.
#[test]
fn a_reader_of_blocks_notices_a_flip_of_every_byte() {
    let entries: Vec<Entry> = (0u32..40)
        .map(|n| (n.to_be_bytes().to_vec(), Some(vec![n as u8; 1000])))
        .collect();
    for compression in [Compression::None, Compression::Lz4] {
        let (bytes, _) = encode(&entries, compression);
        assert_eq!(read_by_blocks(&bytes).unwrap(), entries);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x20;
            let error = read_by_blocks(&damaged).unwrap_err();
            let kind = error.kind();
            assert_eq!(kind, ErrorKind::Corrupt, "{at}: {error}");
            assert!(error.to_string().contains("at offset"), "{error}");
        }
        for len in 0..bytes.len() {
            assert!(read_by_blocks(&bytes[..len]).is_err());
        }
    }
}

#[test]
fn a_filter_whose_parts_do_not_fit_is_refused() {
    let filter = filter::filter_of((0..1000).collect()).unwrap();
    let good = || filter.clone();
    assert!(filter::KeyFilter::new(good()).is_ok());
    let wrong = [
        FilterMessage {
            segment_length: filter.segment_length + 1,
            ..good()
        },
        FilterMessage {
            segment_length: 0,
            ..good()
        },
        FilterMessage {
            segment_length: 1 << 31,
            ..good()
        },
        FilterMessage {
            segment_count_length: u32::MAX,
            ..good()
        },
        FilterMessage {
            segment_count_length: filter.segment_count_length + filter.segment_length,
            ..good()
        },
        FilterMessage {
            fingerprints: Vec::new(),
            ..good()
        },
        FilterMessage {
            segment_count_length: 0,
            fingerprints: vec![0; 2 * filter.segment_length as usize],
            ..good()
        },
        FilterMessage::default(),
    ];
    for message in wrong {
        let error = filter::KeyFilter::new(message).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}

#[test]
fn large_values_have_blocks_of_their_own() {
    let value = |seed: u64, len: usize| {
        let mut state = seed;
        let bytes = std::iter::repeat_with(move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        });
        Some(bytes.take(len).collect::<Vec<u8>>())
    };
    let mib = 1 << 20;
    // Around the size that fills frames exactly.
    let sizes = [
        10,
        mib - 30,
        mib - 11,
        mib - 10,
        mib,
        2 * mib,
        3 * mib + 5,
        10,
    ];
    let entries: Vec<Entry> = (0u8..)
        .zip(sizes)
        .map(|(n, size)| (vec![n; 4], value(u64::from(n), size)))
        .collect();
    for compression in [Compression::None, Compression::Lz4] {
        let (bytes, digest) = encode(&entries, compression);
        assert_eq!(read_from_the_end(&bytes, digest).0, entries);
        assert_eq!(walk(&bytes).unwrap().0, digest);
    }
}

#[test]
fn many_keys_make_groups_and_filters_that_deny_most_others() {
    let key = |n: u64| xxh3_64(&n.to_le_bytes()).to_be_bytes().to_vec();
    let mut entries: Vec<Entry> = (0..200_000).map(|n| (key(n), Some(vec![1; 20]))).collect();
    entries.sort_unstable();
    let (bytes, digest) = encode(&entries, Compression::Lz4);
    let (found, groups) = read_from_the_end(&bytes, digest);
    assert!(found == entries);
    assert_eq!(groups, 4, "65,536 keys each, and what is left");
    assert_eq!(walk(&bytes).unwrap().0, digest);
    let mut hashes: Vec<u64> = (0..65_536)
        .map(|n: u64| xxh3_64(&n.to_le_bytes()))
        .collect();
    let filter = filter::filter_of(hashes.clone()).unwrap();
    assert!(filter.fingerprints.len() < 65_536 * 130 / 100);
    // Hashes that are there twice make no difference.
    hashes.extend_from_within(..100);
    assert_eq!(filter::filter_of(hashes).unwrap(), filter);
    let made = BinaryFuse8::try_from(
        (0..65_536)
            .map(|n: u64| xxh3_64(&n.to_le_bytes()))
            .collect::<Vec<_>>(),
    )
    .unwrap();
    let wrong = (65_536..165_536).filter(|n: &u64| made.contains(&xxh3_64(&n.to_le_bytes())));
    assert!(wrong.count() < 600, "about one in 256");
}

#[test]
fn keys_out_of_order_are_refused() {
    for (first, second) in [("a", "a"), ("b", "a"), ("ab", "a"), ("", "")] {
        let mut encoder = encoder(Compression::Lz4);
        encoder.push(b"", first.as_bytes(), None).unwrap();
        let error = encoder.push(b"", second.as_bytes(), None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        // A prefix without a key.
        let error = encoder.push(second.as_bytes(), b"", None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        encoder.push(b"", b"bc", Some(b"")).unwrap();
    }
}

#[test]
fn keys_are_counted_by_the_table_that_they_begin_with() {
    let mut tables = encoder(Compression::Lz4);
    for (prefix, keys) in [(b"\0\0", 3u32), (b"\0\x02", 50_000), (b"\0\x04", 1)] {
        for key in 0..keys {
            tables
                .push(prefix, &key.to_be_bytes(), Some(b"value"))
                .unwrap();
        }
    }
    let error = tables.push(b"", b"\0\x05", None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    tables.finish().unwrap();
    let run = reader(tables.frames()).unwrap();
    assert!(run.prefixes().eq([b"\0\0", b"\0\x02", b"\0\x04"]));
    let counts = [b"\0\0", b"\0\x01", b"\0\x02", b"\0\x04"].map(|p| run.keys_behind(p));
    assert_eq!(counts, [3, 0, 50_000, 1]);
    assert_eq!(run.keys_behind(b""), 50_004);
    assert!(run.has_tables());
    let mut plain = encoder(Compression::Lz4);
    plain.push(b"", b"\0\0key", Some(b"value")).unwrap();
    plain.finish().unwrap();
    let run = reader(plain.frames()).unwrap();
    assert_eq!(run.keys_behind(b""), 1);
    assert!(!run.has_tables());
}

#[test]
fn tables_that_have_not_the_keys_of_the_run_are_refused() {
    let table = |keys| TableKeys {
        prefix: vec![0, 2],
        keys,
    };
    let directory = |tables| DirectoryMessage {
        groups: Vec::new(),
        tables,
    };
    assert!(directory(vec![table(3), table(4)]).check_tables(7).is_ok());
    assert!(directory(Vec::new()).check_tables(7).is_ok());
    for wrong in [6, u64::MAX] {
        let error = directory(vec![table(wrong), table(4)]).check_tables(7);
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
