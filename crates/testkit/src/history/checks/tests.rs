use std::time::Duration;

use super::super::{Event, Recorder};
use super::*;

const MUTEX: Terms = terms(1);

const fn terms(capacity: u32) -> Terms {
    Terms {
        capacity,
        session_timeout: Duration::from_millis(100),
        grace: Duration::from_millis(10),
    }
}

/// A history of lines `millisecond contender what`.
fn history(lines: &str) -> History {
    let events = lines.lines().map(str::trim).filter(|line| !line.is_empty());
    let event = |line: &str| {
        let [at_ms, who, what] = line.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
        Event {
            at: at(at_ms.parse().unwrap()),
            who: who.parse().unwrap(),
            what: parse(what),
        }
    };
    History::new(42, events.map(event).collect())
}

/// Reads what `Display` writes.
fn parse(text: &str) -> What {
    let words: Vec<&str> = text.split(' ').collect();
    let number = |word: &str| word.parse().unwrap();
    match words[..] {
        ["asked"] => What::Asked,
        ["granted", token, weight] => What::Granted {
            token: number(token),
            weight: weight.parse().unwrap(),
        },
        ["lost", token] => What::Lost {
            token: number(token),
        },
        ["releasing", token] => What::Releasing {
            token: number(token),
        },
        ["released", token] => What::Released {
            token: number(token),
        },
        ["dropping", token] => What::Dropping {
            token: number(token),
        },
        ["deleting", token] => What::Deleting {
            token: number(token),
        },
        ["found", token, crashed] => What::Found {
            token: number(token),
            crashed: (crashed != "clean").then(|| number(crashed)),
        },
        ["wrote", token, accepted] => What::Wrote {
            token: number(token),
            accepted: accepted == "true",
        },
        ["paused"] => What::Paused,
        ["resumed"] => What::Resumed,
        ["expired"] => What::Expired,
        ["stalled", since] => What::Stalled {
            since: Moment::after_boot(Duration::from_nanos(since.parse().unwrap())),
        },
        ["fault", ..] => What::Fault(words[1..].join(" ")),
        _ => panic!("{text}"),
    }
}

fn at(ms: u64) -> Moment {
    Moment::after_boot(Duration::from_millis(ms))
}

/// The verdict without its excerpt.
fn verdict(result: Result<(), Violation>) -> Result<(), String> {
    result.map_err(|violation| violation.what)
}

#[test]
fn one_after_the_other_is_right() {
    let history = history(
        "1 0 asked
         2 0 granted 10 1
         3 0 wrote 10 true
         4 1 asked
         5 0 releasing 10
         5 1 granted 11 1
         6 1 wrote 11 true
         7 1 lost 11
         8 0 granted 12 1",
    );
    assert_eq!(check_holds(&history, &MUTEX), Ok(()));
    assert_eq!(check_order(&history, &MUTEX), Ok(()));
    assert_eq!(check_fencing(&history, &MUTEX), Ok(()));
    assert_eq!(check_progress(&history, at(4), [0, 1]), Ok(()));
    assert_eq!(history.grants(), 3);
}

#[test]
fn two_at_once_are_caught_though_tokens_rise() {
    let history = history(
        "2 0 granted 10 1
         3 2 fault held
         4 1 granted 11 1
         5 0 releasing 10
         6 1 releasing 11",
    );
    let violation = check_holds(&history, &MUTEX).unwrap_err();
    assert_eq!(violation.what, "2 of 1 held at once, by contenders [0, 1]");
    assert_eq!(check_order(&history, &MUTEX), Ok(()));
    // It prints the seed and the relevant part, including faults of others.
    let printed = violation.to_string();
    for part in [
        "seed 42",
        "granted 10",
        "granted 11",
        "contender 2 fault held",
    ] {
        assert!(printed.contains(part), "{printed}");
    }
    assert!(!printed.contains("releasing 11"), "{printed}");
}

#[test]
fn a_hold_without_an_end_goes_on() {
    let history = history("2 0 granted 10 1\n900 1 granted 11 1");
    check_holds(&history, &MUTEX).unwrap_err();
}

#[test]
fn who_was_paused_is_excused_until_it_had_time_to_notice() {
    let paused = |lost_at: u64| {
        let lines = format!(
            "2 0 granted 10 1
             3 0 paused
             50 1 granted 11 1
             51 1 wrote 11 true
             60 0 resumed
             61 0 wrote 10 false
             {lost_at} 0 lost 10
             90 1 releasing 11"
        );
        let history = history(&lines);
        (
            verdict(check_holds(&history, &MUTEX)),
            verdict(check_fencing(&history, &MUTEX)),
        )
    };
    assert_eq!(paused(70), (Ok(()), Ok(())));
    assert!(matches!(paused(71), (Err(_), Err(_))));
}

