//! Descriptors that pass from one process to another, and the files that both have.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd as _, OwnedFd},
};

use rustix::{
    cmsg_space,
    io::Errno,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags},
};
use tokio::net::UnixStream;

/// The most descriptors that are sent at once; Linux allows 253.
pub(super) const DESCRIPTORS_AT_ONCE: usize = 64;

/// Sends one byte with descriptors.
pub(super) fn send_descriptors(socket: &UnixStream, descriptors: &[OwnedFd]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_AT_ONCE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = descriptors.iter().map(|descriptor| descriptor.as_fd()).collect();
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("the descriptors do not fit into the control message"));
    }
    loop {
        match rustix::net::sendmsg(socket, &[IoSlice::new(b"\n")], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return sent.map(drop).map_err(Into::into),
        }
    }
}

/// On a system without this flag no process is started between the two calls: this thread starts
/// all processes.
#[cfg(not(target_vendor = "apple"))]
const CLOSED_ON_EXEC: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(target_vendor = "apple")]
const CLOSED_ON_EXEC: RecvFlags = RecvFlags::empty();

/// Receives one byte with descriptors.
pub(super) fn receive_descriptors(socket: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_AT_ONCE))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, CLOSED_ON_EXEC) {
            Err(Errno::INTR) => {}
            received => {
                received?;
                break;
            }
        }
    }
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors: Vec<OwnedFd> = rights.flatten().collect();
    #[cfg(target_vendor = "apple")]
    for descriptor in &descriptors {
        rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok(descriptors)
}

/// Creates a file without a name.
#[cfg(target_os = "linux")]
pub(super) fn private_file() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("muxtap-state", rustix::fs::MemfdFlags::CLOEXEC)?.into())
}

/// Creates a file that loses its name at once.
#[cfg(not(target_os = "linux"))]
pub(super) fn private_file() -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;

    let path = std::env::temp_dir().join(format!("muxtap-{}", muxtap_base::nonce::hex64()));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}
