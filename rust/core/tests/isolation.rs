//! The machine that isolates failures: decisions by facts, markers by their bytes, groups of keys.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;

use holdfast_core::isolation::{
    Action, Answer, Attempt, Fact, Groups, Limits, Marker, Part, Plan, Run,
};

const BATCH: u64 = 7;
const PARTITION: u32 = 3;

/// A marker that a version in Java wrote.
const MARKER: &str = r#"{"version":1,"operator":0,"name":"stateStoreSave","times":{"batchTimestampMs":1767225600000,"eventTimeWatermarkForEviction":0},"parked":{"3":{"at_ms":1767225601234,"tries":2,"error":"ValueError: \"ä\"\n","waits":[3,2]},"12":{"at_ms":5,"tries":1,"error":null,"waits":[]}},"sealed":true}"#;

fn plan() -> Plan {
    Plan {
        operator: 0,
        name: "stateStoreSave".to_owned(),
        times: BTreeMap::new(),
        pending: BTreeMap::new(),
        partitions: 8,
        seals: false,
        divides: false,
        rerun: false,
        reruns_park: false,
        retained: 2,
        limits: Limits {
            attempts: 2,
            batches: 3,
            parked: 1,
        },
    }
}

fn attempt(number: u32) -> Attempt {
    of(PARTITION, number)
}

fn of(task: u32, number: u32) -> Attempt {
    Attempt {
        stage: 5,
        stage_attempt: 0,
        task,
        number,
    }
}

fn part(attempt: Attempt) -> Part {
    let partition = attempt.task;
    Part { attempt, partition }
}

/// A run in which the batch began.
struct Driver {
    run: Run,
    batch: u64,
}

impl Driver {
    fn begin(plan: Plan) -> Self {
        Self::after(Run::new("run", "file:/checkpoint"), BATCH, plan)
    }

    fn after(mut run: Run, batch: u64, plan: Plan) -> Self {
        run.take(batch, &[], Fact::Begin(Box::new(plan)));
        run.take(batch, &[], Fact::StageBegan(5, 8));
        Self { run, batch }
    }

    fn tell(&mut self, fact: Fact) -> Vec<Action> {
        self.run.take(self.batch, &[], fact)
    }

    fn began(&mut self, attempt: Attempt) {
        assert_eq!(self.tell(Fact::Began(attempt, attempt.number.into())), []);
    }

    fn ended(&mut self, attempt: Attempt, failure: Option<&str>) -> Vec<Action> {
        self.tell(Fact::Ended(attempt, false, failure.map(str::to_owned)))
    }

    /// Spark takes the result of an attempt.
    fn delivers(&mut self, attempt: Attempt) -> Vec<Action> {
        let ended = Fact::Ended(attempt, true, None);
        self.run.take(self.batch, &[PARTITION], ended)
    }

    /// All tries of a task, up to the one that asks last.
    fn fails_twice(&mut self) {
        for number in 0..2 {
            self.began(attempt(number));
            if number > 0 {
                assert!(!self.answer(attempt(number)).parks);
            }
            self.ended(attempt(number), Some("ValueError"));
        }
        self.began(attempt(2));
    }

    fn asks(&mut self, attempt: Attempt) -> Vec<Action> {
        self.tell(Fact::Asks(part(attempt), attempt.number.into()))
    }

    fn answer(&mut self, attempt: Attempt) -> Answer {
        answer(self.asks(attempt))
    }

    fn settles(&mut self, attempt: Attempt) -> Vec<Action> {
        self.tell(Fact::Settles(part(attempt), 10))
    }

    /// Fails, parks and settles, all durably.
    fn parks(&mut self) {
        self.fails_twice();
        assert!(self.answer(attempt(2)).parks);
        assert_eq!(writes(&self.settles(attempt(2))).len(), 1);
        self.tell(Fact::Written);
    }

    /// The same run continues with the next batch.
    fn next(self, plan: Plan) -> Self {
        Self::after(self.run, self.batch + 1, plan)
    }
}

