//! A stream whose reader may not stop for ever.

use std::{
    future::Future as _,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// Fails a write that the other end has not taken a byte of for so long.
pub struct Stalled<S> {
    io: S,
    limit: Option<Duration>,
    /// Runs while a write is held up.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> Stalled<S> {
    /// `None`: for ever.
    pub const fn new(io: S, limit: Option<Duration>) -> Self {
        Self { io, limit, deadline: None }
    }

    fn watch<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.deadline = None;
            return written;
        }
        let Some(limit) = self.limit else { return Poll::Pending };
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client has stopped reading")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalled<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalled<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.watch(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, parts);
        self.watch(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        self.watch(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.io).poll_shutdown(context);
        self.watch(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_that_nobody_takes_fails_and_a_slow_one_does_not() {
        let (near, mut far) = tokio::io::duplex(8);
        let mut near = Stalled::new(near, Some(Duration::from_secs(60)));
        let reader = tokio::spawn(async move {
            let mut bytes = [0; 8];
            for _ in 0..4 {
                tokio::time::sleep(Duration::from_secs(50)).await;
                far.read_exact(&mut bytes).await.unwrap();
            }
            far
        });
        near.write_all(&[1; 32]).await.unwrap();
        let _far = reader.await.unwrap();
        let error = near.write_all(&[1; 32]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
