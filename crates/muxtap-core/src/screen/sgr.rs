//! SGR: the sequences that set the style of characters.

use super::{
    params::{Param, Params, number},
    style::{Colour, Style, attribute},
};

/// The color that a sequence sets.
#[derive(Clone, Copy)]
enum Target {
    Foreground,
    Background,
    Underline,
}

impl Target {
    fn of(code: i32) -> Option<Self> {
        match code {
            38 => Some(Self::Foreground),
            48 => Some(Self::Background),
            58 => Some(Self::Underline),
            _ => None,
        }
    }

    fn set(self, style: &mut Style, colour: Colour) {
        match self {
            Self::Foreground => style.foreground = colour,
            Self::Background => style.background = colour,
            Self::Underline => style.underline = colour,
        }
    }

    /// Sets a palette color, `5;n`: an invalid index sets the default, except for underlines.
    fn set_palette(self, style: &mut Style, index: Option<i32>) {
        match index.and_then(|index| u8::try_from(index).ok()) {
            Some(index) => self.set(style, Colour::palette(index)),
            None if matches!(self, Self::Underline) => {}
            None => self.set(style, Colour::DEFAULT),
        }
    }

    /// Sets an RGB color, `2;r;g;b`: no effect unless all three are present.
    fn set_rgb(self, style: &mut Style, parts: [Option<i32>; 3]) -> bool {
        let [Some(red), Some(green), Some(blue)] = parts.map(|part| part.and_then(|part| u8::try_from(part).ok()))
        else {
            return false;
        };
        self.set(style, Colour::rgb(red, green, blue));
        true
    }
}

/// Applies parameters; without any, no effect.
pub(super) fn apply(style: &mut Style, params: Params<'_>) {
    let mut at = 0;
    while at < params.len() {
        if let Param::Parts(parts) = params.at(at) {
            apply_parts(style, parts);
            at += 1;
            continue;
        }
        let code = params.get(at, 0, 0).unwrap_or_default();
        if let Some(target) = Target::of(code) {
            at += 1;
            match params.get(at, 0, -1) {
                Some(2) => {
                    let parts = [1, 2, 3].map(|next| params.get(at + next, 0, -1));
                    if target.set_rgb(style, parts) {
                        at += 3;
                    }
                }
                Some(5) => {
                    target.set_palette(style, params.get(at + 1, 0, -1));
                    at += 1;
                }
                _ => {}
            }
        } else {
            apply_code(style, code);
        }
        at += 1;
    }
}

fn apply_code(style: &mut Style, code: i32) {
    use attribute as a;
    let (cleared, set) = match code {
        0 => {
            *style = Style { link: style.link, ..Style::DEFAULT };
            return;
        }
        1 => (0, a::BRIGHT),
        2 => (0, a::DIM),
        3 => (0, a::ITALICS),
        4 => (a::UNDERLINES, a::UNDERLINE),
        5 | 6 => (0, a::BLINK),
        7 => (0, a::REVERSE),
        8 => (0, a::HIDDEN),
        9 => (0, a::STRIKE),
        21 => (a::UNDERLINES, a::UNDERLINE_2),
        22 => (a::BRIGHT | a::DIM, 0),
        23 => (a::ITALICS, 0),
        24 => (a::UNDERLINES, 0),
        25 => (a::BLINK, 0),
        27 => (a::REVERSE, 0),
        28 => (a::HIDDEN, 0),
        29 => (a::STRIKE, 0),
        53 => (0, a::OVERLINE),
        55 => (a::OVERLINE, 0),
        _ => {
            apply_colour(style, code.unsigned_abs());
            return;
        }
    };
    style.attributes = style.attributes & !cleared | set;
}

fn apply_colour(style: &mut Style, code: u32) {
    match code {
        30..=37 => style.foreground = Colour(code - 30),
        39 => style.foreground = Colour::DEFAULT,
        40..=47 => style.background = Colour(code - 40),
        49 => style.background = Colour::DEFAULT,
        59 => style.underline = Colour::NONE,
        90..=97 => style.foreground = Colour(code),
        100..=107 => style.background = Colour(code - 10),
        _ => {}
    }
}

/// Applies a parameter with colons: underline styles and colors.
fn apply_parts(style: &mut Style, parts: &[u8]) {
    let mut values = [None; 8];
    let mut count = 0;
    for part in parts.split(|byte| *byte == b':') {
        let value = if part.is_empty() {
            None
        } else {
            match number(part) {
                Some(value) => Some(value),
                None => return,
            }
        };
        if let Some(slot) = values.get_mut(count) {
            *slot = value;
        }
        count += 1;
        if count == values.len() {
            return;
        }
    }
    let [code, kind, ..] = values;
    if code == Some(4) {
        if count == 2 {
            underline(style, kind);
        }
        return;
    }
    let Some(target) = code.and_then(Target::of).filter(|_| count >= 2) else { return };
    let at = |at: usize| values.get(at).copied().flatten();
    match kind {
        Some(2) if count >= 3 => {
            // With a color space in between, which is skipped, or without.
            let first = if count == 5 { 2 } else { 3 };
            if count >= first + 3 {
                target.set_rgb(style, [at(first), at(first + 1), at(first + 2)]);
            }
        }
        Some(5) if count >= 3 => target.set_palette(style, at(2)),
        _ => {}
    }
}

fn underline(style: &mut Style, kind: Option<i32>) {
    let set = match kind {
        Some(0) => 0,
        Some(1) => attribute::UNDERLINE,
        Some(2) => attribute::UNDERLINE_2,
        Some(3) => attribute::UNDERLINE_3,
        Some(4) => attribute::UNDERLINE_4,
        Some(5) => attribute::UNDERLINE_5,
        _ => return,
    };
    style.attributes = style.attributes & !attribute::UNDERLINES | set;
}

#[cfg(test)]
mod tests {
    use super::{
        super::params::{ParamBuffer, RawParams},
        *,
    };

    fn sgr(text: &str) -> Style {
        let mut collected = RawParams::default();
        text.bytes().for_each(|byte| collected.param(byte));
        let mut room = ParamBuffer::default();
        let mut style = Style::DEFAULT;
        apply(&mut style, collected.split(&mut room).unwrap());
        style
    }

    #[test]
    fn colours_come_in_many_spellings() {
        assert_eq!(sgr("31;44").foreground, Colour(1));
        assert_eq!(sgr("38;5;1;1").foreground, Colour::palette(1));
        assert_eq!(sgr("38;2;1;2;3;1").attributes, attribute::BRIGHT);
        assert_eq!(sgr("38:2:1:2:3").foreground, Colour::rgb(1, 2, 3));
        assert_eq!(sgr("38:2::1:2:3").foreground, Colour::rgb(1, 2, 3));
        assert_eq!(sgr("48:5:200").background, Colour::palette(200));
        assert_eq!(sgr("58;5;3").underline, Colour::palette(3));
        assert_eq!(sgr("103").background, Colour(93));
        assert_eq!(sgr("31;38;5;300").foreground, Colour::DEFAULT);
    }

    #[test]
    fn underlines_replace_each_other() {
        assert_eq!(sgr("4;4:3").attributes, attribute::UNDERLINE_3);
        assert_eq!(sgr("4:3;21").attributes, attribute::UNDERLINE_2);
        assert_eq!(sgr("4:3;24").attributes, 0);
        assert_eq!(sgr("4:3;4:0:1").attributes, attribute::UNDERLINE_3);
    }
}