fn answer(actions: Vec<Action>) -> Answer {
    let mut answers = actions.into_iter().filter_map(|action| match action {
        Action::Answer(_, answer) => Some(answer),
        _ => None,
    });
    answers.next().unwrap()
}

fn writes(actions: &[Action]) -> Vec<&Marker> {
    let markers = actions.iter().filter_map(|action| match action {
        Action::Write(_, marker) => Some(marker),
        _ => None,
    });
    markers.collect()
}

fn says(actions: &[Action], part: &str) -> bool {
    actions.iter().any(
        |action| matches!(action, Action::Warn(text) | Action::Report(text) if text.contains(part)),
    )
}

fn settled(attempt: Attempt) -> Action {
    Action::Settled(part(attempt))
}

fn is_refused(actions: &[Action], of: Attempt) -> bool {
    let of = part(of);
    let mut actions = actions.iter();
    actions.any(|action| matches!(action, Action::Refuse(part, _) if *part == of))
}

fn pending(batches: &[u64]) -> Plan {
    Plan {
        pending: BTreeMap::from([(PARTITION, batches.to_vec())]),
        divides: true,
        ..plan()
    }
}

#[test]
fn a_marker_keeps_its_bytes() {
    let marker = Marker::from_json(MARKER.as_bytes()).unwrap();
    assert!(marker.sealed);
    assert_eq!(marker.parked[&3].waits, Groups::new([3, 2]));
    assert_eq!(marker.to_json(), MARKER);
}

#[test]
fn a_marker_without_groups_parks_the_whole_partition() {
    let text = r#"{"version":1,"operator":0,"name":"dedupe","times":{},"parked":{"3":{"at_ms":1,"tries":1,"error":null}},"sealed":false}"#;
    let marker = Marker::from_json(text.as_bytes()).unwrap();
    assert_eq!(marker.parked[&3].waits, Groups::all());
}

