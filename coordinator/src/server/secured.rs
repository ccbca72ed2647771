//! A connection as it came or inside TLS, told apart by its first byte: both come in at the same port.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::Router;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Time for the first byte and the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How every TLS connection begins (RFC 8446, 5.1: a record that holds a handshake).
const TLS_HANDSHAKE: u8 = 22;

/// TLS at a port, and what is answered there without it.
#[derive(Clone)]
pub(crate) struct Security {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) plain: Router,
}

/// A connection of either kind.
pub(super) enum Secured {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Secured {
    /// Finds out which kind a connection is; None when nothing comes, or no TLS comes of it.
    pub(super) async fn accept(stream: TcpStream, acceptor: &TlsAcceptor) -> Option<Self> {
        let accepted = async {
            let mut first = [0];
            match stream.peek(&mut first).await? {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                _ if first[0] == TLS_HANDSHAKE => Ok(Self::Tls(Box::new(acceptor.accept(stream).await?))),
                _ => Ok(Self::Plain(stream)),
            }
        };
        match timeout(HANDSHAKE, accepted).await {
            Ok(Ok(secured)) => Some(secured),
            Ok(Err(error)) => {
                let error: io::Error = error;
                // Phones that do not know the certificate yet end here, each time.
                tracing::debug!("no TLS came of a connection: {error}");
                None
            }
            Err(_) => None,
        }
    }
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Secured {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
