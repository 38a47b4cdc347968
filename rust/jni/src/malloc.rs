//! Memory that stores gave up and that malloc keeps.

use holdfast_core::state::MemoryBudget;

/// Has malloc give back to the kernel what it keeps, if stores gave up much since it last did.
///
/// Left alone, glibc's malloc gives back the end of a heap, and blocks of 128 KiB or more at first: once one
/// of 1 MiB was freed, such blocks lie in heaps as well, between others that stay. State that kept to
/// 64 MiB had 130 MiB resident after 30 batches so. Another malloc, preloaded, does as it does.
pub(crate) fn give_back(memory: &MemoryBudget) {
    if memory.take_given_up() {
        trim();
    }
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: it takes malloc's own locks, and touches no block in use.
    unsafe { libc::malloc_trim(0) };
}

/// Others have no such call.
#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PAGE: usize = 1 << 20;
    const PAGES: usize = 256;

    fn resident_bytes() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:"));
        let kib = line.unwrap().split_whitespace().nth(1).unwrap();
        kib.parse::<usize>().unwrap() << 10
    }

    #[test]
    fn what_is_free_between_blocks_in_use_goes_back_to_the_kernel() {
        // From here on blocks of this size lie in heaps.
        drop(std::hint::black_box(vec![1u8; 4 * PAGE]));
        let before = resident_bytes();
        let (pages, between): (Vec<_>, Vec<_>) = (0..PAGES)
            .map(|_| (vec![1u8; PAGE], vec![1u8; 1000]))
            .unzip();
        assert!(resident_bytes() >= before + PAGES * PAGE);
        drop(std::hint::black_box(pages));
        trim();
        let left = resident_bytes().saturating_sub(before);
        assert!(left < PAGES * PAGE / 10, "{left} bytes are left");
        drop(std::hint::black_box(between));
    }
}