#[test]
fn a_damaged_marker_and_one_of_another_version_are_refused() {
    for text in [&MARKER[..20], "", &MARKER.replace(":1,\"op", ":2,\"op")] {
        assert!(Marker::from_json(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn a_group_is_divided_until_it_is_a_key() {
    let halves = Groups::all().divided();
    assert_eq!(halves, Groups::new([2, 3]));
    assert!(halves.has_all_keys());
    assert_eq!(halves.divided(), Groups::new([3, 4, 6]));
    assert_eq!(halves.without_first().share(), 0.5);
    let one = 1 << 16;
    assert_eq!(Groups::new([one, 2]).divided(), Groups::new([2, one]));
    let many: Vec<u32> = (64..128).collect();
    assert_eq!(Groups::new(many).divided().len(), 64);
}

#[test]
fn each_key_is_in_one_half_of_its_group() {
    for hash in [0, 1, 5, 0b1011, u32::MAX] {
        let mut groups = Groups::all();
        for _ in 0..10 {
            groups = groups.divided();
            let parts = groups.clone();
            let mut single = (0..parts.len()).map(|_| {
                let first = groups.clone();
                groups = groups.without_first();
                first.has(hash) && !groups.has(hash)
            });
            assert!(single.any(|is_in| is_in));
            groups = parts;
        }
    }
}

#[test]
fn a_partition_is_parked_after_two_failures_and_its_result_waits_for_the_marker() {
    let mut driver = Driver::begin(plan());
    driver.fails_twice();
    let actions = driver.asks(attempt(2));
    assert!(actions.contains(&Action::ForgetCommits(3)));
    assert!(actions.contains(&Action::Show(Some(BATCH))));
    assert!(answer(actions).parks);
    let actions = driver.settles(attempt(2));
    let parked = &writes(&actions)[0].parked[&PARTITION];
    assert_eq!((parked.tries, parked.at_ms), (1, 10));
    assert_eq!(parked.error.as_deref(), Some("ValueError"));
    assert!(!actions.contains(&settled(attempt(2))));
    assert_eq!(driver.run.marker(BATCH), None);
    let actions = driver.tell(Fact::Written);
    assert!(says(&actions, "is parked in batch 7 after 2 failures"));
    assert!(actions.contains(&settled(attempt(2))));
    assert!(driver.run.marker(BATCH).is_some());
    // Asked again, it says the same; settled again, nothing is written.
    assert!(driver.answer(attempt(2)).parks);
    assert_eq!(driver.settles(attempt(2)), [settled(attempt(2))]);
}

#[test]
fn settlements_that_come_while_a_marker_is_written_are_written_together() {
    let many = Limits {
        attempts: 1,
        batches: 1,
        parked: 8,
    };
    let mut driver = Driver::begin(Plan {
        limits: many,
        ..plan()
    });
    for task in 0..3 {
        driver.began(of(task, 0));
        driver.ended(of(task, 0), Some("ValueError"));
        assert!(driver.answer(of(task, 1)).parks);
    }
    assert_eq!(writes(&driver.settles(of(0, 1))).len(), 1);
    assert_eq!(driver.settles(of(1, 1)), []);
    assert_eq!(driver.settles(of(2, 1)), []);
    let actions = driver.tell(Fact::Written);
    assert!(actions.contains(&settled(of(0, 1))));
    assert!(!actions.contains(&settled(of(1, 1))));
    assert_eq!(writes(&actions)[0].parked.len(), 3);
    let actions = driver.tell(Fact::Written);
    assert!(actions.contains(&settled(of(1, 1))) && actions.contains(&settled(of(2, 1))));
}

#[test]
fn those_who_wait_for_a_write_that_fails_are_refused_and_the_next_write_is_made() {
    let mut driver = Driver::begin(plan());
    driver.fails_twice();
    driver.asks(attempt(2));
    driver.settles(attempt(2));
    let actions = driver.tell(Fact::NotWritten("disk full".to_owned()));
    assert!(is_refused(&actions, attempt(2)));
    assert_eq!(driver.run.marker(BATCH), None);
    driver.ended(attempt(2), Some("disk full"));
    assert!(driver.answer(attempt(3)).parks);
    assert_eq!(writes(&driver.settles(attempt(3))).len(), 1);
}

#[test]
fn an_attempt_that_could_park_waits_until_others_have_ended() {
    let mut driver = Driver::begin(plan());
    driver.began(attempt(0));
    driver.ended(attempt(0), Some("ValueError"));
    driver.began(attempt(1));
    driver.answer(attempt(1));
    driver.began(attempt(2));
    let waits = Action::Wait(part(attempt(2)));
    let kill = Action::Kill(vec![1]);
    assert_eq!(driver.asks(attempt(2)), [kill.clone(), waits.clone()]);
    let waited = || Fact::Waited(part(attempt(2)));
    assert_eq!(driver.tell(waited()), [kill, waits]);
    // It was killed, which is no failure, so there is one to spare.
    let mut killed = Driver {
        run: driver.run.clone(),
        batch: BATCH,
    };
    assert!(!answer(killed.ended(attempt(1), None)).parks);
    // It failed.
    let mut failed = Driver {
        run: driver.run.clone(),
        batch: BATCH,
    };
    assert!(answer(failed.ended(attempt(1), Some("ValueError"))).parks);
    // It delivered.
    let actions = driver.delivers(attempt(1));
    assert!(!answer(actions).parks);
}

#[test]
fn an_attempt_that_waited_parks_whole_if_another_one_divided_and_failed_meanwhile() {
    let text = r#"{"version":1,"operator":0,"name":"","times":{},"parked":{"3":{"waits":[2]}}}"#;
    let mut run = Run::new("run", "file:/checkpoint");
    run.know(6, Marker::from_json(text.as_bytes()).unwrap());
    let mut driver = Driver::after(run, BATCH, pending(&[6]));
    driver.began(attempt(0));
    assert!(driver.answer(attempt(0)).waits.is_empty());
    driver.ended(attempt(0), Some("ValueError"));
    driver.began(attempt(1));
    driver.began(attempt(2));
    assert_eq!(driver.asks(attempt(2)), [Action::Wait(part(attempt(2)))]);
    assert_eq!(driver.answer(attempt(1)).waits, Groups::new([4, 6]));
    let mut killed = Driver {
        run: driver.run.clone(),
        batch: BATCH,
    };
    let found = answer(killed.ended(attempt(1), None));
    assert_eq!(found.waits, Groups::new([4, 6]));
    assert!(answer(driver.ended(attempt(1), Some("ValueError"))).parks);
}

#[test]
fn an_attempt_waits_for_half_a_minute_at_most() {
    let mut driver = Driver::begin(plan());
    driver.began(attempt(0));
    driver.began(attempt(1));
    driver.answer(attempt(1));
    driver.asks(attempt(2));
    let waited = || Fact::Waited(part(attempt(2)));
    for _ in 0..29 {
        assert_eq!(driver.tell(waited()).len(), 2);
    }
    assert!(!answer(driver.tell(waited())).parks);
    assert_eq!(driver.tell(waited()), []);
}

#[test]
fn no_more_partitions_are_parked_than_may_be() {
    let mut driver = Driver::begin(plan());
    driver.parks();
    for number in 0..2 {
        driver.began(of(5, number));
        driver.ended(of(5, number), Some("ValueError"));
    }
    let actions = driver.asks(of(5, 2));
    assert!(says(&actions, "1 partitions are parked, the limit is 1"));
    assert!(!answer(actions).parks);
}

#[test]
fn a_partition_that_had_caught_up_counts_as_a_new_one_in_a_rerun() {
    let text = r#"{"version":1,"operator":0,"name":"","times":{},"parked":{"3":{"waits":[]},"5":{}},"sealed":false}"#;
    let mut run = Run::new("next", "file:/checkpoint");
    run.know(BATCH, Marker::from_json(text.as_bytes()).unwrap());
    let rerun = Plan {
        rerun: true,
        seals: true,
        ..pending(&[6])
    };
    let mut driver = Driver::after(run, BATCH, rerun);
    driver.began(attempt(0));
    assert!(!driver.answer(attempt(0)).parks);
    driver.ended(attempt(0), Some("ValueError"));
    let actions = driver.asks(attempt(1));
    assert!(says(&actions, "1 partitions are parked, the limit is 1"));
    assert!(!answer(actions).parks);
}

#[test]
fn no_more_batches_are_pending_than_may_be() {
    let mut driver = Driver::begin(pending(&[3, 4, 5]));
    driver.began(attempt(0));
    assert!(!driver.answer(attempt(0)).parks);
    driver.ended(attempt(0), Some("ValueError"));
    let actions = driver.asks(attempt(1));
    assert!(says(&actions, "the rows of 3 batches are parked"));
    assert!(!answer(actions).parks);
}

#[test]
fn a_rerun_delivers_what_the_sink_may_have() {
    let rerun = |seals, reruns_park| Plan {
        seals,
        rerun: true,
        reruns_park,
        ..plan()
    };
    for (plan, parks) in [
        (rerun(false, false), false),
        (rerun(true, false), false),
        (rerun(true, true), true),
    ] {
        let mut driver = Driver::begin(plan);
        driver.fails_twice();
        let actions = driver.asks(attempt(2));
        assert_eq!(says(&actions, "(isolation_rerun)"), !parks);
        assert_eq!(answer(actions).parks, parks);
    }
}

#[test]
fn a_failure_opens_the_marker_and_the_sink_waits_until_it_is_sealed() {
    let seals = |rerun| Plan {
        seals: true,
        rerun,
        ..plan()
    };
    let mut driver = Driver::begin(seals(false));
    driver.began(attempt(0));
    let actions = driver.ended(attempt(0), Some("ValueError"));
    assert!(!writes(&actions)[0].sealed);
    assert_eq!(driver.tell(Fact::Seal), []);
    let actions = driver.tell(Fact::Written);
    assert!(writes(&actions)[0].sealed);
    let unsealed = driver.run.clone();
    let actions = driver.tell(Fact::Written);
    assert_eq!(actions, [Action::Sealed(None)]);
    // The driver dies before the marker is sealed: the sink was not reached.
    let mut run = Run::new("next", "file:/checkpoint");
    run.know(BATCH, unsealed.marker(BATCH).unwrap().clone());
    let mut driver = Driver::after(run, BATCH, seals(true));
    driver.fails_twice();
    assert!(driver.answer(attempt(2)).parks);
}

#[test]
fn a_batch_without_failures_has_no_marker_unless_a_write_may_have_made_one() {
    let mut driver = Driver::begin(Plan {
        seals: true,
        ..plan()
    });
    let mut healthy = Driver {
        run: driver.run.clone(),
        batch: BATCH,
    };
    let sealed = [Action::Sealed(None)];
    assert_eq!(healthy.tell(Fact::Seal), sealed);
    driver.began(attempt(0));
    driver.ended(attempt(0), Some("ValueError"));
    let error = "timeout".to_owned();
    assert_eq!(driver.tell(Fact::NotWritten(error)), []);
    let actions = driver.tell(Fact::Seal);
    assert!(writes(&actions)[0].sealed);
    assert_eq!(driver.tell(Fact::Written), sealed);
}

#[test]
fn a_failure_after_the_seal_opens_no_marker() {
    let mut driver = Driver::begin(Plan {
        seals: true,
        ..plan()
    });
    driver.tell(Fact::Seal);
    driver.began(attempt(0));
    assert_eq!(driver.ended(attempt(0), Some("ValueError")), []);
}

#[test]
fn a_rerun_repeats_the_part_that_its_marker_names_and_needs_a_program_that_can() {
    let marker = Marker::from_json(MARKER.as_bytes()).unwrap();
    let run = || {
        let mut run = Run::new("next", "file:/checkpoint");
        run.know(BATCH, marker.clone());
        run
    };
    let rerun = |divides| Plan {
        rerun: true,
        divides,
        ..plan()
    };
    let mut whole = marker.clone();
    whole.parked.get_mut(&3).unwrap().waits = Groups::new([3]);
    let mut next = run();
    next.know(BATCH, whole.clone());
    let mut driver = Driver::after(next, BATCH, rerun(true));
    driver.began(attempt(0));
    let found = driver.answer(attempt(0));
    assert_eq!(found.waits, Groups::new([3]));
    assert!(!found.parks && found.settles);
    let mut other = run();
    other.know(BATCH, whole);
    let actions = other.take(BATCH, &[], Fact::Begin(Box::new(rerun(false))));
    let why = "divided partition 3 of stateStoreSave (operator 0) by keys";
    assert!(matches!(&actions[..], [Action::Fail(found)] if found.contains(why)));
}

#[test]
fn a_parked_partition_is_tried_later_and_later_and_by_halves() {
    let mut driver = Driver::begin(Plan {
        divides: true,
        ..plan()
    });
    driver.parks();
    // The next try of all keys is one batch later. It fails once.
    let mut driver = driver.next(pending(&[7]));
    driver.began(attempt(0));
    assert!(driver.answer(attempt(0)).waits.is_empty());
    driver.ended(attempt(0), Some("ValueError"));
    driver.began(attempt(1));
    let found = driver.answer(attempt(1));
    assert!(found.parks && found.still);
    assert_eq!(found.waits, Groups::new([2, 3]));
    driver.settles(attempt(1));
    let said = driver.tell(Fact::Written);
    assert!(says(&said, "the next try is in batch 10"));
    // It rests for a batch.
    let mut driver = driver.next(pending(&[7, 8]));
    driver.began(attempt(0));
    assert_eq!(driver.answer(attempt(0)).waits, Groups::new([2, 3]));
    // A half of the keys catches up.
    let mut driver = driver.next(pending(&[7, 8]));
    driver.began(attempt(0));
    let found = driver.answer(attempt(0));
    assert_eq!(found.waits, Groups::new([3]));
    assert!(!found.parks && !found.still);
    driver.settles(attempt(0));
    driver.tell(Fact::Written);
    let said = driver.delivers(attempt(0));
    assert!(says(&said, "It is parked with 0.5 of its keys"));
}

#[test]
fn a_partition_catches_up_in_the_first_try_of_a_run() {
    let mut driver = Driver::begin(plan());
    driver.parks();
    let mut run = Run::new("next", "file:/checkpoint");
    run.know(BATCH, driver.run.marker(BATCH).unwrap().clone());
    let mut driver = Driver::after(run, BATCH + 1, pending(&[7]));
    driver.began(attempt(0));
    let found = driver.answer(attempt(0));
    assert!(found.waits.is_empty() && found.settles);
    assert_eq!(found.failure.as_deref(), Some("ValueError"));
    assert!(
        writes(&driver.settles(attempt(0)))[0].parked[&PARTITION]
            .waits
            .is_empty()
    );
    driver.tell(Fact::Written);
    let said = driver.delivers(attempt(0));
    assert!(says(
        &said,
        "has caught up in batch 8, with the rows of 1 parked batches"
    ));
}

#[test]
fn an_attempt_whose_partition_another_one_took_over_is_refused() {
    let mut driver = Driver::begin(plan());
    driver.fails_twice();
    assert!(driver.answer(attempt(2)).parks);
    driver.ended(attempt(2), None);
    assert!(is_refused(&driver.settles(attempt(2)), attempt(2)));
    assert!(is_refused(&driver.asks(attempt(2)), attempt(2)));
    let mut driver = driver.next(plan());
    let late = Fact::Settles(part(attempt(2)), 0);
    assert!(is_refused(&driver.run.take(BATCH, &[], late), attempt(2)));
}

#[test]
fn markers_go_that_neither_a_retained_batch_nor_pending_input_needs() {
    let marker = Marker::from_json(MARKER.as_bytes()).unwrap();
    let mut run = Run::new("run", "file:/checkpoint");
    for batch in 1..=8 {
        run.know(batch, marker.clone());
    }
    let actions = run.take(BATCH, &[], Fact::Begin(Box::new(pending(&[2]))));
    let deleted = actions.iter().filter_map(|action| match action {
        Action::Delete(batch) => Some(*batch),
        _ => None,
    });
    assert_eq!(deleted.collect::<Vec<_>>(), [1, 3, 4, 7, 8]);
}

#[test]
fn tasks_of_several_partitions_are_warned_of_once() {
    let mut driver = Driver::begin(plan());
    let reshaped = Fact::StageBegan(6, 2);
    assert!(says(
        &driver.tell(reshaped),
        "(operator 0, run run) in tasks of several"
    ));
    assert_eq!(driver.tell(Fact::StageBegan(9, 2)), []);
}

#[test]
fn facts_and_actions_are_json() {
    let mut driver = Driver::begin(plan());
    let part = r#"{"attempt":{"stage":5,"stageAttempt":0,"task":3,"number":1},"partition":3}"#;
    let told = format!(r#"[[],{{"Asks":[{part},9]}}]"#);
    let actions = driver.run.take_json(BATCH, told.as_bytes()).unwrap();
    let answer = r#"{"parks":false,"waits":[],"still":false,"settles":false,"failure":null}"#;
    let expected = format!(r#"[{{"Answer":[{part},{answer}]}}]"#);
    assert_eq!(String::from_utf8(actions).unwrap(), expected);
    let sealed = driver.run.take_json(BATCH, br#"[[3],"Seal"]"#).unwrap();
    assert_eq!(sealed, br#"[{"Sealed":null}]"#);
    assert!(driver.run.take_json(BATCH, b"[[],{}]").is_err());
}
