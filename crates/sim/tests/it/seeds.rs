//! Runs that have failed once. Plans have changed since; a seed may not show its error any more.

use bellwether_sim::{Plan, recipes};

fn passes(recipe: &str, seeds: &[u64]) {
    pass(recipe, seeds, Plan::of);
}

fn passes_embedded(recipe: &str, seeds: &[u64]) {
    pass(recipe, seeds, Plan::embedded);
}

fn passes_long(recipe: &str, seeds: &[u64]) {
    pass(recipe, seeds, Plan::long);
}

fn pass(recipe: &str, seeds: &[u64], plan: fn(u64) -> Plan) {
    let run = recipes::find(recipe).unwrap();
    for seed in seeds {
        let verdict = run(&plan(*seed));
        assert_eq!(verdict.violation, None, "{recipe}, seed {seed}");
    }
}

/// A surplus member gave up its place, and came too late for every round, because its server lagged.
#[test]
fn surplus_member_of_a_double_barrier_is_in_the_next_round() {
    passes("double-barrier", &[46, 88]);
}

/// A leader of the model stepped down although its links had recovered.
#[test]
fn leader_whose_links_recover_leads_on() {
    passes("double-barrier", &[58]);
}

/// The leader of the model learned of the connections of a session in another order than the client had made them, and ignored all requests
/// through the last one.
#[test]
fn session_whose_handshakes_arrive_out_of_order_goes_on() {
    passes("cache", &[273, 378]);
}

/// A consumer whose acknowledgement had got no answer took the missing item for its own success. But its claim had been deleted, and another
/// consumer had acknowledged the item.
#[test]
fn acknowledgement_in_doubt_is_not_that_of_another_consumer() {
    passes_embedded("queue", &[0, 36]);
}

/// A waiter passed a barrier that was set: its server, the leader, lagged behind its own commits, and answered a sync at once.
#[test]
fn waiter_on_a_leader_that_lags_does_not_pass_a_barrier() {
    passes("barrier", &[12]);
}

/// The time of day drifted without limit, so that an item was delivered before its time.
#[test]
fn item_of_a_delay_queue_is_not_delivered_early() {
    passes("delay-queue", &[146]);
}

/// Servers of a plan deleted empty directories before slow members, or a slow disk, had answered the request that made them.
#[test]
fn directory_can_be_used_before_it_is_deleted() {
    passes("barrier", &[1105]);
    passes_embedded("tasks", &[34]);
    passes_embedded("priority-queue", &[34]);
    // Its consumer made the directory, waited for it, and came too late each time.
    passes("delay-queue", &[850]);
}

/// Sites of a transaction rested between two decisions although the faults were over, and were late for the rest.
#[test]
fn sites_apply_what_is_left_when_the_faults_are_over() {
    passes_long("two-phase", &[60]);
}

/// The owner of a name that was abandoned took itself for the owner of the next name.
#[test]
fn name_that_is_abandoned_has_no_successor() {
    passes_long("names", &[33]);
}

/// Takes of one handle chose from items far behind the first ones.
#[test]
fn takes_of_one_handle_keep_the_order() {
    passes_long("queue", &[1301]);
}

/// A consumer that takes several items got the first claim when it had lost its session, because the second one took so long.
#[test]
fn claim_that_is_lost_on_the_way_is_late() {
    passes("queue", &[119]);
}

/// A process was paused while its crash mark was on the way, and got a guard that was over.
#[test]
fn guard_that_is_over_is_not_handed_out() {
    passes("marked-lock", &[303]);
}
