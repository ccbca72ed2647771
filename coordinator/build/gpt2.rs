//! Put GPT-2's vocabulary, compressed, into the binary.

use std::{env, error::Error, fs, path::Path};

use crate::compress::compress;

/// Write `encoder.json.z` and `vocab.bpe.z` to `out`.
pub fn embed(out: &Path) -> Result<(), Box<dyn Error>> {
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../tests/data/gpt2");
    for name in ["encoder.json", "vocab.bpe"] {
        let path = folder.join(name);
        println!("cargo::rerun-if-changed={}", path.display());
        let file = fs::read(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        fs::write(out.join(format!("{name}.z")), compress(&file)?)?;
    }
    Ok(())
}
