//! TLS: clients that are accepted, clients that are refused, and the identity that a certificate gives.

use std::net::SocketAddr;
use std::time::Duration;

use bellwether_client::{
    Acl, Client, ConnectError, CreateMode, CreateOptions, Error, Id, TlsOptions, acl,
};
use bellwether_server::{
    ClientCertificates, Config, Server, StartError, TlsConfig, TlsVersion, WordList,
};
use bellwether_testkit::Apache;
use bellwether_testkit::certificates::{Authority, DnType, Files, Issued};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time limit of every wait here.
const LIMIT: Duration = Duration::from_secs(60);

/// The files of a server and of its clients.
struct Scene {
    authority: Authority,
    files: Files,
}

impl Scene {
    fn new() -> Self {
        let authority = Authority::new("authority");
        let files = Files::new();
        files.put("ca.pem", &authority.pem);
        let scene = Self { authority, files };
        scene.put_server(&scene.authority);
        scene
    }

    /// Issues a server certificate by `authority`.
    fn put_server(&self, authority: &Authority) {
        let issued = authority.issue("server", &["127.0.0.1"]);
        self.files.put("server.pem", &issued.store());
    }

    fn tls(&self) -> TlsConfig {
        let server = self.files.path("server.pem");
        TlsConfig {
            client_authorities: Some(self.files.path("ca.pem")),
            ..TlsConfig::new(&server, &server)
        }
    }

    async fn start(&self, tls: TlsConfig) -> Server {
        let config = Config {
            tls: Some(tls),
            words: WordList::all(),
            connections_per_address_max: 0,
            ..Config::default()
        };
        Server::start(config).await.unwrap()
    }

    /// Trusts the server, without a client certificate.
    fn trust(&self) -> TlsOptions {
        TlsOptions::new().ca_file(self.files.path("ca.pem"))
    }

    /// Trusts the server, and has this client certificate.
    fn with(&self, name: &str, issued: &Issued) -> TlsOptions {
        let certificate = self
            .files
            .put(&format!("{name}-cert.pem"), &issued.certificate);
        let key = self.files.put(&format!("{name}-key.pem"), &issued.key);
        self.trust().client_certificate(certificate, key)
    }

    fn named(&self, name: &str) -> TlsOptions {
        self.with(name, &self.authority.issue(name, &[]))
    }
}

fn secure(server: &Server) -> String {
    server.tls_addresses()[0].to_string()
}

async fn connect(address: &str, options: TlsOptions) -> Client {
    let connecting = Client::connect(address).tls(options).fail_fast();
    timeout(LIMIT, connecting).await.unwrap().unwrap()
}

/// Why the connection to the server at `address` fails.
async fn refusal(address: &str, options: TlsOptions) -> String {
    match Client::connect(address).tls(options).fail_fast().await {
        Err(ConnectError::Unreachable { attempts, .. }) => attempts
            .iter()
            .map(|(_, reason)| reason.to_owned())
            .collect(),
        other => panic!("{other:?}"),
    }
}

async fn schemes(client: &Client) -> Vec<(String, String)> {
    let mut ids = client.who_am_i().await.unwrap();
    ids.retain(|(scheme, _)| scheme != "ip");
    ids.sort();
    ids
}

fn only(subject: &str) -> CreateOptions {
    let id = Id::new("x509", subject);
    CreateOptions::from(CreateMode::Persistent).acl([Acl {
        perms: acl::ALL,
        id,
    }])
}

#[tokio::test]
async fn both_versions_of_tls_carry_sessions_beside_the_plain_port() {
    let scene = Scene::new();
    for version in [TlsVersion::V1_2, TlsVersion::V1_3] {
        let tls = TlsConfig {
            versions: vec![version],
            ..scene.tls()
        };
        let server = scene.start(tls).await;
        let client = connect(&secure(&server), scene.named("alice")).await;
        let me = ("x509".to_owned(), "CN=alice".to_owned());
        assert_eq!(schemes(&client).await, [me]);

        // More than a record and a socket hold, in both directions.
        let large: Vec<u8> = (0..900 << 10).map(|n: u32| n.to_le_bytes()[1]).collect();
        let (_, watch) = client.exists_watched("/large").await.unwrap();
        client
            .create("/large", &large, CreateMode::Persistent)
            .await
            .unwrap();
        assert_eq!(timeout(LIMIT, watch).await.unwrap().unwrap().path, "/large");
        let (read, _) = client.get("/large").await.unwrap();
        assert!(read == large);
        // Much more than the server writes at once, while the client reads.
        let reads = (0..50).map(|_| client.get("/large"));
        let reads: Vec<_> = reads.collect();
        for read in reads {
            assert!(timeout(LIMIT, read).await.unwrap().unwrap().0 == large);
        }

        let plain = server.addresses()[0].to_string();
        let plain = Client::connect(&plain).await.unwrap();
        assert!(plain.get("/large").await.unwrap().0 == large);
        assert_eq!(schemes(&plain).await, []);
        plain.close().await;
        client.close().await;
        server.shutdown().await;
    }
}

