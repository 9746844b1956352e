//! Draws the view as rows of text.

use std::{path::Path, time::Instant};

use muxtap_base::plain;
use muxtap_core::width;
use ratatui::{
    Frame,
    buffer::Buffer,
    layout::{Position, Rect},
    style::{Color, Modifier, Style},
};

use super::model::{Id, Model, Row, View, harmless};
use crate::{
    api::AgentState,
    cli::{output::short_duration, terminal::clip},
};

const HELP: [&str; 12] = [
    "q, Ctrl-C        quit",
    "Up, Down, k, j   select a pane; PageUp, PageDown, g, G, too",
    "Enter            the selected pane's screen, live; Enter, Esc or q: back",
    "/                show only panes that match a text; Enter keeps it, Esc clears it",
    "s                sort by place, output, idle time, command",
    "Ctrl-L           redraw",
    "Ctrl-Z           suspend",
    "",
    "OUTPUT   bytes per second, over the last five seconds",
    "IDLE     time since the last output; > if none since this view started",
    "",
    "any key: back",
];

/// Draws the view.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, now: Instant) {
    let area = frame.area();
    let mut canvas = Canvas { buffer: frame.buffer_mut(), area };
    match model.view {
        View::Help => {
            for (row, line) in (0..).zip(HELP) {
                canvas.line(row, line, Style::new());
            }
        }
        View::Screen => screen(&mut canvas, model, now),
        View::Table | View::Filter => {
            if let Some(at) = table(&mut canvas, model, now) {
                frame.set_cursor_position(at);
            }
        }
    }
}

/// The terminal's cells.
struct Canvas<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
}

impl Canvas<'_> {
    /// Writes a line without control characters, cut to the width.
    fn line(&mut self, row: u16, text: &str, style: Style) {
        if row < self.area.height && self.area.width > 0 {
            let text = clip(text, self.area.width.into());
            self.buffer.set_string(self.area.x, self.area.y + row, text, style);
        }
    }

    /// Styles a whole row.
    fn style(&mut self, row: u16, style: Style) {
        if row < self.area.height {
            self.buffer.set_style(Rect { y: self.area.y + row, height: 1, ..self.area }, style);
        }
    }
}

fn heading() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// A column of the table: its heading, its cells, and its maximum width.
struct Column {
    heading: &'static str,
    cells: Vec<String>,
    most: usize,
    right: bool,
}

/// Draws the table. Returns the cursor's position.
fn table(canvas: &mut Canvas<'_>, model: &Model, now: Instant) -> Option<Position> {
    let rows = model.rows(now);
    let height = usize::from(canvas.area.height);
    // On a small terminal the panes have priority.
    let (top, bottom) = (usize::from(height > 3), usize::from(height > 2 || model.view == View::Filter));
    let heads = usize::from(height > 4);
    if top > 0 {
        let shown = if model.filter.is_empty() { String::new() } else { format!("{} of ", rows.len()) };
        let title = format!(
            "muxtap top · {} · {shown}{} · {} · by {}",
            crate::cli::output::counted(model.servers.len(), "server"),
            crate::cli::output::counted(model.total(), "pane"),
            crate::cli::output::counted(model.waits(), "wait"),
            model.sort.name(),
        );
        canvas.line(0, &title, heading());
    }
    let fitting = height.saturating_sub(top + heads + bottom);
    let selected = model.selected(&rows);
    let first = (selected + 1).saturating_sub(fitting);
    let visible: Vec<_> = rows.iter().skip(first).take(fitting).copied().collect();
    let columns = columns(model, &visible, now);
    let widths: Vec<usize> = columns.iter().map(width_of).collect();
    if heads > 0 {
        let cells = columns.iter().map(|column| column.heading.to_owned());
        canvas.line(row_number(top), &joined(cells, &columns, &widths), heading());
    }
    for (number, (_, row)) in visible.iter().enumerate() {
        let at = row_number(top + heads + number);
        let cells = columns.iter().map(|column| column.cells.get(number).cloned().unwrap_or_default());
        canvas.line(at, &joined(cells, &columns, &widths), style_of(model, row, now));
        if first + number == selected {
            canvas.style(at, Style::new().add_modifier(Modifier::REVERSED));
        }
    }
    if rows.is_empty() && fitting > 0 {
        let why = if model.total() > 0 { "no pane matches the filter; Esc clears it" } else { "no panes" };
        canvas.line(row_number(top + heads), why, Style::new());
    }
    if bottom == 0 {
        return None;
    }
    let at = row_number(height.saturating_sub(1));
    if model.view == View::Filter {
        let typed = format!("/{}", harmless_keeping_blanks(&model.filter));
        canvas.line(at, &typed, Style::new());
        let column = u16::try_from(width::of_text(&typed)).unwrap_or(u16::MAX).min(canvas.area.width.saturating_sub(1));
        return Some(Position { x: column, y: at });
    }
    match &model.lost {
        Some(why) => canvas.line(at, &harmless(&plain::name(why)), heading()),
        None if !model.filter.is_empty() => {
            canvas.line(at, &format!("/{}  (Esc clears it)", harmless_keeping_blanks(&model.filter)), Style::new());
        }
        None => canvas.line(at, "q quit  j/k select  Enter screen  / filter  s sort  ? help", Style::new()),
    }
    None
}

fn row_number(row: usize) -> u16 {
    u16::try_from(row).unwrap_or(u16::MAX)
}

