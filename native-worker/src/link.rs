//! The link that a coordinator prints, and the addresses that follow from it.

/// Why a link cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    #[error("`{0}` is not a link; give the one that the coordinator printed, such as http://127.0.0.1:8080")]
    /// The text has no scheme, no host, or another scheme.
    NotALink(String),
}

/// Pages of a coordinator, which are not part of its own address.
const PAGES: [&str; 4] = ["organizer", "watch", "playground", "trust"];

/// A coordinator's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// By TLS: https and wss.
    secure: bool,
    /// Host and port, and the path under which a proxy offers the coordinator, without a slash at the end.
    base: String,
}

impl Link {
    /// Reads a link that a person was given: of the coordinator itself, of one of its pages, or of the path under which a
    /// proxy offers it.
    ///
    /// # Errors
    /// [`LinkError`], in words for a person.
    pub fn parse(text: &str) -> Result<Self, LinkError> {
        let not_a_link = || LinkError::NotALink(text.to_string());
        let (scheme, rest) = text.trim().split_once("://").ok_or_else(not_a_link)?;
        let secure = match scheme {
            "http" | "ws" => false,
            "https" | "wss" => true,
            _ => return Err(not_a_link()),
        };
        let address = rest.split(['?', '#']).next().unwrap_or_default();
        let base = match address.rsplit_once('/') {
            // A file, such as index.html.
            Some((base, page)) if PAGES.contains(&page) || page.contains('.') => base,
            _ => address,
        };
        let base = base.trim_end_matches('/');
        let url: Result<tokio_tungstenite::tungstenite::http::Uri, _> = format!("http://{base}/").parse();
        match url {
            Ok(url) if url.host().is_some_and(|host| !host.is_empty()) => {
                Ok(Self { secure, base: base.to_string() })
            }
            _ => Err(not_a_link()),
        }
    }

    /// Address of the session's WebSocket.
    pub fn session(&self) -> String {
        format!("{}://{}/v1/session", if self.secure { "wss" } else { "ws" }, self.base)
    }

    /// Address of a blob in the store.
    pub fn blob(&self, hash: protocol::blob::BlobHash) -> String {
        format!("{}://{}/v1/blobs/{hash}", if self.secure { "https" } else { "http" }, self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volunteers_link_leads_to_the_session() {
        let link = Link::parse("http://127.0.0.1:8080/?join=1").unwrap();
        assert_eq!(link.session(), "ws://127.0.0.1:8080/v1/session");
        let link = Link::parse("http://example.org/cohort/?join=1#top").unwrap();
        assert_eq!(link.session(), "ws://example.org/cohort/v1/session", "a proxy's path belongs to it");
        let link = Link::parse("http://example.org/cohort/run.html").unwrap();
        assert_eq!(link.session(), "ws://example.org/cohort/v1/session");
        for text in ["http://example.org/cohort", "http://example.org/cohort/organizer#token=1"] {
            let link = Link::parse(text).unwrap();
            assert_eq!(link.session(), "ws://example.org/cohort/v1/session", "{text}");
        }
        assert_eq!(Link::parse("http://example.org/watch").unwrap().session(), "ws://example.org/v1/session");
        assert_eq!(Link::parse("ws://a").unwrap().session(), "ws://a/v1/session");
        assert_eq!(Link::parse("https://a/?join=1").unwrap().session(), "wss://a/v1/session");
        for bad in ["", "8080", "ftp://a", "http://", "http://a b/"] {
            assert_eq!(Link::parse(bad), Err(LinkError::NotALink(bad.into())), "{bad}");
        }
    }
}
