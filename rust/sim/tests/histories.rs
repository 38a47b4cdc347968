//! Thousands of random histories. A failing one is run again with
//! `HOLDFAST_SIM_SEED=<seed> cargo test -p holdfast-sim --test histories`, which prints every step;
//! `HOLDFAST_SIM_HISTORIES=<n>` runs more or fewer, and `HOLDFAST_SIM_FIRST=<seed>` others, as `make fuzz`
//! does.
#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_sim::{Summary, run};

const HISTORIES: u64 = 1500;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
    )
}

/// A broken assertion inside the manager is a failure of that seed too.
fn checked(seed: u64) -> Result<Summary, String> {
    catch_unwind(AssertUnwindSafe(|| run(seed, false)))
        .unwrap_or_else(|_| Err(format!("seed {seed}: panicked")))
}

#[test]
fn retained_checkpoints_are_readable_and_nothing_else_is_kept() {
    if let Some(seed) = number("HOLDFAST_SIM_SEED") {
        match run(seed, true) {
            Ok(summary) => println!("seed {seed}: {summary:?}"),
            Err(e) => panic!("{e}"),
        }
        return;
    }
    let histories = number("HOLDFAST_SIM_HISTORIES").unwrap_or(HISTORIES);
    let first = number("HOLDFAST_SIM_FIRST").unwrap_or(0);
    let next = AtomicU64::new(first);
    let workers = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(4);
    let (total, failures) = std::thread::scope(|scope| {
        let work = || {
            let (mut total, mut failures) = (Summary::default(), Vec::new());
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed - first >= histories {
                    return (total, failures);
                }
                match checked(seed) {
                    Ok(summary) => total.add(&summary),
                    Err(e) => failures.push(e),
                }
            }
        };
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let mut all = (Summary::default(), Vec::new());
        for handle in handles {
            let (total, failures) = handle.join().unwrap();
            all.0.add(&total);
            all.1.extend(failures);
        }
        all
    });
    println!("{histories} histories from seed {first}: {total:?}");
    let shown = failures
        .iter()
        .take(5)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n");
    assert!(
        failures.is_empty(),
        "{} of {histories} histories failed; first:\n{shown}\nrun one with HOLDFAST_SIM_SEED=<seed>",
        failures.len()
    );
    // The histories must not become tame unnoticed.
    for (what, count) in [
        ("global", total.global),
        ("partial", total.partial),
        ("aborted", total.aborted),
        ("restarts", total.restarts),
    ] {
        assert!(
            count > histories / 4,
            "only {count} {what} in {histories} histories"
        );
    }
}

#[test]
fn a_seed_repeats_its_history() {
    for seed in [1, 2, 3] {
        assert_eq!(run(seed, false), run(seed, true));
    }
}
