//! A small certificate authority of the run's own, kept in its folder, for networks in which computers have no public name.
//! It signs for this computer alone, and by its own name constraints (RFC 5280, 4.2.1.10) it could sign for nothing but
//! private networks: whoever installs it on a device lends it no other power.

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, NameConstraints, SanType,
};
use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use serde::{Deserialize, Serialize};

use super::{
    TlsError, provider,
    reach::{addresses, local_name},
};

/// How long the authority is good for: a run does not last longer.
const AUTHORITY_DAYS: i64 = 1825;
/// How long a certificate is good for: browsers take none that claims more.
const CERTIFICATE_DAYS: i64 = 397;
/// A certificate is made anew when it is so old.
const RENEW: Duration = Duration::from_hours(300 * 24);
/// Clocks of devices go wrong.
const EARLIER_DAYS: i64 = 2;

const CERTIFICATE: &str = "authority.pem";
const KEY: &str = "authority.key";
const SIGNS_FOR: &str = "authority.json";

/// Networks that are private by their number (RFC 1918, 3927, 4193, 4291, 6598), and loopback.
const PRIVATE: [(IpAddr, u8); 9] = [
    (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(100, 64, 0, 0)), 10),
    (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
    (IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16),
    (IpAddr::V4(Ipv4Addr::new(172, 16, 0, 0)), 12),
    (IpAddr::V4(Ipv4Addr::new(192, 168, 0, 0)), 16),
    (IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
    (IpAddr::V6(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0)), 7),
    (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
];

/// What the authority may sign for beside private networks, `.local` and `localhost`. Kept beside it, as its certificate
/// cannot be changed afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SignsFor {
    name: String,
    names: BTreeSet<String>,
    addresses: BTreeSet<IpAddr>,
}

/// The authority, and whom it has signed for last.
#[derive(Debug)]
pub(super) struct Authority {
    folder: PathBuf,
    names: Vec<String>,
    key_pem: String,
    certificate_pem: String,
    signs_for: SignsFor,
    signed: Subjects,
    signed_at: SystemTime,
}

/// By what the coordinator is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Subjects {
    names: BTreeSet<String>,
    addresses: BTreeSet<IpAddr>,
}

impl Subjects {
    fn now(names: &[String]) -> Self {
        let mut subjects = Self { names: BTreeSet::from(["localhost".to_owned()]), addresses: addresses() };
        subjects.addresses.extend([IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]);
        subjects.names.extend(local_name());
        subjects.names.extend(names.iter().map(|name| name.to_ascii_lowercase()));
        subjects
    }
}

impl Authority {
    /// The authority of a folder, made where there is none, with a certificate for this computer. One that may not sign
    /// for all by which this computer is reached is replaced: devices that know the old one must learn the new one.
    pub(super) fn open(folder: PathBuf, names: Vec<String>) -> Result<(Self, CertifiedKey), TlsError> {
        let subjects = Subjects::now(&names);
        let fault = |words: String| TlsError::Authority { folder: folder.clone(), words };
        let kept = Kept::read(&folder).map_err(fault)?;
        let kept = match kept {
            Some(kept) if kept.signs_for.covers(&subjects) => kept,
            old => {
                let new = Kept::make(&subjects).map_err(|error| fault(error.to_string()))?;
                new.write(&folder).map_err(|error| fault(error.to_string()))?;
                if old.is_some() {
                    tracing::warn!(
                        "a new certificate authority was made, as the old one may not sign for this computer's names \
                         and addresses; devices that installed the old one must install the new one"
                    );
                }
                new
            }
        };
        let Kept { key_pem, certificate_pem, signs_for } = kept;
        let mut authority = Self {
            folder,
            names,
            key_pem,
            certificate_pem,
            signs_for,
            signed: Subjects::default(),
            signed_at: SystemTime::UNIX_EPOCH,
        };
        let first = authority.sign(subjects)?;
        Ok((authority, first))
    }

