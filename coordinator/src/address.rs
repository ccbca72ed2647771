//! Whose address a request comes from, as limits count it.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
};

use axum::http::HeaderMap;

/// Whom limits count together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Address {
    /// This computer by its usual loopback address, 127.0.0.1 or `::1`: the organizer's own programs, or a reverse proxy
    /// that does not say for whom it asks. Behind one everybody has this address, so there is no limit for it alone.
    Local,
    /// One IPv4 address: a device, or everybody behind one router.
    V4(Ipv4Addr),
    /// The upper half of an IPv6 address: whoever has one address of it usually has them all.
    V6(u64),
}

impl Address {
    /// Of whoever has connected.
    pub(crate) fn of(peer: IpAddr) -> Self {
        match peer.to_canonical() {
            peer if peer == IpAddr::V4(Ipv4Addr::LOCALHOST) => Self::Local,
            IpAddr::V6(peer) if peer.is_loopback() => Self::Local,
            IpAddr::V4(peer) => Self::V4(peer),
            IpAddr::V6(peer) => Self::V6((peer.to_bits() >> 64) as u64),
        }
    }

    /// Of whom a proxy asks for: the last entry of X-Forwarded-For, which the proxy itself has added. What stands before
    /// it, anybody may have written. None where the proxy does not say.
    pub(crate) fn forwarded(headers: &HeaderMap) -> Option<Self> {
        let last = headers.get_all("x-forwarded-for").iter().next_back()?.to_str().ok()?;
        let entry = last.rsplit(',').next()?.trim();
        // Some proxies add the port.
        let bracketed = entry.strip_prefix('[').and_then(|rest| rest.split(']').next());
        let address =
            bracketed.or_else(|| entry.parse::<IpAddr>().is_err().then(|| entry.split(':').next())?);
        Some(Self::of(address.unwrap_or(entry).parse().ok()?))
    }
}

/// Whether a proxy of the organizer's may have this address: this computer, or a private network such as that between
/// containers.
pub(crate) fn may_be_proxy(peer: IpAddr) -> bool {
    match peer.to_canonical() {
        IpAddr::V4(peer) => peer.is_loopback() || peer.is_private(),
        IpAddr::V6(peer) => peer.is_loopback() || peer.is_unique_local(),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => out.write_str("this computer"),
            Self::V4(address) => address.fmt(out),
            Self::V6(upper) => write!(out, "{}/64", std::net::Ipv6Addr::from_bits(u128::from(*upper) << 64)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Address {
        Address::of(text.parse().unwrap())
    }

    #[test]
    fn ipv6_counts_by_its_upper_half_and_only_the_usual_loopback_addresses_are_local() {
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_eq!(of("127.0.0.1"), Address::Local);
        assert_eq!(of("::1"), Address::Local);
        assert_eq!(of("::ffff:127.0.0.1"), Address::Local);
        assert_ne!(of("127.0.0.2"), Address::Local);
        assert_eq!(of("2001:db8:1:2::1").to_string(), "2001:db8:1:2::/64");
    }

    #[test]
    fn of_what_was_forwarded_only_the_last_entry_counts() {
        let forwarded = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("x-forwarded-for", value.parse().unwrap());
            }
            Address::forwarded(&headers)
        };
        assert_eq!(forwarded(&[]), None);
        assert_eq!(forwarded(&["192.0.2.1"]), Some(of("192.0.2.1")));
        assert_eq!(forwarded(&["198.51.100.7, 192.0.2.1"]), Some(of("192.0.2.1")));
        assert_eq!(forwarded(&["198.51.100.7", "192.0.2.1:4711"]), Some(of("192.0.2.1")));
        assert_eq!(forwarded(&["2001:db8::1"]), Some(of("2001:db8::1")));
        assert_eq!(forwarded(&["[2001:db8::1]:4711"]), Some(of("2001:db8::1")));
        assert_eq!(forwarded(&["unknown"]), None);
    }
}
