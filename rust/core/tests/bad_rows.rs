//! The machine that sets bad rows aside: markers by their bytes, bounds, forms, refusals.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use holdfast_core::bad_rows::{Action, Fact, Found, Letter, Limits, Marker, Plan, Run};
use holdfast_core::isolation::{Attempt, Part};

const BATCH: u64 = 7;

/// A marker that a version wrote.
const MARKER: &str = r#"{"version":1,"form":"id long","rows":{"00ff":{"positions":["{\"row\":3}","{\"row\":4}"],"letter":{"class":"DIVIDE_BY_ZERO","error":"\"ä\"","at_ms":5,"row":"AAA="}}}}"#;

fn plan() -> Plan {
    Plan {
        source: "Kafka".to_owned(),
        form: "id long".to_owned(),
        partitions: 4,
        rerun: false,
        same_program: true,
        retained: 2,
        limits: Limits {
            rows: 3,
            per_million: 10_000,
        },
    }
}

fn part(task: u32, number: u32) -> Part {
    let attempt = Attempt {
        stage: 5,
        stage_attempt: 0,
        task,
        number,
    };
    let partition = task;
    Part { attempt, partition }
}

fn found(digest: &str, rows: usize) -> Found {
    Found {
        digest: digest.to_owned(),
        positions: (0..rows).map(|row| format!("{digest} {row}")).collect(),
        letter: Some(Letter {
            error: format!("the error of {digest}"),
            ..Letter::default()
        }),
    }
}

/// A run in which the batch began.
struct Driver(Run);

impl Driver {
    fn begin(plan: Plan) -> Self {
        Self::after(Run::default(), plan).0
    }

    fn after(mut run: Run, plan: Plan) -> (Self, Vec<Action>) {
        let partitions = plan.partitions;
        let actions = run.take(BATCH, &[], Fact::Begin(Box::new(plan)));
        run.take(BATCH, &[], Fact::StageBegan(5, partitions));
        (Self(run), actions)
    }

    fn tell(&mut self, fact: Fact) -> Vec<Action> {
        self.0.take(BATCH, &[], fact)
    }

    /// Attempt 0 of a task fails, and attempt 1 asks. Returns whether it searches, and what it leaves out.
    fn fail_and_ask(&mut self, task: u32) -> (bool, Vec<String>) {
        self.tell(Fact::Ended(
            part(task, 0).attempt,
            false,
            Some("it".to_owned()),
        ));
        self.tell(Fact::Began(part(task, 1).attempt, 100));
        match &self.tell(Fact::Asks(part(task, 1), 100))[..] {
            [Action::Answer(_, answer)] | [Action::Report(_), Action::Answer(_, answer)] => {
                (answer.searches, answer.named.clone())
            }
            other => panic!("{other:?}"),
        }
    }

    fn settle(&mut self, task: u32, rows: Vec<Found>, input: u64) -> Vec<Action> {
        self.tell(Fact::Settles(part(task, 1), (rows, input)))
    }
}

fn refusal(actions: &[Action]) -> &str {
    let mut refusals = actions.iter().filter_map(|action| match action {
        Action::Refuse(_, why) => Some(why.as_str()),
        _ => None,
    });
    refusals.next().unwrap()
}

fn written(actions: &[Action]) -> &Marker {
    let mut writes = actions.iter().filter_map(|action| match action {
        Action::Write(BATCH, marker) => Some(marker),
        _ => None,
    });
    writes.next().unwrap()
}

#[test]
fn a_marker_keeps_its_bytes() {
    let marker = Marker::from_json(MARKER.as_bytes()).unwrap();
    assert_eq!(marker.to_json(), MARKER);
    assert_eq!(marker.count(), 2);
    let newer = MARKER.replace("\"version\":1", "\"version\":2");
    let error = Marker::from_json(newer.as_bytes()).unwrap_err();
    assert!(error.to_string().contains("version 2"), "{error}");
    assert!(Marker::from_json(b"{}").is_err());
}

