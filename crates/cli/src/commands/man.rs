//! `bellwether man`: the manual.

use anyhow::Context;
use clap::CommandFactory;

use crate::args::{Args, ManArgs};
use crate::exit::Exit;
use crate::output;

pub(crate) fn run(args: ManArgs) -> anyhow::Result<Exit> {
    match args.folder {
        Some(folder) => {
            let written = std::fs::create_dir_all(&folder)
                .and_then(|()| clap_mangen::generate_to(Args::command(), &folder));
            written.with_context(|| format!("cannot write to {}", folder.display()))?;
            Ok(Exit::Done)
        }
        None => Ok(output::answer(|out| {
            clap_mangen::Man::new(Args::command()).render(out)?;
            Ok(Exit::Done)
        })?),
    }
}
