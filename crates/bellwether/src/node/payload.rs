//! Payloads: the values that nodes carry.

use std::error::Error;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A value that a node can carry: bytes, text, or with [`Json`] any type that serde can serialize.
pub trait Payload: Sized {
    /// Encodes the value.
    ///
    /// # Errors
    ///
    /// If the value cannot be encoded. Nothing is written then.
    fn to_bytes(&self) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>>;

    /// Decodes what [`to_bytes`](Self::to_bytes) returned.
    ///
    /// # Errors
    ///
    /// If the bytes cannot be decoded. An item of a queue becomes a dead letter then.
    fn from_bytes(bytes: Vec<u8>) -> Result<Self, Box<dyn Error + Send + Sync>>;
}

impl Payload for Vec<u8> {
    fn to_bytes(&self) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        Ok(self.clone())
    }

    fn from_bytes(bytes: Vec<u8>) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Ok(bytes)
    }
}

impl Payload for String {
    fn to_bytes(&self) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        Ok(self.as_bytes().to_owned())
    }

    fn from_bytes(bytes: Vec<u8>) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Ok(Self::from_utf8(bytes)?)
    }
}

/// A value of the user's own type, stored as JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Json<T>(pub T);

impl<T: Serialize + DeserializeOwned> Payload for Json<T> {
    fn to_bytes(&self) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        Ok(serde_json::to_vec(&self.0)?)
    }

    fn from_bytes(bytes: Vec<u8>) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Ok(Self(serde_json::from_slice(&bytes)?))
    }
}
