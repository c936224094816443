//! From what is written to what may be relied on.

use super::raw::{Fields, Mistake, Reader, parse};
use super::{Config, Part};
use crate::limit::{Field, Policy};

/// More tiers than this are users, and belong into overrides.
const MOST_TIERS: usize = 1_000;

const SECTIONS: [&str; 2] = ["defaults", "tiers"];

/// Compiles a whole file.
pub(super) fn compile(text: &str) -> Result<(Config, Vec<Mistake>), Vec<Mistake>> {
    let root = parse(text).map_err(|mistake| vec![mistake])?;
    let mut reader = Reader::default();
    let mut warnings = Vec::new();
    let mut config = Config::default();
    if let Some(mut file) = reader.map(&root, "") {
        if let Some(entry) = file.take("defaults")
            && let Some(mut fields) = reader.map(&entry.node, "defaults")
        {
            config.defaults = reader.part(&mut fields);
            reader.finish(&fields, misplaced_in_policy);
            check_together(&mut reader, &mut warnings, &fields, &[&config.defaults]);
        }
        if let Some(entry) = file.take("tiers")
            && let Some(mut tiers) = reader.map(&entry.node, "tiers")
        {
            compile_tiers(&mut reader, &mut warnings, &mut tiers, &mut config);
        }
        reader.finish(&file, |key| Field::from_name(key).map(|field| format!("{field} belongs under defaults, or under a tier")));
    }
    if reader.mistakes.is_empty() {
        return Ok((config, warnings));
    }
    reader.mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
    Err(reader.mistakes)
}

fn compile_tiers(reader: &mut Reader, warnings: &mut Vec<Mistake>, tiers: &mut Fields<'_>, config: &mut Config) {
    let entries = tiers.take_all();
    if entries.len() > MOST_TIERS {
        reader.note(
            tiers.place(),
            "tiers",
            format!("{} tiers, at most {MOST_TIERS} are taken", entries.len()),
            Some("limits of single users are overrides".to_owned()),
        );
        return;
    }
    for entry in entries {
        let path = tiers.path(&entry.key);
        if !is_name(&entry.key) {
            let hint = "a name has 1 to 64 of a-z 0-9 _ -, and begins with a letter or digit";
            reader.note(entry.place, &path, "not a name for a tier", Some(hint.to_owned()));
            continue;
        }
        if let Some(mut fields) = reader.map(&entry.node, &path) {
            let part = reader.part(&mut fields);
            reader.finish(&fields, misplaced_in_policy);
            check_together(reader, warnings, &fields, &[&config.defaults, &part]);
            config.tiers.insert(entry.key.as_str().into(), part);
        }
    }
}

/// Whether the layers, weakest first, make a policy; a mistake and a warning stand where the last of them does.
fn check_together(reader: &mut Reader, warnings: &mut Vec<Mistake>, fields: &Fields<'_>, layers: &[&Part]) {
    let mut merged = Part::default();
    for layer in layers {
        merged.lay_over(layer);
    }
    match Policy::compile(&merged) {
        Ok(policy) => warnings.extend(
            policy.warnings().iter().map(|warning| fields.place().mistake(fields.path("").trim_end_matches('.'), warning.to_string())),
        ),
        Err(problems) => {
            for problem in problems {
                let path = fields.path(problem.field.name());
                reader.note(fields.place(), &path, format!("{} is not {}", problem.value, problem.expected), problem.hint);
            }
        }
    }
}

fn misplaced_in_policy(key: &str) -> Option<String> {
    SECTIONS.contains(&key).then(|| format!("{key} stands at the top of the file"))
}

/// `[a-z0-9][a-z0-9_-]{0,63}`: what may also be a label and a part of a key.
fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.len() <= 64 && bytes.first().is_some_and(plain) && bytes.iter().all(|byte| plain(byte) || matches!(byte, b'_' | b'-'))
}
