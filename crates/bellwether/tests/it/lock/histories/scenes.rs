//! Scenes of directed faults, each against one mistake that a lock could make.
//!
//! The patched copy of the workspace plays them with that mistake, and there the check of the history must fail (`crates/sim/mistakes`).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::{Client, Lock, SessionId, connect};
use bellwether_testkit::history::{Moment, What, check_holds, check_order, check_progress};
use bellwether_testkit::raw::four_letter_word;
use bellwether_testkit::{
    Body, Create, Cut, Direction, FaultProxy, Op, RawClient, Recorder, Request, Terms, TestServer,
    Violation,
};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::place::soon;

const PATH: &str = "/broken/lock";

const SESSION_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a scene waits for what a correct lock does not do.
const MOMENT: Duration = Duration::from_millis(500);

const TERMS: Terms = Terms {
    capacity: 1,
    session_timeout: SESSION_TIMEOUT,
    grace: Duration::ZERO,
};

#[tokio::test]
async fn contenders_hold_in_the_order_of_their_numbers() {
    let stage = Stage::new().await;
    let mut players = [stage.player(0).await, stage.player(1).await];
    players.sort_by_key(|player| format!("{:x}", player.client.session_id()));
    let [lower, higher] = players;
    let mut higher = higher.acquire();
    higher.granted().await;
    let mut lower = lower.acquire();
    stage.provoke(&mut lower).await;
    higher.end(Ending::Release);
    lower.granted().await;
    stage.check_holds();
}

#[tokio::test]
async fn contender_behind_a_waiter_that_gave_up_waits_for_the_holder() {
    let stage = Stage::new().await;
    let mut holder = stage.player(0).await.acquire();
    holder.granted().await;
    let middle = stage.player(1).await;
    let middle_id = middle.client.session_id();
    let middle = middle.acquire();
    let middle_node = stage.node_of(middle_id).await;
    let last = stage.player(2).await;
    let last_id = last.client.session_id();
    let mut last = last.acquire();
    stage.until_watched(&middle_node, last_id).await;
    middle.task.abort();
    stage.provoke(&mut last).await;
    holder.end(Ending::Release);
    last.granted().await;
    stage.check_holds();
}

#[tokio::test]
async fn hold_ends_with_its_session() {
    let stage = Stage::new().await;
    let mut holder = stage.player(0).await.acquire();
    holder.granted().await;
    let mut next = stage.player(1).await.acquire();
    holder.proxy.refuse(true);
    holder.proxy.cut(Cut::Close).await;
    next.granted().await;
    stage.check_holds();
}

#[tokio::test]
async fn hold_on_a_silent_connection_ends_before_the_next() {
    let stage = Stage::new().await;
    let mut holder = stage.player(0).await.acquire();
    holder.granted().await;
    let mut next = stage.player(1).await.acquire();
    holder.proxy.hold(Direction::Both);
    next.granted().await;
    holder.ended().await;
    stage.check_holds();
}

#[tokio::test]
async fn node_of_another_session_is_not_adopted() {
    let stage = Stage::new().await;
    let player = stage.player(0).await;
    // The create is lost, and when the player is back, another client has created a node of that name.
    player.proxy.refuse(true);
    let name = Arc::new(Mutex::new(String::new()));
    let seen = Arc::clone(&name);
    let lost = player.proxy.drop_request_where(move |request| {
        let path = request.path().filter(|path| path.contains("/lock-"));
        let is_create = matches!(request.op, Op::Create | Op::Create2) && path.is_some();
        if let Some(path) = path.filter(|_| is_create) {
            *seen.lock().unwrap() = path;
        }
        is_create
    });
    let mut player = player.acquire();
    lost.happened().await.unwrap();
    let mut other = RawClient::connect(stage.server.address()).await.unwrap();
    let name = name.lock().unwrap().clone();
    let create = Request::create_mode(name, "", Create::EPHEMERAL_SEQUENTIAL);
    other.call(create).await.unwrap().ok().unwrap();
    player.proxy.refuse(false);
    stage.provoke(&mut player).await;

    let next = stage.player(1).await;
    let next_id = next.client.session_id();
    let mut next = next.acquire();
    stage.node_of(next_id).await;
    player.proxy.hold(Direction::Both);
    let close = other.call(Request::CloseSession).await.unwrap();
    close.ok().unwrap();
    next.granted().await;
    stage.check_holds();
}

#[tokio::test]
async fn lost_request_of_a_release_is_sent_again() {
    deletion_lost(Ending::Release).await;
}

#[tokio::test]
async fn lost_request_of_a_drop_is_sent_again() {
    deletion_lost(Ending::Drop).await;
}

async fn deletion_lost(ending: Ending) {
    let stage = Stage::new().await;
    let mut holder = stage.player(0).await.acquire();
    holder.granted().await;
    let mut next = stage.player(1).await.acquire();
    stage.until_line_of(2).await;
    let lost = holder.proxy.drop_request(Op::Delete);
    holder.end(ending);
    lost.happened().await.unwrap();
    let calm = Moment::now();
    // Within this session: its expiry would let the next one in anyway.
    let _ = timeout(SESSION_TIMEOUT * 2, next.granted()).await;
    right(check_progress(&stage.recorder.history(), calm, [1]));
}

fn right(verdict: Result<(), Violation>) {
    if let Err(violation) = verdict {
        panic!("{violation}");
    }
}

