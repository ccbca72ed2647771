//! Server-sent events of an answer that is read as it comes
//! (<https://html.spec.whatwg.org/multipage/server-sent-events.html>), as far as the coordinator uses them.

/// What an event says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SentEvent {
    /// A line of data.
    Data(String),
    /// A comment, which says where a request waits.
    Comment(String),
}

/// Lines that have come in part.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Takes bytes in as they come; gives the events that are whole by now.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Vec<SentEvent> {
        self.rest.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\r', '\n']);
            if let Some(data) = line.strip_prefix("data:") {
                events.push(SentEvent::Data(data.trim_start().to_owned()));
            } else if let Some(comment) = line.strip_prefix(':') {
                events.push(SentEvent::Comment(comment.trim_start().to_owned()));
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_whole_however_they_are_cut() {
        let stream = ": place 3\n\ndata: {\"a\": \"ä\"}\r\n\r\n:\n\ndata: [DONE]\n\n".as_bytes();
        let whole = Lines::default().add(stream);
        assert_eq!(
            whole,
            [
                SentEvent::Comment("place 3".into()),
                SentEvent::Data("{\"a\": \"ä\"}".into()),
                SentEvent::Comment(String::new()),
                SentEvent::Data("[DONE]".into()),
            ]
        );
        for size in 1..stream.len() {
            let mut lines = Lines::default();
            let pieces: Vec<_> = stream.chunks(size).flat_map(|piece| lines.add(piece)).collect();
            assert_eq!(pieces, whole, "in pieces of {size}");
        }
    }
}
