//! Output that the executor stages for its workers.

use std::sync::mpsc;
use std::thread;

use super::*;

/// Keeps what clients stage. A file named `slow` waits until the test lets it continue.
struct Stages {
    executor: Arc<Executor>,
    done: Arc<Mutex<Vec<String>>>,
    began: mpsc::Sender<()>,
    go: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl Host for Mutex<Stages> {
    fn open(&self, _: &Hello) -> Result<Box<dyn Session>> {
        let stages = self.lock();
        Ok(Box::new(Stages {
            executor: Arc::clone(&stages.executor),
            done: Arc::clone(&stages.done),
            began: stages.began.clone(),
            go: Arc::clone(&stages.go),
        }))
    }
}

impl Session for Stages {
    fn manager(&self) -> Result<Arc<SnapshotManager>> {
        Ok(Arc::clone(&self.executor.manager))
    }

    fn send(&self, _: Vec<u8>) -> Result<()> {
        Ok(())
    }

    fn stage(&self, local: &str, staged: &str, target: &str) -> Result<()> {
        if local == "none" {
            return Err(Error::new(ErrorKind::NotFound, "there is no such file"));
        }
        if local == "slow" {
            self.began.send(()).unwrap();
            self.go.lock().recv().unwrap();
        }
        self.done.lock().push(format!("{local} {staged} {target}"));
        Ok(())
    }
}

struct World {
    executor: Arc<Executor>,
    done: Arc<Mutex<Vec<String>>>,
    has_begun: mpsc::Receiver<()>,
    go: mpsc::Sender<()>,
    _server: Server,
}

fn world() -> World {
    let executor = Executor::new();
    let done = Arc::default();
    let (began, has_begun) = mpsc::channel();
    let (go, wait) = mpsc::channel();
    let stages = Stages {
        executor: Arc::clone(&executor),
        done: Arc::clone(&done),
        began,
        go: Arc::new(Mutex::new(wait)),
    };
    let server = Server::start(executor.socket(), Arc::new(Mutex::new(stages))).unwrap();
    World {
        executor,
        done,
        has_begun,
        go,
        _server: server,
    }
}

#[test]
fn the_executor_stages_what_its_client_names() {
    let world = world();
    let client = world.executor.client();
    client
        .stage("/tmp/a", "s3a://b/staged", "s3a://b/a")
        .unwrap();
    let missing = client.stage("none", "s3a://b/staged", "s3a://b/a");
    let missing = missing.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert_eq!(missing.to_string(), "there is no such file");
    assert_eq!(*world.done.lock(), ["/tmp/a s3a://b/staged s3a://b/a"]);
}

#[test]
fn a_file_that_is_staged_slowly_keeps_no_other_client_waiting() {
    let world = world();
    let (slow, other) = (world.executor.client(), world.executor.client());
    thread::scope(|scope| {
        scope.spawn(|| slow.stage("slow", "staged", "target").unwrap());
        world.has_begun.recv().unwrap();
        other.stage("quick", "staged", "target").unwrap();
        let owner = owner("east");
        let reference = other.append(&new_segment(&owner), b"state").unwrap();
        other.persist_segments(ID, &owner, &[reference]).unwrap();
        assert_eq!(*world.done.lock(), ["quick staged target"]);
        world.go.send(()).unwrap();
    });
    assert_eq!(
        *world.done.lock(),
        ["quick staged target", "slow staged target"]
    );
}

#[test]
fn a_server_without_other_file_systems_says_so() {
    let executor = Executor::new();
    let _server = executor.serve();
    let client = executor.client();
    let staged = client.stage("/tmp/a", "hdfs://host/staged", "hdfs://host/a");
    let staged = staged.unwrap_err();
    assert_eq!(staged.kind(), ErrorKind::Unsupported);
    assert!(
        staged.to_string().contains("hdfs://host/staged"),
        "{staged}"
    );
}
