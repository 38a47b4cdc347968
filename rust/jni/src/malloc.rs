//! Memory that stores gave up and that malloc keeps.

use std::sync::Once;

use holdfast_core::state::MemoryBudget;

/// Where stores come close to what memory they may take, has malloc give back to the kernel what it keeps:
/// large blocks at once, and what else there is each time that stores took, gave up or copied much. Stores
/// that only grow leave holes as well: with state from 0.2 to 0.97 of its target, malloc kept 0.19 of it.
///
/// Left alone, glibc's malloc gives back the end of a heap, and blocks of 128 KiB or more at first: once one
/// of 1 MiB was freed, such blocks lie in heaps as well, between others that stay. State that kept to
/// 64 MiB had 130 MiB resident after 30 batches so. Another malloc, preloaded, does as it does.
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

/// Gives the memory behind `bytes` back to the kernel, but for its ends: malloc keeps of what is freed what
/// was not a mapping of its own. That is most of a store that grew before memory was short.
#[cfg(target_os = "linux")]
pub(crate) fn release(bytes: &mut [u8]) {
    let page = rustix::param::page_size();
    let front = bytes.as_ptr().align_offset(page);
    let whole = bytes.get_mut(front..).unwrap_or_default();
    let len = whole.len() / page * page;
    if len > 0 {
        // SAFETY: the range is of whole pages and exclusively borrowed, and bytes stay valid as zeros. What
        // the kernel refuses stays as it is.
        unsafe { libc::madvise(whole.as_mut_ptr().cast(), len, libc::MADV_DONTNEED) };
    }
}

/// Elsewhere it is not known what the call does.
#[cfg(not(target_os = "linux"))]
pub(crate) fn release(_: &mut [u8]) {}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: it takes malloc's own locks, and touches no block in use.
    unsafe { libc::malloc_trim(0) };
}

/// Gives blocks of 96 KiB or more a mapping of their own from now on, which goes back to the kernel with
/// them. A scan takes a buffer of 64 KiB for each of its batches: such a one is not worth a mapping.
#[cfg(target_env = "gnu")]
fn map_large_blocks() {
    /// What the user has set stays.
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
    // Half of the mappings that the kernel lets a process have (`vm.max_map_count`, 65,530): the JVM needs
    // some as well. What comes beyond lies in heaps.
    set(
        libc::M_MMAP_MAX,
        32 << 10,
        "MALLOC_MMAP_MAX_",
        "glibc.malloc.mmap_max",
    );
}

/// Others have no such calls.
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

    /// Bytes that stay resident of pages of so many bytes that are freed, with small blocks between them.
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
