//! A client outlives its sessions: recipes use the current session, and holds of an ended one are lost.

use std::net::Ipv4Addr;
use std::time::Duration;

use bellwether::inspect::{Contention, Survey};
use bellwether::{
    Barrier, Client, ClientState, Counter, DoubleBarrier, Election, Error, ErrorKind, Lock,
    MultiLock, Queue, ReentrantLock, RwLock, Semaphore, SimpleLock, Tasks, connect,
};
use bellwether_testkit::{Cut, FaultProxy};
use futures_util::StreamExt;
use futures_util::future::join_all;
use tokio::net::{TcpListener, TcpStream};

use crate::support::place::{Place, SESSION_TIMEOUT, expire, soon};

on_both_engines! {
    t39_recipes_work_again_in_the_next_session,
    acquire_fails_while_there_is_no_session_and_works_again,
    those_who_wait_for_the_next_session_share_an_attempt,
    idle_client_opens_the_next_session_by_itself,
    states_of_a_client_tell_of_connection_session_and_end,
    streams_of_states_do_not_keep_the_client_open,
}

/// A handle of each recipe, created in the first session.
struct Handles {
    client: Client,
    lock: Lock,
    rwlock: RwLock,
    semaphore: Semaphore,
    simple: SimpleLock,
    multi: MultiLock,
    reentrant: ReentrantLock,
    election: Election,
    barrier: Barrier,
    double: DoubleBarrier,
    queue: Queue<String>,
    tasks: Tasks<String>,
    counter: Counter,
    contention: Contention,
    survey: Survey,
}

impl Handles {
    fn new(client: &Client) -> Self {
        Self {
            client: client.clone(),
            lock: Lock::new(client, "/lock"),
            rwlock: RwLock::new(client, "/rwlock"),
            semaphore: Semaphore::new(client, "/semaphore", 2),
            simple: SimpleLock::new(client, "/simple"),
            multi: MultiLock::new([Lock::new(client, "/one"), Lock::new(client, "/two")]),
            reentrant: ReentrantLock::new(Lock::new(client, "/reentrant")),
            election: Election::new(client, "/election"),
            barrier: Barrier::new(client, "/barrier"),
            double: DoubleBarrier::new(client, "/double", 1),
            queue: Queue::new(client, "/queue"),
            tasks: Tasks::new(client, "/tasks"),
            counter: Counter::new(client, "/counter"),
            contention: Contention::new(client, "/lock"),
            survey: Survey::new(client, "/"),
        }
    }

    /// Uses each of them, in the current session.
    async fn use_all(&self, round: i64) {
        let lock = self.lock.acquire().await.unwrap();
        assert!(self.lock.try_acquire().await.unwrap().is_none());
        let line = self.contention.line().await.unwrap();
        assert_eq!(line[0].session, self.client.session_id());
        lock.release().await.unwrap();
        let reads = self.rwlock.read().await.unwrap();
        reads.try_upgrade().await.unwrap().release().await.unwrap();
        self.semaphore.set_limit(3).await.unwrap();
        let permits = self.semaphore.acquire_many(3).await.unwrap();
        permits.release().await.unwrap();
        let simple = self.simple.acquire().await.unwrap();
        simple.release().await.unwrap();
        let both = self.multi.acquire().await.unwrap();
        both.release().await.unwrap();
        let again = self.reentrant.acquire().await.unwrap();
        again.release().await.unwrap();
        let leads = self.election.campaign().await.unwrap();
        assert_eq!(self.election.candidates().await.unwrap().len(), 1);
        leads.resign().await.unwrap();
        assert!(self.barrier.set().await.unwrap());
        assert!(self.barrier.lift().await.unwrap());
        self.barrier.wait().await.unwrap();
        let inside = self.double.enter().await.unwrap();
        inside.leave().await.unwrap();
        self.queue.put(&format!("item {round}")).await.unwrap();
        let claim = self.queue.take().await.unwrap();
        assert_eq!(*claim.payload(), format!("item {round}"));
        claim.ack().await.unwrap();
        let name = format!("task-{round}");
        assert!(self.tasks.add(&name, &name).await.unwrap());
        let task = self.tasks.take().await.unwrap().unwrap();
        task.done().await.unwrap();
        assert_eq!(self.counter.add(1).await.unwrap(), round);
        self.survey.look().await.unwrap();
    }
}

