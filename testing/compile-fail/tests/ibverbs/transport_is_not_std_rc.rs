//! `Rc` of the standard library is not the transport.
use std::rc::Rc;

use ibverbs::QueuePair;

fn rule(_: QueuePair<Rc<u8>>) {}

fn main() {}
