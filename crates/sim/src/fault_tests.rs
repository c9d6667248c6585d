//! Each fault does what it says.

mod keepers;
mod probe;

use probe::{
    AFTER, AT, DURING, READERS, Seen, TIME, TIMEOUT, any, assert_unaffected, calm, embedded,
    on_embedded, on_one, on_three, watch,
};

use crate::faults::Fault;

#[test]
fn without_faults_nobody_notices_any() {
    assert_unaffected(&watch(&calm(1, Vec::new())));
    assert_unaffected(&watch(&calm(3, Vec::new())));
}

#[test]
fn cut_breaks_the_connection_of_one_worker() {
    for server_hears in [None, Some(10)] {
        let seen = on_three(Fault::Cut {
            worker: 0,
            server_hears,
        });
        assert!(seen[0].has_lost_connection(&(AT..AT + 5)));
        assert_unaffected(&seen[1..]);
    }
}

#[test]
fn nothing_passes_through_silence() {
    let seen = on_one(Fault::Silence {
        worker: 0,
        server: 0,
        time: TIME,
    });
    assert!(seen[0].has_heard_nothing(&DURING) && seen[0].has_ticked(&DURING));
    assert!(!any(&seen[0].events, &DURING));
    assert_unaffected(&seen[1..]);
}

#[test]
fn worker_that_is_cut_off_reaches_no_server() {
    let seen = on_three(Fault::CutOff {
        worker: 0,
        time: TIME,
    });
    assert!(seen[0].has_heard_nothing(&DURING) && !any(&seen[0].events, &DURING));
    assert_unaffected(&seen[1..]);
}

#[test]
fn servers_receive_from_a_deaf_worker() {
    let seen = on_three(Fault::Deaf {
        worker: 0,
        time: TIME,
    });
    assert!(seen[0].has_heard_nothing(&DURING) && !any(&seen[0].events, &DURING));
    assert!(seen[0].late_write() < AT + 50);
    assert_unaffected(&seen[1..]);
}

#[test]
fn mute_worker_receives_from_servers() {
    let seen = on_three(Fault::Mute {
        worker: 0,
        time: TIME,
    });
    assert!(seen[0].has_heard_nothing(&DURING));
    assert!(any(&seen[0].events, &DURING));
    assert!(seen[0].late_write() >= AT + TIME);
    assert_unaffected(&seen[1..]);
}

#[test]
fn late_answers_are_late_for_one_worker() {
    let delay = TIME / 2;
    let seen = on_three(Fault::Late {
        worker: 0,
        delay,
        time: TIME,
    });
    let (during, later) = (DURING.start..AT + delay, AT + delay..AT + TIME + delay);
    assert!(seen[0].has_heard_nothing(&during) && seen[0].has_read(&later));
    assert!(seen[0].late_write() < AT + TIME);
    assert_unaffected(&seen[1..]);
}

#[test]
fn paused_worker_does_not_run() {
    let seen = on_three(Fault::Pause {
        worker: 0,
        time: TIME,
    });
    assert!(!seen[0].has_ticked(&(AT + 1..AT + TIME)));
    assert!(!seen[0].has_lost_connection(&AFTER));
    assert_unaffected(&seen[1..]);
}

#[test]
fn killed_worker_starts_again_with_another_session() {
    let seen = on_three(Fault::Kill {
        worker: 0,
        time: TIME,
    });
    assert!(!seen[0].has_ticked(&(AT + 1..AT + TIME)));
    assert_ne!(seen[0].writes[0].session, seen[0].last_write().session);
    assert_unaffected(&seen[1..]);
}

#[test]
fn paused_worker_can_be_killed() {
    let pause = Fault::Pause {
        worker: 0,
        time: TIME,
    };
    let kill = Fault::Kill {
        worker: 0,
        time: TIME / 4,
    };
    let seen = watch(&calm(3, vec![(AT, pause), (AT + TIME / 4, kill)]));
    assert!(!seen[0].has_ticked(&(AT + 1..AT + TIME / 2)));
    assert!(seen[0].has_ticked(&(AT + TIME / 2..AT + TIME)));
    assert_ne!(seen[0].writes[0].session, seen[0].last_write().session);
}

