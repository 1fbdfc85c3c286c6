//! The operations of `state::update`, as a pure function.
//!
//! Invariants
//! 1. Operations apply in order; one that fails changes nothing and is reported, the others still apply.
//! 2. `set`, `increment`, `decrement` and `remove` name one literal first-level key; the empty path is the value.

use serde::Deserialize;
use serde_json::{Map, Value, json};

const MAX_DEPTH: usize = 32;
const MAX_SEGMENT_BYTES: usize = 256;
const MAX_MERGE_DEPTH: usize = 16;
const MAX_MERGE_KEYS: usize = 1024;
const REFUSED_KEYS: [&str; 3] = ["__proto__", "constructor", "prototype"];

/// One operation.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Op {
    Set {
        path: String,
        value: Value,
    },
    Merge {
        #[serde(default)]
        path: Value,
        value: Value,
    },
    Increment {
        path: String,
        by: i64,
    },
    Decrement {
        path: String,
        by: i64,
    },
    Append {
        #[serde(default)]
        path: Value,
        value: Value,
    },
    Remove {
        path: String,
    },
}

/// Why an operation did not apply: the code behind `<operation>.`, and a sentence.
struct Refusal(&'static str, String);

/// Applies the operations to the value, or to `{}` when there is none. Gives the new value and what failed.
pub(super) fn apply(current: Option<Value>, ops: Vec<Op>) -> (Value, Vec<Value>) {
    let mut value = current.unwrap_or_else(|| Value::Object(Map::new()));
    let mut errors = Vec::new();
    for (index, op) in ops.into_iter().enumerate() {
        let name = match &op {
            Op::Set { .. } => "set",
            Op::Merge { .. } => "merge",
            Op::Increment { .. } => "increment",
            Op::Decrement { .. } => "decrement",
            Op::Append { .. } => "append",
            Op::Remove { .. } => "remove",
        };
        if let Err(Refusal(code, message)) = apply_one(&mut value, op) {
            errors.push(json!({
                "op_index": index,
                "code": format!("{name}.{code}"),
                "message": message,
                "doc_url": format!("urn:iii:state:update:{name}.{code}"),
            }));
        }
    }
    (value, errors)
}

fn apply_one(root: &mut Value, op: Op) -> Result<(), Refusal> {
    match op {
        Op::Set { path, value } if path.is_empty() => *root = value,
        Op::Set { path, value } => {
            check_segment(&path)?;
            object(root, &path)?.insert(path, value);
        }
        Op::Increment { path, by } => add(root, &path, by)?,
        Op::Decrement { path, by } => {
            let by = by.checked_neg().ok_or_else(|| Refusal("overflow", format!("{by} cannot be subtracted.")))?;
            add(root, &path, by)?;
        }
        Op::Remove { path } => {
            object(root, &path)?.remove(&path);
        }
        Op::Merge { path, value } => {
            let segments = segments(&path)?;
            let Value::Object(new) = value else {
                return Err(Refusal("value.not_object", format!("Expected an object to merge, got {}.", kind(&value))));
            };
            check_merge(&new, 1, &mut 0)?;
            object_at(root, &segments)?.extend(new);
        }
        Op::Append { path, value } => append(root, &segments(&path)?, value)?,
    }
    Ok(())
}

fn add(root: &mut Value, path: &str, by: i64) -> Result<(), Refusal> {
    let slot = if path.is_empty() {
        root
    } else {
        check_segment(path)?;
        object(root, path)?.entry(path).or_insert_with(|| Value::from(0))
    };
    let sum = match &*slot {
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => number.checked_add(by).map(Value::from),
            #[expect(clippy::cast_precision_loss, reason = "a fraction has no exact sum anyway")]
            (None, Some(number)) => serde_json::Number::from_f64(number + by as f64).map(Value::Number),
            (None, None) => None,
        },
        other => return Err(Refusal("not_number", format!("Expected number at path '{path}', got {}.", kind(other)))),
    };
    *slot = sum.ok_or_else(|| Refusal("overflow", format!("The sum at path '{path}' is out of range.")))?;
    Ok(())
}

