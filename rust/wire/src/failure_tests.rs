use super::*;

#[test]
fn every_kind_arrives_as_itself() {
    for (number, kind) in KINDS {
        let sent = FailureMessage::of(&Error::new(kind, "what happened"), Fate::Stays);
        assert_eq!(sent.kind, number);
        let received = sent.into_error();
        assert_eq!(received.kind(), kind);
        assert_eq!(received.to_string(), "what happened");
    }
}

#[test]
fn a_number_of_the_system_arrives_with_the_same_text() {
    let disk_full = std::io::Error::from_raw_os_error(28);
    let error = Error::io("appending to /data/file", disk_full);
    let received = FailureMessage::of(&error, Fate::Stays).into_error();
    assert_eq!(received.to_string(), error.to_string());
    let source = std::error::Error::source(&received).map(ToString::to_string);
    assert_eq!(
        source,
        std::error::Error::source(&error).map(ToString::to_string)
    );
}

#[test]
fn a_cause_without_a_number_stays_in_the_text() {
    let error = Error::io("reading", std::io::Error::other("broken"));
    let received = FailureMessage::of(&error, Fate::Stays).into_error();
    assert_eq!(received.to_string(), "reading: broken");
}

#[test]
fn an_endless_text_is_cut_between_characters() {
    let error = Error::invalid_input("ä".repeat(MAX_TEXT_BYTES));
    let received = FailureMessage::of(&error, Fate::Stays).into_error();
    assert!(received.to_string().len() <= MAX_TEXT_BYTES);
}
