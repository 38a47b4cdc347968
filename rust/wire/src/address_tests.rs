#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn the_address_of_an_executor_shows_half_of_the_name_of_its_last_folder() {
    let folders = "/a/blockmgr-1,/tmp/ü/blockmgr-31f0c1b0-9a77-4f0e-8f4e-5f3c9d1b2a60";
    let Address::Executor { name, key } = Address::of_executor(folders).unwrap() else {
        panic!("a path");
    };
    assert_eq!(name, "holdfast-blockmgr-31f0c1b0-9a77");
    assert_eq!(key, "-4f0e-8f4e-5f3c9d1b2a60");
    for none in ["", "/", "/tmp/", "/tmp/a"] {
        let error = Address::of_executor(none).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{none}");
    }
}
