//! Calls made by the driver: terms, durability before `commits/N` is published, and reclaiming
//! files that no retained version needs.

use std::collections::{BTreeMap, HashMap, HashSet};

use holdfast_core::state::CommitId;
use holdfast_core::{CheckpointId, Error, FileId, Owner, OwnerTag, SegmentRef, Term, gc};
use jni::objects::{JClass, JLongArray, JObject, JObjectArray, JString};
use jni::sys::jlong;
use jni::{EnvUnowned, jni_sig, jni_str};
use parking_lot::Mutex;

use crate::convert::{LongRecord, file_id, java_strings, strings};
use crate::folders::storage;
use crate::guard::{primitive, with_env};
use crate::handles::Handles;

/// What a driver knows about sealed files, from one reclaim to the next.
static INDEX_CACHES: Handles<Mutex<gc::IndexCache>> = Handles::new("index cache");

/// `Native.openIndexCache(): long`.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_openIndexCache<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
) -> jlong {
    primitive(env, || Ok(INDEX_CACHES.insert(Mutex::default())))
}

/// `Native.closeIndexCache(long cache)`. Closing twice does nothing.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_closeIndexCache<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    cache: jlong,
) {
    primitive(env, || {
        INDEX_CACHES.remove(cache);
        Ok(())
    });
}

/// `Native.newestTerm(String dir, HadoopFiles files): long`: the highest term that any file in
/// `dir` carries, 0 when there is none. Terms that no manager was given do not count.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_newestTerm<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    dir: JString<'local>,
    files: JObject<'local>,
) -> jlong {
    with_env(env, |env| {
        let listed = storage(env, &dir, &files)?.list()?;
        let newest = listed
            .iter()
            .filter_map(|object| FileId::parse(&object.name))
            .map(|file| file.term)
            .filter(|term| term.can_be_given())
            .max();
        Ok(newest.map_or(0, |term| term.0 as jlong))
    })
}

/// `record FileEnd(long term, long number, long end)`.
const FILE_END: LongRecord = LongRecord {
    class: jni_str!("io/holdfast/spark/FileEnd"),
    constructor: jni_sig!("(JJJ)V"),
};

/// `Native.referencedEnds(String[] ids): FileEnd[]`: the files that `ids` refer to, each with the end
/// of the last segment that is referred to.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_referencedEnds<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    ids: JObjectArray<'local, JString<'local>>,
) -> JObjectArray<'local> {
    with_env(env, |env| {
        let mut ends: BTreeMap<FileId, u64> = BTreeMap::new();
        for text in strings(env, &ids)? {
            if let Some(SegmentRef {
                file, offset, len, ..
            }) = text.parse::<CommitId>()?.segment
            {
                let end = ends.entry(file).or_default();
                *end = offset.saturating_add(len).max(*end);
            }
        }
        let rows: Vec<_> = ends
            .iter()
            .map(|(file, end)| [file.term.0, u64::from(file.seq), *end])
            .collect();
        FILE_END.array(env, &rows)
    })
}

/// `Native.adoptFile(String dir, HadoopFiles files, long term, long number, long end)`: makes a file
/// whose writer is gone survive a machine crash, as far as storage can do that for the file of
/// another process, and checks that nothing of it is missing before `end`. A file that is gone, or
/// shorter, is an error.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_adoptFile<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    dir: JString<'local>,
    files: JObject<'local>,
    term: jlong,
    number: jlong,
    end: jlong,
) {
    with_env(env, |env| {
        let storage = storage(env, &dir, &files)?;
        let name = file_id(Term(term as u64), number)?.file_name();
        if storage.capabilities().sync_by_name {
            storage.sync(&name)?;
        }
        let found = storage.len(&name)?;
        let end = u64::try_from(end).unwrap_or(u64::MAX);
        if found < end {
            return Err(Error::corrupt(format!(
                "{}/{name} has {found} bytes, the batch refers to {end}",
                storage.location()
            ))
            .into());
        }
        Ok(())
    });
}

/// The oldest versions that are needed, by store.
#[derive(Default)]
struct Floors {
    of_stores: HashMap<OwnerTag, CheckpointId>,
    /// By `operator/partition`, for ids that do not say whose they are: the oldest of the stores of a
    /// partition speaks for all.
    of_partitions: HashMap<String, CheckpointId>,
}

impl Floors {
    fn add(&mut self, partition: String, id: &CommitId) {
        let floor = match id.owner {
            Some(owner) => self.of_stores.entry(owner).or_insert(id.floor),
            None => self.of_partitions.entry(partition).or_insert(id.floor),
        };
        *floor = id.floor.min(*floor);
    }

