//! Arguments of `tx`, two-phase commit among sites.

use std::time::Duration;

use clap::{Subcommand, ValueEnum};

use super::{TreeArgs, WaitArgs};
use crate::value::duration;
use crate::value::node_path;

/// Commit a change at several sites or at none, by two-phase commit.
///
/// `begin` starts a transaction among named sites. Each site joins, prepares and votes; `decide` counts the votes; and every site applies
/// the decision. The decision is to commit only if every site has voted to commit, and it never changes.
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
    /// This command does not wait for the decision: `tx decide` makes it, or, after the deadline, one of the joined sites.
    ///
    /// Exit code: 0; 1 if a transaction with that id exists already; 125 if bellwether failed.
    #[command(
        after_help = "Example:\n  bellwether tx begin /payments payer payee --data '{\"amount\": 60}'"
    )]
    Begin(TxBeginArgs),
    /// Join as a site: print the data of the transaction, wait for the decision, and print it.
    ///
    /// While it runs, the other sites see that this site is present. If it ends before the site has voted, they may abort. The site votes
    /// with `tx vote`.
    ///
    /// Exit code: 0 for commit; 1 for abort; 3 if there is no such transaction, or it was forgotten; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether tx join /payments \"$id\" payer")]
    Join(TxSiteArgs),
    /// Cast the vote of a site. Only the first vote of a site counts.
    ///
    /// A vote to commit is a promise: the site has prepared everything, and can commit whatever happens.
    ///
    /// Exit code: 0 if this vote counts; 1 if an earlier one does; 125 if bellwether failed.
    #[command(after_help = "Examples:
  bellwether tx vote /payments \"$id\" payer commit
  bellwether tx vote /payments \"$id\" payee abort --reason 'the account is closed'")]
    Vote(TxVoteArgs),
    /// Wait for the votes, decide, and print the decision. Several commands may decide; the decision is the same.
    ///
    /// Exit code: 0 for commit; 1 for abort; 3 if there is no such transaction, or it was forgotten; 125 if bellwether failed.
    #[command(after_help = "Examples:
  bellwether tx decide /payments \"$id\"
  bellwether tx decide /payments \"$id\" --abort 'no longer wanted'")]
    Decide(TxDecideArgs),
    /// Show the state of one transaction, or of all: present sites, votes, decision.
    ///
    /// Exit code: 0; 1 if there is no such transaction; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether tx ls /payments")]
    #[command(alias = "status")]
    Ls(TxLsArgs),
    /// Wait for the decision, and print it.
    ///
    /// Exit code: 0 for commit; 1 for abort; 3 if there is no such transaction, or it was forgotten because all sites have applied the
    /// decision; 124 if the wait limit passed; 125 if bellwether failed.
    #[command(
        after_help = "Example:\n  bellwether tx wait --wait 1m /payments \"$id\" && ./ship.sh"
    )]
    Wait(TxWaitArgs),
    /// Record that a site has applied the decision. When all sites have, the transaction is forgotten.
    ///
    /// Exit code: 0; 1 if there is no such transaction or site, or no decision; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether tx applied /payments \"$id\" payer")]
    Applied(TxSiteArgs),
    /// Remove a transaction that every site has applied; with --force, give up on the other sites.
    ///
    /// With --force, an undecided transaction is aborted first. Its decision stays, for sites that return.
    ///
    /// Exit code: 0; 1 if there is no such transaction, or a site has not applied the decision; 125 if bellwether failed.
    #[command(after_help = "Example:\n  bellwether tx forget --force /payments \"$id\"")]
    Forget(TxForgetArgs),
}

/// A transaction.
#[derive(Debug, clap::Args)]
pub(crate) struct TransactionArgs {
    /// The path of the transactions; the leading slash is optional.
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
    /// The path of the transactions; the leading slash is optional.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    /// The names of the sites.
    #[arg(required = true, value_name = "SITE")]
    pub(crate) sites: Vec<String>,
    /// Data for the sites.
    #[arg(long, default_value = "")]
    pub(crate) data: String,
    /// The id of the transaction, which must never be used again. By default, a unique id is made.
    #[arg(long, value_name = "ID", value_parser = node_path::parse_name)]
    pub(crate) id: Option<String>,
    /// How long to wait for votes. After this time, a missing vote counts as a vote to abort.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "30s")]
    pub(crate) deadline: Duration,
    /// Let every site count the votes itself, so that `tx decide` is not needed.
    #[arg(long)]
    pub(crate) every_site: bool,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TxSiteArgs {
    #[command(flatten)]
    pub(crate) transaction: TransactionArgs,
    /// The name of the site.
    pub(crate) site: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TxForgetArgs {
    #[command(flatten)]
    pub(crate) transaction: TransactionArgs,
    /// Give up on sites that will not return.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TxVoteArgs {
    #[command(flatten)]
    pub(crate) transaction: TransactionArgs,
    /// The name of the site.
    pub(crate) site: String,
    /// The vote.
    #[arg(value_enum)]
    pub(crate) vote: VoteName,
    /// The reason for a vote to abort.
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "no reason given",
        hide_default_value = true
    )]
    pub(crate) reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VoteName {
    /// The site is prepared.
    Commit,
    /// The site cannot commit.
    Abort,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TxDecideArgs {
    #[command(flatten)]
    pub(crate) transaction: TransactionArgs,
    /// Abort for this reason without waiting for missing votes, unless there is a decision already.
    #[arg(long, value_name = "REASON")]
    pub(crate) abort: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TxLsArgs {
    /// The path of the transactions; the leading slash is optional.
    #[arg(value_parser = node_path::parse)]
    pub(crate) path: String,
    /// The id of one transaction.
    #[arg(value_parser = node_path::parse_name)]
    pub(crate) id: Option<String>,
    /// Only transactions without a decision.
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