#[test]
fn who_has_just_resumed_when_the_history_ends_is_excused() {
    let resumed = |end: u64| {
        let lines = format!(
            "2 0 granted 10 1
             3 0 paused
             50 1 granted 11 1
             60 0 resumed
             {end} 1 releasing 11"
        );
        check_holds(&history(&lines), &MUTEX)
    };
    assert_eq!(resumed(70), Ok(()));
    resumed(71).unwrap_err();
}

#[test]
fn a_pause_excuses_nobody_else_and_nothing_before() {
    for lines in [
        "2 0 granted 10 1\n3 1 paused\n50 2 granted 11 1\n60 1 resumed\n61 0 lost 10",
        "2 0 granted 10 1\n50 1 granted 11 1\n51 0 paused\n60 0 resumed\n61 0 lost 10",
    ] {
        check_holds(&history(lines), &MUTEX).unwrap_err();
    }
}

#[test]
fn a_stall_is_a_pause_and_one_may_follow_another() {
    let since = 3_000_000;
    let stalled = format!(
        "2 0 granted 10 1
         50 1 granted 11 1
         52 0 stalled {since}
         60 0 paused
         90 0 resumed
         100 0 lost 10
         101 1 releasing 11"
    );
    assert_eq!(check_holds(&history(&stalled), &MUTEX), Ok(()));
    // Without the pause, it noticed too late.
    let lines: Vec<_> = stalled.lines().collect();
    let without = [&lines[..3], &lines[5..]].concat().join("\n");
    check_holds(&history(&without), &MUTEX).unwrap_err();
}

#[test]
fn an_ended_session_must_be_noticed_within_its_timeout() {
    let expired = |lost_at: u64| {
        let lines = format!("2 0 granted 10 1\n5 0 expired\n6 1 granted 11 1\n{lost_at} 0 lost 10");
        check_holds(&history(&lines), &MUTEX)
    };
    assert_eq!(expired(115), Ok(()));
    expired(116).unwrap_err();
}

#[test]
fn readers_share_and_a_writer_excludes() {
    let all = u32::MAX;
    let with = |third: &str| {
        let lines = format!(
            "2 0 granted 10 1
             3 1 granted 11 1
             {third}
             9 0 releasing 10
             9 1 releasing 11"
        );
        verdict(check_holds(&history(&lines), &terms(all)))
    };
    assert_eq!(with("4 2 granted 12 1"), Ok(()));
    assert_eq!(with(&format!("9 2 granted 12 {all}")), Ok(()));
    with(&format!("8 2 granted 12 {all}")).unwrap_err();
}

#[test]
fn permits_are_counted_by_weight() {
    let lines = "2 0 granted 10 2\n3 1 granted 11 1";
    assert_eq!(check_holds(&history(lines), &terms(3)), Ok(()));
    let lines = format!("{lines}\n4 2 granted 12 1");
    assert_eq!(
        verdict(check_holds(&history(&lines), &terms(3))).unwrap_err(),
        "4 of 3 held at once, by contenders [0, 1, 2]"
    );
}

#[test]
fn overtaking_is_caught() {
    let history = history(
        "1 0 granted 9 1
         2 0 releasing 9
         3 1 granted 11 1
         4 1 releasing 11
         5 2 granted 10 1
         6 2 releasing 10",
    );
    assert_eq!(check_holds(&history, &MUTEX), Ok(()));
    assert_eq!(
        verdict(check_order(&history, &MUTEX)).unwrap_err(),
        "contender 1 with token 11 was granted before contender 2 with token 10"
    );
}

#[test]
fn a_token_that_comes_back_lower_is_caught_however_late() {
    let history = history(
        "1 0 granted 20 1
         2 0 releasing 20
         3 1 granted 5 1
         4 1 releasing 5
         5 2 granted 6 1",
    );
    check_order(&history, &MUTEX).unwrap_err();
}

#[test]
fn what_fits_together_may_be_noted_in_any_order() {
    let readers = "2 0 granted 11 1\n3 1 granted 10 1";
    assert_eq!(check_order(&history(readers), &terms(2)), Ok(()));
    // The light contender overtook a heavy one that had to wait.
    let heavy =
        "1 3 granted 9 1\n2 0 granted 11 1\n3 0 releasing 11\n3 3 releasing 9\n4 1 granted 10 2";
    check_order(&history(heavy), &terms(3)).unwrap_err();
}

