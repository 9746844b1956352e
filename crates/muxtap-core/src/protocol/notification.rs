//! Notifications, which tmux sends to a control client without a request, such as `%window-add @3`
//! (F22).

use super::{
    field::{after_colon, boundary, name, number, pane, session, window, word},
    ids::{PaneId, SessionId, WindowId},
};
use bytes::Bytes;
use nom::{IResult, Parser, branch::alt, bytes::complete::tag, combinator::opt, sequence::preceded};

/// A notification. Names and texts are bytes: tmux promises no encoding. `%output` and
/// `%extended-output` are variants of [`super::line::Line`] instead, because they are most of the
/// traffic.
///
/// Fields that a later tmux adds at the end of a line are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notification {
    /// `%client-detached CLIENT` (3.2).
    ClientDetached {
        /// The client's name, such as `/dev/pts/3` or `client-4711`.
        client: Bytes,
    },
    /// `%client-session-changed CLIENT $S NAME` (2.5): another client moved to a session.
    ClientSessionChanged {
        /// The client's name.
        client: Bytes,
        /// The session that the client shows now.
        session: SessionId,
        /// The session's name.
        name: Bytes,
    },
    /// `%config-error TEXT` (3.4): the configuration file had an error.
    ConfigError(Bytes),
    /// `%continue %P` (3.2): tmux sends output of a paused pane again (F11).
    Continue(PaneId),
    /// `%exit [REASON]`: the last line that tmux sends.
    Exit(ExitReason),
    /// `%layout-change @W LAYOUT [VISIBLE FLAGS]` (the optional parts from 2.2 on). Layouts are
    /// kept as received; [`super::layout::Layout::parse`] parses them.
    LayoutChange {
        /// The window.
        window: WindowId,
        /// The layout regardless of zoom.
        layout: Bytes,
        /// The visible layout: one cell while a pane is zoomed.
        visible: Option<Bytes>,
        /// The window's flags, such as `*` or `*Z`; may be empty.
        flags: Option<Bytes>,
    },
    /// `%message TEXT` (3.4): the text that `display-message` would show in the status line. Also
    /// occurs inside blocks (F12).
    Message(Bytes),
    /// `%pane-mode-changed %P` (2.5): the pane entered or left copy mode or another mode.
    PaneModeChanged(PaneId),
    /// `%paste-buffer-changed NAME` (3.4).
    PasteBufferChanged(Bytes),
    /// `%paste-buffer-deleted NAME` (3.4).
    PasteBufferDeleted(Bytes),
    /// `%pause %P` (3.2): tmux dropped output of this pane and sends no more until the client
    /// continues it (F11).
    Pause(PaneId),
    /// `%session-changed $S NAME`: this client shows another session. The first one marks the end
    /// of the attach (F25).
    SessionChanged {
        /// The session that this client is attached to now.
        session: SessionId,
        /// The name.
        name: Bytes,
    },
    /// `%session-renamed $S NAME`.
    SessionRenamed {
        /// The session.
        session: SessionId,
        /// The new name.
        name: Bytes,
    },
    /// `%session-window-changed $S @W` (2.5): another window is the session's current one.
    SessionWindowChanged {
        /// The session.
        session: SessionId,
        /// The current window.
        window: WindowId,
    },
    /// `%sessions-changed`: a session was created or destroyed.
    SessionsChanged,
    /// `%subscription-changed NAME $S @W INDEX %P … : VALUE` (3.2, F8).
    SubscriptionChanged(Subscription),
    /// `%unlinked-window-add @W`: a window was created, but not in the session that this client
    /// shows.
    UnlinkedWindowAdd(WindowId),
    /// `%unlinked-window-close @W` (2.0). Versions differ in which of the two close notifications
    /// they send (F5).
    UnlinkedWindowClose(WindowId),
    /// `%unlinked-window-renamed @W NAME` (2.0).
    UnlinkedWindowRenamed {
        /// The window.
        window: WindowId,
        /// The new name; empty where the server sends no name.
        name: Bytes,
    },
    /// `%window-add @W`: a window was linked to the session that this client shows.
    WindowAdd(WindowId),
    /// `%window-close @W`.
    WindowClose(WindowId),
    /// `%window-pane-changed @W %P` (2.5): another pane is the window's active one.
    WindowPaneChanged {
        /// The window.
        window: WindowId,
        /// The active pane.
        pane: PaneId,
    },
    /// `%window-renamed @W NAME`.
    WindowRenamed {
        /// The window.
        window: WindowId,
        /// The new name.
        name: Bytes,
    },
    /// A line that begins with `%` and a letter but has an unknown name or unexpected arguments:
    /// the whole line. Counted, never an error.
    Unknown(Bytes),
}

