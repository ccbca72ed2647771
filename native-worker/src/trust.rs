//! Which certificates of coordinators are trusted: those that this computer trusts, and an authority that the person names.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

/// Why an authority cannot be trusted.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("--authority {path}: {words}")]
    /// The file has no certificate that can be used.
    Authority {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        words: String,
    },
    #[error("TLS cannot be set up: {0}")]
    /// The library refuses its settings.
    Settings(#[from] rustls::Error),
}

/// The settings of TLS connections; `authority` is a PEM file with certificates to trust beside this computer's own.
pub(crate) fn settings(authority: Option<&Path>) -> Result<Arc<ClientConfig>, TrustError> {
    let mut roots = RootCertStore::empty();
    // A computer without any is no fault: the link may need none.
    let native = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(native.certs);
    if let Some(path) = authority {
        let fault = |words: String| TrustError::Authority { path: path.into(), words };
        let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|error| fault(error.to_string()))?;
        if certificates.is_empty() {
            let words = "it has no certificate; it must begin with -----BEGIN CERTIFICATE-----";
            return Err(fault(words.into()));
        }
        for certificate in certificates {
            roots.add(certificate).map_err(|error| fault(error.to_string()))?;
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
