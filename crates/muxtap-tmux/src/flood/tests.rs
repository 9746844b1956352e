//! Tables: how much a pane may print, and when the hold of a pane ends.

use muxtap_core::protocol::ids::SessionId;

use super::{
    super::scripted::{Scripted, row},
    *,
};

fn look(history: u64, cursor_row: usize, activity: u32, rows: &[&str]) -> Look {
    let place = format!("{history} {cursor_row} 55 {activity}\n");
    let rows = rows.join("\n") + "\n";
    Look::parse(&[place.into(), rows.into()]).unwrap()
}

#[test]
fn a_pane_may_print_a_burst_and_then_so_much_a_second() {
    let begun = Instant::now();
    let at = |millis| begun + Duration::from_millis(millis);
    let allowance = Allowance::begin(begun);
    assert!(!allowance.is_exceeded_by(BURST as usize, 0, at(0)));
    assert!(allowance.is_exceeded_by(1, 0, at(0)), "nothing is left");
    assert!(!allowance.is_exceeded_by(RATE as usize / 2 / LATE as usize, 1, at(501)), "late bytes count more");
    assert!(allowance.is_exceeded_by(1, 0, at(501)));
    assert!(allowance.is_exceeded_by(BURST as usize + 1, 0, at(3_600_000)), "no more than a burst is saved");
    assert!(!allowance.is_exceeded_by(BURST as usize, 0, at(7_200_000)));
}

#[test]
fn a_slow_flood_that_always_waits_exceeds_it_and_one_that_never_does_may_go_on() {
    let begun = Instant::now();
    let seconds_until_exceeded = |waited: u64| {
        let allowance = Allowance::begin(begun);
        // 200 KB/s, ten times a second.
        let exceeds = |tenth: u64| allowance.is_exceeded_by(20_000, waited, begun + Duration::from_millis(100 * tenth));
        (1..100_000).map(exceeds).position(|is_exceeded| is_exceeded).map(|tenths| tenths / 10)
    };
    assert_eq!(seconds_until_exceeded(0), None);
    assert_eq!(seconds_until_exceeded(5), None, "it is read in time");
    assert_eq!(seconds_until_exceeded(100), Some(5));
    assert_eq!(seconds_until_exceeded(5000), Some(5));
}

#[test]
fn one_that_was_held_a_moment_ago_may_print_little_and_is_looked_at_longer() {
    let begun = Instant::now();
    let at = |millis| begun + Duration::from_millis(millis);
    let (allowance, mut relapses) = (Allowance::begin(begun), Relapses::default());
    relapses.held(at(0));
    assert_eq!(relapses.patience(), Patience { calm: CALM_LOOKS, trial: TRIAL_LOOKS });
    relapses.let_go(at(1000));
    allowance.let_go(at(1000));
    assert!(!allowance.is_exceeded_by(CAUTION as usize, 0, at(1000)));
    assert!(allowance.is_exceeded_by(1, 0, at(1000)));
    relapses.held(at(1010));
    assert_eq!(relapses.patience(), Patience { calm: 2 * CALM_LOOKS, trial: 2 * TRIAL_LOOKS });
    for _ in 0..40 {
        relapses.let_go(at(1020));
        relapses.held(at(1030));
    }
    assert_eq!(relapses.patience(), Patience { calm: MOST_CALM_LOOKS, trial: MOST_TRIAL_LOOKS });
    relapses.let_go(at(2000));
    relapses.held(at(2000) + TRUSTED);
    assert_eq!(relapses.patience(), Patience { calm: CALM_LOOKS, trial: TRIAL_LOOKS }, "it was calm for long");
}

#[test]
fn less_than_a_screen_is_calm() {
    let before = look(10, 2, 1, &["a", "b", "c", ""]);
    let is_calm = |after: &Look| after.is_calm_since(&before);
    assert!(is_calm(&before), "nothing was printed");
    assert!(is_calm(&look(10, 2, 1, &["a", "b", "cd", ""])), "the cursor's line went on");
    assert!(is_calm(&look(10, 3, 1, &["a", "b", "cd", "e"])), "and another began");
    assert!(!is_calm(&look(10, 0, 1, &["x", "b", "x", "x"])), "a program that draws the screen");
    assert!(is_calm(&look(11, 3, 1, &["b", "c", "d", "e"])), "a row scrolled out");
    assert!(!is_calm(&look(12, 3, 1, &["c", "d", "e", "f"])), "all above the cursor did");
    assert!(!is_calm(&look(11, 3, 1, &["x", "c", "d", "e"])), "other rows");
    assert!(!is_calm(&look(9, 2, 1, &["a", "b", "c", ""])), "a history that was trimmed");
    assert!(!is_calm(&look(900, 2, 1, &["a", "b", "c", ""])));
}

