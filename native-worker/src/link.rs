//! The link that a coordinator prints, and the addresses that follow from it.

/// Why a link cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    #[error("`{0}` is not a link; give the one that the coordinator printed, such as http://127.0.0.1:8080")]
    NotALink(String),
    #[error(
        "links that begin with https are not supported by this program yet; use the coordinator's http link"
    )]
    NoTls,
}

/// A coordinator's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    host: String,
}

impl Link {
    pub fn parse(text: &str) -> Result<Self, LinkError> {
        let not_a_link = || LinkError::NotALink(text.to_string());
        let (scheme, rest) = text.trim().split_once("://").ok_or_else(not_a_link)?;
        match scheme {
            "http" | "ws" => {}
            "https" | "wss" => return Err(LinkError::NoTls),
            _ => return Err(not_a_link()),
        }
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let url: Result<tokio_tungstenite::tungstenite::http::Uri, _> = format!("http://{host}/").parse();
        match url {
            Ok(url) if url.host().is_some_and(|h| !h.is_empty()) => Ok(Self { host: host.to_string() }),
            _ => Err(not_a_link()),
        }
    }

    pub fn session(&self) -> String {
        format!("ws://{}/v1/session", self.host)
    }

    pub fn blob(&self, hash: protocol::blob::BlobHash) -> String {
        format!("http://{}/v1/blobs/{hash}", self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volunteers_link_leads_to_the_session() {
        let link = Link::parse("http://127.0.0.1:8080/?join=1").unwrap();
        assert_eq!(link.session(), "ws://127.0.0.1:8080/v1/session");
        assert_eq!(Link::parse("https://a"), Err(LinkError::NoTls));
        for bad in ["", "8080", "ftp://a", "http://", "http://a b/"] {
            assert_eq!(Link::parse(bad), Err(LinkError::NotALink(bad.into())), "{bad}");
        }
    }
}