/// As [`harmless`], but keeps trailing blanks, which are being typed.
fn harmless_keeping_blanks(text: &str) -> String {
    let blanks = text.len() - text.trim_end().len();
    format!("{}{:blanks$}", harmless(text), "")
}

fn columns(model: &Model, rows: &[(&Id, &Row)], now: Instant) -> Vec<Column> {
    let name = |text: &str| harmless(&plain::name(text));
    let column = |heading, most, right, cell: &dyn Fn(&Id, &Row) -> String| Column {
        heading,
        most,
        right,
        cells: rows.iter().map(|(id, row)| cell(id, row)).collect(),
    };
    let agent = |_: &Id, row: &Row| {
        row.agent.as_ref().map_or_else(String::new, |agent| name(&format!("{} {}", agent.agent, agent.state.as_str())))
    };
    let idle = |_: &Id, row: &Row| {
        let (seconds, is_known) = row.idle(now);
        format!("{}{}", if is_known { "" } else { ">" }, short_duration(seconds))
    };
    let mut columns = vec![column("ID", 6, false, &|id, _| id.1.to_string())];
    if model.servers.len() > 1 {
        columns.push(column("SERVER", 12, false, &|id, _| {
            name(&Path::new(&id.0).file_name().map_or_else(|| id.0.clone(), |name| name.to_string_lossy().into_owned()))
        }));
    }
    columns.push(column("PANE", 24, false, &|_, row| name(&row.place())));
    columns.push(column("COMMAND", 18, false, &|_, row| name(&row.command())));
    columns.push(column("OUTPUT", 8, true, &|_, row| rate(row.rate(now))));
    columns.push(column("IDLE", 5, true, &idle));
    columns.push(column("AGENT", 20, false, &agent));
    columns.push(column("WAITED FOR", 32, false, &|id, _| model.waited_for(id)));
    columns.push(column("LAST LINE", usize::MAX, false, &|_, row| row.last_line.clone()));
    // Omits columns that are empty for all panes.
    columns.retain(|column| {
        !matches!(column.heading, "AGENT" | "WAITED FOR") || column.cells.iter().any(|cell| !cell.is_empty())
    });
    columns
}

fn width_of(column: &Column) -> usize {
    let widest = column.cells.iter().map(|cell| width::of_text(cell)).max().unwrap_or(0);
    widest.min(column.most).max(column.heading.len())
}

fn joined(cells: impl Iterator<Item = String>, columns: &[Column], widths: &[usize]) -> String {
    let mut line = String::new();
    for ((cell, column), wide) in cells.zip(columns).zip(widths) {
        let cell = clip(&cell, *wide);
        let blanks = if column.most == usize::MAX { 0 } else { wide.saturating_sub(width::of_text(cell)) };
        let (before, after) = if column.right { (blanks, 0) } else { (0, blanks) };
        line.push_str(&" ".repeat(before));
        line.push_str(cell);
        line.push_str(&" ".repeat(after + 2));
    }
    line
}

fn style_of(model: &Model, row: &Row, now: Instant) -> Style {
    let asks =
        row.agent.as_ref().is_some_and(|agent| matches!(agent.state, AgentState::Permission | AgentState::Question));
    match (asks, model.color) {
        (true, true) => Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD),
        (true, false) => heading(),
        (false, true) if row.rate(now) > 0 => Style::new().fg(Color::Green),
        (false, true) if row.info.dead => Style::new().fg(Color::Red),
        (false, _) => Style::new(),
    }
}

/// Formats bytes a second.
fn rate(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        1..1_000 => format!("{bytes}B/s"),
        1_000..1_000_000 => format!("{}K/s", bytes / 1_000),
        1_000_000..1_000_000_000 => format!("{}M/s", bytes / 1_000_000),
        _ => format!("{}G/s", bytes / 1_000_000_000),
    }
}

fn screen(canvas: &mut Canvas<'_>, model: &Model, now: Instant) {
    let rows = model.rows(now);
    let Some((id, row)) = rows.get(model.selected(&rows)).copied() else {
        canvas.line(0, "the pane has ended; Esc: back", Style::new());
        return;
    };
    let top = u16::from(canvas.area.height > 1);
    if top > 0 {
        let title = format!("{}  {}  {}  (Esc: back)", id.1, plain::name(&row.place()), plain::name(&row.command()));
        canvas.line(0, &harmless(&title), heading());
    }
    if row.screen.is_empty() {
        canvas.line(top, "this screen is not followed in memory", Style::new());
    }
    // Cuts the top: the rows with new output are the interesting ones.
    let fitting = usize::from(canvas.area.height.saturating_sub(top));
    let used = row.screen.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
    let cursor_row = row.cursor.map_or(0, |(_, y)| y as usize + 1);
    let first = used.max(cursor_row).saturating_sub(fitting);
    for (at, line) in (top..).zip(row.screen.iter().skip(first)) {
        canvas.line(at, line, Style::new());
    }
    if let Some((x, y)) = row.cursor
        && let (Ok(x), Some(Ok(y))) = (u16::try_from(x), (y as usize).checked_sub(first).map(u16::try_from))
        && x < canvas.area.width
        && y.saturating_add(top) < canvas.area.height
    {
        let at = Rect { x: canvas.area.x + x, y: canvas.area.y + top + y, width: 1, height: 1 };
        canvas.buffer.set_style(at, Style::new().add_modifier(Modifier::REVERSED));
    }
}
