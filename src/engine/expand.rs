//! `${NAME}` and `${NAME:default}` in configuration values.

use serde_json::Value;

/// Where variables come from.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Expands every string of the value, and gives the names that have neither a value nor a default; what names
/// them stays as it was.
///
/// A string that is one placeholder and nothing else becomes what its text means in YAML: a number, a boolean, …
pub(super) fn expand(value: &Value, lookup: Lookup<'_>) -> (Value, Vec<String>) {
    let mut missing = Vec::new();
    let value = walk(value, lookup, &mut missing);
    missing.sort();
    missing.dedup();
    (value, missing)
}

fn walk(value: &Value, lookup: Lookup<'_>, missing: &mut Vec<String>) -> Value {
    match value {
        Value::String(text) => expand_text(text, lookup, missing),
        Value::Array(items) => items.iter().map(|item| walk(item, lookup, missing)).collect(),
        Value::Object(map) => map.iter().map(|(key, item)| (key.clone(), walk(item, lookup, missing))).collect(),
        other => other.clone(),
    }
}

fn expand_text(text: &str, lookup: Lookup<'_>, missing: &mut Vec<String>) -> Value {
    let mut out = String::new();
    let mut rest = text;
    let mut lone = false;
    while let Some(start) = rest.find("${") {
        let (before, from) = rest.split_at(start);
        out.push_str(before);
        let Some((name, default, length)) = placeholder(from) else {
            out.push_str("${");
            rest = from.get(2..).unwrap_or_default();
            continue;
        };
        match lookup(name).or_else(|| default.map(str::to_owned)) {
            Some(value) => {
                lone = length == text.len();
                out.push_str(&value);
            }
            None => {
                missing.push(name.to_owned());
                out.push_str(from.get(..length).unwrap_or_default());
            }
        }
        rest = from.get(length..).unwrap_or_default();
    }
    out.push_str(rest);
    if lone { scalar(out) } else { Value::String(out) }
}

/// The name, the default and the length of a placeholder at the start of the text.
fn placeholder(text: &str) -> Option<(&str, Option<&str>, usize)> {
    let end = text.find('}')?;
    let inner = text.get(2..end)?;
    let (name, default) = match inner.split_once(':') {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    let mut letters = name.bytes();
    let named = letters.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && letters.all(|b| b.is_ascii_alphanumeric() || b == b'_');
    named.then_some((name, default, end + 1))
}

fn scalar(text: String) -> Value {
    match serde_yaml_ng::from_str::<Value>(&text) {
        Ok(value @ (Value::Null | Value::Bool(_) | Value::Number(_))) => value,
        _ => Value::String(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn placeholders_take_the_variable_then_the_default_then_stay() {
        let lookup = |name: &str| match name {
            "PORT" => Some("8080".to_owned()),
            "HOST" => Some("db".to_owned()),
            "FLAG" => Some("true".to_owned()),
            _ => None,
        };
        let (value, missing) = expand(
            &json!({
                "port": "${PORT}", "flag": "${FLAG}", "url": "pg://${HOST}:${PORT}/x", "d": "${NO:7}", "e": "${NO:}",
                "list": ["${NO:a b}"], "miss": "at ${NO} or ${ALSO}", "odd": "${} ${1x} $ {HOST} ${HOST", "n": 3
            }),
            &lookup,
        );
        assert_eq!(
            value,
            json!({
                "port": 8080, "flag": true, "url": "pg://db:8080/x", "d": 7, "e": null, "list": ["a b"],
                "miss": "at ${NO} or ${ALSO}", "odd": "${} ${1x} $ {HOST} ${HOST", "n": 3
            })
        );
        assert_eq!(missing, ["ALSO", "NO"]);
    }
}
