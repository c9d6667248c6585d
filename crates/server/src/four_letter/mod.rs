//! Four-letter words: `collect` gathers the values, `text` formats them as Apache does. The configuration enables words.

mod collect;
mod text;

pub(crate) use collect::{answer, is_allowed, tell};
pub(crate) use text::VERSION;
