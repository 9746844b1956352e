//! Seeds and pauses on a wire that the test plays.

use muxtap_core::protocol::ids::SessionId;

use super::super::scripted::{Scripted, Wire, row};

/// Starts a server with one guest in $0 and one unseeded pane: its seed is the next request.
async fn unseeded() -> (Scripted, Wire) {
    let server = Scripted::start();
    let mut wire = server.guest(SessionId(0));
    server.kick();
    wire.list(&[row(0, 0, 1)]).await;
    assert_eq!(server.told(1).await, ["unfollowed %1"]);
    (server, wire)
}

/// Expects the pause of a pane that this connection no longer carries.
async fn parked(wire: &mut Wire) {
    loop {
        let asked = wire.accept().await;
        if asked[0].starts_with("refresh-client -A") {
            let watched = "refresh-client -B \"muxtap-return-%1:%1:#{pane_id}\"";
            assert_eq!(asked, ["refresh-client -A \"%1:pause\"", watched, "display-message -p \"\""]);
            return;
        }
    }
}

/// Starts a server with two guests, in $0 and $1; the first has a pane, which is followed, and the
/// second one has another.
async fn two_guests() -> (Scripted, Wire, Wire) {
    let server = Scripted::start();
    let (mut one, mut two) = (server.guest(SessionId(0)), server.guest(SessionId(1)));
    server.kick();
    one.list(&[row(0, 0, 1), row(1, 1, 2)]).await;
    one.seed("hello").await;
    one.accept().await;
    two.seed("other").await;
    two.accept().await;
    let mut told = server.told(4).await;
    told.sort();
    assert_eq!(told, ["seeded %1 First hello", "seeded %2 First other", "unfollowed %1", "unfollowed %2"]);
    (server, one, two)
}

#[tokio::test]
async fn a_seed_that_is_refused_or_cannot_be_read_is_asked_for_again() {
    let (server, mut wire) = unseeded().await;
    let asked = wire.request().await;
    wire.refuse(&asked, "not now");
    let subscribed = wire.accept().await;
    assert!(subscribed[0].starts_with("refresh-client -B"), "{subscribed:?}");
    wire.list(&[row(0, 0, 1)]).await;
    let asked = wire.request().await;
    // No field is a number.
    wire.answer(&asked, &["hello", "", "|"]);
    wire.list(&[row(0, 0, 1)]).await;
    wire.seed("hello").await;
    assert_eq!(server.told(1).await, ["seeded %1 First hello"]);
    wire.say("%output %1 there");
    assert_eq!(server.told(1).await, ["output %1 there"]);
}

#[tokio::test]
async fn what_is_printed_around_a_seed_is_told_once_whoever_else_pauses_the_pane() {
    let server = Scripted::start();
    let (mut one, mut two) = (server.guest(SessionId(0)), server.guest(SessionId(1)));
    server.kick();
    // One window in two sessions.
    one.list(&[row(0, 0, 1), row(1, 0, 1)]).await;
    let asked = one.request().await;
    one.say("%output %1 noise");
    one.answer_seed(&asked, "hello");
    one.accept().await;
    let pause = one.request().await;
    assert_eq!(pause.commands(), ["refresh-client -A \"%1:pause\""]);
    // The same pane, on the other connection: it continues on that one, and uses up no expectation
    // of this one.
    two.say("%pause %1");
    assert_eq!(two.accept().await, ["refresh-client -A \"%1:continue\""]);
    one.answer(&pause, &[]);
    // Behind its block, as on 3.8.
    one.say("%pause %1\n%output %1 early");
    let asked = one.request().await;
    assert_eq!(asked.commands().last(), Some(&"refresh-client -A \"%1:continue\""), "and nothing before it");
    one.answer_seed(&asked, "hello\nnoise");
    let told = server.told(3).await;
    assert_eq!(told, ["unfollowed %1", "seeded %1 First hello\r\nnoise", "output %1 early"]);
    // Its expectation is over: the next pause is a real one.
    one.say("%pause %1");
    assert_eq!(one.accept().await, ["refresh-client -A \"%1:continue\""]);
    one.seed("hello\nnoise").await;
    assert_eq!(server.told(2).await, ["unfollowed %1", "seeded %1 Again(Paused) hello\r\nnoise"]);
}