#[tokio::test]
async fn who_needs_a_certificate_and_has_none_that_counts_is_refused() {
    let scene = Scene::new();
    let stranger = Authority::new("authority").issue("alice", &[]);
    let expired = scene.authority.issue_expired("alice", &[]);
    for (wanted, is_open) in [
        (ClientCertificates::Required, false),
        (ClientCertificates::Optional, true),
        (ClientCertificates::Ignored, true),
    ] {
        let tls = TlsConfig {
            client_certificates: wanted,
            ..scene.tls()
        };
        let server = scene.start(tls).await;
        let address = secure(&server);
        if is_open {
            let client = connect(&address, scene.trust()).await;
            assert_eq!(schemes(&client).await, []);
            client.close().await;
        } else {
            let reason = refusal(&address, scene.trust()).await;
            assert!(
                reason.contains("refused the client certificate"),
                "{reason}"
            );
        }
        for (name, issued) in [("stranger", &stranger), ("expired", &expired)] {
            let options = scene.with(name, issued);
            if wanted == ClientCertificates::Ignored {
                let client = connect(&address, options).await;
                assert_eq!(schemes(&client).await, [], "{name}");
                client.close().await;
            } else {
                let reason = refusal(&address, options).await;
                assert!(reason.contains("TLS"), "{name}: {reason}");
            }
        }
        server.shutdown().await;
    }
}

#[tokio::test]
async fn a_node_can_belong_to_a_certificate() {
    let scene = Scene::new();
    let tls = TlsConfig {
        super_subject: Some("CN=root".to_owned()),
        ..scene.tls()
    };
    let server = scene.start(tls).await;
    let address = secure(&server);
    let alice = connect(&address, scene.named("alice")).await;
    let bob = connect(&address, scene.named("bob")).await;
    let root = connect(&address, scene.named("root")).await;
    let plain = Client::connect(server.addresses()[0].to_string())
        .await
        .unwrap();

    alice.create("/mine", b"x", only("CN=alice")).await.unwrap();
    let mine = [Acl {
        perms: acl::ALL,
        id: Id::new("auth", ""),
    }];
    let by_auth = CreateOptions::from(CreateMode::Persistent).acl(mine);
    alice.create("/by-auth", b"x", by_auth).await.unwrap();
    for path in ["/mine", "/by-auth"] {
        assert!(alice.get(path).await.is_ok(), "{path}");
        assert!(root.get(path).await.is_ok(), "{path}");
        assert_eq!(bob.get(path).await.err(), Some(Error::NO_AUTH), "{path}");
        assert_eq!(plain.get(path).await.err(), Some(Error::NO_AUTH), "{path}");
    }
    assert!(bob.create("/none", b"", only("no name")).await.is_err());
    for client in [alice, bob, root, plain] {
        client.close().await;
    }
    server.shutdown().await;
}

/// Access lists compare names character by character, so a folder that moves between servers needs identical names.
#[tokio::test]
async fn subjects_are_named_as_apache_names_them() {
    let scene = Scene::new();
    let server = scene.start(scene.tls()).await;
    let apache = Apache::builder().tls(scene.files.path("server.pem"), scene.files.path("ca.pem"));
    let apache = apache.start().await.unwrap();
    let subjects: [&[(DnType, &str)]; 5] = [
        &[(DnType::CommonName, "plain")],
        &[
            (DnType::CountryName, "DE"),
            (DnType::StateOrProvinceName, "Hessen"),
            (DnType::LocalityName, "Bad Vilbel"),
            (DnType::OrganizationName, "Flock, Inc."),
            (DnType::OrganizationalUnitName, "R&D <east>; \"+\" = #1 \\"),
            (DnType::CommonName, " blanks at both ends  "),
        ],
        &[
            (DnType::CommonName, "#hash"),
            (DnType::OrganizationName, "Zo\u{eb} \u{436} \u{1f411}"),
        ],
        // An attribute without a keyword in this form.
        &[
            (DnType::CustomDnType(vec![2, 5, 4, 4]), "Mus"),
            (DnType::CommonName, "a=b"),
        ],
        &[
            (
                DnType::CustomDnType(vec![0, 9, 2342, 19_200_300, 100, 1, 25]),
                "org",
            ),
            (
                DnType::CustomDnType(vec![0, 9, 2342, 19_200_300, 100, 1, 1]),
                "u1",
            ),
            (DnType::CustomDnType(vec![2, 5, 4, 9]), "1 Fold Lane"),
        ],
    ];
    for subject in subjects {
        let options = scene.with("client", &scene.authority.issue_to(subject));
        let ours = connect(&secure(&server), options.clone()).await;
        let theirs = connect(&apache.tls_address().unwrap().to_string(), options).await;
        let (our_name, their_name) = (schemes(&ours).await, schemes(&theirs).await);
        assert_eq!(our_name, their_name);
        assert_eq!(our_name.len(), 1, "{our_name:?}");
        ours.close().await;
        theirs.close().await;
    }
    server.shutdown().await;
}

