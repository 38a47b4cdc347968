//! Tables through the socket.

use holdfast_core::manager::TableCall;
use holdfast_core::rows::ABSENT;
use holdfast_core::state::KeyRange;

use super::*;

fn entries(count: u32) -> (Vec<u8>, Vec<u8>) {
    let (mut keys, mut entries) = (Vec::new(), Vec::new());
    for number in 0..count {
        let key = number.to_be_bytes();
        keys.extend([&4u32.to_le_bytes()[..], &key].concat());
        let lengths = [4u32.to_le_bytes(), 8u32.to_le_bytes()].concat();
        entries.extend([&lengths[..], &key, &[7; 8]].concat());
    }
    (keys, entries)
}

/// More than a message carries without a file in memory.
const MANY: u32 = 10_000;

#[test]
fn a_table_is_reached_with_whole_batches() {
    let executor = Executor::new();
    let _server = executor.serve();
    let client = executor.client();
    let session = client.open_table(&owner("east"), ID, None).unwrap();
    let (keys, entries) = entries(MANY);
    client.table(session, &TableCall::Put(&entries)).unwrap();
    assert_eq!(
        client.table(session, &TableCall::Len).unwrap().rows,
        u64::from(MANY)
    );
    let found = client.table(session, &TableCall::Get(&keys)).unwrap().bytes;
    assert_eq!(found.len(), 12 * MANY as usize);
    let (first, rest) = keys.split_at(8);
    let removed = client.table(session, &TableCall::Remove(first)).unwrap();
    assert_eq!(removed.bytes, [1]);
    let gone = client.table(session, &TableCall::Get(first)).unwrap();
    assert_eq!(gone.bytes, ABSENT.to_le_bytes());
    let there = client.table(session, &TableCall::Contains(rest)).unwrap();
    assert_eq!(there.bytes, vec![1; MANY as usize - 1]);
    let commit = client.commit_table(session).unwrap();
    client
        .persist_segments(ID, &owner("east"), &commit.segments)
        .unwrap();
    assert_eq!(commit.keys, u64::from(MANY) - 1);
    completed(&executor.manager);

    let next = CheckpointId(2);
    let session = client
        .open_table(&owner("east"), next, Some(&commit.id))
        .unwrap();
    let ranges = [
        (KeyRange::All, MANY - 1),
        (KeyRange::Prefix(&[0, 0, 1]), 256),
        (
            KeyRange::Between {
                from: Some(&[0, 0, 1]),
                to: None,
            },
            MANY - 256,
        ),
        (
            KeyRange::Between {
                from: None,
                to: Some(&[0, 0, 1]),
            },
            255,
        ),
    ];
    for (range, expected) in ranges {
        let max_bytes = 4096;
        let mut answer = client
            .table(session, &TableCall::Scan { range, max_bytes })
            .unwrap();
        let mut rows = answer.rows;
        while let Some(scan) = answer.scan {
            assert_eq!(answer.bytes.len() as u64, 20 * answer.rows);
            let call = TableCall::ScanOn { scan, max_bytes };
            answer = client.table(session, &call).unwrap();
            rows += answer.rows;
        }
        assert_eq!(rows, u64::from(expected), "{range:?}");
    }
    let all = TableCall::Scan {
        range: KeyRange::All,
        max_bytes: 1,
    };
    let scan = client.table(session, &all).unwrap().scan.unwrap();
    client.table(session, &TableCall::CloseScan(scan)).unwrap();
    let closed = client.table(session, &TableCall::ScanOn { scan, max_bytes: 1 });
    assert_eq!(closed.unwrap_err().kind(), ErrorKind::InvalidInput);
    client.close_table(session).unwrap();
    let late = client.table(session, &TableCall::Len).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::AttemptEnded);
}

#[test]
fn a_worker_that_dies_takes_nothing_but_its_session_along() {
    let executor = Executor::new();
    let _server = executor.serve();
    let (_, entries) = entries(100);
    let first = executor.client();
    let session = first.open_table(&owner("east"), ID, None).unwrap();
    first.table(session, &TableCall::Put(&entries)).unwrap();
    let commit = first.commit_table(session).unwrap();
    first
        .persist_segments(ID, &owner("east"), &commit.segments)
        .unwrap();
    completed(&executor.manager);
    let next = CheckpointId(2);
    let session = first
        .open_table(&owner("east"), next, Some(&commit.id))
        .unwrap();
    first
        .table(session, &TableCall::Remove(&[4, 0, 0, 0, 0, 0, 0, 1]))
        .unwrap();
    drop(first);
    let second = executor.client();
    let session = second
        .open_table(&owner("east"), next, Some(&commit.id))
        .unwrap();
    assert_eq!(second.table(session, &TableCall::Len).unwrap().rows, 100);
}

#[test]
fn calls_of_tables_that_cannot_be_are_refused() {
    let executor = Executor::new();
    let _server = executor.serve();
    let client = executor.client();
    let unknown = client.table(77, &TableCall::Len).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::AttemptEnded);
    let session = client.open_table(&owner("east"), ID, None).unwrap();
    for cut in [&[1u8, 0][..], &[9, 0, 0, 0, 1]] {
        for call in [
            TableCall::Get(cut),
            TableCall::Put(cut),
            TableCall::Remove(cut),
        ] {
            let refused = client.table(session, &call).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{call:?}");
        }
    }
    assert_eq!(client.table(session, &TableCall::Len).unwrap().rows, 0);
}
