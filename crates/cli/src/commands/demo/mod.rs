//! `bellwether demo`: a guided tour on a throw-away server.
//!
//! `tour.rs` is what is shown, `stage.rs` runs and prints it. The server runs in this process, so it ends with it in any case; commands are
//! child processes, which get SIGTERM when this process ends, however that happens.

mod stage;
mod tour;

use std::fs;
use std::future::pending;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::Context;
use bellwether_server::{Config, Server, WordList};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use self::stage::Stage;
use crate::args::{DemoArgs, PageArgs, config_file};
use crate::commands::look::dashboard::{self, Port};
use crate::connect::session::close;
use crate::exit::Exit;
use crate::job::terminal;
use crate::output::Output;
use crate::signals::Signals;

#[tokio::main]
pub(crate) async fn run(args: DemoArgs, output: Output) -> anyhow::Result<Exit> {
    // Ctrl-Z, or a read of stdin in the background, must not stop the server.
    terminal::never_stop()?;
    let mut signals = Signals::to_end()?;
    let folder = tempfile::Builder::new()
        .prefix("bellwether-demo-")
        .tempdir();
    let folder = folder.context("cannot create a temporary folder")?;
    furnish(folder.path()).context("cannot write to the temporary folder")?;
    let server = Server::start(config(folder.path())).await;
    let server = server.context("the server cannot start")?;
    let played = tokio::select! {
        played = play(&args, folder.path(), &server, &mut signals, output) => played,
        error = server.failed() => Err(error.into()),
    };
    server.shutdown().await;
    let path = folder.path().display().to_string();
    folder
        .close()
        .with_context(|| format!("cannot delete {path}"))?;
    match played {
        // Nobody reads any more.
        Err(error) if is_closed_pipe(&error) => Ok(Exit::Done),
        played => played,
    }
}

/// What commands find in the folder: this program by its name, and settings that hide those of the user and of the host.
fn furnish(folder: &Path) -> std::io::Result<()> {
    let (programs, settings) = (stage::programs(folder), stage::settings(folder));
    fs::create_dir(&programs)?;
    // The file of this program may be replaced meanwhile.
    let program = format!("/proc/{}/exe", std::process::id());
    std::os::unix::fs::symlink(program, programs.join("bellwether"))?;
    fs::create_dir(&settings)?;
    fs::write(settings.join("bellwether.toml"), config_file::neutral())
}

/// A server for this user only, on a socket in a folder that others cannot read.
fn config(folder: &Path) -> Config {
    Config {
        listen: Vec::new(),
        listen_unix: Some(stage::socket(folder)),
        words: WordList::all(),
        data_dir: Some(folder.join("data")),
        ..Config::default()
    }
}

/// Plays the tour. Returns when all commands that it started have ended, also after a signal.
async fn play(
    args: &DemoArgs,
    folder: &Path,
    server: &Server,
    signals: &mut Signals,
    output: Output,
) -> anyhow::Result<Exit> {
    let port = match args.dashboard {
        true => Some(Port::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), None).await?),
        false => None,
    };
    let mut stage = Stage::open(folder, args.pace).await?;
    let ended = {
        let dashboard = async {
            let Some(port) = &port else {
                return pending().await;
            };
            let pages = PageArgs {
                allow_actions: false,
                open: false,
                token_file: None,
                host_names: Vec::new(),
            };
            dashboard::beside(server, port, &pages, None, output).await
        };
        let tour = async {
            if let Some(port) = &port {
                // Its link is printed first.
                until_served(port).await?;
            }
            tour::play(&mut stage).await
        };
        tokio::select! {
            played = tour => played.map(|()| Exit::Done),
            signal = signals.next() => Ok(Exit::Signal(signal.as_raw())),
            ended = dashboard => ended.map(|()| Exit::Failed).context("the dashboard has ended"),
        }
    };
    let client = stage.end().await;
    close(client).await;
    ended
}

/// Waits for the first answer of the dashboard.
async fn until_served(port: &Port) -> anyhow::Result<()> {
    let address = port.address()?;
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(())
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<std::io::Error>();
    cause.is_some_and(|cause| cause.kind() == ErrorKind::BrokenPipe)
}
