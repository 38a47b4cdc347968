//! Clients that break the protocol, or die in the middle of it.

use std::io::Write;
use std::os::unix::net::UnixStream;

use proptest::prelude::*;

use super::*;
use crate::channel::{Channel, Outgoing};
use crate::payload::{announce, memory_file};
use crate::protocol::{ReadCall, SegmentsCall};

#[test]
fn foreign_clients_get_an_error_and_lose_their_connection() {
    let executor = Executor::new();
    let _server = executor.serve();
    let mut newer = frame(&hello());
    // Field 2, a varint, is the version; fixed field 1 takes five bytes.
    assert_eq!(newer[4 + 5..][..2], [0x10, PROTOCOL_VERSION as u8]);
    newer[4 + 6] += 1;
    let cases = [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], ErrorKind::LimitExceeded),
        (&frame(&Request { call: None }), ErrorKind::InvalidInput),
        (&[3, 0, 0, 0, 0xff, 0xff, 0xff], ErrorKind::InvalidInput),
        (&newer, ErrorKind::Unsupported),
    ];
    for (said, expected) in cases {
        let mut stream = UnixStream::connect(executor.socket()).unwrap();
        stream.write_all(said).unwrap();
        assert_eq!(refusal(&mut stream).kind(), expected);
    }
    executor.client();
}

#[test]
fn requests_out_of_bounds_are_refused_before_memory_is_taken() {
    let executor = Executor::new();
    let _server = executor.serve();
    let announced = |bytes, by_descriptor| {
        frame(&append_call(PayloadMessage {
            bytes,
            by_descriptor,
        }))
    };
    let cases = [
        (u32::MAX.to_le_bytes().to_vec(), ErrorKind::LimitExceeded),
        (
            announced(MAX_PAYLOAD_BYTES + 1, true),
            ErrorKind::LimitExceeded,
        ),
        (announced(u64::MAX, false), ErrorKind::LimitExceeded),
        (
            announced(MAX_INLINE_BYTES as u64 + 1, false),
            ErrorKind::LimitExceeded,
        ),
        (announced(1, true), ErrorKind::InvalidInput),
        (frame(&Request { call: None }), ErrorKind::InvalidInput),
    ];
    for (said, expected) in cases {
        let mut stream = executor.raw();
        stream.write_all(&said).unwrap();
        assert_eq!(refusal(&mut stream).kind(), expected);
    }
    assert_eq!(executor.manager.stats().appends, 0);
}

