//! Transactions among sites.

use std::time::Duration;

use clap::{Subcommand, ValueEnum};

use super::{TreeArgs, WaitArgs};
use crate::{duration, node_path};

/// Several sites do something, or none of them does.
///
/// One begins a transaction among named sites; each site joins it, prepares, and votes; whoever decides counts the votes; and
/// every site does as was decided. It is decided to commit only if every site has voted so, and that never changes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  id=$(bellwether tx begin /payments payer payee --data 60)
  bellwether tx vote /payments \"$id\" payer commit
  bellwether tx decide /payments \"$id\"")]
pub(crate) struct TxArgs {
    #[command(subcommand)]
    pub(crate) command: TxCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TxCommand {
    /// Begin a transaction among sites, and print its id.
    ///
    /// Nobody stays to decide: that is `tx decide`, or, after the deadline, one of the sites that have joined.
    ///
    /// Exit code: 0; 1 if there is one of that id already; 125 if bellwether failed.
    #[command(
        after_help = "Example:\n  bellwether tx begin /payments payer payee --data '{\"amount\": 60}'"
    )]
    Begin(TxBeginArgs),
    /// Be there as a site, print what it is about, and wait for the decision, which is printed too.
    ///
    /// While it stays, the others see that the site is there; if it goes before the site has voted, they may abort. The site votes
    /// by `tx vote`.
    ///
    /// Exit code: 0 if it is to commit; 1 if it is to abort; 3 if there is no such transaction, or none any more; 125 if bellwether
    /// failed.
    #[command(after_help = "Example:\n  bellwether tx join /payments \"$id\" payer")]
    Join(TxSiteArgs),
    /// Vote for a site. A site votes once: the first vote counts.
    ///
    /// A vote to commit is a promise: everything is prepared, and can be done whatever happens.
    ///
    /// Exit code: 0 if the vote stands; 1 if another one does; 125 if bellwether failed.
    #[command(after_help = "Examples:
  bellwether tx vote /payments \"$id\" payer commit
  bellwether tx vote /payments \"$id\" payee abort --reason 'the account is closed'")]
    Vote(TxVoteArgs),
    /// Wait for the votes, decide by them, and print the decision. Any number may do so: all decide alike.
    ///
    /// Exit code: 0 if it is to commit; 1 if it is to abort; 3 if there is no such transaction, or none any more; 125 if bellwether
    /// failed.
    #[command(after_help = "Examples:
  bellwether tx decide /payments \"$id\"
  bellwether tx decide /payments \"$id\" --abort 'no longer wanted'")]
    Decide(TxDecideArgs),
    /// Show how far a transaction is, or all of them: who is there, who has voted what, and what was decided.
    ///
    /// Exit code: 0; 1 if there is no such transaction; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether tx status /payments")]
    Status(TxStatusArgs),
    /// Wait for the decision, and print it.
    ///
    /// Exit code: 0 if it is to commit; 1 if it is to abort; 3 if there is no such transaction, or none any more: once all sites have
    /// done as was decided, it is forgotten; 124 if there was no decision in time; 125 if bellwether failed.
    #[command(
        after_help = "Example:\n  bellwether tx wait --wait 1m /payments \"$id\" && ./ship.sh"
    )]
    Wait(TxWaitArgs),
    /// Say that a site has done as was decided. When all have, the transaction is forgotten.
    ///
    /// Exit code: 0; 1 if there is no such transaction or site, or nothing is decided; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether tx applied /payments \"$id\" payer")]
    Applied(TxSiteArgs),
}

/// A transaction.
#[derive(Debug, clap::Args)]
pub(crate) struct TransactionArgs {
    /// Where the transactions are; a leading slash may be left out.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    /// The id of the transaction.
    #[arg(value_parser = node_path::parse_name)]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TxBeginArgs {
    /// Where the transactions are; a leading slash may be left out.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    /// The sites that have to agree.
    #[arg(required = true, value_name = "SITE")]
    pub(crate) sites: Vec<String>,
    /// What it is about, for the sites.
    #[arg(long, default_value = "")]
    pub(crate) data: String,
    /// An id of your own, which must never be used again.
    #[arg(long, value_name = "ID", value_parser = node_path::parse_name)]
    pub(crate) id: Option<String>,
    /// How long the votes are waited for; a site that has not voted then is taken to abort.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "30s")]
    pub(crate) deadline: Duration,
    /// Let every site count the votes for itself, so that nobody has to decide.
    #[arg(long)]
    pub(crate) every_site: bool,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TxSiteArgs {
    #[command(flatten)]
    pub(crate) transaction: TransactionArgs,
    /// The site.
    pub(crate) site: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TxVoteArgs {
    #[command(flatten)]
    pub(crate) transaction: TransactionArgs,
    /// The site.
    pub(crate) site: String,
    /// What it says.
    #[arg(value_enum)]
    pub(crate) vote: VoteName,
    /// Why it cannot.
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "it said so",
        hide_default_value = true
    )]
    pub(crate) reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VoteName {
    /// All is prepared.
    Commit,
    /// It cannot be done here.
    Abort,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TxDecideArgs {
    #[command(flatten)]
    pub(crate) transaction: TransactionArgs,
    /// Do not wait for votes that are missing: abort, for this reason, unless it is decided otherwise already.
    #[arg(long, value_name = "REASON")]
    pub(crate) abort: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TxStatusArgs {
    /// Where the transactions are; a leading slash may be left out.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    /// The id of one of them.
    #[arg(value_parser = node_path::parse_name)]
    pub(crate) id: Option<String>,
    /// Only those that wait for a decision.
    #[arg(long, conflicts_with = "id")]
    pub(crate) in_doubt: bool,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TxWaitArgs {
    #[command(flatten)]
    pub(crate) transaction: TransactionArgs,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}
