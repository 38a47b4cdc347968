#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn stores_without_a_session_yet_are_expected_to_take_as_much_as_the_others() {
    let budget = Arc::new(MemoryBudget::unlimited());
    budget.set_target_bytes(Some(1600));
    let mut shares: Vec<_> = (0..4)
        .map(|_| MemoryShare::of(Arc::clone(&budget)))
        .collect();
    let mut session = |number: usize, bytes: u64| {
        let share: &mut MemoryShare = shares.get_mut(number).unwrap();
        share.begin_session();
        share.set(share.bytes + bytes).unwrap();
        share.end_session();
    };
    assert_eq!(budget.ease_bytes(), Some(1400), "nothing is known");
    session(0, 80);
    assert_eq!(budget.ease_bytes(), Some(1600 - 4 * 90));
    session(1, 160);
    assert_eq!(budget.ease_bytes(), Some(1600 - 4 * (90 + 180) / 2));
    session(0, 96);
    assert_eq!(budget.ease_bytes(), Some(1600 - 4 * (108 + 180) / 2));
    shares.truncate(1);
    assert_eq!(budget.ease_bytes(), Some(1400), "the others are closed");
    let new = MemoryShare::of(Arc::clone(&budget));
    assert!(!new.is_short_for_session());
    let mut first = shares.pop().unwrap();
    first.set(1500).unwrap();
    assert!(new.is_short_for_session(), "108 bytes more");
}

#[test]
fn stores_give_way_to_work_beside_them_as_long_as_it_goes_on() {
    let budget = Arc::new(MemoryBudget::unlimited());
    budget.set_target_bytes(Some(1600));
    budget.set_limit_bytes(1600);
    let [mut one, mut other] = [(); 2].map(|()| MemoryShare::of(Arc::clone(&budget)));
    one.set(300).unwrap();
    other.set(900).unwrap();
    assert_eq!((one.is_short(400), one.excess()), (false, 0));
    let work = budget.begin_work(500);
    assert!(one.is_short(0) && !one.has_room(0));
    // 300 bytes more than seven eighths of the target, of which the store has a quarter of the state.
    assert_eq!((one.excess(), other.excess()), (75, 225));
    assert_eq!(budget.used_bytes(), 1200, "it is no state");
    one.set(700).unwrap();
    let more = budget.begin_work(10_000);
    assert_eq!(one.excess(), 700, "no more than all");
    drop((work, more));
    assert_eq!((one.is_short(0), one.excess()), (false, 87));
}

#[test]
fn sessions_are_expected_to_take_as_much_as_the_larger_of_the_last_two() {
    let budget = Arc::new(MemoryBudget::unlimited());
    budget.set_target_bytes(Some(1600));
    let mut share = MemoryShare::of(Arc::clone(&budget));
    let mut ease_after = |bytes: u64| {
        share.begin_session();
        share.set(share.bytes + bytes).unwrap();
        share.end_session();
        budget.ease_bytes().unwrap()
    };
    assert_eq!(ease_after(480), 1600 - 540);
    assert_eq!(ease_after(320), 1600 - 540);
    assert_eq!(ease_after(400), 1600 - 450);
    assert_eq!(ease_after(1200), 600, "three eighths of the target stay");
    assert_eq!(ease_after(599), 1600 - 673, "not half as much");
    assert_eq!(ease_after(0), 1400);
}

#[test]
fn a_large_turnover_is_told_once_and_only_close_to_the_target() {
    let budget = Arc::new(MemoryBudget::unlimited());
    let mut share = MemoryShare::of(Arc::clone(&budget));
    let mib = |mib: u64| mib << 20;
    let mut change = |from: u64, to: u64| {
        let changed = share.set(mib(from)).and_then(|()| share.set(mib(to)));
        changed.is_ok() && budget.take_turnover()
    };
    assert!(!change(900, 0), "without a target");
    budget.set_target_bytes(Some(mib(800)));
    assert!(!change(600, 500), "three quarters of the target, and less");
    assert!(change(500, 601), "all that went before counts");
    assert!(!change(601, 650), "49 MiB since");
    assert!(change(650, 651), "a sixteenth of the target since");
    assert!(!change(651, 651), "told already");
    assert!(!change(651, 300), "far below the target again");
    assert!(MemoryShare::of(Arc::clone(&budget)).is_short(mib(801)));
    assert!(change(300, 300), "but it was short of memory");
    budget.set_target_bytes(Some(mib(16)));
    assert!(!change(300, 301), "more than a sixteenth, but little");
}

#[test]
fn a_session_spills_where_it_is_large_or_the_process_far_beyond_its_target() {
    const MIB: u64 = 1 << 20;
    let budget = Arc::new(MemoryBudget::unlimited());
    let [mut idle, mut session] = [(); 2].map(|()| MemoryShare::of(Arc::clone(&budget)));
    let mut spills = |before: u64, taken: u64| {
        idle.set(before * MIB).unwrap();
        session.set(0).unwrap();
        session.settle();
        session.set(taken).unwrap();
        session.must_spill()
    };
    assert!(!spills(10_000, 10_000 * MIB), "there is no target");
    budget.set_target_bytes(Some(128 * MIB));
    assert!(!spills(100, 28 * MIB), "it fits");
    assert!(spills(100, 28 * MIB + 1));
    assert!(spills(0, 129 * MIB));
    assert!(
        !spills(125, 7 * MIB),
        "a little too much, and not because of it"
    );
    assert!(spills(125, 8 * MIB));
    assert!(spills(143, MIB));
    assert!(!spills(1000, MIB - 1), "it is not worth a run");
}
