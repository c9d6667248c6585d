//! Data of nodes in JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

/// Text if the data is UTF-8, else base64.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum DataJson {
    Text(String),
    Base64(String),
}

impl From<Vec<u8>> for DataJson {
    fn from(data: Vec<u8>) -> Self {
        match String::from_utf8(data) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Base64(BASE64.encode(error.as_bytes())),
        }
    }
}

impl TryFrom<DataJson> for Vec<u8> {
    type Error = base64::DecodeError;

    fn try_from(data: DataJson) -> Result<Self, Self::Error> {
        match data {
            DataJson::Text(text) => Ok(text.into_bytes()),
            DataJson::Base64(text) => BASE64.decode(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_every_byte() {
        for (data, json) in [
            (b"".to_vec(), r#"{"text":""}"#),
            ("käse\n".into(), r#"{"text":"käse\n"}"#),
            (vec![0xff, 0], r#"{"base64":"/wA="}"#),
        ] {
            let shown = DataJson::from(data.clone());
            assert_eq!(serde_json::to_string(&shown).unwrap(), json);
            assert_eq!(Vec::try_from(shown).unwrap(), data);
        }
        assert!(serde_json::from_str::<DataJson>(r#"{"hex":"00"}"#).is_err());
    }
}
