//! The files of leases and branches: a line of JSON, and a line with its checksum.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::ids::Term;
use crate::state::{StoreId, VersionId};

const VERSION: u64 = 1;

/// Facts of a clean-up that end leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The oldest retained batch.
    pub oldest: u64,
    /// The time, in milliseconds since 1970.
    pub ms: u64,
}

/// Keeps the state of one batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The batch.
    pub batch: u64,
    /// Tells the lease from others that had its name.
    pub id: String,
    /// The checkpoint folder of a branch; `None` for a tag.
    pub branch: Option<String>,
    /// When it was made, in milliseconds since 1970. Only people read it.
    pub made_ms: u64,
    /// It ends once this is the oldest retained batch: a later batch that continues from an earlier
    /// one. `None` for tags and branches.
    #[serde(default)]
    pub until: Option<u64>,
    /// It ends at this time, in milliseconds since 1970: that of a reader, which may die.
    #[serde(default)]
    pub expires_ms: Option<u64>,
    /// Operator, partition and id of each store, as the commit log has them.
    pub stores: Vec<(u32, u32, String)>,
}

impl Lease {
    pub(super) fn has_ended(&self, now: Now) -> bool {
        self.until.is_some_and(|batch| batch <= now.oldest)
            || self.expires_ms.is_some_and(|end| end <= now.ms)
    }

    /// `operator/partition` and id of all versions that it keeps. A view stands for other stores.
    ///
    /// # Errors
    /// `Corrupt`, `Newer` and `Unsupported` for an id that is not whole, or not Holdfast's.
    pub fn versions(&self) -> Result<Vec<(String, VersionId)>> {
        let mut found = Vec::new();
        for (operator, partition, text) in &self.stores {
            for (partition, id) in StoreId::needed(*partition, text)? {
                found.push((format!("{operator}/{partition}"), id));
            }
        }
        Ok(found)
    }

    /// Reads the content of its file, and its ids.
    ///
    /// # Errors
    /// `Corrupt` and `Newer`; errors of [`Lease::versions`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let lease: Self = decode(bytes)?;
        lease.versions()?;
        Ok(lease)
    }
}

/// Where a branch finds the segments that it began with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The folder of the parent's physical files: a local path or a URI.
    pub folder: String,
    /// Files of terms up to this one are the parent's. Managers of the branch have newer terms.
    pub until: u64,
    /// The name of the lease there.
    pub lease: String,
}

impl Parent {
    /// The newest term of the parent's files.
    pub fn until(&self) -> Term {
        Term(self.until)
    }

    /// Reads the content of its file.
    ///
    /// # Errors
    /// `Corrupt` and `Newer`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        decode(bytes)
    }
}

/// The JSON of the content, for other languages.
macro_rules! in_json {
    ($record:ty) => {
        impl $record {
            /// The content of its file.
            ///
            /// # Errors
            /// None that a caller can cause.
            pub fn to_bytes(&self) -> Result<Vec<u8>> {
                encode(self)
            }

            /// Its keys as JSON.
            ///
            /// # Errors
            /// None that a caller can cause.
            pub fn to_json(&self) -> Result<String> {
                serde_json::to_string(self).map_err(invalid)
            }

            /// Reads its keys from JSON.
            ///
            /// # Errors
            /// `InvalidInput`.
            pub fn from_json(json: &str) -> Result<Self> {
                serde_json::from_str(json).map_err(invalid)
            }
        }
    };
}

in_json!(Lease);
in_json!(Parent);

fn invalid(error: serde_json::Error) -> Error {
    Error::invalid_input(error.to_string())
}

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    version: u64,
    content: T,
}

/// Any version, to tell a newer file from a damaged one.
#[derive(Deserialize)]
struct AnyVersion {
    version: u64,
}

fn encode<T: Serialize>(content: &T) -> Result<Vec<u8>> {
    let record = Versioned {
        version: VERSION,
        content,
    };
    let text = serde_json::to_string(&record).map_err(invalid)?;
    Ok(format!("{text}\n{:08x}\n", crc32c::crc32c(text.as_bytes())).into_bytes())
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let damaged = || Error::corrupt("expected a line of JSON and its checksum: it is damaged");
    let text = str::from_utf8(bytes).map_err(|_| damaged())?;
    let (json, checksum) = text.split_once('\n').ok_or_else(damaged)?;
    if checksum != format!("{:08x}\n", crc32c::crc32c(json.as_bytes())) {
        return Err(damaged());
    }
    let AnyVersion { version } = serde_json::from_str(json).map_err(|_| damaged())?;
    if version > VERSION {
        return Err(Error::newer("version of a lease", VERSION, version));
    }
    let record: Versioned<T> = serde_json::from_str(json).map_err(|_| damaged())?;
    Ok(record.content)
}
