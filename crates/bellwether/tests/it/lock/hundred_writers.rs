//! The example of that name: records are complete with the lock, and mixed up without it.

use crate::support::place::Place;

#[path = "../../../examples/hundred_writers.rs"]
#[expect(dead_code, reason = "the example has a main of its own")]
mod example;

on_both_engines! {
    records_stand_whole_only_with_the_lock,
}

async fn records_stand_whole_only_with_the_lock(place: Place) {
    let address = format!("{}{}", place.server(), place.chroot());
    for locked in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("records");
        std::fs::write(&file, "").unwrap();
        example::write_all(&address, &file, locked).await.unwrap();
        let whole = example::whole_records(&std::fs::read_to_string(&file).unwrap());
        assert_eq!(
            whole == example::WRITERS,
            locked,
            "{whole} whole, locked: {locked}"
        );
    }
}
