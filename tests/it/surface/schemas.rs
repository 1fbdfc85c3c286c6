//! The catalog against the contract, the reviewed schemas, and the tables of the README.

use serde_json::{Map, Value, json};
use worktree::model::Code;
use worktree::model::config::WorktreeConfig;
use worktree::model::event::EventKind;
use worktree::wire::catalog;

use crate::support::golden::Goldens;

const CONTRACT: &str = include_str!("../../../goldens/contract.json");
const README: &str = include_str!("../../../README.md");

/// A schema without its descriptions, its numbers as what they are worth.
pub fn bare(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept: Map<_, _> = fields
                .iter()
                .filter(|(key, value)| !(*key == "description" && value.is_string()))
                .map(|(key, value)| (key.clone(), bare(value)))
                .collect();
            Value::Object(kept)
        }
        Value::Array(items) => items.iter().map(bare).collect(),
        Value::Number(number) => json!(number.as_f64()),
        other => other.clone(),
    }
}

fn by_id<'a>(list: &'a Value, id: &str) -> &'a Value {
    list.as_array().unwrap().iter().find(|one| one["id"] == id).unwrap_or_else(|| panic!("{id} is not in the contract"))
}

#[test]
fn every_schema_is_that_of_the_contract_and_as_reviewed() {
    let contract: Value = serde_json::from_str(CONTRACT).unwrap();
    let mut goldens = Goldens::at("schemas");
    let functions = catalog::functions();
    assert_eq!(functions.len(), 12);
    assert_eq!(contract["functions"].as_array().unwrap().len(), 12);
    for function in &functions {
        let expected = by_id(&contract["functions"], function.id);
        assert_eq!(bare(&function.request_schema), bare(&expected["request"]), "the request of {}", function.id);
        assert_eq!(bare(&function.response_schema), bare(&expected["response"]), "the response of {}", function.id);
        let reviewed = json!({
            "id": function.id, "description": function.description, "internal": function.internal,
            "http": function.http, "request": function.request_schema, "response": function.response_schema,
        });
        goldens.check(&file(function.id), &format!("{reviewed:#}\n"));
    }
    assert_eq!(contract["trigger_types"].as_array().unwrap().len(), 6);
    for kind in EventKind::ALL {
        let (id, filter) = (kind.trigger_type(), catalog::binding_schema());
        assert_eq!(bare(&filter), bare(&by_id(&contract["trigger_types"], id)["binding_config"]), "{id}");
        let reviewed = json!({
            "id": id, "description": catalog::trigger_description(kind), "binding_config": filter,
            "always": kind.fields().always, "sometimes": kind.fields().sometimes,
        });
        goldens.check(&file(id), &format!("{reviewed:#}\n"));
    }
    goldens.finish();
}

fn file(id: &str) -> String {
    format!("{}.json", id.replace("::", "."))
}

/// The places of a schema where something is declared and not described.
fn undescribed(schema: &Value, place: &str, found: &mut Vec<String>) {
    if let Some(fields) = schema["properties"].as_object() {
        for (name, field) in fields {
            let place = format!("{place}.{name}");
            if field["description"].as_str().is_none_or(|text| text.len() <= 10) {
                found.push(place.clone());
            }
            undescribed(field, &place, found);
        }
    }
    for (name, definition) in schema["definitions"].as_object().into_iter().flatten() {
        undescribed(definition, &format!("{place}#{name}"), found);
    }
}

#[test]
fn nothing_is_left_undescribed() {
    let mut found = Vec::new();
    for function in catalog::functions() {
        assert!(function.description.len() > 60, "{}: {}", function.id, function.description);
        undescribed(&function.request_schema, &format!("{} request", function.id), &mut found);
        undescribed(&function.response_schema, &format!("{} response", function.id), &mut found);
    }
    undescribed(&catalog::binding_schema(), "binding", &mut found);
    undescribed(&catalog::schema::<WorktreeConfig>(), "configuration", &mut found);
    assert_eq!(found, Vec::<String>::new());
    for kind in EventKind::ALL {
        let (described, fields) = (catalog::trigger_description(kind), kind.fields());
        for field in fields.always.iter().chain(fields.sometimes) {
            assert!(described.contains(field), "{}: `{field}` is not described", kind.trigger_type());
        }
    }
}

#[test]
fn a_description_names_the_refusals_that_its_reader_can_act_on() {
    for function in catalog::functions().iter().filter(|function| !function.internal) {
        let named = Code::ALL.iter().filter(|code| function.description.contains(code.as_str())).count();
        assert!(named > 0, "{} names no code", function.id);
    }
}

/// The rows of the README's table with this header, cell by cell.
fn table(header: &str) -> Vec<Vec<String>> {
    let (_, rest) = README.split_once(header).unwrap_or_else(|| panic!("README.md has no table {header:?}"));
    let rows = rest.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect()).collect()
}

#[test]
fn the_readme_lists_the_functions_in_the_order_of_the_catalog() {
    let listed: Vec<String> = table("| function | what it does |").into_iter().map(|row| row[0].clone()).collect();
    let ids: Vec<&str> = catalog::functions().iter().map(|function| function.id).collect();
    assert_eq!(listed, ids);
}

#[test]
fn the_readme_tells_what_each_code_means() {
    let listed: Vec<(String, String)> =
        table("| code | meaning |").into_iter().map(|row| (row[0].clone(), row[1].clone())).collect();
    let codes: Vec<(String, String)> = Code::ALL
        .iter()
        .map(|code| (code.to_string(), code.meaning().trim_end_matches('.').replace('`', "")))
        .collect();
    assert_eq!(listed, codes);
}

/// The leaves of the configuration, each with its default as it is written in the README.
pub fn keys_of_the_configuration() -> Vec<(String, String)> {
    fn leaves(value: &Value, path: &str, found: &mut Vec<(String, String)>) {
        for (key, value) in value.as_object().unwrap() {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            match value {
                Value::Object(_) => leaves(value, &path, found),
                Value::String(text) => found.push((path, text.clone())),
                other => found.push((path, other.to_string())),
            }
        }
    }
    let mut found = Vec::new();
    leaves(&json!(WorktreeConfig::default()), "", &mut found);
    found.sort();
    found
}

#[test]
fn the_readme_tells_every_key_with_its_default() {
    let mut listed: Vec<(String, String)> = table("| key | default | meaning |")
        .into_iter()
        .map(|row| {
            assert!(!row[2].is_empty(), "{row:?}");
            (row[0].clone(), row[1].clone())
        })
        .collect();
    listed.sort();
    assert_eq!(listed, keys_of_the_configuration());
}

#[test]
fn the_readme_tells_what_each_event_carries() {
    let rows = table("| trigger type | when | carries, besides `worktree_id`, `repo_path`, `timestamp` |");
    assert_eq!(rows.len(), EventKind::ALL.len());
    for (row, kind) in rows.iter().zip(EventKind::ALL) {
        assert_eq!(row[0], kind.trigger_type());
        let mut told: Vec<&str> = row[2]
            .split(", ")
            .map(|field| field.split(' ').next().unwrap())
            .filter(|field| !field.is_empty())
            .collect();
        told.extend(["worktree_id", "repo_path", "timestamp"]);
        told.sort_unstable();
        let fields = kind.fields();
        let mut carried: Vec<&str> = fields.always.iter().chain(fields.sometimes).copied().collect();
        carried.sort_unstable();
        assert_eq!(told, carried, "{}", kind.trigger_type());
    }
}