#[tokio::test]
async fn certificates_that_change_are_in_force_without_a_restart() {
    let scene = Scene::new();
    let server = scene.start(scene.tls()).await;
    let address = secure(&server);
    let client = connect(&address, scene.named("alice")).await;

    // An incomplete renewal changes nothing.
    scene.files.put("server.pem", "not yet complete");
    let before = scene.named("alice");
    for _ in 0..20 {
        connect(&address, before.clone()).await.close().await;
    }

    let next = Authority::new("next");
    scene.put_server(&next);
    let trust_next = || {
        scene
            .named("alice")
            .ca_file(scene.files.put("next.pem", &next.pem))
    };
    let changed = async {
        while Client::connect(&address)
            .tls(trust_next())
            .fail_fast()
            .await
            .is_err()
        {}
    };
    timeout(LIMIT, changed).await.unwrap();
    let reason = refusal(&address, before).await;
    assert!(reason.contains("not trusted"), "{reason}");
    assert!(
        client.exists("/").await.unwrap().is_some(),
        "an open session continues"
    );
    client.close().await;
    server.shutdown().await;
}

#[tokio::test]
async fn files_that_cannot_be_used_stop_the_start_and_their_bytes_are_not_shown() {
    let scene = Scene::new();
    let other = scene.authority.issue("other", &[]);
    let secret = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0c2VjcmV0\n-----END PRIVATE KEY-----\n";
    for (file, text, reason) in [
        ("key.pem", secret, "cannot be used"),
        ("key.pem", "", "no unencrypted private key in it"),
        ("key.pem", &other.key, "not the key of the certificate"),
        ("ca.pem", "", "no certificate in it"),
    ] {
        let scene = Scene::new();
        scene
            .files
            .put("key.pem", &scene.authority.issue("x", &[]).key);
        scene.files.put(file, text);
        let tls = TlsConfig {
            key: scene.files.path("key.pem"),
            ..scene.tls()
        };
        let config = Config {
            tls: Some(tls),
            ..Config::default()
        };
        match Server::start(config).await {
            Err(StartError::Tls(error)) => {
                let error = format!("{error} {error:?}");
                assert!(error.contains(file) && error.contains(reason), "{error}");
                assert!(!error.contains("c2VjcmV0"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn word(address: SocketAddr, word: &str) -> String {
    bellwether_testkit::raw::four_letter_word(address, word)
        .await
        .unwrap()
}

/// Strangers that connect to the TLS port and send nothing, a part, or garbage.
#[tokio::test]
async fn handshakes_that_stall_or_are_none_disturb_nobody() {
    let scene = Scene::new();
    let config = Config {
        tls: Some(scene.tls()),
        handshake_timeout: Duration::from_millis(300),
        words: WordList::all(),
        connections_per_address_max: 0,
        ..Config::default()
    };
    let server = Server::start(config).await.unwrap();
    let client = connect(&secure(&server), scene.named("alice")).await;
    let hello = [&[22, 3, 1, 2, 0][..], &[1; 100]].concat();
    let said: [&[u8]; 4] = [b"", b"ruok", &hello, &[0xFF; 4096]];
    let mut strangers = Vec::new();
    for bytes in said.repeat(25) {
        let mut stranger = TcpStream::connect(server.tls_addresses()[0]).await.unwrap();
        // The server may close before everything is sent.
        let _ = stranger.write_all(bytes).await;
        strangers.push(stranger);
    }
    assert!(client.exists("/").await.unwrap().is_some());
    for mut stranger in strangers {
        let mut answer = Vec::new();
        let ended = timeout(LIMIT, stranger.read_to_end(&mut answer)).await;
        // Only an alert, or a reset.
        assert!(ended.unwrap().is_err() || answer.len() < 100, "{answer:?}");
    }
    let failed = word(server.addresses()[0], "mntr").await;
    assert!(
        failed.contains("zk_tls_handshakes_failed\t100\n"),
        "{failed}"
    );
    assert_eq!(server.connections(), 1);
    assert!(client.exists("/").await.unwrap().is_some());
    client.close().await;
    server.shutdown().await;
}