/// The reason for which tmux ended the connection (F24).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// No reason: the client was requested to leave, for example by an empty line.
    None,
    /// `detached (from session NAME)`: this client was detached.
    Detached {
        /// The session's name, where tmux reports it.
        session: Option<Bytes>,
    },
    /// `lost tty`.
    LostTty,
    /// `terminated`: the client process received a signal.
    Terminated,
    /// `server exited`.
    ServerExited,
    /// `server exited unexpectedly`.
    ServerExitedUnexpectedly,
    /// `too far behind`: the client did not read for 300 s (F11).
    TooFarBehind,
    /// `access not allowed`.
    AccessNotAllowed,
    /// Any other text.
    Other(Bytes),
}

impl ExitReason {
    fn parse(text: &[u8]) -> Self {
        match text {
            b"" => Self::None,
            b"lost tty" => Self::LostTty,
            b"terminated" => Self::Terminated,
            b"server exited" => Self::ServerExited,
            b"server exited unexpectedly" => Self::ServerExitedUnexpectedly,
            b"too far behind" => Self::TooFarBehind,
            b"access not allowed" => Self::AccessNotAllowed,
            _ if text.starts_with(b"detached") => {
                let from = memchr::memmem::find(text, b"(from session ").and_then(|at| text.get(at + 14..));
                let session = from.and_then(|name| name.strip_suffix(b")")).map(Bytes::copy_from_slice);
                Self::Detached { session }
            }
            _ => Self::Other(Bytes::copy_from_slice(text)),
        }
    }
}

/// A changed value that `refresh-client -B` subscribed to (F8). Parts that do not apply are `None`
/// (`-` on the wire).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The subscription's name.
    pub name: Bytes,
    /// The session to which the value belongs.
    pub session: Option<SessionId>,
    /// The window to which the value belongs.
    pub window: Option<WindowId>,
    /// The window's index in that session.
    pub index: Option<u32>,
    /// The pane to which the value belongs.
    pub pane: Option<PaneId>,
    /// The format's value.
    pub value: Bytes,
}

impl Subscription {
    fn parse(input: &[u8]) -> IResult<&[u8], Self> {
        fn or_dash<'a, T>(
            field: impl Parser<&'a [u8], Output = T, Error = nom::error::Error<&'a [u8]>>,
        ) -> impl Parser<&'a [u8], Output = Option<T>, Error = nom::error::Error<&'a [u8]>> {
            preceded(tag(" "), alt((tag("-").map(|_| None), field.map(Some))))
        }
        let (left, (name, session, window, index, pane)) =
            (word, or_dash(session), or_dash(window), or_dash(number), or_dash(pane)).parse(input)?;
        let Some(text) = after_colon(left) else { return nom::combinator::fail().parse(left) };
        let value = Bytes::copy_from_slice(text);
        Ok((&[], Self { name, session, window, index, pane, value }))
    }
}

impl Notification {
    /// Parses a line that begins with `%`. A line that is not valid becomes
    /// [`Notification::Unknown`].
    pub fn parse(line: &[u8]) -> Self {
        Self::known(line).unwrap_or_else(|| Self::Unknown(Bytes::copy_from_slice(line)))
    }

