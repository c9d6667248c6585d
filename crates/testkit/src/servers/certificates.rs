//! Certificates for tests.
#![expect(clippy::unwrap_used, reason = "a test could only fail")]

use std::fs;
use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnValue, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use tempfile::TempDir;

/// The attributes of a subject.
pub use rcgen::DnType;

/// An authority that issues certificates.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate.
    pub pem: String,
}

/// A certificate and its key, in PEM.
#[derive(Debug)]
#[expect(missing_docs, reason = "named as they are")]
pub struct Issued {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    /// An authority of this name.
    ///
    /// # Panics
    ///
    /// This and all other functions here panic on errors, because a test could only fail.
    pub fn new(name: &str) -> Self {
        let mut params = params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { issuer, pem }
    }

    /// A certificate for these host names and addresses.
    pub fn issue(&self, name: &str, hosts: &[&str]) -> Issued {
        self.sign(&params(name, hosts))
    }

    /// A certificate with this subject, from the most general attribute to the most specific one.
    pub fn issue_to(&self, subject: &[(DnType, &str)]) -> Issued {
        let mut params = params("", &[]);
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in subject {
            let value = DnValue::Utf8String((*value).to_owned());
            params.distinguished_name.push(kind.clone(), value);
        }
        self.sign(&params)
    }

    /// A certificate that expired years ago.
    pub fn issue_expired(&self, name: &str, hosts: &[&str]) -> Issued {
        let mut params = params(name, hosts);
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Issued {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

impl Issued {
    /// Both in one file, as Apache's servers read them.
    pub fn store(&self) -> String {
        format!("{}{}", self.key, self.certificate)
    }
}

fn params(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// A folder for the files of one test.
#[derive(Debug)]
pub struct Files(TempDir);

impl Files {
    /// An empty folder, deleted on drop.
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The path of a file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file, and returns its path.
    pub fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }
}
