//! zlib, as `flate2` reads it back at run time.

use std::io::{self, Write};

use flate2::{Compression, write::ZlibEncoder};

pub fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    encoder.finish()
}