    /// Its certificate, which devices may install.
    pub(super) fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// A new certificate, if this computer's addresses have changed or the last is old. Addresses beyond those that the
    /// authority may sign for are left out.
    pub(super) fn renewed(&mut self) -> Result<Option<CertifiedKey>, TlsError> {
        let mut subjects = Subjects::now(&self.names);
        subjects.addresses.retain(|address| self.signs_for.allows(*address));
        let age = self.signed_at.elapsed().unwrap_or_default();
        if subjects == self.signed && age < RENEW {
            return Ok(None);
        }
        self.sign(subjects).map(Some)
    }

    fn sign(&mut self, subjects: Subjects) -> Result<CertifiedKey, TlsError> {
        let signed = self.try_sign(&subjects);
        let key = signed
            .map_err(|error| TlsError::Authority { folder: self.folder.clone(), words: error.to_string() })?;
        (self.signed, self.signed_at) = (subjects, SystemTime::now());
        Ok(key)
    }

    fn try_sign(&self, subjects: &Subjects) -> anyhow::Result<CertifiedKey> {
        let issuer = Issuer::new(self.signs_for.parameters()?, KeyPair::from_pem(&self.key_pem)?);
        let key = KeyPair::generate()?;
        let mut parameters = CertificateParams::default();
        valid_for(&mut parameters, CERTIFICATE_DAYS);
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, self.signs_for.name.as_str());
        parameters.use_authority_key_identifier_extension = true;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for name in &subjects.names {
            parameters.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
        }
        let addresses = subjects.addresses.iter().map(|address| SanType::IpAddress(*address));
        parameters.subject_alt_names.extend(addresses);
        let certificate = parameters.signed_by(&key, &issuer)?;
        let chain =
            vec![certificate.der().clone(), CertificateDer::from_pem_slice(self.certificate_pem.as_bytes())?];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(CertifiedKey::from_der(chain, key, &provider())?)
    }
}

impl SignsFor {
    fn of(subjects: &Subjects) -> Self {
        let computer = local_name().unwrap_or_else(|| "this computer".into());
        let public = subjects.addresses.iter().copied().filter(|address| !is_private(*address));
        let named = subjects.names.iter().filter(|name| !is_local(name)).cloned();
        Self { name: format!("Cohort on {computer}"), names: named.collect(), addresses: public.collect() }
    }

    fn allows(&self, address: IpAddr) -> bool {
        is_private(address) || self.addresses.contains(&address)
    }

    fn covers(&self, subjects: &Subjects) -> bool {
        subjects.addresses.iter().all(|address| self.allows(*address))
            && subjects.names.iter().all(|name| is_local(name) || self.names.contains(name))
    }

    fn parameters(&self) -> anyhow::Result<CertificateParams> {
        let mut parameters = CertificateParams::default();
        valid_for(&mut parameters, AUTHORITY_DAYS);
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, format!("{}, authority", self.name));
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let names = ["local", "localhost"].into_iter().chain(self.names.iter().map(String::as_str));
        let own = self.addresses.iter().map(|address| (*address, if address.is_ipv4() { 32 } else { 128 }));
        let networks = PRIVATE.into_iter().chain(own);
        parameters.name_constraints = Some(NameConstraints {
            permitted_subtrees: names
                .map(|name| GeneralSubtree::DnsName(name.into()))
                .chain(networks.map(|(address, prefix)| {
                    GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(address, prefix))
                }))
                .collect(),
            excluded_subtrees: vec![],
        });
        Ok(parameters)
    }
}

fn is_local(name: &str) -> bool {
    name == "localhost" || name.ends_with(".local") || name.ends_with(".localhost")
}

fn is_private(address: IpAddr) -> bool {
    PRIVATE.iter().any(|(network, prefix)| match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            (network.to_bits() ^ address.to_bits()) >> (32 - prefix) == 0
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            (network.to_bits() ^ address.to_bits()) >> (128 - prefix) == 0
        }
        _ => false,
    })
}

fn valid_for(parameters: &mut CertificateParams, days: i64) {
    let now = time::OffsetDateTime::now_utc();
    parameters.not_before = now - time::Duration::days(EARLIER_DAYS);
    parameters.not_after = now + time::Duration::days(days - EARLIER_DAYS);
}

/// What is kept in the folder.
struct Kept {
    key_pem: String,
    certificate_pem: String,
    signs_for: SignsFor,
}

