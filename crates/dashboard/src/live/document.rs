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
        self.put(name, &value.to_string().into());
    }

    /// Replaces all values whose name begins with `prefix`.
    pub(crate) fn replace<'a>(
        &mut self,
        prefix: &str,
        values: impl Iterator<Item = (&'a str, &'a Arc<str>)>,
    ) {
        let values: BTreeMap<_, _> = values.collect();
        self.0
            .retain(|name, _| !name.starts_with(prefix) || values.contains_key(name.as_str()));
        for (name, text) in values {
            self.put(name, text);
        }
    }

    fn put(&mut self, name: &str, text: &Arc<str>) {
        match self.0.get_mut(name) {
            Some(old) if Arc::ptr_eq(old, text) || old == text => {}
            Some(old) => *old = text.clone(),
            None => drop(self.0.insert(name.to_owned(), text.clone())),
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
        let replace = |document: &mut Document, name: &str, value: Value| {
            let text = value.to_string().into();
            document.replace("at /", [(name, &text)].into_iter());
        };
        replace(&mut old, "at /a", json!("x"));
        let mut new = old.clone();
        assert_eq!(new.changes_since(&old), None);
        new.set("same", &json!(1));
        replace(&mut new, "at /b\"", json!({"y": 2}));
        let changes: Value = serde_json::from_str(&new.changes_since(&old).unwrap()).unwrap();
        assert_eq!(
            changes,
            json!({"set": {"at /b\"": {"y": 2}}, "gone": ["at /a"]})
        );
    }
}
