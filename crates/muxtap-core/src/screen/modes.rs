//! The modes that a program set in its terminal: mouse, keys, paste, focus, cursor.

use serde::{Deserialize, Serialize};

/// The mouse reports that a program requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mouse {
    /// No reports.
    #[default]
    Off,
    /// Buttons (1000).
    Buttons,
    /// Buttons, and moves while a button is down (1002).
    Drags,
    /// Buttons and all moves (1003).
    Moves,
}

impl Mouse {
    /// Returns the number of the private mode; 0 for no reports.
    pub fn number(self) -> u16 {
        match self {
            Self::Off => 0,
            Self::Buttons => 1000,
            Self::Drags => 1002,
            Self::Moves => 1003,
        }
    }
}

/// The modes of a pane's terminal, as tmux keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is one mode of the terminal")]
pub struct Modes {
    /// Whether the cursor is shown (25).
    pub cursor: bool,
    /// Whether the alternate screen is shown.
    pub alternate: bool,
    /// Mouse reports.
    pub mouse: Mouse,
    /// Whether mouse reports are in SGR's form (1006).
    pub sgr_mouse: bool,
    /// Whether mouse reports are in UTF-8's form (1005), if not in SGR's.
    pub utf8_mouse: bool,
    /// Whether the cursor keys are in application mode (DECCKM).
    pub cursor_keys: bool,
    /// Whether the keypad is in application mode (DECKPAM).
    pub keypad: bool,
    /// Whether a paste is bracketed (2004).
    pub bracketed_paste: bool,
    /// Whether focus is reported (1004).
    pub focus: bool,
    /// DECSCUSR's number, 0 to 6; 0 is the terminal's own shape.
    pub cursor_shape: u8,
}

/// The part of [`Modes`] that does not affect the grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is one mode of the terminal")]
pub(super) struct InputModes {
    pub(super) mouse: Mouse,
    pub(super) sgr_mouse: bool,
    pub(super) utf8_mouse: bool,
    pub(super) cursor_keys: bool,
    pub(super) keypad: bool,
    pub(super) bracketed_paste: bool,
    pub(super) focus: bool,
    pub(super) blinks: bool,
}

impl InputModes {
    /// Sets or resets a private mode. Others are ignored.
    pub(super) fn set(&mut self, mode: i32, on: bool) {
        match mode {
            1 => self.cursor_keys = on,
            12 => self.blinks = on,
            // Each of these replaces the others, and resetting any ends all (1001 sets nothing).
            1000 if on => self.mouse = Mouse::Buttons,
            1002 if on => self.mouse = Mouse::Drags,
            1003 if on => self.mouse = Mouse::Moves,
            1000..=1003 if !on => self.mouse = Mouse::Off,
            1004 => self.focus = on,
            1005 => self.utf8_mouse = on,
            1006 => self.sgr_mouse = on,
            2004 => self.bracketed_paste = on,
            _ => {}
        }
    }
}

/// The shape of the cursor. tmux keeps the blinking as a mode, which RIS resets, and the rest apart
/// from the modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Shape {
    #[default]
    Default,
    Block,
    Underline,
    Bar,
}

impl Shape {
    /// Returns the shape that a DECSCUSR selects, and whether it blinks, if specified.
    pub(super) fn asked(number: i32) -> Option<(Self, Option<bool>)> {
        let shape = match number {
            0 => return Some((Self::Default, None)),
            1 | 2 => Self::Block,
            3 | 4 => Self::Underline,
            5 | 6 => Self::Bar,
            _ => return None,
        };
        Some((shape, Some(number % 2 == 1)))
    }

    /// Returns DECSCUSR's number.
    pub(super) fn number(self, blinks: bool) -> u8 {
        let steady = match self {
            Self::Default => return 0,
            Self::Block => 2,
            Self::Underline => 4,
            Self::Bar => 6,
        };
        steady - u8::from(blinks)
    }
}

/// The modes of a screen, kept while it is rebuilt from tmux's report.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeptModes {
    pub(super) input: InputModes,
    pub(super) shape: Shape,
}
