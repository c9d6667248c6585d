//! TLS with Apache's server, whose certificates are made by the test.

use std::net::TcpListener;
use std::time::Duration;

use bellwether_client::{
    Address, Client, ConnectError, CreateMode, Dial as _, Sockets, TlsDial, TlsOptions,
    four_letter_word,
};
use bellwether_testkit::Apache;

use bellwether_testkit::certificates::{Authority, Files, Issued};

/// The time limit of every wait in these tests.
const LIMIT: Duration = Duration::from_secs(60);

/// The files of a server and of a client that trust each other.
struct Setup {
    authority: Authority,
    files: Files,
}

impl Setup {
    fn new() -> Self {
        let authority = Authority::new("authority");
        let files = Files::new();
        files.put("ca.pem", &authority.pem);
        let setup = Self { authority, files };
        setup.put_server(&setup.authority.issue("server", &["127.0.0.1"]));
        setup.put_client(&setup.authority.issue("client", &[]));
        setup
    }

    fn put_server(&self, issued: &Issued) {
        self.files.put("server.pem", &issued.store());
    }

    fn put_client(&self, issued: &Issued) {
        self.files.put("cert.pem", &issued.certificate);
        self.files.put("key.pem", &issued.key);
    }

    async fn start(&self, settings: &[(&str, &str)]) -> Apache {
        let builder =
            Apache::builder().tls(self.files.path("server.pem"), self.files.path("ca.pem"));
        let builder = settings.iter().fold(builder, |builder, (name, value)| {
            builder.setting(*name, *value)
        });
        builder.start().await.unwrap()
    }

    /// Trusts the server, without a client certificate.
    fn trust(&self) -> TlsOptions {
        TlsOptions::new().ca_file(self.files.path("ca.pem"))
    }

    fn options(&self) -> TlsOptions {
        self.trust()
            .client_certificate(self.files.path("cert.pem"), self.files.path("key.pem"))
    }
}

fn secure(server: &Apache) -> String {
    server.tls_address().unwrap().to_string()
}

/// Why the only server of `address` is refused.
async fn refusal(address: &str, options: TlsOptions) -> String {
    match Client::connect(address).tls(options).fail_fast().await {
        Err(ConnectError::Unreachable { attempts, .. }) => {
            let mut reasons = attempts.iter().map(|(_, reason)| reason.to_owned());
            let reason = reasons.next().unwrap();
            assert_eq!(reasons.next(), None);
            reason
        }
        other => panic!("{other:?}"),
    }
}

async fn works(address: &str, options: TlsOptions) {
    let client = Client::connect(address).tls(options).await.unwrap();
    assert!(client.exists("/").await.unwrap().is_some());
    client.close().await;
}

