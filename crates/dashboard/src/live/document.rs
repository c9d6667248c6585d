//! Content of the pages: named JSON values, of which pages receive those that changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

/// Values by name. Clones share the texts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Document(BTreeMap<String, Arc<str>>);

impl Document {
    /// Sets a value. An equal text is no change.
    pub(crate) fn set(&mut self, name: &str, value: &Value) {
        let text = value.to_string();
        match self.0.get_mut(name) {
            Some(old) if **old == *text => {}
            Some(old) => *old = text.into(),
            None => drop(self.0.insert(name.to_owned(), text.into())),
        }
    }

    /// Replaces all values whose name begins with `prefix`.
    pub(crate) fn replace(&mut self, prefix: &str, values: &BTreeMap<String, Value>) {
        let is_gone = |name: &String| {
            let name = name.strip_prefix(prefix);
            name.is_some_and(|name| !values.contains_key(name))
        };
        self.0.retain(|name, _| !is_gone(name));
        for (name, value) in values {
            self.set(&format!("{prefix}{name}"), value);
        }
    }

    /// The difference to an older document, as `{"set": {NAME: VALUE}, "gone": [NAME]}`; `None` if they are equal.
    pub(crate) fn changes_since(&self, old: &Self) -> Option<String> {
        let is_new = |(name, text): &(&String, &Arc<str>)| {
            let before = old.0.get(*name);
            before.is_none_or(|before| !Arc::ptr_eq(before, text) && before != *text)
        };
        let set: Vec<_> = self
            .0
            .iter()
            .filter(is_new)
            .map(|(name, text)| format!("{}:{text}", Value::from(name.as_str())))
            .collect();
        let gone: Vec<_> = old
            .0
            .keys()
            .filter(|name| !self.0.contains_key(*name))
            .map(|name| Value::from(name.as_str()).to_string())
            .collect();
        if set.is_empty() && gone.is_empty() {
            return None;
        }
        Some(format!(
            r#"{{"set":{{{}}},"gone":[{}]}}"#,
            set.join(","),
            gone.join(",")
        ))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pages_get_what_changed_and_what_is_gone() {
        let mut old = Document::default();
        old.set("same", &json!(1));
        old.replace("at /", &[("a".to_owned(), json!("x"))].into());
        let mut new = old.clone();
        assert_eq!(new.changes_since(&old), None);
        new.set("same", &json!(1));
        new.replace("at /", &[("b\"".to_owned(), json!({"y": 2}))].into());
        let changes: Value = serde_json::from_str(&new.changes_since(&old).unwrap()).unwrap();
        assert_eq!(
            changes,
            json!({"set": {"at /b\"": {"y": 2}}, "gone": ["at /a"]})
        );
    }
}
