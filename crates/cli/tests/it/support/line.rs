//! A line of contenders on a server, seen and disturbed from outside.

use ::bellwether::zk;
use bellwether_testkit::{ConnectOptions, FaultProxy, RawClient, Request};
use tokio::runtime::Runtime;

use crate::support::bellwether::{public_password, until};

pub(crate) struct Line<'a> {
    address: &'a str,
    path: &'a str,
}

/// A contender in a line.
#[derive(Debug)]
pub(crate) struct Contender {
    pub(crate) path: String,
    pub(crate) data: Vec<u8>,
    pub(crate) session: i64,
}

impl<'a> Line<'a> {
    pub(crate) fn at(address: &'a str, path: &'a str) -> Self {
        Self { address, path }
    }

    /// The contenders in the line, in no order.
    pub(crate) fn contenders(&self) -> Vec<Contender> {
        block_on(async {
            let client = zk::Client::connect(self.address).await.unwrap();
            let mut contenders = Vec::new();
            for name in client.children(self.path).await.unwrap() {
                let path = format!("{}/{name}", self.path);
                match client.get(&path).await {
                    Ok((data, stat)) if stat.ephemeral_owner != 0 => contenders.push(Contender {
                        path,
                        data: data.to_vec(),
                        session: stat.ephemeral_owner,
                    }),
                    // A crash mark, or a contender that left meanwhile.
                    Ok(_) | Err(zk::Error::NO_NODE) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            contenders
        })
    }

    /// Deletes all of them, as an operator could.
    pub(crate) fn delete(&self) {
        let contenders = self.contenders();
        block_on(async {
            let client = zk::Client::connect(self.address).await.unwrap();
            for contender in contenders {
                client.delete(&contender.path, None).await.unwrap();
            }
        });
    }

    /// Ends the session of the only contender, and so its place.
    pub(crate) fn end_session(&self) {
        let contenders = self.contenders();
        let [contender] = &contenders[..] else {
            panic!("{contenders:?}")
        };
        let options = ConnectOptions {
            session_id: contender.session,
            password: public_password(contender.session),
            ..ConnectOptions::default()
        };
        let server = self.address.split('/').next().unwrap();
        // Its owner resumes it each time that it is taken over.
        until("the session is ended", || {
            block_on(async {
                if let Ok(mut client) = RawClient::connect_with(server, &options).await {
                    let _ = client.call(Request::CloseSession).await;
                }
            });
            let mut contenders = self.contenders().into_iter();
            contenders.all(|other| other.path != contender.path)
        });
    }
}

/// A proxy in front of a server, with its runtime and address.
pub(crate) fn through_proxy(address: &str) -> (Runtime, FaultProxy, String) {
    let (server, chroot) = match address.split_once('/') {
        Some((server, chroot)) => (server, format!("/{chroot}")),
        None => (address, String::new()),
    };
    let runtime = Runtime::new().unwrap();
    let proxy = runtime.block_on(FaultProxy::start(server)).unwrap();
    let address = format!("{}{chroot}", proxy.connect_string());
    (runtime, proxy, address)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(future)
}
