//! A certificate and its key from PEM files, read again when they change: whoever renews them need not start anything anew.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};

use super::{TlsError, provider};

const CERTIFICATE: &str = "--tls-cert";
const KEY: &str = "--tls-key";

/// The two files, with what was last read of them.
#[derive(Debug)]
pub(super) struct PemFiles {
    certificate: PathBuf,
    key: PathBuf,
    read: [Vec<u8>; 2],
}

impl PemFiles {
    pub(super) fn open(certificate: PathBuf, key: PathBuf) -> Result<(Self, CertifiedKey), TlsError> {
        let read = [contents(CERTIFICATE, &certificate)?, contents(KEY, &key)?];
        let files = Self { certificate, key, read };
        let first = files.parse(&files.read)?;
        Ok((files, first))
    }

    /// What stands in them now, if it is not what was read before. Files that are being exchanged one after the other do
    /// not fit each other for a moment: they are read again the next time.
    pub(super) fn changed(&mut self) -> Result<Option<CertifiedKey>, TlsError> {
        let now = [contents(CERTIFICATE, &self.certificate)?, contents(KEY, &self.key)?];
        if now == self.read {
            return Ok(None);
        }
        let key = self.parse(&now)?;
        self.read = now;
        Ok(Some(key))
    }

    fn parse(&self, [certificate, key]: &[Vec<u8>; 2]) -> Result<CertifiedKey, TlsError> {
        let pem = |option, path: &Path, words: String| TlsError::Pem { option, path: path.into(), words };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<_, _>>()
            .map_err(|error| pem(CERTIFICATE, &self.certificate, format!("it is damaged: {error}")))?;
        if chain.is_empty() {
            let words = "it has no certificate; it must begin with -----BEGIN CERTIFICATE-----".into();
            return Err(pem(CERTIFICATE, &self.certificate, words));
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| {
            let words = format!("it has no private key such as -----BEGIN PRIVATE KEY-----: {error}");
            pem(KEY, &self.key, words)
        })?;
        let key = CertifiedKey::from_der(chain, key, &provider()).map_err(TlsError::Mismatch)?;
        key.keys_match().map_err(TlsError::Mismatch)?;
        Ok(key)
    }
}

fn contents(option: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read { option, path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn write(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec!["cohort.example".into()]).unwrap().self_signed(&key).unwrap();
        let paths = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
        fs::write(&paths.0, certificate.pem()).unwrap();
        fs::write(&paths.1, key.serialize_pem()).unwrap();
        paths
    }

    #[test]
    fn a_certificate_is_exchanged_when_both_of_its_files_have_changed() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = write(folder.path(), "used");
        let (next_certificate, next_key) = write(folder.path(), "next");
        let (mut files, first) = PemFiles::open(certificate.clone(), key.clone()).unwrap();
        assert!(files.changed().unwrap().is_none());
        fs::copy(next_certificate, certificate).unwrap();
        assert!(matches!(files.changed(), Err(TlsError::Mismatch(_))), "the key is still the old one's");
        fs::copy(next_key, key).unwrap();
        let second = files.changed().unwrap().unwrap();
        assert_ne!(first.cert, second.cert);
        assert!(files.changed().unwrap().is_none());
    }

    #[test]
    fn files_that_are_no_good_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = write(folder.path(), "used");
        let (_, other) = write(folder.path(), "other");
        let words = |certificate: &Path, key: &Path| {
            PemFiles::open(certificate.into(), key.into()).unwrap_err().to_string()
        };
        assert!(words(&folder.path().join("none"), &key).starts_with("--tls-cert"));
        assert!(words(&certificate, &folder.path().join("none")).starts_with("--tls-key"));
        assert!(words(&key, &key).contains("it has no certificate"));
        assert!(words(&certificate, &certificate).contains("it has no private key"));
        assert!(words(&certificate, &other).contains("is not the key of the certificate"));
    }
}
