//! Segments and messages of well-behaved clients.

use std::thread;

use super::*;

#[test]
fn segments_of_every_size_are_read_back_and_are_in_one_file() {
    let executor = Executor::new();
    let _server = executor.serve();
    let client = executor.client();
    let owner = owner("east");
    let sizes = [0, 1, MAX_INLINE_BYTES, MAX_INLINE_BYTES + 1, 5 << 20];
    let refs: Vec<SegmentRef> = sizes
        .iter()
        .map(|size| client.append(&new_segment(&owner), &bytes(*size)).unwrap())
        .collect();
    for (reference, size) in refs.iter().zip(sizes) {
        assert_eq!(client.read(reference, &owner, 0).unwrap(), bytes(size));
        assert_eq!(reference.file, refs[0].file);
    }
}

#[test]
fn what_was_persisted_is_synced_before_the_answer() {
    let executor = Executor::new();
    let _server = executor.serve();
    let client = executor.client();
    let owner = owner("east");
    let reference = client.append(&new_segment(&owner), b"state").unwrap();
    let before = executor.manager.stats().syncs;
    client.persist_segments(ID, &owner, &[reference]).unwrap();
    assert_eq!(executor.manager.stats().syncs, before + 1);
}

#[test]
fn segments_are_leased_and_released_as_in_the_same_process() {
    let executor = Executor::new();
    let _server = executor.serve();
    let client = executor.client();
    let (east, west) = (owner("east"), owner("west"));
    let kept = client.append(&new_segment(&east), b"kept").unwrap();
    let refused = client.append(&new_segment(&west), b"refused").unwrap();
    client.release(&west, &[refused]).unwrap();
    let gone = client.persist_segments(ID, &west, &[refused]).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    completed(&executor.manager);
    let next = CheckpointId(2);
    assert_eq!(
        client.lease(&east, next, &[kept, refused]).unwrap(),
        [true, false]
    );
    assert_eq!(client.lease(&east, next, &[]).unwrap(), [] as [bool; 0]);
}

#[test]
fn errors_keep_their_kind_and_the_connection() {
    let executor = Executor::new();
    let _server = executor.serve();
    let client = executor.client();
    let owner = owner("east");
    let reference = client.append(&new_segment(&owner), b"state").unwrap();
    let other = client
        .read(&reference, &super::owner("west"), 0)
        .unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Corrupt);
    let kind_of = |result: Result<()>| result.unwrap_err().kind();
    completed(&executor.manager);
    let late = client.append(&new_segment(&owner), b"late").map(|_| ());
    assert_eq!(kind_of(late), ErrorKind::AttemptEnded);
    let long = Owner::new("sales", &"x".repeat(2000), "east", "default");
    let mut new = new_segment(&long);
    new.created = CheckpointId(2);
    assert_eq!(
        kind_of(client.append(&new, b"").map(|_| ())),
        ErrorKind::InvalidInput
    );
    let full = client.send(b"full disk").unwrap_err();
    assert_eq!(
        full.to_string(),
        "taking bytes: No space left on device (os error 28)"
    );
    let huge = vec![0; MAX_MESSAGE_BYTES];
    assert_eq!(kind_of(client.send(&huge)), ErrorKind::InvalidInput);
    assert_eq!(
        executor.opened.load(Ordering::SeqCst),
        1,
        "it connected again"
    );
}

#[test]
fn what_is_sent_arrives_once_and_in_order() {
    let executor = Executor::new();
    let _server = executor.serve();
    let client = executor.client();
    for message in [&b"first"[..], b"", b"third"] {
        client.send(message).unwrap();
    }
    assert_eq!(*executor.sent.lock(), [&b"first"[..], b"", b"third"]);
    let large = bytes(MAX_MESSAGE_BYTES - 64);
    client.send(&large).unwrap();
    assert_eq!(executor.sent.lock().last(), Some(&large));
}

#[test]
fn many_clients_append_at_once_into_one_file() {
    let executor = Executor::new();
    let _server = executor.serve();
    let written: Vec<_> = thread::scope(|scope| {
        let work = |worker: usize| {
            let executor = &executor;
            move || {
                let client = executor.client();
                let owner = owner(&format!("region-{worker}"));
                let size = |i: usize| 1000 * i * worker % 200_000;
                (0..20)
                    .map(|i| {
                        let payload = bytes(size(i));
                        let reference = client.append(&new_segment(&owner), &payload).unwrap();
                        (owner.clone(), reference, payload)
                    })
                    .collect::<Vec<_>>()
            }
        };
        let workers: Vec<_> = (0..8).map(|worker| scope.spawn(work(worker))).collect();
        let joined = workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap());
        joined.collect()
    });
    let client = executor.client();
    for (owner, reference, payload) in &written {
        assert_eq!(client.read(reference, owner, 0).unwrap(), *payload);
    }
    assert_eq!(executor.manager.stats().physical_files, 1);
}

#[test]
fn threads_share_a_client() {
    let executor = Executor::new();
    let _server = executor.serve();
    let client = executor.client();
    thread::scope(|scope| {
        for thread in 0..4u8 {
            let client = &client;
            scope.spawn(move || {
                let owner = owner(&format!("region-{thread}"));
                for i in 0..50u8 {
                    let reference = client.append(&new_segment(&owner), &[thread, i]).unwrap();
                    assert_eq!(client.read(&reference, &owner, 0).unwrap(), [thread, i]);
                }
            });
        }
    });
}
