#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;

fn private_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
    folder
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o777
}

#[test]
fn folder_and_socket_are_for_this_user_alone() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("private/1.sock");
    let _listener = Listener::bind(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
}

#[test]
fn a_folder_that_others_can_enter_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let open = parent.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, Permissions::from_mode(0o750)).unwrap();
    let refused = Listener::bind(open.join("1.sock")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert!(refused.to_string().contains("mode 750"), "{refused}");
}

#[test]
fn a_link_in_the_place_of_the_folder_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let link = parent.path().join("link");
    std::os::unix::fs::symlink(parent.path(), &link).unwrap();
    let refused = Listener::bind(link.join("1.sock")).unwrap_err();
    assert!(refused.to_string().contains("no folder"), "{refused}");
}

#[test]
fn a_path_too_long_or_too_short_for_a_socket_is_refused_by_its_length() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("a".repeat(107));
    for path in [path.as_path(), Path::new("")] {
        let refused = Listener::bind(path).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn a_socket_that_a_dead_process_left_is_replaced_and_others_stay() {
    let parent = private_folder();
    let at = |name: &str| parent.path().join(name);
    drop(UnixListener::bind(at("own.sock")).unwrap());
    drop(UnixListener::bind(at("somebody.sock")).unwrap());
    fs::write(at("file.sock"), b"a file").unwrap();
    let listener = Listener::bind(at("own.sock")).unwrap();
    assert!(at("somebody.sock").exists());
    let refused = Listener::bind(at("file.sock")).unwrap_err();
    assert!(refused.to_string().contains("in use"), "{refused}");
    assert_eq!(fs::read(at("file.sock")).unwrap(), b"a file");
    drop(listener);
}

#[test]
fn two_listeners_cannot_share_a_path() {
    let parent = private_folder();
    let path = parent.path().join("1.sock");
    let first = Listener::bind(&path).unwrap();
    assert!(Listener::bind(&path).is_err());
    drop(first);
    assert!(!path.exists());
    Listener::bind(&path).unwrap();
}