#[test]
fn an_attempt_is_through_when_its_rows_are_durable() {
    let mut driver = Driver::begin(plan());
    assert_eq!(driver.fail_and_ask(2), (true, vec![]));
    let actions = driver.settle(2, vec![found("a", 1)], 1_000);
    assert_eq!(written(&actions).count(), 1);
    assert!(
        !actions.contains(&Action::Settled(part(2, 1))),
        "{actions:?}"
    );
    let actions = driver.tell(Fact::Written);
    assert_eq!(actions, [Action::Settled(part(2, 1))]);
    // The next attempt leaves the row out, and cannot leave it out silently.
    driver.tell(Fact::Ended(part(2, 1).attempt, false, None));
    driver.tell(Fact::Began(part(2, 2).attempt, 101));
    driver.tell(Fact::Asks(part(2, 2), 101));
    let actions = driver.tell(Fact::Settles(part(2, 2), (vec![], 1_000)));
    assert!(
        refusal(&actions).contains("found more bad rows"),
        "{actions:?}"
    );
    assert_eq!(driver.tell(Fact::Committed).len(), 1);
}

#[test]
fn a_write_that_fails_refuses_the_attempt() {
    let mut driver = Driver::begin(plan());
    driver.fail_and_ask(2);
    driver.settle(2, vec![found("a", 1)], 1_000);
    let actions = driver.tell(Fact::NotWritten("no space".to_owned()));
    assert_eq!(refusal(&actions), "no space");
}

#[test]
fn one_row_may_always_be_set_aside_and_no_more_than_the_bounds() {
    for (rows, input, allowed) in [
        (1, 10, true),
        (2, 150, false),
        (3, 300, true),
        (4, 9_999, false),
    ] {
        let mut driver = Driver::begin(plan());
        driver.fail_and_ask(2);
        let actions = driver.settle(2, vec![found("a", rows)], input);
        let is_refused = actions.iter().any(|one| matches!(one, Action::Refuse(..)));
        assert_eq!(is_refused, !allowed, "{rows} of {input}: {actions:?}");
    }
}

#[test]
fn too_many_rows_take_the_marker_back_and_name_errors() {
    let mut driver = Driver::begin(plan());
    driver.fail_and_ask(1);
    driver.settle(1, vec![found("a", 2)], 9_999);
    driver.tell(Fact::Written);
    driver.fail_and_ask(2);
    let actions = driver.settle(2, vec![found("b", 2)], 9_999);
    assert!(actions.contains(&Action::Delete(BATCH)), "{actions:?}");
    let why = refusal(&actions);
    for part in [
        "At least 4 of about 9999 rows of Kafka",
        "allow (3)",
        "the error of b",
    ] {
        assert!(why.contains(part), "{why}");
    }
    assert!(refusal(&driver.tell(Fact::Asks(part(2, 1), 100))).contains("At least 4"));
}

#[test]
fn a_rerun_with_other_columns_is_refused() {
    let mut run = Run::default();
    run.know(BATCH, Marker::from_json(MARKER.as_bytes()).unwrap());
    let rerun = Plan {
        rerun: true,
        form: "id int".to_owned(),
        ..plan()
    };
    let (_, actions) = Driver::after(run, rerun);
    let [Action::Fail(why)] = &actions[..] else {
        panic!("{actions:?}");
    };
    assert!(why.contains("id long") && why.contains("id int"), "{why}");
}

#[test]
fn a_rerun_of_another_program_finds_no_new_rows() {
    let mut run = Run::default();
    run.know(BATCH, Marker::from_json(MARKER.as_bytes()).unwrap());
    let rerun = Plan {
        rerun: true,
        same_program: false,
        ..plan()
    };
    let (mut driver, actions) = Driver::after(run, rerun);
    assert_eq!(actions, [Action::Suspect(vec![0, 1, 2, 3])]);
    assert_eq!(driver.fail_and_ask(2), (false, vec!["00ff".to_owned()]));
    let actions = driver.settle(2, vec![found("a", 1)], 9_999);
    assert!(refusal(&actions).contains("an earlier run"), "{actions:?}");
}
