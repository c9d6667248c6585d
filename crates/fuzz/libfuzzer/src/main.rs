//! Runs the target that `BELLWETHER_FUZZ` names under libFuzzer: see `crates/fuzz/run`.
#![no_main]

use std::sync::LazyLock;

use bellwether_fuzz::{Target, target};
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("BELLWETHER_FUZZ").expect("BELLWETHER_FUZZ names a target");
    target(&name).expect("no such target")
});

fuzz_target!(|bytes: &[u8]| (TARGET.read)(bytes));
