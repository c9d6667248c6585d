//! Clients of other projects: each program under `tests/clients` takes the address of a server, checks its replies, and prints `ok` at the
//! end.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use bellwether_server::{Config, Server, TlsConfig};
use bellwether_testkit::certificates::{Authority, Files};
use bellwether_testkit::{Apache, TestServer};
use tokio::process::Command;
use tokio::time::timeout;

/// Debian's folder of jars; each jar names its dependencies in its manifest.
const JARS: &str = "/usr/share/java";

/// Includes compiling on a busy machine. The programs limit each of their own waits to 10 s.
const CLIENT_LIMIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn kazoo_works() {
    let server = TestServer::start().await.unwrap();
    run_client("kazoo_smoke.py", &server.connect_string()).await;
}

#[tokio::test]
async fn curator_works() {
    let server = TestServer::start().await.unwrap();
    run_client("CuratorSmoke.java", &server.connect_string()).await;
}

#[tokio::test]
async fn zkcli_works() {
    let server = TestServer::start().await.unwrap();
    run_client("zkcli_smoke.sh", &server.connect_string()).await;
}

#[tokio::test]
async fn c_client_works() {
    let server = TestServer::start().await.unwrap();
    run_client("c_smoke.c", &server.connect_string()).await;
}

/// Refused for lack of disk or memory, with a code of ZooKeeper 3.7 and later.
#[tokio::test]
async fn java_and_curator_understand_that_there_is_no_room() {
    let config = Config {
        // The root and those below /zookeeper, and one more.
        tree_nodes_max: 5,
        ..TestServer::config()
    };
    let server = TestServer::with(config).await.unwrap();
    run_client("QuotaRefused.java", &server.connect_string()).await;
}

#[tokio::test]
async fn kazoo_works_with_apache() {
    let apache = Apache::shared().await.unwrap();
    run_client("kazoo_smoke.py", apache.connect_string()).await;
}

#[tokio::test]
async fn curator_works_with_apache() {
    let apache = Apache::shared().await.unwrap();
    run_client("CuratorSmoke.java", apache.connect_string()).await;
}

#[tokio::test]
async fn zkcli_works_with_apache() {
    let apache = Apache::shared().await.unwrap();
    run_client("zkcli_smoke.sh", apache.connect_string()).await;
}

#[tokio::test]
async fn c_client_works_with_apache() {
    let apache = Apache::shared().await.unwrap();
    run_client("c_smoke.c", apache.connect_string()).await;
}

#[tokio::test]
async fn kazoo_works_over_tls_and_sasl() {
    let (server, files) = secure_server().await;
    run_secure("kazoo_secure.py", &server, &files).await;
}

#[tokio::test]
async fn zkcli_works_over_tls_and_sasl() {
    let (server, files) = secure_server().await;
    run_secure("zkcli_secure.sh", &server, &files).await;
}

/// A server that requires client certificates and has a SASL user, and the files of the client.
async fn secure_server() -> (Server, Files) {
    let (authority, files) = (Authority::new("authority"), Files::new());
    // Java verifies the host name, and resolves it.
    let server = authority.issue("server", &["127.0.0.1", "localhost"]);
    let client = authority.issue("client", &[]);
    files.put("ca.pem", &authority.pem);
    files.put("client.pem", &client.store());
    files.put("cert.pem", &client.certificate);
    files.put("key.pem", &client.key);
    let server = files.put("server.pem", &server.store());
    let config = Config {
        tls: Some(TlsConfig {
            client_authorities: Some(files.path("ca.pem")),
            ..TlsConfig::new(&server, &server)
        }),
        sasl_users: Some(files.put("users", "alice:sword fish\n")),
        ..TestServer::config()
    };
    (Server::start(config).await.unwrap(), files)
}

/// Like [`run_client`], with the folder of the client's files.
async fn run_secure(name: &str, server: &Server, files: &Files) {
    let address = server.tls_addresses()[0].to_string();
    run(name, &[&address, files.path("").to_str().unwrap()]).await;
}

/// Builds the program if necessary, and runs it against the server at `address`.
async fn run_client(name: &str, address: &str) {
    run(name, &[address]).await;
}

async fn run(name: &str, arguments: &[&str]) {
    let build = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/clients")
        .join(name);
    let run = async {
        let mut program = match name {
            "kazoo_smoke.py" | "kazoo_secure.py" => python(&source),
            "CuratorSmoke.java" | "QuotaRefused.java" => java(&source, build.path()).await,
            "zkcli_smoke.sh" | "zkcli_secure.sh" => command("bash", [&source]),
            "c_smoke.c" => c(&source, build.path()).await,
            _ => panic!("no way to run {name}"),
        };
        output(program.args(arguments)).await
    };
    let output = timeout(CLIENT_LIMIT, run)
        .await
        .unwrap_or_else(|_| panic!("{name} took longer than {CLIENT_LIMIT:?}"));
    assert!(
        output.stdout.ends_with(b"ok\n"),
        "{name} ended without its ok"
    );
}

/// The virtual environment that `./test` creates contains kazoo.
fn python(source: &Path) -> Command {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    command(workspace.join(".venv/bin/python"), [source])
}

async fn java(source: &Path, build: &Path) -> Command {
    let curator = format!("{JARS}/curator-recipes.jar");
    let mut javac = command("javac", ["-classpath", &curator, "-d"]);
    output(javac.arg(build).arg(source)).await;
    let classpath = format!("{}:{curator}:{JARS}/slf4j-nop.jar", build.display());
    let class = source.file_stem().and_then(OsStr::to_str).unwrap();
    command("java", ["-Xmx128m", "-classpath", &classpath, class])
}

async fn c(source: &Path, build: &Path) -> Command {
    let binary = build.join("c_smoke");
    let mut gcc = command("gcc", ["-Wall", "-Wextra", "-Werror", "-DTHREADED"]);
    output(gcc.arg(source).arg("-o").arg(&binary).arg("-lzookeeper_mt")).await;
    command(binary, [] as [PathBuf; 0])
}

fn command(
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).kill_on_drop(true);
    command
}

/// Output of the command, which must succeed.
async fn output(command: &mut Command) -> Output {
    let output = command
        .output()
        .await
        .unwrap_or_else(|error| panic!("cannot run {:?}: {error}", command.as_std()));
    assert!(
        output.status.success(),
        "{:?}: {}\n{}{}",
        command.as_std(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    output
}
