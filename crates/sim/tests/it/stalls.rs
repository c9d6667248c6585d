//! Links between servers that stall in one direction for most of a session timeout: see the recipe `latecomers`.

use bellwether_sim::mistakes::Mistake;
use bellwether_sim::recipes;

#[test]
fn hold_acquired_behind_a_server_that_hears_nothing_ends_with_its_session() {
    let mistake = Mistake::find("one-write").unwrap();
    let run = recipes::find(mistake.recipe).unwrap();
    for seed in 0..50 {
        let verdict = run(&mistake.plan(seed));
        assert_eq!(verdict.violation, None, "seed {seed}");
        assert!(verdict.rounds > 0, "seed {seed}");
    }
}
