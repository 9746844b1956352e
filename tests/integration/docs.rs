//! Checks that the pages of `docs/` match the source.
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the rows of a page's tables as cells, without backquotes.
fn rows(page: &str) -> impl Iterator<Item = Vec<String>> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    rows.map(|row| row.split(" | ").map(|cell| cell.replace('`', "")).collect())
}

/// Returns a constant's or a field's value in a source file: a number, milliseconds for a time.
fn value(source: &str, name: &str) -> u64 {
    let of_const = source.lines().find_map(|line| {
        let visible = line.trim_start();
        let (visibility, declared) = visible.split_once("const ")?;
        let declared =
            declared.strip_prefix(name).filter(|_| visibility.is_empty() || visibility.starts_with("pub"))?;
        declared.strip_prefix(": ")?.split_once(" = ")?.1.strip_suffix(';')
    });
    let of_field =
        || source.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": ")?.strip_suffix(','));
    let field = || of_field().filter(|text| text.starts_with(|first: char| first.is_ascii_digit()));
    number(of_const.or_else(field).unwrap_or_else(|| panic!("no constant {name}")))
}

/// Evaluates `1024 * 1024`, `10 << 20`, `Duration::from_secs(30)`.
fn number(expression: &str) -> u64 {
    let call = |name| expression.strip_prefix(name).and_then(|rest| rest.strip_suffix(')'));
    if let Some(seconds) = call("Duration::from_secs(") {
        return number(seconds) * 1000;
    }
    if let Some(milliseconds) = call("Duration::from_millis(") {
        return number(milliseconds);
    }
    if let Some((left, right)) = expression.split_once(" << ") {
        return number(left) << number(right);
    }
    let factors = expression.split(" * ").map(|factor| factor.replace('_', "").parse::<u64>());
    factors.product::<Result<_, _>>().unwrap_or_else(|error| panic!("{expression:?}: {error}"))
}

/// Parses `1 MiB`, `10 min`, `4096`.
fn told(cell: &str) -> u64 {
    let (digits, unit) = cell.split_once(' ').unwrap_or((cell, ""));
    let unit = match unit {
        "" | "ms" => 1,
        "s" => 1000,
        "min" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => panic!("{cell:?}: an unknown unit"),
    };
    digits.parse::<u64>().unwrap_or_else(|error| panic!("{cell:?}: {error}")) * unit
}

#[test]
fn the_settings_are_those_of_the_source() {
    let page = read("docs/config.md");
    let told: Vec<_> =
        rows(&page).filter(|row| row.len() == 4 && !matches!(row[0].as_str(), "setting" | "---")).collect();
    let keys = &muxtap::config::KEYS;
    assert_eq!(told.iter().map(|row| &row[0]).collect::<Vec<_>>(), keys.iter().map(|key| key.name).collect::<Vec<_>>());
    for (row, key) in told.iter().zip(keys) {
        assert_eq!(row[1], key.env);
        let preset = key.default_value();
        assert!(row[2].trim() == preset || preset.is_empty() && row[2].contains(" next to "), "{row:?} {preset}");
    }
}

#[test]
fn limits_are_those_of_the_source() {
    let page = read("docs/limits.md");
    let engine = read("crates/muxtap-engine/src/limits.rs");
    let patterns = read("crates/muxtap-core/src/stream/matcher/bounds.rs");
    let mut of_engine = BTreeSet::new();
    let mut others = 0;
    for row in rows(&page).filter(|row| !matches!(row[0].as_str(), "constant" | "field" | "---")) {
        let name = row[0].as_str();
        let (source, cell) = if row[1].contains('/') {
            others += 1;
            (&read(&row[1]), &row[2])
        } else if name.chars().all(|letter| letter.is_lowercase() || letter == '_') {
            (&patterns, &row[1])
        } else {
            of_engine.insert(name.to_owned());
            (&engine, &row[1])
        };
        assert_eq!(told(cell), value(source, name), "{name}");
    }
    let declared: BTreeSet<String> = engine
        .lines()
        .filter_map(|line| Some(line.strip_prefix("pub const ")?.split_once(':')?.0.to_owned()))
        .collect();
    assert_eq!(of_engine, declared, "docs/limits.md and crates/muxtap-engine/src/limits.rs");
    assert!(others > 20);
}

fn pages() -> Vec<PathBuf> {
    let is_page = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "md");
    let folders = ["", "docs", "docs/skill", ".github"].map(|folder| root().join(folder));
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path());
    files.filter(is_page).collect()
}

