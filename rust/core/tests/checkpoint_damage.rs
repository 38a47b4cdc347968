//! A small checkpoint, damaged everywhere: every version of every owner loads exactly right or
//! fails with file, offset and owner. A damaged base image is rebuilt from what it replaced.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use crate::common::{assert_damage, content, options, plain};
use holdfast_core::format::{Compression, SegmentKind, read_head};
use holdfast_core::segment::SegmentWriter;
use holdfast_core::state::{CommitId, FIRST_FAMILY, KeyRange, MemoryBudget, ScanOf, StateStore};
use holdfast_core::storage::{LocalStorage, Storage};
use holdfast_core::{Error, ErrorKind, FileId, Owner, SegmentRef, Term};

type Content = BTreeMap<String, String>;

/// One version of one owner: what it holds, and which segments can serve it.
struct Version {
    owner: Owner,
    id: CommitId,
    content: Content,
    /// Alternatives, the normal one first: what is read when a base image is sound, then what is
    /// read instead of it.
    ways: Vec<BTreeSet<SegmentRef>>,
}

struct Checkpoint {
    dir: tempfile::TempDir,
    storage: Arc<dyn Storage>,
    versions: Vec<Version>,
}

impl Checkpoint {
    fn of(
        dir: tempfile::TempDir,
        storage: Arc<dyn Storage>,
        versions: Vec<(Owner, CommitId, Content)>,
    ) -> Self {
        let versions = versions.into_iter().map(|(owner, id, content)| Version {
            ways: ways(storage.as_ref(), &owner, id.segment.unwrap()),
            owner,
            id,
            content,
        });
        Self {
            versions: versions.collect(),
            dir,
            storage,
        }
    }

    fn path(&self, file: FileId) -> PathBuf {
        self.dir.path().join(file.file_name())
    }

    fn files(&self) -> BTreeSet<FileId> {
        let segments = self.versions.iter().flat_map(|v| v.ways.iter().flatten());
        segments.map(|segment| segment.file).collect()
    }

    /// Checks every version; `broken` tells the segments that do not verify.
    fn check(&self, what: &str, broken: impl Fn(&SegmentRef) -> bool) {
        for version in &self.versions {
            let usable = version.ways.iter().position(|way| !way.iter().any(&broken));
            let mut store = StateStore::new(version.owner.clone(), plain());
            let opened = store.open(self.storage.as_ref(), version.id.version, Some(&version.id));
            let label = format!(
                "{what}, version {} of {}",
                version.id.version, version.owner
            );
            match (opened, usable) {
                (Ok(()), Some(way)) => {
                    assert_eq!(content(&mut store), version.content, "{label}");
                    let warning = store.take_warning();
                    assert_eq!(warning.is_some(), way > 0, "{label}: {warning:?}");
                    assert_eq!(store.stats().rebuilds, u64::from(way > 0), "{label}");
                    if let Some(warning) = warning {
                        self.names_the_damage(&warning, version, &broken);
                    }
                }
                (Err(error), None) => {
                    assert!(
                        matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound),
                        "{label}: {error}"
                    );
                    self.names_the_damage(&error.to_string(), version, &broken);
                }
                (Ok(()), None) => panic!("{label}: loaded from damaged segments"),
                (Err(error), Some(_)) => panic!("{label}: {error}"),
            }
        }
    }

    fn names_the_damage(
        &self,
        text: &str,
        version: &Version,
        broken: impl Fn(&SegmentRef) -> bool,
    ) {
        assert!(text.contains(&version.owner.to_string()), "{text}");
        let named = version
            .ways
            .iter()
            .flatten()
            .filter(|s| broken(s))
            .any(|s| {
                let path = self.path(s.file);
                text.contains(path.to_str().unwrap())
                    && text.contains(&format!("offset {}", s.offset))
            });
        assert!(named, "{text} names no damaged segment");
    }
}

/// The ways to load `newest`, by what the heads of intact segments say.
fn ways(storage: &dyn Storage, owner: &Owner, newest: SegmentRef) -> Vec<BTreeSet<SegmentRef>> {
    let head_of = |segment: &SegmentRef| read_head(storage, segment, owner).unwrap();
    let head = head_of(&newest);
    let whole: Vec<_> = head.lineage.iter().copied().chain([newest]).collect();
    let is_run = |segment: &&SegmentRef| head_of(segment).kind == SegmentKind::Run;
    let runs = whole.iter().take_while(is_run).count();
    let mut all = vec![whole.iter().copied().collect::<BTreeSet<_>>()];
    if let Some(replaced) = head.replaced {
        assert!(runs > 0);
        for older in ways(storage, owner, replaced) {
            all.push(older.into_iter().chain(whole[runs..].to_vec()).collect());
        }
    }
    all
}