    /// Parses a line that begins with `%`, if its name is known and its arguments are of the right
    /// kind.
    pub fn known(line: &[u8]) -> Option<Self> {
        let end = memchr::memchr(b' ', line).unwrap_or(line.len());
        let (keyword, tail) = line.split_at(end);
        // Skips the one separating space. A missing argument is then empty, which every parser of
        // an id rejects.
        let input = tail.get(1..).unwrap_or_default();
        let text = || Bytes::copy_from_slice(input);
        match keyword {
            b"%client-detached" => all(word.map(|client| Self::ClientDetached { client }), input),
            b"%client-session-changed" => all(
                (word, tag(" "), session, name).map(|(client, _, session, name)| Self::ClientSessionChanged {
                    client,
                    session,
                    name,
                }),
                input,
            ),
            b"%config-error" => Some(Self::ConfigError(text())),
            b"%continue" => all(pane.map(Self::Continue), input),
            b"%exit" => Some(Self::Exit(ExitReason::parse(input))),
            b"%layout-change" => all(layout_change, input),
            b"%message" => Some(Self::Message(text())),
            b"%pane-mode-changed" => all(pane.map(Self::PaneModeChanged), input),
            b"%paste-buffer-changed" => Some(Self::PasteBufferChanged(text())),
            b"%paste-buffer-deleted" => Some(Self::PasteBufferDeleted(text())),
            b"%pause" => all(pane.map(Self::Pause), input),
            b"%session-changed" => {
                all((session, name).map(|(session, name)| Self::SessionChanged { session, name }), input)
            }
            b"%session-renamed" => {
                all((session, name).map(|(session, name)| Self::SessionRenamed { session, name }), input)
            }
            b"%session-window-changed" => all(
                (session, tag(" "), window).map(|(session, _, window)| Self::SessionWindowChanged { session, window }),
                input,
            ),
            b"%sessions-changed" => Some(Self::SessionsChanged),
            b"%subscription-changed" => all(Subscription::parse.map(Self::SubscriptionChanged), input),
            b"%unlinked-window-add" => all(window.map(Self::UnlinkedWindowAdd), input),
            b"%unlinked-window-close" => all(window.map(Self::UnlinkedWindowClose), input),
            b"%unlinked-window-renamed" => {
                all((window, name).map(|(window, name)| Self::UnlinkedWindowRenamed { window, name }), input)
            }
            b"%window-add" => all(window.map(Self::WindowAdd), input),
            b"%window-close" => all(window.map(Self::WindowClose), input),
            b"%window-pane-changed" => {
                all((window, tag(" "), pane).map(|(window, _, pane)| Self::WindowPaneChanged { window, pane }), input)
            }
            b"%window-renamed" => all((window, name).map(|(window, name)| Self::WindowRenamed { window, name }), input),
            _ => None,
        }
    }
}

/// Returns the parser's value, if it stopped at the end of a field.
fn all<'a>(
    parser: impl Parser<&'a [u8], Output = Notification, Error = nom::error::Error<&'a [u8]>>,
    input: &'a [u8],
) -> Option<Notification> {
    (parser, boundary).parse(input).ok().map(|(_, (notification, ()))| notification)
}

