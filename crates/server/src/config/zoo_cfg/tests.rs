use super::*;
use crate::config::{ClientCertificates, TlsVersion};

/// The required lines.
const BASE: &str = "clientPort=2181\ndataDir=/var/lib/zookeeper\n";

fn with(lines: &str) -> ZooCfg {
    parse(&format!("{BASE}{lines}")).unwrap()
}

fn error(lines: &str) -> String {
    parse(&format!("{BASE}{lines}")).unwrap_err().to_string()
}

#[test]
fn limits_that_apache_does_not_have_have_keys_of_their_own() {
    let ZooCfg {
        config, warnings, ..
    } = with(
        "\
bellwether.outstandingBytesMax=1
bellwether.outboxBytesMax=2
bellwether.outboxesBytesMax=3
bellwether.watchesPerSessionMax=4
bellwether.watchBytesPerSessionMax=5
bellwether.watchesMax=6
bellwether.watchBytesMax=7
bellwether.inputBytesMax=8
bellwether.sessionOpeningsMax=9
bellwether.connectionsPerUserMax=10
",
    );
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(config.outstanding_bytes_max, 1);
    assert_eq!(config.outbox_bytes_max, 2);
    assert_eq!(config.outboxes_bytes_max, 3);
    assert_eq!(config.watches_per_session_max, 4);
    assert_eq!(config.watch_bytes_per_session_max, 5);
    assert_eq!(config.watches_max, 6);
    assert_eq!(config.watch_bytes_max, 7);
    assert_eq!(config.input_bytes_max, 8);
    assert_eq!(config.session_openings_max, 9);
    assert_eq!(config.connections_per_user_max, 10);
}

#[test]
fn the_file_of_a_packaged_apache_is_read() {
    let text = "\
# Milliseconds of a tick
tickTime=2000
# Ticks for the first synchronization
initLimit=10
# Ticks from a request to its acknowledgement
syncLimit=5
# Where snapshots go
dataDir=/var/lib/zookeeper
# Where transaction logs go, if elsewhere
# dataLogDir=/disk2/zookeeper
# For clients
clientPort=2181
#maxClientCnxns=60

#server.1=zookeeper1:2888:3888

## Metrics
#metricsProvider.httpPort=7000
";
    let ZooCfg {
        config, warnings, ..
    } = parse(text).unwrap();
    assert_eq!(config.listen, ["0.0.0.0:2181".parse().unwrap()]);
    assert_eq!(config.tick, Duration::from_secs(2));
    assert_eq!(
        config.data_dir.as_deref(),
        Some(Path::new("/var/lib/zookeeper"))
    );
    assert_eq!(config.data_log_dir, None);
    assert_eq!(config.connections_per_address_max, 60);
    assert_eq!(config.words, WordList::default());
    assert_eq!(
        warnings,
        [
            "line 4: initLimit is ignored: it only matters in an ensemble",
            "line 6: syncLimit is ignored: it only matters in an ensemble"
        ]
    );
}

#[test]
fn every_key_is_read_with_and_without_the_prefix() {
    let keys = "\
tickTime=500
dataLogDir=/log
clientPortAddress=127.0.0.1
maxClientCnxns=0
maxCnxns=500
minSessionTimeout=1500
maxSessionTimeout=60000
4lw.commands.whitelist=ruok, mntr
extendedTypesEnabled=true
snapCount=1000
preAllocSize=16
autopurge.snapRetainCount=5
autopurge.purgeInterval=24
globalOutstandingLimit=77
jute.maxbuffer=0x1fffff
znode.container.checkIntervalMs=1000
znode.container.maxPerMinute=50
znode.container.maxNeverUsedIntervalMs=9000
DigestAuthenticationProvider.superDigest=super:AAAA=
enforce.auth.enabled=true
enforce.auth.schemes=digest, ip
enforceQuota=TRUE
skipACL=yes
reconfigEnabled=true
";
    let prefixed: String = keys
        .lines()
        .map(|line| format!("zookeeper.{line}\n"))
        .collect();
    for lines in [keys, &prefixed] {
        let ZooCfg {
            config, warnings, ..
        } = with(lines);
        assert_eq!(warnings, [""; 0]);
        assert_eq!(config.tick, Duration::from_millis(500));
        assert_eq!(config.data_log_dir.as_deref(), Some(Path::new("/log")));
        assert_eq!(config.listen, ["127.0.0.1:2181".parse().unwrap()]);
        assert_eq!(config.connections_per_address_max, 0);
        assert_eq!(config.connections_max, 500);
        assert_eq!(
            config.session_timeouts(),
            (Duration::from_millis(1500), Duration::from_secs(60))
        );
        assert_eq!(
            config.words,
            WordList::parse("srvr, ruok, mntr").unwrap(),
            "srvr is answered whatever the list"
        );
        assert!(config.extended_types && config.enforce_quota);
        assert!(config.skip_acl && config.reconfig_enabled);
        assert_eq!(config.snap_count, 1000);
        assert_eq!(config.log_preallocation_bytes, 16384);
        assert_eq!(config.snapshots_kept, Some(5));
        assert_eq!(config.outstanding_max, 77);
        assert_eq!(config.frame_bytes_max, 0x1F_FFFF);
        assert_eq!(config.container_check_interval, Duration::from_secs(1));
        assert_eq!(config.container_deletions_per_minute_max, 50);
        assert_eq!(config.container_never_used_max, Duration::from_secs(9));
        assert_eq!(config.super_digest.as_deref(), Some("super:AAAA="));
        assert_eq!(config.enforce_auth_schemes, ["digest", "ip"]);
    }
}

