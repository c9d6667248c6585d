//! TLS over any stream, and clear messages for its failures.

use std::io;
use std::sync::Arc;

use rustls::{AlertDescription, CertificateError};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsConnector;

use crate::driver::stream::{Dial, Dialing, Resolving, Stream};
use crate::error::ConnectError;
use crate::options::address::Endpoint;
use crate::options::tls::{Tls, TlsError, TlsOptions};

/// Makes TLS streams of others.
#[derive(Clone, Debug)]
pub(crate) struct TlsLayer(Arc<Tls>);

impl TlsLayer {
    /// Reads the files of the options on a thread of `runtime` where that may block.
    pub(crate) async fn new(options: TlsOptions, runtime: &Handle) -> Result<Self, ConnectError> {
        let loaded = runtime.spawn_blocking(|| Tls::load(options)).await;
        match loaded.map_err(|_| ConnectError::RuntimeGone)? {
            Ok(tls) => Ok(Self(Arc::new(tls))),
            Err(TlsError(reason)) => Err(ConnectError::Tls(reason)),
        }
    }

    /// Speaks TLS with the server at the other end, which has to prove that it is `endpoint`.
    pub(crate) async fn over(
        &self,
        endpoint: &Endpoint,
        stream: Box<dyn Stream>,
    ) -> io::Result<Box<dyn Stream>> {
        let name = self.0.server_name(endpoint).map_err(io::Error::other)?;
        let tls = Arc::clone(&self.0);
        let config = spawn_blocking(move || tls.config()).await?;
        let config = config.map_err(io::Error::other)?;
        let connector = TlsConnector::from(Arc::new(config));
        match connector.connect(name, stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) if is_closed(&error) => Err(io::Error::other(TlsError(
                "the server closed the connection in the handshake; it may not speak TLS on this port"
                    .to_owned(),
            ))),
            Err(error) => Err(error),
        }
    }
}

/// TLS over the streams of another [`Dial`], for requests without a session, as [`four_letter_word`](crate::four_letter_word) sends them. A
/// session has [`Connect::tls`](crate::Connect::tls).
#[derive(Clone, Debug)]
pub struct TlsDial {
    layer: TlsLayer,
    dial: Arc<dyn Dial>,
}

impl TlsDial {
    /// Reads the files of the options.
    ///
    /// # Cancel safety
    ///
    /// Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Tls`], if a file cannot be read or used.
    pub async fn new(options: TlsOptions, dial: impl Dial) -> Result<Self, ConnectError> {
        Ok(Self {
            layer: TlsLayer::new(options, &Handle::current()).await?,
            dial: Arc::new(dial),
        })
    }
}

impl Dial for TlsDial {
    fn resolve(&self, endpoint: &Endpoint) -> Resolving {
        self.dial.resolve(endpoint)
    }

    /// The server has to prove that it is this endpoint: one that was not resolved, if its certificate is for a name.
    fn dial(&self, endpoint: &Endpoint) -> Dialing {
        let (layer, endpoint) = (self.layer.clone(), endpoint.clone());
        let connecting = self.dial.dial(&endpoint);
        Box::pin(async move {
            let secured = layer.over(&endpoint, connecting.await?).await;
            secured.map_err(|error| match reason(&error) {
                Some(reason) => io::Error::new(error.kind(), reason),
                None => error,
            })
        })
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

/// A message for a failure of TLS, in the usual words; `None` for any other failure.
///
/// With TLS 1.3 a server refuses a client's certificate only after the handshake, so later failures come here too.
pub(crate) fn reason(error: &io::Error) -> Option<String> {
    let error: &rustls::Error = error.get_ref()?.downcast_ref()?;
    let reason = match error {
        rustls::Error::InvalidCertificate(error) => certificate_reason(error),
        rustls::Error::AlertReceived(
            alert @ (AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied),
        ) => format!("the server refused the client certificate, or wants one ({alert:?})"),
        rustls::Error::AlertReceived(alert) => format!("the server refused ({alert:?})"),
        rustls::Error::InvalidMessage(_) => "the server does not speak TLS on this port".to_owned(),
        error => error.to_string(),
    };
    Some(format!("TLS: {reason}"))
}

fn certificate_reason(error: &CertificateError) -> String {
    match error {
        // A bad signature means another authority of the same name.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "certificate not trusted".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "certificate expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "certificate not valid yet".to_owned()
        }
        CertificateError::NotValidForName => "certificate is for another name".to_owned(),
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => format!(
            "certificate is not for {} but for {}",
            expected.to_str(),
            presented.join(", ")
        ),
        error => format!("bad certificate ({error})"),
    }
}
