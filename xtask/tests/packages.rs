//! The packages that this workspace is built from keep `deny.toml`: their licences, what is banned, where they come from.
//!
//! cargo-deny, which reads the same file, takes longer to build than the whole workspace; these are its checks that need
//! no data from elsewhere.
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, fs, process::Command};

use serde_json::Value;
use spdx::{Expression, LicenseReq, ParseMode};
use toml::Table;

/// A package, once for each version.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
    /// None where it names a file instead.
    licence: Option<String>,
    /// None for the workspace's own.
    source: Option<String>,
}

/// The rules.
struct Rules {
    licences: Vec<String>,
    /// Names, and the licences of packages that name none.
    clarified: Vec<(String, String)>,
    banned: Vec<String>,
    targets: Vec<String>,
}

impl Rules {
    fn read(text: &str) -> Self {
        let file: Table = text.parse().unwrap();
        let list = |section: &str, name: &str| file[section][name].as_array().unwrap().clone();
        let field = |value: &toml::Value, name: &str| value[name].as_str().unwrap().to_owned();
        let texts = |section, name| {
            list(section, name).iter().map(|value| value.as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(file["sources"]["unknown-registry"].as_str(), Some("deny"));
        assert_eq!(file["sources"]["unknown-git"].as_str(), Some("deny"));
        Self {
            licences: texts("licenses", "allow"),
            clarified: list("licenses", "clarify")
                .iter()
                .map(|entry| (field(entry, "crate"), field(entry, "expression")))
                .collect(),
            banned: list("bans", "deny").iter().map(|entry| field(entry, "crate")).collect(),
            targets: texts("graph", "targets"),
        }
    }

    /// What is wrong with a package.
    fn faults(&self, package: &Package) -> Vec<String> {
        let Package { name, version, licence, source } = package;
        let mut faults = Vec::new();
        if self.banned.contains(name) {
            faults.push(format!("{name} {version} is banned"));
        }
        if source.as_ref().is_some_and(|source| !source.starts_with("registry+")) {
            faults.push(format!("{name} {version} comes from {source:?}, which is no registry"));
        }
        let clarified = self.clarified.iter().find(|(known, _)| known == name).map(|(_, licence)| licence);
        match licence.as_ref().or(clarified) {
            Some(licence) if self.allow(licence) => {}
            Some(licence) => {
                faults.push(format!("{name} {version} has the licence {licence}, which is not allowed"));
            }
            None => faults.push(format!("{name} {version} names no licence: read its file, and clarify it")),
        }
        faults
    }

    fn allow(&self, expression: &str) -> bool {
        let Ok(expression) = Expression::parse_mode(expression, ParseMode::LAX) else { return false };
        expression.evaluate(|asked: &LicenseReq| self.licences.contains(&asked.to_string()))
    }
}

/// All packages on a target, with libFuzzer.
fn packages(target: &str) -> BTreeSet<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--format-version", "1", "--filter-platform", target])
        .args(["--features", "fuzz/libfuzzer"])
        .current_dir("..")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .map(|package| Package {
            name: text(&package["name"]).unwrap(),
            version: text(&package["version"]).unwrap(),
            licence: text(&package["license"]),
            source: text(&package["source"]),
        })
        .collect()
}

fn rules() -> Rules {
    Rules::read(&fs::read_to_string("../deny.toml").unwrap())
}

#[test]
fn every_package_is_allowed_and_comes_from_the_one_registry() {
    let rules = rules();
    let packages: BTreeSet<Package> = rules.targets.iter().flat_map(|target| packages(target)).collect();
    let faults: Vec<String> = packages.iter().flat_map(|package| rules.faults(package)).collect();
    assert!(faults.is_empty(), "deny.toml is not kept:\n{}", faults.join("\n"));
    let registries: BTreeSet<&String> =
        packages.iter().filter_map(|package| package.source.as_ref()).collect();
    assert_eq!(registries.len(), 1, "one registry: {registries:?}");
}

#[test]
fn what_is_not_allowed_is_named() {
    let rules = rules();
    let package = |name: &str, licence: Option<&str>, source: &str| Package {
        name: name.into(),
        version: "1.2.3".into(),
        licence: licence.map(str::to_owned),
        source: Some(source.into()),
    };
    let registry = "registry+somewhere";
    for licence in
        ["MIT", "MIT/Apache-2.0", "GPL-3.0-only OR MIT", "Apache-2.0 WITH LLVM-exception", "MIT AND Zlib"]
    {
        assert_eq!(rules.faults(&package("fine", Some(licence), registry)), [""; 0], "{licence}");
    }
    assert_eq!(rules.faults(&package("cfg_block", None, registry)), [""; 0]);
    for (bad, words) in [
        (package("copyleft", Some("GPL-3.0-only"), registry), "licence GPL-3.0-only"),
        (package("both", Some("MIT AND AGPL-3.0-only"), registry), "not allowed"),
        (package("nothing", None, registry), "names no licence"),
        (package("free", Some("do as you like"), registry), "not allowed"),
        (package("openssl-sys", Some("MIT"), registry), "banned"),
        (package("elsewhere", Some("MIT"), "git+elsewhere"), "no registry"),
    ] {
        let faults = rules.faults(&bad);
        assert!(faults.len() == 1 && faults[0].contains(words), "{bad:?}: {faults:?}");
    }
}
