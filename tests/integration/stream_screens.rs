//! Helpers for the tests of screens in streams: a program that draws, and tmux's captures of it.

use crate::{common::World, subscribers::Drawn};

/// A program that draws another picture for each line it reads, with `step N done` in the last row
/// at its end; for the line `end` it draws a line in the middle.
pub const DRAWS: &str = r#"stty -echo; echo ready; n=0
while read -r word; do
  if [ "$word" = end ]; then printf '\033[12;1H\033[2Kthe end'; continue; fi
  case $((n % 6)) in
    0) printf '\033[2J\033[H'; i=1; while [ $i -le 22 ]; do printf '\033[%d;%dH\033[3%dmrow %d\033[0m' $i $((i * 2)) $((i % 8)) $i; i=$((i + 1)); done;;
    1) printf '\033[5;10r\033[10;1H'; seq 1 20; printf '\033[r';;
    2) printf '\033[?1049h\033[2J\033[3;3H\033[1;7malternate\033[0m \344\270\255\346\226\207';;
    3) printf '\033[?1049l';;
    4) seq 1 60; printf '\033[10;1H\033[3L\033[14;1H\033[2M\033[4;5H\033[1mbold\033[0m\033[K';;
    5) printf '\033[1;1H\033[44mblue\033[K\033[0m\033[20;70Hwraps over the end of the line';;
  esac
  printf '\033[24;1H\033[2Kstep %d done' $n; n=$((n + 1))
done"#;

/// The number of steps that [`DRAWS`] has.
pub const STEPS: usize = 12;

/// Returns whether the screens of this tmux are followed in memory.
pub fn followed_in_memory(world: &World) -> bool {
    let source = world.json(&["capture-pane", "-t", "main"])["source"].as_str().unwrap().to_owned();
    source == "model"
}

/// Asserts that both pictures equal tmux's current captures: plain, and row by row with styles.
pub fn is_what_tmux_prints(world: &World, pane: &str, plain: &Drawn, styled: &Drawn) {
    let shown = world.tmux(&["capture-pane", "-p", "-t", pane]);
    assert_eq!(plain.text(), shown);
    for (number, row) in styled.rows.iter().enumerate() {
        let number = number.to_string();
        let shown = world.tmux(&["capture-pane", "-p", "-e", "-t", pane, "-S", &number, "-E", &number]);
        assert_eq!(row, &shown, "row {number}");
    }
    let place = world.tmux(&["display-message", "-p", "-t", pane, "#{cursor_x} #{cursor_y} #{alternate_on}"]);
    for drawn in [plain, styled] {
        let (x, y) = drawn.cursor;
        assert_eq!(format!("{x} {y} {}", u8::from(drawn.alternate)), place);
    }
}