#[test]
fn starvation_stops_one_task_of_a_worker() {
    let time = TIMEOUT / 20;
    let during = AT + 20..AT + time;
    let starve = Fault::Starve { worker: 0, time };
    let (mut main, mut of_client) = (0, 0);
    for seed in 0..12 {
        let mut plan = calm(3, vec![(AT, starve)]);
        plan.seed = seed;
        let seen = watch(&plan);
        assert!(!seen[0].has_lost_connection(&(AT..AFTER.end)));
        assert_unaffected(&seen[1..]);
        match (seen[0].has_ticked(&during), seen[0].has_read(&during)) {
            (false, false) => main += 1,
            (true, false) => of_client += 1,
            // A task that had nothing to do.
            _ => {}
        }
    }
    assert!(main > 0 && of_client > 0, "{main} {of_client}");
}

#[test]
fn crash_of_a_server_ends_its_connections() {
    let crash = Fault::ServerCrash {
        server: 0,
        time: TIME,
    };
    for seen in [on_one(crash), on_embedded(crash)] {
        for one in &seen {
            assert!(one.has_lost_connection(&(AT..AT + 10)));
            assert!(!one.has_read(&DURING) && !one.has_written(&DURING));
        }
    }
}

/// Clients of a member that answers nothing move to another one before they lose what they hold.
#[test]
fn t92_silent_member_costs_no_hold() {
    let mut moved = 0;
    for seed in 0..5 {
        // Server 0 leads.
        let silence = Fault::ServerPause {
            server: 1,
            time: 2 * TIMEOUT,
        };
        let mut plan = calm(3, vec![(2 * TIMEOUT, silence)]);
        plan.seed = seed;
        plan.duration = 5 * TIMEOUT;
        moved += keepers::moved(&plan);
    }
    assert!(moved > 0);
}

#[test]
fn paused_server_answers_nobody() {
    let pause = Fault::ServerPause {
        server: 0,
        time: TIME,
    };
    for seen in [on_one(pause), on_embedded(pause)] {
        assert!(seen.iter().all(|one| one.has_heard_nothing(&DURING)));
    }
}

/// What workers see of a fault of a follower, as readers and as writers: at least one writer has that server.
fn on_a_follower(fault: fn(usize) -> Fault) -> (Vec<Seen>, Vec<Seen>) {
    // Server 0 leads.
    let seen = [1, 2].map(|server| on_three(fault(server)));
    let is_hit = |seen: &Vec<Seen>| seen[..READERS].iter().any(|one| !one.has_written(&DURING));
    let mut writers = seen.into_iter().find(is_hit).unwrap();
    let readers = writers.split_off(READERS);
    (readers, writers)
}

/// No connection has ended, every read was answered, and the writes of some workers.
fn assert_writes_hang(readers: &[Seen], writers: &[Seen]) {
    let both = readers.iter().chain(writers);
    assert!(
        both.clone()
            .all(|one| !one.has_lost_connection(&(AT..AFTER.end)))
    );
    assert!(readers.iter().all(|one| one.has_read(&DURING)));
    assert!(writers.iter().any(|one| one.has_written(&DURING)));
}

#[test]
fn server_that_is_cut_off_answers_reads_only() {
    let (readers, writers) = on_a_follower(|server| Fault::ServerCutOff { server, time: TIME });
    assert_writes_hang(&readers, &writers);
    // Also those whose request had left before; but not those that wait for an answer.
    let mut hanging = writers.iter().filter(|one| !one.has_written(&DURING));
    assert!(hanging.all(|one| one.late_write() >= AT + TIME || one.late_write() < AT));
}

#[test]
fn leader_receives_from_a_deaf_server() {
    let (readers, writers) = on_a_follower(|server| Fault::ServerDeaf { server, time: TIME });
    assert_writes_hang(&readers, &writers);
    let mut hanging = writers.iter().filter(|one| !one.has_written(&DURING));
    assert!(hanging.all(|one| one.late_write() < AT + 50));
}

