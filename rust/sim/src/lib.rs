//! Seeded simulation of the snapshot manager.