/// Returns a page's lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Returns the anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for heading in prose(text).filter(|line| line.starts_with('#')) {
        let title = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        let anchor: String = title.chars().filter(|&c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect();
        let mut names = std::iter::once(anchor.clone()).chain((1..100).map(|count| format!("{anchor}-{count}")));
        all.extend(names.find(|name| !all.contains(name)));
    }
    all
}

#[test]
fn links_lead_to_files_and_headings() {
    let (mut links, mut headings) = (0, 0);
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let text: Vec<&str> = prose(&text).collect();
        let text = text.join("\n");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            // A regex in an example may look like a link; a link has no space, and a path or an anchor.
            let is_link = !link.contains([' ', '\\']) && (link.contains(['.', '/', '#']) || link == "LICENSE");
            if !is_link || link.contains("://") {
                continue;
            }
            links += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let to = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(to.exists(), "{}: {link}", page.display());
            if !anchor.is_empty() && to.extension().is_some_and(|kind| kind == "md") {
                headings += 1;
                let of = anchors(&fs::read_to_string(&to).unwrap());
                assert!(of.contains(anchor), "{}: no heading {link}", page.display());
            }
        }
    }
    assert!(links > 500 && headings > 200, "{links} links, {headings} to headings");
    assert_eq!(
        anchors("# A `b`: c!\n```sh\n# No heading\n```\n## D\n## D\n"),
        ["a-b-c", "d", "d-1"].map(str::to_owned).into()
    );
}

/// The index of `docs/`, from which `scripts/site` makes the site's contents.
#[test]
fn the_index_lists_each_page() {
    let index = read("docs/README.md");
    let docs = root().join("docs");
    for page in pages().iter().filter_map(|page| page.strip_prefix(&docs).ok()?.to_str()) {
        let entry = |line: &str| line.starts_with("- [") && line.contains(&format!("]({page}): "));
        assert!(page == "README.md" || index.lines().any(entry), "docs/README.md: {page}");
    }
}

fn sources(folder: &Path, all: &mut String) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            sources(&entry, all);
        } else if entry.extension().is_some_and(|kind| kind == "rs") {
            all.push_str(&fs::read_to_string(entry).unwrap());
        }
    }
}

/// Tests that prove an invariant exist: checks every function's name in a row that begins with a
/// number such as `S1`.
#[test]
fn tests_that_prove_an_invariant_exist() {
    let mut all = String::new();
    sources(&root().join("crates"), &mut all);
    sources(&root().join("src"), &mut all);
    sources(&root().join("tests"), &mut all);
    let is_number = |cell: &str| {
        let digits = cell.strip_prefix("WN").or_else(|| cell.strip_prefix(['C', 'S', 'W', 'E']));
        digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()))
    };
    let mut proofs = 0;
    for page in pages() {
        for row in rows(&fs::read_to_string(&page).unwrap()).filter(|row| is_number(&row[0])) {
            let words = row.last().unwrap().split([' ', ',']);
            for name in words.filter(|word| word.contains('_') && !word.contains('/') && !word.ends_with('…')) {
                let name = name.rsplit("::").next().unwrap();
                proofs += 1;
                assert!(all.contains(&format!("fn {name}(")), "{}: {}: no test {name}", page.display(), row[0]);
            }
        }
    }
    assert!(proofs > 5);
}

/// Returns the directories of modules, and for a crate the prefix of its modules' names
/// (`tmux::seed::tests`).
fn module_roots() -> Vec<(String, Option<String>)> {
    let crates = fs::read_dir(root().join("crates")).unwrap().map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        (format!("crates/{name}/src"), name.strip_prefix("muxtap-").map(str::to_owned))
    });
    let own = ["tests/integration", "crates/muxtap-program/src", "crates/muxtap-core/src"]
        .map(|folder| (folder.to_owned(), None));
    own.into_iter().chain(crates).collect()
}

