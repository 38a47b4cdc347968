//! Memory that stores freed but malloc keeps.

use std::sync::Once;

use holdfast_core::state::MemoryBudget;

/// Lets malloc return free memory to the kernel if stores come close to their memory target. Large
/// blocks go back when they are freed. The rest goes back each time that stores took, freed or
/// copied much. Stores that only grow leave holes as well: while state grew from 0.2 to 0.97 of its
/// target, malloc kept 0.19 of the target.
///
/// By itself, glibc's malloc returns only the end of a heap, and blocks of 128 KiB or more. Once a
/// block of 1 MiB was freed, it raises that bound, and such blocks lie between others in heaps.
/// State of 64 MiB then had 130 MiB resident after 30 batches. A preloaded malloc of another kind
/// is left alone.
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
/// blocks that have no mapping of their own, and a store that grew before memory was short has many
/// of them.
pub(crate) fn release(bytes: &mut [u8]) {
    let page = rustix::param::page_size();
    let front = bytes.as_ptr().align_offset(page);
    let whole = bytes.get_mut(front..).unwrap_or_default();
    let len = whole.len() / page * page;
    if len > 0 {
        // SAFETY: the range has whole pages and is exclusively borrowed, and bytes stay valid as
        // zeros. If the kernel refuses, the bytes stay as they are.
        unsafe { libc::madvise(whole.as_mut_ptr().cast(), len, libc::MADV_DONTNEED) };
    }
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: the call takes malloc's own locks, and touches no block in use.
    unsafe { libc::malloc_trim(0) };
}

/// Gives blocks of 96 KiB or more a mapping of their own from now on, which goes back to the kernel
/// with the block. A scan takes a buffer of 64 KiB for each batch, which is not worth a mapping.
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
    // Half of the mappings that the kernel allows a process (`vm.max_map_count`, 65,530), because
    // the JVM needs some as well. Further blocks lie in heaps.
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
mod tests {
    #![allow(clippy::unwrap_used)]
    use parking_lot::Mutex;

    use super::*;

    const PAGE: usize = 1 << 20;
    const PAGES: usize = 256;

    /// Both tests look at the memory of the process.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    fn resident_bytes() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:"));
        let kib = line.unwrap().split_whitespace().nth(1).unwrap();
        kib.parse::<usize>().unwrap() << 10
    }

    /// Bytes that stay resident of pages of so many bytes that are freed, with small blocks between
    /// them.
    fn left_of_pages(bytes: usize, and_then: impl Fn()) -> usize {
        let before = resident_bytes();
        let number = PAGES * PAGE / bytes;
        let (pages, between): (Vec<_>, Vec<_>) = (0..number)
            .map(|_| (vec![1u8; bytes], vec![1u8; 1000]))
            .unzip();
        assert!(resident_bytes() >= before + PAGES * PAGE);
        drop(std::hint::black_box(pages));
        and_then();
        let left = resident_bytes().saturating_sub(before);
        drop(std::hint::black_box(between));
        left
    }

    #[test]
    fn large_blocks_go_back_to_the_kernel_when_they_are_freed() {
        let _turn = ONE_AT_A_TIME.lock();
        // Left alone, blocks of this size lie in heaps from here on.
        drop(std::hint::black_box(vec![1u8; 4 * PAGE]));
        map_large_blocks();
        let left = left_of_pages(PAGE, || {});
        assert!(left < PAGES * PAGE / 10, "{left} bytes are left");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_released_goes_back_to_the_kernel_before_it_is_freed() {
        let _turn = ONE_AT_A_TIME.lock();
        let mut kept: Vec<_> = (0..PAGES).map(|_| vec![1u8; 64 << 10]).collect();
        let before = resident_bytes();
        for bytes in &mut kept {
            let (first, rest) = bytes.split_first_mut().unwrap();
            release(rest);
            assert_eq!(*first, 1, "what lies beside it");
            release(rest.get_mut(1..10).unwrap());
        }
        let gone = before.saturating_sub(resident_bytes());
        assert!(gone > PAGES * (56 << 10), "{gone} bytes are gone");
        let left = kept.iter().flatten().filter(|byte| **byte == 1).count();
        assert!(left < PAGES * (8 << 10), "{left} bytes are as they were");
        for bytes in &mut kept {
            bytes.fill(2);
        }
        assert!(kept.iter().flatten().all(|byte| *byte == 2));
    }

    #[test]
    fn what_is_free_between_blocks_in_use_goes_back_to_the_kernel() {
        let _turn = ONE_AT_A_TIME.lock();
        let left = left_of_pages(64 << 10, trim);
        assert!(left < PAGES * PAGE / 5, "{left} bytes are left");
    }
}