#[tokio::test]
async fn both_versions_of_tls_carry_a_session_and_the_name_of_the_client() {
    let setup = Setup::new();
    // Apache 3.8 offers no suite of TLS 1.3 unless it is named.
    for (version, suite) in [
        ("TLSv1.2", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
        ("TLSv1.3", "TLS_AES_128_GCM_SHA256"),
    ] {
        let settings = [("ssl.protocol", version), ("ssl.ciphersuites", suite)];
        let server = setup.start(&settings).await;
        let client = Client::connect(secure(&server)).tls(setup.options()).await;
        let client = client.unwrap();
        let ids = client.who_am_i().await.unwrap();
        let me = ("x509".to_owned(), "CN=client".to_owned());
        assert!(ids.contains(&me), "{ids:?}");

        let (_, watch) = client.exists_watched("/node").await.unwrap();
        client
            .create("/node", b"data", CreateMode::Persistent)
            .await
            .unwrap();
        assert_eq!(watch.await.unwrap().path, "/node");
        client.close().await;

        // A server that refuses a client says so within the handshake of 1.2, and after that of 1.3.
        let stranger = Authority::new("stranger").issue("client", &[]);
        let certificate = setup.files.put("other-cert.pem", &stranger.certificate);
        let key = setup.files.put("other-key.pem", &stranger.key);
        for options in [
            setup.trust(),
            setup.trust().client_certificate(certificate, key),
        ] {
            let reason = refusal(&secure(&server), options).await;
            assert!(
                reason.starts_with("TLS: the server refused the client certificate"),
                "{version}: {reason}"
            );
        }
    }
}

#[tokio::test]
async fn only_a_trusted_certificate_for_the_right_name_is_accepted() {
    let setup = Setup::new();
    let server = setup.start(&[]).await;
    let address = secure(&server);
    works(&address, setup.options()).await;

    // Another authority, of another name and of the same; and those of the system.
    for name in ["another", "authority"] {
        let other = setup.files.put("other.pem", &Authority::new(name).pem);
        let options = setup.options().ca_file(&other);
        let reason = refusal(&address, options.clone()).await;
        assert_eq!(reason, "TLS: certificate not trusted");
        // A name that is not verified opens the door to trusted certificates only.
        let reason = refusal(&address, options.dangerously_accept_any_server_name()).await;
        assert_eq!(reason, "TLS: certificate not trusted");
    }
    let (certificate, key) = (setup.files.path("cert.pem"), setup.files.path("key.pem"));
    let system = TlsOptions::new().client_certificate(certificate, key);
    let reason = refusal(&address, system).await;
    assert_eq!(reason, "TLS: certificate not trusted");

    let by_name = address.replace("127.0.0.1", "localhost");
    let reason = refusal(&by_name, setup.options()).await;
    assert_eq!(
        reason,
        "TLS: certificate is not for localhost but for IpAddress(127.0.0.1)"
    );
    let reason = refusal(&address, setup.options().server_name("zk.example")).await;
    assert!(
        reason.starts_with("TLS: certificate is not for zk.example but"),
        "{reason}"
    );
    works(&by_name, setup.options().server_name("127.0.0.1")).await;
    works(
        &by_name,
        setup.options().dangerously_accept_any_server_name(),
    )
    .await;
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let setup = Setup::new();
    setup.put_server(&setup.authority.issue_expired("server", &["127.0.0.1"]));
    let server = setup.start(&[("ssl.clientAuth", "none")]).await;
    for options in [
        setup.trust(),
        setup.trust().dangerously_accept_any_server_name(),
    ] {
        let reason = refusal(&secure(&server), options).await;
        assert_eq!(reason, "TLS: certificate expired");
    }
}

#[tokio::test]
async fn mixed_up_ports_are_named_as_such() {
    let setup = Setup::new();
    let server = setup.start(&[]).await;
    let reason = refusal(&server.connect_string(), setup.options()).await;
    assert!(reason.starts_with("TLS: the server "), "{reason}");
    assert!(reason.contains("TLS on this port"), "{reason}");
    let plain = Client::connect(secure(&server)).fail_fast().await;
    assert!(
        matches!(plain, Err(ConnectError::Unreachable { .. })),
        "{plain:?}"
    );
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named_before_anything_is_sent() {
    let setup = Setup::new();
    let files = &setup.files;
    let other = setup.authority.issue("other", &[]);
    files.put("other-key.pem", &other.key);
    let secret = "c2VjcmV0c2VjcmV0";
    files.put("broken.pem", &format!("-----BEGIN {secret}\n{secret}\n"));
    files.put("text.pem", secret);
    let encrypted = format!(
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\n{secret}\n-----END ENCRYPTED PRIVATE KEY-----\n"
    );
    files.put("encrypted.pem", &encrypted);
    let path = |name: &str| files.path(name);
    let with_key = |name: &str| {
        setup
            .trust()
            .client_certificate(path("cert.pem"), path(name))
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    for (options, name, reason) in [
        (
            setup.trust().ca_file(path("none.pem")),
            "none.pem",
            "no such file",
        ),
        (
            setup.trust().ca_file(path("text.pem")),
            "text.pem",
            "no certificate in it",
        ),
        (
            setup.trust().ca_file(path("broken.pem")),
            "broken.pem",
            "not a PEM file",
        ),
        (with_key("none.pem"), "none.pem", "no such file"),
        (
            with_key("cert.pem"),
            "cert.pem",
            "no unencrypted private key in it",
        ),
        (
            with_key("encrypted.pem"),
            "encrypted.pem",
            "no unencrypted private key in it",
        ),
        (
            with_key("other-key.pem"),
            "other-key.pem",
            "not the key of the certificate",
        ),
    ] {
        let error = Client::connect(&*address).tls(options).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(matches!(error, ConnectError::Tls(_)), "{text}");
        assert!(text.contains(&*path(name).to_string_lossy()), "{text}");
        assert!(text.contains(reason), "{text}");
        assert!(!text.contains(secret), "{text}");
    }
    let options = setup.trust().server_name("no name");
    let error = Client::connect(&*address).tls(options).await.unwrap_err();
    assert!(matches!(error, ConnectError::Tls(_)), "{error:?}");
    let accepted = listener.accept().map(|_| ());
    assert_eq!(accepted.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn a_reconnect_uses_the_files_as_they_are_then() {
    let setup = Setup::new();
    let mut server = setup.start(&[]).await;
    let client = Client::connect(secure(&server))
        .session_timeout(LIMIT)
        .tls(setup.options())
        .await
        .unwrap();
    let node = client.create("/mine", b"", CreateMode::Ephemeral).await;
    node.unwrap();
    server.kill();

    // Everything is renewed, by a new authority: no old certificate is accepted any more.
    let renewed = Authority::new("renewed");
    setup.files.put("ca.pem", &renewed.pem);
    setup.put_server(&renewed.issue("server", &["127.0.0.1"]));
    setup.put_client(&renewed.issue("renewed client", &[]));
    server.restart().await.unwrap();
    let ids = tokio::time::timeout(LIMIT, async {
        loop {
            // A request that was lost with the connection proves nothing.
            match client.who_am_i().await {
                Err(error) if error.is_transient() => {}
                ids => break ids.unwrap(),
            }
        }
    });
    let ids = ids.await.unwrap();
    let me = ("x509".to_owned(), "CN=renewed client".to_owned());
    assert!(ids.contains(&me), "{ids:?}");
    assert!(client.exists("/mine").await.unwrap().is_some());
    client.close().await;
}

/// Many requests at once overflow the buffers of TLS and of the socket, and nothing is lost or left in them.
#[tokio::test]
async fn more_than_the_buffers_hold_is_written_in_the_end() {
    let setup = Setup::new();
    let server = setup.start(&[]).await;
    for is_on_runtime in [false, true] {
        let connect = Client::connect(secure(&server)).tls(setup.options());
        let client = match is_on_runtime {
            true => connect.on_current_runtime().await.unwrap(),
            false => connect.await.unwrap(),
        };
        let data = vec![7; 300_000];
        let path = format!("/large{is_on_runtime}");
        client
            .create(&path, b"", CreateMode::Persistent)
            .await
            .unwrap();
        let replies = client.batch(|client| {
            let set = |_| client.set(&path, &data, None);
            (0..24).map(set).collect::<Vec<_>>()
        });
        for (version, reply) in (1..).zip(replies) {
            let stat = tokio::time::timeout(LIMIT, reply).await.unwrap().unwrap();
            assert_eq!(stat.version, version);
        }
        let (read, _) = client.get(&path).await.unwrap();
        assert!(read == data);
        client.close().await;
    }
}

#[tokio::test]
async fn four_letter_words_are_answered_by_tls() {
    let setup = Setup::new();
    let server = setup.start(&[]).await;
    let address = Address::parse(&secure(&server)).unwrap();
    let ask = async |options| {
        let dial = TlsDial::new(options, Sockets).await.unwrap();
        four_letter_word(dial.dial(&address.endpoints[0]), "srvr").await
    };
    let answer = ask(setup.options()).await.unwrap();
    assert!(answer.contains("Mode: standalone"), "{answer}");
    let untrusted = ask(TlsOptions::new()).await.unwrap_err().to_string();
    assert!(untrusted.contains("certificate not trusted"), "{untrusted}");
}
