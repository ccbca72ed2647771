//! Compresses the built pages once, so that the coordinator never has to.

use std::{
    fs::{self, File},
    io::{self, BufWriter},
    path::{Path, PathBuf},
    thread,
};

use anyhow::Context;

/// Files that shrink; pictures and fonts are compressed already.
const COMPRESSIBLE: [&str; 9] = ["html", "js", "mjs", "css", "wasm", "json", "svg", "txt", "webmanifest"];

/// 11 takes minutes over the worker's 18 MB and saves a few per cent more.
const BROTLI_QUALITY: i32 = 9;
/// Lets matches reach back 16 MB, the most that browsers must support.
const BROTLI_WINDOW: i32 = 24;

/// Writes `FILE.br` and `FILE.gz` beside every compressible file under `dist`.
///
/// Forms newer than their file are kept; forms that do not pay are left out.
pub fn precompress(dist: &Path) -> anyhow::Result<()> {
    let mut files = Vec::new();
    list(dist, &mut files).with_context(|| format!("cannot list {}", dist.display()))?;
    for file in files {
        let both = thread::scope(|scope| {
            let gzip = scope.spawn(|| write(&file, "gz", gzip));
            let brotli = write(&file, "br", brotli);
            let gzip = gzip.join().unwrap_or_else(|_| Err(io::Error::other("the compressor panicked")));
            brotli.and(gzip)
        });
        both.with_context(|| format!("cannot compress {}", file.display()))?;
    }
    Ok(())
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for found in fs::read_dir(folder)? {
        let path = found?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else if path.extension().is_some_and(|end| COMPRESSIBLE.iter().any(|known| end == *known)) {
            files.push(path);
        }
    }
    Ok(())
}

fn write(
    file: &Path,
    ending: &str,
    compress: fn(&mut File, &mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let mut target = file.as_os_str().to_owned();
    target.push(".");
    target.push(ending);
    let target = PathBuf::from(target);
    let source = fs::metadata(file)?;
    if fs::metadata(&target).is_ok_and(|old| is_newer(&old, &source)) {
        return Ok(());
    }
    // Under another name first: an interrupted run must not leave half a file that looks finished.
    let unfinished = target.with_extension(format!("{ending}-unfinished"));
    let mut output = BufWriter::new(File::create(&unfinished)?);
    compress(&mut File::open(file)?, &mut output)?;
    let output = output.into_inner().map_err(io::IntoInnerError::into_error)?;
    if output.metadata()?.len() < source.len() {
        return fs::rename(unfinished, target);
    }
    fs::remove_file(unfinished)?;
    match fs::remove_file(target) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn is_newer(old: &fs::Metadata, source: &fs::Metadata) -> bool {
    matches!((old.modified(), source.modified()), (Ok(old), Ok(source)) if old >= source)
}

fn brotli(input: &mut File, output: &mut BufWriter<File>) -> io::Result<()> {
    let parameters = brotli::enc::BrotliEncoderParams {
        quality: BROTLI_QUALITY,
        lgwin: BROTLI_WINDOW,
        ..Default::default()
    };
    brotli::BrotliCompress(input, output, &parameters)?;
    Ok(())
}

fn gzip(input: &mut File, output: &mut BufWriter<File>) -> io::Result<()> {
    let mut writer = flate2::write::GzEncoder::new(output, flate2::Compression::best());
    io::copy(input, &mut writer)?;
    writer.finish()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn both_forms_unpack_to_the_file() {
        let dist = tempfile::tempdir().unwrap();
        let text = "loss went down, and down, and down. ".repeat(100);
        fs::create_dir(dist.path().join("inner")).unwrap();
        fs::write(dist.path().join("inner/a.js"), &text).unwrap();
        fs::write(dist.path().join("tiny.txt"), "x").unwrap();
        fs::write(dist.path().join("picture.png"), &text).unwrap();
        precompress(dist.path()).unwrap();

        let mut unpacked = String::new();
        let gz = File::open(dist.path().join("inner/a.js.gz")).unwrap();
        flate2::read::GzDecoder::new(gz).read_to_string(&mut unpacked).unwrap();
        assert_eq!(unpacked, text);
        unpacked.clear();
        let br = File::open(dist.path().join("inner/a.js.br")).unwrap();
        brotli::Decompressor::new(br, 4096).read_to_string(&mut unpacked).unwrap();
        assert_eq!(unpacked, text);
        let others: Vec<_> = fs::read_dir(dist.path()).unwrap().map(|f| f.unwrap().file_name()).collect();
        assert_eq!(others.len(), 3, "nothing else beside the files: {others:?}");
    }
}
