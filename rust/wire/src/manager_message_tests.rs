#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use holdfast_core::ErrorKind;
use holdfast_core::SEGMENT_REF_BYTES;
use holdfast_core::format::{NewSegment, SegmentKind};
use holdfast_core::manager::ManagerOptions;
use holdfast_core::storage::LocalStorage;
use std::sync::Arc;

fn message(kind: MessageKind) -> ManagerMessage {
    let fallbacks: Fallbacks = [
        (Owner::new("p", "stats", "east", "default"), CheckpointId(3)),
        (Owner::new("p", "in-flight", "east", "5"), CheckpointId(5)),
    ]
    .into();
    let id = CheckpointId(6);
    let refused = SegmentRef::from_bytes(&[1; SEGMENT_REF_BYTES]).unwrap();
    ManagerMessage {
        kind,
        checkpoint: id,
        fallbacks: fallbacks.clone(),
        retained: Retained {
            decided: CheckpointId(7),
            checkpoints: [(CheckpointId(5), Fallbacks::new()), (id, fallbacks)].into(),
        },
        released: [(
            Owner::new("p", "stats", "west", "default"),
            vec![refused, refused],
        )]
        .into(),
    }
}

#[test]
fn every_kind_is_read_back_as_it_was_written() {
    for number in 2..=4 {
        let message = message(MessageKind::try_from(number).unwrap());
        assert_eq!(
            ManagerMessage::from_bytes(&message.to_bytes()).unwrap(),
            message
        );
    }
}

#[test]
fn what_it_releases_is_not_part_of_the_checkpoint_that_completes() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Arc::new(LocalStorage::new(folder.path().join("segments")));
    let manager = SnapshotManager::open_next_term(storage, ManagerOptions::default(), 1).unwrap();
    let (owner, id) = (Owner::new("p", "stats", "east", "default"), CheckpointId(6));
    let new = NewSegment {
        owner: &owner,
        created: id,
        kind: SegmentKind::Snapshot,
        lineage: &[],
        replaced: None,
        entries: 1,
        tables: &[],
        runs: 0,
    };
    manager.started(id);
    let acknowledged = manager.append(&new, b"acknowledged").unwrap();
    let refused = manager.append(&new, b"refused").unwrap();
    let message = ManagerMessage {
        kind: MessageKind::Completed,
        checkpoint: id,
        fallbacks: Fallbacks::new(),
        retained: Retained {
            decided: id,
            checkpoints: [(id, Fallbacks::new())].into(),
        },
        released: [(owner.clone(), vec![refused])].into(),
    };
    message.tell(&manager).unwrap();
    assert_eq!(manager.stats().live_segments, 1);
    assert!(manager.read(&acknowledged, &owner).is_ok());
}

#[test]
fn other_bytes_and_other_versions_are_refused() {
    let garbage = ManagerMessage::from_bytes(b"no message").unwrap_err();
    assert_eq!(garbage.kind(), ErrorKind::InvalidInput);
    let bytes = message(MessageKind::Aborted).to_bytes();
    let of = |change: fn(&mut Wire)| {
        let mut wire = Wire::decode(bytes.as_slice()).unwrap();
        change(&mut wire);
        ManagerMessage::from_bytes(&wire.encode_to_vec()).map_err(|e| e.kind())
    };
    assert_eq!(of(|wire| wire.version += 1), Err(ErrorKind::Unsupported));
    assert_eq!(of(|wire| wire.kind = 6), Err(ErrorKind::InvalidInput));
    assert_eq!(
        of(|wire| wire.fallbacks[0].owner = None),
        Err(ErrorKind::InvalidInput)
    );
    assert_eq!(
        of(|wire| wire.released[0].owner = None),
        Err(ErrorKind::InvalidInput)
    );
    assert_eq!(
        of(|wire| {
            wire.released[0].refs[0].pop();
        }),
        Err(ErrorKind::InvalidInput)
    );
    assert!(of(|_| {}).is_ok());
}