#[test]
fn a_passed_file_that_is_shorter_than_announced_is_refused() {
    let executor = Executor::new();
    let _server = executor.serve();
    let payload = bytes(MAX_INLINE_BYTES + 1);
    let longer = PayloadMessage {
        bytes: payload.len() as u64 + 1,
        ..announce(&payload)
    };
    let mut stream = executor.raw();
    let message = Outgoing::new(&append_call(longer), &payload).unwrap();
    Channel::new(stream.try_clone().unwrap())
        .send(&message)
        .unwrap();
    assert_eq!(refusal(&mut stream).kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_request_without_its_parts_fails_alone() {
    let executor = Executor::new();
    let _server = executor.serve();
    let mut stream = executor.raw();
    let mut request = append_call(announce(b"payload"));
    if let Some(Call::Append(call)) = &mut request.call {
        call.owner = None;
    }
    for _ in 0..2 {
        stream.write_all(&frame(&request)).unwrap();
        stream.write_all(b"payload").unwrap();
        assert!(matches!(answer(&mut stream), Some(Answer::Failure(_))));
    }
}

#[test]
fn a_client_that_dies_in_the_middle_of_a_message_leaves_its_neighbours_intact() {
    let executor = Executor::new();
    let server = executor.serve();
    let neighbour = executor.client();
    let east = owner("east");
    let before = neighbour.append(&new_segment(&east), b"before").unwrap();
    let mut whole = frame(&append_call(announce(b"payload")));
    whole.extend(b"payload");
    for cut in 1..whole.len() {
        let mut dying = executor.raw();
        dying.write_all(&whole[..cut]).unwrap();
    }
    let after = neighbour.append(&new_segment(&east), b"after").unwrap();
    assert_eq!(neighbour.read(&before, &east, 0).unwrap(), b"before");
    assert_eq!(neighbour.read(&after, &east, 0).unwrap(), b"after");
    // All of them were served to their end.
    drop(neighbour);
    server.stop();
    assert_eq!(executor.manager.stats().appends, 2);
}

#[test]
fn an_unexpected_descriptor_is_closed() {
    let executor = Executor::new();
    let _server = executor.serve();
    let mut stream = executor.raw();
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let request = Request {
        call: Some(Call::Send(b"with a file".to_vec())),
    };
    let mut message = Outgoing::new(&request, &[]).unwrap();
    message.passed = Some(memory_file(b"").unwrap());
    let before = count();
    for _ in 0..500 {
        Channel::new(stream.try_clone().unwrap())
            .send(&message)
            .unwrap();
        assert_eq!(answer(&mut stream), Some(Answer::Done(())));
    }
    // Other tests of this process open descriptors as well, but not hundreds at a time.
    assert!(
        count() < before + 400,
        "{} descriptors, {before} before",
        count()
    );
}

/// Requests of every kind that knows segments, as a worker makes them.
fn requests(reference: &SegmentRef) -> Vec<Request> {
    let reference = reference.to_bytes().to_vec();
    let of_segments = || SegmentsCall {
        owner: Some(owner("east")),
        checkpoint: ID.0,
        refs: vec![reference.clone(); 2],
    };
    let read = ReadCall {
        owner: Some(owner("east")),
        reference: reference.clone(),
        known_bytes: 0,
    };
    let mut on_top = append_call(announce(b"payload"));
    if let Some(Call::Append(call)) = &mut on_top.call {
        call.lineage = vec![reference.clone()];
    }
    let calls = [
        Call::Read(read),
        Call::Lease(of_segments()),
        Call::Persist(of_segments()),
        Call::Release(of_segments()),
    ];
    let requests = calls.map(|call| Request { call: Some(call) });
    requests.into_iter().chain([on_top]).collect()
}

/// 64, or as many as `PROPTEST_CASES` says: `make fuzz`.
fn cases() -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(64),
    }
}

proptest! {
    #![proptest_config(cases())]

    /// Like [`whatever_a_client_says_its_neighbours_are_served`], where more of it is understood.
    #[test]
    fn whatever_is_wrong_with_a_request_its_neighbours_are_served(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let executor = Executor::new();
        let server = executor.serve();
        let neighbour = executor.client();
        let east = owner("east");
        let before = neighbour.append(&new_segment(&east), b"before").unwrap();
        for request in requests(&before) {
            let mut body = request.encode_to_vec();
            for (at, byte) in &changes {
                let at = at.index(body.len());
                body[at] = *byte;
            }
            let mut said = (body.len() as u32).to_le_bytes().to_vec();
            said.extend(body);
            said.extend(b"payload");
            executor.raw().write_all(&said).unwrap();
        }
        let west = owner("west");
        let after = neighbour.append(&new_segment(&west), b"after").unwrap();
        prop_assert_eq!(neighbour.read(&after, &west, 0).unwrap(), b"after");
        drop(neighbour);
        server.stop();
    }

    #[test]
    fn whatever_a_client_says_its_neighbours_are_served(said in prop::collection::vec(any::<u8>(), 0..300)) {
        let executor = Executor::new();
        let server = executor.serve();
        let neighbour = executor.client();
        let mut as_body = (said.len() as u32).to_le_bytes().to_vec();
        as_body.extend(&said);
        for bytes in [&said, &as_body] {
            executor.raw().write_all(bytes).unwrap();
            UnixStream::connect(executor.socket()).unwrap().write_all(bytes).unwrap();
        }
        neighbour.send(b"still there?").unwrap();
        prop_assert!(executor.sent.lock().contains(&b"still there?".to_vec()));
        // A thread that panicked would still hold its place: stopping would not end.
        drop(neighbour);
        server.stop();
    }
}
