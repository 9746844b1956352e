//! Figures, and how they are printed.

use std::time::Duration;

/// What is to be reached.
#[derive(Clone, Copy)]
pub enum Goal {
    AtMost(f64),
    AtLeast(f64),
    /// Printed for comparison.
    None,
}

/// Says what stands in the columns.
pub fn heading() {
    println!("muxtap {}: measured side by side in this run; + goal reached, - goal missed", env!("CARGO_PKG_VERSION"));
}

/// Begins a part.
pub fn part(title: &str) {
    println!("\n{title}");
}

/// Prints one figure beside its goal.
pub fn figure(name: &str, value: f64, unit: &str, goal: Goal) {
    let (mark, wanted) = match goal {
        Goal::AtMost(most) => (if value <= most { '+' } else { '-' }, format!("goal: at most {} {unit}", short(most))),
        Goal::AtLeast(least) => {
            (if value >= least { '+' } else { '-' }, format!("goal: at least {} {unit}", short(least)))
        }
        Goal::None => (' ', String::new()),
    };
    println!("{mark} {name:<58} {:>9} {unit:<5} {wanted}", short(value));
}

/// Prints whether something holds.
pub fn holds(name: &str, holds: bool, what: &str) {
    println!("{} {name:<58} {what}", if holds { '+' } else { '-' });
}

fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        small if small < 0.1 => format!("{value:.4}"),
        small if small < 10.0 => format!("{value:.2}"),
        small if small < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Measured times.
#[derive(Default)]
pub struct Times(Vec<Duration>);

impl Times {
    pub fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// The time below which this part of all lie, in microseconds.
    pub fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = ((sorted.len() as f64 * part).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
        sorted.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
    }

    pub fn p50(&self) -> f64 {
        self.quantile(0.5)
    }

    pub fn p99(&self) -> f64 {
        self.quantile(0.99)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}