#[test]
fn what_is_not_written_has_the_defaults_of_apache() {
    let config = with("").config;
    assert_eq!(config.tick, Duration::from_secs(3));
    assert_eq!(
        config.session_timeouts(),
        (Duration::from_secs(6), Duration::from_secs(60))
    );
    assert_eq!(config.snap_count, 100_000);
    assert_eq!(config.log_preallocation_bytes, 64 << 20);
    assert_eq!(config.snapshots_kept, None);
    // Apache's notation of a default.
    assert_eq!(
        with("minSessionTimeout=-1").config.session_timeout_min,
        None
    );
}

#[test]
fn a_bad_value_is_named_with_its_line_and_what_is_expected() {
    for (line, message) in [
        (
            "tickTime=2s",
            r#"line 3: tickTime is "2s", expected a whole number from 1 to 2147483647"#,
        ),
        (
            "clientPort=65536",
            r#"line 3: clientPort is "65536", expected a whole number from 1 to 65535"#,
        ),
        (
            "zookeeper.maxCnxns = -1 ",
            r#"line 3: maxCnxns is "-1", expected a whole number from 0 to 2147483647"#,
        ),
        (
            "skipACL=true",
            r#"line 3: skipACL is "true", expected yes or no"#,
        ),
        (
            "extendedTypesEnabled=1",
            r#"line 3: extendedTypesEnabled is "1", expected true or false"#,
        ),
        (
            "clientPortAddress=",
            r#"line 3: clientPortAddress is "", expected an address or name of this host"#,
        ),
        (
            "dataLogDir=",
            r#"line 3: dataLogDir is "", expected a path"#,
        ),
        (
            "enforce.auth.schemes=,",
            r#"line 3: enforce.auth.schemes is ",", expected a list of schemes, such as digest and sasl"#,
        ),
        (
            "# c\n\nsnapCount=1",
            r#"line 5: snapCount is "1", expected a whole number from 2 to 2147483647"#,
        ),
        (
            r"dataDir=C:\users",
            r"line 3: \u without four hexadecimal digits of a character",
        ),
    ] {
        assert_eq!(error(line), message);
    }
}

#[test]
fn a_password_in_the_place_of_a_digest_is_not_repeated() {
    let message = error("DigestAuthenticationProvider.superDigest=secret");
    assert!(
        message.contains("(hidden)") && !message.contains("secret"),
        "{message}"
    );
}

#[test]
fn what_has_no_default_must_be_set() {
    let message = |text| parse(text).unwrap_err().to_string();
    assert_eq!(message("dataDir=/d"), "clientPort is not set");
    assert_eq!(message("clientPort=2181"), "dataDir is not set");
    assert_eq!(
        error("enforce.auth.enabled=true"),
        "enforce.auth.schemes is not set"
    );
    assert_eq!(
        with("enforce.auth.schemes=digest")
            .config
            .enforce_auth_schemes,
        [""; 0],
        "the list alone enforces nothing"
    );
}

#[test]
fn crossed_timeouts_are_refused_even_if_one_follows_from_the_tick() {
    assert_eq!(
        error("tickTime=1000\nminSessionTimeout=30000"),
        "minSessionTimeout 30s is longer than maxSessionTimeout 20s"
    );
}