    /// `None` for a store that nobody told of: it keeps everything.
    fn of(&self, owner: &Owner) -> Option<CheckpointId> {
        let of_store = self.of_stores.get(&owner.tag());
        of_store.copied().or_else(|| {
            let partition = format!("{}/{}", owner.operator, owner.region);
            self.of_partitions.get(&partition).copied()
        })
    }
}

/// `Native.reclaim(long cache, String dir, HadoopFiles files, String[] partitions, String[] ids,
/// long[] liveTerms, long newestTerm): String[]`: deletes the files that nobody appends to and that
/// hold nothing a retained version needs.
///
/// `cache` knows the files that earlier calls found sealed. `ids[i]` is the id of a store of
/// `partitions[i]` (`operator/partition`) in the oldest retained entry of the commit log;
/// `liveTerms` are the terms that may still append, `newestTerm` is the newest that was given.
/// Returns what was done, for the log, empty when nothing was; the bytes of the closed files that are
/// left; how many of these nobody needs; and the names of the most wasteful files.
#[unsafe(no_mangle)]
extern "system" fn Java_io_holdfast_spark_Native_reclaim<'local>(
    env: EnvUnowned<'local>,
    _class: JClass<'local>,
    cache: jlong,
    dir: JString<'local>,
    files: JObject<'local>,
    partitions: JObjectArray<'local, JString<'local>>,
    ids: JObjectArray<'local, JString<'local>>,
    live_terms: JLongArray<'local>,
    newest_term: jlong,
) -> JObjectArray<'local, JString<'local>> {
    with_env(env, |env| {
        let storage = storage(env, &dir, &files)?;
        let mut floors = Floors::default();
        for (partition, id) in strings(env, &partitions)?
            .into_iter()
            .zip(strings(env, &ids)?)
        {
            floors.add(partition, &id.parse()?);
        }
        let mut terms = vec![0; live_terms.len(env)?];
        live_terms.get_region(env, 0, &mut terms)?;
        let live: HashSet<Term> = terms.into_iter().map(|term| Term(term as u64)).collect();
        let floor_of = |owner: &Owner| floors.of(owner);
        let may_append = |term: Term| live.contains(&term);
        let newest = Term(newest_term as u64);
        let indexes = INDEX_CACHES.get(cache)?;
        let report = gc::reclaim(
            storage.as_ref(),
            &mut indexes.lock(),
            &floor_of,
            &may_append,
            newest,
        )?;
        let mut said = Vec::new();
        if !report.deleted.is_empty() {
            let (files, bytes) = (report.deleted.len(), report.deleted_bytes);
            said.push(format!("deleted {files} files of {bytes} bytes"));
        }
        for (what, list) in [
            ("kept unreadable", &report.unreadable),
            ("could not delete", &report.failed),
        ] {
            said.extend(
                list.iter()
                    .map(|(file, error)| format!("{what} {file}: {error}")),
            );
        }
        let space = &report.space;
        let mut answer = vec![
            said.join("; "),
            space.physical_bytes.to_string(),
            space.pinned_bytes().to_string(),
        ];
        answer.extend(space.wasteful.iter().map(FileId::file_name));
        java_strings(env, &answer)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(owner: Option<&Owner>, floor: u64) -> CommitId {
        CommitId {
            version: 9,
            floor: CheckpointId(floor),
            owner: owner.map(Owner::tag),
            segment: None,
            replaced: None,
        }
    }

    #[test]
    fn a_store_that_rests_does_not_hold_up_the_others_of_its_partition() {
        let [busy, idle, untold] =
            ["left", "right", "none"].map(|store| Owner::new("", "0", "7", store));
        let mut floors = Floors::default();
        floors.add("0/7".to_owned(), &id(Some(&busy), 8));
        floors.add("0/7".to_owned(), &id(Some(&idle), 1));
        assert_eq!(floors.of(&busy), Some(CheckpointId(8)));
        assert_eq!(floors.of(&idle), Some(CheckpointId(1)));
        assert_eq!(floors.of(&untold), None);
    }

    #[test]
    fn of_ids_that_do_not_say_whose_they_are_the_oldest_speaks_for_the_partition() {
        let mut floors = Floors::default();
        for floor in [8, 1, 5] {
            floors.add("0/7".to_owned(), &id(None, floor));
        }
        let of = |partition| floors.of(&Owner::new("", "0", partition, "left"));
        assert_eq!(of("7"), Some(CheckpointId(1)));
        assert_eq!(of("8"), None);
    }
}
