//! The client: it offers memory that the server reads, then memory that the server writes.

use ibverbs::AccessFlags;
use rdmacm::{Messenger, Resolver};

use super::message::{encode, ping_data, printable};
use super::settings::{Settings, TIMEOUT, messenger_options};
use crate::Result;

/// Sends the number of pings given in the settings.
///
/// # Errors
/// The server cannot be reached, disconnects, or returns different data.
pub fn run(settings: &Settings) -> Result<()> {
    let mut resolver = Resolver::new(settings.address).timeout(TIMEOUT);
    if let Some(source) = settings.source {
        resolver = resolver.source(source);
    }
    let mut server = Messenger::connect_with(resolver, &messenger_options(), TIMEOUT)?;
    let pd = server.connection().qp().pd();
    let source = pd.shared(settings.size, AccessFlags::REMOTE_READ)?;
    let sink = pd.shared(settings.size, AccessFlags::REMOTE_WRITE)?;
    let mut number = 0;
    while settings.count == 0 || number < settings.count {
        let data = ping_data(number, settings.size);
        source.write(0, &data)?;
        for memory in [source.remote(), sink.remote()] {
            server.send(&encode(memory), TIMEOUT)?;
            server
                .recv(TIMEOUT)?
                .ok_or("wait for the server: it disconnected")?;
        }
        let mut returned = vec![0; settings.size];
        sink.read(0, &mut returned)?;
        if settings.validate && returned != data {
            return Err(format!(
                "verify ping {number}: sent {:?}, received {:?}",
                printable(&data),
                printable(&returned)
            )
            .into());
        }
        if settings.verbose {
            println!("ping data: {}", printable(&returned));
        }
        number += 1;
    }
    Ok(())
}