async fn t39_recipes_work_again_in_the_next_session(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let handles = Handles::new(&client);
    let mut sessions = Vec::new();
    for round in 1..=3 {
        soon(handles.use_all(round)).await;
        sessions.push(client.session_id());
        // A hold is lost when its session ends, and never returns.
        let guard = handles.lock.acquire().await.unwrap();
        handles.queue.put(&"left".to_owned()).await.unwrap();
        let claim = handles.queue.take().await.unwrap();
        let place = handles.lock.join().await.unwrap();
        expire(&proxy).await;
        soon(guard.lost()).await;
        soon(claim.lost()).await;
        let turn = soon(place.turn()).await;
        assert_fails!(turn, ErrorKind::SessionEnded);
        assert!(claim.ack().await.is_err());
        // It is delivered again.
        let again = soon(handles.queue.take()).await.unwrap();
        assert_eq!((again.payload().as_str(), again.attempts()), ("left", 2));
        again.ack().await.unwrap();
        assert!(!guard.is_held());
    }
    soon(handles.use_all(4)).await;
    sessions.push(client.session_id());
    sessions.dedup();
    assert_eq!(sessions.len(), 4);
}

async fn acquire_fails_while_there_is_no_session_and_works_again(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_millis(600)).await;
    let lock = Lock::new(&client, "/lost");
    lock.acquire().await.unwrap().release().await.unwrap();
    let first = client.raw();
    proxy.refuse(true);
    proxy.cut(Cut::Reset).await;
    soon(first.ended()).await;
    let refused = soon(lock.acquire()).await;
    assert_fails!(refused, ErrorKind::NoSession(_));
    assert_eq!(client.state(), ClientState::NoSession);
    proxy.refuse(false);
    let guard = soon(async {
        loop {
            match lock.acquire().await {
                Ok(guard) => return guard,
                // An attempt that had begun earlier.
                Err(Error {
                    kind: ErrorKind::NoSession(_),
                    ..
                }) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    });
    guard.await.release().await.unwrap();
    assert_ne!(client.session_id().number(), first.session_id());
}

/// Counts the connections that wait to be accepted by a listener, and drops them.
async fn waiting_at(listener: &TcpListener) -> usize {
    // The last one is our own.
    let last = TcpStream::connect(listener.local_addr().unwrap());
    let last = last.await.unwrap().local_addr().unwrap();
    let mut waiting = 0;
    while listener.accept().await.unwrap().1 != last {
        waiting += 1;
    }
    waiting
}

async fn those_who_wait_for_the_next_session_share_an_attempt(place: Place) {
    const CALLERS: usize = 16;
    // One of two servers never answers; the attempts are counted there.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let proxy = FaultProxy::start(place.server()).await.unwrap();
    let (one, other) = (proxy.address(), silent.local_addr().unwrap());
    let client = connect(format!("{one},{other}{}", place.chroot()))
        .session_timeout(SESSION_TIMEOUT)
        .fail_fast()
        .await
        .unwrap();
    let first = client.raw();
    proxy.refuse(true);
    proxy.expire_session().await.unwrap();
    soon(first.ended()).await;
    waiting_at(&silent).await;
    let failed = soon(join_all((0..CALLERS).map(|_| client.ready()))).await;
    assert!(failed.iter().all(Result::is_err), "{failed:?}");
    // One attempt for all callers, and one that the client may have made by itself.
    let attempts = waiting_at(&silent).await;
    assert!(attempts <= 2, "{attempts} attempts");
    // The next caller makes another attempt.
    proxy.refuse(false);
    soon(async { while client.ready().await.is_err() {} }).await;
    assert_ne!(client.session_id().number(), first.session_id());
}

async fn idle_client_opens_the_next_session_by_itself(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let first = client.raw();
    expire(&proxy).await;
    soon(first.ended()).await;
    // Only its state is observed.
    let mut states = client.states();
    while soon(states.next()).await != Some(ClientState::Connected) {}
    assert_ne!(client.session_id().number(), first.session_id());
}

async fn states_of_a_client_tell_of_connection_session_and_end(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let mut states = client.states();
    let mut next = async || soon(states.next()).await;
    assert_eq!(next().await, Some(ClientState::Connected));
    assert_eq!(client.state(), ClientState::Connected);
    proxy.refuse(true);
    proxy.cut(Cut::Reset).await;
    assert_eq!(next().await, Some(ClientState::Disconnected));
    // A little more than a session timeout without a server.
    assert_eq!(next().await, Some(ClientState::NoSession));
    proxy.refuse(false);
    assert_eq!(next().await, Some(ClientState::Connected));
    client.close().await;
    assert_eq!(next().await, Some(ClientState::Closed));
    assert_eq!(next().await, None);
    assert_eq!(client.state(), ClientState::Closed);
}

async fn streams_of_states_do_not_keep_the_client_open(place: Place) {
    let client = place.client().await;
    let (mut states, mut session) = (client.states(), client.raw().states());
    assert_eq!(soon(states.next()).await, Some(ClientState::Connected));
    drop(client);
    // The state itself is not kept: the session could not change it meanwhile.
    let ended = soon(session.wait_for(|state| state.is_ended()))
        .await
        .map(drop);
    assert!(ended.is_ok());
    while soon(states.next()).await.is_some() {}
}
