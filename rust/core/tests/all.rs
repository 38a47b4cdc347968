//! The integration tests, but for those that need a process of their own. One program is compiled and
//! linked sooner than one for each file, and it runs tests of several files at once.
#![allow(clippy::unwrap_used)]

mod bad_rows;
mod checkpoint_damage;
mod cold_requests;
mod common;
mod copies;
mod format_damage;
mod format_fixtures;
mod format_round_trip;
mod isolation;
mod late_lengths;
mod local_cache;
mod manager_tables;
mod manager_terms;
mod metadata_differences;
mod metadata_entries;
mod metadata_file;
mod metadata_fixtures;
mod metadata_folder;
mod metadata_regions;
mod nearby;
mod open_files;
mod opened_files;
mod pooled_storage;
mod reclaim;
mod reclaim_told;
mod restore_later;
mod rows;
mod run_damage;
mod run_files;
mod run_fixtures;
mod run_writer;
mod segment_writer;
mod snapshot_manager;
mod spark_rows;
mod state_changes;
mod state_content;
mod state_delta_runs;
mod state_differences;
mod state_fixtures;
mod state_histories;
mod state_hydration;
mod state_journal;
mod state_over_run;
mod state_parking;
mod state_reading;
mod state_room;
mod state_spill;
mod state_store;
mod storage;
mod stray_terms;
mod terms;

/// Files that are programs of their own, in `Cargo.toml`.
const ON_THEIR_OWN: [&str; 4] = ["all", "forged", "out_of_descriptors", "run_memory"];

#[test]
fn every_file_is_a_module_or_a_program() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let module = include_str!("all.rs").contains(&format!("\nmod {name};\n"));
        assert!(module || ON_THEIR_OWN.contains(&name), "{}", path.display());
    }
}
