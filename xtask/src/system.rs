//! What this computer's own package manager calls the programs that cargo cannot install.

use crate::{process, workspace::Workspace};

/// A program from the system's package manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Package {
    Chromium,
    ChromeDriver,
    /// With the module that makes environments.
    Python,
}

impl Package {
    pub fn name(self) -> &'static str {
        match self {
            Package::Chromium => "Chromium",
            Package::ChromeDriver => "ChromeDriver",
            Package::Python => "Python 3 with venv",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manager {
    Apt,
    Dnf,
    Pacman,
    Brew,
}

const MANAGERS: [(&str, Manager); 4] =
    [("apt-get", Manager::Apt), ("dnf", Manager::Dnf), ("pacman", Manager::Pacman), ("brew", Manager::Brew)];

impl Manager {
    pub fn of(workspace: &Workspace) -> Option<Self> {
        MANAGERS
            .iter()
            .find(|(program, _)| workspace.find_program(program).is_some())
            .map(|(_, manager)| *manager)
    }

    pub fn package(self, package: Package) -> &'static str {
        use Manager::{Apt, Brew, Dnf, Pacman};
        match (package, self) {
            (Package::Chromium, _) => "chromium",
            (Package::ChromeDriver, Apt) => "chromium-driver",
            (Package::ChromeDriver, Dnf | Brew) => "chromedriver",
            // One package holds both.
            (Package::ChromeDriver, Pacman) => "chromium",
            (Package::Python, Apt) => "python3-venv",
            (Package::Python, Dnf) => "python3",
            (Package::Python, Pacman | Brew) => "python",
        }
    }
}

/// How a person installs the packages on this kind of system.
pub fn hint(manager: Option<Manager>, packages: &[Package]) -> String {
    let Some(manager) = manager else {
        return "install Chromium or Chrome, the ChromeDriver of the same version, and Python 3".into();
    };
    let mut names: Vec<_> = packages.iter().map(|package| manager.package(*package)).collect();
    names.dedup();
    let names = names.join(" ");
    match manager {
        Manager::Apt => format!("sudo apt-get install {names}"),
        Manager::Dnf => format!("sudo dnf install {names}"),
        Manager::Pacman => format!("sudo pacman -S {names}"),
        Manager::Brew => format!("brew install {names}"),
    }
}

pub fn is_root() -> bool {
    process::output(std::process::Command::new("id").arg("-u")).is_some_and(|id| id.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_system_is_told_its_own_command() {
        let both = [Package::Chromium, Package::ChromeDriver];
        assert_eq!(hint(Some(Manager::Apt), &both), "sudo apt-get install chromium chromium-driver");
        assert_eq!(hint(Some(Manager::Pacman), &both), "sudo pacman -S chromium");
        assert_eq!(hint(Some(Manager::Brew), &[Package::ChromeDriver]), "brew install chromedriver");
        assert!(hint(None, &both).contains("Chromium"));
    }
}
