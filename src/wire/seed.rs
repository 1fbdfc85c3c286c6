//! The seed file: the configuration that an engine gets which stores none yet.
//!
//! `${NAME}` and `${NAME:default}` stand for variables of this worker's own environment. They are replaced here, before
//! the value is handed over: the engine would look into its own environment, on another machine perhaps.

use std::path::Path;

use serde_json::{Value, json};

use crate::model::config::WorktreeConfig;

/// The value in `file`, its variables replaced; the defaults without a file.
///
/// # Errors
/// In words: the file, and what is wrong with it.
pub fn read(file: Option<&Path>) -> Result<Value, String> {
    let Some(file) = file else { return Ok(json!(WorktreeConfig::default())) };
    let parsed = std::fs::read_to_string(file).map_err(|error| error.to_string()).and_then(|text| {
        let value: Value = serde_yaml_ng::from_str(&text).map_err(|error| error.to_string())?;
        replaced(value, &|name| std::env::var(name).ok())
    });
    match parsed {
        Ok(Value::Null) => Ok(json!({})),
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(format!("the seed file {}: it must hold keys with values", file.display())),
        Err(why) => Err(format!("the seed file {}: {why}", file.display())),
    }
}

/// Replaces the variables in every text of a value.
fn replaced(value: Value, variable: &dyn Fn(&str) -> Option<String>) -> Result<Value, String> {
    match value {
        Value::String(text) => replaced_in(&text, variable),
        Value::Array(items) => items.into_iter().map(|item| replaced(item, variable)).collect(),
        Value::Object(fields) => {
            let pairs = fields.into_iter().map(|(key, item)| replaced(item, variable).map(|item| (key, item)));
            pairs.collect::<Result<serde_json::Map<_, _>, _>>().map(Value::Object)
        }
        other => Ok(other),
    }
}

/// The text with its variables replaced. A text that is one variable and nothing else becomes what it means in YAML.
fn replaced_in(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Value, String> {
    let mut out = String::new();
    let mut rest = text;
    let mut count = 0;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        match after.split_once('}').map(|(inner, behind)| (inner.split_once(':').unwrap_or((inner, "")), inner, behind))
        {
            Some(((name, default), inner, behind)) if is_name(name) => {
                let value = variable(name).or_else(|| inner.contains(':').then(|| default.to_owned()));
                out.push_str(&value.ok_or_else(|| {
                    format!("the variable {name} is not set; set it, or give a default: ${{{name}:…}}")
                })?);
                count += 1;
                rest = behind;
            }
            _ => {
                out.push_str("${");
                rest = after;
            }
        }
    }
    out.push_str(rest);
    let is_alone = count == 1 && text.starts_with("${") && text.find('}') == Some(text.len() - 1);
    let meant = is_alone.then(|| serde_yaml_ng::from_str::<Value>(&out).ok()).flatten();
    Ok(meant.filter(|value| value.is_number() || value.is_boolean()).unwrap_or(Value::String(out)))
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(value: Value) -> Result<Value, String> {
        replaced(value, &|name| match name {
            "HOURS" => Some("12".to_owned()),
            "HOME" => Some("/home/u".to_owned()),
            _ => None,
        })
    }

    #[test]
    fn variables_come_from_the_environment_or_their_default() {
        for (text, expected) in [
            ("${HOME}/wt", json!("/home/u/wt")),
            ("${HOURS}", json!(12)),
            ("${NO:true}", json!(true)),
            ("${NO:a:b}", json!("a:b")),
            ("${NO:}", json!("")),
            ("x ${HOURS} ${NO:y}", json!("x 12 y")),
            ("${HOURS}${HOURS}", json!("1212")),
            ("${1} ${ $HOME ${", json!("${1} ${ $HOME ${")),
        ] {
            assert_eq!(with(json!({"gates": {"repos": [text]}})).unwrap()["gates"]["repos"][0], expected, "{text}");
        }
        assert_eq!(with(json!({"n": 3, "b": null})).unwrap(), json!({"n": 3, "b": null}));
    }

    #[test]
    fn a_variable_without_a_value_is_named() {
        let why = with(json!({"worktree_root": "${NOWHERE}/wt"})).unwrap_err();
        assert!(why.contains("NOWHERE"), "{why}");
    }
}
