//! A field that was not enabled when the completion queue was created cannot be read.
use ibverbs::{Context, CqOptions, Error, cq_ex::CqFields};

fn rule(context: &Context) -> Result<(), Error> {
    let mut cq = context.create_cq_ex(CqOptions::default(), CqFields::new().cvlan())?;
    for completion in cq.poll()? {
        println!("{}", completion.timestamp());
    }
    Ok(())
}

fn main() {}
