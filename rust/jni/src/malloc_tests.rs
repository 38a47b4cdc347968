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
    // By default, blocks of this size are in heaps from here on.
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
