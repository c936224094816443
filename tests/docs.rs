//! Documents say what the code says.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::fs;

use weir::limit::Field;

fn read(path: &str) -> String {
    fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_configuration_reference_has_every_field_as_the_code_has_it() {
    let mut table = String::from("| field | means | default | takes |\n| --- | --- | --- | --- |\n");
    for field in Field::ALL {
        let (about, default) = field.about();
        writeln!(table, "| `{field}` | {about} | {default} | {} |", field.kind()).expect("a String");
    }
    assert!(read("docs/configuration.md").contains(&table), "docs/configuration.md is behind; this is the table:\n{table}");
}

#[test]
fn the_example_configuration_is_right_and_draws_no_warning() {
    let loaded = weir::config::load(std::path::Path::new(&format!("{}/config/limit.yaml", env!("CARGO_MANIFEST_DIR")))).expect("right");
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
}