fn append(root: &mut Value, segments: &[String], value: Value) -> Result<(), Refusal> {
    let slot = match segments.split_last() {
        None => root,
        Some((last, parents)) => {
            let object = object_at(root, parents)?;
            if !object.contains_key(last) {
                let first = if value.is_string() { value } else { Value::Array(vec![value]) };
                object.insert(last.clone(), first);
                return Ok(());
            }
            object.entry(last).or_insert(Value::Null)
        }
    };
    match (slot, value) {
        (Value::Array(items), value) => items.push(value),
        (Value::String(text), Value::String(more)) => text.push_str(&more),
        (other, value) => {
            return Err(Refusal(
                "type_mismatch",
                format!("Cannot append {} to {} at path '{}'.", kind(&value), kind(other), segments.join(".")),
            ));
        }
    }
    Ok(())
}

/// The value as an object, to reach its key `path`.
fn object<'a>(root: &'a mut Value, path: &str) -> Result<&'a mut Map<String, Value>, Refusal> {
    let found = kind(root);
    root.as_object_mut()
        .ok_or_else(|| Refusal("target_not_object", format!("Expected object to reach path '{path}', got {found}.")))
}

/// The object at the path, made on the way where nothing is there.
fn object_at<'a>(root: &'a mut Value, segments: &[String]) -> Result<&'a mut Map<String, Value>, Refusal> {
    let mut at = root;
    for segment in segments {
        at = object(at, segment)?.entry(segment).or_insert_with(|| Value::Object(Map::new()));
    }
    object(at, &segments.join("."))
}

/// A path: nothing, one key, or keys from the outside in.
fn segments(path: &Value) -> Result<Vec<String>, Refusal> {
    let segments = match path {
        Value::Null => Vec::new(),
        Value::String(key) if key.is_empty() => Vec::new(),
        Value::String(key) => vec![key.clone()],
        Value::Array(keys) => keys
            .iter()
            .map(|key| key.as_str().map(str::to_owned))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| Refusal("path.invalid", "A path is a string or an array of strings.".to_owned()))?,
        other => return Err(Refusal("path.invalid", format!("A path is a string or an array, got {}.", kind(other)))),
    };
    if segments.len() > MAX_DEPTH {
        return Err(Refusal("path.too_deep", format!("A path has at most {MAX_DEPTH} parts.")));
    }
    segments.iter().try_for_each(|segment| check_segment(segment))?;
    Ok(segments)
}

fn check_segment(segment: &str) -> Result<(), Refusal> {
    if segment.len() > MAX_SEGMENT_BYTES {
        return Err(Refusal("path.segment_too_long", format!("A key has at most {MAX_SEGMENT_BYTES} bytes.")));
    }
    if REFUSED_KEYS.contains(&segment) {
        return Err(Refusal("path.refused", format!("The key '{segment}' is refused.")));
    }
    Ok(())
}

