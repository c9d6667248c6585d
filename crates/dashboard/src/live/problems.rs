//! Problems that need attention, the most severe first.

use std::time::{Duration, SystemTime};

use bellwether::inspect::{LineKind, Overview, QueueEntry, Recipe};
use serde_json::{Value, json};

use super::members::MemberState;

/// Age from which a hold with waiters counts as long.
const LONG_HOLD: Duration = Duration::from_secs(10 * 60);

/// Length from which a queue counts as deep.
const DEEP_QUEUE: usize = 1000;

/// Fraction of a limit that counts as near it.
const NEAR: f64 = 0.85;

/// Severity, in the order in which problems are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    /// Something does not work, and will not recover by itself.
    Critical,
    /// A user should look at it.
    Warning,
}

#[derive(Debug)]
struct Problem {
    severity: Severity,
    kind: &'static str,
    what: String,
    /// What to do about it.
    advice: &'static str,
    /// Page where it can be solved.
    link: String,
}

/// All problems as JSON for the pages.
pub(super) fn json(overview: &Overview, members: &[MemberState]) -> Value {
    let mut problems = of_recipes(overview, SystemTime::now());
    problems.extend(of_members(members));
    problems.sort_by_key(|problem| problem.severity);
    problems
        .iter()
        .map(|problem| {
            json!({
                "severity": match problem.severity {
                    Severity::Critical => "critical",
                    Severity::Warning => "warning",
                },
                "kind": problem.kind,
                "what": problem.what,
                "advice": problem.advice,
                "link": problem.link,
            })
        })
        .collect()
}

fn of_recipes(overview: &Overview, now: SystemTime) -> Vec<Problem> {
    let mut problems = Vec::new();
    if overview.unexplored > 0 {
        problems.push(Problem {
            severity: Severity::Warning,
            kind: "too many directories",
            what: format!("{} or more directories were not read", overview.unexplored),
            advice: "Recipes there are not shown. Delete directories that are not needed.",
            link: link("tree", "/"),
        });
    }
    for circle in overview.deadlocks() {
        let mut paths: Vec<_> = circle.iter().map(|step| step.path.as_str()).collect();
        paths.sort_unstable();
        paths.dedup();
        problems.push(Problem {
            severity: Severity::Critical,
            kind: "deadlock",
            what: format!(
                "{} waiters wait for each other at {}",
                circle.len(),
                paths.join(", ")
            ),
            advice: "None of them will ever acquire. Break one of the holds.",
            link: link("locks", paths.first().copied().unwrap_or("/")),
        });
    }
    for sight in &overview.recipes {
        let path = sight.path.as_str();
        match &sight.what {
            Recipe::Line(line) => {
                let page = match line.kind {
                    LineKind::Election => "elections",
                    _ => "locks",
                };
                if line.crash.is_some() {
                    problems.push(Problem {
                        severity: Severity::Warning,
                        kind: "crashed holder",
                        what: format!("the last holder of {path} did not release it"),
                        advice: "Its work may be half done. Repair that, then clear the crash mark.",
                        link: link(page, path),
                    });
                }
                let waiters = line.waiters().count();
                let longest = line.holders().map(|holder| age(holder, now)).max();
                if let Some(longest) =
                    longest.filter(|longest| *longest >= LONG_HOLD && waiters > 0)
                {
                    problems.push(Problem {
                        severity: Severity::Warning,
                        kind: "long hold",
                        what: format!(
                            "{path} has been held for {} minutes; waiters: {waiters}",
                            longest.as_secs() / 60
                        ),
                        advice: "Ask the holder to release, or break the hold.",
                        link: link(page, path),
                    });
                }
            }
            Recipe::Queue(queue) => {
                let depth = queue.depth;
                if depth.dead > 0 {
                    problems.push(dead_letters(path, depth.dead, "dead letter"));
                }
                if depth.items >= DEEP_QUEUE {
                    problems.push(Problem {
                        severity: Severity::Warning,
                        kind: "deep queue",
                        what: format!("{} items wait at {path}", depth.items),
                        advice: "Start more consumers, or find out why they are slow.",
                        link: link("queues", path),
                    });
                }
            }
            Recipe::Tasks { counts, .. } if counts.failed > 0 => {
                problems.push(dead_letters(path, counts.failed, "failed task"));
            }
            _ => {}
        }
    }
    problems
}

fn dead_letters(path: &str, count: usize, thing: &str) -> Problem {
    let plural = if count == 1 { "" } else { "s" };
    Problem {
        severity: Severity::Warning,
        kind: "dead letters",
        what: format!("{count} {thing}{plural} at {path}"),
        advice: "Read why they failed, then retry them.",
        link: link("queues", path),
    }
}