#[test]
fn who_sleeps_on_after_its_hold_takes_no_room() {
    let asleep =
        "1 3 granted 9 2\n2 3 paused\n4 0 granted 11 1\n5 1 granted 10 1\n6 3 resumed\n7 3 lost 9";
    assert_eq!(check_order(&history(asleep), &terms(2)), Ok(()));
    let awake = asleep
        .replace("2 3 paused\n", "")
        .replace("6 3 resumed\n", "");
    check_order(&history(&awake), &terms(2)).unwrap_err();
}

#[test]
fn who_slept_through_its_turn_is_no_overtaken_one() {
    let asleep = "2 1 paused\n5 0 granted 11 1\n8 0 releasing 11\n9 1 resumed\n10 1 granted 10 1\n11 1 lost 10";
    assert_eq!(check_order(&history(asleep), &MUTEX), Ok(()));
    let awake = asleep.replace("2 1 paused", "6 1 paused");
    check_order(&history(&awake), &MUTEX).unwrap_err();
}

#[test]
fn a_lower_token_taken_after_a_higher_one_is_caught() {
    let history = history("1 0 wrote 10 true\n2 1 wrote 11 true\n3 0 wrote 10 true");
    assert_eq!(
        verdict(check_fencing(&history, &MUTEX)).unwrap_err(),
        "a write of contender 0 with token 10 was accepted, after one with token 11"
    );
}

#[test]
fn a_holder_turned_away_is_caught() {
    let lines = "1 0 wrote 12 true\n2 1 granted 11 1\n3 1 wrote 11 false\n4 1 releasing 11";
    check_fencing(&history(lines), &MUTEX).unwrap_err();
    let late = lines.replace("3 1", "5 1");
    assert_eq!(check_fencing(&history(&late), &MUTEX), Ok(()));
}

#[test]
fn crashes_are_neither_forgotten_nor_made_up() {
    let after = |end: &str, found: &str| {
        let lines = format!("1 0 granted 10 1\n{end}\n8 1 granted 12 1\n9 1 found 12 {found}");
        check_crash_marks(&history(&lines)).is_ok()
    };
    for crash in ["3 0 lost 10", "3 0 dropping 10", ""] {
        assert!(after(crash, "10"), "{crash}");
        assert_eq!(after(crash, "clean"), crash.is_empty(), "{crash}");
    }
    // Another contender, which could not record its hold.
    assert!(after("3 0 releasing 10\n4 0 released 10", "11"));
    assert!(after("3 0 releasing 10\n4 0 released 10", "clean"));
    assert!(!after("3 0 releasing 10\n4 0 released 10", "10"));
    assert!(!after("3 0 releasing 10\n4 0 released 10", "9"));
    for doubt in ["3 0 releasing 10", "3 0 releasing 10\n4 0 lost 10"] {
        assert!(after(doubt, "10") && after(doubt, "clean"), "{doubt}");
    }
}

#[test]
fn who_hangs_is_caught() {
    let lines = "1 0 granted 9 1\n1 1 granted 8 1\n5 1 granted 11 1\n6 0 asked";
    let hung = verdict(check_progress(&history(lines), at(4), [0, 1]));
    assert!(hung.unwrap_err().starts_with("contender 0 made no"));
    assert_eq!(check_progress(&history(lines), at(4), [1]), Ok(()));
}

#[test]
fn long_excerpts_are_cut_in_the_middle() {
    let mut lines = "1 0 granted 9 1\n".to_owned();
    for ms in 2..200 {
        lines += &format!("{ms} 0 wrote 9 true\n");
    }
    lines += "200 1 granted 10 1\n201 0 releasing 9";
    let printed = check_holds(&history(&lines), &MUTEX)
        .unwrap_err()
        .to_string();
    assert!(printed.lines().count() <= 63, "{printed}");
    assert!(
        printed.contains("granted 9")
            && printed.contains("granted 10")
            && printed.contains(" more ")
    );
}

#[test]
fn events_of_several_recorders_are_sorted() {
    let recorder = Recorder::new(1);
    let early = Event::now(0, What::Asked);
    recorder.record(1, What::Asked);
    recorder.add(early.clone());
    assert_eq!(recorder.history().events()[0], early);
}
