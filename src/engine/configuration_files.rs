//! Configuration entries as YAML files, one per entry, for people to read and edit.
//!
//! Invariants
//! 1. A file is replaced whole: after a crash there is the old text or the new one. What a crash leaves of a
//!    replacement is removed at the start.
//! 2. A file that is not a configuration entry is never overwritten unread: the start is refused, naming it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a file holds. Schemas are not kept: their owners register them again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Stored {
    pub(super) id: String,
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: String,
    #[serde(default)]
    pub(super) value: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<Value>,
}

/// What tells that a file was changed.
pub(super) type Stamp = (SystemTime, u64);

/// The directory of the files.
pub(super) struct Files {
    dir: PathBuf,
}

/// Whether the text can be the id of an entry, and so the name of a file.
pub(super) fn is_id(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
}

impl Files {
    /// The files in this directory, which is made when missing.
    pub(super) fn open(dir: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&dir)?;
        if let Some(parent) = dir.parent() {
            sync_dir(parent)?;
        }
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            if path
                .file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|n| n.starts_with('.') && n.ends_with(".new"))
            {
                fs::remove_file(path)?;
            }
        }
        Ok(Self { dir })
    }

    /// Where an entry is kept.
    pub(super) fn path(&self, id: &str) -> PathBuf {
        self.dir.join(format!("{id}.yaml"))
    }

    /// Every entry's file and its stamp.
    pub(super) fn stamps(&self) -> io::Result<BTreeMap<String, Stamp>> {
        let mut stamps = BTreeMap::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let path = entry.path();
            let id = path.file_stem().and_then(|stem| stem.to_str()).filter(|id| is_id(id));
            if let (Some(id), Some("yaml")) = (id, path.extension().and_then(|extension| extension.to_str())) {
                let meta = fs::metadata(&path)?;
                stamps.insert(id.to_owned(), (meta.modified()?, meta.len()));
            }
        }
        Ok(stamps)
    }

    /// Reads an entry, or says why that is none.
    pub(super) fn read(&self, id: &str) -> Result<Stored, String> {
        let text = fs::read_to_string(self.path(id)).map_err(|error| error.to_string())?;
        let stored: Stored = serde_yaml_ng::from_str(&text).map_err(|error| error.to_string())?;
        if stored.id == id { Ok(stored) } else { Err(format!("it holds the entry '{}'", stored.id)) }
    }

    /// Replaces an entry's file; it is on the disk when this returns.
    pub(super) fn write(&self, stored: &Stored) -> io::Result<Stamp> {
        let text = serde_yaml_ng::to_string(stored).map_err(io::Error::other)?;
        let temporary = self.dir.join(format!(".{}.new", stored.id));
        let path = self.path(&stored.id);
        let mut file = File::create(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        sync_dir(&self.dir)?;
        let meta = fs::metadata(&path)?;
        Ok((meta.modified()?, meta.len()))
    }
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (-1e9..1e9f64).prop_map(Value::from),
            "\\PC*|yes|no|~|0x1F|1e3|0o7|2001-01-01|<<|- a|#x|.inf| lead|trail |a: b|\n|%|@|`".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("\\PC{0,6}", inner, 0..4)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn any_value_is_read_back_as_it_was_written(value in any_json(), name in "\\PC*") {
            let dir = tempfile::tempdir().unwrap();
            let files = Files::open(dir.path().to_owned()).unwrap();
            let stored = Stored { id: "x".into(), name, description: String::new(), value, metadata: None };
            files.write(&stored).unwrap();
            prop_assert_eq!(files.read("x").unwrap(), stored);
        }
    }

    #[test]
    fn ids_are_safe_file_names() {
        for bad in ["", "A", "a b", "../x", "a.b", "ä", &"x".repeat(65)] {
            assert!(!is_id(bad), "{bad}");
        }
        assert!(is_id("iii-state_1"));
    }
}
