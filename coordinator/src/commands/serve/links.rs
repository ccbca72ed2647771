//! The links that a coordinator prints when it is up.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use super::RunningCoordinator;
use crate::tls;

/// Prints where the coordinator is reached, by whom; to a terminal a picture for the cameras of phones too.
pub(super) fn print(serving: &RunningCoordinator, out: &mut impl Write, is_terminal: bool) -> io::Result<()> {
    let scheme = if serving.is_secure { "https" } else { "http" };
    let links: Vec<String> = reached(serving.address, &tls::addresses(), &serving.hosts)
        .into_iter()
        .map(|host| format!("{host}:{}", serving.address.port()))
        .collect();
    writeln!(out, "listening on {scheme}://{}", serving.address)?;
    for link in &links {
        writeln!(out, "volunteers: {scheme}://{link}/")?;
    }
    let Some(first) = links.first() else { return out.flush() };
    writeln!(out, "organizer: {scheme}://{first}/organizer#token={}", serving.organizer_token)?;
    // Phones come by the page that says what their browser will warn of; it must open before they trust anything.
    let for_phones = match &serving.authority {
        Some(fingerprint) => {
            writeln!(out, "phones and other computers: http://{first}/trust")?;
            writeln!(out, "the run's own authority has the SHA-256 fingerprint {fingerprint}")?;
            format!("http://{first}/trust")
        }
        None => format!("{scheme}://{first}/"),
    };
    let is_alone = serving.address.ip().is_loopback();
    if is_terminal
        && !is_alone
        && let Some(picture) = tls::picture(&for_phones)
    {
        writeln!(out, "{picture}")?;
    }
    out.flush()
}

/// Names and addresses for links, the best for others first.
fn reached(address: SocketAddr, own: &BTreeSet<IpAddr>, names: &[String]) -> Vec<String> {
    let written = |address: &IpAddr| match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    if !address.ip().is_unspecified() {
        return vec![written(&address.ip())];
    }
    // Every address of this computer. One of the loopback interface only where there is no other.
    let mut links = names.to_vec();
    links.extend(own.iter().filter(|own| own.is_ipv4() || address.is_ipv6()).map(written));
    if links.is_empty() {
        links.push(written(&Ipv4Addr::LOCALHOST.into()));
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_listens_on_all_addresses_is_reached_by_each() {
        let own = BTreeSet::from(["192.168.1.7".parse().unwrap(), "fd00::7".parse().unwrap()]);
        let links = |address: &str, own: &BTreeSet<IpAddr>, names: &[String]| {
            reached(address.parse().unwrap(), own, names)
        };
        assert_eq!(links("127.0.0.1:80", &own, &[]), ["127.0.0.1"]);
        assert_eq!(links("[::1]:80", &own, &[]), ["[::1]"]);
        assert_eq!(links("0.0.0.0:80", &own, &[]), ["192.168.1.7"]);
        assert_eq!(links("[::]:80", &own, &["a.example".into()]), ["a.example", "192.168.1.7", "[fd00::7]"]);
        assert_eq!(links("0.0.0.0:80", &BTreeSet::new(), &[]), ["127.0.0.1"]);
    }
}