/// A server, and the players.
struct Stage {
    server: TestServer,
    recorder: Recorder,
}

impl Stage {
    async fn new() -> Self {
        let mut config = TestServer::config();
        // Sessions expire soon after their timeout.
        config.tick = Duration::from_millis(50);
        let server = TestServer::with(config).await.unwrap();
        let mut client = RawClient::connect(server.address()).await.unwrap();
        let (parent, _) = PATH.rsplit_once('/').unwrap();
        for path in [parent, PATH] {
            let created = client.call(Request::create(path, "")).await.unwrap();
            created.ok().unwrap();
        }
        Self {
            server,
            recorder: Recorder::new(0),
        }
    }

    /// A player with a session through its own proxy.
    async fn player(&self, who: usize) -> Idle {
        let proxy = FaultProxy::start(self.server.address()).await.unwrap();
        let session = connect(proxy.connect_string()).session_timeout(SESSION_TIMEOUT);
        Idle {
            who,
            proxy,
            client: session.await.unwrap(),
            recorder: self.recorder.clone(),
        }
    }

    /// Waits for a grant that only a broken lock gives.
    async fn provoke(&self, player: &mut Player) {
        let _ = timeout(MOMENT, player.granted()).await;
    }

    fn check_holds(&self) {
        let history = self.recorder.history();
        right(check_holds(&history, &TERMS));
        right(check_order(&history, &TERMS));
    }

    /// Waits until a session has a node in the line, and returns its path.
    async fn node_of(&self, session_id: SessionId) -> String {
        let part = format!("-{session_id:x}-");
        let is_there = |names: &Vec<String>| names.iter().any(|name| name.contains(&part));
        let names = self.until_line(is_there).await;
        let name = names.into_iter().find(|name| name.contains(&part));
        format!("{PATH}/{}", name.unwrap())
    }

    /// Waits until the line has `count` nodes.
    async fn until_line_of(&self, count: usize) {
        self.until_line(|names| names.len() == count).await;
    }

    async fn until_line(&self, is_right: impl Fn(&Vec<String>) -> bool) -> Vec<String> {
        let mut client = RawClient::connect(self.server.address()).await.unwrap();
        soon(async {
            loop {
                let list = client.call(Request::get_children(PATH)).await.unwrap();
                match list.outcome {
                    Ok(Body::Children(names)) if is_right(&names) => return names,
                    _ => tokio::task::yield_now().await,
                }
            }
        })
        .await
    }

    /// Waits until a session watches a node.
    async fn until_watched(&self, node: &str, session_id: SessionId) {
        let session = format!("\t{session_id:#x}");
        soon(async {
            loop {
                let watches = four_letter_word(self.server.address(), "wchp")
                    .await
                    .unwrap();
                let mut of_node = watches.lines().skip_while(|line| *line != node).skip(1);
                let mut sessions = of_node.by_ref().take_while(|line| line.starts_with('\t'));
                if sessions.any(|line| line == session) {
                    return;
                }
            }
        })
        .await;
    }
}

/// A player that has not asked yet.
struct Idle {
    who: usize,
    proxy: FaultProxy,
    client: Client,
    recorder: Recorder,
}

/// A player that has asked for the lock.
struct Player {
    proxy: FaultProxy,
    standing: watch::Receiver<Standing>,
    /// Tells it how to end the hold.
    end: Option<oneshot::Sender<Ending>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Waiting,
    Holding,
    Ended,
}

enum Ending {
    Release,
    Drop,
}

impl Idle {
    fn acquire(self) -> Player {
        let Self {
            who,
            proxy,
            client,
            recorder,
        } = self;
        let (stand, standing) = watch::channel(Standing::Waiting);
        let (end, ending) = oneshot::channel();
        let task = tokio::spawn(async move {
            recorder.record(who, What::Asked);
            let guard = match Lock::new(&client, PATH).acquire().await {
                Ok(guard) => guard,
                Err(error) => return recorder.record(who, What::Failed(error.to_string())),
            };
            let token = guard.token().number();
            recorder.record(who, What::Granted { token, weight: 1 });
            stand.send_replace(Standing::Holding);
            let ending = tokio::select! {
                () = guard.lost() => {
                    recorder.record(who, What::Lost { token });
                    Ending::Drop
                }
                ending = ending => {
                    recorder.record(who, What::Releasing { token });
                    ending.unwrap_or(Ending::Drop)
                }
            };
            match ending {
                // A broken lock may return anything.
                Ending::Release => drop(guard.release().await),
                Ending::Drop => drop(guard),
            }
            stand.send_replace(Standing::Ended);
            // The session stays open, like that of a program with other work.
            std::future::pending::<()>().await;
        });
        Player {
            proxy,
            standing,
            end: Some(end),
            task,
        }
    }
}

impl Player {
    async fn granted(&mut self) {
        self.until(Standing::Holding).await;
    }

    async fn ended(&mut self) {
        self.until(Standing::Ended).await;
    }

    fn end(&mut self, ending: Ending) {
        // An error means that the hold was lost.
        let _ = self.end.take().unwrap().send(ending);
    }

    async fn until(&mut self, standing: Standing) {
        let reached = self.standing.wait_for(|now| *now == standing);
        soon(reached).await.unwrap();
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.task.abort();
    }
}
