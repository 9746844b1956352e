//! How the program is linked.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // A position-independent program has some 17,000 addresses put right by the dynamic linker each time it starts: a tenth of the time that
    // `muxtap capture-pane` takes from start to exit. What its random addresses would make harder needs a memory error first, and this
    // program's own code is safe Rust throughout.
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|target| target == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