fn check_merge(object: &Map<String, Value>, depth: usize, keys: &mut usize) -> Result<(), Refusal> {
    if depth > MAX_MERGE_DEPTH {
        return Err(Refusal("value.too_deep", format!("A merged value nests at most {MAX_MERGE_DEPTH} deep.")));
    }
    *keys += object.len();
    if *keys > MAX_MERGE_KEYS {
        return Err(Refusal("value.too_many_keys", format!("A merged value has at most {MAX_MERGE_KEYS} keys.")));
    }
    for (key, value) in object {
        if REFUSED_KEYS.contains(&key.as_str()) {
            return Err(Refusal("value.refused", format!("The key '{key}' is refused.")));
        }
        if let Value::Object(inner) = value {
            check_merge(inner, depth + 1, keys)?;
        }
    }
    Ok(())
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(current: Option<Value>, ops: Value) -> (Value, Vec<Value>) {
        apply(current, serde_json::from_value(ops).unwrap())
    }

    fn code(current: &Value, op: &Value) -> String {
        let (value, errors) = run(Some(current.clone()), json!([op]));
        assert_eq!(&value, current, "a failed operation changes nothing");
        errors[0]["code"].as_str().unwrap().to_owned()
    }

    #[test]
    fn operations_apply_in_order_and_failures_do_not_stop_the_rest_invariant_1() {
        let (value, errors) = run(
            Some(json!({"list": [1], "text": "a"})),
            json!([
                {"type": "increment", "path": "n", "by": 2},
                {"type": "increment", "path": "list", "by": 1},
                {"type": "decrement", "path": "n", "by": 5},
                {"type": "append", "path": "list", "value": 2},
                {"type": "append", "path": "text", "value": "b"},
                {"type": "append", "path": ["deep", "log"], "value": "x"},
                {"type": "merge", "path": ["o", "p"], "value": {"q": 1}},
                {"type": "merge", "value": {"top": true}},
                {"type": "remove", "path": "missing"}
            ]),
        );
        assert_eq!(
            value,
            json!({"list": [1, 2], "text": "ab", "n": -3, "deep": {"log": "x"}, "o": {"p": {"q": 1}}, "top": true})
        );
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0]["op_index"], 1);
        assert_eq!(errors[0]["code"], "increment.not_number");
        assert_eq!(errors[0]["message"], "Expected number at path 'list', got array.");
    }

    #[test]
    fn plain_paths_are_one_literal_key_invariant_2() {
        let (value, errors) = run(
            None,
            json!([{"type": "set", "path": "a.b", "value": 1}, {"type": "increment", "path": "c.d", "by": 1}]),
        );
        assert_eq!((value, errors.len()), (json!({"a.b": 1, "c.d": 1}), 0));
        assert_eq!(run(None, json!([{"type": "set", "path": "", "value": [1]}])).0, json!([1]));
    }

    #[test]
    fn every_refusal_has_its_code() {
        let long = "k".repeat(257);
        let deep: Vec<&str> = vec!["k"; 33];
        let mut nested = json!({"leaf": 1});
        for _ in 0..16 {
            nested = json!({ "n": nested });
        }
        let wide: Map<String, Value> = (0..1025).map(|n| (n.to_string(), Value::Null)).collect();
        for (current, op, wanted) in [
            (json!([1]), json!({"type": "set", "path": "k", "value": 1}), "set.target_not_object"),
            (json!({}), json!({"type": "set", "path": "__proto__", "value": 1}), "set.path.refused"),
            (json!({}), json!({"type": "set", "path": long, "value": 1}), "set.path.segment_too_long"),
            (json!({"n": i64::MAX}), json!({"type": "increment", "path": "n", "by": 1}), "increment.overflow"),
            (json!({"n": "x"}), json!({"type": "decrement", "path": "n", "by": 1}), "decrement.not_number"),
            (json!({}), json!({"type": "decrement", "path": "n", "by": i64::MIN}), "decrement.overflow"),
            (json!({"n": 1}), json!({"type": "append", "path": "n", "value": 1}), "append.type_mismatch"),
            (json!({"n": 1}), json!({"type": "append", "path": ["n", "m"], "value": 1}), "append.target_not_object"),
            (json!({}), json!({"type": "merge", "value": 1}), "merge.value.not_object"),
            (json!({}), json!({"type": "merge", "path": 7, "value": {}}), "merge.path.invalid"),
            (json!({}), json!({"type": "merge", "path": deep, "value": {}}), "merge.path.too_deep"),
            (json!({}), json!({"type": "merge", "value": nested}), "merge.value.too_deep"),
            (json!({}), json!({"type": "merge", "value": wide}), "merge.value.too_many_keys"),
            (json!({}), json!({"type": "merge", "value": {"prototype": 1}}), "merge.value.refused"),
        ] {
            assert_eq!(code(&current, &op), wanted);
        }
    }
}