#[tokio::test]
async fn a_pause_that_was_never_announced_hides_no_real_one() {
    let (server, mut wire) = unseeded().await;
    let asked = wire.request().await;
    wire.say("%output %1 noise");
    wire.answer_seed(&asked, "hello");
    wire.accept().await;
    let pause = wire.request().await;
    wire.refuse(&pause, "no");
    wire.list(&[row(0, 0, 1)]).await;
    assert_eq!(wire.accept().await, ["refresh-client -A \"%1:continue\""]);
    wire.seed("hello").await;
    assert_eq!(server.told(1).await, ["seeded %1 First hello"]);
    wire.say("%pause %1");
    assert_eq!(wire.accept().await, ["refresh-client -A \"%1:continue\""]);
    wire.seed("hello").await;
    assert_eq!(server.told(2).await, ["unfollowed %1", "seeded %1 Again(Paused) hello"]);
}

#[tokio::test]
async fn a_pane_that_is_moved_goes_on_where_the_other_connection_has_it() {
    let (server, mut one, mut two) = two_guests().await;
    // Its window has come to $1, which is not announced (N80); what it prints there comes ahead of
    // any listing.
    two.say("%output %1 there");
    one.list(&[row(1, 0, 1), row(1, 1, 2)]).await;
    let asked = two.request().await;
    two.answer_seed(&asked, "hello there");
    assert_eq!(server.told(2).await, ["unfollowed %1", "moved %1 \"hello there\" \"there\""]);
    two.say("%output %1 and on");
    assert_eq!(server.told(1).await, ["output %1 and on"]);
    assert_eq!(server.told_besides(), [""; 0]);
    parked(&mut one).await;
}

/// tmux keeps a pane's output for a client whose session it was moved out of, and sends it when the
/// pane is back (N60).
#[tokio::test]
async fn a_pane_that_comes_back_brings_nothing_that_was_passed_on() {
    let (server, mut one, mut two) = two_guests().await;
    server.kick();
    one.list(&[row(1, 0, 1), row(1, 1, 2)]).await;
    two.seed("hello").await;
    assert_eq!(server.told(2).await, ["unfollowed %1", "moved %1 \"hello\" \"\""]);
    parked(&mut one).await;
    let subscription = one.accept().await;
    assert!(subscription[0].starts_with("refresh-client -B"), "{subscription:?}");
    two.say("%output %1 there");
    assert_eq!(server.told(1).await, ["output %1 there"]);
    one.say("%subscription-changed muxtap-return-%1 $0 @0 0 %1 : %1");
    one.list(&[row(0, 0, 1), row(1, 1, 2)]).await;
    let back = one.accept().await;
    let unwatched = "refresh-client -B \"muxtap-return-%1\"";
    assert_eq!(back, ["refresh-client -A \"%1:pause\"", "refresh-client -A \"%1:continue\"", unwatched]);
    one.say("%continue %1");
    one.seed("hello there").await;
    assert_eq!(server.told(2).await, ["unfollowed %1", "moved %1 \"hello there\" \"\""]);
    one.say("%output %1 and on");
    assert_eq!(server.told(1).await, ["output %1 and on"]);
    parked(&mut two).await;
    two.accept().await;
    // A pause on that connection that muxtap did not request is not ended.
    two.say("%pause %1");
    assert_eq!(two.accept().await, ["display-message -p \"\""]);
    assert_eq!(server.told_besides(), [""; 0]);
}

#[tokio::test]
async fn a_pane_of_which_something_is_missing_after_a_move_is_read_with_a_gap() {
    let (server, mut one, mut two) = two_guests().await;
    two.say("%output %1 lost");
    one.list(&[row(1, 0, 1), row(1, 1, 2)]).await;
    let asked = two.request().await;
    two.answer_seed(&asked, "hello there");
    assert_eq!(server.told(2).await, ["unfollowed %1", "moved %1 \"hello there\" \"lost\""]);
    // The subscription to its window moves as well.
    let pause = loop {
        let asked = two.request().await;
        match asked.commands()[0] {
            "refresh-client -A \"%1:pause\"" => break asked,
            _ => two.answer(&asked, &[]),
        }
    };
    two.answer(&pause, &[]);
    two.say("%pause %1");
    two.seed("hello there").await;
    assert_eq!(server.told(1).await, ["seeded %1 Again(Reconnected) hello there"]);
}