#[test]
fn ignored_keys_and_words_are_named_once_each() {
    let cfg = with(
        "server.1=a:2888:3888\nsyncLimit=5\nadmin.serverPort=1\nzookeeper.admin.serverPort=2\n\
         4lw.commands.whitelist=lead,ruok\nautopurge.snapRetainCount=1\nautopurge.purgeInterval=1",
    );
    assert_eq!(
        cfg.warnings,
        [
            "line 4: syncLimit is ignored: it only matters in an ensemble",
            "line 5: admin.serverPort is ignored: this server has no such setting",
            "line 7: the word \"lead\" is ignored: this server has no such word",
            "line 8: autopurge.snapRetainCount is raised to 3, the least that are kept",
            "line 3: server.1 is ignored: it only matters in an ensemble",
        ]
    );
    assert_eq!(cfg.config.snapshots_kept, Some(3));
    assert!(cfg.config.words.contains("ruok"));
}

#[test]
fn members_of_an_ensemble_are_named_unless_there_is_only_one() {
    let members = |text: &str| with(text).config.members;
    assert_eq!(members("server.1=a:2888:3888"), [""; 0]);
    assert_eq!(
        members("server.1=a:2888:3888\nserver.1=b:2888:3888"),
        [""; 0]
    );
    assert_eq!(
        members("server.2=b:2888:3888\nserver.1=a:2888:3888"),
        ["server.2 (line 3)", "server.1 (line 4)"]
    );
    assert_eq!(
        members("dynamicConfigFile=zoo.cfg.dynamic"),
        ["dynamicConfigFile (line 3)"]
    );
}

#[test]
fn a_list_goes_on_over_lines_and_the_last_of_a_key_counts() {
    let cfg = with("4lw.commands.whitelist = ruok, \\\n    stat\ntickTime 100\ntickTime: 200\n");
    assert!(cfg.config.words.contains("stat"));
    assert_eq!(cfg.config.tick, Duration::from_millis(200));
    assert_eq!(
        with("4lw.commands.whitelist=ruok,*").config.words,
        WordList::all()
    );
}

#[test]
fn addresses_may_be_names_or_in_brackets() {
    let listen = |value: &str| with(&format!("clientPortAddress={value}")).config.listen[0];
    assert_eq!(listen("[::1]"), "[::1]:2181".parse().unwrap());
    assert!(listen("localhost").ip().is_loopback());
}

#[test]
fn a_missing_file_is_named() {
    let error = read(Path::new("/nonexistent/zoo.cfg")).unwrap_err();
    assert_eq!(error.to_string(), "cannot read /nonexistent/zoo.cfg");
}

fn unsupported(lines: &str) -> Vec<String> {
    with(lines).config.unsupported
}

#[test]
fn what_promises_protection_that_is_not_there_is_told_apart() {
    for line in [
        "zookeeper.secureClientPortAddress=0.0.0.0",
        "ssl.keyStore.location=/etc/zookeeper/key.jks",
        "ssl.clientAuth=need",
        "ssl.quorum.trustStore.location=/etc/zookeeper/trust.jks",
        "sslQuorum=true",
        "portUnification=true",
        "client.portUnification=true",
        "fips-mode=true",
        "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "authProvider.x509=org.example.Provider",
        "zookeeper.X509AuthenticationProvider.superUser=CN=admin",
        "requireClientAuthScheme=sasl",
        "sessionRequireClientSASLAuth=true",
        "kerberos.removeHostFromPrincipal=true",
        "quorum.auth.enableSasl=true",
        "quorum.auth.serverRequireSasl=true",
        "audit.enable=true",
        "DigestAuthenticationProvider.enabled=false",
        "DigestAuthenticationProvider.digestAlg=SHA3-256",
        "superUser=admin",
    ] {
        let cfg = with(line);
        let key = line.split('=').next().unwrap();
        let key = key.strip_prefix("zookeeper.").unwrap_or(key);
        assert_eq!(cfg.config.unsupported, [format!("{key} (line 3)")]);
        assert_eq!(cfg.warnings, [""; 0]);
    }
}

#[test]
fn what_is_switched_off_promises_nothing() {
    for line in [
        "sslQuorum=false",
        "quorum.auth.enableSasl=False",
        "ssl.keyStore.location=",
        "sslQuorum=true\nsslQuorum=false",
        "DigestAuthenticationProvider.enabled=true",
        "DigestAuthenticationProvider.digestAlg=SHA1",
        "enforce.auth.schemes=sasl",
        "ssl.clientAuth=none",
        "authProvider.1=org.apache.zookeeper.server.auth.DigestAuthenticationProvider",
    ] {
        assert_eq!(unsupported(line), [""; 0], "{line}");
    }
    assert_eq!(
        unsupported("sslQuorum=true\nfips-mode=true\nsslQuorum=true"),
        ["fips-mode (line 4)", "sslQuorum (line 5)"]
    );
}

