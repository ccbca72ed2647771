//! Names out of user agent strings.

/// Browser and system out of a user agent string. Order matters: all claim to be several browsers.
pub(crate) fn name(agent: &str) -> String {
    const BROWSERS: [(&str, &str); 9] = [
        ("Edg/", "Edge"),
        ("EdgA/", "Edge"),
        ("OPR/", "Opera"),
        ("SamsungBrowser/", "Samsung Internet"),
        ("Firefox/", "Firefox"),
        ("FxiOS/", "Firefox"),
        ("CriOS/", "Chrome"),
        ("Chrome/", "Chrome"),
        ("Version/", "Safari"),
    ];
    const SYSTEMS: [(&str, &str); 7] = [
        ("Android", "Android"),
        ("iPhone", "iPhone"),
        ("iPad", "iPad"),
        ("Windows", "Windows"),
        ("CrOS", "ChromeOS"),
        ("Mac OS X", "macOS"),
        ("Linux", "Linux"),
    ];
    let browser = BROWSERS.iter().find_map(|(mark, name)| {
        let (_, rest) = agent.split_once(mark)?;
        let major: String = rest.chars().take_while(char::is_ascii_digit).collect();
        Some(format!("{name} {major}"))
    });
    let system = SYSTEMS.iter().find(|(mark, _)| agent.contains(mark)).map(|(_, name)| *name);
    match (browser, system) {
        (Some(browser), Some(system)) => format!("{browser} on {system}"),
        (Some(browser), None) => browser,
        (None, Some(system)) => format!("A browser on {system}"),
        (None, None) => "A browser".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn browsers_are_told_apart() {
        let chrome = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36";
        assert_eq!(name(chrome), "Chrome 156 on Linux");
        assert_eq!(name(&format!("{chrome} Edg/156.0.0.0")), "Edge 156 on Linux");
        let safari = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 Mobile/15E148 Safari/604.1";
        assert_eq!(name(safari), "Safari 18 on iPhone");
        assert_eq!(name(""), "A browser");
    }
}
