//! TLS inside the coordinator: browsers give WebGPU and a wake lock only to pages that come over it.
//!
//! ```text
//! pem_files.rs   a certificate and its key from PEM files
//! authority.rs   a small authority of the run's own, which signs for this computer's addresses
//! reach.rs       by what names and addresses this computer is reached
//! qr.rs          a link as a picture of characters
//! ```
//!
//! Whoever waits for a connection asks [`Tls::acceptor`]; [`Tls::keep_current`] exchanges the certificate while it is in
//! use, when its files or this computer's addresses have changed.

mod authority;
mod pem_files;
mod qr;
mod reach;

use std::{
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use sha2::{Digest, Sha256};
use tokio_rustls::TlsAcceptor;

use authority::Authority;
use pem_files::PemFiles;
pub(crate) use qr::picture;
pub(crate) use reach::addresses;

/// How often the files, or this computer's addresses, are looked at.
const LOOK: Duration = Duration::from_secs(10);

/// Where the certificate comes from.
#[derive(Debug, Clone)]
pub enum CertificateSource {
    /// `--tls-cert` and `--tls-key`.
    Files {
        /// PEM: the certificate, then those that lead to its authority.
        certificate: PathBuf,
        /// PEM: its private key.
        key: PathBuf,
    },
    /// `--tls-self-signed`: the run's own authority, kept in its folder.
    SelfSigned,
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{option} {path}: {source}")]
    Read {
        /// The option that names it.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file has no such part, or a damaged one.
    #[error("{option} {path}: {words}")]
    Pem {
        /// The option that names it.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong, and what should be there.
        words: String,
    },
    /// The key is of another certificate, or of a kind that is not supported.
    #[error("--tls-key is not the key of the certificate in --tls-cert: {0}")]
    Mismatch(rustls::Error),
    /// The run's own authority cannot be made or read.
    #[error("the run's own certificate authority in {folder}: {words}")]
    Authority {
        /// Where it is kept.
        folder: PathBuf,
        /// Why.
        words: String,
    },
}

/// What new connections are shown.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

#[derive(Debug)]
enum Issuer {
    Files(PemFiles),
    Own(Authority),
}

impl Issuer {
    /// A new certificate, if there has to be one.
    fn renewed(&mut self) -> Result<Option<CertifiedKey>, TlsError> {
        match self {
            Issuer::Files(files) => files.changed(),
            Issuer::Own(authority) => authority.renewed(),
        }
    }
}

/// TLS of one coordinator.
#[derive(Debug)]
pub(crate) struct Tls {
    current: Arc<Current>,
    config: Arc<ServerConfig>,
    issuer: Issuer,
    authority: Option<String>,
}

impl Tls {
    /// Reads or makes the certificate. `folder` is where an authority of the run's own is kept, `names` are further names
    /// by which the coordinator is reached.
    ///
    /// # Errors
    /// [`TlsError`], in words.
    pub(crate) fn open(
        source: CertificateSource,
        folder: PathBuf,
        names: Vec<String>,
    ) -> Result<Self, TlsError> {
        let (issuer, first, authority) = match source {
            CertificateSource::Files { certificate, key } => {
                let (files, first) = PemFiles::open(certificate, key)?;
                (Issuer::Files(files), first, None)
            }
            CertificateSource::SelfSigned => {
                let (authority, first) = Authority::open(folder, names)?;
                let pem = authority.certificate_pem().to_owned();
                (Issuer::Own(authority), first, Some(pem))
            }
        };
        let current = Arc::new(Current(RwLock::new(Arc::new(first))));
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Mismatch)?
            .with_no_client_auth()
            .with_cert_resolver(current.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { current, config: Arc::new(config), issuer, authority })
    }

    /// Makes TLS connections of accepted ones.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.clone())
    }

    /// The certificate of the run's own authority, as PEM; None: the certificate is somebody else's.
    pub(crate) fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// SHA-256 of that certificate, as people compare it; None as for [`Self::authority`].
    pub(crate) fn fingerprint(&self) -> Option<String> {
        let certificate = CertificateDer::from_pem_slice(self.authority()?.as_bytes()).ok()?;
        let bytes = Sha256::digest(&certificate);
        Some(bytes.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":"))
    }

    /// Exchanges the certificate whenever it has to be, for ever. One that is no good leaves the one in use.
    pub(crate) async fn keep_current(mut self) {
        let mut words = None;
        loop {
            tokio::time::sleep(LOOK).await;
            match self.issuer.renewed() {
                Ok(None) => {}
                Ok(Some(key)) => {
                    *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(key);
                    tracing::info!("a new certificate is in use");
                    words = None;
                }
                Err(error) => {
                    let now = format!("the certificate in use stays: {error}");
                    if words.as_ref() != Some(&now) {
                        tracing::warn!("{now}");
                    }
                    words = Some(now);
                }
            }
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
