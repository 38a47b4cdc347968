//! Files that this process has open.

use std::path::Path;

/// Paths below `folder` that this process has open, each as often as it has. Deleted ones end in
/// ` (deleted)`.
pub fn open_below(folder: &Path) -> Vec<String> {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    // Other threads open and close theirs at the same time.
    let targets = descriptors.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
    let names = targets.map(|target| target.to_string_lossy().into_owned());
    let folder = format!("{}/", folder.to_str().unwrap());
    names.filter(|name| name.starts_with(&folder)).collect()
}
