//! Ids of stores in Spark's commit log, which only the core reads and writes.

use holdfast_core::Error;
use holdfast_core::state::{StoreId, ViewId};
use jni::sys::{jint, jlong};

use crate::guard::{Failure, Result, natives};

natives! {
    rust fn id_prefix() -> JString;
    rust fn view_prefix() -> JString;
    rust fn read_view(id: JString) -> [JString];
    rust fn view_id(batch: jlong, from: jint, to: jint, store: JString, parents: [JString]) -> JString;
}

fn id_prefix() -> Result<String> {
    Ok(StoreId::PREFIX.to_owned())
}

fn view_prefix() -> Result<String> {
    Ok(StoreId::VIEW_PREFIX.to_owned())
}

/// Batch, both numbers of partitions and the name of the store, then each partition and its id.
fn read_view(text: String) -> Result<Vec<String>> {
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
    Ok(parts)
}

/// Inverse of [`read_view`].
fn view_id(
    batch: jlong,
    from: jint,
    to: jint,
    store: String,
    parents: Vec<String>,
) -> Result<String> {
    let (pairs, _) = parents.as_chunks::<2>();
    let view = ViewId {
        batch: batch as u64,
        from: from as u32,
        to: to as u32,
        store,
        parents: pairs
            .iter()
            .map(|[partition, id]| Ok((partition.parse()?, id.clone())))
            .collect::<Result<_, std::num::ParseIntError>>()
            .map_err(|e| Error::invalid_input(format!("a partition of a view: {e}")))?,
    };
    Ok(view.to_string())
}