#[test]
fn a_scheme_that_is_not_there_cannot_be_enforced() {
    let schemes = |list| {
        let lines = format!("enforce.auth.enabled=true\nenforce.auth.schemes={list}");
        let config = with(&lines).config;
        (config.enforce_auth_schemes, config.unsupported)
    };
    let unsupported = vec!["enforce.auth.schemes (line 4)".to_owned()];
    assert_eq!(
        schemes("digest,sasl"),
        (vec!["digest".to_owned()], unsupported.clone())
    );
    assert_eq!(schemes("x509"), (Vec::new(), unsupported));
    assert_eq!(schemes("ip"), (vec!["ip".to_owned()], Vec::new()));
}

/// Typical TLS lines with PEM stores.
const TLS: &str = "secureClientPort=2281\nssl.keyStore.location=/etc/key.pem\nssl.trustStore.location=/etc/ca.pem";

#[test]
fn tls_with_pem_files_is_set_up() {
    let more = "\nsecureClientPortAddress=127.0.0.1\nssl.clientAuth=want\nssl.enabledProtocols=TLSv1.3\n\
        ssl.trustStore.password=x\nauthProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider\n\
        X509AuthenticationProvider.superUser=CN=admin\nenforce.auth.enabled=true\nenforce.auth.schemes=x509";
    let config = with(&format!("{TLS}{more}")).config;
    assert_eq!(config.unsupported, [""; 0]);
    assert_eq!(config.enforce_auth_schemes, ["x509"]);
    let tls = config.tls.unwrap();
    assert_eq!(tls.listen, ["127.0.0.1:2281".parse().unwrap()]);
    assert_eq!(
        (tls.certificate, tls.key),
        ("/etc/key.pem".into(), "/etc/key.pem".into())
    );
    assert_eq!(tls.client_authorities, Some("/etc/ca.pem".into()));
    assert_eq!(tls.client_certificates, ClientCertificates::Optional);
    assert_eq!(tls.versions, [TlsVersion::V1_3]);
    assert_eq!(tls.super_subject.unwrap(), "CN=admin");
    let plain = with(TLS).config.tls.unwrap();
    assert_eq!(plain.client_certificates, ClientCertificates::Required);
    assert_eq!(plain.versions, [TlsVersion::V1_2, TlsVersion::V1_3]);
    let only_secure = parse(&format!("dataDir=/x\n{TLS}")).unwrap().config;
    assert_eq!(only_secure.listen, []);
}

#[test]
fn tls_that_this_server_does_not_have_stops_a_start() {
    for (line, key) in [
        (
            "ssl.keyStore.location=/etc/key.jks",
            "ssl.keyStore.location",
        ),
        ("ssl.keyStore.type=JKS", "ssl.keyStore.location"),
        ("ssl.trustStore.type=PKCS12", "ssl.trustStore.location"),
        ("ssl.keyStore.password=x", "ssl.keyStore.password"),
        (
            "ssl.ciphersuites=TLS_AES_128_GCM_SHA256",
            "ssl.ciphersuites",
        ),
        ("ssl.crl=true", "ssl.crl"),
        ("client.certReload=true", "client.certReload"),
    ] {
        let config = with(&format!("{TLS}\n{line}")).config;
        let [found] = &config.unsupported[..] else {
            panic!("{line}: {:?}", config.unsupported);
        };
        assert!(found.starts_with(key), "{line}: {found}");
    }
    for (lines, message) in [
        ("secureClientPort=1", "ssl.keyStore.location is not set"),
        (
            "secureClientPort=1\nssl.keyStore.location=/a.pem",
            "ssl.trustStore.location is not set",
        ),
        (
            &format!("{TLS}\nssl.clientAuth=maybe"),
            "expected need, want or none",
        ),
        (
            &format!("{TLS}\nssl.protocol=TLSv1.1"),
            "TLSv1.2, TLSv1.3 or both",
        ),
    ] {
        let error = error(lines);
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn users_of_sasl_are_read_from_a_file_of_our_own() {
    let lines = "bellwether.saslUsers=/etc/users\nsuperUser=admin\nbellwether.sessionPasswords=apache\n\
        authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
    let config = with(lines).config;
    assert_eq!(config.unsupported, [""; 0]);
    assert_eq!(config.sasl_users, Some("/etc/users".into()));
    assert_eq!(config.sasl_super_user.as_deref(), Some("admin"));
    assert_eq!(config.session_passwords, SessionPasswords::Apache);
    let config = with("bellwether.sessionPasswords=secret").config;
    assert_eq!(config.session_passwords, SessionPasswords::Secret);
}
