//! Who answers: reads what a client offers, and writes it back where the client says.

use ibverbs::{
    AccessFlags, Held, Rc, RemoteMemory, SharedRegion,
    wr::{self, Operation},
};
use rdmacm::{ConnectRequest, Listener, Messenger};

use super::message::{GO_ON, decode, printed};
use super::settings::{MAX_SIZE, PATIENCE, Settings, messages};
use crate::Result;

/// Serves one client, or one after the other.
///
/// # Errors
/// The address is not to be had; as long as it is not persistent, those of its client.
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
            ended => return ended,
        }
    }
}

fn serve(request: ConnectRequest, settings: &Settings) -> Result<()> {
    let mut client = Messenger::accept(request, &messages(), PATIENCE)?;
    // On iWARP the place that a read fills must be open to writes of the peer.
    let memory = client
        .connection()
        .qp()
        .pd()
        .shared(MAX_SIZE, AccessFlags::REMOTE_WRITE)?;
    let place = client.connection_mut().qp_mut().hold(&memory)?;
    let piece = |remote: RemoteMemory| {
        let len = usize::try_from(remote.len).unwrap_or(usize::MAX);
        place
            .slice(0..len)
            .filter(|_| len > 0)
            .ok_or_else(|| format!("{len} bytes offered: 1 to {MAX_SIZE}"))
    };
    while let Some(offer) = client.recv(PATIENCE)? {
        let source = decode(&offer).ok_or("the client sends something else than offers")?;
        drop(offer);
        complete(&mut client, wr::read(piece(source)?, source))?;
        if settings.verbose {
            let mut data = vec![0; usize::try_from(source.len)?];
            memory.read(0, &mut data)?;
            println!("server ping data: {}", printed(&data));
        }
        client.send(&GO_ON, PATIENCE)?;

        let Some(offer) = client.recv(PATIENCE)? else {
            break;
        };
        let sink = decode(&offer).ok_or("the client sends something else than offers")?;
        drop(offer);
        let len = sink.len.min(source.len);
        complete(
            &mut client,
            wr::write(piece(RemoteMemory { len, ..sink })?, sink),
        )?;
        client.send(&GO_ON, PATIENCE)?;
    }
    Ok(())
}

/// Posts a request and waits until it is done.
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
    Ok(client.completed(PATIENCE)?.ok()?)
}
