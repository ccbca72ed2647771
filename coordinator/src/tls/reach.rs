//! By what names and addresses this computer is reached.

use std::{collections::BTreeSet, net::IpAddr};

/// Addresses of this computer that others may reach, in order: those of interfaces that are up, without loopback and without
/// IPv6 addresses that hold on one cable only.
pub(crate) fn addresses() -> BTreeSet<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    interfaces.iter().map(|interface| interface.ip()).filter(is_reachable).collect()
}

fn is_reachable(address: &IpAddr) -> bool {
    let of_one_cable = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !address.is_loopback() && !address.is_unspecified() && !of_one_cable
}

/// The name by which multicast DNS finds this computer in its own network, such as `laptop.local`.
pub(super) fn local_name() -> Option<String> {
    let name = gethostname::gethostname().into_string().ok()?;
    let first = name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let fits = !first.is_empty() && first.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    fits.then(|| format!("{first}.local"))
}