/// Two owners, two base images each, in sealed files and an open one. The second owner ends idle:
/// its last id names a changelog without entries above a base image.
fn checkpoint(compression: Compression) -> Checkpoint {
    let dir = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new(dir.path()));
    let writer = SegmentWriter::open(Arc::clone(&storage), Term(1), options(600, compression));
    let mut versions = Vec::new();
    for region in ["7", "8"] {
        let owner = Owner::new("", "0", region, "default");
        let mut store = StateStore::new(owner.clone(), plain());
        store.open(storage.as_ref(), 0, None).unwrap();
        for batch in 1..=7 {
            store.begin().unwrap();
            if region == "7" || batch < 7 {
                let key = format!("key-{}", batch % 3);
                store
                    .put(
                        FIRST_FAMILY,
                        key.as_bytes(),
                        format!("{region}-{batch}").as_bytes(),
                    )
                    .unwrap();
                store
                    .remove(FIRST_FAMILY, format!("key-{}", (batch + 1) % 3).as_bytes())
                    .unwrap();
            }
            let id = store.commit(&writer).unwrap();
            versions.push((owner.clone(), id, content(&mut store)));
            if batch % 3 == 0 {
                writer.sync().unwrap();
                let image = store.merge_task(&writer, 2, &HashSet::new()).unwrap();
                store.accept(image.run(storage.as_ref(), &writer).unwrap());
                writer.sync().unwrap();
            }
        }
    }
    let checkpoint = Checkpoint::of(dir, storage, versions);
    assert!(
        checkpoint.versions.iter().any(|v| v.ways.len() == 3),
        "two images in a row can be rebuilt"
    );
    let idle = checkpoint.versions.last().unwrap();
    assert_eq!(idle.ways[0].len(), 2, "an image and a changelog");
    assert!(idle.ways.len() > 1, "the image can be rebuilt");
    assert!(checkpoint.files().len() > 2);
    checkpoint
}

/// Memory for no key that a run has.
fn no_memory() -> Arc<MemoryBudget> {
    let budget = Arc::new(MemoryBudget::unlimited());
    budget.set_target_bytes(Some(0));
    budget
}

/// One owner with a base image and two delta runs above it. It ends idle, with a changelog
/// without entries.
fn checkpoint_of_delta_runs() -> Checkpoint {
    let dir = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(LocalStorage::new(dir.path()));
    let writer = SegmentWriter::open(
        Arc::clone(&storage),
        Term(1),
        options(700, Compression::None),
    );
    let owner = Owner::new("", "0", "9", "default");
    // Heads say how many keys there are, so that all runs may stay where they are.
    let mut store = StateStore::within(owner.clone(), plain(), no_memory());
    store.open(storage.as_ref(), 0, None).unwrap();
    let mut versions = Vec::new();
    for batch in 1..=4 {
        store.begin().unwrap();
        // Each run is larger than the segments above it, so that merges leave it unchanged.
        let size = [2_500, 400, 0, 0][batch - 1];
        if batch < 4 {
            let key = format!("key-{}", batch % 3);
            let value = format!("{batch}").repeat(1 + size);
            store
                .put(FIRST_FAMILY, key.as_bytes(), value.as_bytes())
                .unwrap();
            let gone = format!("key-{}", (batch + 2) % 3);
            store.remove(FIRST_FAMILY, gone.as_bytes()).unwrap();
        }
        let id = store.commit(&writer).unwrap();
        versions.push((owner.clone(), id, content(&mut store)));
        if batch < 4 {
            writer.sync().unwrap();
            let file = HashSet::from([id.segment.unwrap().file]);
            let task = store.merge_task(&writer, 1, &file).unwrap();
            assert_eq!(task.makes_base_image(), batch == 1);
            store.accept(task.run(storage.as_ref(), &writer).unwrap());
            writer.sync().unwrap();
        }
    }
    let checkpoint = Checkpoint::of(dir, storage, versions);
    let last = checkpoint.versions.last().unwrap();
    assert_eq!(last.id.deltas.len(), 2);
    assert_eq!(last.ways.len(), 4, "each run can be rebuilt");
    checkpoint
}

