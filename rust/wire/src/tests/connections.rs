//! Connections: refused, broken, begun again, ended.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::*;
use crate::listener::MAX_CONNECTIONS;

#[test]
fn a_client_that_is_refused_is_told_why() {
    let executor = Executor::new();
    let _server = executor.serve();
    let refused = Client::connect(
        executor.socket(),
        Hello {
            pipeline: "closed".to_owned(),
            ..hello()
        },
    );
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced);
    assert_eq!(refused.to_string(), "pipeline closed is not open");
    let long = Hello {
        folder: "f".repeat(5000),
        ..hello()
    };
    let refused = Client::connect(executor.socket(), long).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
}

#[test]
fn without_a_server_a_client_says_where_it_looked() {
    let executor = Executor::new();
    let missing = Client::connect(executor.socket(), hello()).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(missing.to_string().contains("1.sock"), "{missing}");
}

#[test]
fn a_client_connects_again_after_its_server_was_replaced() {
    let executor = Executor::new();
    let server = executor.serve();
    let client = executor.client();
    server.stop();
    let broken = client.send(b"anybody?").unwrap_err();
    assert_eq!(broken.kind(), ErrorKind::Storage);
    let unheard = client.send(b"anybody?").unwrap_err();
    assert_eq!(unheard.kind(), ErrorKind::NotFound);
    let _server = executor.serve();
    client.send(b"anybody?").unwrap();
    assert_eq!(*executor.sent.lock(), [b"anybody?"]);
}

#[test]
fn a_request_is_repeated_when_the_session_was_over_before_it() {
    let executor = Executor::new();
    let _server = executor.serve();
    executor.over.store(true, Ordering::SeqCst);
    let client = executor.client();
    client.send(b"once").unwrap();
    assert_eq!(*executor.sent.lock(), [b"once"]);
    assert_eq!(executor.opened.load(Ordering::SeqCst), 2);
}

#[test]
fn a_request_is_not_repeated_for_ever() {
    let executor = Executor::new();
    let _server = executor.serve();
    executor.over.store(true, Ordering::SeqCst);
    let client = executor.client();
    executor.over.store(true, Ordering::SeqCst);
    let over = client.send(b"never").unwrap_err();
    assert_eq!(over.kind(), ErrorKind::Fenced);
    assert_eq!(*executor.sent.lock(), [] as [&[u8]; 0]);
}

#[test]
fn one_client_too_many_is_told_so_until_another_leaves() {
    let executor = Executor::new();
    let _server = executor.serve();
    let mut clients: Vec<_> = (0..MAX_CONNECTIONS).map(|_| executor.client()).collect();
    let refused = Client::connect(executor.socket(), hello()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::LimitExceeded);
    clients.truncate(MAX_CONNECTIONS / 2);
    // A place is free once its thread has noticed, which the others need not wait for.
    while Client::connect(executor.socket(), hello()).is_err() {
        thread::yield_now();
    }
}

#[test]
fn silent_connections_keep_no_client_out() {
    let executor = Executor::new();
    let _server = executor.serve();
    let known = executor.client();
    let silent: Vec<_> = (0..MAX_CONNECTIONS + 20)
        .map(|_| UnixStream::connect(executor.socket()).unwrap())
        .collect();
    let late = executor.client();
    late.send(b"served?").unwrap();
    known.send(b"still there?").unwrap();
    assert_eq!(*executor.sent.lock(), [&b"served?"[..], b"still there?"]);
    drop(silent);
}

#[test]
fn workers_reach_their_executor_by_its_local_folders_and_show_its_key() {
    let executor = Executor::new();
    // The folders need not exist any more: nothing is looked for there.
    let folders = |key: u32| format!("/none/blockmgr-{:016x}-{key:016x}", std::process::id());
    let address = |key| Address::of_executor(&folders(key)).unwrap();
    let connect = |key| Client::connect(address(key), hello());
    let nobody = connect(1).unwrap_err();
    assert_eq!(nobody.kind(), ErrorKind::NotFound);
    assert!(nobody.to_string().contains("spark.plugins"), "{nobody}");
    let server = Server::start(address(1), Arc::new(Arc::clone(&executor))).unwrap();
    connect(1).unwrap().send(&bytes(100_000)).unwrap();
    let stranger = connect(2).unwrap_err();
    assert_eq!(stranger.kind(), ErrorKind::InvalidInput);
    assert!(stranger.to_string().contains("key"), "{stranger}");
    assert!(Server::start(address(2), Arc::new(Arc::clone(&executor))).is_err());
    drop(server);
    assert_eq!(connect(1).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(*executor.sent.lock(), [bytes(100_000)]);
}

/// Blocks its clients in `send` until the test lets it continue.
struct Slow {
    executor: Arc<Executor>,
    began: mpsc::Sender<()>,
    go: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl Host for Mutex<Slow> {
    fn open(&self, _: &Hello) -> Result<Box<dyn Session>> {
        let slow = self.lock();
        Ok(Box::new(Slow {
            executor: Arc::clone(&slow.executor),
            began: slow.began.clone(),
            go: Arc::clone(&slow.go),
        }))
    }
}

impl Session for Slow {
    fn manager(&self) -> Result<Arc<SnapshotManager>> {
        Ok(Arc::clone(&self.executor.manager))
    }

    fn send(&self, data: Vec<u8>) -> Result<()> {
        self.began.send(()).unwrap();
        self.go.lock().recv().unwrap();
        self.executor.sent.lock().push(data);
        Ok(())
    }
}

#[test]
fn a_server_that_stops_waits_for_the_request_that_it_serves() {
    let executor = Executor::new();
    let (began, has_begun) = mpsc::channel();
    let (go, wait) = mpsc::channel();
    let slow = Slow {
        executor: Arc::clone(&executor),
        began,
        go: Arc::new(Mutex::new(wait)),
    };
    let server = Server::start(executor.socket(), Arc::new(Mutex::new(slow))).unwrap();
    let client = executor.client();
    thread::scope(|scope| {
        scope.spawn(|| client.send(b"served to its end"));
        has_begun.recv().unwrap();
        let (stopped, has_stopped) = mpsc::channel();
        let server = &server;
        scope.spawn(move || {
            server.stop();
            stopped.send(()).unwrap();
        });
        // It cannot have: the request is not served before it may continue.
        let early = has_stopped.recv_timeout(Duration::from_millis(200));
        assert!(early.is_err(), "it did not wait");
        go.send(()).unwrap();
        has_stopped.recv().unwrap();
        assert_eq!(*executor.sent.lock(), [b"served to its end"]);
    });
}
