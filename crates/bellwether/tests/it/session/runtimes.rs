//! A session and the runtimes around it: the one that carries it, and those in which callers wait.

use std::future::{pending, poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::mpsc::channel;
use std::time::Duration;

use bellwether::blocking::Wait;
use bellwether::election::CandidacyState;
use bellwether::error::ConnectError;
use bellwether::{ClientState, Election, ErrorKind, HoldState, Lock, Queue, connect};
use futures_util::StreamExt;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::support::place::{Place, soon};

/// Starts a wait on a runtime, and returns when it has found that it must wait.
fn begin<T: Send + 'static>(
    runtime: &Runtime,
    wait: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let (waits, is_waiting) = channel();
    let task = runtime.spawn(async move {
        let mut wait = pin!(wait);
        poll_fn(|cx| {
            let polled = wait.as_mut().poll(cx);
            // It is received once.
            let _ = waits.send(polled.is_pending());
            polled
        })
        .await
    });
    assert!(is_waiting.recv().unwrap(), "it did not wait");
    task
}

/// What a session has promised ends with the runtime that carried it, and waiters on other runtimes learn of it.
#[test]
fn waits_end_with_the_runtime_of_the_session() {
    let outer = Builder::new_multi_thread().enable_all().build().unwrap();
    for flavor in [Builder::new_current_thread, Builder::new_multi_thread] {
        let place = outer.block_on(Place::embedded());
        let inner = flavor().enable_all().build().unwrap();
        let (client, guard, acquired) = inner.block_on(async {
            let client = connect(format!("{}{}", place.server(), place.chroot()));
            let client = client.on_current_runtime().await.unwrap();
            let lock = Lock::new(&client, "/lock");
            let guard = lock.acquire().await.unwrap();
            let acquired = outer.spawn(async move { lock.acquire().await });
            place.until_children("/lock", 2).await;
            (client, guard, acquired)
        });
        let (watch, mut states, mut of_client) = (guard.watch(), guard.states(), client.states());
        outer.block_on(async {
            assert_eq!(states.next().await, Some(HoldState::Held));
            assert_eq!(of_client.next().await, Some(ClientState::Connected));
        });
        let lost = begin(&outer, async move { watch.lost().await });
        let states = begin(&outer, states.collect::<Vec<_>>());
        let of_client = begin(&outer, of_client.collect::<Vec<_>>());
        let work = begin(&outer, async move { guard.run(pending::<()>()).await });
        drop(inner);
        outer.block_on(async {
            soon(lost).await.unwrap();
            assert!(soon(work).await.unwrap().is_err());
            assert_eq!(soon(states).await.unwrap().last(), Some(&HoldState::Lost));
            let of_client = soon(of_client).await.unwrap();
            assert_eq!(of_client.last(), Some(&ClientState::Closed));
            // The session or its client may end first.
            let acquired = soon(acquired).await.unwrap();
            assert_fails!(
                acquired,
                ErrorKind::SessionEnded | ErrorKind::NoSession(ConnectError::RuntimeGone)
            );
            let next = soon(Lock::new(&client, "/lock").acquire()).await;
            assert_fails!(next, ErrorKind::NoSession(ConnectError::RuntimeGone));
        });
    }
}

/// They rest after an error, by a timer of the runtime that is gone.
#[test]
fn streams_end_with_the_runtime_of_the_session() {
    let outer = Builder::new_multi_thread().enable_all().build().unwrap();
    let place = outer.block_on(Place::embedded());
    let inner = Builder::new_multi_thread().enable_all().build().unwrap();
    let client = inner.block_on(async {
        let client = connect(format!("{}{}", place.server(), place.chroot()));
        client.on_current_runtime().await.unwrap()
    });
    let election = Election::new(&client, "/election");
    let (mut stand, mut observed) = (election.candidacy(), election.observe());
    let leadership = outer.block_on(async {
        assert!(observed.next().await.unwrap().unwrap().is_none());
        assert!(matches!(
            stand.next().await,
            Some(CandidacyState::Running { .. })
        ));
        let Some(CandidacyState::Elected(leadership)) = stand.next().await else {
            panic!("there is no other candidate");
        };
        assert!(observed.next().await.unwrap().unwrap().is_some());
        leadership
    });
    let lock = Lock::new(&client, "/lock");
    let (guard, waiting, progress) = outer.block_on(async {
        let guard = lock.acquire().await.unwrap();
        let waiting = lock.join().await.unwrap();
        let mut progress = waiting.progress();
        assert_eq!(progress.next().await.unwrap().ahead, 1);
        (guard, waiting, progress)
    });
    let queue = Queue::<String>::new(&client, "/queue");
    let progress = begin(&outer, progress.count());
    let observed = begin(&outer, observed.count());
    let taken = begin(
        &outer,
        queue
            .consumer()
            .filter(|taken| ready(taken.is_ok()))
            .count(),
    );
    let expiring = begin(
        &outer,
        async move { leadership.expiring(Duration::ZERO).await },
    );
    drop(inner);
    outer.block_on(async {
        soon(expiring).await.unwrap();
        assert_eq!(soon(progress).await.unwrap(), 0);
        drop((guard, waiting));
        assert_eq!(soon(observed).await.unwrap(), 1, "it says why");
        assert_eq!(soon(taken).await.unwrap(), 0);
        let ran: Vec<CandidacyState> = soon(stand.collect()).await;
        assert!(
            matches!(ran[..], [CandidacyState::Interrupted(_)]),
            "{ran:?}"
        );
    });
}

/// In asynchronous code it would wait for a task that it holds up, silently and for ever.
#[test]
fn wait_in_asynchronous_code_panics_and_says_what_to_do() {
    let current = Builder::new_current_thread().enable_all().build().unwrap();
    let several = Builder::new_multi_thread().enable_all().build().unwrap();
    let place = several.block_on(Place::embedded());
    let wait = || connect(format!("{}{}", place.server(), place.chroot())).wait();
    let refused = || {
        let panic = catch_unwind(AssertUnwindSafe(wait)).unwrap_err();
        let reason = panic.downcast::<String>().map(|reason| *reason);
        let reason = reason.unwrap_or_else(|panic| (*panic.downcast::<&str>().unwrap()).to_owned());
        assert!(reason.contains("spawn_blocking"), "{reason}");
    };
    for runtime in [&current, &several] {
        runtime.block_on(async { refused() });
        // Inside the context of a runtime, but in no task of it.
        let _inside = runtime.enter();
        assert!(wait().is_ok());
    }
    let address = format!("{}{}", place.server(), place.chroot());
    several.block_on(async {
        assert!(tokio::task::block_in_place(wait).is_ok());
        let (one, other) = (address.clone(), address.clone());
        let task = tokio::spawn(async move { connect(one).wait().is_ok() });
        assert!(task.await.unwrap_err().is_panic());
        let apart = tokio::task::spawn_blocking(move || connect(other).wait().is_ok());
        assert!(apart.await.unwrap());
    });
}
