//! Makes a physical file whose writer is gone from copies of what the writer appended.

use crate::error::{Error, Result};
use crate::format::{FileIndex, encode_footer, scan_index};
use crate::ids::FileId;
use crate::storage::{ReadFile, Storage, check_range};

/// Creates `file` with these bytes, which begin with its header, and a footer. The offsets of segments
/// are those of the writer, so commit ids remain right. Returns the index of the file.
///
/// # Errors
/// `Corrupt` if the bytes are not whole segments of the file; `AlreadyExists` if the file is there;
/// errors of storage.
pub fn create_from_copies(
    storage: &dyn Storage,
    file: FileId,
    bytes: Vec<u8>,
) -> Result<FileIndex> {
    let copied = Copied(bytes);
    let mut index = scan_index(&copied, file)?;
    if index.torn_bytes + index.damaged_bytes > 0 {
        return Err(Error::corrupt(format!(
            "copies of {}/{file} are no whole segments",
            storage.location()
        )));
    }
    let footer = encode_footer(file, copied.size_bytes(), &index.segments)?;
    let mut handle = storage.create(&file.file_name())?;
    handle.append(&copied.0)?;
    handle.append(&footer)?;
    handle.finish()?;
    index.sealed = true;
    index.file_bytes += footer.len() as u64;
    Ok(index)
}

#[derive(Debug)]
struct Copied(Vec<u8>);

impl ReadFile for Copied {
    fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        check_range("copies", self.size_bytes(), offset, len)?;
        let range = offset as usize..(offset + len) as usize;
        Ok(self.0.get(range).unwrap_or_default().to_vec())
    }
}