#[test]
fn an_answer_that_is_no_look_is_none() {
    for place in ["", "1", "1 2", "1 2 3", "x 2 3 4", "1 x 3 4"] {
        assert_eq!(Look::parse(&[place.into(), "".into()]), None, "{place}");
    }
    assert_eq!(Look::parse(&["1 2 3 4".into()]), None);
}

#[test]
fn a_pane_is_read_as_it_changes_and_let_go_when_it_is_calm() {
    let patience = Patience { calm: 3, trial: 100 };
    let mut looks = Looks::default();
    for count in 1..=20_u32 {
        let row = count.to_string();
        let verdict = looks.take(look(1000 - u64::from(count), 1, count, &[&row, ""]), patience);
        let due = count.is_multiple_of(LOOKS_A_READING);
        assert_eq!(verdict, if due { Verdict::Read } else { Verdict::Wait }, "{count}");
    }
    let rests = look(5000, 1, 21, &["$", ""]);
    let verdicts: Vec<_> = (0..4).map(|_| looks.take(rests.clone(), patience)).collect();
    assert_eq!(verdicts, [Verdict::Wait, Verdict::Wait, Verdict::Wait, Verdict::LetGo]);
}

#[test]
fn one_that_never_seems_calm_is_tried_and_one_whose_window_is_silent_is_let_go() {
    let mut looks = Looks::default();
    let flooding = |count: u32| look(1000 - u64::from(count), 1, count, &["y", ""]);
    let patience = Patience { calm: 3, trial: 25 };
    let verdicts: Vec<_> = (1..=25).map(|count| looks.take(flooding(count), patience)).collect();
    assert_eq!(verdicts.iter().position(|verdict| *verdict == Verdict::LetGo), Some(24));
    let mut looks = Looks::default();
    // A hold that ended too early needs more calm looks than this table has.
    let patience = Patience { calm: 50, trial: 1600 };
    let rests = look(5000, 1, 21, &["$", ""]);
    let verdicts: Vec<_> = (0..=SILENT_LOOKS).map(|_| looks.take(rests.clone(), patience)).collect();
    let at = verdicts.iter().position(|verdict| *verdict == Verdict::LetGo);
    assert_eq!(at, Some(SILENT_LOOKS as usize));
}

#[test]
fn a_pane_that_is_respawned_again_and_again_is_not_let_go() {
    let patience = Patience { calm: 3, trial: 25 };
    let mut looks = Looks::default();
    for count in 0..100_u32 {
        let look = Look { pid: (count / 3).to_string().into(), ..look(5000, 1, 21, &["", ""]) };
        assert_ne!(looks.take(look, patience), Verdict::LetGo, "{count}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pane_that_floods_is_paused_read_and_followed_again_when_it_is_calm() {
    let server = Scripted::start();
    server.inner.lock().floods = Floods::Hold;
    let mut wire = server.guest(SessionId(0));
    server.kick();
    wire.list(&[row(0, 0, 1)]).await;
    wire.seed("hello").await;
    // The subscription.
    wire.accept().await;
    assert_eq!(server.told(2).await, ["unfollowed %1", "seeded %1 First hello"]);
    if let Some(followed) = server.inner.lock().panes.get_mut(&PaneId(1)) {
        // The bucket does not fill while this test runs.
        followed.allowance.set(7, Instant::now() + TRUSTED * 100);
    }
    wire.say("%extended-output %1 0 : little\n%extended-output %1 1 : much");
    assert_eq!(server.told(2).await, ["output %1 little", "output %1 much"], "nothing is lost before");
    assert_eq!(wire.accept().await, ["refresh-client -A \"%1:pause\""]);
    let asked = wire.request().await;
    assert_eq!(asked.commands().last(), Some(&"display-message -p \"\""), "it stays paused");
    wire.answer_seed(&asked, "flood");
    assert_eq!(server.told(3).await, ["unfollowed %1", "seeded %1 Again(Paused) flood", "held %1"]);
    for _ in 0..=CALM_LOOKS {
        let asked = wire.request().await;
        assert!(asked.commands()[0].contains("#{window_activity}"), "{asked:?}");
        wire.answer(&asked, &["0 1 55 7", "$"]);
    }
    assert_eq!(wire.accept().await, ["refresh-client -A \"%1:pause\""]);
    let asked = wire.request().await;
    assert_eq!(asked.commands().last(), Some(&"refresh-client -A \"%1:continue\""));
    wire.answer_seed(&asked, "$");
    wire.say("%output %1 there");
    assert_eq!(server.told(3).await, ["unfollowed %1", "seeded %1 Again(Paused) $", "output %1 there"]);
}