fn end(segment: &SegmentRef) -> u64 {
    segment.offset + segment.len
}

#[test]
fn truncation_of_every_file_at_every_byte() {
    for checkpoint in [
        checkpoint(Compression::None),
        checkpoint(Compression::Lz4),
        checkpoint_of_delta_runs(),
    ] {
        for file in checkpoint.files() {
            let path = checkpoint.path(file);
            let bytes = std::fs::read(&path).unwrap();
            for len in 0..bytes.len() {
                std::fs::write(&path, &bytes[..len]).unwrap();
                checkpoint.check(&format!("{file} cut at {len}"), |segment| {
                    segment.file == file && end(segment) > len as u64
                });
            }
            std::fs::write(&path, &bytes).unwrap();
        }
        checkpoint.check("restored", |_| false);
    }
}

#[test]
fn a_flip_of_every_byte_of_every_file() {
    for checkpoint in [checkpoint(Compression::Lz4), checkpoint_of_delta_runs()] {
        for file in checkpoint.files() {
            let path = checkpoint.path(file);
            let bytes = std::fs::read(&path).unwrap();
            for at in 0..bytes.len() {
                for mask in [0x01, 0xff] {
                    let mut damaged = bytes.clone();
                    damaged[at] ^= mask;
                    std::fs::write(&path, &damaged).unwrap();
                    checkpoint.check(&format!("{file} flipped at {at}"), |segment| {
                        segment.file == file
                            && (segment.offset..end(segment)).contains(&(at as u64))
                    });
                }
            }
            std::fs::write(&path, &bytes).unwrap();
        }
        checkpoint.check("restored", |_| false);
    }
}