#[test]
fn crash_of_the_leader_makes_another_one() {
    let seen = on_three(Fault::LeaderCrash { time: TIME });
    assert!(
        seen.iter()
            .all(|one| one.has_lost_connection(&(AT..AT + 10)))
    );
    for one in &seen[..READERS] {
        assert_eq!(one.writes[0].epoch + 1, one.last_write().epoch);
        assert!(one.has_written(&(AT..AT + TIME)));
    }
}

/// No connection has ended, no write was answered, and there is the same leader as before.
fn assert_nothing_decided(seen: &[Seen]) {
    assert!(
        seen.iter()
            .all(|one| !one.has_lost_connection(&(AT..AFTER.end)))
    );
    for one in &seen[..READERS] {
        assert!(!one.has_written(&DURING));
        assert_eq!(one.writes[0].epoch, one.last_write().epoch);
    }
}

#[test]
fn paused_leader_answers_nobody() {
    // Workers choose other servers in each run.
    let seen = (0..6).flat_map(|seed| {
        let mut plan = calm(3, vec![(AT, Fault::LeaderPause { time: TIME })]);
        plan.seed = seed;
        let seen = watch(&plan);
        assert_nothing_decided(&seen);
        seen.into_iter().skip(READERS)
    });
    let (of_followers, of_leader): (Vec<Seen>, _) = seen.partition(|one| one.has_read(&DURING));
    assert!(!of_followers.is_empty() && !of_leader.is_empty());
}

#[test]
fn leader_that_is_cut_off_answers_reads_only() {
    let seen = on_three(Fault::LeaderCutOff { time: TIME });
    assert_nothing_decided(&seen);
    assert!(seen[READERS..].iter().all(|one| one.has_read(&DURING)));
}

#[test]
fn sessions_become_shorter() {
    let short = Fault::ShortSessions {
        server: 0,
        time: TIME / 4,
    };
    for seen in [on_one(short), on_embedded(short)] {
        for one in &seen[..READERS] {
            assert_eq!(one.writes[0].timeout, TIMEOUT);
            assert_eq!(one.last_write().timeout, TIMEOUT / 2);
        }
    }
}

#[test]
fn server_ends_at_a_disk_operation() {
    for operations in [0, 1, 3] {
        let kill = Fault::KillAtDisk {
            operations,
            time: TIME,
        };
        let power_loss = Fault::PowerLoss {
            operations,
            is_silent: false,
            time: TIME,
        };
        for one in [kill, power_loss].into_iter().flat_map(on_embedded) {
            assert!(one.has_lost_connection(&(AT..AT + 50)));
            assert!(!one.has_written(&(AT + 50..AT + TIME)));
        }
    }
}

#[test]
fn machine_that_dies_silently_resets_connections_when_it_is_back() {
    let power_loss = Fault::PowerLoss {
        operations: 0,
        is_silent: true,
        time: TIME,
    };
    for one in on_embedded(power_loss) {
        assert!(one.has_heard_nothing(&DURING));
        assert!(one.has_lost_connection(&(AT + TIME..AT + TIME + 10)));
    }
}

#[test]
fn server_stops_when_an_fsync_fails() {
    let failed = Fault::FailedSync {
        of_names: false,
        time: TIME,
    };
    for one in on_embedded(failed) {
        assert!(one.has_lost_connection(&(AT..AT + 100)));
        assert!(!one.has_written(&(AT + 100..AT + TIME)));
    }
}

/// A server goes on after the directory of a snapshot, and stops after that of a log.
#[test]
fn server_may_stop_when_an_fsync_of_the_directory_fails() {
    let failed = Fault::FailedSync {
        of_names: true,
        time: TIME,
    };
    let has_stopped = (0..10).any(|seed| {
        let mut plan = embedded(failed);
        plan.seed = seed;
        let seen = watch(&plan);
        let is_down = |one: &Seen| one.has_lost_connection(&(AT..AT + 500));
        seen.iter().all(is_down)
    });
    assert!(has_stopped);
}
