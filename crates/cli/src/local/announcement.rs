//! Says which local server a command uses, and that its locks exclude no command elsewhere.
//!
//! A user reads it on a terminal, once a day. In the mail of a cron job it would only be noise, unless a file names other servers: then
//! the command may use a server that was not meant.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::time::{Duration, SystemTime};

use bellwether::Who;

use crate::args::config_file;
use crate::local::Folder;
use crate::output::Output;

/// A file in the folder. The time of its last change is when the user was last told.
const STAMP: &str = "announced";

/// How long a user is not told again.
const PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

/// Prints it if it is due. Returns whether the user has read it, so that [`remember`] can keep the time.
pub(crate) fn announce(folder: &Folder, output: Output) -> bool {
    if let Some((file, servers)) = config_file::other_servers() {
        let file = file.display();
        output.notice(format_args!("{}; {file} names {servers}", which(folder)));
        return false;
    }
    let is_due = io::stderr().is_terminal() && !output.is_quiet() && !is_recent(folder);
    if is_due {
        output.notice(format_args!(
            "{} (BELLWETHER_CONNECT=local silences this)",
            which(folder)
        ));
    }
    is_due
}

/// Keeps the present time as that of the last announcement. The folder exists by now.
pub(crate) fn remember(folder: &Folder) {
    let stamped = File::create(folder.path().join(STAMP))
        .and_then(|stamp| stamp.set_modified(SystemTime::now()));
    if let Err(error) = stamped {
        tracing::debug!(%error, "the announcement will be repeated");
    }
}

fn is_recent(folder: &Folder) -> bool {
    let told = std::fs::metadata(folder.path().join(STAMP)).and_then(|stamp| stamp.modified());
    // A time in the future is none: the clock was set back.
    told.is_ok_and(|told| told.elapsed().is_ok_and(|age| age < PAUSE))
}

fn which(folder: &Folder) -> String {
    let user = Who::user_of_process();
    if folder.is_chosen() {
        let path = folder.path().display();
        return format!(
            "using the local server of {user} in {path}; commands with other folders, hosts or users are not excluded"
        );
    }
    let host = Who::host_of_process();
    format!(
        "using the local server of {user} on {host}; commands of other hosts and users are not excluded"
    )
}