/// Returns whether a module has this test: `a/b.rs` or `a/b/mod.rs` under one of the roots, or a
/// module within that file.
fn is_test(module: &[&str], name: &str) -> bool {
    module_roots().iter().any(|(folder, of_crate)| {
        let module = match (of_crate, module) {
            (None, module) => module,
            (Some(of_crate), [first, rest @ ..]) if first == of_crate => rest,
            _ => return false,
        };
        (1..=module.len()).any(|count| {
            let (file, within) = module.split_at(count);
            let file = file.join("/");
            let files = [format!("{folder}/{file}.rs"), format!("{folder}/{file}/mod.rs")];
            files.iter().filter_map(|path| fs::read_to_string(root().join(path)).ok()).any(|source| {
                within.iter().all(|name| source.contains(&format!("mod {name} {{"))) && has_test(&source, name)
            })
        })
    })
}

/// Returns whether a source has a test with this name: the attribute is above it, or it is one of
/// proptest's.
fn has_test(source: &str, name: &str) -> bool {
    let (function, of_tokio) = (format!("fn {name}("), format!("async fn {name}("));
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let Some(at) = lines.iter().position(|line| line.starts_with(&function) || line.starts_with(&of_tokio)) else {
        return false;
    };
    let above = &lines[..at];
    let is_attribute = |line: &&str| line.starts_with("#[test]") || line.starts_with("#[tokio::test");
    above.iter().rev().take_while(|line| line.starts_with(['#', '/'])).any(is_attribute)
        || above.contains(&"proptest! {")
}

/// Returns the words between backquotes that name a test: modules and a function.
fn named_tests(text: &str) -> impl Iterator<Item = &str> {
    let is_name =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(move |word| *word != "module::name" && word.contains("::") && word.split("::").all(is_name))
}

/// K37.
#[test]
fn each_test_run_checks_the_dependencies() {
    let step = "    in_turn \"dependencies: licenses, sources, known vulnerabilities\" scripts/cargo-deny || _bad=1";
    assert!(read("scripts/test").lines().any(|line| line == step));
    assert!(read("scripts/cargo-deny").contains("|| set -- bans licenses sources advisories\n"));
}

/// Each promise of these pages is proved by tests that exist, or says plainly that it is not.
#[test]
fn promises_and_claims_name_tests_that_exist() {
    let mut proofs = 0;
    let pages = [
        ("docs/reliability.md", 'R'),
        ("docs/security.md", 'K'),
        ("docs/devices.md", 'D'),
        ("docs/agent-sessions.md", 'G'),
        ("docs/page.md", 'P'),
        ("docs/assurance.md", 'A'),
    ];
    for (page, letter) in pages {
        let text = read(page);
        for test in named_tests(&text) {
            let parts: Vec<&str> = test.split("::").collect();
            let (name, module) = parts.split_last().unwrap();
            assert!(is_test(module, name), "{page}: no test {test}");
            proofs += 1;
        }
        let promises = text.lines().filter(|line| {
            let number = line.strip_prefix("| ").and_then(|rest| rest.strip_prefix(letter));
            number.is_some_and(|number| number.starts_with(|first: char| first.is_ascii_digit()))
        });
        for (count, promise) in (1..).zip(promises) {
            assert!(promise.starts_with(&format!("| {letter}{count} | ")), "{page}: {count} comes next: {promise}");
            assert!(named_tests(promise).count() > 0 || promise.contains("not proved yet"), "{page}: {promise}");
        }
    }
    assert!(proofs > 100, "{proofs}");
    assert!(!has_test("fn helper() {}\n", "helper") && has_test("#[test]\nfn one() {}\n", "one"));
}

/// What each byte of a pane passes is compiled for speed, and the connections of each request (`muxtap-net`), and so is
/// the last pass over all crates: at "s" or "z" it makes no vector instructions. Each other crate is compiled for size.
#[test]
fn the_path_of_a_byte_is_compiled_for_speed() {
    let manifest = read("Cargo.toml");
    assert!(manifest.contains("\n[profile.release]\nopt-level = 3\n"));
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let for_speed = ["muxtap-base", "muxtap-core", "muxtap-engine", "muxtap-net", "muxtap-tmux"];
        let for_speed = for_speed.contains(&name.as_str());
        let for_size = ["s", "z"]
            .iter()
            .any(|level| manifest.contains(&format!("[profile.release.package.{name}]\nopt-level = \"{level}\"\n")));
        assert_ne!(for_speed, for_size, "Cargo.toml: the profile of {name}");
    }
    for name in ["aho-corasick", "bytes", "memchr", "nom", "regex-automata", "serde_json", "tokio"] {
        let profile = format!("[profile.release.package.{name}]\nopt-level = 3\n");
        assert!(manifest.contains(&profile), "Cargo.toml has no profile of {name}");
    }
}
