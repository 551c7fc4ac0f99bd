//! Who pings: offers memory, lets the server read it, lets the server write it back.

use ibverbs::AccessFlags;
use rdmacm::{Messenger, Resolver};

use super::message::{encode, printed, text};
use super::settings::{PATIENCE, Settings, messages};
use crate::Result;

/// Pings as often as it shall.
///
/// # Errors
/// The server is not there, goes away, or brings back something else.
pub fn run(settings: &Settings) -> Result<()> {
    let mut resolver = Resolver::new(settings.address).timeout(PATIENCE);
    if let Some(from) = settings.from {
        resolver = resolver.source(from);
    }
    let mut server = Messenger::connect_with(resolver, &messages(), PATIENCE)?;
    let pd = server.connection().qp().pd();
    let source = pd.shared(settings.size, AccessFlags::REMOTE_READ)?;
    let sink = pd.shared(settings.size, AccessFlags::REMOTE_WRITE)?;
    let mut number = 0;
    while settings.count == 0 || number < settings.count {
        let text = text(number, settings.size);
        source.write(0, &text)?;
        for memory in [source.remote(), sink.remote()] {
            server.send(&encode(memory), PATIENCE)?;
            server.recv(PATIENCE)?.ok_or("the server went away")?;
        }
        let mut back = vec![0; settings.size];
        sink.read(0, &mut back)?;
        if settings.validate && back != text {
            return Err(format!(
                "ping {number}: {:?} came back for {:?}",
                printed(&back),
                printed(&text)
            )
            .into());
        }
        if settings.verbose {
            println!("ping data: {}", printed(&back));
        }
        number += 1;
    }
    Ok(())
}
