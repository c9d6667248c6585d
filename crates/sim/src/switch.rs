//! The way to the mistakes that are in the code under test. The patched copy of the workspace has another module in this place.

/// Whether this is the patched copy.
pub const ARE_HERE: bool = false;

/// Makes the mistake of this name on this thread, or none.
pub(crate) fn make(name: Option<&'static str>) {
    assert_eq!(name, None, "only the patched copy makes mistakes");
}
