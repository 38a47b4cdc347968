//! Ids of stores in Spark's commit log, which only the core reads and writes.

use holdfast_core::Error;
use holdfast_core::state::{StoreId, ViewId};
use jni::Env;
use jni::objects::JString;
use jni::sys::{jint, jlong};

use crate::convert::{JStrings, java_strings, strings};
use crate::guard::{Failure, Result, natives};

natives! {
    env fn id_prefix() -> JString;
    env fn view_prefix() -> JString;
    env fn read_view(id: JString) -> [JString];
    env fn view_id(batch: jlong, from: jint, to: jint, store: JString, parents: [JString]) -> JString;
}

fn id_prefix<'local>(env: &mut Env<'local>) -> Result<JString<'local>> {
    Ok(env.new_string(StoreId::PREFIX)?)
}

fn view_prefix<'local>(env: &mut Env<'local>) -> Result<JString<'local>> {
    Ok(env.new_string(StoreId::VIEW_PREFIX)?)
}

/// Batch, both numbers of partitions and the name of the store, then each partition and its id.
fn read_view<'local>(env: &mut Env<'local>, id: JString<'_>) -> Result<JStrings<'local>> {
    let text = id.try_to_string(env)?;
    let StoreId::View(view) = text.parse()? else {
        let why = format!("{text:?} is not the id of a view");
        return Err(Failure::from(Error::invalid_input(why)));
    };
    let mut parts = vec![
        view.batch.to_string(),
        view.from.to_string(),
        view.to.to_string(),
        view.store,
    ];
    for (partition, parent) in view.parents {
        parts.extend([partition.to_string(), parent]);
    }
    java_strings(env, &parts)
}

/// Inverse of [`read_view`].
fn view_id<'local>(
    env: &mut Env<'local>,
    batch: jlong,
    from: jint,
    to: jint,
    store: JString<'_>,
    parents: JStrings<'_>,
) -> Result<JString<'local>> {
    let parents = strings(env, &parents)?;
    let (pairs, _) = parents.as_chunks::<2>();
    let view = ViewId {
        batch: batch as u64,
        from: from as u32,
        to: to as u32,
        store: store.try_to_string(env)?,
        parents: pairs
            .iter()
            .map(|[partition, id]| Ok((partition.parse()?, id.clone())))
            .collect::<Result<_, std::num::ParseIntError>>()
            .map_err(|e| Error::invalid_input(format!("a partition of a view: {e}")))?,
    };
    Ok(env.new_string(view.to_string())?)
}
