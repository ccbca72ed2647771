//! The embedded files and what is worked out from them once: type, hash, lifetime.

use std::sync::LazyLock;

use axum::http::HeaderValue;

use super::policy;

/// A file as `build/pages.rs` lists it.
pub(super) struct Embedded {
    pub path: &'static str,
    pub plain: &'static [u8],
    pub br: Option<&'static [u8]>,
    pub gz: Option<&'static [u8]>,
}

// `include_bytes!` gives arrays; the table needs slices, which the struct's fields coerce them to.
include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// A file ready to be sent.
pub(super) struct Asset {
    pub path: &'static str,
    pub plain: &'static [u8],
    pub br: Option<&'static [u8]>,
    pub gz: Option<&'static [u8]>,
    pub mime: &'static str,
    pub cache_control: &'static str,
    /// Strong tags: the bytes differ from coding to coding, so do the tags.
    pub etag: HeaderValue,
    pub etag_br: HeaderValue,
    pub etag_gz: HeaderValue,
}

pub(super) struct Assets {
    files: Vec<Asset>,
    index_policy: Option<HeaderValue>,
}

impl Assets {
    /// Hashes the files on first use.
    pub(super) fn get() -> &'static Self {
        static ASSETS: LazyLock<Assets> = LazyLock::new(Assets::prepare);
        &ASSETS
    }

    pub(super) fn find(&self, path: &str) -> Option<&Asset> {
        // The table is sorted by path on disk, which is not the order of URLs; a dozen files need no index.
        self.files.iter().find(|asset| asset.path == path)
    }

    /// The content security policy that lets index.html's own inline script run.
    pub(super) fn index_policy(&self) -> Option<&HeaderValue> {
        self.index_policy.as_ref()
    }

    fn prepare() -> Self {
        let files: Vec<Asset> = TABLE.iter().map(Asset::prepare).collect();
        let index = files.iter().find(|asset| asset.path == "/index.html");
        let html = index.map(|asset| String::from_utf8_lossy(asset.plain));
        Assets { index_policy: html.map(|html| policy::content_security(&html)), files }
    }
}

impl Asset {
    fn prepare(file: &Embedded) -> Self {
        let hash = blake3::hash(file.plain).to_hex();
        let hash = &hash[..32];
        Asset {
            path: file.path,
            plain: file.plain,
            br: file.br,
            gz: file.gz,
            mime: mime(file.path),
            cache_control: cache_control(file.path),
            etag: tag(hash, ""),
            etag_br: tag(hash, "-br"),
            etag_gz: tag(hash, "-gz"),
        }
    }
}

fn tag(hash: &str, coding: &str) -> HeaderValue {
    // Hex digits and ASCII letters in quotes always make a header; an empty one would only disable caching.
    HeaderValue::from_str(&format!("\"{hash}{coding}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

fn mime(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, end)| end) {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "wasm" => "application/wasm",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// A name with a content hash never means other bytes. All else must be asked for again each time, which the
/// tag makes cheap; so a page and its Web Worker, whose names carry no hash, stay of one build.
fn cache_control(path: &str) -> &'static str {
    if has_content_hash(path) { "public, max-age=31536000, immutable" } else { "no-cache" }
}

/// `cargo xtask` names a file `name-0123456789abcdef.ext`.
fn has_content_hash(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    stem.rsplit_once('-').is_some_and(|(_, hash)| {
        hash.len() == 16 && hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_told_from_plain_names() {
        for hashed in [
            "/www-0123456789abcdef.js",
            "/www_bg-0123456789abcdef.wasm",
            "/uPlot.iife.min-5064edaecd06f7ff.js",
        ] {
            assert!(cache_control(hashed).contains("immutable"), "{hashed}");
        }
        for plain in
            ["/index.html", "/worker.js", "/worker_bg.wasm", "/x-0123.js", "/www-0123456789abcdef/x.js"]
        {
            assert_eq!(cache_control(plain), "no-cache", "{plain}");
        }
    }

    #[test]
    fn types_are_those_browsers_insist_on() {
        assert_eq!(mime("/worker_bg.wasm"), "application/wasm");
        assert_eq!(mime("/worker.js"), "text/javascript; charset=utf-8");
        assert_eq!(mime("/none"), "application/octet-stream");
    }
}
