//! Reasons in text form, such as why an item was rejected.

/// How many bytes of a reason are kept. It is part of a request, and servers accept at most 1 MiB.
pub(crate) const REASON_BYTES_MAX: usize = 4 << 10;

/// The beginning of a reason that is too long.
pub(crate) fn cut(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_reasons_are_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        let long = format!("a{}", "\u{e4}".repeat(REASON_BYTES_MAX));
        let kept = cut(&long);
        assert_eq!(kept.len(), REASON_BYTES_MAX - 1);
        assert!(long.starts_with(kept));
    }
}
