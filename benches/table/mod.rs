//! A table of figures, each beside its goal.

/// A bound for a figure.
#[derive(Clone, Copy)]
pub enum Goal {
    AtMost(f64),
    AtLeast(f64),
    /// Printed for comparison.
    None,
}

/// Prints the columns' headings.
pub fn heading() {
    println!("muxtap {}: measured side by side in this run; + goal reached, - goal missed", env!("CARGO_PKG_VERSION"));
}

/// Prints the title of a part.
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

fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        small if small < 0.1 => format!("{value:.4}"),
        small if small < 10.0 => format!("{value:.2}"),
        small if small < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
