//! What the use cases ask of the fields of a request.

use std::path::{Component, Path, PathBuf};

use crate::git::from_text;
use crate::model::{Code, Error, Result};

fn invalid(message: String) -> Error {
    Error::new(Code::InvalidRequest, message)
}

/// Refuses an empty text.
///
/// # Errors
/// `W001` naming the field.
pub fn require_text<'a>(field: &str, text: &'a str) -> Result<&'a str> {
    if text.trim().is_empty() {
        return Err(invalid(format!("`{field}` is empty")));
    }
    Ok(text)
}

/// Refuses an empty text where one was given.
///
/// # Errors
/// `W001` naming the field.
pub fn optional_text<'a>(field: &str, text: Option<&'a str>) -> Result<Option<&'a str>> {
    text.map(|text| require_text(field, text)).transpose()
}

/// The path that a text names ([`from_text`]); refuses what is no absolute path.
///
/// # Errors
/// `W001` when it is empty, `W111` when it is relative or holds a NUL.
pub fn absolute_path(field: &str, text: &str) -> Result<PathBuf> {
    require_text(field, text)?;
    if text.contains('\0') {
        return Err(Error::new(Code::Malformed, format!("`{field}` holds a NUL character")));
    }
    let path = from_text(text);
    if !path.is_absolute() {
        return Err(Error::new(Code::Malformed, format!("`{field}` is relative (`{text}`); give an absolute path")));
    }
    Ok(path)
}

/// The path without symbolic links, `.` and `..`, as far as it exists; what does not exist is added as it is named.
#[must_use]
pub fn real_path(path: &Path) -> PathBuf {
    if let Ok(real) = std::fs::canonicalize(path) {
        return real;
    }
    let mut real = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => {
                real.push(name);
                real = std::fs::canonicalize(&real).unwrap_or(real);
            }
            // After links are resolved, the parent is the one that the system would go to.
            Component::ParentDir => drop(real.pop()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    real
}

/// Refuses a ref or branch that git could take for an option, or that holds control characters.
///
/// # Errors
/// `W001` when it is empty, `W111` when it is malformed.
pub fn plain_ref<'a>(field: &str, text: &'a str) -> Result<&'a str> {
    require_text(field, text)?;
    if text.starts_with('-') || text.chars().any(char::is_control) {
        return Err(Error::new(
            Code::Malformed,
            format!(
                "`{field}` is no usable ref: `{}` starts with a dash or holds control characters",
                text.escape_debug()
            ),
        ));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_resolved_as_far_as_it_exists() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::os::unix::fs::symlink(root.join("a/b"), root.join("link")).unwrap();
        for (path, real) in [
            ("a/b", "a/b"),
            ("link", "a/b"),
            ("link/../gone/./x", "a/gone/x"),
            ("gone/../a", "a"),
            ("a/b/../../a/b", "a/b"),
        ] {
            assert_eq!(real_path(&root.join(path)), root.join(real), "{path}");
        }
        assert_eq!(real_path(Path::new("/../..")), Path::new("/"));
    }

    #[test]
    fn each_fault_has_its_code_and_names_the_field() {
        for (error, code) in [
            (require_text("session_id", " ").unwrap_err(), Code::InvalidRequest),
            (absolute_path("session_id", "a/b").unwrap_err(), Code::Malformed),
            (absolute_path("session_id", "/a\0b").unwrap_err(), Code::Malformed),
            (plain_ref("session_id", "-x").unwrap_err(), Code::Malformed),
            (plain_ref("session_id", "a\nb").unwrap_err(), Code::Malformed),
        ] {
            assert_eq!(error.code, code);
            assert!(error.message.contains("session_id"), "{error}");
        }
        assert_eq!(optional_text("x", None), Ok(None));
    }
}