fn of_members(members: &[MemberState]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for member in members {
        let name = &member.name;
        if let Some(why) = &member.silent {
            problems.push(Problem {
                severity: Severity::Critical,
                kind: "server missing",
                what: format!("{name} does not answer: {why}"),
                advice: "Check whether it runs, and whether it can be reached from here.",
                link: "#/".to_owned(),
            });
        }
        if let Some(why) = &member.refuses_growth {
            problems.push(Problem {
                severity: Severity::Critical,
                kind: "growth refused",
                what: format!("{name} refuses writes that make its tree larger: {why}"),
                advice: "Delete nodes that are not needed, or give it more disk or memory.",
                link: "#/".to_owned(),
            });
        }
        let number = |key: &str| member.numbers.get(key).copied();
        let mut near = |kind, used: &str, max: &str, thing: &str, advice| {
            if let Some((used, max)) = number(used).zip(number(max))
                && max > 0.0
                && used / max > NEAR
            {
                problems.push(Problem {
                    severity: Severity::Critical,
                    kind,
                    what: format!("{name} has used {:.0} % of its {thing}", 100.0 * used / max),
                    advice,
                    link: "#/".to_owned(),
                });
            }
        };
        near(
            "disk filling",
            "data_disk_used_bytes",
            "data_disk_bytes",
            "disk",
            "When it is nearly full, writes that need space are refused. Free some.",
        );
        near(
            "files",
            "open_file_descriptor_count",
            "max_file_descriptor_count",
            "open files",
            "Raise the limit of open files, or find the client that opens so many connections.",
        );
    }
    problems
}

fn age(holder: &QueueEntry, now: SystemTime) -> Duration {
    now.duration_since(holder.since).unwrap_or_default()
}

/// Address of a path on a page.
fn link(page: &str, path: &str) -> String {
    format!("#/{page}?path={}", percent_encoded(path))
}

fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use bellwether::inspect::Survey;
    use bellwether::{Lock, connect};
    use bellwether_testkit::TestServer;

    use super::*;
    use crate::live::members::{Member, ask_all};

    /// What is shown of a server that answers `mntr` with `numbers`.
    async fn of_server(numbers: &'static str) -> Value {
        let member = Member::new("zk1", move |word| async move {
            match word {
                "srvr" => Ok("Mode: standalone\n".to_owned()),
                _ => Ok(numbers.to_owned()),
            }
        });
        let (states, _) = ask_all(&[member], &[]).await;
        json(&Overview::default(), &states)
    }

    #[tokio::test]
    async fn disk_and_descriptors_are_problems_before_they_are_used_up() {
        let fine = "zk_data_disk_bytes\t1000\nzk_data_disk_used_bytes\t850\n";
        assert_eq!(of_server(fine).await, json!([]));
        let full = "zk_data_disk_bytes\t1000\nzk_data_disk_used_bytes\t900\n\
            zk_open_file_descriptor_count\t95\nzk_max_file_descriptor_count\t100\n";
        let problems = of_server(full).await;
        let shown = |place: usize| {
            (
                problems[place]["kind"].clone(),
                problems[place]["what"].clone(),
            )
        };
        assert_eq!(
            shown(0),
            (
                json!("disk filling"),
                json!("zk1 has used 90 % of its disk")
            )
        );
        assert_eq!(
            shown(1),
            (json!("files"), json!("zk1 has used 95 % of its open files"))
        );
    }

    #[tokio::test]
    async fn server_that_refuses_growth_is_a_problem() {
        let member = Member::new("zk1", |word| async move {
            Ok(match word {
                "srvr" => "Mode: standalone\nRefuses growth: the disk is nearly full\n",
                _ => "",
            }
            .to_owned())
        });
        let (states, _) = ask_all(&[member], &[]).await;
        let problems = json(&Overview::default(), &states);
        assert_eq!(problems[0]["kind"], "growth refused");
        let what = "zk1 refuses writes that make its tree larger: the disk is nearly full";
        assert_eq!(problems[0]["what"], what);
    }

    #[tokio::test]
    async fn hold_is_long_after_ten_minutes_if_others_wait() {
        let server = TestServer::start().await.unwrap();
        let client = connect(server.connect_string()).await.unwrap();
        let lock = |path: &str, owner: &str| Lock::new(&client, path).owner(owner);
        let _held = [
            lock("/alone", "holder").acquire().await.unwrap(),
            lock("/wanted", "holder").acquire().await.unwrap(),
        ];
        let _waits = lock("/wanted", "waiter").join().await.unwrap();
        let seen = Survey::new(&client, "/").look().await.unwrap();
        let now = SystemTime::now();
        assert!(of_recipes(&seen, now).is_empty());
        let later = of_recipes(&seen, now + LONG_HOLD + Duration::from_secs(1));
        let [long] = &later[..] else {
            panic!("{later:?}");
        };
        assert_eq!(
            (long.kind, long.link.as_str()),
            ("long hold", "#/locks?path=/wanted")
        );
    }

    #[tokio::test]
    async fn server_that_does_not_answer_is_missing() {
        let member = Member::new("zk2", |_| async { Err(std::io::Error::other("refused")) });
        let (states, _) = ask_all(&[member], &[]).await;
        let problems = json(&Overview::default(), &states);
        assert_eq!(problems[0]["kind"], "server missing");
        assert_eq!(problems[0]["severity"], "critical");
        assert_eq!(problems[0]["what"], "zk2 does not answer: refused");
    }
}
