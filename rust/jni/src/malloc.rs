//! Memory that stores freed but malloc keeps.

use std::sync::Once;

use holdfast_core::state::MemoryBudget;

/// Lets malloc return free memory to the kernel if stores come close to their memory target. Large
/// blocks go back when they are freed. The rest goes back each time that stores took, freed or
/// copied much. Stores that only grow leave holes as well: while state grew from 0.2 to 0.97 of its
/// target, malloc kept 0.19 of the target.
///
/// By itself, glibc's malloc returns only the end of a heap, and blocks of 128 KiB or more. Once a
/// block of 1 MiB was freed, it raises that bound, and such blocks are among others in heaps. State
/// of 64 MiB then had 130 MiB resident after 30 batches. Another, preloaded malloc is not changed.
pub(crate) fn give_back(memory: &MemoryBudget) {
    static LARGE_BLOCKS: Once = Once::new();
    if !memory.is_tight() {
        return;
    }
    LARGE_BLOCKS.call_once(map_large_blocks);
    if memory.take_turnover() {
        trim();
    }
}

/// Returns the whole pages of `bytes` to the kernel before `bytes` is freed. Malloc keeps freed
/// blocks without a mapping of their own. A store that grew before memory was short has many.
pub(crate) fn release(bytes: &mut [u8]) {
    let page = rustix::param::page_size();
    let front = bytes.as_ptr().align_offset(page);
    let whole = bytes.get_mut(front..).unwrap_or_default();
    let len = whole.len() / page * page;
    if len > 0 {
        // SAFETY: the range has whole pages and is exclusively borrowed, and bytes stay valid as
        // zeros. If the kernel refuses, the bytes are unchanged.
        unsafe { libc::madvise(whole.as_mut_ptr().cast(), len, libc::MADV_DONTNEED) };
    }
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: the call takes malloc's own locks, and touches no block in use.
    unsafe { libc::malloc_trim(0) };
}

/// Gives new blocks of 96 KiB or more a mapping of their own, which goes back to the kernel with
/// the block. A scan takes a buffer of 64 KiB for each batch, which is not worth a mapping.
#[cfg(target_env = "gnu")]
fn map_large_blocks() {
    /// Keeps a value that the user has set.
    fn set(parameter: i32, value: i32, variable: &str, tunable: &str) {
        let tunables = std::env::var("GLIBC_TUNABLES").unwrap_or_default();
        if std::env::var_os(variable).is_none() && !tunables.contains(tunable) {
            // SAFETY: malloc takes its own lock, and allows these values.
            unsafe { libc::mallopt(parameter, value) };
        }
    }
    set(
        libc::M_MMAP_THRESHOLD,
        96 << 10,
        "MALLOC_MMAP_THRESHOLD_",
        "glibc.malloc.mmap_threshold",
    );
    // Half of the mappings that the kernel allows a process (`vm.max_map_count`, 65,530): the JVM
    // needs some as well. Further blocks are in heaps.
    set(
        libc::M_MMAP_MAX,
        32 << 10,
        "MALLOC_MMAP_MAX_",
        "glibc.malloc.mmap_max",
    );
}

// Other C libraries have no such calls.
#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(not(target_env = "gnu"))]
fn map_large_blocks() {}

#[cfg(all(test, target_env = "gnu"))]
#[path = "malloc_tests.rs"]
mod tests;