impl Kept {
    /// None where there is none yet.
    ///
    /// # Errors
    /// What is wrong with the files, in words.
    fn read(folder: &Path) -> Result<Option<Self>, String> {
        let read = |name: &str| {
            fs::read_to_string(folder.join(name))
                .map_err(|error| format!("{name}: {error}; remove the folder to have a new authority made"))
        };
        if !folder.join(CERTIFICATE).exists() {
            return Ok(None);
        }
        let signs_for = serde_json::from_str(&read(SIGNS_FOR)?).map_err(|error| {
            format!("{SIGNS_FOR}: {error}; remove the folder to have a new authority made")
        })?;
        Ok(Some(Self { key_pem: read(KEY)?, certificate_pem: read(CERTIFICATE)?, signs_for }))
    }

    fn make(subjects: &Subjects) -> anyhow::Result<Self> {
        let signs_for = SignsFor::of(subjects);
        let key = KeyPair::generate()?;
        let certificate = signs_for.parameters()?.self_signed(&key)?;
        Ok(Self { key_pem: key.serialize_pem(), certificate_pem: certificate.pem(), signs_for })
    }

    /// The certificate last: while it is missing there is no authority.
    fn write(&self, folder: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(folder)?;
        private(&folder.join(KEY), self.key_pem.as_bytes())?;
        fs::write(folder.join(SIGNS_FOR), serde_json::to_vec_pretty(&self.signs_for)?)?;
        Ok(fs::write(folder.join(CERTIFICATE), &self.certificate_pem)?)
    }
}

/// Writes what nobody else on this computer may read.
fn private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{
        RootCertStore,
        client::{WebPkiServerVerifier, danger::ServerCertVerifier},
        pki_types::{ServerName, UnixTime},
    };

    use super::*;

    /// Whether a device that trusts the authority takes this certificate for that name.
    fn passes(authority: &Authority, key: &CertifiedKey, name: &str) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.certificate_pem().as_bytes()).unwrap()).unwrap();
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        verifier.verify_server_cert(&key.cert[0], &key.cert[1..], &name, &[], UnixTime::now()).is_ok()
    }

    #[test]
    fn devices_that_trust_the_authority_take_its_certificates_for_this_computer_only() {
        let folder = tempfile::tempdir().unwrap();
        let names = vec!["Cohort.example".to_owned()];
        let (mut authority, key) = Authority::open(folder.path().join("tls"), names).unwrap();
        for name in ["127.0.0.1", "::1", "localhost", "cohort.example"] {
            assert!(passes(&authority, &key, name), "{name}");
        }
        assert!(!passes(&authority, &key, "192.168.99.99"));
        // Even with its key nobody could vouch for a place in the internet.
        let foreign = |name: &str, address: [u8; 4]| Subjects {
            names: BTreeSet::from([name.to_owned(), "localhost".to_owned()]),
            addresses: BTreeSet::from([IpAddr::from(address)]),
        };
        let key = authority.sign(foreign("printer.local", [192, 168, 99, 99])).unwrap();
        assert!(passes(&authority, &key, "192.168.99.99"));
        for subjects in [foreign("bank.example", [192, 168, 99, 99]), foreign("a.local", [8, 8, 8, 8])] {
            let key = authority.sign(subjects).unwrap();
            assert!(!passes(&authority, &key, "localhost"));
        }
    }

    #[test]
    fn an_authority_stays_until_it_may_not_sign_for_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let open = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            Authority::open(folder.path().into(), names).unwrap().0
        };
        let mut first = open(&["a.example"]);
        assert!(first.renewed().unwrap().is_none(), "nothing has changed");
        first.signed_at -= RENEW;
        assert!(first.renewed().unwrap().is_some(), "the certificate is old");
        assert_eq!(open(&["a.example"]).certificate_pem, first.certificate_pem);
        assert_eq!(open(&[]).certificate_pem, first.certificate_pem);
        let second = open(&["b.example"]);
        assert_ne!(second.certificate_pem, first.certificate_pem);
        fs::write(folder.path().join(SIGNS_FOR), "half of").unwrap();
        let damaged = Authority::open(folder.path().into(), vec![]).unwrap_err().to_string();
        assert!(damaged.contains("authority.json") && damaged.contains("remove the folder"), "{damaged}");
    }
}