fn layout_change(input: &[u8]) -> IResult<&[u8], Notification> {
    let (left, (window, _, layout, visible)) = (window, tag(" "), word, opt(preceded(tag(" "), word))).parse(input)?;
    // Flags may be empty: the line then ends with a space.
    let flags = left.strip_prefix(b" ").map(Bytes::copy_from_slice);
    Ok((&[], Notification::LayoutChange { window, layout, visible, flags }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    /// Every notification of F22, as tmux writes it.
    #[test]
    fn every_notification_parses_to_its_variant() {
        use Notification as N;
        let (pane, window, session) = (PaneId(5), WindowId(3), SessionId(1));
        let cases = [
            ("%client-detached /dev/pts/3", N::ClientDetached { client: text("/dev/pts/3") }),
            (
                "%client-session-changed client-47 $1 my work",
                N::ClientSessionChanged { client: text("client-47"), session, name: text("my work") },
            ),
            ("%config-error /etc/tmux.conf:3: oops", N::ConfigError(text("/etc/tmux.conf:3: oops"))),
            ("%continue %5", N::Continue(pane)),
            ("%message a b  c", N::Message(text("a b  c"))),
            ("%message", N::Message(text(""))),
            ("%pane-mode-changed %5", N::PaneModeChanged(pane)),
            ("%paste-buffer-changed buffer0", N::PasteBufferChanged(text("buffer0"))),
            ("%paste-buffer-deleted buffer0", N::PasteBufferDeleted(text("buffer0"))),
            ("%pause %5", N::Pause(pane)),
            ("%session-changed $1 two words", N::SessionChanged { session, name: text("two words") }),
            ("%session-renamed $1 n", N::SessionRenamed { session, name: text("n") }),
            ("%session-window-changed $1 @3", N::SessionWindowChanged { session, window }),
            ("%sessions-changed", N::SessionsChanged),
            ("%unlinked-window-add @3", N::UnlinkedWindowAdd(window)),
            ("%unlinked-window-close @3", N::UnlinkedWindowClose(window)),
            ("%unlinked-window-renamed @3 n", N::UnlinkedWindowRenamed { window, name: text("n") }),
            ("%unlinked-window-renamed @3", N::UnlinkedWindowRenamed { window, name: text("") }),
            ("%window-add @3", N::WindowAdd(window)),
            ("%window-close @3", N::WindowClose(window)),
            ("%window-pane-changed @3 %5", N::WindowPaneChanged { window, pane }),
            ("%window-renamed @3 ", N::WindowRenamed { window, name: text("") }),
            ("%window-renamed @3  spaces kept ", N::WindowRenamed { window, name: text(" spaces kept ") }),
        ];
        for (line, expected) in cases {
            assert_eq!(Notification::parse(line.as_bytes()), expected, "{line}");
        }
        let name = Bytes::from_static(b"\xff\xfe");
        assert_eq!(N::parse(b"%window-renamed @3 \xff\xfe"), N::WindowRenamed { window, name }, "no UTF-8 needed");
    }

    #[test]
    fn a_layout_change_has_one_to_three_parts() {
        let change = |line: &str| match Notification::parse(line.as_bytes()) {
            Notification::LayoutChange { window: WindowId(3), layout, visible, flags } => (layout, visible, flags),
            other => panic!("{other:?}"),
        };
        let (layout, visible) = (text("b25e,80x24,0,0,1"), text("b25d,80x24,0,0,0"));
        assert_eq!(change("%layout-change @3 b25e,80x24,0,0,1"), (layout.clone(), None, None), "before 2.2");
        assert_eq!(
            change("%layout-change @3 b25e,80x24,0,0,1 b25d,80x24,0,0,0 *Z"),
            (layout.clone(), Some(visible.clone()), Some(text("*Z")))
        );
        assert_eq!(
            change("%layout-change @3 b25e,80x24,0,0,1 b25d,80x24,0,0,0 "),
            (layout, Some(visible), Some(text(""))),
            "no flags"
        );
    }

    #[test]
    fn an_exit_has_a_reason() {
        let reason = |line: &str| match Notification::parse(line.as_bytes()) {
            Notification::Exit(reason) => reason,
            other => panic!("{other:?}"),
        };
        let detached = |session: Option<&'static str>| ExitReason::Detached { session: session.map(text) };
        assert_eq!(reason("%exit"), ExitReason::None);
        assert_eq!(reason("%exit detached (from session a (b))"), detached(Some("a (b)")));
        assert_eq!(reason("%exit detached and SIGHUP (from session a)"), detached(Some("a")));
        assert_eq!(reason("%exit detached"), detached(None));
        assert_eq!(reason("%exit lost tty"), ExitReason::LostTty);
        assert_eq!(reason("%exit terminated"), ExitReason::Terminated);
        assert_eq!(reason("%exit server exited"), ExitReason::ServerExited);
        assert_eq!(reason("%exit server exited unexpectedly"), ExitReason::ServerExitedUnexpectedly);
        assert_eq!(reason("%exit too far behind"), ExitReason::TooFarBehind);
        assert_eq!(reason("%exit access not allowed"), ExitReason::AccessNotAllowed);
        assert_eq!(reason("%exit of a new kind"), ExitReason::Other(text("of a new kind")));
    }

    #[test]
    fn a_subscription_change_names_its_subject_and_value() {
        let subscription = |line: &str| match Notification::parse(line.as_bytes()) {
            Notification::SubscriptionChanged(subscription) => subscription,
            other => panic!("{other:?}"),
        };
        let full = Subscription {
            name: text("cmd"),
            session: Some(SessionId(1)),
            window: Some(WindowId(3)),
            index: Some(0),
            pane: Some(PaneId(5)),
            value: text("bash : login"),
        };
        assert_eq!(subscription("%subscription-changed cmd $1 @3 0 %5 : bash : login"), full);
        assert_eq!(subscription("%subscription-changed cmd $1 @3 0 %5 new fields : bash : login"), full);
        let none = Subscription {
            name: text("s"),
            session: Some(SessionId(0)),
            window: None,
            index: None,
            pane: None,
            value: text(""),
        };
        assert_eq!(subscription("%subscription-changed s $0 - - - : "), none);
    }

    #[test]
    fn fields_added_by_later_versions_are_ignored() {
        assert_eq!(Notification::parse(b"%window-close @3 later"), Notification::WindowClose(WindowId(3)));
        assert_eq!(Notification::parse(b"%pause %5 12"), Notification::Pause(PaneId(5)));
    }

    #[test]
    fn malformed_and_new_notifications_parse_as_unknown_never_as_errors() {
        for line in [
            "%window-add",
            "%window-add ",
            "%window-add 3",
            "%window-add %3",
            "%window-add @3x",
            "%window-add  @3",
            "%window-add @99999999999",
            "%window-pane-changed @3",
            "%layout-change @3",
            "%session-changed @1 n",
            "%subscription-changed n $0 @1 0 %1",
            "%subscription-changed n $0 @1 x %1 : v",
            "%client-session-changed c",
            "%new-in-4.0 x",
            "%exited",
            "%",
        ] {
            assert_eq!(Notification::parse(line.as_bytes()), Notification::Unknown(text(line)), "{line}");
        }
    }
}
