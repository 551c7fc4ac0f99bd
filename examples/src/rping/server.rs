//! The server: it reads the memory that a client offers, and writes the data to other memory of the
//! client.

use ibverbs::{
    AccessFlags, Held, Rc, RemoteMemory, SharedRegion,
    wr::{self, Operation},
};
use rdmacm::{ConnectRequest, Listener, Messenger};

use super::message::{CONTINUE, decode, printable};
use super::settings::{MAX_SIZE, Settings, TIMEOUT, messenger_options};
use crate::Result;

/// Serves one client, or one after the other if `settings.persistent` is set.
///
/// # Errors
/// The address cannot be bound. Failures while serving a client are returned only if
/// `settings.persistent` is not set.
pub fn run(settings: &Settings) -> Result<()> {
    let listener = Listener::bind(settings.address, 16)?;
    loop {
        let Some(request) = listener.accept(None)? else {
            continue;
        };
        let peer = request.peer_addr();
        match serve(request, settings) {
            Ok(()) if settings.persistent => {}
            Err(error) if settings.persistent => eprintln!("{peer}: {error}"),
            result => return result,
        }
    }
}

fn serve(request: ConnectRequest, settings: &Settings) -> Result<()> {
    let mut client = Messenger::accept(request, &messenger_options(), TIMEOUT)?;
    // iWARP requires remote write access to the destination of an RDMA read.
    let memory = client
        .connection()
        .qp()
        .pd()
        .shared(MAX_SIZE, AccessFlags::REMOTE_WRITE)?;
    let held = client.connection_mut().qp_mut().hold(&memory)?;
    let slice_for = |remote: RemoteMemory| {
        let len = usize::try_from(remote.len).unwrap_or(usize::MAX);
        held.slice(0..len).filter(|_| len > 0).ok_or_else(|| {
            format!("use the offered memory: it has {len} bytes, expected 1 to {MAX_SIZE} bytes")
        })
    };
    while let Some(offer) = client.recv(TIMEOUT)? {
        let source = decode(&offer).ok_or("decode an offer of the client: expected 16 bytes")?;
        drop(offer);
        complete(&mut client, wr::read(slice_for(source)?, source))?;
        if settings.verbose {
            let mut data = vec![0; usize::try_from(source.len)?];
            memory.read(0, &mut data)?;
            println!("server ping data: {}", printable(&data));
        }
        client.send(&CONTINUE, TIMEOUT)?;

        let Some(offer) = client.recv(TIMEOUT)? else {
            break;
        };
        let sink = decode(&offer).ok_or("decode an offer of the client: expected 16 bytes")?;
        drop(offer);
        let len = sink.len.min(source.len);
        complete(
            &mut client,
            wr::write(slice_for(RemoteMemory { len, ..sink })?, sink),
        )?;
        client.send(&CONTINUE, TIMEOUT)?;
    }
    Ok(())
}

/// Posts a request and waits for its completion.
fn complete<O>(
    client: &mut Messenger,
    request: wr::SendRequest<O, Held<SharedRegion>>,
) -> Result<()>
where
    O: Operation<Rc, Held<SharedRegion>>,
{
    client
        .connection_mut()
        .qp_mut()
        .post_send(request.tag(1))
        .map_err(ibverbs::Error::from)?;
    Ok(client.completed(TIMEOUT)?.ok()?)
}
