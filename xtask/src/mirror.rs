//! Makes one folder equal to another, touching nothing when it is already.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// Makes `copy` equal to `original`. Equal ones are left alone, times included, because cargo compiles anew when
/// the times of files change.
pub fn mirror(original: &Path, copy: &Path) -> io::Result<()> {
    let wanted = files(original)?;
    if copy.is_dir() && files(copy)? == wanted {
        return Ok(());
    }
    match fs::remove_dir_all(copy) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    for (name, bytes) in wanted {
        let file = copy.join(name);
        fs::create_dir_all(file.parent().unwrap_or(copy))?;
        fs::write(file, bytes)?;
    }
    Ok(())
}

/// Names and contents; the pages are a few dozen megabytes.
fn files(folder: &Path) -> io::Result<BTreeMap<PathBuf, Vec<u8>>> {
    fn collect(root: &Path, folder: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                collect(root, &path, found)?;
            } else {
                found.insert(path.strip_prefix(root).unwrap_or(&path).to_path_buf(), fs::read(&path)?);
            }
        }
        Ok(())
    }
    let mut found = BTreeMap::new();
    collect(folder, folder, &mut found)?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_once_and_removes_what_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let (original, copy) = (folder.path().join("original"), folder.path().join("copy"));
        fs::create_dir_all(original.join("inner")).unwrap();
        fs::write(original.join("inner/a"), "1").unwrap();
        mirror(&original, &copy).unwrap();
        assert_eq!(fs::read(copy.join("inner/a")).unwrap(), b"1");

        let written = fs::metadata(copy.join("inner/a")).unwrap().modified().unwrap();
        mirror(&original, &copy).unwrap();
        assert_eq!(fs::metadata(copy.join("inner/a")).unwrap().modified().unwrap(), written);

        fs::write(copy.join("stale"), "2").unwrap();
        fs::write(original.join("inner/a"), "3").unwrap();
        mirror(&original, &copy).unwrap();
        assert_eq!(fs::read(copy.join("inner/a")).unwrap(), b"3");
        assert!(!copy.join("stale").exists());
    }
}
