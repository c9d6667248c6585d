//! Reading a queue without taking items: depth, lists, dead letters.

pub(crate) mod dead_letter;
pub(crate) mod inspect;
pub(crate) mod listing;
