//! A collector behind TLS.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use bellwether_testkit::certificates::{Authority, Files};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::command::Home;

#[test]
fn collector_behind_tls_needs_a_certificate_that_is_trusted() {
    let (home, files) = (Home::new(), Files::new());
    let authority = Authority::new("test");
    let trusted = files.put("trusted.pem", &authority.pem);
    let other = files.put("other.pem", &Authority::new("other").pem);
    for (roots, is_trusted) in [(trusted, true), (other, false)] {
        let (address, request) = receive_one(&authority);
        let output = home
            .bellwether(&["lock", "demo", "--", "true"])
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", address)
            .env("OTEL_EXPORTER_OTLP_CERTIFICATE", roots)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let errors = String::from_utf8(output.stderr).unwrap();
        let head = request.join().unwrap();
        assert_eq!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), is_trusted);
        assert_eq!(
            errors.contains("traces were not sent"),
            !is_trusted,
            "{errors}"
        );
        assert!(is_trusted || errors.contains("certificate"), "{errors}");
    }
}

/// Answers one request, and returns what it received of its head: nothing if the client does not trust the certificate.
fn receive_one(authority: &Authority) -> (String, JoinHandle<String>) {
    let issued = authority.issue("collector", &["127.0.0.1"]);
    let chain = CertificateDer::pem_slice_iter(issued.certificate.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.map(Result::unwrap).collect(), key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    let request = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let session = ServerConnection::new(Arc::new(config)).unwrap();
        let mut stream = StreamOwned::new(session, stream);
        let mut head = vec![0; 4096];
        let Ok(read) = stream.read(&mut head) else {
            return String::new();
        };
        head.truncate(read);
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        stream.write_all(answer).unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        String::from_utf8_lossy(&head).into_owned()
    });
    (address, request)
}
