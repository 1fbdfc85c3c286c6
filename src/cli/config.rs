//! `worktree config`: the stored configuration of the worker, by key.

use clap::Args;
use serde_json::{Value, json};

use super::session::{Common, Session};
use super::trouble::{Outcome, Trouble};
use super::{Exit, output};
use crate::model::Code;
use crate::model::config::WorktreeConfig;
use crate::wire::WORKER_NAME;

const AFTER_HELP: &str = "\
Keys are written with dots. A value is JSON where it can be read as such, else text. It is in force when the command \
ends; one that cannot be applied is refused and changes nothing.

Examples:
  worktree config
  worktree config gates.allow_force
  worktree config gates.allow_force true
  worktree config gates.land_targets '[\"main\", \"release/*\"]'

Exit codes:
  0  shown, or stored and in force
  1  refused, with the key named
  2  the command line is wrong, or there is no such key
  3  no engine answers";

/// The subcommand.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    /// A key, for instance gates.allow_force [default: all]
    #[arg(value_name = "KEY")]
    key: Option<String>,
    /// What to set it to
    #[arg(value_name = "VALUE")]
    value: Option<String>,
    #[command(flatten)]
    pub(super) common: Common,
}

pub(super) async fn run(arguments: Arguments, session: &Session) -> Outcome {
    let link = session.link().await?;
    let id = std::env::var("III_CONFIG_NAME").ok().filter(|id| !id.is_empty());
    let id = id.unwrap_or_else(|| WORKER_NAME.to_owned());
    let stored = link.read("configuration::get", json!({"id": id, "raw": true})).await?["value"].take();
    // What is stored may leave keys out; all of them have a value all the same.
    let whole = with_defaults(json!(WorktreeConfig::default()), &stored);
    let Some(key) = arguments.key else {
        session.print(&whole, || lines("", &whole))?;
        return Ok(Exit::Success);
    };
    let pointer = format!("/{}", key.replace('.', "/"));
    let Some(current) = whole.pointer(&pointer) else {
        return Err(Trouble::usage(format!("there is no key `{key}`; `worktree config` shows all")));
    };
    let Some(value) = arguments.value else {
        session.print(current, || plain(current))?;
        return Ok(Exit::Success);
    };
    let value = serde_json::from_str(&value).unwrap_or(Value::String(value));
    let mut changed = if stored.is_object() { stored } else { json!({}) };
    put(&mut changed, &key, value.clone());
    let stored = session.change("configuration::set", json!({"id": id, "value": changed})).await;
    stored.map_err(|trouble| match trouble {
        // The schema tells what is wrong, and not always where.
        Trouble::Refused { code, message } => {
            Trouble::Refused { code, message: format!("`{key}` cannot be {value}: {message}") }
        }
        other => other,
    })?;
    // The engine tells the worker on its own time; asking makes sure that the next command meets the new value.
    let applied = session.change("worktree::on-config-change", json!({})).await?;
    if applied["ok"] != true {
        return Err(Trouble::Refused {
            code: Code::InvalidConfig.to_string(),
            message: format!(
                "`{key}` is stored, but the worker cannot apply it and keeps the previous one; see its log"
            ),
        });
    }
    if session.json {
        output::json(&value)?;
    }
    Ok(Exit::Success)
}

/// `over` in the place of the parts of `base` that it names.
fn with_defaults(base: Value, over: &Value) -> Value {
    match (base, over) {
        (Value::Object(mut base), Value::Object(over)) => {
            for (key, value) in over {
                let below = base.remove(key).unwrap_or(Value::Null);
                base.insert(key.clone(), with_defaults(below, value));
            }
            Value::Object(base)
        }
        (base, Value::Null) => base,
        (_, over) => over.clone(),
    }
}

/// Sets a key in a value of nested objects.
fn put(value: &mut Value, key: &str, new: Value) {
    match key.split_once('.') {
        Some((first, rest)) => {
            if !value[first].is_object() {
                value[first] = json!({});
            }
            put(&mut value[first], rest, new);
        }
        None => value[key] = new,
    }
}

/// Every key with its value, one a line.
fn lines(prefix: &str, value: &Value) -> String {
    let Some(fields) = value.as_object() else { return format!("{prefix} = {value}\n") };
    let below = |key: &String| if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
    fields.iter().map(|(key, value)| lines(&below(key), value)).collect()
}

/// A value as one would type it.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(_) => lines("", value),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_is_changed_and_the_others_stay() {
        let mut value = json!({"gates": {"allow_force": false, "repos": ["*"]}, "branch_prefix": "iii/"});
        put(&mut value, "gates.allow_force", json!(true));
        put(&mut value, "provision.copy_ignored", json!(true));
        let expected = json!({
            "gates": {"allow_force": true, "repos": ["*"]}, "branch_prefix": "iii/",
            "provision": {"copy_ignored": true},
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn what_is_stored_wins_over_the_defaults() {
        let base = json!({"a": 1, "b": {"c": 2, "d": [1]}});
        let whole = with_defaults(base, &json!({"b": {"d": [2]}, "e": 3}));
        assert_eq!(whole, json!({"a": 1, "b": {"c": 2, "d": [2]}, "e": 3}));
        assert_eq!(lines("", &whole), "a = 1\nb.c = 2\nb.d = [2]\ne = 3\n");
    }
}
