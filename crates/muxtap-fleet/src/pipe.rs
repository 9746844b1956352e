//! A byte stream over two NATS subjects, one for each direction.

use std::{
    io,
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use async_nats::{Client, Subscriber};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf, ReadHalf, WriteHalf},
    sync::{Notify, mpsc},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::frame::{Broken, DATA_BYTES, HEADER_BYTES, Incoming, Outgoing, Received};

/// How long one direction may stay open after the other has ended.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// A byte stream to another member. Dropping it ends it on both sides.
#[derive(Debug)]
pub struct Pipe {
    io: DuplexStream,
    broken: Arc<OnceLock<Broken>>,
}

/// The two subjects of a stream.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) client: Client,
    /// The subject to which this side publishes.
    pub(crate) to: String,
    /// The other side's first frame. `None`: this side has opened the stream, and sends a frame at
    /// once, which proves that it received the reply.
    pub(crate) first: Option<Bytes>,
    /// The subject to which the other side publishes.
    pub(crate) from: Subscriber,
}

impl Pipe {
    /// Opens the stream. `lost`: the connection to NATS is lost, or muxtap is stopping. `carried`:
    /// the tasks that carry streams.
    pub(crate) fn open(ends: Ends, lost: CancellationToken, carried: &TaskTracker) -> Self {
        let (io, own) = tokio::io::duplex(DATA_BYTES);
        let broken = Arc::new(OnceLock::new());
        carried.spawn(carry(own, ends, lost, broken.clone()));
        Self { io, broken }
    }

    fn error(&self) -> Option<io::Error> {
        self.broken.get().map(|broken| io::Error::new(io::ErrorKind::ConnectionReset, *broken))
    }
}

impl AsyncRead for Pipe {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        let is_end = buf.filled().len() == before && buf.remaining() > 0;
        Poll::Ready(self.error().filter(|_| is_end).map_or(Ok(()), Err))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, data));
        Poll::Ready(written.map_err(|error| self.error().unwrap_or(error)))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// The state that the futures of one stream share.
#[derive(Default)]
struct Shared {
    directions: Mutex<(Incoming, Outgoing)>,
    /// There may be room to send.
    room: Notify,
    /// The other side should be told what was taken.
    tell: Notify,
    /// The user's bytes have all been sent, and the end.
    is_sent: CancellationToken,
    /// The other side's bytes have all been delivered, or the user no longer reads.
    is_delivered: CancellationToken,
}

impl Shared {
    fn directions(&self) -> MutexGuard<'_, (Incoming, Outgoing)> {
        self.directions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn frame(&self, make: impl FnOnce(&mut Outgoing, &mut Incoming) -> Bytes) -> Bytes {
        let (incoming, outgoing) = &mut *self.directions();
        make(outgoing, incoming)
    }

    /// Resolves when both directions are over, or one is and the other takes too long.
    async fn over(&self) {
        tokio::select! {
            () = self.is_sent.cancelled() => {}
            () = self.is_delivered.cancelled() => {}
        }
        let both = async { tokio::join!(self.is_sent.cancelled(), self.is_delivered.cancelled()) };
        let _ = timeout(CLOSE_LIMIT, both).await;
    }
}

/// Carries a stream until it ends.
async fn carry(io: DuplexStream, ends: Ends, lost: CancellationToken, slot: Arc<OnceLock<Broken>>) {
    let Ends { client, to, first, mut from } = ends;
    let shared = Shared::default();
    if first.is_none() {
        shared.tell.notify_one();
    }
    let (reader, writer) = tokio::io::split(io);
    // The sender's credit bounds it.
    let (queue, due) = mpsc::unbounded_channel();
    // They own the user's stream, which must remain until the reason for its end is known.
    let mut sending = pin!(send(reader, &client, &to, &shared));
    let mut delivering = pin!(deliver(writer, due, &shared));
    let broken = tokio::select! {
        broken = &mut sending => Some(broken),
        broken = receive(first, &mut from, &queue, &shared) => Some(broken),
        never = &mut delivering => match never {},
        () = shared.over() => None,
        () = lost.cancelled() => Some(Broken::Disconnected),
    };
    // A stream that ended in both directions needs no word to the other side.
    if let Some(broken) = broken {
        let _ = slot.set(broken);
    }
    lost.cancel();
    let is_whole = shared.is_sent.is_cancelled() && shared.is_delivered.is_cancelled();
    if !is_whole && broken != Some(Broken::Cut) {
        // Without a connection it is sent when there is one again.
        let cut = shared.frame(Outgoing::cut);
        let _ = timeout(CLOSE_LIMIT, client.publish(to.clone(), cut)).await;
    }
}

/// Sends what the user writes, and what the user has read. It is the only sender, so frames are
/// sent in the order of their numbers. Returns only if NATS takes nothing more.
async fn send(mut reader: ReadHalf<DuplexStream>, client: &Client, to: &str, shared: &Shared) -> Broken {
    let most = DATA_BYTES.min(client.max_payload().saturating_sub(HEADER_BYTES)).max(1);
    let mut data = vec![0; most];
    loop {
        let may_read = !shared.is_sent.is_cancelled() && shared.directions().1.has_room();
        let frame = tokio::select! {
            () = shared.tell.notified() => shared.frame(Outgoing::taken),
            () = shared.room.notified() => continue,
            read = reader.read(&mut data), if may_read => if let Ok(read @ 1..) = read {
                let data = data.get(..read).unwrap_or_default();
                shared.frame(|outgoing, incoming| outgoing.data(data, incoming))
            } else {
                let end = shared.frame(Outgoing::end);
                shared.is_sent.cancel();
                end
            },
        };
        if client.publish(to.to_owned(), frame).await.is_err() {
            return Broken::Disconnected;
        }
    }
}

/// Checks what the other side sent, and queues it.
async fn receive(
    first: Option<Bytes>,
    from: &mut Subscriber,
    queue: &mpsc::UnboundedSender<Option<Bytes>>,
    shared: &Shared,
) -> Broken {
    let mut messages = stream::iter(first).chain(from.map(|message| message.payload));
    while let Some(message) = messages.next().await {
        let received = {
            let (incoming, outgoing) = &mut *shared.directions();
            incoming.accept(&message, outgoing)
        };
        match received {
            Ok(Received::Data(data)) => drop(queue.send(Some(data))),
            Ok(Received::End) => drop(queue.send(None)),
            Ok(Received::Taken) => {}
            Err(broken) => return broken,
        }
        shared.room.notify_one();
    }
    Broken::Disconnected
}

/// Delivers to the user what was queued.
async fn deliver(
    mut writer: WriteHalf<DuplexStream>,
    mut due: mpsc::UnboundedReceiver<Option<Bytes>>,
    shared: &Shared,
) -> std::convert::Infallible {
    while let Some(Some(data)) = due.recv().await {
        if writer.write_all(&data).await.is_err() {
            break;
        }
        if shared.directions().0.take(data.len()) {
            shared.tell.notify_one();
        }
    }
    let _ = writer.shutdown().await;
    shared.is_delivered.cancel();
    std::future::pending().await
}
