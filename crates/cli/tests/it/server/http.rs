//! `bellwether serve --http` and `bellwether dashboard`: pages and metrics over HTTP.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use bellwether_testkit::Port;
use bellwether_testkit::certificates::{Authority, Files};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::bellwether::{Running, assert_code, bellwether, serve, until};

/// Body of the response to a GET; `None` if nothing listens.
fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some(body.to_owned())
}

/// Body of the response to a GET with the token.
fn get_with(address: &str, path: &str, token: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The address in `dashboard at http://ADDRESS/`.
fn page_address(line: &str) -> String {
    let (_, address) = line.split_once("http://").expect(line);
    address.trim_end_matches('/').to_owned()
}

fn serve_with_pages() -> (Running, String, String) {
    let mut command = bellwether();
    let (mut server, addresses) =
        serve(command.args(["serve", "-l", "127.0.0.1:0", "--http", "127.0.0.1:0"]));
    let page = page_address(&server.error_line().unwrap());
    (server, addresses[0].clone(), page)
}

#[test]
fn prometheus_scrapes_the_metrics_of_a_server() {
    let (mut server, address, page) = serve_with_pages();
    let mut create = bellwether();
    let created = create
        .args(["create", "-c", &address, "/x", "data"])
        .output();
    assert_code(&created.unwrap(), 0);

    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("prometheus.yml");
    let job = format!("{{job_name: bellwether, static_configs: [{{targets: ['{page}']}}]}}");
    let text = format!("global: {{scrape_interval: 200ms}}\nscrape_configs: [{job}]\n");
    fs::write(&config, text).unwrap();
    let port = Port::reserve().unwrap();
    let listen = format!("127.0.0.1:{}", port.number());
    let mut prometheus = Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            folder.path().join("data").display()
        ))
        .arg(format!("--web.listen-address={listen}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("prometheus is missing; ./test installs it");
    let query = "/api/v1/query?query=bellwether_requests_total%7Boperation=~%22create.*%22%7D";
    until("Prometheus has scraped the create", || {
        let Some(answer) = get(&listen, query) else {
            return false;
        };
        // The response is chunked; the object is between the chunk lengths.
        let object = answer.find('{').zip(answer.rfind('}'));
        let object = object.map(|(from, to)| &answer[from..=to]);
        let answer: Value = object
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        answer["data"]["result"][0]["value"][1] == "1"
    });
    prometheus.kill().unwrap();
    prometheus.wait().unwrap();
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
}

#[test]
fn dashboard_serves_pages_of_any_server_and_has_no_metrics_of_its_own() {
    let (_server, address, _) = serve_with_pages();
    let mut command = bellwether();
    let command = command.args(["dashboard", "-c", &address, "--listen", "127.0.0.1:0"]);
    let mut dashboard = Running::start(command);
    let page = page_address(&dashboard.error_line().unwrap());
    assert!(
        get(&page, "/")
            .unwrap()
            .contains("<title>bellwether</title>")
    );
    assert!(get(&page, "/api/about").unwrap().contains(&address));
    assert!(get(&page, "/metrics").unwrap().contains("serve --http"));
    dashboard.signal(Signal::TERM);
    assert_eq!(dashboard.code(), Some(128 + 15));
}

/// The dashboard is part of the server: it does not authenticate as clients have to.
#[test]
fn dashboard_of_a_server_that_enforces_authentication_shows_nodes() {
    const TOKEN: &str = "0123456789abcdef0123";
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let (users, token) = (put("users", "bob:secret\n"), put("token", TOKEN));
    let mut command = bellwether();
    command.args(["serve", "-l", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    command.args(["--enforce-auth", "sasl", "--sasl-users"]);
    command.arg(&users).arg("--token-file").arg(&token);
    let (mut server, addresses) = serve(&mut command);
    let page = page_address(&server.error_line().unwrap());
    let mut refused = bellwether();
    let refused = refused.args(["ls", "/", "-c", &addresses[0]]).output();
    assert_ne!(refused.unwrap().status.code(), Some(0));
    let answer = get_with(&page, "/api/children?path=/", TOKEN);
    assert!(answer.contains("zookeeper"), "{answer}");
    // And the answers of other requests, without a token.
    assert!(get(&page, "/readyz").unwrap().contains("ready"));
    assert!(get(&page, "/healthz").unwrap().contains("alive"));
}

#[test]
fn without_the_flag_nothing_listens_for_browsers() {
    let mut command = bellwether();
    let (server, _) = serve(command.args(["serve", "-l", "127.0.0.1:0"]));
    let sockets = fs::read_dir(format!("/proc/{}/fd", server.id().as_raw_nonzero())).unwrap();
    let links = sockets.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    let own: Vec<_> = links
        .filter_map(|link| {
            Some(
                link.to_str()?
                    .strip_prefix("socket:[")?
                    .trim_end_matches(']')
                    .to_owned(),
            )
        })
        .collect();
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let listening = table
        .lines()
        .filter(|line| line.split_whitespace().nth(3) == Some("0A"));
    let inodes = listening.filter_map(|line| line.split_whitespace().nth(9));
    assert_eq!(
        inodes
            .filter(|inode| own.contains(&(*inode).to_owned()))
            .count(),
        1
    );
}

/// The answer to a POST: its status and its body.
fn post(address: &str, path: &str, token: &str, body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_default())
}

/// Who did what must be known afterwards, also from the journal of a service.
#[test]
fn action_is_logged_by_the_process_that_serves_the_page() {
    let (_server, address, _) = serve_with_pages();
    let mut command = bellwether();
    command.args(["dashboard", "-c", &address, "--listen", "127.0.0.1:0"]);
    let mut dashboard = Running::start(command.arg("--allow-actions"));
    let page = page_address(&dashboard.error_line().unwrap());
    let login = dashboard.error_line().unwrap();
    let (_, token) = login.split_once("/#token=").expect(&login);
    let action = r#"{"action":"clear_crash","path":"/jobs/nightly"}"#;
    let (status, _) = post(&page, "/api/action", "another token of a length", action);
    assert_eq!(status, 401);
    let (status, answer) = post(&page, "/api/action", token, action);
    assert_eq!((status, answer["end"].as_str()), (200, Some("gone")));
    let logged = dashboard.error_line().unwrap();
    assert!(
        logged.contains("action through the dashboard")
            && logged.contains("/jobs/nightly")
            && logged.contains("peer=127.0.0.1:"),
        "{logged}"
    );
}

#[test]
fn backup_by_http_needs_the_token_and_can_be_restored() {
    const TOKEN: &str = "0123456789abcdef0123";
    let folder = tempfile::tempdir().unwrap();
    let backups = folder.path().join("backups");
    fs::create_dir(&backups).unwrap();
    let token_file = folder.path().join("token");
    fs::write(&token_file, TOKEN).unwrap();
    let mut command = bellwether();
    command.args(["serve", "-l", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    command
        .args(["--allow-actions", "--token-file"])
        .arg(&token_file);
    let (mut server, addresses) = serve(command.arg("--backups").arg(&backups));
    let page = page_address(&server.error_line().unwrap());
    let mut create = bellwether();
    let created = create.args(["create", "-c", &addresses[0], "/x", "kept"]);
    assert_code(&created.output().unwrap(), 0);

    let (status, _) = post(&page, "/api/backup", "another token of a length", "");
    assert_eq!(status, 401);
    assert_eq!(fs::read_dir(&backups).unwrap().count(), 0);
    let (status, answer) = post(&page, "/api/backup", TOKEN, "");
    assert_eq!(status, 200, "{answer}");
    let written = answer["written"].as_str().unwrap();
    let (_, file) = written.rsplit_once(": ").unwrap();
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));

    let mut command = bellwether();
    command.args(["serve", "-l", "127.0.0.1:0", "--restore", file, "--data"]);
    let (_server, addresses) = serve(command.arg(folder.path().join("data")));
    let mut get = bellwether();
    let got = get.args(["get", "-c", &addresses[0], "/x"]).output();
    assert_eq!(got.unwrap().stdout, b"kept");
}

/// A request by curl that trusts `ca` only: status and body. The error of curl, if it did not get an answer.
fn curl(ca: &Path, url: &str, more: &[&str]) -> Result<(u16, String), String> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--max-time", "30", "--cacert"]);
    curl.arg(ca).args(["--write-out", "\n%{http_code}", url]);
    let output = curl.args(more).output().expect("curl is missing");
    if !output.status.success() {
        return Err(String::from_utf8(output.stderr).unwrap());
    }
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').unwrap();
    Ok((status.parse().unwrap(), body.to_owned()))
}

/// The certificate of one authority is replaced by that of another, as in a renewal.
#[test]
fn pages_metrics_and_probes_by_tls_use_the_certificate_of_the_server() {
    let files = Files::new();
    let put = |name: &str| {
        let authority = Authority::new(name);
        let ca = files.put(&format!("{name}.ca"), &authority.pem);
        let store = authority
            .issue("server", &["127.0.0.1", "localhost"])
            .store();
        (ca, files.put(&format!("{name}.pem"), &store))
    };
    let ((ca, cert), (other_ca, other_cert)) = (put("one"), put("other"));
    let mut command = bellwether();
    command.args(["serve", "-l", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    command.args(["--http-tls", "--allow-actions", "--host", "localhost"]);
    let (mut server, addresses) = serve(command.args(["--cert"]).arg(&cert));
    assert_eq!(
        addresses.len(),
        1,
        "the certificate opens no port for clients"
    );
    let page = server.error_line().unwrap();
    let (_, page) = page.split_once("dashboard at ").expect(&page);
    assert!(page.starts_with("https://localhost:"), "{page}");
    let login = server.error_line().unwrap();
    let (link, token) = login.split_once("#token=").expect(&login);
    assert!(link.ends_with(page), "{login}");

    let ask = |path: &str| curl(&ca, &format!("{page}{path}"), &[]);
    assert_eq!(ask("healthz").unwrap(), (200, "alive\n".to_owned()));
    assert_eq!(ask("readyz").unwrap(), (200, "ready\n".to_owned()));
    assert!(
        ask("metrics")
            .unwrap()
            .1
            .contains("bellwether_uptime_seconds")
    );
    assert!(ask("").unwrap().1.contains("<title>bellwether</title>"));
    assert_eq!(ask("api/children?path=/").unwrap().0, 401);
    let bearer = format!("Authorization: Bearer {token}");
    let children = format!("{page}api/children?path=/");
    let children = curl(&ca, &children, &["--header", &bearer]).unwrap();
    assert!(
        children.0 == 200 && children.1.contains("zookeeper"),
        "{children:?}"
    );
    // The browser sends the cookie by TLS only.
    let log_in = ["--data-binary", token, "--include"];
    let logged_in = curl(&ca, &format!("{page}api/login"), &log_in).unwrap();
    assert!(
        logged_in
            .1
            .contains("HttpOnly; SameSite=Strict; Path=/; Secure"),
        "{logged_in:?}"
    );

    // Strangers: another authority, and no TLS at all.
    let untrusted = curl(&other_ca, &format!("{page}healthz"), &[]).unwrap_err();
    assert!(untrusted.contains("certificate"), "{untrusted}");
    let plain = page.replace("https://", "http://");
    let (status, told) = curl(&ca, &format!("{plain}healthz"), &[]).unwrap();
    assert!(
        status == 400 && told.contains("https://"),
        "{status} {told}"
    );

    fs::rename(&other_cert, &cert).unwrap();
    server.signal(Signal::HUP);
    let reloaded = server.error_line().unwrap();
    assert!(reloaded.contains("certificates"), "{reloaded}");
    let renewed = curl(&other_ca, &format!("{page}readyz"), &[]);
    assert_eq!(renewed.unwrap().0, 200);
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
}

#[test]
fn pages_by_tls_need_a_certificate_and_a_certificate_a_port() {
    for (more, expected) in [
        (
            &["--http", "127.0.0.1:0", "--http-tls"][..],
            "--http-tls needs the certificate",
        ),
        (
            &["--cert", "x.pem"],
            "--cert needs --tls-listen or --http-tls",
        ),
    ] {
        let mut command = bellwether();
        command.args(["serve", "-l", "127.0.0.1:0"]).args(more);
        let output = command.output().unwrap();
        assert_code(&output, 2);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(expected), "{told}");
    }
}