#[test]
fn every_file_missing_alone() {
    for checkpoint in [checkpoint(Compression::Lz4), checkpoint_of_delta_runs()] {
        for file in checkpoint.files() {
            let path = checkpoint.path(file);
            let bytes = std::fs::read(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            checkpoint.check(&format!("{file} missing"), |segment| segment.file == file);
            std::fs::write(&path, &bytes).unwrap();
        }
    }
}

/// A rebuilt store depends on segments that may be reclaimed at any time: its next commit, also one
/// without changes, writes all of it.
#[test]
fn the_commit_after_a_rebuild_depends_on_nothing_older() {
    for changes in [true, false] {
        let checkpoint = checkpoint(Compression::Lz4);
        let version = checkpoint.versions.last().unwrap();
        let storage = checkpoint.storage.as_ref();
        let newest = version.id.segment.unwrap();
        let image = read_head(storage, &newest, &version.owner).unwrap().lineage[0];
        let path = checkpoint.path(image.file);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[image.offset as usize + 30] ^= 1;
        std::fs::write(&path, bytes).unwrap();

        let mut store = StateStore::new(version.owner.clone(), plain());
        store
            .open(checkpoint.storage.as_ref(), 7, Some(&version.id))
            .unwrap();
        assert!(store.take_warning().unwrap().contains("new base image"));
        assert_eq!(store.take_warning(), None, "returned once");
        let writer = SegmentWriter::open(
            Arc::clone(&checkpoint.storage),
            Term(2),
            options(1 << 20, Compression::Lz4),
        );
        assert!(
            store.merge_task(&writer, 1, &HashSet::new()).is_none(),
            "nothing is merged from a damaged image"
        );
        assert_eq!(store.begin().unwrap_err().kind(), ErrorKind::InvalidInput);
        store.mend(&writer).unwrap();
        store.begin().unwrap();
        if changes {
            store.put(FIRST_FAMILY, b"new", b"1").unwrap();
        }
        let id = store.commit(&writer).unwrap();
        let expected = content(&mut store);
        assert_eq!(
            id.floor.0, 7,
            "the version that the new image was written at"
        );
        for file in checkpoint.files() {
            std::fs::remove_file(checkpoint.path(file)).unwrap();
        }
        let mut reader = StateStore::new(version.owner.clone(), plain());
        reader
            .open(checkpoint.storage.as_ref(), 8, Some(&id))
            .unwrap();
        assert_eq!(content(&mut reader), expected);
        assert_eq!(expected.contains_key("new"), changes);
        assert_eq!(reader.take_warning(), None);
    }
}

/// The content of a store over runs: each key by itself, and all of them.
fn read_all(store: &mut StateStore) -> Result<Content, Error> {
    let mut found = Content::new();
    for number in 0..4 {
        let key = format!("key-{number}");
        if let Some(value) = store.get(FIRST_FAMILY, key.as_bytes())? {
            found.insert(key, String::from_utf8(value.to_vec()).unwrap());
        }
    }
    let all = ScanOf::Keys(KeyRange::All);
    store.scan(FIRST_FAMILY, all, usize::MAX, &mut Vec::new())?;
    assert_eq!(content(store), found);
    Ok(found)
}

#[test]
fn a_flip_of_every_byte_while_a_store_lies_over_the_runs() {
    let checkpoint = checkpoint_of_delta_runs();
    let mut reported = 0;
    for version in checkpoint
        .versions
        .iter()
        .filter(|v| !v.id.deltas.is_empty())
    {
        let (id, owner) = (&version.id, &version.owner);
        let broken_way = |segment: &SegmentRef| {
            let mut ways = version.ways.iter();
            ways.all(|way| way.contains(segment))
        };
        for segment in &version.ways[0] {
            let path = checkpoint.path(segment.file);
            let good = std::fs::read(&path).unwrap();
            for at in segment.offset..end(segment) {
                let mut store = StateStore::within(owner.clone(), plain(), no_memory());
                let storage = checkpoint.storage.as_ref();
                store.open(storage, id.version, Some(id)).unwrap();
                let mut damaged = good.clone();
                damaged[at as usize] ^= 0x10;
                std::fs::write(&path, &damaged).unwrap();
                match read_all(&mut store) {
                    Ok(found) => assert_eq!(found, version.content, "{segment} at {at}"),
                    Err(error) => {
                        reported += 1;
                        let offset = format!("offset {}", segment.offset);
                        let names = [path.to_str().unwrap(), &offset, &owner.to_string()];
                        assert_damage(&error, &names);
                        // The task that is tried again finds a way around the damage.
                        let opened = store.open(storage, id.version, Some(id));
                        assert_eq!(opened.is_err(), broken_way(segment), "{opened:?}");
                        if opened.is_ok() {
                            assert!(store.take_warning().is_some());
                            assert_eq!(read_all(&mut store).unwrap(), version.content);
                        }
                    }
                }
                std::fs::write(&path, &good).unwrap();
            }
        }
    }
    assert!(reported > 1_000, "{reported} bytes");
}

impl Checkpoint {
    /// Opens a version while a segment is damaged, which is rebuilt.
    fn rebuilt(&self, owner: &Owner, id: &CommitId, damaged: &SegmentRef) -> StateStore {
        let path = self.path(damaged.file);
        let good = std::fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[damaged.offset as usize + 30] ^= 1;
        std::fs::write(&path, bad).unwrap();
        let mut store = StateStore::new(owner.clone(), plain());
        store
            .open(self.storage.as_ref(), id.version, Some(id))
            .unwrap();
        assert!(store.take_warning().unwrap().contains("new base image"));
        std::fs::write(&path, good).unwrap();
        store
    }
}

/// The image that is written around damage is damaged, too: it replaces all that the store had.
#[test]
fn what_was_rebuilt_can_be_rebuilt_again() {
    let checkpoint = checkpoint_of_delta_runs();
    let mut rebuilt = 0;
    for Version {
        owner,
        id,
        content: expected,
        ..
    } in &checkpoint.versions
    {
        let newest = id.segment.unwrap();
        let head =
            |segment: &SegmentRef| read_head(checkpoint.storage.as_ref(), segment, owner).unwrap();
        let segments = [head(&newest).lineage, vec![newest]].concat();
        for run in segments.iter().filter(|s| head(s).kind == SegmentKind::Run) {
            let mut store = checkpoint.rebuilt(owner, id, run);
            assert_eq!(&content(&mut store), expected);
            let writer = SegmentWriter::open(
                Arc::clone(&checkpoint.storage),
                Term(2 + rebuilt),
                options(1, Compression::None),
            );
            store.mend(&writer).unwrap();
            store.begin().unwrap();
            let next = store.commit(&writer).unwrap();
            let image = head(&next.segment.unwrap()).lineage[0];
            assert_eq!(head(&image).kind, SegmentKind::Run);
            let mut store = checkpoint.rebuilt(owner, &next, &image);
            assert_eq!(&content(&mut store), expected, "{run}, then {image}");
            rebuilt += 1;
        }
    }
    assert!(rebuilt > 4, "every run of every version");
}
